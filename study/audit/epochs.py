"""Epochs trained, from the logs of all attempts of a trial, compared with epochs needed.

A log has one line per epoch; a later attempt first logs where it resumed. Epochs an attempt trains after the next one
has started (on a disconnected node) are wasted, not repeated.
"""

from __future__ import annotations

import math
import operator
import re
from dataclasses import astuple, dataclass, field
from pathlib import Path

from trainables.files.regular import NotAFile, read_text
from trainables.outputs.attempts import attempts_in

# Up to `seconds` and the space after it; a line that a kill cut off earlier still counts as an epoch.
_EPOCH = re.compile(
    r"^epoch=(\d{1,7}) (?:.*?\bseconds=(\d+(?:\.\d*)?(?:e[+-]?\d+)?)\s)?", re.MULTILINE
)
_RESUMED = re.compile(
    r"^resumed from \S+ after epoch (\d{1,7})(?:, of (\d{1,7}) trained)?$", re.MULTILINE
)
_CONVERTED = re.compile(r"^converted \S+/last\.pt ", re.MULTILINE)
_DAMAGED = re.compile(r"^\S+/last\.pt: ", re.MULTILINE)


@dataclass(frozen=True)
class Epochs:
    """Counts of epochs. trained = needed + repeated + damaged + wasted, unless log lines were lost."""

    needed: int = 0  # each epoch of a trial once
    trained: int = 0
    repeated: int = 0  # trained again because no checkpoint had them
    promised: int = (
        0  # upper bound on `repeated`: a checkpoint interval per attempt after the first
    )
    damaged: int = 0  # repeated because a checkpoint was damaged
    wasted: int = 0  # trained by an attempt already superseded
    converted: int = 0  # continued from a checkpoint of an older version, and not trained again

    def __add__(self, other: Epochs) -> Epochs:
        return Epochs(*map(operator.add, astuple(self), astuple(other)))


@dataclass(frozen=True)
class TrainedTrial:
    """Counts of one trial. lacking: needed epochs in no log. broken: violated guarantees, in words."""

    epochs: Epochs
    lacking: list[int] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)


def trained_epochs(trial_directory: Path, interval: float, needed: int | None) -> TrainedTrial:
    """Read the logs of a trial. interval: seconds between checkpoints. needed: epochs of its history, if any."""
    logs = {path.name: _text(path / "log") for path in reversed(attempts_in(trial_directory))}
    rows = {
        name: [(int(epoch), float(spent or math.inf)) for epoch, spent in _EPOCH.findall(log)]
        for name, log in logs.items()
    }
    fastest: dict[int, float] = {}
    for epoch, spent in (row for found in rows.values() for row in found):
        fastest[epoch] = min(spent, fastest.get(epoch, spent))
    repeated, promised, damaged, converted, reached, broken = 0, 0, 0, 0, 0, []
    for position, (name, log) in enumerate(logs.items()):
        resumed = _RESUMED.search(log)
        if not resumed and not rows[name]:
            continue
        start = int(resumed[1]) if resumed else 0
        # If the log does not say how far its predecessor had come, assume all its epochs.
        lost = max(0, int((resumed and resumed[2]) or reached) - start)
        allowed = _within(interval, start, fastest) if position else 0
        promised += allowed
        converted += start if _CONVERTED.search(log) else 0
        if _DAMAGED.search(log):
            damaged += lost
        else:
            repeated += lost
            if lost > allowed:
                broken.append(
                    f"{name} repeats {lost} epochs from {start + 1}, but a checkpoint interval has {allowed}"
                )
        reached = rows[name][-1][0] if rows[name] else start
    needed = reached if needed is None else needed
    trained = sum(map(len, rows.values()))
    wasted = max(0, trained - needed - repeated - damaged)
    lacking = [epoch for epoch in range(1, needed + 1) if epoch not in fastest]
    return TrainedTrial(
        Epochs(needed, trained, repeated, promised, damaged, wasted, converted), lacking, broken
    )


def _within(interval: float, start: int, seconds: dict[int, float]) -> int:
    """Epochs from the checkpoint after `start` to the next, written at the first epoch end after the interval."""
    spent, count = 0.0, 0
    while start + count + 1 in seconds and (count == 0 or spent < interval):
        count += 1
        spent += seconds[start + count]
    return max(1, count)


def _text(log: Path) -> str:
    try:
        return read_text(log, errors="replace")
    except (FileNotFoundError, NotAFile):  # an attempt that never trained, or whose log is gone
        return ""
