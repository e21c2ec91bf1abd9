"""Select the trial to register, by validation alone: among the confirmed trials if there are any."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial

from study.analysis.pareto import front
from study.analysis.ranking import Ranking, Reasons, rules_of, served_with_nll, set_aside_line
from study.analysis.selection import pick
from study.confirmation.results import Confirmation, Confirmed, confirmation_of, moments, search_of
from study.schema.objective import Objective, as_served
from study.store.confirmed import RESTORE, missing_confirmation
from study.store.study import Study
from study.store.trials import TrialRecord
from trainables.fields import FieldError
from trainables.metrics import describe


@dataclass(frozen=True)
class Choice:
    """The trial to register and its study: the search, or its confirmation, where it is a seed of `row`.

    tied: labels of the confirmed rows not significantly different from it on validation; None: not tested.
    """

    study: Study
    record: TrialRecord
    row: Confirmed | None = None
    confirmation: Confirmation | None = None
    tied: tuple[str, ...] | None = None


def choose(study: Study, rule: str | None = None, found: Confirmation | None = None) -> Choice:
    """The trial that the rule selects, by validation values as served. Raises FieldError at `pick`.

    In a confirmed study the rule selects among the retrained trials, by means over fresh seeds, and then takes the
    median seed: the best one would look better than it is. An unfinished confirmation is refused: which rows it has
    depends on when it stopped. Trials and rows that are set aside are never selected.

    rule: None takes the trial or row with the lowest NLL, of those not significantly different from the knee that no
    other beats in every served objective and NLL. found: the study's confirmation, if already read.
    """
    if study.confirms is not None:
        problem = (
            f"{study.name} confirms '{study.confirms}'; use --pick on '{study.confirms}' instead."
        )
        raise FieldError("pick", problem)
    confirmation = found or confirmation_of(study)
    if confirmation is not None and not is_finished(confirmation):
        problem = f"{confirmation.study.name} is not finished; resume it with `calstudy confirm {study.name}`."
        raise FieldError("pick", f"{problem} (--trial can export a single trial now.)")
    if confirmation is None and (missing := missing_confirmation(study)):
        problem = f"{missing}. {RESTORE}: which model to take was decided there."
        raise FieldError("pick", f"{problem} (--trial can export a single trial now.)")
    rows = [row for row in confirmation.rows if row.records] if confirmation is not None else []
    if confirmation is None or not rows:
        from study.uncertainty.recommended import recommended

        ranking = Ranking(study, study.all_records())
        _refuse_none(ranking.eligible, ranking.set_aside)
        selected = recommended(ranking) if rule is None else None
        picked = selected or pick(
            ranking.eligible, study.served, rule or "knee", partial(_not_worse, ranking)
        )
        return Choice(study, picked)
    counted, aside = rows_that_count(study, rows)
    _refuse_none(counted, aside)
    means = [mean_of(row) for row in counted]
    chosen = pick(
        means, study.served, rule or "knee", partial(_tied_over_seeds, confirmation.study, counted)
    )
    tied = None
    if rule is None:
        chosen, tied = _of_the_tied(study, confirmation, counted, means, chosen)
    (row,) = (row for row in counted if row.label == chosen.label)
    return Choice(
        confirmation.study, median_seed(row.records, study.served[0]), row, confirmation, tied
    )


def rows_that_count(study: Study, rows: Sequence[Confirmed]) -> tuple[list[Confirmed], Reasons]:
    """The rows that are not set aside by their means over seeds on validation; and why the others are, by label."""
    measured = [row for row in rows if row.records]
    rules = rules_of(study, [] if "majority" in study.recorded else study.all_records())
    aside = rules.set_aside([mean_of(row) for row in measured])
    reasons = {row.label: aside[name] for row in measured if (name := mean_of(row).name) in aside}
    return [row for row in measured if row.label not in reasons], reasons


def _refuse_none(counted: Sequence[object], aside: Reasons) -> None:
    if not counted and aside:
        raise FieldError(
            "pick", f"no trial counts. {set_aside_line(aside)} `calstudy trials` lists them."
        )


def _of_the_tied(
    study: Study,
    confirmation: Confirmation,
    rows: Sequence[Confirmed],
    means: Sequence[TrialRecord],
    knee: TrialRecord,
) -> tuple[TrialRecord, tuple[str, ...] | None]:
    """The row to take of those not significantly different from the knee; and the labels of those like that row."""
    from study.answer.networks import networks_on_validation
    from study.uncertainty.bootstrap import resampled_names
    from study.uncertainty.methods import compare_methods

    nll = as_served("nll", study.serves)
    wanted = [one.metric for one in study.served if one.metric in resampled_names()]
    if len(rows) < 2:
        return knee, ()
    if any(len(row.records) < 2 for row in rows) or not wanted:
        return knee, None
    compared = compare_methods(networks_on_validation(confirmation.study, rows), wanted)
    like = set.intersection(
        {row.label for row in rows}, *(methods.tied(knee.label) for methods in compared.values())
    )
    together = like | {knee.label}
    unbeaten = front(means, served_with_nll(study))
    candidates = [mean for mean in unbeaten if mean.label in together] or [knee]
    chosen = min(candidates, key=lambda mean: (mean.metrics[nll], mean.label))
    like = set.intersection(
        {row.label for row in rows}, *(each.tied(chosen.label) for each in compared.values())
    )
    return chosen, tuple(sorted(like - {chosen.label}))


def seed_of(study: Study, record: TrialRecord) -> Choice:
    """The choice of that trial; in a confirmation with the row it is a seed of, so that its card has test results."""
    if study.confirms is not None:
        confirmation = confirmation_of(search_of(study))
        for row in confirmation.rows if confirmation is not None else ():
            if row.label == record.label:
                return Choice(study, record, row, confirmation)
    return Choice(study, record)


def is_finished(confirmation: Confirmation) -> bool:
    """Whether every seed is trained and measured on test."""
    measured = all(len(row.tests) == len(row.records) for row in confirmation.rows)
    return measured and not confirmation.study.lacking(confirmation.study.records())


def mean_of(row: Confirmed) -> TrialRecord:
    """The row as one trial, with means over seeds of its validation metrics."""
    values = {
        name: value.mean
        for name, value in moments([record.metrics for record in row.records]).items()
    }
    return TrialRecord(row.label, 0, "complete", dict(row.records[0].params), values)


def median_seed(records: Sequence[TrialRecord], objective: Objective) -> TrialRecord:
    """The seed with the median value of the objective; the worse of two middle ones."""
    return sorted(
        records,
        key=lambda record: (objective.sign * record.metrics[objective.metric], record.number),
    )[len(records) // 2]


def _not_worse(ranking: Ranking, metric: str) -> Collection[str]:
    """The trials that count whose paired difference from the best has an interval that contains 0."""
    from study.uncertainty.bootstrap import differences_from

    _check_resampled(metric)
    finished = [record for record in ranking.eligible if metric in record.metrics]
    sign = describe(metric).sign
    best = min(
        finished, key=lambda record: (sign * record.metrics[metric], record.label, record.number)
    )
    found = differences_from(ranking.study, best, finished, metric)
    return {best.name, *(name for name, (low, high) in found.items() if low <= 0 <= high)}


def _tied_over_seeds(study: Study, rows: Sequence[Confirmed], metric: str) -> Collection[str]:
    """The rows not significantly different from the best mean: `study.uncertainty.methods`."""
    from study.answer.networks import networks_on_validation
    from study.uncertainty.methods import compare_methods

    _check_resampled(metric)
    if any(len(row.records) < 2 for row in rows):
        problem = f"{metric}~best needs two seeds per confirmed trial; add them with `calstudy confirm --seeds`."
        raise FieldError("pick", problem)
    methods = compare_methods(networks_on_validation(study, rows), [metric])[metric]
    best = min(
        methods.rows, key=lambda name: describe(metric).sign * methods.rows[name].values.mean()
    )
    return {mean_of(row).name for row in rows if row.label in {best, *methods.tied(best)}}


def _check_resampled(metric: str) -> None:
    from study.uncertainty.bootstrap import resampled_names

    if metric not in resampled_names():
        raise FieldError(
            "pick", f"{metric} has no interval; ~best works with {', '.join(resampled_names())}."
        )
