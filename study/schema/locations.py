"""The paths that a study's file names."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainables.fields import FieldError


def with_absolute_paths(plain: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Resolve relative paths of data, extensions and ledger from the folder of the study's file."""

    def absolute(path: Any) -> Any:
        if not isinstance(path, str) or not path or "://" in path:
            return path
        return os.path.abspath(folder / Path(path).expanduser())

    def located(dataset: Any) -> Any:
        if isinstance(dataset, Mapping) and "path" in dataset:
            return {**dataset, "path": absolute(dataset["path"])}
        return dataset

    done = dict(plain)
    if "data" in done:
        done["data"] = located(done["data"])
    if isinstance(done.get("shift"), Mapping):
        done["shift"] = {name: located(dataset) for name, dataset in done["shift"].items()}
    if done.get("extensions") == "":
        raise FieldError("extensions", "is empty; write null, or remove the key.")
    for key in ("extensions", "ledger"):
        if key in done:
            done[key] = absolute(done[key])
    return done
