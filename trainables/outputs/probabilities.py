"""Whether scores are probabilities, where a user's own come in: logits taken for probabilities, or
the reverse, give wrong values without an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from trainables.kinds import count_of
from trainables.problems import FieldError

EXACT = 1e-3  # of a row's sum from 1: what float32, or a file of four decimals, rounds
ROUNDED = 0.05  # what bfloat16, or a file of two decimals, rounds
FEWEST = 2  # rows: a single one of logits may sum to 1


class Door(NamedTuple):
    """Where scores come in: the words of its errors."""

    where: str  # the file, or the argument
    probs: str  # what the probabilities are called there
    if_logits: str  # what to do if these are logits
    if_probs: str  # what to do if the logits are probabilities
    if_rounded: str  # what to do about sums that are nearly 1


PYTHON = Door(
    "Predictions",
    "probs",
    "If they are logits, give them as logits=...",
    "Give them as probs=..., in place of logits.",
    "Divide each row by its sum: probs / probs.sum(-1, keepdims=True).",
)


def refuse_probs(logits: np.ndarray, door: Door) -> None:
    """Raise FieldError for logits [N, K] of two rows or more that are >= 0 and sum to 1, or nearly:
    to within 0.05."""
    if len(logits) < FEWEST or bool((logits < 0).any()):
        return
    low, high = _ends(logits)
    if 1 - ROUNDED <= low <= high <= 1 + ROUNDED:
        found = (
            f"the logits are probabilities: all are >= 0, and each row sums to {_span(low, high)}"
        )
        raise FieldError(door.where, found, door.if_probs)


def as_probs(
    scores: np.ndarray, door: Door, normalized: Callable[[float], object] | None = None
) -> np.ndarray:
    """Scores [N, K] that are >= 0 and sum to 1 within 0.001 in each row, as they are.

    normalized: divide each row by its sum, which may be off by 0.05; it is told by how much at
    most. Raises FieldError.
    """
    negative = np.flatnonzero((scores < 0).any(axis=-1))
    if len(negative):
        row = int(negative[0])
        found = f"row {row}: {float(scores[row].min()):g} is less than 0"
        raise FieldError(door.where, f"{door.probs}: {found}", door.if_logits)
    sums = scores.sum(axis=-1, dtype=np.float64)
    off = np.abs(sums - 1)
    most = float(off.max())
    if not most <= ROUNDED:  # or is NaN
        row = int(np.flatnonzero(~(off <= ROUNDED))[0])
        found = f"row {row}: {door.probs} sum to {float(sums[row]):.6g}, not 1"
        raise FieldError(door.where, found, door.if_logits)
    if normalized is not None:
        normalized(most)
        divided: np.ndarray = scores / sums[:, None]
        return divided
    if most > EXACT:
        rows = count_of(int((off > EXACT).sum()), "rows")
        found = f"{door.probs} sum to {_span(*_ends(scores))}, not to 1 within {EXACT}, in {rows}"
        raise FieldError(door.where, found, door.if_rounded)
    return scores


def _ends(scores: np.ndarray) -> tuple[float, float]:
    """The least and the largest sum of a row."""
    sums = scores.sum(axis=-1, dtype=np.float64)
    return float(sums.min()), float(sums.max())


def _span(low: float, high: float) -> str:
    first, last = f"{low:.4g}", f"{high:.4g}"
    return first if first == last else f"{first} to {last}"
