"""The commands that go on with an answer's model: by its name where the study's own answer, which
`confirm` and `export` go by, may be another."""

from __future__ import annotations

from typing import Any

from study.answer.choice import Choice
from study.answer.registering import registering
from study.store.study import StudyFolder
from study.store.trials import TrialRecord


def export_command(
    search: StudyFolder, study: StudyFolder, record: TrialRecord, serves: str = ""
) -> str:
    """The command that registers the model.

    study: the one of the record, the search's confirmation or itself. serves: how, where that is
    not what its registered models give.
    """
    if search.given is None:
        return search.command("export", name=search.name, **_served(serves))
    return named_export(search, study, record, serves)


def named_export(search: StudyFolder, study: StudyFolder, record: TrialRecord, serves: str) -> str:
    """The command that registers this model, whichever the study's own answer is."""
    how: dict[str, Any] = {"trial": record.name, **_served(serves), **search.given_option}
    return study.command("export", name=search.name, **how)


def _served(serves: str) -> dict[str, bool]:
    return {serves: True} if serves else {}


def served_otherwise(study: StudyFolder) -> str:
    """How `export` serves what is answered here; empty where the study serves it."""
    return study.serves if study.serve != study.recorded.serves else ""


def next_for(study: StudyFolder, choice: Choice) -> list[tuple[str, str]]:
    """What to do with a trial that objectives given afterwards select, each with what it does."""
    confirms = study.command("confirm", trial=choice.record.name)
    exports = named_export(study, study, choice.record, served_otherwise(study))
    return [
        (confirms, "retrains it with fresh seeds and opens the test split"),
        registering(study, choice, exports),
    ]
