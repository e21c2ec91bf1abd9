"""Many samples of many classes, some at a time: what is computed sample by sample takes less memory
and is the same."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

# Values of a part, at least: in float64 more than 32 MB, which malloc takes from the system and
# gives back. Of smaller arrays it would keep much.
PART = 2**22
# A part has whole registers of a processor of samples: each is summed as in one piece, bit for bit.
REGISTERS = 64


def in_parts(values: Tensor, dim: int = 0) -> Sequence[Tensor]:
    """Some samples at a time of [N, K], or of [K, N] where `dim`, that of the samples, is 1."""
    size = _size(values.shape[dim], values.shape[1 - dim])
    if size >= values.shape[dim]:
        return (values,)
    parts: Sequence[Tensor] = values.split(size, dim=dim)  # type: ignore[no-untyped-call]
    return parts


def slices(samples: int, classes: int) -> Iterator[slice]:
    """The rows of each part of [N, K]."""
    size = _size(samples, classes)
    return (slice(start, start + size) for start in range(0, max(samples, 1), size))


def mass_ranks(n: int, bins: int) -> list[int]:
    """The ranks of n values at which all equal-mass bins but the first begin: array_split's."""
    return [k * (n // bins) + min(k, n % bins) for k in range(1, bins)]


def _size(samples: int, classes: int) -> int:
    number = samples * classes // PART
    return max(samples, 1) if number < 2 else math.ceil(samples / number / REGISTERS) * REGISTERS
