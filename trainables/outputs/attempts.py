"""Directories of a trial's attempts. No Ray or torch: readers of a study use this too."""

import re
from collections.abc import Iterable
from pathlib import Path

from trainables.files.regular import NotAFile, read_text


def attempt_directory(trial_directory: Path, attempt: int) -> Path:
    """The directory of one attempt; the ledger says which attempt's files are the trial's."""
    return trial_directory / f"attempt-{attempt}"


def attempts_in(trial_directory: Path) -> list[Path]:
    """The attempts on disk, newest first."""
    found = [
        path
        for path in trial_directory.glob("attempt-*")
        if re.fullmatch(r"attempt-\d+", path.name)
    ]
    return sorted(found, key=lambda path: int(path.name.removeprefix("attempt-")), reverse=True)


_REACHED = re.compile(r"^(?:epoch=|resumed from \S+ after epoch )(\d+)", re.MULTILINE)


def epochs_reached(attempts: Iterable[Path]) -> int:
    """The last epoch in the newest attempt's log that has one. attempts: newest first."""
    for attempt in attempts:
        try:
            found = _REACHED.findall(read_text(attempt / "log", errors="replace"))
        except (FileNotFoundError, NotAFile):  # it never started training, or its log is gone
            continue
        if found:
            return int(found[-1])
    return 0


def clear_checkpoints(trial_directory: Path) -> None:
    """Remove the checkpoints of all attempts."""
    for attempt in attempts_in(trial_directory):
        for left in attempt.glob("last.pt*"):
            left.unlink(missing_ok=True)
