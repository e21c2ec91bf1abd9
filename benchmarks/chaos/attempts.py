"""What the logs of a study's attempts say: which epochs were trained, and which of them twice."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from study.store.trials import TrialRecord
from trainables.outputs.attempts import attempts_in

_ROW = re.compile(r"^epoch=(\d+) .*?\bseconds=(\S+)\s", re.MULTILINE)
_PROCESS = re.compile(r"^process (\d+) on ", re.MULTILINE)
_RESUMED = re.compile(
    r"^resumed from (?:\S+/)?(attempt-\d+) after epoch (\d+)(?:, of (\d+) trained)?", re.MULTILINE
)


@dataclass(frozen=True)
class Attempt:
    """One attempt at a trial. `seconds`: of training, by epoch."""

    trial: str  # LABEL/NUMBER
    number: int
    resumed_from: str | None  # attempt-N
    resumed_after: int  # epoch; 0 where it began anew
    found: int | None  # the last epoch that had been trained when it resumed, where its log says so
    seconds: dict[int, float]
    pid: int | None = None  # of the process that trains it, as its own machine numbers it

    @property
    def epoch(self) -> int:
        """The last it has reached."""
        return max(self.seconds, default=self.resumed_after)


@dataclass(frozen=True)
class Loss:
    """What one attempt had trained and the next had to train again."""

    lost: Attempt
    following: Attempt
    checkpoint_seconds: float
    # Where a file was damaged: the epoch of the newest whole checkpoint left; of a stack 0.
    floor: int | None = None

    @property
    def _seconds(self) -> list[float]:
        # What it trained after that, cut off from the rest and in vain, is not lost by going on.
        last = self.lost.epoch if self.following.found is None else self.following.found
        seconds = sorted(self.lost.seconds.items())
        return [took for epoch, took in seconds if self.following.resumed_after < epoch <= last]

    @property
    def epochs(self) -> int:
        """How many."""
        return len(self._seconds)

    @property
    def promised(self) -> int:
        """The most that is promised: a checkpoint interval, at least one epoch;
        or back to the floor."""
        mean = sum(self.lost.seconds.values()) / len(self.lost.seconds)
        epochs, left = 0, self.checkpoint_seconds
        for took in self._seconds:
            if left <= 0:
                break
            epochs, left = epochs + 1, left - took
        epochs += math.ceil(max(0.0, left) / mean)
        return epochs if self.floor is None else max(epochs, self.lost.epoch - self.floor)

    @property
    def kept(self) -> bool:
        """Whether the promise was, to the epoch.

        A checkpoint is due at the end of the first epoch at which the interval is over:
        the epochs before the last of
        those lost took less than the interval, whatever the load of the machine.
        """
        if self.floor is not None:
            return self.following.resumed_after >= self.floor
        return sum(self._seconds[:-1]) < self.checkpoint_seconds


def attempts_of(study: Path) -> dict[str, list[Attempt]]:
    """All attempts by trial, in their order."""
    found: dict[str, list[Attempt]] = {}
    for directory in sorted(study.glob("trials/*/*")):
        name = f"{directory.parent.name}/{directory.name}"
        found[name] = [_read(name, path) for path in reversed(attempts_in(directory))]
    return found


def _read(trial: str, directory: Path) -> Attempt:
    try:
        log = (directory / "log").read_text()
    except FileNotFoundError:
        log = ""
    resumed, process = _RESUMED.search(log), _PROCESS.search(log)
    return Attempt(
        trial,
        int(directory.name.removeprefix("attempt-")),
        resumed.group(1) if resumed else None,
        int(resumed.group(2)) if resumed else 0,
        int(resumed.group(3)) if resumed and resumed.group(3) else None,
        {int(epoch): float(seconds) for epoch, seconds in _ROW.findall(log)},
        int(process.group(1)) if process else None,
    )


def rows(attempts: dict[str, list[Attempt]]) -> int:
    """Epochs trained, the repeated ones too."""
    return sum(len(attempt.seconds) for tried in attempts.values() for attempt in tried)


def losses(
    attempts: dict[str, list[Attempt]],
    records: dict[str, TrialRecord],
    checkpoint_seconds: float,
    floors: dict[tuple[str, int], int],
) -> dict[tuple[str, int], Loss]:
    """By trial and lost attempt (as `floors` are), for each that was followed by
    one which has trained."""
    found = {}
    for trial, tried in attempts.items():
        trained = [attempt for attempt in tried if attempt.seconds]
        for lost, following in pairwise(trained):
            key = (trial, lost.number)
            # A stack has no checkpoints.
            floor = floors.get(key) if records[trial].stack is None else 0
            found[key] = Loss(lost, following, checkpoint_seconds, floor)
    return found
