"""A cell's interval, against Student's tables and SciPy's where they coincide."""

import math

import numpy as np
import pytest
from pytest import approx
from scipy import stats

from study.reproduction.cells import Cell, cell_of, half_width


def test_the_interval_is_that_of_the_t_test_of_one_sample() -> None:
    values = np.random.default_rng(0).normal(size=5)
    expected = stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
    cell = cell_of(values.tolist())
    assert cell.mean == approx(values.mean()) and cell.sd == approx(values.std(ddof=1))
    assert cell.half == approx((expected.high - expected.low) / 2, rel=1e-6)


def test_no_seed_lowers_what_the_split_adds() -> None:
    """With equal seeds only the split is left, of variance .09."""
    for seeds in (3, 10):
        assert half_width(0.0, seeds, 0.09) == approx(stats.t.ppf(0.975, seeds - 1) * 0.3)
    # t(.975) with 2 degrees of freedom is 4.30265 in every table.
    found = cell_of((4.0, 5.0, 6.0), split_variance=0.5).half
    assert found == approx(4.302653 * math.sqrt(1 / 3 + 0.5), rel=1e-6)


def test_one_seed_has_no_interval() -> None:
    assert cell_of((5.0,), 4.5) == Cell(4.5, 5.0)
    assert cell_of((), 4.5) == Cell(4.5)


@pytest.mark.parametrize(
    ("values", "failed", "why"),
    [
        ((1.0, math.nan, math.inf), "", "no finite value in 2 of 3 seeds"),
        ((1.0, 2.0), "focal/0002: Diverged", "failed: focal/0002: Diverged"),
    ],
)
def test_what_is_left_of_a_method_is_a_selection(
    values: tuple[float, ...], failed: str, why: str
) -> None:
    assert cell_of(values, 1.5, failed=failed) == Cell(1.5, why=why)
