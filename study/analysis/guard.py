"""Which trials are so much worse than the best that no choice should weigh them.

An ECE near 0 is easy for a network that has learned little: it stays on a front of accuracy and
ECE, however inaccurate it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from study.schema.matters import matters_in, read_matters
from study.store.study import StudyFolder
from study.store.trials import TrialRecord
from trainables.metrics import describe

TIMES = 10  # what matters
DEVIATIONS = 1.96  # standard errors of a difference
FAR_WORSE = "far worse than the best"  # what a reason begins with
GUARDED = ("accuracy", "miou", "error")  # the first that is an objective


@dataclass(frozen=True)
class Guard:
    """Sets aside what is worse than the best value of a metric by more than TIMES what `matters` in
    it, beyond the noise of so many independent `samples`."""

    metric: str
    matters: float
    samples: int

    def excluded(self, records: Sequence[TrialRecord]) -> dict[str, str]:
        """Why, by name; never the best. records: complete ones that count otherwise."""
        sign = describe(self.metric).sign  # -1: larger is better
        values = [one.metrics[self.metric] for one in records if self.metric in one.metrics]
        if not values:
            return {}
        best = sign * min(sign * value for value in values)
        found = {}
        for record in records:
            value = record.metrics.get(self.metric)
            if value is not None and sign * (value - best) > self._least(best, value):
                found[record.name] = (
                    f"{FAR_WORSE}: {self.metric} {value:.4f}, the best has {best:.4f} (more than"
                    f" {TIMES} times the {self.matters:g} that matters, beyond noise)"
                )
        return found

    def _least(self, best: float, value: float) -> float:
        """The smallest distance that sets aside. The variance of a mean of values in [0, 1] is at
        most m (1 - m) / n; of two, as if they were of different samples."""
        variance = sum(max(0.0, one * (1 - one)) for one in (best, value)) / self.samples
        return TIMES * self.matters + DEVIATIONS * math.sqrt(variance)


def guard_of(study: StudyFolder) -> Guard | None:
    """The guard of a study; None where it has none.

    `guard: off`, a study of a version without it, one that was not run, no metric to guard, or a
    constraint on that metric.
    """
    recorded = study.recorded
    objectives = study.own_objectives
    wanted = {one.metric for one in objectives}
    metric = next((name for name in GUARDED if name in wanted), None)
    if metric is None or study.plain.get("guard") != "auto" or not recorded.sizes:
        return None
    if any(condition.metric == metric for condition in study.constraints):
        return None
    own = read_matters(study.plain.get("matters"), objectives)
    samples, _ = recorded.units("validation")
    return Guard(metric, matters_in(metric, own, len(recorded.classes)), samples)
