"""A wrong time of day for chosen programs: `skew.c`, preloaded."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("skew.c")
SKEWS = (300, -3600)


def refusal() -> str | None:
    """Why this machine cannot make one; None where it can."""
    return None if shutil.which("cc") else "there is no C compiler (cc) for a clock that is wrong"


def skewed(directory: Path, seconds: int) -> dict[str, str]:
    """The environment in which a program and what it starts are seconds ahead. `directory` keeps the library."""
    library = directory / "skew.so"
    if not library.exists():
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, SOURCE, "-ldl", "-lpthread"], check=True)
    return {"LD_PRELOAD": str(library), "CALSTUDY_SKEW": str(seconds)}
