"""Methods whose last trials hardly added to their fronts, and what the others would cost."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from study.analysis.progression import growth
from study.analysis.ranking import Ranking

FEWEST = 10  # trials looked back on, at least
PER_PARAMETER = 4  # trials for each searched hyperparameter, where these are more
LITTLE = 0.01  # of the hypervolume
MANY = 4  # methods that are said in one sentence together


@dataclass(frozen=True)
class Stalled:
    """A method whose `last` ended trials added less than LITTLE to its own front's hypervolume."""

    label: str
    last: int
    added: float  # a fraction of the hypervolume before them
    begun: int  # trials of the method that has begun most
    planned: int
    left: int  # trials that have not ended
    hours: float  # that these would cost, each as much as those that ended on average
    device: str  # whose hours: CPU or GPU


def stalled(ranking: Ranking) -> list[Stalled]:
    """The methods of which it can be said, while trials of theirs are left.

    A trial that did not complete, or does not count, added nothing. Nothing is said of a method
    with nothing to search, or whose trials are all no better than the reference point; nor of any
    before defaults that count have fixed that point: below the metrics' worst values every front
    looks finished.
    """
    if not ranking.defaults_that_count:
        return []
    study = ranking.study
    found = []
    most = max((len(ranking.records.of(label)) for label in study.labels), default=0)
    for label in study.labels:
        begun = len(ranking.records.of(label))
        ended = ranking.records.finished.of(label)
        searched = max((len(record.params) for record in ended), default=0)
        seconds = [record.seconds for record in ended if record.seconds is not None]
        last = max(FEWEST, PER_PARAMETER * searched)
        planned = max(study.planned, begun)
        if not searched or not seconds or last >= len(ended) or len(ended) == planned:
            continue
        volume = growth(ranking, label).volume
        before = float(volume[-last - 1])
        now = float(volume[-1])
        if before > 0 and now - before < LITTLE * before:
            resources = study.resources_of(label)
            left = planned - len(ended)
            hours = resources.hours(left * statistics.fmean(seconds))
            added = now / before - 1
            found.append(Stalled(label, last, added, most, planned, left, hours, resources.device))
    return found


def stalled_lines(found: Sequence[Stalled]) -> list[str]:
    """A sentence for each, or one for many, and how to spend less; empty for none."""
    lines = [_of_many(found)] if len(found) >= MANY else [_of_one(each) for each in found]
    if begun := max((each.begun for each in found if each.begun < each.planned), default=0):
        lines.append(
            f"Nothing stops by itself. To train no more than {begun:,} trials of any method, end"
            f" the run and repeat it with `--trials {begun}`."
        )
    return lines


def _of_one(each: Stalled) -> str:
    added = "nothing" if each.added <= 0 else _about(100 * each.added, "%")
    left = f"the {each.left:,} left" if each.left > 1 else "the one left"
    return (
        f"{each.label}: its last {each.last} trials added {added} to its hypervolume; {left} would"
        f" cost {_about(each.hours, f' {each.device}-hours')}."
    )


def _of_many(found: Sequence[Stalled]) -> str:
    hours: defaultdict[str, float] = defaultdict(float)
    for each in found:
        hours[each.device] += each.hours
    costs = " and ".join(_about(hours[name], f" {name}-hours") for name in sorted(hours))
    return (
        f"the last trials of {len(found)} methods added less than 1% to their hypervolumes; the"
        f" {sum(each.left for each in found):,} left would cost {costs}:"
        f" {', '.join(each.label for each in found)}."
    )


def _about(value: float, unit: str) -> str:
    """Two significant digits: `about 1.2 CPU-hours`."""
    if value < 0.01:
        return f"under 0.01{unit}"
    return f"about {round(value, 1 - math.floor(math.log10(value))):,g}{unit}"
