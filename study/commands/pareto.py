"""The Pareto front as text, figure or CSV, with its uncertainty; two trials compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from study.terminal.console import (
    FEWEST_RESAMPLES,
    MOST_RESAMPLES,
    check_resamples,
    console,
    interval_is_given,
    interval_option,
    json_option,
    storage_option,
)

if TYPE_CHECKING:
    from study.store.study import Study
    from study.store.trials import TrialRecord
    from study.uncertainty.bootstrap import Analysis

SHARE = (
    "share: fraction of bootstrap resamples in which the trial is on the front; not the probability that it truly is."
    " Calibration error intervals start at 0 unless perfect calibration is rejected at {}. See docs/uncertainty.md."
)
FILE = click.Path(path_type=Path, dir_okay=False)


@click.command()
@click.argument("study")
@click.option(
    "--where",
    metavar="CONDITIONS",
    help='Only trials that satisfy these, such as "accuracy>=0.95".',
)
@click.option("--figure", type=FILE, metavar="F", help="Draw the front: .png, .pdf or .svg.")
@click.option("--csv", "csv_file", type=FILE, metavar="F", help="Write the front as CSV.")
@click.option(
    "--bootstrap",
    type=click.IntRange(FEWEST_RESAMPLES, MOST_RESAMPLES),
    metavar="N",
    help="Bootstrap resamples (1000 is enough) for intervals and shares: how often a trial is on the front.",
)
@click.option("--compare", nargs=2, metavar="A B", help="Compare two trials: focal/0007 mbls/0003.")
@interval_option
@storage_option
@json_option
def pareto(
    study: str,
    where: str | None,
    figure: Path | None,
    csv_file: Path | None,
    bootstrap: int | None,
    compare: tuple[str, str] | None,
    level: float,
    storage: str | None,
    as_json: bool,
) -> None:
    """List the trials on the Pareto front, with knee and hypervolume.

    A trial is on the front if no other is at least as good in every objective and better in one; the knee is the best
    compromise. Values are on validation, which the search selects on: the best of many trials looks better than it is.
    """
    from study.analysis.pareto import front, hypervolume, write_front_csv
    from study.analysis.ranking import Ranking, set_aside_line
    from study.analysis.selection import parse_where, satisfies
    from study.schema.objective import epoch_note
    from study.store.study import open_study
    from study.terminal.tables import front_table

    if bootstrap is None and compare is None and interval_is_given():
        raise click.UsageError("--interval is for --bootstrap N or --compare A B; add one of them.")
    check_resamples(bootstrap or 0, level)
    opened = open_study(study, storage)
    if compare is not None:
        _compare(opened, compare, bootstrap, level, as_json)
        return
    objectives = opened.objectives
    conditions = parse_where(where) if where else []
    ranking = Ranking(opened, opened.all_records())
    candidates = [record for record in ranking.eligible if satisfies(record, conditions)]
    found = front(candidates, objectives)
    chosen = ranking.knee_among(candidates)
    volume = hypervolume(found, objectives, ranking.reference)
    analysis = None if bootstrap is None else _analysis(opened, candidates, bootstrap, level)
    sure = {record.name: _uncertainty(record, analysis) for record in found if analysis is not None}
    if figure is not None:
        from study.report.front_figure import front_figure

        size = opened.recorded["sizes"]["validation"]
        front_figure(
            candidates, objectives, opened.name, figure, size, analysis, chosen, ranking.set_aside
        )
    if csv_file is not None:
        write_front_csv(
            found, csv_file, {name: _columns(values, level) for name, values in sure.items()}
        )
    if as_json:
        rows = [_front_row(record) | sure.get(record.name, {}) for record in found]
        knee_row = None if chosen is None else {"method": chosen.label, "number": chosen.number}
        named = [
            {"metric": objective.metric, "direction": objective.direction}
            for objective in objectives
        ]
        how = {} if bootstrap is None else {"resamples": bootstrap, "level": level}
        whole: dict[str, Any] = {
            "objectives": named,
            "front": rows,
            "knee": knee_row,
            "hypervolume": volume,
            **how,
        }
        whole |= {
            "hypervolume_reference": ranking.reference_values(),
            "set_aside": ranking.set_aside,
        }
        click.echo(json.dumps(whole))
        return
    if chosen is None:
        none = "no complete trial" + (" satisfies the conditions." if ranking.eligible else " yet.")
        aside = set_aside_line(ranking.set_aside)
        console.print(
            f"no trial counts. {aside}" if aside and not ranking.eligible else none, soft_wrap=True
        )
        return
    console.print(front_table(found, objectives, analysis=analysis))
    size = opened.recorded["sizes"]["validation"]
    intervals = (
        "values without intervals"
        if analysis is None
        else f"{analysis.named} from {bootstrap:,} resamples"
    )
    reference = ", ".join(
        f"{name} {value:.4g}" for name, value in ranking.reference_values().items()
    )
    served = ", ".join(f"{one.metric} {chosen.metrics[one.metric]:.4f}" for one in opened.served)
    console.print(f"knee: {chosen.name} (a compromise as served: {served})", soft_wrap=True)
    console.print(
        f"hypervolume {volume:.4g} better than {reference}; {size} validation samples, {intervals}",
        soft_wrap=True,
    )
    for line in filter(None, [set_aside_line(ranking.set_aside), opened.serves_note]):
        console.print(line, soft_wrap=True)
    if note := epoch_note(opened.plain.get("result", "last")):
        console.print(f"{note}.", soft_wrap=True)
    if bootstrap is not None:
        from study.uncertainty.intervals import percent, significance

        console.print(SHARE.format(percent(significance(level))), soft_wrap=True)
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


def _analysis(
    study: Study, candidates: list[TrialRecord], resamples: int, level: float
) -> Analysis:
    from study.uncertainty.bootstrap import analyse_front

    return analyse_front(study, {"": candidates}, resamples, level)


def _uncertainty(record: TrialRecord, analysis: Analysis) -> dict[str, Any]:
    found = analysis.intervals[record.name]
    intervals = {name: {"low": one.low, "high": one.high} for name, one in found.items()}
    return {"intervals": intervals, "share_on_front": analysis.shares.get(record.name)}


def _columns(values: dict[str, Any], level: float) -> dict[str, Any]:
    """The intervals of a trial as CSV columns: ece_low, ece_high."""
    ends = {
        f"{name}_{end}": one[end]
        for name, one in values["intervals"].items()
        for end in ("low", "high")
    }
    return {**ends, "interval_level": level, "share_on_front": values["share_on_front"]}


def _compare(
    study: Study, names: tuple[str, str], resamples: int | None, level: float, as_json: bool
) -> None:
    from study.store.trials import trial_named
    from study.terminal.tables import differences_table
    from study.uncertainty.bootstrap import RESAMPLES, compare
    from study.uncertainty.intervals import percent

    resamples = resamples or RESAMPLES
    check_resamples(resamples, level)
    one, other = (trial_named(study.all_records(), name, "compare") for name in names)
    found = compare(study, one, other, resamples, level=level)
    if as_json:
        metrics = {name: difference._asdict() for name, difference in found.items()}
        how = {"resamples": resamples, "level": level}
        click.echo(json.dumps({"one": one.name, "other": other.name, **how, "metrics": metrics}))
        return
    console.print(differences_table(found, one.name, other.name, level))
    size = study.recorded["sizes"]["validation"]
    console.print(
        f"{size} validation samples, the same {resamples:,} resamples for both. better: the {percent(level)} interval"
        f" excludes 0; for equal trials this happens for {percent(1 - level)} of metrics. See docs/uncertainty.md.",
        soft_wrap=True,
    )
    console.print(
        "The intervals are of these two trained networks, one seed each, not of their methods; the fresh seeds of"
        " `calstudy confirm` tell about methods.",
        soft_wrap=True,
    )
