"""A wrong time of day for chosen programs: `skew.c`, preloaded."""

from __future__ import annotations

from pathlib import Path

from benchmarks.chaos.preload import preloaded, refusal

__all__ = ["SKEWS", "refusal", "skewed"]
SKEWS = (300, -3600)


def skewed(directory: Path, seconds: int) -> dict[str, str]:
    """The environment in which a program and what it starts are seconds ahead.
    `directory` keeps the library."""
    return {**preloaded("skew", directory), "CALSTUDY_SKEW": str(seconds)}
