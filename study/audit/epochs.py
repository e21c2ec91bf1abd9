"""Epochs trained, from the logs of all attempts of a trial, compared with epochs needed.

A log has one line per epoch; a later attempt first logs where it resumed. Epochs an attempt trains
after the next one has started (on a disconnected node) are wasted, not repeated.
"""

from __future__ import annotations

import math
import operator
import re
from dataclasses import astuple, dataclass, field
from itertools import chain
from pathlib import Path

from trainables.files.regular import NotAFile, read_text
from trainables.outputs.attempts import attempts_in

# Up to `seconds` and the space after it; a line that a kill cut off earlier is an epoch too.
_EPOCH = re.compile(
    r"^epoch=(\d{1,7}) (?:.*?\bseconds=(\d+(?:\.\d*)?(?:e[+-]?\d+)?)\s)?", re.MULTILINE
)
_RESUMED = re.compile(
    r"^resumed from \S+ after epoch (\d{1,7})(?:, of (\d{1,7}) trained)?$", re.MULTILINE
)
_DAMAGED = re.compile(r"^\S+/last\.pt: ", re.MULTILINE)


@dataclass(frozen=True)
class Epochs:
    """Counts of epochs: trained = needed + repeated + damaged + wasted, if no log line is lost."""

    needed: int = 0  # each epoch of a trial once
    trained: int = 0
    repeated: int = 0  # trained again because no checkpoint had them
    # Upper bound on `repeated`: a checkpoint interval per attempt after the first.
    promised: int = 0
    damaged: int = 0  # repeated because a checkpoint was damaged
    wasted: int = 0  # trained by an attempt already superseded

    def __add__(self, other: Epochs) -> Epochs:
        return Epochs(*map(operator.add, astuple(self), astuple(other)))


@dataclass(frozen=True)
class TrainedTrial:
    """Counts of one trial. lacking: needed epochs in no log. broken: violated guarantees."""

    epochs: Epochs
    lacking: list[int] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)


def trained_epochs(trial_directory: Path, interval: float, needed: int | None) -> TrainedTrial:
    """Read a trial's logs. interval: seconds between checkpoints. needed: epochs of its history."""
    logs = {path.name: _text(path / "log") for path in reversed(attempts_in(trial_directory))}
    rows = {
        name: [(int(epoch), float(spent or math.inf)) for epoch, spent in _EPOCH.findall(log)]
        for name, log in logs.items()
    }
    fastest: dict[int, float] = {}
    for epoch, spent in chain(*rows.values()):
        fastest[epoch] = min(spent, fastest.get(epoch, spent))
    repeated = promised = damaged = reached = 0
    broken = []
    for position, (name, log) in enumerate(logs.items()):
        resumed = _RESUMED.search(log)
        if not resumed and not rows[name]:
            continue
        start = int(resumed[1]) if resumed else 0
        # If the log does not say how far its predecessor had come, assume all its epochs.
        lost = max(0, int((resumed and resumed[2]) or reached) - start)
        allowed = _within(interval, start, fastest) if position else 0
        promised += allowed
        if _DAMAGED.search(log):
            damaged += lost
        else:
            repeated += lost
            if lost > allowed:
                broken.append(
                    f"{name} repeats {lost} epochs from {start + 1}, but a checkpoint interval has"
                    f" {allowed}"
                )
        reached = rows[name][-1][0] if rows[name] else start
    if needed is None:
        needed = reached
    trained = sum(map(len, rows.values()))
    wasted = max(0, trained - needed - repeated - damaged)
    lacking = [epoch for epoch in range(1, needed + 1) if epoch not in fastest]
    return TrainedTrial(
        Epochs(needed, trained, repeated, promised, damaged, wasted), lacking, broken
    )


def _within(interval: float, start: int, seconds: dict[int, float]) -> int:
    """Epochs from the checkpoint after `start` to the next, at the first end after the interval."""
    spent = 0.0
    count = 0
    while start + count + 1 in seconds and (count == 0 or spent < interval):
        count += 1
        spent += seconds[start + count]
    return max(1, count)


def _text(log: Path) -> str:
    try:
        return read_text(log, errors="replace")
    except (FileNotFoundError, NotAFile):  # an attempt that never trained, or whose log is gone
        return ""
