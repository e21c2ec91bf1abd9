"""Retrain candidates with fresh seeds and measure them on the sealed test split."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from itertools import chain
from typing import TYPE_CHECKING, Any

import click

from study.machines.stopping import Ending
from study.schema.objective import (
    IN_WORDS,
    RAW,
    TEMPERATURE,
    as_served,
    changes_with_temperature,
    in_words,
    other_than,
    plain_name,
    searched_for,
)
from study.terminal.console import (
    FAILED,
    INTERRUPTED,
    OurConsole,
    console,
    cpus_option,
    errors,
    json_option,
    moved_option,
    print_json,
    refuse_cpus,
    storage_option,
    tracking_option,
)
from study.terminal.layout import Table
from study.terminal.racing import race_options
from study.terminal.steps import Steps
from study.terminal.waiting import wait_options

if TYPE_CHECKING:
    from study.answer.confirmation import Confirmation, Confirmed, Moments
    from study.answer.sizes import Floors, Sizes
    from study.engine.confirm_work import Work
    from study.schema.wait import Wait
    from study.store.study import StudyFolder
    from study.uncertainty.intervals import Floor

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
    help="The K trials with the lowest sums of the objectives on validation.",
)
@click.option("--pareto", is_flag=True, help="The Pareto front.")
@click.option(
    "--each",
    is_flag=True,
    help="Each method's best, as trained and with its temperature; only cross-entropy's default.",
)
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
    help="Fresh seeds for each candidate, equally; default: they race.",
)
@race_options
@click.option(
    "--dry-run", is_flag=True, help="Say what would be trained and measured, and do nothing."
)
@click.option("--address", metavar="A", help="Ray cluster to train on; default: this machine.")
@wait_options
@cpus_option
@moved_option
@storage_option
@tracking_option
@json_option
def confirm(
    study: str,
    top: int | None,
    pareto: bool,
    each: bool,
    trials: tuple[str, ...],
    seeds: int | None,
    race: dict[str, Any],
    dry_run: bool,
    address: str | None,
    wait: Wait,
    cpus: int | None,
    moved: bool,
    storage: str | None,
    tracking: str | None,
    as_json: bool,
) -> None:
    """Retrain candidates with fresh seeds, then open the test split.

    Candidates race: each has two seeds, then seeds go to those that may still be best, until none
    is likely to be better. Also retrains cross-entropy's default; with --seeds, that of each
    method. The test split is opened once per model, and each opening is first recorded in the
    ledger. Results go to the study STUDY-confirm, next to STUDY. To resume after an interruption
    (exit code 75), run the same command again; other candidates or more seeds are added. Nothing is
    selected on test.

    A study in which no method has a search, without early stopping, is its own confirmation: when
    all its trials have ended they are measured, and nothing is trained again.
    """
    if dry_run and moved:
        raise click.UsageError("--moved writes where the study is now. Leave out --dry-run.")
    refuse_cpus(cpus, address)
    output = errors if as_json else console
    with Ending(output, errors) as stopping:
        with Steps(output) as steps:
            steps("importing torch")
            from study.answer.confirmation import results_of
            from study.commands.answer import conclude
            from study.engine.candidates import Asked
            from study.engine.confirm import choose
            from study.engine.confirm import confirm as confirm_study
            from study.engine.probe import slots_here
            from study.store.study import open_study
            from study.terminal.display import ConsoleDisplay

        opened = _opened(study, storage, moved, output)
        shown = ConsoleDisplay(output)
        asked = Asked(top, pareto, each, trials, seeds, **race)
        chosen = choose(opened, asked, shown)
        work = chosen.work()
        slots = slots_here(chosen.spec, cpus) if address is None and work.trainings else None
        output.say(f"{opened.name}: {_work_line(work, slots)}")
        if dry_run:
            _print_work(work, slots, as_json)
            return
        _, untracked = confirm_study(chosen, tracking, address, shown, stopping, cpus, wait)
        if stopping.requested():
            stopping.say()
            raise SystemExit(INTERRUPTED)
        results = results_of(open_study(study, storage))  # it may be its own confirmation now
        found = results.confirmation
        assert found is not None
        with Steps(output) as steps:
            steps("computing the uncertainty")
            sizes = _sizes(found)
        if as_json:
            print_json(_json(found, sizes))
        else:
            _print(found, sizes)
        described = conclude(results, tracking, not as_json)
        if untracked is not None:
            fix = f"upload them with `{found.study.command('sync')}`."
            output.say(f"the test results are not in MLflow yet ({untracked}); {fix}")
        if not any(row.tests for row in found.rows):
            raise SystemExit(FAILED)
        if untracked is not None or not described:
            raise SystemExit(INTERRUPTED)


def _opened(study: str, storage: str | None, moved: bool, output: OurConsole) -> StudyFolder:
    """The study. moved: it is a copy, which from now on is the study."""
    from study.audit.moved import go_on_here
    from study.store.study import open_study

    found = open_study(study, storage)
    if not moved:
        return found
    for line in go_on_here(found):
        output.say(line)
    return open_study(study, storage)


def _work_line(work: Work, slots: int | None) -> str:
    """`(2 candidates + 5 defaults) x 2 seeds = 14 trainings, about 7 min of training, ...`.

    slots: how many trials train at once; None: not known.
    """
    from study.answer.phrases import counted
    from study.terminal.progress import human_seconds

    opens = "all are measured on test"
    if work.openings:
        opens = f"opens the sealed test split, once for each of {counted(work.openings, 'model')}"
    if work.ends:
        opens = f"then more where they decide, {work.ends}; opens test once for each model"
    rows = {"candidate": work.candidates, "default": work.defaults}
    count = sum(map(len, rows.values()))
    if not count:
        return f"nothing is retrained; {opens}"
    models = " + ".join(counted(len(names), role) for role, names in rows.items() if names)
    line = f"({models})" if "+" in models else models
    line += f" x {counted(work.seeds, 'seed')}"
    line += f" = {counted(count * work.seeds, 'training')}{' first' * bool(work.ends)}"
    if work.trainings < count * work.seeds:
        line += f", {work.trainings or 'none'} left"
    if work.usual is not None:
        line += f", usually about {work.usual} in all"
    if work.trainings and work.seconds:
        at_once = min(slots or 1, work.trainings)
        line += f", about {human_seconds(max(1.0, work.seconds / at_once))} of training"
        if slots is not None:
            line += f", {at_once} at once"
    return f"{line}; {opens}"


def _print_work(work: Work, slots: int | None, as_json: bool) -> None:
    """What --dry-run prints beside the line."""
    if as_json:
        print_json({**asdict(work), "at_once": slots and min(slots, work.trainings)})
        return
    for role, names in (("candidates", work.candidates), ("defaults", work.defaults)):
        if names:
            console.say(f"{role}: {', '.join(names)}")


def _sizes(found: Confirmation) -> Sizes:
    """Floors and shrinkage of the objectives, and both ways of what a temperature changes."""
    from study.answer.sizes import sizes_of

    objectives = [objective.metric for objective in found.study.spec.objectives]
    floored = list(objectives)
    for metric in _both_ways(found.search):
        floored += [as_served(metric, RAW), as_served(metric, TEMPERATURE)]
    return sizes_of(found, list(dict.fromkeys(floored)), objectives)


def _both_ways(search: StudyFolder) -> list[str]:
    """The objectives that a temperature changes, without `ts_`; ECE if there is none."""
    names = [
        plain_name(one.metric) for one in search.objectives if changes_with_temperature(one.metric)
    ]
    return list(dict.fromkeys(names or ["ece"]))


def _json(found: Confirmation, sizes: Sizes) -> dict[str, object]:
    from study.answer.calibrated import on_test
    from study.answer.confirmation import default_texts, moments
    from study.answer.raced import how_it_ended

    texts = default_texts(found)
    rows = [
        {
            "label": row.label,
            "name": row.name,
            "role": row.role,
            "default": texts.get(row.label),
            "trial": row.candidate and row.candidate.name,
            "seeds": len(row.records),
            "search": row.candidate and row.candidate.metrics,
            "validation": _plain(
                moments([record.metrics for record in row.records]), sizes.validation.get(row.label)
            ),
            "test": _plain(moments(row.tests), sizes.test.get(row.label)),
            "shrinkage": sizes.shrinkage.get(row.label, {}),
            "shift": {name: _plain(moments(of)) for name, of in row.shifts.items()},
        }
        for row in found.rows
    ]
    spec = found.study.spec
    return {
        "name": spec.name,
        "confirms": spec.confirms,
        "objectives": [asdict(objective) for objective in spec.objectives],
        "rows": rows,
        "front_on_test": _front_on_test(found),
        "shrinkage_compares": sizes.compared or None,
        "race": how_it_ended(found),
        "calibrators": on_test(found) or None,
    }


def _plain(
    values: Mapping[str, Moments], floors: Mapping[str, Floor] | None = None
) -> dict[str, dict[str, object]]:
    plain: dict[str, dict[str, object]] = {}
    for name, value in values.items():
        plain[name] = {"mean": value.mean, "std": None if math.isnan(value.std) else value.std}
        if floors and name in floors:
            plain[name]["floor"] = floors[name]._asdict()
    return plain


def _front_on_test(found: Confirmation) -> list[str]:
    """The labels on the front of test values, without rows that validation sets aside."""
    from study.answer.choice import rows_that_count
    from study.answer.confirmation import front_on_test

    counted, _ = rows_that_count(found.search, found.rows)
    return front_on_test(counted, found.study.spec.objectives)


def _print(found: Confirmation, sizes: Sizes) -> None:
    from study.answer.calibrated import on_test
    from study.answer.confirmation import default_notes
    from study.answer.raced import how_it_ended
    from study.terminal.tables import calibrated_table
    from study.uncertainty.intervals import floor_note

    search = found.search
    spec = found.study.spec
    for objective in spec.objectives:
        columns = [
            *_with_floor("validation", objective.metric, sizes),
            *_with_floor("test", objective.metric, sizes),
        ]
        title = f"{in_words(objective.metric)} ({objective.direction})"
        if found.study.confirms_itself:
            made = Table(_first_column(found), ">n", *columns, title=title)
        else:
            made = Table(_first_column(found), ">n", ">search", *columns, ">shrinkage", title=title)
        for row in found.rows:
            made.add_row(*_row(found, row, objective.metric, sizes))
        console.print(made)
    _print_both(found, sizes)
    for name in dict.fromkeys(chain(*(row.shifts for row in found.rows))):
        _print_shift(found, name)
    if (calibrated := calibrated_table(on_test(found), IN_WORDS[search.serves])) is not None:
        console.print(calibrated)
    serves = search.serves
    other = other_than(serves)
    searched = "" if found.study.confirms_itself else f"; {searched_for(search.objectives)}"
    console.say(
        f"registered models are served {IN_WORDS[serves]} (`calstudy export {search.name} ..."
        f" --{other}`: {IN_WORDS[other]}){searched}"
    )
    names = {row.label: row.name for row in found.rows}
    front = [names[label] for label in _front_on_test(found)]
    console.say(f"Pareto front on test: {', '.join(front) or 'none yet'}")
    console.say(_legend(found.study))
    compared = None if found.study.confirms_itself else sizes.compared
    noted = floor_note() if sizes.floors else None
    said = [how_it_ended(found), *found.cautions, compared, noted, *sizes.problems]
    said += default_notes(found)
    for line in filter(None, said):
        console.say(line)
    console.say(f"study: {found.study.directory}")


def _first_column(found: Confirmation) -> str:
    return "method" if found.study.confirms_itself else "retrained"


def _legend(study: StudyFolder) -> str:
    """What the columns are. study: the confirmation."""
    recorded = study.recorded
    validation, test = (", ".join(recorded.sizes_of(split)) for split in ("validation", "test"))
    if study.confirms_itself:
        return (
            f"n: seeds. validation ({validation}) and test ({test}): mean and standard deviation"
            " over seeds. The study has no search: its own trials were measured, and nothing was"
            " selected."
        )
    return (
        f"n: seeds. search: one trial, selected on validation ({validation}). validation and test"
        f" ({test}): mean and standard deviation over fresh seeds. shrinkage: how much better the"
        " trial scored when it was selected than it scores on test. Nothing is selected on test."
    )


def _row(found: Confirmation, row: Confirmed, metric: str, sizes: Sizes) -> list[str]:
    from study.answer.confirmation import moments

    searched = f"{row.candidate.metrics[metric]:.4f}" if row.candidate else "-"
    validation = moments([one.metrics for one in row.records])
    lost = sizes.shrinkage.get(row.label, {}).get(metric)
    cells = [
        *_cells(row, metric, validation, sizes.validation, sizes),
        *_cells(row, metric, moments(row.tests), sizes.test, sizes),
    ]
    seeds = str(len(row.records))
    if found.study.confirms_itself:
        return [row.name, seeds, *cells]
    return [row.name, seeds, searched, *cells, "-" if lost is None else f"{lost:+.4f}"]


def _cells(
    row: Confirmed, metric: str, values: Mapping[str, Moments], floors: Floors, sizes: Sizes
) -> list[str]:
    """The cell of a value, and of its floor where there is such a column."""
    from study.uncertainty.forms import floor_text

    cells = [_figure(values.get(metric))]
    if sizes.has_floor(metric):
        floor = floors.get(row.label, {}).get(metric)
        cells.append("-" if floor is None else floor_text(floor))
    return cells


def _with_floor(heading: str, metric: str, sizes: Sizes) -> list[str]:
    """The heading of a column of values, and of its floors where there are any."""
    columns = [f">{heading}"]
    if sizes.has_floor(metric):
        columns.append(f">floor on {heading}")
    return columns


def _print_both(found: Confirmation, sizes: Sizes) -> None:
    """Print what a temperature changes on test, as trained and after it side by side."""
    from study.answer.confirmation import moments
    from trainables.metrics import describe

    search = found.search
    for metric in _both_ways(search):
        headings = []
        for serves, words in IN_WORDS.items():
            headings.append(f">{words}" + " (served)" * (serves == search.serves))
            if sizes.has_floor(as_served(metric, serves)):
                headings.append(f">floor {words}")
        made = Table(_first_column(found), *headings, title=f"{describe(metric).label} on test")
        for row in found.rows:
            values = moments(row.tests)
            cells = [row.name]
            for name in (as_served(metric, serves) for serves in IN_WORDS):
                cells += _cells(row, name, values, sizes.test, sizes)
            made.add_row(*cells)
        console.print(made)


def _print_shift(found: Confirmation, name: str) -> None:
    from study.answer.confirmation import moments
    from trainables.metrics import names

    rows = [(row.name, moments(row.shifts[name])) for row in found.rows if row.shifts.get(name)]
    shown = [metric for metric in rows[0][1] if metric in SHOWN_OF_SHIFT]
    named = (in_words(metric) if metric in names() else metric for metric in shown)
    headings = [f">{metric}" for metric in named]
    made = Table(_first_column(found), *headings, title=_of_shift(name, found))
    for label, values in rows:
        made.add_row(label, *(_figure(values.get(metric)) for metric in shown))
    console.print(made)


def _of_shift(name: str, found: Confirmation) -> str:
    title = f"shift: {name}"
    samples = [row.shift_samples[name] for row in found.rows if name in row.shift_samples]
    if samples:
        title += f", {samples[0]:,} samples"
    if dropped := max(row.shift_dropped.get(name, 0) for row in found.rows):
        title += f", {dropped:,} dropped: also in train or validation"
    return title


def _figure(value: Moments | None) -> str:
    if value is None:
        return "-"
    spread = "" if math.isnan(value.std) else f" ± {value.std:.4f}"
    return f"{value.mean:.4f}{spread}"
