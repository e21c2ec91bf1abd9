"""Which model to take, how sure that is, and what to do next, from a study's records."""

from __future__ import annotations

import shlex
from dataclasses import replace

from study.analysis.ranking import excluded_line
from study.answer.after import confirmed
from study.answer.before import resume, unconfirmed
from study.answer.confirmation import Results
from study.answer.said import Answer
from study.store.command_line import CommandLine
from study.store.confirmed import RESTORE
from study.uncertainty.intervals import LEVEL
from trainables.problems import FieldError

TRAIN = ("run", "confirm")  # the commands that train


def answer(found: Results, level: float = LEVEL) -> Answer:
    """The model to take from a study now. What trains next is asked of the Ray cluster that
    trained last. Raises FieldError if a file is missing or altered."""
    confirming = None if found.confirmation is None else found.confirmation.records
    return at_cluster(_answer(found, level), (confirming or found.records).address)


def at_cluster(said: Answer, address: str | None) -> Answer:
    """The answer whose commands to train name that cluster; `auto` is of a job on one, which has
    another address from elsewhere."""
    if address is None or address == "auto":
        return said
    following = tuple(
        (command.at(address), does)
        if isinstance(command, CommandLine) and shlex.split(command)[1] in TRAIN
        else (command, does)
        for command, does in said.next
    )
    return replace(said, next=following)


def _answer(found: Results, level: float) -> Answer:
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
    aside = found.ranking.excluded
    if aside:
        name, reason = next(iter(aside.items()))
        none = "No model can be recommended: no trial counts."
        example = f"For example, {name}: {reason}."
        return Answer((none, excluded_line(aside), example), (look,))
    if found.lacking:
        return Answer(("No trial is complete yet.",), (resume(found),))
    return Answer(("No model can be recommended: no trial is complete.",), (look,))
