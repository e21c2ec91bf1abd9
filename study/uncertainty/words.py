"""Four words for the difference of two models in a metric, from its interval.

*As good*: the interval lies within the smallest difference that matters, on whichever side of 0.
Else *better* or *worse*: it lies on one side of 0. Else *undecided*: the data do not say, which
does not make the two equal. docs/why/how-certain.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from study.uncertainty.intervals import Interval
from trainables.metrics import describe

AS_GOOD = "as good"
BETTER = "better"
WORSE = "worse"
UNDECIDED = "undecided"
FORMER = {UNDECIDED: "not told apart"}  # for one version, what JSON called a word before


def word_for(difference: Interval, metric: str, matters: float) -> str:
    """The word for one model, from its metric less another's."""
    _, low, high = difference
    if -matters <= low and high <= matters:
        return AS_GOOD
    if low <= 0 <= high:
        return UNDECIDED
    return BETTER if (low > 0) == (describe(metric).better == "higher") else WORSE


def overall(words: Mapping[str, str]) -> str:
    """One word for all metrics.

    As good only if it is so in every metric; better or worse if it is so in one, and the reverse in
    none; `better and worse` for both; else undecided.
    """
    found = set(words.values())
    if found == {AS_GOOD}:
        return AS_GOOD
    sides = [word for word in (BETTER, WORSE) if word in found]
    return " and ".join(sides) or UNDECIDED


def level_of_each(level: float, metrics: Sequence[object]) -> float:
    """The level of each metric's intervals, if all of them are to hold together. Bonferroni."""
    return 1 - (1 - level) / max(1, len(metrics))
