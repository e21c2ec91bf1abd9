"""How a value, its interval and its floor are written, wherever a person reads them.

The digits are those that the interval supports: two significant ones of its width. In print an
interval never has the estimate as its end, nor outside: a calibration error is biased upward, while
its interval is of the true one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from study.uncertainty.intervals import Floor, Interval

WITHOUT = 4  # digits after the point of a value without an interval
FEWEST, MOST = 2, 6  # of one with


def digits_for(low: float, high: float) -> int:
    """Digits after the point: two significant ones of the width."""
    width = high - low
    if not 10**-MOST < width < math.inf:
        return WITHOUT
    return min(MOST, max(FEWEST, 1 - math.floor(math.log10(width))))


def number(value: float, digits: int = WITHOUT) -> str:
    """`0.974`; 0 and 1 themselves without a point."""
    return f"{value:.0f}" if value in (0.0, 1.0) else f"{value:.{digits}f}"


def value_text(value: Interval | float, cell: bool = False) -> str:
    """`0.974 [0.950, 0.988]`; where the estimate is no inner point, a bound.

    `1, at least 0.990`; `0.030, not distinguishable from 0 (at most 0.035)`; `0.052 (between 0.021
    and 0.049 without its bias)`. cell: as short as a table has it, `0.030 (≤ 0.035)`.
    """
    if isinstance(value, float):
        return number(value)
    digits = digits_for(value.low, value.high)
    estimate = number(value.estimate, digits)
    low, high = ends(value)
    if _is_inside(value):
        return f"{estimate} [{low}, {high}]"
    if value.low == value.high:
        return estimate
    above = value.estimate > value.high and not math.isclose(value.estimate, value.high)
    unbiased = " without its bias" if above else ""
    if value.low == 0.0 and not cell:
        told = "" if value.estimate == 0.0 else "not distinguishable from 0 (at most {})"
        return f"{estimate}, " + (told or "at most {}").format(high + unbiased)
    if value.low == 0.0 or value.estimate == value.low:
        return f"{estimate} (≤ {high})" if cell else f"{estimate}, at most {high}"
    if value.estimate == 1.0 and not above:
        return f"{estimate} (≥ {low})" if cell else f"{estimate}, at least {low}"
    return (
        f"{estimate} ({low} to {high})"
        if cell
        else f"{estimate} (between {low} and {high}{unbiased})"
    )


def _is_inside(value: Interval) -> bool:
    """Whether the estimate lies between the ends, as they are printed too."""
    estimate = number(value.estimate, digits_for(value.low, value.high))
    return value.low < value.estimate < value.high and estimate not in ends(value)


def ends(value: Interval) -> tuple[str, str]:
    """The ends of an interval, with the digits that it supports."""
    digits = digits_for(value.low, value.high)
    return number(value.low, digits), number(value.high, digits)


def bounds(value: Interval) -> str:
    """The interval of a value in another column: `[0.950, 0.988]`, or the bound that it is."""
    low, high = ends(value)
    if _is_inside(value):
        return f"[{low}, {high}]"
    if value.low in (0.0, value.estimate):
        return f"≤ {high}"
    return f"≥ {low}" if value.estimate == 1.0 else f"{low} to {high}"


def signed_ends(value: Interval) -> tuple[str, str]:
    """`-0.012`, `[-0.020, -0.004]`: a difference, and its interval."""
    digits = digits_for(value.low, value.high)
    estimate, low, high = (f"{each:+.{digits}f}" for each in value)
    return estimate, f"[{low}, {high}]"


def difference_text(value: Interval) -> str:
    """`-0.012 [-0.020, -0.004]`."""
    return " ".join(signed_ends(value))


def floor_text(floor: Floor) -> str:
    """`0.013 [0.008, 0.019]`: mean and range of a floor."""
    return "{:.3f} [{:.3f}, {:.3f}]".format(*floor)


def finite(values: Mapping[str, float]) -> dict[str, float | None]:
    """The values for JSON: null if not finite."""
    return {name: value if math.isfinite(value) else None for name, value in values.items()}
