"""What an attempt at a trial leaves, and how its driver hears of it. No Ray or torch: readers
of a study use this too."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal

from trainables.plain import Plain, Record

OutcomeState = Literal["complete", "pruned", "failed", "out_of_memory", "interrupted", "denied"]
FIRST = ("attempt", "host", "versions", "state", "reason", "metrics")  # in a written outcome


@dataclass(frozen=True, kw_only=True)
class Training:
    """The facts of a training. A field added here is recorded with the outcome of each attempt that
    sets it, checked by its type as the ledger is read, and a field of the trial's record."""

    reason: str | None = None  # of one that is not complete
    epoch: int | None = None  # of the final weights
    seconds: float | None = None  # of training, over all epochs
    samples: int | None = None  # seen in training, over all epochs
    device: str | None = None
    host: str | None = None  # of the process that trained it
    training: dict[str, str] | None = None  # how: precision, step, features, the device's name
    features: str | None = None  # sha256 of a frozen network's outputs that it trained on
    # Of the libraries, as its process had them, and the driver's git commit.
    versions: dict[str, str] | None = None


@dataclass(frozen=True, kw_only=True)
class Outcome(Training, Record):
    """What an attempt left.

    state: `complete`, `pruned` or `failed`; or, worth another attempt, `out_of_memory` (on a
    whole GPU), `interrupted` (by the machine: a disk) or `denied` (a process or memory).
    """

    attempt: int | None = None
    state: OutcomeState
    metrics: dict[str, float] | None = None  # on the validation split
    digests: dict[str, str] | None = None  # sha256 of its files

    def training_facts(self) -> dict[str, Any]:
        """Those fields of `Training` that are known."""
        found = {each.name: getattr(self, each.name) for each in fields(Training)}
        return {name: value for name, value in found.items() if value is not None}

    def to_plain(self, *last: str) -> dict[str, Plain]:
        """As it is written; `last` are the keys at its end, of one that was measured the reason."""
        last = last or ("reason",) * (self.metrics is not None)
        plain = super().to_plain()
        keys = [key for key in dict.fromkeys((*FIRST, *plain)) if key not in last]
        return {key: plain[key] for key in (*keys, *last) if key in plain}


@dataclass(frozen=True)
class Reached(Record):
    """A trial at its rung, where the driver decides whether it goes on.

    costs: by which; smaller is better. outcome: of a trial that is stopped there.
    """

    parts: ClassVar = {"outcome": Outcome}
    epoch: int
    costs: list[float]
    outcome: Outcome


@dataclass(frozen=True)
class Report(Record):
    """What a trial tells its driver after a step."""

    parts: ClassVar = {"outcome": Outcome, "rung": Reached}
    always: ClassVar = "outcome"
    rows: list[dict[str, float]]  # of its history, since the last report
    outcome: Outcome | None = None  # of a trial that ended
    rung: Reached | None = None
    extensions: dict[str, str] | None = None  # sha256 of the extension files that it uses


def reports_to_json(reports: Mapping[str, Report]) -> str:
    """What trials that train together tell, by their names."""
    return json.dumps({name: report.to_plain() for name, report in reports.items()})


def reports_from_json(text: str) -> dict[str, Report]:
    return {name: Report.from_plain(plain) for name, plain in json.loads(text).items()}
