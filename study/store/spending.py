"""What the trials of a study cost, summed from their records: a restart forgets nothing.

A trial's cost is the training time of its result, over all attempts, times what Ray reserves for
it; of a retry, with what failed before. What an attempt that died trained and no checkpoint kept is
not in the ledger, and not counted: at most `checkpoint_seconds` a death.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from study.schema.resources import Budget, Resources
from study.store.study import StudyFolder
from study.store.trials import TrialRecord, Trials
from trainables.plain import Plain

UNITS = {"cpu_hours": "CPU-hours", "gpu_hours": "GPU-hours"}


@dataclass(frozen=True)
class Spent:
    cpu_hours: float = 0.0
    gpu_hours: float = 0.0

    def of(self, unit: str) -> float:
        return float(getattr(self, unit))


def budget_of(study: StudyFolder) -> Budget | None:
    plain = study.plain.get("budget")
    return None if plain is None else Budget(**plain)


def cost_of(record: TrialRecord, resources: Resources) -> Spent:
    """resources: of its method. After it ran out of memory a trial has a whole GPU."""
    if record.deaths.get("out_of_memory"):
        resources = resources.on_a_whole_gpu()
    hours = ((record.seconds or 0.0) + record.failed_seconds) / 3600
    return Spent(hours * resources.cpu, hours * resources.gpu)


def spent(study: StudyFolder, records: Trials) -> dict[str, Spent]:
    """By label, of all trials that have ended."""
    found = {}
    for label in study.labels:
        needs = study.resources_of(label)
        found[label] = summed(cost_of(record, needs) for record in records.of(label))
    return found


def summed(costs: Iterable[Spent]) -> Spent:
    costs = list(costs)
    return Spent(sum(one.cpu_hours for one in costs), sum(one.gpu_hours for one in costs))


def means(study: StudyFolder, records: Trials, unit: str) -> dict[str, float]:
    """By label, what an ended trial cost on average; without the labels of which none has ended."""
    found = {}
    for label, trials in records.by_label.items():
        needs = study.resources_of(label)
        costs = [cost_of(one, needs).of(unit) for one in trials if one.seconds is not None]
        if costs:
            found[label] = sum(costs) / len(costs)
    return found


def spent_line(study: StudyFolder, records: Trials) -> str:
    """`spent: 1.2 CPU-hours`, or what that is of the budget, and what is left."""
    total = summed(spent(study, records).values())
    budget = budget_of(study)
    if budget is None:
        used = [
            f"{total.of(unit):.3g} {word}"
            for unit, word in UNITS.items()
            if total.of(unit) or unit == "cpu_hours"
        ]
        return f"spent: {', '.join(used)} of training"
    used_up = total.of(budget.unit)
    word = UNITS[budget.unit]
    left = f"{budget.hours - used_up:.2g}" if used_up < budget.hours else "nothing"
    return f"budget: {used_up:.3g} of {budget.hours:g} {word} spent, {left} left"


def not_begun(study: StudyFolder, records: Trials) -> int:
    """How many planned trials the budget does not pay for now: all that are not begun, if not the
    next one."""
    budget = budget_of(study)
    missing = {label: study.planned - len(records.of(label)) for label in study.labels}
    left = sum(max(0, count) for count in missing.values())
    if budget is None or not left:
        return 0
    # Of the method with the fewest trials.
    following = max(missing, key=lambda label: missing[label])
    used_up = summed(spent(study, records).values()).of(budget.unit)
    needed = means(study, records, budget.unit).get(following, 0.0)
    return left if used_up + needed > budget.hours else 0


def budget_line(study: StudyFolder, records: Trials, alive: bool = False) -> str:
    """`spent_line`, and what a budget that is spent leaves undone. alive: whether a driver runs the
    study."""
    line = spent_line(study, records)
    left = not_begun(study, records)
    if left and not alive:
        what = "1 trial was" if left == 1 else f"{left:,} trials were"
        line += f"; {what} not begun. Raise the budget and run again to go on"
    return f"{line}."


def spending_plain(study: StudyFolder, records: Trials) -> dict[str, Plain]:
    """For JSON: hours spent by method and in all, the budget (null: none), and the trials that it
    does not pay for."""
    costs = spent(study, records)
    budget = budget_of(study)
    return {
        "methods": {label: asdict(cost) for label, cost in costs.items()},
        **asdict(summed(costs.values())),
        "budget": None if budget is None else {budget.unit: budget.hours},
        "not_begun": not_begun(study, records),
    }
