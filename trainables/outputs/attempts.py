"""Where the attempts at a trial lie. No Ray, no torch: what reads a study needs this too."""

import re
from collections.abc import Iterable
from pathlib import Path


def attempt_directory(trial_directory: Path, attempt: int) -> Path:
    """Where one attempt at a trial writes; only the one the ledger names is the trial's."""
    return trial_directory / f"attempt-{attempt}"


def attempts_in(trial_directory: Path) -> list[Path]:
    """The attempts on disk, newest first."""
    found = [path for path in trial_directory.glob("attempt-*") if re.fullmatch(r"attempt-\d+", path.name)]
    return sorted(found, key=lambda path: int(path.name.removeprefix("attempt-")), reverse=True)


_REACHED = re.compile(r"^(?:epoch=|resumed from \S+ after epoch )(\d+)", re.MULTILINE)


def epochs_reached(attempts: Iterable[Path]) -> int:
    """How far the newest of these attempts, given newest first, has come by now: the epoch its log ends with."""
    for attempt in attempts:
        try:
            found = _REACHED.findall((attempt / "log").read_text(errors="replace"))
        except FileNotFoundError:  # it never came to train
            continue
        if found:
            return int(found[-1])
    return 0


def clear_checkpoints(trial_directory: Path) -> None:
    """Remove what only a running trial needs, from all its attempts."""
    for attempt in attempts_in(trial_directory):
        for left in attempt.glob("last.pt*"):
            left.unlink(missing_ok=True)
