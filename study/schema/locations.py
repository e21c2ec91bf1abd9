"""The paths that a study's file names."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from trainables.fields import expanded
from trainables.plain import Plain
from trainables.problems import FieldError


def with_absolute_paths(plain: Mapping[str, Plain], folder: Path) -> dict[str, Plain]:
    """Resolve relative paths of data, extensions and ledger from the folder of the study's file."""

    def from_root(path: Plain, where: str) -> Plain:
        if not isinstance(path, str) or not path or "://" in path:
            return path
        return os.path.abspath(folder / expanded(path, where))

    def located(dataset: Plain, where: str) -> Plain:
        if isinstance(dataset, Mapping) and "path" in dataset:
            return {**dataset, "path": from_root(dataset["path"], f"{where}.path")}
        return dataset

    done = dict(plain)
    if "data" in done:
        done["data"] = located(done["data"], "data")
    shift = done.get("shift")
    if isinstance(shift, Mapping):
        done["shift"] = {name: located(of, f"shift.{name}") for name, of in shift.items()}
    if done.get("extensions") == "":
        raise FieldError("extensions", "is empty", "Write null, or remove the key.")
    for key in ("extensions", "ledger"):
        if key in done:
            done[key] = from_root(done[key], key)
    return done
