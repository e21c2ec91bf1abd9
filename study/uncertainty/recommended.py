"""The trial to take from a search, by validation: docs/uncertainty.md."""

from __future__ import annotations

from study.analysis.pareto import front
from study.analysis.ranking import Ranking, served_with_nll
from study.schema.objective import as_served
from study.store.trials import TrialRecord
from study.uncertainty.bootstrap import differences_from, resampled_names

AT_ONCE = 4  # trials compared at a time; usually the first is the one


def recommended(ranking: Ranking) -> TrialRecord | None:
    """Of the trials not significantly different from the knee in any objective, the one with the lowest NLL, as served.

    The knee is picked by differences that may be noise; NLL, which no objective need be, breaks such ties: see
    benchmarks/RESULTS.md. A trial that another beats in every objective and NLL is not taken. None without a knee.
    Raises FieldError if stored predictions are missing or altered.
    """
    study, knee = ranking.study, ranking.knee
    nll = as_served("nll", study.serves)
    names = [one.metric for one in study.served if one.metric in resampled_names()]
    if knee is None or nll not in knee.metrics or not names:
        return knee
    costs = served_with_nll(study)
    measured = [
        record for record in ranking.eligible if all(one.metric in record.metrics for one in costs)
    ]
    better = [
        record for record in front(measured, costs) if record.metrics[nll] < knee.metrics[nll]
    ]
    better.sort(key=lambda record: (record.metrics[nll], record.label, record.number))
    for start in range(0, len(better), AT_ONCE):
        some = better[start : start + AT_ONCE]
        found = [differences_from(study, knee, some, name) for name in names]
        for record in some:
            if all(
                low <= 0 <= high
                for low, high in (differences[record.name] for differences in found)
            ):
                return record
    return knee
