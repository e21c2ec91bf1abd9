"""Many samples of many classes, some at a time: what is computed sample by sample takes less memory
and is the same."""

from collections.abc import Iterator, Sequence

from torch import Tensor

MANY = 2**22  # values, above which samples are taken in parts
PART = 2**20  # values of a part
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
    return (slice(start, start + size) for start in range(0, samples, size))


def _size(samples: int, classes: int) -> int:
    if samples * classes <= MANY:
        return max(samples, 1)
    return max(PART // classes // REGISTERS, 1) * REGISTERS
