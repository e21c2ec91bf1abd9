"""The rule of the answer: the lowest sum, in units of what matters, of what is served and NLL.

The objectives as deployed, and half of NLL. NLL, a proper score, steadies the choice where the
objectives are noisy, as ECE is: benchmarks/results/answer.md has the rules that were tried on
simulated studies.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from study.analysis.pareto import measured_in
from study.schema.matters import matters_in
from study.schema.objective import FORMS, RAW, as_served
from study.store.study import StudyFolder
from study.store.trials import TrialRecord

SHARE_OF_NLL = 0.5  # of a unit of NLL; none where NLL is an objective


@dataclass(frozen=True)
class TakenTrial:
    """The trial that the rule takes from some, and the next.

    following: of those with other settings, the one with the lowest sum. by: the metric in which it
    falls behind most; both absent where there is none.
    """

    taken: TrialRecord
    following: TrialRecord | None
    by: str


def decide(study: StudyFolder, records: Sequence[TrialRecord]) -> TakenTrial | None:
    """The trial that the rule takes, by validation values as deployed; None if none has them all.

    records: those that count; means over seeds as well.
    """
    measured = measured_in(records, study.served)
    if not measured:
        return None
    costs = [in_units(study, record) for record in measured]
    ranked = sorted(range(len(measured)), key=lambda place: math.fsum(costs[place].values()))
    first = ranked[0]
    others = (each for each in ranked if measured[each].setting != measured[first].setting)
    second = next(others, None)
    if second is None:
        return TakenTrial(measured[first], None, "")
    behind = {name: costs[second][name] - cost for name, cost in costs[first].items()}
    return TakenTrial(measured[first], measured[second], max(behind, key=lambda name: behind[name]))


def better_form(study: StudyFolder, records: Sequence[TrialRecord]) -> str:
    """TEMPERATURE, or RAW: the form in which the rule's lowest sum of both lies. RAW for none.

    records: those that count. Seeds of a setting are one, with their means.
    """
    seeds: dict[object, list[TrialRecord]] = {}
    for record in records:
        seeds.setdefault(record.setting, []).append(record)
    means = [mean_trial(found[0].label, found) for found in seeds.values()]
    sums = {}
    for form in FORMS:
        deployed = study.served_as(form)
        decision = decide(deployed, means)
        if decision is not None:
            sums[form] = math.fsum(in_units(deployed, decision.taken).values())
    return min(sums, key=lambda form: sums[form], default=RAW)


def in_units(study: StudyFolder, record: TrialRecord) -> dict[str, float]:
    """The terms of the rule's sum, by metric; smaller is better. An accuracy counts as 1 - it."""
    found = {}
    for one in study.served:
        best = 1.0 if one.sign < 0 else 0.0
        found[one.metric] = (best + one.sign * record.metrics[one.metric]) / study.units[one.metric]
    nll = as_served("nll", study.serves)
    if nll not in found and nll in record.metrics:
        found[nll] = SHARE_OF_NLL * record.metrics[nll] / nll_unit(study)
    return found


def mean_trial(label: str, seeds: Sequence[TrialRecord]) -> TrialRecord:
    """Complete trials as one, with the mean of each metric that all of them have."""
    names = [name for name in seeds[0].metrics if all(name in one.metrics for one in seeds)]
    means = {name: statistics.fmean(one.metrics[name] for one in seeds) for name in names}
    return TrialRecord(label, 0, "complete", dict(seeds[0].params), means)


def nll_unit(study: StudyFolder) -> float:
    """The difference in NLL that matters."""
    return matters_in("nll", study.matters, len(study.recorded.classes))
