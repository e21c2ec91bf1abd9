"""The race against a slow NumPy definition of it; what it may and may not depend on."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from study.analysis.racing import Seeds, Standing, standing
from study.store.recorded import LEAST, Race


def may_be_better(known: list[Any], given: Any, until: float) -> list[int]:
    """The leader, then who may be better than it by more, the likeliest first. known: the values of
    each candidate. given: seeds of each whose values are not known yet."""
    rows = [k for k, row in enumerate(known) if len(row) >= 2]
    mean = {k: known[k].mean() for k in rows}
    deviations = np.concatenate([known[k] - mean[k] for k in rows])
    variance = (deviations**2).sum() / (len(deviations) - len(rows))
    leader = min(rows, key=lambda k: mean[k])
    part = {k: variance / (len(known[k]) + given[k]) for k in rows}
    low = {k: mean[k] - mean[leader] - 1.28 * np.sqrt(part[k] + part[leader]) for k in rows}
    rivals = [k for k in rows if k != leader and low[k] < -until]
    return [leader, *sorted(rivals, key=lambda k: low[k])]


def slow_race(
    values: NDArray[np.float64], until: float, at_most: int, at_once: int, trainings: float
) -> tuple[list[int], list[int]]:
    """The seeds of each at the end; the leader and its rivals. values: [candidates, seeds], NaN
    where one failed.

    Rounds of `at_once`: each seed goes to the likeliest rival or the leader, whichever has fewer.
    """
    count = np.full(len(values), 2)
    while True:
        known = [row[:n][~np.isnan(row[:n])] for row, n in zip(values, count, strict=True)]
        given = np.zeros(len(values), int)
        for k, row in enumerate(known):
            if len(row) < 2 and count[k] < min(4, at_most) and (count + given).sum() < trainings:
                given[k] = 1
        failed = given.any()
        while not failed and given.sum() < at_once and (count + given).sum() < trainings:
            total = count + given
            leader, *rivals = may_be_better(known, given, until)
            room = [k for rival in rivals for k in (rival, leader) if total[k] < at_most]
            if not room:
                break
            chosen = room[0]
            if chosen != leader and total[leader] < min(total[chosen], at_most):
                chosen = leader
            given[chosen] += 1
        if not given.any():
            return count.tolist(), may_be_better(known, given, until)
        count += given


def costs_of(values: NDArray[np.float64], ended: int = 99) -> dict[str, list[float | None]]:
    return {
        f"row{k}": [None if np.isnan(one) else float(one) for one in row[:ended]]
        for k, row in enumerate(values)
    }


@pytest.mark.parametrize("at_once", [1, 2, 5])
@pytest.mark.parametrize("until", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("trainings", [None, 20])
def test_against_the_slow_definition(at_once: int, until: float, trainings: int | None) -> None:
    rng = np.random.default_rng(0)
    for _ in range(40):
        truth = rng.exponential(1.0, 7)
        values = truth[:, None] + rng.normal(0, 0.8, (7, 12))
        values[rng.random((7, 12)) < 0.1] = np.nan
        race = Race(until=until, at_once=at_once, trainings=trainings)
        found = standing(costs_of(values), race)
        seeds, (leader, *rivals) = slow_race(values, until, 12, at_once, trainings or np.inf)
        assert found.ended
        assert list(found.seeds.values()) == seeds
        assert found.leader == f"row{leader}"
        assert list(found.rivals) == [f"row{k}" for k in rivals]


def played(
    costs: dict[str, list[float | None]], race: Race, order: Callable[[int], int]
) -> Standing:
    """The race as a driver lives it: one trial ends after another, in any order."""
    ended: dict[str, list[float | None]] = {row: [] for row in costs}
    while not (now := standing(ended, race)).ended:
        waiting = [row for row in costs if len(ended[row]) < now.seeds[row]]
        row = waiting[order(len(waiting))]
        ended[row].append(costs[row][len(ended[row])])
    return now


def test_the_order_in_which_trials_end_and_what_ends_later_decide_nothing() -> None:
    rng = np.random.default_rng(1)
    for at_once in (1, 3):
        costs = costs_of(rng.exponential(1.0, (6, 1)) + rng.normal(0, 0.8, (6, 12)))
        race = Race(at_once=at_once)
        whole = standing(costs, race)  # knows all seeds from the beginning
        for _ in range(10):
            assert played(costs, race, lambda count: int(rng.integers(count))) == whole


def test_a_clear_race_ends_at_two_seeds() -> None:
    values = np.array([[1.0, 1.2], [9.0, 9.1], [20.0, 20.3]])
    assert standing(costs_of(values), Race()) == Standing(
        {"row0": 2, "row1": 2, "row2": 2}, "row0", (), True
    )


def test_the_model_taken_has_a_few_seeds_and_must_stay_ahead_with_them() -> None:
    values = np.tile([[1.0, 1.2], [9.0, 9.1]], 6)
    for race, seeds in (
        (Race(least=LEAST), 5),
        (Race(least=LEAST, at_most=3), 3),
        (Race(least=LEAST, trainings=6), 4),
    ):
        found = standing(costs_of(values), race)
        assert found == Standing({"row0": seeds, "row1": 2}, "row0", (), True)
    values[0, 2:] = 30.0  # its first two seeds were lucky
    found = standing(costs_of(values), Race(least=LEAST))
    assert found.leader == "row1" and found.ended and found.seeds["row1"] >= LEAST


def test_seeds_that_agree_to_the_bit_are_a_race_without_noise() -> None:
    values = np.full((4, 12), 3.0)
    for until in (0.0, 0.5):
        found = standing(costs_of(values), Race(until=until))
        assert found.ended and sum(found.seeds.values()) == 8 and found.rivals == ()


def test_until_nothing_may_be_better_it_goes_on_to_the_last_seed() -> None:
    rng = np.random.default_rng(2)
    values = rng.normal(0, 1e-9, (3, 12))
    values -= values.mean(1, keepdims=True)  # no mean is lower, and no seed tells it
    found = standing(costs_of(values), Race(until=0.0, at_most=5))
    assert found.ended and max(found.seeds.values()) == 5 and found.rivals


def test_one_candidate_needs_no_race() -> None:
    assert standing({"a": [1.0, 2.0]}, Race()) == Standing({"a": 2}, "a", (), True)


def test_what_fails_at_every_seed_has_as_many_again_and_is_out() -> None:
    failed: list[float | None] = [None] * 12
    found = standing({"a": [1.0, 1.1], "b": failed}, Race())
    assert (found.seeds, found.leader, found.ended) == ({"a": 2, "b": 4}, "a", True)
    none = standing({"a": failed, "b": failed}, Race())
    assert (none.leader, none.ended) == (None, True)


def test_who_does_not_count_gets_no_more_seeds_and_leads_nothing() -> None:
    def out(seeds: Seeds) -> list[str]:
        return ["best"]

    costs: dict[str, list[float | None]] = {"best": [0.0, 0.1], "a": [5.0, 5.1], "b": [9.0, 9.1]}
    assert standing(costs, Race()).leader == "best"
    assert standing(costs, Race(), out).leader == "a"


def test_in_a_race_of_equals_the_lowest_means_get_the_seeds() -> None:
    """Ten equal candidates, seeds of sd .8: it ends, and far below ten times twelve."""
    rng = np.random.default_rng(3)
    spent = [
        sum(standing(costs_of(rng.normal(0, 0.8, (10, 12))), Race()).seeds.values())
        for _ in range(100)
    ]
    assert min(spent) >= 20 and np.mean(spent) < 60
