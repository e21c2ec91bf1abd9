"""The settings of a model that was trained: those of its method, and those that were searched."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from study.answer.phrases import setting_text
from study.store.study import StudyFolder
from study.store.trials import TrialRecord

MOST_SHOWN = 5


def method_of(study: StudyFolder, label: str) -> str:
    """The name of a label's method."""
    return next(entry["name"] for entry in study.plain["methods"] if entry["label"] == label)


def settings_of(study: StudyFolder, record: TrialRecord) -> dict[str, object]:
    """By path: all of its method and its bases, and those outside it that were searched or pinned.

    study: the record's. From what is recorded, so that no code of one's own is imported.
    """
    meaning: Any = (study.recorded.meaning or {}).get("methods", {})
    own = meaning.get(record.label, {"fixed": {}, "space": {}})
    found = {
        path: value
        for path, value in (own["fixed"] | own["space"]).items()
        if not path.endswith(".name") and value is not None and not isinstance(value, dict)
    }
    return {**found, **record.params}


def shown_settings(searched: TrialRecord | None, settings: Mapping[str, object]) -> str:
    """` (gamma 2.1, optimizer.lr 0.08)`: of a trial what was searched, of a default all."""
    chosen = settings
    if searched is not None and searched.params:
        chosen = {path: value for path, value in settings.items() if path in searched.params}
    parts = [setting_text(path, value) for path, value in chosen.items()]
    if len(parts) > MOST_SHOWN:
        parts[MOST_SHOWN - 1 :] = [f"{len(parts) - MOST_SHOWN + 1} more"]
    return f" ({', '.join(parts)})" if parts else ""
