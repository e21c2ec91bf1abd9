"""The sealed test split, and the one function that opens it.

Whoever asks brings the number of an opening that the ledger has already: who opened what is known before anything is
read. Only `study/confirmation/confirm.py` imports this (a test reads the imports); what a user's own code reads behind
our back we cannot stop.
"""

from typing import Protocol

import numpy as np
import torch

from trainables.loading.cache import Prepared, Split


class Openings(Protocol):
    """The ledger, as far as it is asked here."""

    def has(self, number: int) -> bool:
        """Whether the opening of that number is written there, read anew."""


def open_test(prepared: Prepared, opening: int, ledger: Openings) -> Split:
    """The test split, mapped, not read. Raises ValueError unless the opening stands in the ledger."""
    if not ledger.has(opening):
        raise ValueError(f"the test split is sealed: no opening {opening} stands in the ledger.")
    images, labels = (
        torch.from_numpy(np.load(prepared.directory / file, mmap_mode="c", allow_pickle=False))
        for file in ("test.npy", "test_labels.npy")
    )
    return Split(images, labels)
