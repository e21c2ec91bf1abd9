"""Named random generators from one seed: a new stream disturbs no other."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def seed_of(seed: int, *names: str | int) -> int:
    """A 63-bit seed from a study's seed and the names of what it is for."""
    text = "/".join(str(part) for part in (seed, *names))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def stream(seed: int, *names: str | int, device: torch.device | str = "cpu") -> torch.Generator:
    """`stream(seed, trial, "order", epoch)`: the same names give the same numbers, alone, resumed or fused."""
    import torch  # who only names a seed does without

    return torch.Generator(device).manual_seed(seed_of(seed, *names))
