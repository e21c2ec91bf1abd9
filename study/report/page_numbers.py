"""Numbers as a report page has them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence


def number(value: float | None) -> float | None:
    """Six significant digits; null if not finite."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.6g}")


def spread(values: Sequence[float]) -> list[float | None] | None:
    """[mean, std with n - 1]; the std is null for one value, the pair null for none."""
    if not values:
        return None
    return [
        number(statistics.fmean(values)),
        number(statistics.stdev(values)) if len(values) > 1 else None,
    ]


def amount(count: float) -> str:
    """`1,234`, `0.83`."""
    return f"{count:,.0f}" if count >= 100 else f"{count:.2g}"
