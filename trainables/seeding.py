"""Named random generators from one seed: adding a stream does not change the others."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def seed_of(seed: int, *names: str | int) -> int:
    """A 63-bit seed from a study's seed and the names of its purpose."""
    text = "/".join(str(part) for part in (seed, *names))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def stream(seed: int, *names: str | int, device: torch.device | str = "cpu") -> torch.Generator:
    """`stream(seed, trial, "order", epoch)`: equal names give equal numbers, however it runs."""
    import torch  # slow; seed_of does not need it

    return torch.Generator(device).manual_seed(seed_of(seed, *names))
