"""The commands that go on with an answer's model: by its name where the study's own answer, which
`confirm` and `export` go by, may be another."""

from __future__ import annotations

from study.answer.choice import Choice
from study.answer.registering import registering
from study.store.study import Study
from study.store.trials import TrialRecord


def export_command(search: Study, study: Study, record: TrialRecord, serves: str = "") -> str:
    """The command that registers the model.

    study: the one of the record, the search's confirmation or itself. serves: how, where that is
    not what its registered models give.
    """
    how = (f"--{serves}",) if serves else ()
    if search.given is None:
        return search.command("export", "--name", search.name, *how)
    return named_export(search, study, record, *how)


def named_export(search: Study, study: Study, record: TrialRecord, *how: str) -> str:
    """The command that registers this model, whichever the study's own answer is."""
    given = () if search.given is None else search.given.words
    which = ("--trial", record.name, *how, *given)
    return study.command("export", "--name", search.name, *which)


def served_otherwise(study: Study) -> tuple[str, ...]:
    """The option of `export` that serves what is answered here; none where the study serves it."""
    return (f"--{study.serves}",) if study.serves != study.recorded.serves else ()


def next_for(study: Study, choice: Choice) -> list[tuple[str, str]]:
    """What to do with a trial that objectives given afterwards select, each with what it does."""
    confirms = study.command("confirm", "--trial", choice.record.name)
    exports = named_export(study, study, choice.record, *served_otherwise(study))
    return [
        (confirms, "retrains it with fresh seeds and opens the test split"),
        registering(study, choice, exports),
    ]
