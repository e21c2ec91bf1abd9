"""The Pareto front as text, figure or CSV, with its uncertainty; two trials compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from study.terminal.console import FEWEST_RESAMPLES, console, json_option, storage_option

if TYPE_CHECKING:
    from study.store.study import Study
    from study.store.trials import TrialRecord
    from study.uncertainty.bootstrap import Analysis

SHARE = (
    "share: fraction of bootstrap resamples in which the trial is on the front; not the probability that it truly is."
    " Calibration error intervals start at 0 unless perfect calibration is rejected at 5%. See docs/uncertainty.md."
)


@click.command()
@click.argument("study")
@click.option("--where", metavar="CONDITIONS", help='Only trials that satisfy these, such as "accuracy>=0.95".')
@click.option("--figure", type=click.Path(path_type=Path), metavar="F", help="Draw the front: .png, .pdf or .svg.")
@click.option("--csv", "csv_file", type=click.Path(path_type=Path), metavar="F", help="Write the front as CSV.")
@click.option(
    "--bootstrap",
    type=click.IntRange(FEWEST_RESAMPLES, 10_000),
    metavar="N",
    help="Bootstrap resamples (1000 is enough) for 95% intervals and shares: how often a trial is on the front.",
)
@click.option("--compare", nargs=2, metavar="A B", help="Compare two trials: focal/0007 mbls/0003.")
@storage_option
@json_option
def pareto(
    study: str,
    where: str | None,
    figure: Path | None,
    csv_file: Path | None,
    bootstrap: int | None,
    compare: tuple[str, str] | None,
    storage: str | None,
    as_json: bool,
) -> None:
    """List the trials on the Pareto front, with knee and hypervolume.

    A trial is on the front if no other is at least as good in every objective and better in one; the knee is the best
    compromise. Values are on validation, which the search selects on: the best of many trials looks better than it is.
    """
    from study.analysis.pareto import front, hypervolume, knee, write_front_csv
    from study.analysis.selection import parse_where, satisfies
    from study.schema.objective import epoch_note
    from study.store.study import open_study
    from study.terminal.tables import front_table

    opened = open_study(study, storage)
    if compare is not None:
        _compare(opened, compare, bootstrap, as_json)
        return
    objectives = opened.objectives
    conditions = parse_where(where) if where else []
    candidates = [record for record in opened.all_records() if satisfies(record, conditions)]
    found = front(candidates, objectives)
    chosen = knee(found, objectives)
    volume = hypervolume(found, objectives, len(opened.recorded["classes"]))
    analysis = None if bootstrap is None else _analysis(opened, candidates, bootstrap)
    sure = {record.name: _uncertainty(record, analysis) for record in found if analysis is not None}
    if figure is not None:
        from study.report.front_figure import front_figure

        front_figure(candidates, objectives, opened.name, figure, opened.recorded["sizes"]["validation"], analysis)
    if csv_file is not None:
        write_front_csv(found, csv_file, {name: _columns(values) for name, values in sure.items()})
    if as_json:
        rows = [_front_row(record) | sure.get(record.name, {}) for record in found]
        knee_row = None if chosen is None else {"method": chosen.label, "number": chosen.number}
        named = [{"metric": objective.metric, "direction": objective.direction} for objective in objectives]
        resamples = {} if bootstrap is None else {"resamples": bootstrap}
        whole = {"objectives": named, "front": rows, "knee": knee_row, "hypervolume": volume, **resamples}
        click.echo(json.dumps(whole))
        return
    if chosen is None:
        console.print("no complete trial" + (" satisfies the conditions." if where else " yet."))
        return
    console.print(front_table(found, objectives, analysis=analysis))
    size = opened.recorded["sizes"]["validation"]
    intervals = "values without intervals" if bootstrap is None else f"95% intervals from {bootstrap:,} resamples"
    console.print(
        f"knee: {chosen.name} (best compromise); hypervolume {volume:.4f}; {size} validation samples, {intervals}",
        soft_wrap=True,
    )
    if note := epoch_note(opened.plain.get("result", "last")):
        console.print(f"{note}.", soft_wrap=True)
    if bootstrap is not None:
        console.print(SHARE, soft_wrap=True)
    for written in (figure, csv_file):
        if written is not None:
            console.print(f"wrote {written}", soft_wrap=True)


def _front_row(record: TrialRecord) -> dict[str, Any]:
    return {
        "method": record.label,
        "number": record.number,
        "params": record.params,
        "validation": record.metrics,
        "samples": record.samples,
    }


def _analysis(study: Study, candidates: list[TrialRecord], resamples: int) -> Analysis:
    from study.uncertainty.bootstrap import analyse_front

    return analyse_front(study, {"": candidates}, resamples)


def _uncertainty(record: TrialRecord, analysis: Analysis) -> dict[str, Any]:
    found = analysis.intervals[record.name]
    intervals = {name: {"low": one.low, "high": one.high} for name, one in found.items()}
    return {"intervals": intervals, "share_on_front": analysis.shares.get(record.name)}


def _columns(values: dict[str, Any]) -> dict[str, Any]:
    """The intervals of a trial as CSV columns: ece_low, ece_high."""
    ends = {f"{name}_{end}": one[end] for name, one in values["intervals"].items() for end in ("low", "high")}
    return {**ends, "share_on_front": values["share_on_front"]}


def _compare(study: Study, names: tuple[str, str], resamples: int | None, as_json: bool) -> None:
    from study.store.trials import trial_named
    from study.terminal.tables import differences_table
    from study.uncertainty.bootstrap import RESAMPLES, compare

    resamples = resamples or RESAMPLES
    one, other = (trial_named(study.all_records(), name, "compare") for name in names)
    found = compare(study, one, other, resamples)
    if as_json:
        metrics = {name: difference._asdict() for name, difference in found.items()}
        click.echo(json.dumps({"one": one.name, "other": other.name, "resamples": resamples, "metrics": metrics}))
        return
    console.print(differences_table(found, one.name, other.name))
    size = study.recorded["sizes"]["validation"]
    console.print(
        f"{size} validation samples, the same {resamples:,} resamples for both. better: the 95% interval excludes 0;"
        " for equal trials this happens for one metric in twenty. See docs/uncertainty.md.",
        soft_wrap=True,
    )
