"""Metrics of one's own are not resampled: their code runs only where trials train, and in
`confirm`."""

from __future__ import annotations

from collections.abc import Iterable

from study.schema.objective import plain_name
from trainables import metrics


def no_intervals_of_own(names: Iterable[str]) -> str:
    """`no intervals for fairness_gap: it is your own metric`; empty where none is."""
    own = list(dict.fromkeys(plain_name(name) for name in names if metrics.is_own(name)))
    if not own:
        return ""
    are = "it is your own metric" if len(own) == 1 else "they are your own metrics"
    return f"no intervals for {' and '.join(own)}: {are}"
