"""Trials of other studies that guide those of this one: `target: STUDY/LABEL/NUMBER`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from study.schema.spec import SpecError, StudySpec
from study.store.study import open_directory
from trainables.fields import FieldError
from trainables.outputs import train_entropy
from trainables.outputs.train_entropy import TrainEntropy


def target_file(target: str, root: Path) -> Path:
    """The recorded entropies a target names: a file (.npz), or those of a finished trial under the storage `root`.

    Raises FieldError with what was found and the mend.
    """
    if target.endswith(".npz"):
        return Path(target)
    name, _, trial = target.partition("/")
    label, _, number = trial.rpartition("/")
    if not label or not number.isdigit():
        raise FieldError("target", f"must be STUDY/LABEL/NUMBER or a file .npz, got '{target}'.")
    try:
        study = open_directory(root / name, name)
    except SpecError as error:
        raise FieldError("target", str(error)) from None
    found = [record for record in study.records().get(label, []) if record.number == int(number)]
    if not found or found[0].state != "complete":
        state = f"it is {found[0].state}" if found else "there is none"
        raise FieldError("target", f"'{target}' must be a complete trial, and {state}.")
    if train_entropy.FILE not in found[0].digests:
        problem = f"'{target}' recorded nothing; train it in a study with `record: train_entropy`."
        raise FieldError("target", problem)
    return study.files(found[0]) / train_entropy.FILE


def with_target_files(config: Mapping[str, Any], root: Path) -> dict[str, Any]:
    """A trial's config whose methods name the files of their targets."""
    return {**config, "method": _with_target_file(config["method"], root)}


def _with_target_file(method: dict[str, Any], root: Path) -> dict[str, Any]:
    if method.get("target") is not None:
        method = {**method, "target": str(target_file(method["target"], root))}
    if isinstance(method.get("base"), dict):
        method = {**method, "base": _with_target_file(method["base"], root)}
    return method


def check_targets(spec: StudySpec, root: Path, data_digest: str, file_name: str) -> None:
    """Raise SpecError where a target is not there, or was recorded on other data."""
    for variant in spec.variants:
        try:
            method: Any = with_target_files(spec.trial_mapping(variant.label), root)["method"]
            while isinstance(method, dict):
                if method.get("target") is not None:
                    TrainEntropy.load(Path(method["target"])).check(data_digest)
                method = method.get("base")
        except FieldError as error:
            raise SpecError(file_name, f"methods.{variant.label}.{error.path}", error.problem) from None
