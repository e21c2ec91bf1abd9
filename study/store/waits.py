"""What a run waits for, before trials train: written by its driver, read by `status`."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from trainables.files.regular import read_regular

FILE = "run.waits"
MOST = 10_000  # bytes of a line


def note_wait(directory: Path, line: str | None) -> None:
    """Note what the study's run waits for; None: it goes on. Nothing depends on it."""
    file = directory / FILE
    with suppress(OSError):
        if line is None:
            file.unlink()
        else:
            partial = file.with_name(f"{FILE}.partial")
            partial.unlink(missing_ok=True)
            with partial.open("x") as new:
                new.write(line)
            partial.replace(file)


def noted_wait(directory: Path) -> str | None:
    """What the run of a study waits for, if one runs it."""
    with suppress(OSError, ValueError):
        return read_regular(directory / FILE, MOST).decode(errors="replace").strip() or None
    return None
