"""Early stopping's order against its definition, written out slowly; and what
the brief says of it."""

import math
import random
from fractions import Fraction

import pytest

from study.analysis.rungs import FIRST, RungEntry, goes_on, going_on, is_protected, rank
from tests.study.schema.specs import RATE, small


def dominates(one: RungEntry, other: RungEntry) -> bool:
    pairs = list(zip(one.costs, other.costs, strict=True))
    return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)


def crowding(entry: RungEntry, front: list[RungEntry]) -> float:
    """Deb et al. 2002, III-B, one point at a time; among equal values the
    earlier place comes first."""
    total = 0.0
    for k in range(len(entry.costs)):
        line = sorted(front, key=lambda one: (one.costs[k], one.place))
        at, span = line.index(entry), line[-1].costs[k] - line[0].costs[k]
        if at in (0, len(line) - 1):
            return math.inf
        total += (line[at + 1].costs[k] - line[at - 1].costs[k]) / span if span else 0.0
    return total


def slow_rank(entry: RungEntry, before: list[RungEntry]) -> int:
    left, ahead = [*before, entry], 0
    while True:
        front = [one for one in left if not any(dominates(other, one) for other in left)]
        if entry in front:
            order = sorted(front, key=lambda one: (-crowding(one, front), one.number))
            return ahead + order.index(entry) + 1
        ahead, left = ahead + len(front), [one for one in left if one not in front]


@pytest.mark.parametrize("seed", range(40))
def test_the_order_is_its_definition(seed: int) -> None:
    """Of one to three costs; of few values, so that there are ties, or of eighths, so
    that all sums are exact."""
    chance = random.Random(seed)
    count, columns, values = chance.randrange(1, 20), chance.randrange(1, 4), chance.choice([3, 64])
    numbers = chance.sample(range(100), count)  # a trial asked earlier may be recorded later
    entries = [
        RungEntry(place, number, tuple(chance.randrange(values) / 8 for _ in range(columns)))
        for place, number in enumerate(numbers)
    ]
    for entry in entries:
        before = entries[: entry.place]
        shuffled = chance.sample(before, len(before))
        assert rank(entry, shuffled) == slow_rank(entry, before)
        keep = chance.choice([0.1, 0.3, 0.5, 0.9])
        best = math.ceil(Fraction(str(keep)) * (entry.place + 1))
        expected = entry.place < FIRST or slow_rank(entry, before) <= best
        assert goes_on(entry, shuffled, keep) == expected


def test_by_hand() -> None:
    """Costs (Brier, ECE) of five trials: two fronts, {0, 1, 4} and {2, 3}."""
    first = [
        RungEntry(0, 0, (1.0, 5.0)),
        RungEntry(1, 1, (5.0, 1.0)),
        RungEntry(2, 2, (6.0, 6.0)),
        RungEntry(3, 3, (5.0, 7.0)),
    ]
    between = RungEntry(4, 4, (4.0, 4.0))
    assert rank(between, first) == 3  # behind the two ends of its front
    assert goes_on(between, first, 0.5) and going_on(5, 0.5) == 3
    assert not goes_on(RungEntry(4, 4, (7.0, 7.0)), first, 0.5)
    assert rank(RungEntry(4, 4, (5.5, 6.5)), first) == 5, (
        "of the second front the ends come first: 2 and 3"
    )
    assert goes_on(RungEntry(2, 2, (9.0, 9.0)), first[:2], 0.01), (
        "the first three have nothing to be compared with"
    )
    assert going_on(10, 0.3) == 3, "0.3 x 10 is 3, not a little more"


def test_who_is_never_stopped() -> None:
    spec = small(search_space=RATE, methods=["cross_entropy", "focal", "mbls"])
    protected = {
        one.label: [number for number in range(9) if is_protected(one, number)]
        for one in spec.variants
    }
    published = {one.label: list(range(len(one.space.defaults))) for one in spec.variants}
    assert (
        protected == {**published, "cross_entropy": list(range(9))} and len(published["focal"]) == 3
    )
    noise = small(methods=[{"label": "noise", "name": "focal", "gamma": 3.0}]).variants[0]
    assert is_protected(noise, 99)
