"""Which model to take, how sure that is, and what to do next, from a study's records."""

from __future__ import annotations

from study.analysis.ranking import set_aside_line
from study.answer.after import confirmed
from study.answer.before import resume, unconfirmed
from study.answer.confirmation import Results
from study.answer.said import Answer
from study.store.confirmed import RESTORE
from study.uncertainty.intervals import LEVEL
from trainables.problems import FieldError


def answer(found: Results, level: float = LEVEL) -> Answer:
    """The model to take from a study now. Raises FieldError if a file is missing or altered."""
    study = found.study
    confirmation = found.confirmation
    if study.confirms is not None:
        raise FieldError(
            study.name, f"confirms '{study.confirms}', whose answer covers both", "Ask that one."
        )
    if (
        confirmation is not None
        and any(row.records for row in confirmation.rows)
        and confirmation.finished
    ):
        return confirmed(found, confirmation, level)
    if missing := found.missing:
        return Answer((f"{missing}.", f"{RESTORE}: which model to take was decided there."), ())
    if not found.ranking.eligible:
        return _nothing(found)
    return unconfirmed(found, level)


def _nothing(found: Results) -> Answer:
    look = (found.study.command("trials"), "lists every trial with its values")
    aside = found.ranking.set_aside
    if aside:
        name, reason = next(iter(aside.items()))
        none = "No model can be recommended: no trial counts."
        example = f"For example, {name}: {reason}."
        return Answer((none, set_aside_line(aside), example), (look,))
    if found.lacking:
        return Answer(("No trial is complete yet.",), (resume(found),))
    return Answer(("No model can be recommended: no trial is complete.",), (look,))
