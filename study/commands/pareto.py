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
    from study.analysis.ranking import Ranking
    from study.store.study import Study
    from study.store.trials import TrialRecord
    from study.uncertainty.bootstrap import Analysis

SHARE = (
    "share: fraction of bootstrap resamples in which the trial is on the front; not the probability"
    " that it truly is. Calibration error intervals start at 0 unless perfect calibration is"
    " rejected at {}. {} See docs/uncertainty.md."
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
    help=(
        "Bootstrap resamples (1000 is enough) for intervals and shares: how often a trial is on the"
        " front."
    ),
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

    A trial is on the front if no other is at least as good in every objective and better in one;
    the knee is the best compromise. Values are on validation, which the search selects on: the best
    of many trials looks better than it is.
    """
    from study.analysis.pareto import front, hypervolume, write_front_csv
    from study.analysis.ranking import Ranking
    from study.analysis.selection import parse_where, satisfies
    from study.store.study import open_study
    from study.terminal.tables import front_table

    if bootstrap is None and compare is None and interval_is_given():
        raise click.UsageError("--interval is for --bootstrap N or --compare A B. Add one of them.")
    check_resamples(bootstrap or 0, level)
    opened = open_study(study, storage)
    if compare is not None:
        _compare(opened, compare, bootstrap, level, as_json)
        return
    objectives = opened.objectives
    conditions = parse_where(where) if where else []
    ranking = Ranking(opened, opened.records())
    candidates = [record for record in ranking.eligible if satisfies(record, conditions)]
    found = front(candidates, objectives)
    chosen = ranking.knee_among(candidates)
    volume = hypervolume(found, objectives, ranking.reference)
    analysis = None if bootstrap is None else _analysis(opened, candidates, bootstrap, level)
    sure = {record.name: _uncertainty(record, analysis) for record in found if analysis is not None}
    if figure is not None:
        from study.report.front_figure import front_figure

        size = opened.recorded.sizes["validation"]
        front_figure(
            candidates, objectives, opened.name, figure, size, analysis, chosen, ranking.set_aside
        )
    if csv_file is not None:
        write_front_csv(
            found, csv_file, {name: _columns(values, level) for name, values in sure.items()}
        )
    if as_json:
        rows = [_front_row(record) | sure.get(record.name, {}) for record in found]
        named = [{"metric": one.metric, "direction": one.direction} for one in objectives]
        whole: dict[str, Any] = {
            "objectives": named,
            "front": rows,
            "knee": chosen and {"method": chosen.label, "number": chosen.number},
            "hypervolume": volume,
        }
        if bootstrap is not None:
            whole |= {"resamples": bootstrap, "level": level}
        whole |= {
            "hypervolume_reference": ranking.reference_values(),
            "set_aside": ranking.set_aside,
        }
        click.echo(json.dumps(whole))
    elif chosen is None:
        console.say(_why_none(ranking))
    else:
        console.print(front_table(found, objectives, analysis=analysis))
        _print_values(opened, ranking, chosen, volume, analysis)
        if bootstrap is not None:
            from study.uncertainty.intervals import floor_note, percent, significance

            rejected = percent(significance(level))
            console.say(SHARE.format(rejected, floor_note(level)))
        for written in filter(None, (figure, csv_file)):
            console.say(f"wrote {written}")


def _why_none(ranking: Ranking) -> str:
    """Why there is no front."""
    from study.analysis.ranking import set_aside_line

    if ranking.eligible:
        return "no complete trial satisfies the conditions."
    aside = set_aside_line(ranking.set_aside)
    return f"no trial counts. {aside}" if aside else "no complete trial yet."


def _print_values(
    study: Study, ranking: Ranking, knee: TrialRecord, volume: float, analysis: Analysis | None
) -> None:
    from study.analysis.ranking import set_aside_line
    from study.schema.objective import epoch_note

    size = study.recorded.sizes["validation"]
    intervals = "values without intervals"
    if analysis is not None:
        intervals = f"{analysis.named} from {analysis.resamples:,} resamples"
    reference = ", ".join(
        f"{name} {value:.4g}" for name, value in ranking.reference_values().items()
    )
    served = ", ".join(f"{one.metric} {knee.metrics[one.metric]:.4f}" for one in study.served)
    console.say(f"knee: {knee.name} (a compromise as served: {served})")
    console.say(
        f"hypervolume {volume:.4g} better than {reference}; {size} validation samples, {intervals}"
    )
    for line in filter(None, [set_aside_line(ranking.set_aside), study.serves_note]):
        console.say(line)
    if note := epoch_note(study.plain.get("result", "last")):
        console.say(f"{note}.")


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

    return analyse_front(study, candidates, resamples, level)


def _uncertainty(record: TrialRecord, analysis: Analysis) -> dict[str, Any]:
    intervals = {name: one.ends() for name, one in analysis.intervals[record.name].items()}
    return {"intervals": intervals, "share_on_front": analysis.shares.get(record.name)}


def _columns(values: dict[str, Any], level: float) -> dict[str, Any]:
    """The intervals of a trial as CSV columns: ece_low, ece_high; of its floor: ece_floor_mean,
    ece_floor_low, ..."""
    intervals = values["intervals"]
    ends: dict[str, float] = {}
    for name, one in intervals.items():
        ends |= {f"{name}_low": one["low"], f"{name}_high": one["high"]}
    for name, one in intervals.items():
        ends |= {f"{name}_floor_{part}": value for part, value in one.get("floor", {}).items()}
    return {**ends, "interval_level": level, "share_on_front": values["share_on_front"]}


def _compare(
    study: Study, names: tuple[str, str], resamples: int | None, level: float, as_json: bool
) -> None:
    from study.terminal.tables import differences_table
    from study.uncertainty.bootstrap import RESAMPLES, compare
    from study.uncertainty.intervals import percent

    resamples = resamples or RESAMPLES
    check_resamples(resamples, level)
    trials = study.records()
    one, other = (trials.named(name, "compare") for name in names)
    found = compare(study, one, other, resamples, level=level)
    if as_json:
        metrics = {name: difference._asdict() for name, difference in found.items()}
        how = {"resamples": resamples, "level": level}
        click.echo(json.dumps({"one": one.name, "other": other.name, **how, "metrics": metrics}))
        return
    console.print(differences_table(study, found, one.name, other.name, level))
    size = study.recorded.sizes["validation"]
    console.say(
        f"{size} validation samples, the same {resamples:,} resamples for both. as good: the"
        " interval lies within what matters; better, worse: it excludes 0, which happens for"
        f" {percent(1 - level)} of metrics of equal trials; not told apart: it contains 0. See"
        " docs/uncertainty.md."
    )
    console.say(
        "The intervals are of these two trained networks, one seed each, not of their methods; the"
        " fresh seeds of `calstudy confirm` tell about methods."
    )
