"""The replay of recorded trainings, against what a person finds by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray
from optuna.distributions import FloatDistribution

from benchmarks.search import sampling, stopping
from benchmarks.search.stopping import Outcome, Trial


def trial(error: float, ece: float, early: float | None = None, protected: bool = False) -> Trial:
    """Of three epochs; at the first Brier and ECE are `early`, by default the last ECE."""
    first = ece if early is None else early
    rows = [[0.5, 1.0, first, first], [0.6, 1.0, first, first], [1 - error, 1.0, ece, ece]]
    return Trial("focal", protected, rows, 3)


# Two defaults set the reference (.3, .12). The front is (.1, .08), (.2, .04) and (.25, .02).
TRIALS = [
    trial(0.3, 0.1, protected=True),
    trial(0.2, 0.12, protected=True),
    trial(0.2, 0.04, early=0.20),  # the third always goes on
    trial(0.1, 0.08, early=0.10),  # tied first of four
    trial(0.25, 0.02, early=0.30),  # last of five: stopped, and of the front
    trial(0.28, 0.11, early=0.11),  # third of six at the rung: goes on
    trial(0.28, 0.11, early=0.15),  # fifth of seven, where four go on: stopped
]
SPENT = [3, 3, 3, 3, 1, 3, 1]


def test_replay_of_a_small_pool_by_hand() -> None:
    assert stopping.rung(["brier", "ece"], 1 / 3, 0.5)(TRIALS) == SPENT
    found = stopping.outcome({"focal": TRIALS}, {"focal": SPENT})
    # (.3-.1)(.12-.08) + (.3-.2)(.08-.04) + (.3-.25)(.04-.02) = .013, of which
    # the last .001 is lost.
    volume, front = pytest.approx(12 / 13), pytest.approx(2 / 3)
    assert found == Outcome(pytest.approx(17 / 21), volume, front, volume, front)


def test_the_epochs_that_are_left_and_those_expected_by_hand() -> None:
    """Of the last five trials the first goes on; if all are alike 2/4, 3/5, 3/6 and 4/7
    of the others, else, two ahead,
    0, 1/3, 1/4 and 2/5. Each trains one epoch of three in any case."""
    real, least, most = stopping.epochs_left({"focal": TRIALS}, {"focal": SPENT}, 1 / 3, 0.5)
    assert real == pytest.approx(17 / 21)
    assert least == pytest.approx((7 + 2 * (3 + 0 + 1 / 3 + 1 / 4 + 2 / 5)) / 21)
    assert most == pytest.approx((7 + 2 * (3 + 2 / 4 + 3 / 5 + 3 / 6 + 4 / 7)) / 21)


def test_fewer_trials_take_the_first_of_each_method_in_turn() -> None:
    study = {"focal": TRIALS[:3], "mbls": TRIALS[:3]}
    assert stopping.fewer(study, 0.5) == {"focal": [3, 3, 0], "mbls": [3, 0, 0]}


def test_chance_and_divergence_give_no_result() -> None:
    assert not trial(0.9, 0.001).has_result
    assert not Trial("focal", False, TRIALS[0].rows[:2], 3).has_result
    assert stopping.everything([Trial("focal", False, TRIALS[0].rows[:2], 3)]) == [2]


class Constant(sampling.Surrogate):
    """Of one parameter, with two defaults, the start-up trials; everything has the same result."""

    def __init__(self) -> None:
        space = {"x": FloatDistribution(0.0, 1.0)}
        super().__init__(space, [{"x": 0.1}, {"x": 0.2}], [], np.zeros((1, 2)))

    def truth(self, settings: Sequence[object]) -> NDArray[np.float64]:
        return np.full((len(settings), 2), 0.1)


def results_seen(trials: int, slots: int, cap: int | None, stack: int = 1) -> list[int]:
    """Of each trial in turn, how many results its proposal knows."""
    seen = []

    def sample(known: Sequence[object], number: int, seed: int) -> dict[str, float]:
        assert number == len(seen)
        seen.append(len(known))
        return {"x": 0.5}

    sampling.search(Constant(), sample, trials, 0, slots, cap, stack)
    return seen


def test_a_search_hands_out_what_slots_and_cap_allow() -> None:
    """Two defaults, then at most one pending."""
    assert results_seen(6, 1, None) == [0, 1, 2, 3, 4, 5]
    assert results_seen(6, 4, None) == [0, 0, 0, 0, 1, 2]
    # The first beyond the two start-up trials waits for one of their results, each later
    # one for its predecessor.
    capped = results_seen(6, 4, 1)
    assert capped[:3] == [0, 0, 1] and capped[3:] == [3, 4, 5]


def test_a_stack_is_proposed_from_the_same_results_as_far_as_the_cap_allows() -> None:
    assert results_seen(8, 1, 4, stack=4) == [0, 0, 0, 0, 4, 4, 4, 4]
    # Two stacks of two in turn: while one trains, the next is proposed without its results.
    assert results_seen(8, 2, 4, stack=2) == [0, 0, 2, 2, 2, 2, 4, 4]
    # Two start-up trials and one that is pending; then one by one.
    assert results_seen(6, 2, 1, stack=4) == [0, 0, 0, 3, 4, 5]
