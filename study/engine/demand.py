"""How many trials of a study can run at once: for whom slots are looked for, and what keeps them
busy."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from study.engine.proposing import most_pending, trials_without_results
from study.engine.stacking import Stacking
from study.schema.resources import Resources
from study.schema.spec import StudySpec
from study.store.study import StudyFolder
from study.store.trials import Trials


def may_be_asked(spec: StudySpec, label: str, planned: int, asked: int, pending: int) -> int:
    """How many more trials of a method could begin now. asked: how many have begun; pending: of
    those proposed from results, how many have not ended."""
    left = max(0, planned - asked)
    first = max(0, trials_without_results(spec, label) - asked)
    return int(min(left, first + max(0, most_pending(spec) - pending)))


def first_demand(
    spec: StudySpec, records: Trials, stored: StudyFolder | None = None
) -> Counter[Resources]:
    """The resources of the trials that could run when the study goes on; of one for each method
    where a budget limits them, which is known later. stored: the study, which knows its stacks."""
    if spec.budget is not None:
        return Counter(spec.needs.values())
    planned = records.under(one.label for one in spec.variants).planned(spec.trials)
    new = {
        label: may_be_asked(spec, label, count, len(records.of(label)), 0)
        for label, count in planned.items()
    }
    if stored is not None:
        new = Stacking(StudyFolder.of(stored.directory, spec, stored.recorded)).slots(new)
    # Of a stack one is as good as all.
    again = {record.stack or record.name: record.label for record in records.running}
    return by_resources(spec, Counter(new) + Counter(again.values()))


def by_resources(spec: StudySpec, counts: Mapping[str, int]) -> Counter[Resources]:
    """The resources of so many trials of each method."""
    found: Counter[Resources] = Counter()
    for label, count in counts.items():
        found[spec.resources_of(label)] += count
    return +found


def kept_busy(spec: StudySpec) -> Counter[Resources]:
    """The resources of the trials that run at once for most of the study: of the methods that wait
    for results. Where none does, of all trials."""
    learning = [
        variant.label
        for variant in spec.variants
        if trials_without_results(spec, variant.label) < spec.trials
    ]
    if not learning:
        return by_resources(spec, {one.label: spec.trials for one in spec.variants})
    return by_resources(spec, dict.fromkeys(learning, min(most_pending(spec), spec.trials)))


@dataclass(frozen=True)
class Busy:
    """What a study can keep busy: trials at once, and what they reserve together."""

    trials: int
    cpus: float
    gpus: float

    @classmethod
    def of(cls, demand: Counter[Resources]) -> Busy:
        return cls(
            demand.total(),
            sum(count * needs.cpu for needs, count in demand.items()),
            sum(count * needs.gpu for needs, count in demand.items()),
        )

    def __str__(self) -> str:
        """`40 trials on 20 GPUs`."""
        unit = f"{self.gpus:g} GPUs" if self.gpus else f"{self.cpus:g} CPUs"
        return f"{self.trials:,} trials on {unit}"


def busy_line(spec: StudySpec, slots: int | None = None) -> str:
    """How many trials train at once in so many `slots` (None: not known), what the study could use,
    and what to change to use all of more."""
    lasting = Busy.of(kept_busy(spec))
    if lasting.trials >= spec.trials * len(spec.variants):
        return f"all {lasting}" if slots is None or slots >= lasting.trials else f"{slots} here"
    if slots == lasting.trials:
        return f"{slots} here"
    if slots is not None and slots < lasting.trials:
        return f"{slots} here (the study could train about {lasting.trials} at once)"
    first = Busy.of(first_demand(replace(spec, budget=None), Trials({})))
    fewer = "each proposal then knows fewer results"
    waits = f"a method waits for the results of {most_pending(spec)} proposed trials"
    if slots is None:
        return (
            f"about {lasting} ({first.trials:,} trials at first); {waits}, and a larger"
            f" `sampler: {{pending: N}}` uses more slots: {fewer}"
        )
    learning = lasting.trials / min(most_pending(spec), spec.trials)
    return (
        f"about {lasting.trials} of {slots} here ({min(slots, first.trials)} at first); {waits}."
        f" `sampler: {{pending: {math.ceil(slots / learning)}}}` fills all: {fewer}"
    )
