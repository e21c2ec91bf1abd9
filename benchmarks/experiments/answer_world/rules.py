"""Rules that choose a model, and words about two: pure functions of arrays, one row
a trial or a confirmed row.

Costs are objectives in units of what matters, smaller is better: (1 -
accuracy) / .01 and ECE / .01.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.experiments.answer_world.world import Floats

MATTERS = (0.01, 0.01)  # accuracy and ECE
OF_NLL = 0.02
DISTANCE = 0.02  # the constraint: accuracy >= best - 0.02
ROUNDING = 1e-6  # values are stored with seven digits


@dataclass(frozen=True)
class Candidates:
    """What a rule sees: validation values of the rows that meet the constraint."""

    names: NDArray[np.int64]  # the settings they are of, ascending
    costs: Floats  # [rows, objectives]
    nll: Floats  # [rows]
    noise: Floats  # [rows, objectives]: variances of the costs, by samples and seeds
    today: int  # the setting that the project's own code takes
    number: int  # of the study


def candidates(
    names: list[int], values: Floats, noise: Floats, today: int, number: int
) -> Candidates:
    """values: [rows, (accuracy, ECE, NLL)]; noise: variances of the first two."""
    kept = meets(values[:, 0])
    costs = np.stack([1 - values[:, 0], values[:, 1]], axis=1) / MATTERS
    scaled = noise / np.square(MATTERS)
    return Candidates(
        np.array(names)[kept], costs[kept], values[kept, 2], scaled[kept], today, number
    )


def meets(accuracy: Floats) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = accuracy >= accuracy.max() - DISTANCE - ROUNDING
    return found


# ---- rules ---------------------------------------------------------------------------------------


def lowest(costs: Floats, nll: Floats, within: float = 0.1) -> int:
    """Of the rows whose sum is within so many units of the lowest, the one with the lowest NLL."""
    sums = costs.sum(axis=1)
    return int(np.where(sums <= sums.min() + within + ROUNDING, nll, np.inf).argmin())


def lowest_with_nll(costs: Floats, nll: Floats, weight: float) -> int:
    """The lowest sum of costs and so many times NLL in its unit."""
    return int((costs.sum(axis=1) + weight * nll / OF_NLL).argmin())


def shrunken(costs: Floats, noise: Floats) -> Floats:
    """Each cost, moved towards the mean of its column by its noise: empirical Bayes."""
    mean = costs.mean(axis=0)
    truly = (
        np.maximum(costs.var(axis=0, ddof=1) - noise.mean(axis=0), 0)
        if len(costs) > 1
        else np.zeros(2)
    )
    found: Floats = mean + (costs - mean) * truly / np.maximum(truly + noise, 1e-12)
    return found


def front(costs: Floats) -> NDArray[np.int64]:
    """The rows that no other is better than, sorted by their costs."""
    no_worse = (costs[:, None] <= costs).all(axis=2)
    kept = np.flatnonzero(~(no_worse & ~no_worse.T).any(axis=0))
    return kept[np.lexsort(costs[kept].T[::-1])]


def knee(costs: Floats) -> int:
    """As study.analysis.pareto.knee: the lowest sum on the front, scaled over it;
    of two, the nearer to 0."""
    on = front(costs)
    points = costs[on]
    span = np.ptp(points, axis=0)
    sums = ((points - points.min(axis=0)) / np.where(span > 0, span, 1)).sum(axis=1).round(9)
    if len(np.unique(points, axis=0)) <= 2:
        sums = np.zeros(len(points))
    return int(on[np.lexsort((np.linalg.norm(points, axis=1), sums))[0]])


def of_those_like(costs: Floats, nll: Floats, like: NDArray[np.bool_], reference: int) -> int:
    """Today's rule: of the rows like the reference that nothing beats in costs and NLL,
    the one with the lowest NLL."""
    unbeaten = front(np.column_stack([costs, nll]))
    together = [row for row in unbeaten if like[row] or row == reference]
    return int(min(together, key=lambda row: nll[row], default=reference))


def random_of_the_front(seen: Candidates) -> int:
    return int(np.random.default_rng([7, seen.number, len(seen.names)]).choice(front(seen.costs)))


RULES: dict[str, Callable[[Candidates], int]] = {
    "today": lambda seen: int(np.flatnonzero(seen.names == seen.today)[0]),
    "knee": lambda seen: knee(seen.costs),
    "sum": lambda seen: lowest(seen.costs, seen.nll, 0.0),
    "sum, NLL within .1": lambda seen: lowest(seen.costs, seen.nll, 0.1),
    "sum, NLL within .25": lambda seen: lowest(seen.costs, seen.nll, 0.25),
    "sum, NLL within .5": lambda seen: lowest(seen.costs, seen.nll, 0.5),
    "sum, NLL within 1": lambda seen: lowest(seen.costs, seen.nll, 1.0),
    "sum, NLL within 2": lambda seen: lowest(seen.costs, seen.nll, 2.0),
    "sum + .1 NLL": lambda seen: lowest_with_nll(seen.costs, seen.nll, 0.1),
    "sum + .25 NLL": lambda seen: lowest_with_nll(seen.costs, seen.nll, 0.25),
    "sum + .5 NLL": lambda seen: lowest_with_nll(seen.costs, seen.nll, 0.5),
    "sum + 1 NLL": lambda seen: lowest_with_nll(seen.costs, seen.nll, 1.0),
    "sum, shrunken": lambda seen: lowest(shrunken(seen.costs, seen.noise), seen.nll, 0.0),
    "sum, shrunken, NLL within .1": lambda seen: lowest(
        shrunken(seen.costs, seen.noise), seen.nll, 0.1
    ),
    "nll": lambda seen: int(seen.nll.argmin()),
    "random of the front": random_of_the_front,
}
MAIN = "sum, NLL within .1"  # the rule of which words and temperatures are said
SAID = (
    "today",
    MAIN,
    "sum, NLL within .25",
    "sum, NLL within .5",
    "sum, NLL within 1",
    "sum + .5 NLL",
)  # stored of these


# ---- words ---------------------------------------------------------------------------------------

AS_GOOD, BETTER, WORSE, UNDECIDED = "as good", "better", "worse", "undecided"
SIGNS = (-1.0, 1.0)  # of accuracy and ECE: times these, smaller is better


def word(low: float, high: float, matters: float, sign: float = 1.0) -> str:
    """Of the interval of a difference in one objective, one minus other: what `one` is."""
    if -matters < low and high < matters:
        return AS_GOOD
    if low <= 0 <= high:
        return UNDECIDED
    return BETTER if sign * low < 0 and sign * high < 0 else WORSE


def is_wrong(said: str, truth: float, matters: float, sign: float = 1.0) -> bool:
    """Whether the true difference belies the word."""
    if said == AS_GOOD:
        return abs(truth) > matters
    if said == UNDECIDED:
        return False
    return bool((sign * truth >= 0) if said == BETTER else (sign * truth <= 0))


# ---- resolution ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Disagreement:
    """In how many samples one of two networks is right and the other is not: of two rows,
    and of two seeds of one.

    spread: standard deviation of the true accuracy between seeds.
    """

    between: float
    within: float
    spread: float = 0.0

    def reach(self, samples: float, seeds: int, rows: int, level: float) -> float:
        """Half of the interval of a difference in accuracy:
        study.uncertainty.methods for equal variances."""
        by_seeds, by_samples = self._parts(seeds, rows, level)
        return float(np.sqrt(by_seeds + by_samples / samples))

    def samples_for(self, reach: float, seeds: int, rows: int, level: float) -> float:
        """How many give that reach; infinite if seeds alone exceed it."""
        by_seeds, by_samples = self._parts(seeds, rows, level)
        return by_samples / (reach**2 - by_seeds) if reach**2 > by_seeds else float("inf")

    def _parts(self, seeds: int, rows: int, level: float) -> tuple[float, float]:
        """Squares of the half-width: what does not fall with samples, and what
        falls with their number."""
        from study.uncertainty.methods import _quantile, lent_to

        own = seeds - 1
        lent = min(lent_to(own), max(0, rows - 2) * own / 2)
        few = _quantile(max(2, rows), min(rows * own, 2 * (own + lent)), level) ** 2
        many = _quantile(max(2, rows), float("inf"), level) ** 2
        shared = max(0.0, self.between - self.within)
        return 2 * few * self.spread**2 / seeds, few * self.within / seeds + many * shared
