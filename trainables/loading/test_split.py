"""The sealed test split, and the one function that opens it.

The caller passes the number of an opening already recorded in the ledger: who opened what is known before anything is
read. Only `study/confirmation/confirm.py` imports this (a test checks the imports); we cannot stop a user's own code
from reading the file.
"""

import json
from typing import Protocol

import numpy as np
import torch

from trainables.fields import FieldError
from trainables.files.digest import file_digest
from trainables.files.regular import read_text
from trainables.loading.cache import Prepared, Split


class Openings(Protocol):
    """The part of the ledger used here."""

    def has(self, number: int) -> bool:
        """Whether the ledger, freshly read, has the opening of that number."""


def open_test(prepared: Prepared, opening: int, ledger: Openings) -> Split:
    """The memory-mapped test split. Raises ValueError unless the ledger has the opening; FieldError: it is damaged."""
    if not ledger.has(opening):
        raise ValueError(f"the test split is sealed: the ledger has no opening {opening}.")
    files, meta = (
        ("test.npy", "test_labels.npy"),
        json.loads(read_text(prepared.directory / "meta.json")),
    )
    for file in files:
        if file_digest(prepared.directory / file) != meta["sha256"][file]:
            problem = f"{prepared.directory / file} is damaged. Remove that folder and confirm again: it is made again."
            raise FieldError("data", problem)
    images, labels = (
        torch.from_numpy(np.load(prepared.directory / file, mmap_mode="c", allow_pickle=False))
        for file in files
    )
    return Split(images, labels)
