"""A paper's sentences that one method is lower than another, tested by paired seeds.

Trial k starts equal in every method, so the difference is taken seed by seed.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from study.uncertainty.intervals import LEVEL

FEWEST_PAIRS = 3
ROUNDING = 1e-9  # of differences of floats, relative to the values

HOLDS = "holds"
REVERSED = "reversed"
NOT_SEPARABLE = "not separable at this budget"
CANNOT = "cannot be judged"


@dataclass(frozen=True)
class Pair:
    """A claim's two sides, by the seed's number, in the column's unit.

    than: another method's values, or a number. higher: the claim says that ours is higher.
    split_variance: of the mean difference over resamples of the validation split, which all seeds
    share; 0 where no temperature is fitted.
    """

    ours: Mapping[int, float]
    than: Mapping[int, float] | float
    higher: bool = False
    split_variance: float = 0.0

    def sides(self) -> list[tuple[float, float]]:
        """ours and than, of each seed that has both, finite."""
        found = []
        for number, value in sorted(self.ours.items()):
            other = self.than.get(number) if isinstance(self.than, Mapping) else self.than
            if other is not None and math.isfinite(value - other):
                found.append((value, other))
        return found


@dataclass(frozen=True)
class Finding:
    """One of four words, and what it comes from.

    difference: the mean of ours - than. low, high: its 95% interval, this claim's own, before Holm:
    it can exclude 0 where the word is "not separable". p: two-sided, after Holm over all claims
    that can be judged.
    """

    word: str
    pairs: int
    reason: str = ""
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None


def judge_claims(claims: Sequence[Pair]) -> list[Finding]:
    """The finding of each claim of a table, in order. Paired t tests; Holm 1979."""
    tested = [_tested(claim) for claim in claims]
    raw = [one.p for one in tested if one.p is not None]
    adjusted = iter(holm(raw))
    found = []
    for claim, one in zip(claims, tested, strict=True):
        if one.p is None or one.difference is None:
            found.append(one)
            continue
        p = next(adjusted)
        found.append(replace(one, p=p, word=_word(one.difference, p, claim.higher)))
    return found


def holm(p_values: Sequence[float]) -> list[float]:
    """Each p value adjusted for all, in order: at most 1, and in the order of the p values."""
    adjusted = [1.0] * len(p_values)
    highest = 0.0
    order = sorted(range(len(p_values)), key=lambda place: p_values[place])
    for rank, place in enumerate(order):
        highest = max(highest, min(1.0, (len(order) - rank) * p_values[place]))
        adjusted[place] = highest
    return adjusted


def _word(difference: float, p: float, higher: bool) -> str:
    if p > 1 - LEVEL:
        return NOT_SEPARABLE
    return HOLDS if (difference > 0) == higher else REVERSED


def _tested(claim: Pair) -> Finding:
    """The finding before Holm: no word yet where there is a p value."""
    from scipy.special import stdtr, stdtrit  # slow

    sides = claim.sides()
    pairs = len(sides)
    if pairs < FEWEST_PAIRS:
        reason = f"{pairs} seed{'s' * (pairs != 1)} of both sides, fewer than {FEWEST_PAIRS}"
        return Finding(CANNOT, pairs, reason)
    differences = [ours - than for ours, than in sides]
    mean = statistics.fmean(differences)
    of_seeds = _sd(differences, max(map(abs, chain(*sides)))) / math.sqrt(pairs)
    error = math.hypot(of_seeds, math.sqrt(claim.split_variance))
    reach = float(stdtrit(pairs - 1, (1 + LEVEL) / 2)) * error
    p = 1.0
    if error:
        p = float(2 * stdtr(pairs - 1, -abs(mean) / error))
    return Finding("", pairs, "", mean, mean - reach, mean + reach, p)


def _sd(differences: Sequence[float], largest: float) -> float:
    """The standard deviation of the differences; of equal ones, what a grid may hide.

    Seeds give equal differences where values lie on a grid (temperatures, errors of few samples).
    Its step is at most the difference itself, and rounding both sides to such a step has a standard
    deviation of difference / sqrt(6). So equal differences are evidence, but not without limit:
    p is .051 with three seeds, .005 with five. largest: of the values that differ, whose rounding
    is not a difference.
    """
    if max(differences) - min(differences) > ROUNDING * largest:
        return statistics.stdev(differences)
    mean = statistics.fmean(differences)
    return abs(mean) / math.sqrt(6) if abs(mean) > ROUNDING * largest else 0.0
