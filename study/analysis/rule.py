"""The rule of the answer: the lowest sum, in units of what matters, of what is served and NLL.

The objectives as served, and half of NLL. NLL, a proper score, steadies the choice where the
objectives are noisy, as ECE is: benchmarks/RESULTS.md has the rules that were tried on simulated
studies.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from study.analysis.pareto import measured_in
from study.schema.matters import matters_in
from study.schema.objective import as_served
from study.store.study import Study
from study.store.trials import TrialRecord

SHARE_OF_NLL = 0.5  # of a unit of NLL; none where NLL is an objective


@dataclass(frozen=True)
class TakenTrial:
    """The trial that the rule takes from some, and the next.

    following: of the others, without repeats of its searched values, the one with the lowest sum.
    by: the metric in which it falls behind most; both absent where there is none.
    """

    taken: TrialRecord
    following: TrialRecord | None
    by: str


def decide(study: Study, records: Sequence[TrialRecord]) -> TakenTrial | None:
    """The trial that the rule takes, by validation values as served; None if no trial has them all.

    records: those that count; means over seeds as well.
    """
    measured = measured_in(records, study.served)
    if not measured:
        return None
    costs = [in_units(study, record) for record in measured]
    ranked = sorted(range(len(measured)), key=lambda place: math.fsum(costs[place].values()))
    first = ranked[0]
    taken = measured[first]
    alike = [record for record in measured if taken.params and record.setting == taken.setting]
    others = (each for each in ranked[1:] if measured[each] not in alike)
    second = next(others, None)
    if second is None:
        return TakenTrial(measured[first], None, "")
    behind = {name: costs[second][name] - cost for name, cost in costs[first].items()}
    return TakenTrial(measured[first], measured[second], max(behind, key=lambda name: behind[name]))


def in_units(study: Study, record: TrialRecord) -> dict[str, float]:
    """The terms of the rule's sum, by metric; smaller is better. An accuracy counts as 1 - it."""
    found = {}
    for one in study.served:
        best = 1.0 if one.sign < 0 else 0.0
        found[one.metric] = (best + one.sign * record.metrics[one.metric]) / study.units[one.metric]
    nll = as_served("nll", study.serves)
    if nll not in found and nll in record.metrics:
        found[nll] = SHARE_OF_NLL * record.metrics[nll] / nll_unit(study)
    return found


def nll_unit(study: Study) -> float:
    """The difference in NLL that matters."""
    return matters_in("nll", study.matters, len(study.recorded.classes))
