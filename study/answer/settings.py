"""The settings of a model that was trained: those of its method, and those that were searched."""

from __future__ import annotations

from collections.abc import Mapping

from study.answer.phrases import setting_text
from study.schema.compatibility import leaves
from study.schema.errors import SpecError
from study.store.study import Study
from study.store.trials import TrialRecord
from trainables.problems import FieldError

MOST_SHOWN = 5


def method_of(study: Study, label: str) -> str:
    """The name of a label's method."""
    return next(entry["name"] for entry in study.plain["methods"] if entry["label"] == label)


def settings_of(search: Study, study: Study, record: TrialRecord) -> dict[str, object]:
    """By path: all of its method and its bases, and whatever the search looks for in any method.

    study: the record's, the search or its confirmation. Where this version cannot read the study's
    spec, the values recorded with the trial.
    """
    try:
        config = dict(leaves(study.config_of(record).to_mapping()))
        searched = {path for one in search.spec.variants for path in one.space.distributions}
    except (SpecError, FieldError):
        return dict(record.params)
    named = {path for path in config if path.startswith("method.") and not path.endswith(".name")}
    shown = [path for path in config if path in named or path in searched]
    found = {path: config[path] for path in shown if config[path] is not None}
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
