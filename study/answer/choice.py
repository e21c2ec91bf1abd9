"""Select the trial to register, by validation alone: among confirmed trials if there are any."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial

from study.analysis.ranking import Ranking, Reasons, excluded_line, rules_of
from study.analysis.rule import TakenTrial, decide, mean_trial
from study.analysis.selection import NotWorse, pick
from study.answer.confirmation import DEFAULT, Confirmation, Confirmed, Results
from study.answer.phrases import counted
from study.schema.objective import Objective
from study.store.confirmed import RESTORE
from study.store.study import StudyFolder
from study.store.trials import TrialRecord
from study.uncertainty.bootstrap import differences_from, resampled_names
from trainables.metrics import describe
from trainables.problems import FieldError


@dataclass(frozen=True)
class Choice:
    """The trial to register and its study: the search, or its confirmation, where it seeds `row`.

    decision: of the answer's rule; None where another rule selected it.
    """

    study: StudyFolder
    record: TrialRecord
    row: Confirmed | None = None
    confirmation: Confirmation | None = None
    decision: TakenTrial | None = None

    @property
    def names(self) -> dict[str, str | None]:
        """taken: the row's label. trial: of the search, with its values; None: a default's."""
        if self.row is None:
            return {"taken": None, "trial": self.record.name}
        trial = self.row.candidate
        return {"taken": self.row.label, "trial": None if trial is None else trial.name}


def choose(found: Results, rule: str | None = None) -> Choice:
    """The trial that the rule selects, by validation values as deployed. FieldError at `pick`.

    In a confirmed study the rule selects among the retrained trials, by means over fresh seeds, and
    then takes the median seed: the best one would look better than it is. An unfinished
    confirmation is refused: which rows it has depends on when it stopped. Trials and rows that are
    excluded are never selected.

    rule: None is the answer's, `study.analysis.rule`.
    """
    study = found.study
    refuse_confirmation(study)
    if waits := _unfinished(found):
        raise waits
    confirmation = found.confirmation
    if confirmation is None or not any(row.records for row in confirmation.rows):
        ranking = found.ranking
        not_worse = partial(_not_worse, ranking)
        record, decision = _selected(study, ranking.eligible, ranking.excluded, rule, not_worse)
        return Choice(study, record, decision=decision)
    counted, aside = rows_that_count(study, confirmation.rows)
    means = [mean_of(row) for row in counted]
    tied = partial(_tied_over_seeds, confirmation.study, counted)
    mean, decision = _selected(study, means, aside, rule, tied)
    (row,) = (row for row in counted if row.label == mean.label)
    record = median_seed(row.records, study.served[0])
    return Choice(confirmation.study, record, row, confirmation, decision)


def refuse_confirmation(study: StudyFolder) -> None:
    """Raise FieldError for a confirmation: its search selects the model to take."""
    if study.confirms is not None:
        raise FieldError(
            "pick",
            f"{study.name} confirms '{study.confirms}'",
            f"Use --pick on '{study.confirms}' instead.",
        )


def _unfinished(found: Results) -> FieldError | None:
    """Why the study has no answer yet; None where it has."""
    now = "(--trial can export a single trial now.)"
    confirmation = found.confirmation
    if confirmation is None:
        mend = f"{RESTORE}: which model to take was decided there. {now}"
        return FieldError("pick", found.missing, mend) if found.missing else None
    if confirmation.finished:
        return None
    mend = f"Resume it with `{confirmation.goes_on}`. {now}"
    lacks = "is not finished"
    if confirmation.study.confirms_itself:
        lacks = "has trials that are not measured on test"
    return FieldError("pick", f"{confirmation.study.name} {lacks}", mend)


def _selected(
    study: StudyFolder,
    records: Sequence[TrialRecord],
    aside: Reasons,
    rule: str | None,
    not_worse: NotWorse,
) -> tuple[TrialRecord, TakenTrial | None]:
    """The trial that the rule selects among those that count; for the answer's, its decision."""
    if not records and aside:
        raise FieldError(
            "pick",
            "no trial counts",
            f"{excluded_line(aside)} `{study.command('trials')}` lists them.",
        )
    if rule is not None:
        return pick(records, study.served, rule, not_worse), None
    decision = decide(study, records)
    if decision is None:
        names = ", ".join(one.metric for one in study.served)
        mend = "Name a rule, such as --pick knee, or a --trial."
        raise FieldError("pick", f"no trial that counts has {names}", mend)
    return decision.taken, decision


def rows_that_count(
    study: StudyFolder, rows: Sequence[Confirmed]
) -> tuple[list[Confirmed], Reasons]:
    """The rows that count, by means over seeds on validation; and why others do not, by label.

    A default is what the others are compared with: it counts, however far from the best it is. Of
    rows with equal networks only the first counts.
    """
    models = {row.networks: row for row in reversed(rows) if row.records}
    measured = [row for row in rows if models.get(row.networks) is row]
    rules = rules_of(study)
    means = {row.label: mean_of(row) for row in measured}
    violating = rules.violating([*means.values()])
    aside = rules.excluded([*means.values()])
    reasons = {}
    for row in measured:
        is_default = row.role in ("default", "baseline") or row.label.endswith(DEFAULT)
        why = violating if is_default else aside
        if reason := why.get(means[row.label].name):
            reasons[row.label] = reason
    return [row for row in measured if row.label not in reasons], reasons


def seed_of(confirmation: Confirmation, record: TrialRecord) -> Choice:
    """The choice of a confirmation's trial, with its row, so its card has test results."""
    for row in confirmation.rows:
        if row.label == record.label:
            return Choice(confirmation.study, record, row, confirmation)
    return Choice(confirmation.study, record)


def unfinished_lines(found: Results) -> list[str]:
    """A line for the search and the confirmation if not done: the answer may be another then."""
    lines = []
    if lacking := found.lacking:
        lines.append(not_finished(lacking))
    if found.confirmation is not None and not found.confirmation.finished:
        goes_on = found.confirmation.goes_on
        lines.append(f"The confirmation is not finished; `{goes_on}` resumes it.")
    return lines


def not_finished(lacking: int) -> str:
    return f"The search is not finished: {counted(lacking, 'trial')} not done yet."


def mean_of(row: Confirmed) -> TrialRecord:
    """The row as one trial, with means over seeds of its validation metrics."""
    return mean_trial(row.label, row.records)


def median_seed(records: Sequence[TrialRecord], objective: Objective) -> TrialRecord:
    """The seed with the median value of the objective; the worse of two middle ones."""

    def cost(record: TrialRecord) -> tuple[float, int]:
        return objective.sign * record.metrics[objective.metric], record.number

    return sorted(records, key=cost)[len(records) // 2]


def _not_worse(ranking: Ranking, metric: str) -> Collection[str]:
    """The trials that count whose paired difference from the best may be 0, by its interval."""
    _check_resampled(ranking.study, metric)
    finished = [record for record in ranking.eligible if metric in record.metrics]
    sign = describe(metric).sign
    best = min(
        finished, key=lambda record: (sign * record.metrics[metric], record.label, record.number)
    )
    found = differences_from(ranking.study, best, finished, metric)
    return {best.name, *(name for name, (_, low, high) in found.items() if low <= 0 <= high)}


def _tied_over_seeds(study: StudyFolder, rows: Sequence[Confirmed], metric: str) -> Collection[str]:
    """The rows not significantly different from the best mean: `study.uncertainty.methods`."""
    from study.answer.networks import networks_on_validation
    from study.uncertainty.methods import compare_methods

    _check_resampled(study, metric)
    if any(len(row.records) < 2 for row in rows):
        raise FieldError(
            "pick",
            f"{metric}~best needs two seeds per confirmed trial",
            "Add them with `calstudy confirm --seeds`.",
        )
    methods = compare_methods(networks_on_validation(study, rows), [metric])[metric]
    sign = describe(metric).sign
    best = min(methods.rows, key=lambda name: sign * methods.rows[name].values.mean())
    return {mean_of(row).name for row in rows if row.label in {best, *methods.tied(best)}}


def _check_resampled(study: StudyFolder, metric: str) -> None:
    names = resampled_names(study)
    if metric not in names:
        raise FieldError("pick", f"{metric} has no interval; ~best works with {', '.join(names)}")
