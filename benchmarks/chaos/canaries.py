"""A folder in which every name that could be imported leaves a trace when it is."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path

OURS = {"study", "trainables", "search_spaces", "calstudy"}
# It leaves its name and the program that ran it, and is no module.
TEXT = """import sys
with open({trace!r}, "a") as trace:
    trace.write("{name} in " + " ".join(sys.orig_argv)[:200] + chr(10))
raise ImportError("{name}: imported from the working directory")
"""


def lay(folder: Path, trace: Path) -> None:
    """Make the folder, with NAME.py for every library here and for all of Python's own."""
    folder.mkdir(parents=True, exist_ok=True)
    names = {*sys.stdlib_module_names, *importlib.metadata.packages_distributions()} - OURS
    for name in names:
        if name.isidentifier():
            (folder / f"{name}.py").write_text(TEXT.format(trace=str(trace), name=name))
