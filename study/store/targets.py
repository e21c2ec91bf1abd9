"""Trials of other studies used as targets: `target: STUDY/LABEL/NUMBER`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from study.schema.errors import SpecError, located
from study.schema.spec import StudySpec
from study.store.study import StudyFolder, open_directory
from study.store.trials import Trials
from trainables.outputs import train_entropy
from trainables.outputs.train_entropy import TrainEntropy
from trainables.plain import Plain
from trainables.problems import FieldError


class Targets:
    """The recorded entropies of targets under one storage. Each study is read once."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._studies: dict[str, tuple[StudyFolder, Trials]] = {}

    def file(self, target: str) -> Path:
        """The .npz of a target: a file, or that of a complete trial. Raises FieldError if there is
        none."""
        if target.endswith(".npz"):
            return Path(target)
        name, _, trial = target.partition("/")
        label, _, number = trial.rpartition("/")
        if not label or not number.isdigit():
            raise FieldError(
                "target", f"must be STUDY/LABEL/NUMBER or an .npz file, got '{target}'"
            )
        study, records = self._study(name)
        found = records.numbered(label, int(number))
        if found is None or found.state != "complete":
            state = f"it is {found.state}" if found else "it does not exist"
            raise FieldError("target", f"'{target}' must be a complete trial, but {state}")
        if train_entropy.FILE not in found.digests:
            raise FieldError(
                "target",
                f"'{target}' recorded no entropies",
                "Train it in a study with `record: train_entropy`.",
            )
        return study.files(found) / train_entropy.FILE

    def _study(self, name: str) -> tuple[StudyFolder, Trials]:
        if name not in self._studies:
            try:
                study = open_directory(self._root / name, name)
            except SpecError as error:
                raise FieldError("target", str(error)) from None
            self._studies[name] = study, study.records()
        return self._studies[name]

    def named_in(self, config: Mapping[str, Plain]) -> dict[str, Plain]:
        """A trial's config with each target replaced by its file."""
        return {**config, "method": self._in_method(config["method"])}

    def _in_method(self, method: Plain) -> Plain:
        if not isinstance(method, dict):
            return method
        if method.get("target") is not None:
            method = {**method, "target": str(self.file(method["target"]))}
        if "base" in method:
            method = {**method, "base": self._in_method(method["base"])}
        return method

    def check(self, spec: StudySpec, data_digest: str, file_name: str) -> None:
        """Raise SpecError if a target of the study is missing or was recorded on other data."""
        for variant in spec.variants:
            with located(file_name, f"methods.{variant.label}"):
                method: Any = self.named_in(spec.trial_mapping(variant.label))["method"]
                while isinstance(method, dict):
                    if method.get("target") is not None:
                        TrainEntropy.load(Path(method["target"])).check(data_digest)
                    method = method.get("base")
