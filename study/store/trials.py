"""TrialRecord: the ledger's record of one trial, as a plain value; Trials: those of a study."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Literal

from trainables.outputs.outcome import Outcome, Training
from trainables.plain import Plain, Record, Value
from trainables.problems import FieldError, nearest

State = Literal["running", "complete", "pruned", "failed"]


@dataclass(frozen=True)
class Decision(Record):
    """What early stopping decided of a trial at its rung.

    place: how many of its method were decided there before it. costs: smaller is better. attempt
    and digests: where its predictions are. outcome: of one that does not go on.
    """

    parts: ClassVar = {"outcome": Outcome}
    place: int
    costs: list[float]
    attempt: int
    digests: dict[str, str]
    outcome: Outcome | None = None

    @property
    def goes_on(self) -> bool:
        return self.outcome is None

    def to_plain(self) -> dict[str, Plain]:
        head: dict[str, Plain] = {"place": self.place, "costs": self.costs, "goes_on": self.goes_on}
        plain = {**head, **super().to_plain()}
        if self.outcome is not None:
            plain["outcome"] = self.outcome.to_plain("attempt", "versions", "reason")
        return plain


@dataclass(frozen=True)
class TrialRecord(Training):
    """A trial, identified by study, label and number, and its result."""

    label: str
    number: int
    state: State
    params: dict[str, Value]  # searched values by dotted path
    # On the validation split; of a pruned trial, at its rung.
    metrics: dict[str, float] = field(default_factory=dict)
    attempt: int = 0  # of a finished trial: the one counted; else the latest started, 0 if none
    digests: dict[str, str] = field(default_factory=dict)  # sha256 of its attempt's files
    deaths: dict[str, int] = field(default_factory=dict)  # attempts that died, by cause
    # By attempt that the machine killed: used, limit and own, in bytes on its node.
    memory: dict[str, dict[str, int]] = field(default_factory=dict)
    started: float | None = None  # seconds since 1970
    ended: float | None = None
    # sha256 of the extension files it uses.
    extensions: dict[str, str] = field(default_factory=dict)
    # Early stopping's decisions, by epoch.
    rungs: dict[str, Decision] = field(default_factory=dict)
    stack: str | None = None  # the first trial of the stack that it is recorded in
    together: tuple[str, ...] = ()  # the trials that were asked with it, if it is their first
    is_retry: bool = False  # it stands in the place of a trial that had failed
    failed_seconds: float = 0.0  # of training, that failed before it
    # Where they are not known:
    device: str = field(default="cpu", kw_only=True)
    training: dict[str, str] = field(default_factory=dict, kw_only=True)
    versions: dict[str, str] = field(default_factory=dict, kw_only=True)

    @property
    def final(self) -> dict[str, float]:
        """The final values tracked in MLflow: a complete trial's metrics, and cost."""
        metrics = self.metrics if self.state == "complete" else {}
        cost = {"seconds": self.seconds, "samples": self.samples}
        return {**metrics, **{name: value for name, value in cost.items() if value is not None}}

    @property
    def is_open(self) -> bool:
        """Whether it was asked and has not ended."""
        return self.state == "running"

    @property
    def stopped(self) -> Outcome | None:
        """The outcome with which early stopping ends it, once that is decided."""
        return next((rung.outcome for rung in self.rungs.values() if rung.outcome), None)

    @property
    def how_trained(self) -> str | None:
        """`training` in words; None where the trial came to no result."""
        return ", ".join(f"{name}: {value}" for name, value in self.training.items()) or None

    @property
    def name(self) -> str:
        """`focal/0007`: its MLflow run, its directory under trials/, its name in every message."""
        return trial_name(self.label, self.number)

    @property
    def setting(self) -> tuple[Any, ...]:
        """What it shares with the trials that differ from it by their seed alone."""
        return self.label, *sorted(self.params.items())

    def directory(self, study: Path) -> Path:
        """That of its attempts, in the study's."""
        return trial_directory(study, self.label, self.number)


class Listener:
    """Follows trials; each event is in the ledger before a listener is called."""

    def may_begin_of(self, wanted: dict[str, int]) -> dict[str, int]:
        """How many of these trials, by method, may begin at once. Trials that began go on in any
        case."""
        return wanted

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

    def waiting(self, line: str | None) -> None:
        """What the driver waits for; None: it goes on. May be called often."""


@dataclass(frozen=True)
class Place(Record):
    """Of a method in a race: how many trials it is to have by now, and whether the race goes on."""

    seeds: int
    goes_on: bool


def trial_name(label: str, number: int) -> str:
    return f"{label}/{number:04d}"


@dataclass(frozen=True)
class Trials(Sequence[TrialRecord]):
    """Trials of a study: by method in the study's order, then by number."""

    by_label: dict[str, list[TrialRecord]]  # also of methods without a trial
    # By method, what a race has decided; empty if there is none.
    places: Mapping[str, Place] = field(default_factory=dict)
    address: str | None = None  # of the Ray cluster that trained last; None is a Ray of its own

    @cached_property
    def _all(self) -> list[TrialRecord]:
        return list(chain.from_iterable(self.by_label.values()))

    def __iter__(self) -> Iterator[TrialRecord]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    def __getitem__(self, place: Any) -> Any:
        return self._all[place]

    @property
    def labels(self) -> list[str]:
        return list(self.by_label)

    def of(self, label: str) -> list[TrialRecord]:
        return self.by_label.get(label, [])

    def under(self, labels: Iterable[str]) -> Trials:
        """Those of these methods, in this order."""
        return Trials({label: self.of(label) for label in labels}, self.places, self.address)

    @property
    def complete(self) -> Trials:
        return self._in("complete")

    @property
    def running(self) -> Trials:
        """Those that were asked and have not ended."""
        return self._in("running")

    @property
    def finished(self) -> Trials:
        """Those that ended, whichever way."""
        return self._in("complete", "pruned", "failed")

    def _in(self, *states: State) -> Trials:
        return Trials(
            {
                label: [record for record in found if record.state in states]
                for label, found in self.by_label.items()
            },
            self.places,
            self.address,
        )

    def planned(self, of_each: int) -> dict[str, int]:
        """By method, how many are planned: of a race, so far; else so many of each."""
        return {
            label: self.places[label].seeds if label in self.places else of_each
            for label in self.by_label
        }

    def lacking(self, of_each: int) -> int:
        """How many planned ones are not finished; at least one while a race goes on."""
        planned = self.planned(of_each)
        missing = (max(0, planned[label] - len(found)) for label, found in self.by_label.items())
        goes_on = any(place.goes_on for place in self.places.values())
        return max(len(self.running) + sum(missing), int(goes_on))

    def numbered(self, label: str, number: int) -> TrialRecord | None:
        return next((record for record in self.of(label) if record.number == number), None)

    def named(self, name: str, path: str) -> TrialRecord:
        """The complete trial of that name (`focal/7` works too).

        Raises FieldError at `path`, with the nearest name.
        """
        label, _, number = name.partition("/")
        found = self.numbered(label, int(number)) if number.isdecimal() else None
        if found is None:
            names = [record.name for record in self.complete]
            there = nearest(name, names)
            if len(names) > 10 and "Did" not in there:
                there = "Write focal/0007."
            raise FieldError(path, f"there is no trial '{name}'", there)
        if found.state != "complete":
            problem = f"{found.name} is {found.state}; only complete trials have predictions"
            raise FieldError(path, f"{problem} and a model")
        return found


def label_and_number(name: str) -> tuple[str, int]:
    """The label and the number of `focal/0007`."""
    label, _, number = name.partition("/")
    return label, int(number)


def trial_directory(study: Path, label: str, number: int) -> Path:
    return study / "trials" / trial_name(label, number)
