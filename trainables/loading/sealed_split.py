"""The sealed test split, and the one function that opens it.

The caller passes the number of an opening already recorded in the ledger: who opened what is known
before anything is read. Only `study/engine/confirm.py` imports this (a test checks the
imports); we cannot stop a user's own code from reading the file.
"""

import json
from typing import Protocol

from trainables.files.digest import file_digest
from trainables.files.regular import read_text
from trainables.loading.cache import Prepared, Split, mapped_split
from trainables.problems import FieldError


class Openings(Protocol):
    """The part of the ledger used here."""

    def has(self, number: int) -> bool:
        """The ledger, freshly read, has the opening of that number."""


def open_test(prepared: Prepared, opening: int, ledger: Openings) -> Split:
    """The memory-mapped test split. Raises ValueError without the opening; FieldError: damaged."""
    if not ledger.has(opening):
        raise ValueError(f"the test split is sealed: the ledger has no opening {opening}.")
    meta = json.loads(read_text(prepared.directory / "meta.json"))
    names = ["test.npy", "test_labels.npy"]
    if prepared.groups:
        names.append("test_groups.npy")
    if prepared.input_shape.marked:
        names.append("test_positions.npy")
    files = [prepared.directory / name for name in names]
    for file in files:
        if file_digest(file) != meta["sha256"][file.name]:
            fix = "Remove that folder and confirm again: it is made again."
            raise FieldError("data", f"{file} is damaged", fix)
    return mapped_split(prepared.directory, "test")
