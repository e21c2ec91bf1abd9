"""The Pareto front as text, figure or CSV, with its uncertainty; two trials compared."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from study.terminal.console import (
    FEWEST_RESAMPLES,
    MOST_RESAMPLES,
    check_resamples,
    console,
    interval_is_given,
    interval_option,
    json_option,
    objectives_option,
    plain_head,
    print_json,
    say_afterwards,
    storage_option,
)

if TYPE_CHECKING:
    from study.analysis.left_out import LeftOut
    from study.analysis.ranking import Ranking
    from study.store.study import StudyFolder
    from study.store.trials import TrialRecord
    from study.uncertainty.bootstrap import Analysis
    from trainables.plain import Value

SHARE = (
    "share: fraction of bootstrap resamples in which the trial is on the front; not the probability"
    " that it truly is. Intervals of calibration errors start at 0 where the model may be perfectly"
    " calibrated. {} See docs/why/how-certain.md."
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
@objectives_option
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
    objectives: str | None,
    level: float,
    storage: str | None,
    as_json: bool,
) -> None:
    """List the trials on the Pareto front, with knee and hypervolume.

    A trial is on the front if no other is at least as good in every objective and better in one;
    the knee is the best compromise. Values are on validation, which the search selects on: the best
    of many trials looks better than it is.

    --objectives accuracy,nll: the front of other metrics than the study searched; its constraints
    stay.
    """
    from study.analysis.pareto import write_front_csv
    from study.store.study import open_study
    from study.store.with_objectives import with_objectives

    if bootstrap is None and compare is None and interval_is_given():
        raise click.UsageError("--interval is for --bootstrap N or --compare A B. Add one of them.")
    check_resamples(bootstrap or 0, level)
    opened = with_objectives(open_study(study, storage), objectives)
    if compare is not None:
        _compare(opened, compare, bootstrap, level, as_json)
        return
    found = _found(opened, where, bootstrap, level)
    if figure is not None:
        from study.report.front_figure import draw_front, write_figure

        drawing = partial(
            draw_front,
            found.candidates,
            opened.objectives,
            opened.title,
            opened.recorded.shown("validation"),
            found.analysis,
            found.knee,
            found.ranking.excluded,
            word=_knee_word(opened),
        )
        write_figure(figure, drawing)
    if csv_file is not None:
        columns = {record.name: _columns(found, record) for record in found.front}
        write_front_csv(found.front, csv_file, columns)
    if as_json:
        print_json(_plain(found))
    elif found.knee is None:
        say_afterwards(opened)
        console.say(_why_none(found.ranking))
    else:
        _print(found, found.knee)
        for written in filter(None, (figure, csv_file)):
            console.say(f"wrote {written}")


@dataclass(frozen=True)
class Front:
    """The front of the trials that count and satisfy the conditions, which are `candidates`."""

    ranking: Ranking
    candidates: list[TrialRecord]
    front: list[TrialRecord]
    knee: TrialRecord | None
    volume: float
    analysis: Analysis | None  # None: without intervals
    left_out: LeftOut | None = None  # of the analysis

    @property
    def study(self) -> StudyFolder:
        return self.ranking.deployed


def _found(study: StudyFolder, where: str | None, bootstrap: int | None, level: float) -> Front:
    from study.analysis.pareto import front, hypervolume
    from study.analysis.ranking import Ranking
    from study.analysis.selection import parse_where, satisfies

    conditions = parse_where(where) if where else []
    ranking = Ranking(study, study.records())
    candidates = [record for record in ranking.eligible if satisfies(record, conditions)]
    members = front(candidates, study.objectives)
    knee = ranking.knee_among(candidates)
    volume = hypervolume(members, study.objectives, ranking.reference)
    found = Front(ranking, candidates, members, knee, volume, None)
    if bootstrap is None:
        return found
    from study.analysis.left_out import left_out_of
    from study.store.files import stored_predictions
    from study.uncertainty.bootstrap import analyse_front

    left_out = left_out_of(study, candidates, members)
    kept = left_out.kept(candidates)
    if candidates and not kept:
        stored_predictions(study, candidates[0])  # raises what is wrong
    if study.recorded.too_few("validation"):
        return replace(found, left_out=left_out)
    analysis = analyse_front(study, kept, bootstrap, level)
    return replace(found, analysis=analysis, left_out=left_out)


def _columns(found: Front, record: TrialRecord) -> dict[str, Value]:
    """The trials with equal predictions, and the intervals of a trial, as CSV columns: equals,
    ece_low, ece_high; of its floor: ece_floor_mean, ece_floor_low, ..."""
    analysis = found.analysis
    equals: dict[str, Value] = {"equals": " ".join(found.ranking.equals.get(record.name, ()))}
    if analysis is None:
        return equals
    intervals = analysis.intervals.get(record.name, {})
    columns = equals
    for name, one in intervals.items():
        columns |= {f"{name}_low": one.low, f"{name}_high": one.high}
    for name, one in intervals.items():
        floor = {} if one.floor is None else one.floor._asdict()
        columns |= {f"{name}_floor_{part}": value for part, value in floor.items()}
    share = analysis.shares.get(record.name)
    return {**columns, "interval_level": analysis.level, "share_on_front": share}


def _plain(found: Front) -> dict[str, object]:
    knee = found.knee
    plain: dict[str, object] = {
        **plain_head(found.study),
        "objectives": [asdict(objective) for objective in found.study.objectives],
        "front": [
            {
                **_row(record, found.analysis),
                "equals": list(found.ranking.equals.get(record.name, ())),
            }
            for record in found.front
        ],
        "knee": knee and {"method": knee.label, "number": knee.number},
        "hypervolume": found.volume,
    }
    if found.analysis is not None:
        plain |= {"resamples": found.analysis.resamples, "level": found.analysis.level}
    if found.left_out is not None:
        plain["left_out"] = found.left_out.to_plain()
        if few := found.study.recorded.too_few("validation"):
            plain["no_intervals"] = few
    return {
        **plain,
        "hypervolume_reference": found.ranking.reference_values(),
        "excluded": found.ranking.excluded,
        "set_aside": found.ranking.excluded,  # what it was called
    }


def _row(record: TrialRecord, analysis: Analysis | None) -> dict[str, object]:
    row: dict[str, object] = {
        "method": record.label,
        "number": record.number,
        "params": record.params,
        "validation": record.metrics,
        "samples": record.samples,
    }
    if analysis is None:
        return row
    intervals = analysis.intervals.get(record.name, {})
    ends = {name: one.ends() for name, one in intervals.items()}
    return {**row, "intervals": ends, "share_on_front": analysis.shares.get(record.name)}


def _why_none(ranking: Ranking) -> str:
    """Why there is no front."""
    from study.analysis.ranking import excluded_line

    if ranking.eligible:
        return "no complete trial satisfies the conditions."
    aside = excluded_line(ranking.excluded)
    return f"no trial counts. {aside}" if aside else "no complete trial yet."


def _print(found: Front, knee: TrialRecord) -> None:
    from study.analysis.ranking import excluded_line
    from study.answer.phrases import first_upper
    from study.schema.objective import epoch_note
    from study.store.extensions import mended_code
    from study.terminal.tables import front_table
    from study.uncertainty.intervals import floor_note, percent
    from study.uncertainty.without_intervals import no_intervals_of

    study = found.study
    ranking = found.ranking
    analysis = found.analysis
    say_afterwards(study)
    serves = ranking.deployed.serves
    console.print(
        front_table(found.front, study.objectives, None, analysis, ranking.equals, serves)
    )
    size = study.recorded.shown("validation")
    intervals = "values without intervals"
    if analysis is not None:
        of = "" if analysis.unit is None else f" of {analysis.unit}"
        intervals = f"{percent(analysis.level)} intervals from {analysis.resamples:,} resamples{of}"
    elif few := study.recorded.too_few("validation"):
        intervals += f": {few}"
    reference = ", ".join(
        f"{name} {value:.4g}" for name, value in ranking.reference_values().items()
    )
    served = ", ".join(f"{one.metric} {knee.metrics[one.metric]:.4f}" for one in study.served)
    what = _knee_word(study)
    how = "a compromise as deployed" if len(found.front) > 1 else "as deployed"
    console.say(f"{what}: {knee.name} ({how}: {served})")
    console.say(f"hypervolume {found.volume:.4g} better than {reference}; {size}, {intervals}")
    aside = [excluded_line(ranking.excluded), ranking.rules.no_test]
    said = [*(study.recorded.shared or ()), *mended_code(ranking.records)]
    cautions = [f"{caution}." for caution in said]
    serving = first_upper(f"{study.serves_note}.") if study.serves_note else ""
    for line in filter(None, [*aside, serving, *cautions]):
        console.say(line)
    if note := epoch_note(study.plain.get("result", "last")):
        console.say(f"{note}.")
    if found.left_out is not None:
        for line in found.left_out.lines:
            console.say(line)
    if analysis is not None:
        console.say(SHARE.format(floor_note(analysis.level)))
        if without := no_intervals_of(one.metric for one in study.objectives):
            console.say(f"{without}; so there are no shares either.")


def _knee_word(study: StudyFolder) -> str:
    return "knee" if len(study.objectives) > 1 else "best"


def _compare(
    study: StudyFolder, names: tuple[str, str], resamples: int | None, level: float, as_json: bool
) -> None:
    from study.store.files import equal_models
    from study.terminal.tables import differences_table
    from study.uncertainty.bootstrap import RESAMPLES, compare
    from study.uncertainty.intervals import percent
    from study.uncertainty.without_intervals import no_intervals_of
    from trainables.metrics import is_own
    from trainables.problems import FieldError

    resamples = resamples or RESAMPLES
    check_resamples(resamples, level)
    trials = study.records()
    one, other = (trials.named(name, "compare") for name in names)
    if one.name == other.name or equal_models(study, [one, other]):
        raise FieldError(
            "compare",
            f"{one.name} and {other.name} are one model: their predictions are equal",
            "Name another trial.",
        )
    found = compare(study, one, other, resamples, level=level)
    bare = {
        name: (one.metrics[name], other.metrics[name])
        for name in (each.metric for each in study.objectives)
        if name not in found and name in one.metrics and name in other.metrics
    }
    if as_json:
        values = {name: difference._asdict() for name, difference in found.items()}
        for name, (first, second) in bare.items():
            ends = {"low": None, "high": None}
            values[name] = {"one": first, "other": second, "estimate": first - second, **ends}
        how = {"resamples": resamples, "level": level}
        pair = {"one": one.name, "other": other.name}
        print_json({**plain_head(study), **pair, **how, "metrics": values})
        return
    say_afterwards(study)
    console.print(differences_table(study, found, one.name, other.name, level, bare))
    recorded = study.recorded
    console.say(
        f"{recorded.shown('validation')}, the same {resamples:,} resamples for both. as good: the"
        " interval lies within the smallest difference that matters; better, worse: it excludes 0,"
        f" which happens for {percent(1 - level)} of metrics of equal trials; undecided: it"
        " contains 0. See docs/why/how-certain.md."
    )
    console.say(
        "The intervals are of these two trained networks, one seed each, not of their methods; the"
        " fresh seeds of `calstudy confirm` compare methods."
    )
    own = [name for name in one.metrics if is_own(name)]
    if without := no_intervals_of([*(each.metric for each in study.objectives), *own]):
        console.say(f"{without}.")
