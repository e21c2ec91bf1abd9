"""How values are written: digits by the width of the interval, and never an interval that has the
estimate as its end or outside."""

import re

import numpy as np
import pytest

from study.uncertainty.forms import bounds, difference_text, digits_for, floor_text, value_text
from study.uncertainty.intervals import Floor, Interval


@pytest.mark.parametrize(
    ("value", "sentence", "cell"),
    [
        ((0.974, 0.95, 0.988), "0.974 [0.950, 0.988]", "0.974 [0.950, 0.988]"),
        ((0.022, 0.0, 0.036), "0.022 [0, 0.036]", "0.022 [0, 0.036]"),
        ((0.5, 0.35, 0.61), "0.50 [0.35, 0.61]", "0.50 [0.35, 0.61]"),
        ((0.97412, 0.97123, 0.97688), "0.9741 [0.9712, 0.9769]", "0.9741 [0.9712, 0.9769]"),
        ((1.0, 0.99, 1.0), "1, at least 0.990", "1 (≥ 0.990)"),
        ((1.0, 0.988, 1.0 - 1e-12), "1, at least 0.988", "1 (≥ 0.988)"),
        ((0.0, 0.0, 0.021), "0, at most 0.021", "0 (≤ 0.021)"),
        (
            (0.0348, 0.0, 0.0348),
            "0.035, not distinguishable from 0 (at most 0.035)",
            "0.035 (≤ 0.035)",
        ),
        (
            (0.03, 0.0, 0.028),
            "0.030, not distinguishable from 0 (at most 0.028 without its bias)",
            "0.030 (≤ 0.028)",
        ),
        (
            (0.052, 0.021, 0.049),
            "0.052 (between 0.021 and 0.049 without its bias)",
            "0.052 (0.021 to 0.049)",
        ),
        ((0.3, 0.3, 0.3), "0.3000", "0.3000"),
        ((14.2, 11.0, 18.0), "14.20 [11.00, 18.00]", "14.20 [11.00, 18.00]"),
    ],
)
def test_a_value_with_its_interval(
    value: tuple[float, float, float], sentence: str, cell: str
) -> None:
    assert value_text(Interval(*value)) == sentence
    assert value_text(Interval(*value), cell=True) == cell


def test_a_value_without_one_has_four_digits() -> None:
    assert [value_text(value) for value in (0.97412, 1.0, 0.0)] == ["0.9741", "1", "0"]


def test_what_stands_in_other_columns() -> None:
    assert bounds(Interval(0.5, 0.35, 0.61)) == "[0.35, 0.61]"
    assert bounds(Interval(0.0348, 0.0, 0.0348)) == "≤ 0.035"
    assert bounds(Interval(0.0348, 0.0, 0.0349)) == "≤ 0.035"
    assert bounds(Interval(1.0, 0.99, 1.0)) == "≥ 0.990"
    assert floor_text(Floor(0.0134, 0.0081, 0.0195)) == "0.013 [0.008, 0.019]"
    assert difference_text(Interval(-0.012, -0.02, 0.004)) == "-0.012 [-0.020, +0.004]"


def test_no_printed_interval_has_its_estimate_as_an_end_or_outside() -> None:
    """Any three numbers of [0, 1], whichever is the estimate; two digits of the width at least."""
    source = np.random.default_rng(0)
    for _ in range(5000):
        low, high = np.sort(source.random(2) ** source.integers(1, 6))
        estimate = source.choice([low, high, source.uniform(0, 1), (low + high) / 2])
        text = value_text(Interval(float(estimate), float(low), float(high)))
        found = re.fullmatch(r"(\S+) \[(\S+), (\S+)\]", text)
        if found is not None:
            printed, least, most = map(float, found.groups())
            assert least < printed < most
            assert 10 ** -digits_for(low, high) <= (high - low) / 5 or high - low < 1e-5
        else:
            assert "between" in text or "at most" in text or "at least" in text
