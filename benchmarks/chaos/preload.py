"""Libraries that deceive chosen programs: a C file here each, preloaded."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

SOURCES = Path(__file__).parent


def refusal() -> str | None:
    """Why this machine cannot make one; None where it can."""
    return None if shutil.which("cc") else "there is no C compiler (cc) for a library to preload"


def preloaded(name: str, directory: Path) -> dict[str, str]:
    """The environment in which NAME.c comes before the C library. `directory`
    keeps what is compiled."""
    library = directory / f"{name}.so"
    if not library.exists():
        source = SOURCES / f"{name}.c"
        subprocess.run(
            ["cc", "-O2", "-shared", "-fPIC", "-o", library, source, "-ldl", "-lpthread"],
            check=True,
        )
    return {"LD_PRELOAD": str(library)}
