"""Which trials show what training by a method does: its repeats, or the best of its search."""

from __future__ import annotations

from study.analysis import pareto
from study.analysis.ranking import Ranking
from study.store.trials import TrialRecord


def best_of(ranking: Ranking, label: str) -> TrialRecord:
    """A method's best complete trial by the first objective, of those that count if any does."""
    done = pareto.measured_in(ranking.records.complete.of(label), ranking.study.objectives)
    counted = [record for record in done if record.name not in ranking.excluded]
    return pareto.front(counted or done, ranking.study.objectives)[0]


def typical(ranking: Ranking) -> dict[str, list[TrialRecord]]:
    """By method with complete trials: its best one, or, if it searched nothing, all of them.

    Those differ by their seed alone. They stay whole: to leave out some by their results would
    flatter the mean.
    """
    found = {}
    for label, done in ranking.records.complete.by_label.items():
        if done and any(record.params for record in done):
            if pareto.measured_in(done, ranking.study.objectives):
                found[label] = [best_of(ranking, label)]
        elif done:
            found[label] = done
    return found
