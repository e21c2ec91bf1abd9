"""Retrain candidates with fresh seeds and measure them on the sealed test split."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import click

from study.engine.stopping import Ending
from study.terminal.console import (
    FAILED,
    INTERRUPTED,
    console,
    cpus_option,
    errors,
    json_option,
    refuse_cpus,
    storage_option,
    tracking_option,
)

if TYPE_CHECKING:
    from study.confirmation.results import Confirmation, Confirmed, Moments
    from study.schema.objective import Objective
    from study.store.study import Study

# The metrics of a shift set that fit the terminal.
SHOWN_OF_SHIFT = (
    "accuracy",
    "nll",
    "ece",
    "ts_ece",
    "auroc_confidence",
    "fpr95_confidence",
    "ts_auroc_confidence",
)


@click.command()
@click.argument("study")
@click.option(
    "--top",
    type=click.IntRange(min=1),
    metavar="K",
    help="K trials on validation: the answer, knee, ends of the front, then by share; then the next front.",
)
@click.option("--pareto", is_flag=True, help="The Pareto front; the default the first time.")
@click.option(
    "--trial",
    "trials",
    multiple=True,
    metavar="METHOD/NUMBER",
    help="One trial: focal/0007. Repeatable.",
)
@click.option(
    "--seeds",
    type=click.IntRange(min=1),
    metavar="S",
    help="Fresh seeds per candidate; default: 3.",
)
@click.option("--address", metavar="A", help="Ray cluster to train on; default: this machine.")
@cpus_option
@storage_option
@tracking_option
@json_option
def confirm(
    study: str,
    top: int | None,
    pareto: bool,
    trials: tuple[str, ...],
    seeds: int | None,
    address: str | None,
    cpus: int | None,
    storage: str | None,
    tracking: str | None,
    as_json: bool,
) -> None:
    """Retrain candidates with fresh seeds, then open the test split.

    Also retrains each method's default and cross-entropy. The test split is opened once per model, and each opening is
    first recorded in the ledger. Results go to the study STUDY-confirm, next to STUDY. To resume after an interruption
    (exit code 75), run the same command again; other candidates or more seeds are added. Nothing is selected on test.
    """
    if (top is not None) + pareto + bool(trials) > 1:
        raise click.UsageError("use only one of --top, --pareto and --trial.")
    refuse_cpus(cpus, address)
    output = errors if as_json else console
    with Ending(output) as stopping:
        from study.commands.answer import conclude
        from study.confirmation.candidates import Asked
        from study.confirmation.confirm import confirm as confirm_study
        from study.confirmation.results import confirmation_of
        from study.store.study import open_study

        opened = open_study(study, storage)
        asked = Asked(top, pareto, trials, seeds)
        if lacking := opened.lacking(opened.records()):
            output.print(
                f"{opened.name} is not finished, {lacking:,} trials not done yet: its front may still change."
            )
        _, untracked = confirm_study(opened, asked, tracking, address, output, stopping, cpus)
        if stopping.requested():
            stopping.say()
            raise SystemExit(INTERRUPTED)
        found = confirmation_of(opened)
        assert found is not None
        described = True
        if as_json:
            click.echo(json.dumps(_json(found)))
        else:
            _print(found, opened)
            described = conclude(opened, tracking, storage)
        if untracked is not None:
            fix = f"upload them with `calstudy sync {found.study.spec.name}`."
            output.print(
                f"the test results are not in MLflow yet ({untracked}); {fix}", soft_wrap=True
            )
        if not any(row.tests for row in found.rows):
            raise SystemExit(FAILED)
        if untracked is not None or not described:
            raise SystemExit(INTERRUPTED)


def _json(found: Confirmation) -> dict[str, Any]:
    from study.confirmation.results import default_texts, moments

    texts = default_texts(found)

    def plain(values: dict[str, Moments]) -> dict[str, Any]:
        return {
            name: {"mean": value.mean, "std": None if math.isnan(value.std) else value.std}
            for name, value in values.items()
        }

    rows = [
        {
            "label": row.label,
            "role": row.role,
            "default": texts.get(row.label),
            "trial": None if row.candidate is None else row.candidate.name,
            "seeds": len(row.records),
            "search": None if row.candidate is None else row.candidate.metrics,
            "validation": plain(moments([record.metrics for record in row.records])),
            "test": plain(moments(row.tests)),
            "shift": {name: plain(moments(of)) for name, of in row.shifts.items()},
        }
        for row in found.rows
    ]
    spec = found.study.spec
    named = [
        {"metric": objective.metric, "direction": objective.direction}
        for objective in spec.objectives
    ]
    front = _front_on_test(found)
    return {
        "name": spec.name,
        "confirms": spec.confirms,
        "objectives": named,
        "rows": rows,
        "front_on_test": front,
    }


def _front_on_test(found: Confirmation) -> list[str]:
    """The labels on the front of test values, without rows that are set aside by their validation values."""
    from study.answer.choice import rows_that_count
    from study.confirmation.results import front_on_test, search_of

    counted, _ = rows_that_count(search_of(found.study), found.rows)
    return front_on_test(counted, found.study.spec.objectives)


def _print(found: Confirmation, search: Study) -> None:
    from study.confirmation.results import default_texts
    from study.schema.objective import IN_WORDS, in_words, other_than, searched_for
    from study.terminal.layout import Table

    spec = found.study.spec
    for objective in spec.objectives:
        columns = (">search", ">validation", ">test", ">shrinkage")
        made = Table(
            "retrained",
            ">n",
            *columns,
            title=f"{in_words(objective.metric)} ({objective.direction})",
        )
        for row in found.rows:
            made.add_row(*_row(row, objective))
        console.print(made)
    _print_both(found, search)
    sets = dict.fromkeys(name for row in found.rows for name in row.shifts)
    for name in sets:
        _print_shift(found, name)
    serves, other = search.serves, other_than(search.serves)
    console.print(
        f"registered models are served {IN_WORDS[serves]} (`calstudy export {search.name} ... --{other}`:"
        f" {IN_WORDS[other]}); {searched_for(search.objectives)}",
        soft_wrap=True,
    )
    front = _front_on_test(found)
    console.print(f"Pareto front on test: {', '.join(front) or 'none yet'}", soft_wrap=True)
    sizes = found.study.recorded["sizes"]
    console.print(
        f"n: seeds. search: one trial, selected on {sizes['validation']} validation samples. validation and test"
        f" ({sizes['test']} samples): mean and standard deviation over fresh seeds. shrinkage: how much better the"
        " trial scored when it was selected than it scores on test. Nothing is selected on test.",
        soft_wrap=True,
    )
    for label, text in default_texts(found).items():
        console.print(f"{label}: {text}", soft_wrap=True)
    console.print(f"study: {found.study.directory}", soft_wrap=True)


def _row(row: Confirmed, objective: Objective) -> list[str]:
    from study.confirmation.results import moments

    metric = objective.metric
    validation = moments([record.metrics for record in row.records]).get(metric)
    test, searched = (
        moments(row.tests).get(metric),
        row.candidate.metrics[metric] if row.candidate else None,
    )
    shrinkage = (
        "-"
        if test is None or searched is None
        else f"{objective.sign * (test.mean - searched):+.4f}"
    )
    chosen_by = "-" if searched is None else f"{searched:.4f}"
    return [
        row.label,
        str(len(row.records)),
        chosen_by,
        _figure(validation),
        _figure(test),
        shrinkage,
    ]


def _print_both(found: Confirmation, search: Study) -> None:
    """What a temperature changes, on test: as trained and after it side by side."""
    from study.confirmation.results import moments
    from study.schema.objective import (
        IN_WORDS,
        RAW,
        TEMPERATURE,
        as_served,
        changes_with_temperature,
        plain_name,
    )
    from study.terminal.layout import Table
    from trainables.metrics import describe

    measured = [
        plain_name(one.metric) for one in search.objectives if changes_with_temperature(one.metric)
    ]
    for metric in dict.fromkeys(measured or ["ece"]):
        headings = (
            f">{words}" + " (served)" * (serves == search.serves)
            for serves, words in IN_WORDS.items()
        )
        made = Table("retrained", *headings, title=f"{describe(metric).label} on test")
        for row in found.rows:
            values = moments(row.tests)
            made.add_row(
                row.label,
                *(_figure(values.get(as_served(metric, serves))) for serves in (RAW, TEMPERATURE)),
            )
        console.print(made)


def _print_shift(found: Confirmation, name: str) -> None:
    from study.confirmation.results import moments
    from study.schema.objective import in_words
    from study.terminal.layout import Table
    from trainables.metrics import names

    rows = [(row.label, moments(row.shifts[name])) for row in found.rows if row.shifts.get(name)]
    shown = [metric for metric in rows[0][1] if metric in SHOWN_OF_SHIFT]
    named = (in_words(metric) if metric in names() else metric for metric in shown)
    made = Table("retrained", *(f">{metric}" for metric in named), title=_of_shift(name, found))
    for label, values in rows:
        made.add_row(label, *(_figure(values.get(metric)) for metric in shown))
    console.print(made)


def _of_shift(name: str, found: Confirmation) -> str:
    samples = next(
        (row.shift_samples[name] for row in found.rows if name in row.shift_samples), None
    )
    dropped = max(row.shift_dropped.get(name, 0) for row in found.rows)
    size = f", {samples:,} samples" if samples is not None else ""
    return f"shift: {name}{size}" + (
        f", {dropped:,} dropped: also in train or validation" if dropped else ""
    )


def _figure(value: Moments | None) -> str:
    if value is None:
        return "-"
    return f"{value.mean:.4f}" + ("" if math.isnan(value.std) else f" ± {value.std:.4f}")
