"""What MLflow has of a trial besides its metrics: the params and tags of its run, from the ledger.

The writer writes them, and an audit compares them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Any

from search_spaces.space import WHEN
from study.schema.compatibility import A_FILE, methods_in
from study.schema.uris import without_credentials
from study.store.trials import TrialRecord

if TYPE_CHECKING:
    from study.store.study import StudyFolder


def study_tags(study: StudyFolder) -> dict[str, str]:
    """The tags of each run of the study."""
    from trainables.metrics import CONVENTION

    recorded = study.recorded
    return {
        "calstudy.study": study.name,
        "calstudy.id": study.id,
        "calstudy.metrics": CONVENTION,
        "calstudy.data_digest": recorded.data_digest,
    }


def trial_tags(study: StudyFolder, record: TrialRecord) -> dict[str, str]:
    """The tags of a trial's run, without its parent's id."""
    tags = {
        **study_tags(study),
        "calstudy.trial": record.name,
        "calstudy.state": record.state,
        "calstudy.attempt": str(record.attempt),
        **commit_tag(record.versions),
    }
    if record.state == "complete" and record.epoch is not None:
        tags["calstudy.epoch"] = str(record.epoch)
    if record.how_trained:
        tags["calstudy.training"] = record.how_trained
    if record.host:
        tags["calstudy.host"] = record.host
    if record.reason:
        tags["calstudy.reason"] = record.reason
    return tags


def commit_tag(versions: Mapping[str, str]) -> dict[str, str]:
    """The git commit, as MLflow's UI shows it."""
    if "git_commit" not in versions:
        return {}
    return {"mlflow.source.git.commit": versions["git_commit"]}


class Configs:
    """The configurations of a study's trials as params, each label's worked out once."""

    def __init__(self, study: StudyFolder) -> None:
        self._study = study
        self._as_set: dict[str, dict[str, str]] = {}
        self._as_meant: dict[str, dict[str, str]] = {}

    def params(self, record: TrialRecord) -> dict[str, str]:
        """The params of a trial's run: its configuration as set, and its own values."""
        label = record.label
        if label not in self._as_set:
            self._as_set[label] = _config(self._study, label)
        return self._of(self._as_set[label], record)

    def meant(self, record: TrialRecord) -> dict[str, str]:
        """Those of `params` that never change: a later run may set others of them otherwise."""
        label = record.label
        if label not in self._as_meant:
            self._as_meant[label] = _meant(self._study, label)
        return self._of(self._as_meant[label], record)

    def _of(self, params: Mapping[str, str], record: TrialRecord) -> dict[str, str]:
        ranges = methods_in(self._study.recorded.meaning)[record.label].space
        gone = {
            path
            for path, plain in ranges.items()
            if isinstance(plain, Mapping) and WHEN in plain and path not in record.params
        }
        kept = {path: value for path, value in params.items() if path not in gone}
        return kept | self.own(record)

    def own(self, record: TrialRecord) -> dict[str, str]:
        """What only this trial has: its searched values and its number."""
        number = int(self._study.plain.get("first_seed", 0)) + record.number
        own = {"label": record.label, **record.params, "number": number}
        return {path: _text(value) for path, value in own.items()}


def _config(study: StudyFolder, label: str) -> dict[str, str]:
    """A label's trials as params, without what is searched; as recorded: imports no user's code."""
    from trainables.config import TrialConfig

    usual = {
        field.name: field.default for field in fields(TrialConfig) if field.default is not MISSING
    }
    shared = {
        key: value for key, value in {**usual, **study.plain}.items() if key in keys_of_trials()
    }
    whole = flat({**shared, "precision": study.recorded.meaning["precision"]})
    return whole | _of_method(study, label)


def _meant(study: StudyFolder, label: str) -> dict[str, str]:
    meaning = study.recorded.meaning
    shared = flat({key: meaning[key] for key in keys_of_trials() & set(meaning)})
    placed = {path: value for path, value in shared.items() if value != A_FILE}
    return placed | _of_method(study, label)


def keys_of_trials() -> set[str]:
    """The keys of a study that its trials share."""
    from trainables.config import TrialConfig

    return {field.name for field in fields(TrialConfig)} - {"method", "number"}


def _of_method(study: StudyFolder, label: str) -> dict[str, str]:
    parts = methods_in(study.recorded.meaning)[label]
    set_here = {
        path: value for path, value in parts.space.items() if not isinstance(value, Mapping | list)
    }
    own = {path.removesuffix(".name"): value for path, value in {**parts.fixed, **set_here}.items()}
    return {path: _text(value) for path, value in own.items()}


def flat(plain: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """{dotted path: text}; the name of a part is at its own path: `method`, `method.gamma`."""
    found: dict[str, str] = {}
    for key, value in plain.items():
        path = f"{prefix}.{key}" if prefix else key
        if key == "name":
            path = prefix or key
        if isinstance(value, Mapping):
            found |= flat(value, path)
        else:
            found[path] = _text(value)
    return found


def _text(value: Any) -> str:
    if isinstance(value, str):
        return str(without_credentials(value))
    return json.dumps(value)
