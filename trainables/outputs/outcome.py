"""What an attempt at a trial leaves, and how its driver hears of it. No Ray or torch: readers
of a study use this too."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from trainables.plain import Plain, Record

OutcomeState = Literal["complete", "pruned", "failed", "out_of_memory", "interrupted", "denied"]


@dataclass(frozen=True, kw_only=True)
class Outcome(Record):
    """What an attempt left.

    state: `complete`, `pruned` or `failed`; or, worth another attempt, `out_of_memory` (on a
    whole GPU), `interrupted` (by the machine: a disk) or `denied` (a process or memory).
    """

    attempt: int | None = None
    host: str | None = None  # where it trained
    # Of the libraries, as its process had them, and the driver's git commit.
    versions: dict[str, str] | None = None
    state: OutcomeState
    reason: str | None = None  # of one that is not complete
    metrics: dict[str, float] | None = None  # on the validation split
    epoch: int | None = None  # of the weights it is of
    seconds: float | None = None  # of training, over all epochs
    samples: int | None = None  # seen in training, over all epochs
    device: str | None = None
    training: dict[str, str] | None = None  # how: precision, step, features, the device's name
    features: str | None = None  # sha256 of a frozen network's outputs that it trained on
    digests: dict[str, str] | None = None  # sha256 of its files

    def to_plain(self, *last: str) -> dict[str, Plain]:
        """As it is written; `last` are the keys at its end, of one that was measured the reason."""
        last = last or ("reason",) * (self.metrics is not None)
        return dict(sorted(super().to_plain().items(), key=lambda item: item[0] in last))


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
