"""Metrics that have no intervals: those of one's own, whose code runs only where trials train and
in `confirm`, and ours that are not resampled."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from study.schema.objective import plain_name
from study.uncertainty.resampling import REMOVED, RESAMPLED
from trainables import metrics


def without_intervals(names: Iterable[str]) -> list[str]:
    """Those of the metrics that have none, without `ts_`, each once."""
    plain = dict.fromkeys(plain_name(name) for name in names)
    return [name for name in plain if name not in (*RESAMPLED, *REMOVED)]


def no_intervals_of(names: Iterable[str]) -> str:
    """`no intervals for fairness_gap: it is your own metric`; empty where all have some."""
    found = without_intervals(names)
    own = [name for name in found if metrics.is_own(name)]
    ours = [name for name in found if name not in own]
    is_own = "it is your own metric" if len(own) == 1 else "they are your own metrics"
    is_ours = f"calstudy does not resample {'it' if len(ours) == 1 else 'them'}"
    parts = [(own, is_own), (ours, is_ours)]
    return "; ".join(_said(which, because) for which, because in parts if which)


def _said(names: Sequence[str], because: str) -> str:
    return f"no intervals for {' and '.join(names)}: {because}"
