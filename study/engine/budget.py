"""The budget while a study runs, and before: whether it pays for another trial, and for what is
tried first."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from study.analysis.prediction import Costs, predict
from study.schema.errors import SpecError
from study.schema.resources import Resources
from study.schema.spec import StudySpec
from study.store.spending import UNITS, cost_of, means
from study.store.study import StudyFolder
from study.store.trials import Listener, TrialRecord, Trials


@dataclass
class _Open:
    """A trial that was handed out and has not ended."""

    label: str
    seconds: float = 0.0
    epoch: int = 0


class Spending(Listener):
    """Follows what the trials of a study cost, in the unit of its budget.

    expected: by label, hours of a trial until one of its own has ended, then their mean counts.
    """

    def __init__(self, spec: StudySpec, records: Trials, expected: Mapping[str, float]) -> None:
        self._spec = spec
        self._budget = spec.budget
        self._expected = dict(expected)
        self._following = min(records.labels, key=lambda label: len(records.of(label)))
        self._open: dict[str, _Open] = {}
        self._ended: dict[str, list[float]] = {label: [] for label in records.labels}
        for record in records:
            if record.state == "running":  # it was begun, and is handed out again
                self.handed_out(record)
            else:
                self._count(record)

    def may_begin(self, label: str) -> bool:
        """Whether the budget pays for another trial, beside what was spent and what the open ones
        will still take."""
        if self._budget is None:
            return True
        return self.committed + self._of_one(label) <= self._budget.hours * (1 + 1e-9)

    def may_begin_of(self, wanted: dict[str, int]) -> dict[str, int]:
        """As many as the budget pays for together: of each method one, then another, and so on."""
        if self._budget is None:
            return wanted
        left = self._budget.hours * (1 + 1e-9) - self.committed
        granted = dict.fromkeys(wanted, 0)
        open_for = {label for label, count in wanted.items() if count}
        while open_for:
            for label in sorted(open_for):
                if granted[label] == wanted[label] or (cost := self._of_one(label)) > left:
                    open_for.discard(label)
                    continue
                left -= cost
                granted[label] += 1
        return granted

    def has_work(self) -> bool:
        """Whether a trial is open, or the budget pays for another of the method with the fewest."""
        return bool(self._open) or self.may_begin(self._following)

    @property
    def committed(self) -> float:
        """What has been spent, and what the open trials will still take."""
        ended = sum(map(sum, self._ended.values()))
        return ended + sum(map(self._whole, self._open.values()))

    def handed_out(self, record: TrialRecord) -> None:
        self._open[record.name] = _Open(record.label, record.failed_seconds)

    def trained(self, record: TrialRecord, rows: list[dict[str, float]]) -> None:
        if rows and (one := self._open.get(record.name)) is not None:
            one.seconds += sum(row["seconds"] for row in rows)
            one.epoch = int(rows[-1]["epoch"])

    def stopped(self, record: TrialRecord) -> None:
        self.handed_out(record)

    def finished(self, record: TrialRecord) -> None:
        self._open.pop(record.name, None)
        self._count(record)

    def _count(self, record: TrialRecord) -> None:
        if self._budget is not None and record.seconds is not None:
            cost = cost_of(record, self._spec.resources_of(record.label))
            self._ended[record.label].append(cost.of(self._budget.unit))

    def _of_one(self, label: str) -> float:
        ended = self._ended[label]
        return sum(ended) / len(ended) if ended else self._expected.get(label, 0.0)

    def _whole(self, one: _Open) -> float:
        """What it has taken, and the same share of an expected trial as it has epochs left."""
        assert self._budget is not None
        needs = self._spec.resources_of(one.label)
        taken = one.seconds / 3600 * rate(needs, self._budget.unit)
        return taken + self._of_one(one.label) * (1 - one.epoch / self._spec.epochs)


def expected_costs(
    spec: StudySpec,
    file_name: str,
    stored: StudyFolder | None,
    digest: str,
    say: Callable[[str], None],
    probe: Callable[..., Costs],
    probed: Costs | None = None,
    room: Callable[[float], None] = lambda disk: None,
) -> dict[str, float]:
    """By label, what a trial costs in hours of the budget: the mean of its ended ones, else by a
    probe.

    stored: the study as it exists. digest: of the data. probe: with its targets and where. room: is
    told the bytes of all trials of what was probed. Without a budget nothing is probed. Raises
    SpecError if the budget cannot pay for what is tried first, or a method fails in the probe.
    """
    if spec.budget is None:
        return {}
    unit = spec.budget.unit
    expected = {}
    records = _records(spec, stored)
    if stored is not None:
        expected = means(stored, records, unit)
    if missing := [label for label in records.labels if label not in expected]:
        probed_here = probed is None
        if probed is None:
            probed = probe(spec, file_name, digest, missing, say)
        costs = {label: probed[label] for label in missing}
        predicted = predict(spec, costs, 1, stopping=True)
        if probed_here:
            room(predicted.total("disk"))
        for one in predicted.methods:
            hours = one.epochs_share * one.trial_seconds / 3600
            expected[one.label] = hours * rate(spec.resources_of(one.label), unit)
    _refuse_unpaid(spec, file_name, records, expected)
    return expected


def _records(spec: StudySpec, stored: StudyFolder | None) -> Trials:
    found = Trials({}) if stored is None else stored.records()
    return found.under(variant.label for variant in spec.variants)


def rate(resources: Resources, unit: str) -> float:
    """CPUs or GPUs, by the budget's unit."""
    return resources.cpu if unit == "cpu_hours" else resources.gpu


def tried_first(spec: StudySpec, label: str) -> int:
    """The trials of a method that a budget must pay for: the settings tried first, at least one."""
    return max(1, len(spec.variant(label).space.first[: spec.trials]))


def _refuse_unpaid(
    spec: StudySpec, file_name: str, records: Trials, expected: Mapping[str, float]
) -> None:
    """Raise SpecError if the budget cannot pay for what each method tries first.

    expected: by label, hours of a trial. A study that has begun goes on, as far as its budget pays.
    """
    budget = spec.budget
    assert budget is not None
    needed = {label: tried_first(spec, label) for label in expected}
    hours = sum(count * expected[label] for label, count in needed.items())
    if records or hours <= budget.hours * (1 + 1e-9):
        return
    fit = math.floor(budget.hours / sum(expected.values()))
    pays = (
        f"{budget.hours:g} {UNITS[budget.unit]} pay for {fit} {'trial' if fit == 1 else 'trials'}"
        " of each method"
    )
    raise SpecError(
        file_name,
        f"budget.{budget.unit}",
        f"{pays}, but the {sum(needed.values())} that are tried first need about {hours:.2g}",
        f"Write at least {_up(hours):g}, or train fewer epochs.",
    )


def _up(hours: float) -> float:
    """Rounded up to two digits."""
    digits = 1 - math.floor(math.log10(hours))
    return math.ceil(hours * 10**digits) / 10**digits


def paid_line(spec: StudySpec, stored: StudyFolder | None, expected: Mapping[str, float]) -> str:
    """What a budget pays for, in one line."""
    budget = spec.budget
    records = _records(spec, stored)
    assert budget is not None
    spending = Spending(spec, records, expected)
    planned = {label: len(found) for label, found in records.by_label.items()}
    begun = sum(planned.values())
    left = max(0.0, budget.hours - spending.committed)
    while True:
        label = min(planned, key=lambda one: planned[one])
        if planned[label] >= spec.trials or (left := left - expected[label]) < -1e-9 * budget.hours:
            break
        planned[label] += 1
    total = len(planned) * spec.trials
    whole = sum(max(0, spec.trials - len(records.of(label))) * expected[label] for label in planned)
    word = UNITS[budget.unit]
    needs = f"all trials need about {whole + spending.committed:.2g}"
    paid = sum(planned.values())
    pays = "pays for all trials" if paid >= total else f"pays for about {paid} of {total} trials"
    return f"budget: {budget.hours:g} {word} {pays}; {needs}" + (
        f", {begun} are begun" if begun else ""
    )
