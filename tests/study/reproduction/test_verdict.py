"""Verdicts of cells, against Student's tables and SciPy's tests where they coincide."""

import math
import statistics

import numpy as np
import pytest
from pytest import approx
from scipy import stats

from benchmarks.experiments import verdicts as simulation
from study.reproduction.verdict import (
    AGREES,
    ALONE,
    CANNOT,
    DIFFERS,
    FAILED,
    Cell,
    differing_by_chance,
    half_width,
    judge_column,
    rounding_of,
    typical_sd,
)

OURS = (4.0, 5.0, 6.0)  # mean 5, sd 1
# t(.975) with 2 degrees of freedom is 4.30265 in every table; the sd of a difference is sqrt(4/3).
REACH = 4.302653 * math.sqrt(4 / 3)
FAR = Cell((50.0, 50.0, 50.0), published=90.0)  # makes the sd between the methods large


def judged(cell: Cell, **given):
    return judge_column({"cell": cell, "far": FAR}, **given)["cell"]


def test_the_interval_is_of_one_more_run() -> None:
    found = judged(Cell(OURS, published=5 + REACH - 0.01))
    assert found.word == AGREES
    assert found == approx_of(found, mean=5.0, sd=1.0, half=REACH, distance=0.01 - REACH)
    assert judged(Cell(OURS, published=5 + REACH + 0.01)).word == DIFFERS
    assert judged(Cell(OURS, published=5 - REACH - 0.01)).distance == approx(REACH + 0.01)


def approx_of(found, **wanted):
    for name, value in wanted.items():
        assert getattr(found, name) == approx(value, rel=1e-6), name
    return found


def test_with_endless_runs_it_is_the_t_test_of_one_sample() -> None:
    values = np.random.default_rng(0).normal(size=5)
    expected = stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
    half = half_width(np.std(values, ddof=1), 5, runs=10**12)
    assert float(half) == approx((expected.high - expected.low) / 2, rel=1e-6)


@pytest.mark.parametrize("runs", [1, 5])
def test_more_runs_of_the_paper_make_it_narrower(runs: int) -> None:
    expected = stats.t.ppf(0.975, 4) * math.sqrt(0.04 / 5 + 0.04 / runs)
    assert float(half_width(0.2, 5, runs)) == approx(expected)


def test_a_split_counts_twice_and_no_seed_lowers_it() -> None:
    """With equal seeds only the split is left: ours and theirs, each of variance .09."""
    for seeds in (3, 10):
        half = float(half_width(0.0, seeds, split_variance=0.09))
        assert half == approx(stats.t.ppf(0.975, seeds - 1) * 0.3 * math.sqrt(2))
    wide = Cell(OURS, published=5 + REACH + 0.5, split_variance=0.5)
    assert judged(wide).word == AGREES
    assert judged(wide).half == approx(4.302653 * math.sqrt(4 / 3 + 1), rel=1e-6)


def test_a_printed_digit_widens_by_its_half() -> None:
    assert rounding_of(2) == approx(0.005)
    assert rounding_of(1, step=0.1) == approx(0.05)
    equal = (4.951, 4.951, 4.951)
    assert judged(Cell(equal, published=4.95), rounding=rounding_of(2)).word == AGREES
    assert judged(Cell(equal, published=4.96), rounding=rounding_of(2)).word == DIFFERS
    end = (0.145, 0.145, 0.145)
    assert 0.15 - 0.145 > 0.005  # by rounding
    assert judged(Cell(end, published=0.15), rounding=rounding_of(2)).word == AGREES


def test_all_seeds_may_give_one_temperature() -> None:
    one = (2.5,) * 5
    half_step = rounding_of(1, step=0.1)
    assert judged(Cell(one, published=2.5), rounding=half_step).word == AGREES
    other = judged(Cell(one, published=2.6), rounding=half_step)
    assert (other.word, other.distance) == (DIFFERS, approx(-0.1))


@pytest.mark.parametrize(("values", "words"), [((5.0,), "1 seed,"), ((5.0, 6.0), "2 seeds,")])
def test_fewer_than_three_seeds(values: tuple[float, ...], words: str) -> None:
    found = judged(Cell(values, published=5.0))
    assert found.word == CANNOT
    assert f"{words} fewer than 3" in "; ".join(found.reasons)
    assert found.mean == approx(statistics.fmean(values))


def test_what_the_caller_knows_against_it() -> None:
    found = judged(Cell(OURS, published=5.0, doubts=("short form", "a torn digit")))
    assert (found.word, found.reasons) == (CANNOT, ("short form", "a torn digit"))
    assert found.half is not None


def test_a_half_width_above_the_sd_between_the_methods() -> None:
    """Two published values that are d apart have an sd of d / sqrt 2."""
    half = float(half_width(1.0, 3))
    for apart, word in ((math.sqrt(2) * half + 0.1, AGREES), (math.sqrt(2) * half - 0.1, CANNOT)):
        cells = {"one": Cell(OURS, published=5.0), "other": Cell(OURS, published=5.0 + apart)}
        assert judge_column(cells)["one"].word == word
    assert judge_column(cells)["one"].reasons == (
        "the half-width is above 4.9, the sd between the paper's methods",
    )


def test_one_published_method_has_nothing_to_compare_with() -> None:
    cells = {"one": Cell(OURS, published=5.0), "ours": Cell(OURS)}
    assert judge_column(cells)["one"].reasons[0].startswith("the paper has no second method")


def test_a_cell_is_not_picked_for_its_own_small_sd() -> None:
    """Its interval is narrow, that of the median sd is not; a large one is its own."""
    values = {"small": 0.01, "one": 1.0, "other": 1.0, "large": 2.0}
    cells = {
        row: Cell((5 - sd, 5.0, 5 + sd), published=5 + place)
        for place, (row, sd) in enumerate(values.items())
    }
    found = judge_column(cells)
    assert found["small"].half == approx(0.01 * REACH, rel=1e-6)
    assert found["small"].half < statistics.stdev([5.0, 6.0, 7.0, 8.0]) < REACH
    assert {verdict.word for verdict in found.values()} == {CANNOT}
    larger = typical_sd(np.array(list(values.values())))
    assert larger.tolist() == [1.0, 1.0, 1.0, 2.0]


def test_a_failed_cell_has_its_reason_and_no_part_in_the_column() -> None:
    cells = {
        "one": Cell(OURS, published=5.0),
        "far": FAR,
        "lost": Cell((1.0, 999.0), published=5.0, failed="loss is nan at epoch 3"),
        "new": Cell((), failed="loss is nan at epoch 3"),
    }
    found = judge_column(cells)
    assert (found["lost"].word, found["lost"].reasons) == (FAILED, ("loss is nan at epoch 3",))
    assert found["new"].word == FAILED
    assert found["one"].word == AGREES


def test_values_that_are_not_finite() -> None:
    found = judged(Cell((1.0, math.nan, math.inf), published=5.0))
    assert (found.word, found.reasons) == (CANNOT, ("no finite value in 2 of 3 seeds",))


def test_without_a_published_value_it_is_ours_alone() -> None:
    found = judge_column({"one": Cell(OURS), "short": Cell((5.0,)), "none": Cell(())})
    assert {verdict.word for verdict in found.values()} == {ALONE}
    assert found["one"].mean == 5.0
    # Nobody's number would lie in it: the interval is of our mean, as SciPy's.
    low, high = stats.t.interval(0.95, 2, 5.0, stats.sem(OURS))
    assert found["one"].half == approx((high - low) / 2)
    assert (found["short"].mean, found["short"].half, found["none"].mean) == (5.0, None, None)


def test_five_of_a_hundred_judged_cells_differ_by_chance() -> None:
    cells = {str(k): Cell(OURS, published=5.0) for k in range(50)}
    found = judge_column({**cells, "far": FAR, "alone": Cell(OURS), "few": Cell((5.0,), 5.0)})
    assert sum(verdict.is_judged for verdict in found.values()) == 51
    assert differing_by_chance(found.values()) == approx(0.05 * 51)


# ---- in tables whose truth is known --------------------------------------------------------------


@pytest.mark.parametrize(("seeds", "runs"), [(3, 1), (3, 5), (5, 1), (5, 5)])
def test_the_interval_covers_95_of_100(seeds: int, runs: int) -> None:
    """Within four binomial standard deviations."""
    draws = 20_000
    random = np.random.default_rng([seeds, runs])
    ours = random.normal(size=(seeds, draws))
    theirs = random.normal(size=(runs, draws)).mean(axis=0)
    reach = half_width(ours.std(axis=0, ddof=1), seeds, runs)
    covered = np.mean(np.abs(ours.mean(axis=0) - theirs) <= reach)
    assert covered == approx(0.95, abs=4 * math.sqrt(0.95 * 0.05 / draws))


@pytest.mark.parametrize(("seeds", "runs"), [(3, 1), (3, 5), (5, 1), (5, 5)])
def test_verdicts_on_the_published_tables(seeds: int, runs: int) -> None:
    """200 draws of 202 cells: four binomial standard deviations of a share of .95 are .0043."""
    found = simulation.simulated(seeds, runs, draws=200)
    assert 0.94 <= found.covered <= 0.96
    assert found.covered_judged >= 0.92
    three, five = found.differs
    if (seeds, runs) == (5, 5):
        assert three > 0.9
    if (seeds, runs) == (5, 1):
        assert five > 0.9
        assert three == approx(0.55, abs=0.03)


def test_the_simulation_judges_as_a_table_does() -> None:
    mean, sd = list(simulation.columns())[2]  # ECE on CIFAR-10
    found = simulation.judged(mean, sd, 5, 1, 20, 3.0, np.random.default_rng(1))
    random = np.random.default_rng(1)
    ours = mean[:, None, None] + sd[:, None, None] * random.normal(size=(12, 5, 20))
    theirs = sd[:, None] * random.normal(size=(12, 1, 20)).mean(axis=1)
    published = np.round(mean[:, None] + theirs, 3)
    for draw in range(20):
        # The sd between the methods is that of the table before a shift.
        cells = {
            str(row): Cell(tuple(ours[row, :, draw].tolist()), float(published[row, draw]))
            for row in range(12)
        }
        verdicts = judge_column(cells, rounding=0.0005).values()
        assert [one.is_judged for one in verdicts] == found.judged[:, draw].tolist()
        moved = published[:, draw] + 3 * sd
        inside = [
            abs(value - one.mean) <= one.half for value, one in zip(moved, verdicts, strict=True)
        ]
        assert inside == found.inside[:, draw].tolist()
