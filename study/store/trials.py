"""TrialRecord: the ledger's record of one trial, as a plain value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from trainables.fields import FieldError, nearest

State = Literal["running", "complete", "pruned", "failed"]


@dataclass(frozen=True)
class TrialRecord:
    """A trial, identified by study, label and number, and its result."""

    label: str
    number: int
    state: State
    params: dict[str, Any]  # searched values by dotted path
    metrics: dict[str, float] = field(
        default_factory=dict
    )  # on the validation split; of a pruned trial, at its rung
    attempt: int = 0  # of a finished trial: the one counted; else the latest started, 0 if none
    epoch: int | None = None  # the epoch of the final weights
    seconds: float | None = None  # of training, over all epochs
    samples: int | None = None  # training samples seen, over all epochs
    reason: str | None = None  # of a pruned or failed trial
    digests: dict[str, str] = field(default_factory=dict)  # sha256 of its attempt's files
    deaths: dict[str, int] = field(default_factory=dict)  # attempts that died, by cause
    started: float | None = None  # seconds since 1970
    ended: float | None = None
    device: str = "cpu"
    training: dict[str, str] = field(
        default_factory=dict
    )  # how: precision, step, features, the device's name
    versions: dict[str, str] = field(default_factory=dict)  # of the libraries, and the git commit
    extensions: dict[str, str] = field(
        default_factory=dict
    )  # sha256 of the extension files it uses
    rungs: dict[str, dict[str, Any]] = field(
        default_factory=dict
    )  # early stopping's decisions, by epoch

    @property
    def final(self) -> dict[str, float]:
        """The final values tracked in MLflow: a complete trial's metrics, and cost."""
        metrics = self.metrics if self.state == "complete" else {}
        cost = {"seconds": self.seconds, "samples": self.samples}
        return {**metrics, **{name: value for name, value in cost.items() if value is not None}}

    @property
    def stopped(self) -> dict[str, Any] | None:
        """The outcome with which early stopping ends it, once that is decided."""
        return next((rung["outcome"] for rung in self.rungs.values() if not rung["goes_on"]), None)

    @property
    def how_trained(self) -> str | None:
        """`training` in words; None for a trial of an older version."""
        return ", ".join(f"{name}: {value}" for name, value in self.training.items()) or None

    @property
    def name(self) -> str:
        """`focal/0007`: its MLflow run, its directory under trials/, its name in every message."""
        return trial_name(self.label, self.number)


class Listener:
    """Follows trials; each event is in the ledger before a listener is called."""

    def may_begin(self, label: str) -> bool:
        """Whether another trial of the method may begin. Trials that began go on in any case."""
        return True

    def handed_out(self, record: TrialRecord) -> None:
        """An attempt at a trial was handed to Ray, where it may wait."""

    def started(self, record: TrialRecord) -> None:
        """An attempt at a trial has started."""

    def trained(self, record: TrialRecord, rows: list[dict[str, float]]) -> None:
        """A trial reported epochs."""

    def stopped(self, record: TrialRecord) -> None:
        """An attempt died; the trial waits for the next one."""

    def finished(self, record: TrialRecord) -> None:
        """The ledger has a trial's result."""

    def said(self, line: str) -> None:
        """Something that its user should know of the search."""


def trial_name(label: str, number: int) -> str:
    return f"{label}/{number:04d}"


def trial_named(records: Sequence[TrialRecord], name: str, path: str) -> TrialRecord:
    """The complete trial of that name (`focal/7` works too). Raises FieldError at `path`, with the nearest name."""
    label, _, number = name.partition("/")
    named = (
        one
        for one in records
        if one.label == label and number.isdecimal() and one.number == int(number)
    )
    found = next(named, None)
    if found is None:
        names = [record.name for record in records if record.state == "complete"]
        there = (
            nearest(name, names)
            if len(names) <= 10 or " Did" in nearest(name, names)
            else " Write focal/0007."
        )
        raise FieldError(path, f"there is no trial '{name}'.{there}")
    if found.state != "complete":
        raise FieldError(
            path,
            f"{found.name} is {found.state}; only complete trials have predictions and a model.",
        )
    return found


def trial_directory(study: Path, label: str, number: int) -> Path:
    return study / "trials" / trial_name(label, number)
