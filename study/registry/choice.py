"""Select the trial to register, by validation alone: among the confirmed trials if there are any."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from study.analysis.pareto import complete
from study.analysis.selection import pick
from study.confirmation.results import SUFFIX, Confirmation, Confirmed, confirmation_of, moments
from study.schema.objective import Objective
from study.store.files import stored_predictions
from study.store.study import Study, open_directory
from study.store.trials import TrialRecord
from trainables.fields import FieldError
from trainables.metrics import describe


@dataclass(frozen=True)
class Choice:
    """The trial to register and its study: the search, or its confirmation, where it is a seed of `row`."""

    study: Study
    record: TrialRecord
    row: Confirmed | None = None
    confirmation: Confirmation | None = None


def choose(study: Study, rule: str) -> Choice:
    """The trial that the rule selects, by validation values. Raises FieldError at `pick`.

    In a confirmed study the rule selects among the retrained trials, by means over fresh seeds, and then takes the
    median seed: the best one would look better than it is. An unfinished confirmation is refused: which rows it has
    depends on when it stopped.
    """
    if study.spec.confirms is not None:
        problem = f"{study.spec.name} confirms '{study.spec.confirms}'; use --pick on '{study.spec.confirms}' instead."
        raise FieldError("pick", problem)
    objectives, confirmation = study.spec.objectives, confirmation_of(study)
    if confirmation is not None and not _is_finished(confirmation):
        problem = (
            f"{confirmation.study.spec.name} is not finished; resume it with `calstudy confirm {study.spec.name}`."
        )
        raise FieldError("pick", f"{problem} (--trial can export a single trial now.)")
    rows = [row for row in confirmation.rows if row.records] if confirmation is not None else []
    if confirmation is None or not rows:
        records = study.all_records()
        return Choice(study, pick(records, objectives, rule, lambda metric: _not_worse(study, records, metric)))
    means = {row.label: _mean_of(row) for row in rows}
    chosen = pick(means.values(), objectives, rule, lambda metric: _tied_over_seeds(confirmation.study, rows, metric))
    (row,) = (row for row in rows if row.label == chosen.label)
    return Choice(confirmation.study, median_seed(row.records, objectives[0]), row, confirmation)


def seed_of(study: Study, record: TrialRecord) -> Choice:
    """The choice of that trial; in a confirmation with the row it is a seed of, so that its card has test results."""
    if study.spec.confirms is not None:
        search = study.directory.with_name(study.directory.name.removesuffix(SUFFIX))
        confirmation = confirmation_of(open_directory(search, search.name))
        for row in confirmation.rows if confirmation is not None else ():
            if row.label == record.label:
                return Choice(study, record, row, confirmation)
    return Choice(study, record)


def _is_finished(confirmation: Confirmation) -> bool:
    """Whether every seed is trained and measured on test."""
    measured = all(len(row.tests) == len(row.records) for row in confirmation.rows)
    return measured and not confirmation.study.lacking(confirmation.study.records())


def _mean_of(row: Confirmed) -> TrialRecord:
    values = {name: value.mean for name, value in moments([record.metrics for record in row.records]).items()}
    return TrialRecord(row.label, 0, "complete", dict(row.records[0].params), values)


def median_seed(records: Sequence[TrialRecord], objective: Objective) -> TrialRecord:
    """The seed with the median value of the objective; the worse of two middle ones."""
    return sorted(records, key=lambda record: (objective.sign * record.metrics[objective.metric], record.number))[
        len(records) // 2
    ]


def _not_worse(study: Study, records: Sequence[TrialRecord], metric: str) -> Collection[str]:
    """The complete trials whose paired difference from the best has an interval that contains 0."""
    from study.uncertainty.bootstrap import differences_from

    _check_resampled(metric)
    finished = [record for record in complete(records) if metric in record.metrics]
    sign = describe(metric).sign
    best = min(finished, key=lambda record: (sign * record.metrics[metric], record.label, record.number))
    found = differences_from(study, best, finished, metric)
    return {best.name, *(name for name, (low, high) in found.items() if low <= 0 <= high)}


def _tied_over_seeds(study: Study, rows: Sequence[Confirmed], metric: str) -> Collection[str]:
    """The rows not significantly different from the best mean: `study.uncertainty.methods`."""
    from study.uncertainty.methods import Measured, compare_methods

    _check_resampled(metric)
    if any(len(row.records) < 2 for row in rows):
        problem = f"{metric}~best needs two seeds per confirmed trial; add them with `calstudy confirm --seeds`."
        raise FieldError("pick", problem)
    networks = {_mean_of(row).name: [Measured(stored_predictions(study, one)) for one in row.records] for row in rows}
    methods = compare_methods(networks, [metric])[metric]
    best = min(methods.rows, key=lambda name: describe(metric).sign * methods.rows[name].values.mean())
    return {best, *methods.tied(best)}


def _check_resampled(metric: str) -> None:
    from study.uncertainty.bootstrap import resampled_names

    if metric not in resampled_names():
        raise FieldError("pick", f"{metric} has no interval; ~best works with {', '.join(resampled_names())}.")
