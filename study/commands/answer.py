"""The model to take."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from study.store.command_line import FROM_PYTHON, repeated
from study.terminal.console import (
    BEYOND_LIMIT,
    console,
    errors,
    interval_option,
    json_option,
    objectives_option,
    plain_head,
    print_json,
    say_afterwards,
    storage_option,
)
from study.terminal.steps import Steps

if TYPE_CHECKING:
    from study.answer.confirmation import Results
    from study.answer.said import Answer
    from study.schema.condition import Condition
    from study.store.study import StudyFolder

ANSWER_PATIENCE = 60.0  # seconds for writing the answer to MLflow


@click.command()
@click.argument("study")
@click.option(
    "--temperature/--raw",
    default=None,
    help=(
        "As if the model were served with its temperature, or as trained; default: what the study"
        " serves."
    ),
)
@click.option(
    "--fail-if",
    "limits",
    multiple=True,
    metavar="CONDITION",
    help='End with exit code 3 if it holds for the model: "ece>0.03". Repeatable.',
)
@click.option("--why", is_flag=True, help="Say how it was selected, and how sure that is.")
@objectives_option
@interval_option
@storage_option
@json_option
def answer(
    study: str,
    temperature: bool | None,
    limits: tuple[str, ...],
    why: bool,
    objectives: str | None,
    level: float,
    storage: str | None,
    as_json: bool,
) -> None:
    """Say which model to take, how sure that is, and what to do next.

    Validation alone selects: the model with the lowest sum of its objectives and half of its NLL,
    each divided by the smallest difference that matters (`matters` of the study). `export` takes
    the same one. After `confirm`, it is one of the confirmed models, and its values are those on
    the sealed test split. Excluded trials are never selected. --json has all of it: the model with
    its settings, values and intervals, cross-entropy's default, the verdict, the explanation.

    --fail-if "ece>0.03" is for a pipeline. It judges the mean over seeds on test of a confirmed
    model; before that, the value on validation. If there is no model to take, it fails too.

    --objectives accuracy,nll answers by other metrics than the study searched; `confirm` and
    `export` go by the study's own unless you name a trial.
    """
    from study.answer.answer import answer as answer_of
    from study.answer.confirmation import results_of
    from study.schema.condition import read_condition
    from study.schema.objective import RAW, TEMPERATURE
    from study.store.study import open_study
    from study.store.with_objectives import check_given_matters, with_objectives

    conditions = [read_condition("--fail-if", limit.strip()) for limit in limits]
    opened = with_objectives(open_study(study, storage), objectives)
    if temperature is not None:
        opened = opened.served_as(TEMPERATURE if temperature else RAW)
    check_given_matters(opened)
    found = answer_of(results_of(opened), level)
    failed = _failed(found, conditions)
    if as_json:
        failing = {"failed": failed} if conditions else {}
        print_json({**plain_head(opened), **found.to_plain(), **failing})
    else:
        say_afterwards(opened)
        _print(found, opened, why)
        for line in failed:
            console.say(line)
    if failed:
        raise SystemExit(BEYOND_LIMIT)


def _failed(found: Answer, conditions: Sequence[Condition]) -> list[str]:
    """What of --fail-if holds. Raises FieldError for a metric that is not known of the model."""
    from study.answer.values import measured
    from trainables.problems import FieldError

    if found.choice is None:
        return ["--fail-if: there is no model to take."] if conditions else []
    split, values = measured(found.choice)
    failed = []
    for condition in conditions:
        if condition.metric not in values:
            problem = f"{condition.metric} of the model to take is not known on {split}"
            raise FieldError("--fail-if", problem, f"Name one of {', '.join(values)}.")
        if condition.holds(values):
            value = values[condition.metric]
            failed.append(f"--fail-if {condition}: {condition.metric} on {split} is {value:.4f}.")
    return failed


def conclude(results: Results, tracking: str | None, shown: bool = True) -> bool:
    """Print the study's answer and write it to MLflow; False if that fails.

    shown: False where the output is JSON.
    """
    from study.answer.answer import answer as answer_of
    from study.schema.uris import TrackingError
    from study.tracking.client import within
    from trainables.problems import FieldError

    study = results.study
    output = console if shown else errors
    try:
        with Steps(output) as steps:
            steps("computing the answer")
            found = answer_of(results)
    except FieldError as error:  # a missing or altered file
        output.say(f"which model to take is not known: {error}")
        return True
    if shown:
        _print(found, study)
    try:
        with Steps(output) as steps:
            steps("writing the answer to MLflow")
            uri = study.tracking(tracking)
            within(ANSWER_PATIENCE, uri, lambda: write_answer(study, uri, found))
    except TrackingError as error:
        fix = f"write it with `{study.command('sync')}`."
        output.say(f"the answer is not in MLflow ({error.found}); {fix}")
        return False
    return True


def write_answer(study: StudyFolder, uri: str, found: Answer) -> None:
    """Write the answer to the study's own run in MLflow. Raises TrackingError."""
    from study.answer.values import named
    from study.tracking.artifacts import describe, log_answer

    describe(study, uri, found.sentences, found.next)
    what = named(study, found)
    log_answer(study, uri, what.model, what.trial, what.values)


def _print(found: Answer, study: StudyFolder, why: bool = False) -> None:
    """Print the answer, its first sentence in bold, and commands for what to do next."""
    first, *rest = found.sentences
    console.print(first, style="bold")
    for sentence in rest:
        console.print(sentence)
    for part in found.why if why else ():
        console.print(f"\n{part.heading}", style="bold")
        console.print(part.text)
    if why and found.why:
        console.print()
    for command, does in found.next:
        if command.startswith("calstudy report") and (page := _page(study)):
            console.say(f"All results on one page: {page}")
        else:
            console.say(f"Next: {repeated(command)}  ({does})")
    if found.why and not why:
        explains = study.command("answer", why=True, **study.given_option)
        console.say(f"Why: {'study.answer().why' if FROM_PYTHON in os.environ else explains}")


def _page(study: StudyFolder) -> Path | None:
    """The report page, if it is newer than what it shows."""
    from study.store.confirmed import confirming_directory

    page = study.directory / f"report{study.suffix}.html"
    ledgers = [
        folder / "ledger.log" for folder in (study.directory, confirming_directory(study.directory))
    ]
    written = [file.stat().st_mtime for file in ledgers if file.exists()]
    if page.exists() and page.stat().st_mtime >= max(written, default=0.0):
        return page
    return None
