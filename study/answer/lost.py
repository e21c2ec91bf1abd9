"""What an answer says of trials whose predictions are lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from study.analysis.left_out import are, mend_of, some
from study.analysis.pareto import front
from study.analysis.rule import TakenTrial, decide
from study.answer.confirmation import Results
from study.answer.phrases import counted, label_of, listed
from study.store.files import PREDICTIONS, lost_predictions
from study.store.study import StudyFolder
from study.store.trials import TrialRecord
from study.uncertainty.forms import number


@dataclass(frozen=True)
class Taken:
    """The trial that the rule takes of those whose predictions are there.

    count: how many these are. better: the one that it takes of all that count, where that is lost.
    lost: what is wrong with those that are, by name; `better` is the first.
    """

    record: TrialRecord
    decision: TakenTrial | None
    count: int
    better: TrialRecord | None = None
    lost: Mapping[str, str] = field(default_factory=dict)


def take(found: Results) -> Taken | None:
    """None where all predictions are lost. Others than the one to take are read only if that one
    is."""
    study = found.study
    eligible = found.ranking.eligible
    first, decision = _by_rule(study, eligible)
    if not lost_predictions(study, [first]):
        return Taken(first, decision, len(found.ranking.counted))
    lost = lost_predictions(study, eligible)
    kept = [record for record in eligible if record.name not in lost]
    if not kept:
        return None
    record, decision = _by_rule(study, kept)
    return Taken(record, decision, len(kept), first, {first.name: lost[first.name], **lost})


def _by_rule(
    study: StudyFolder, records: Sequence[TrialRecord]
) -> tuple[TrialRecord, TakenTrial | None]:
    decision = decide(study, records)
    if decision is None:
        return front(records, study.objectives)[0], None
    return decision.taken, decision


def lost_lines(study: StudyFolder, taken: Taken) -> list[str]:
    """That the answer leaves out a better trial, why, and the mend; empty where it does not."""
    better = taken.better
    if better is None:
        return []
    names = [one.metric for one in study.served if one.metric in better.metrics]
    values = listed([f"{label_of(name)} {number(better.metrics[name])}" for name in names])
    said = [
        f"This is not the answer of all trials: by its recorded values ({values}) {better.name}"
        f" would be the choice, but its {PREDICTIONS} {taken.lost[better.name]}. Without it there"
        " are no intervals, and it cannot be exported."
    ]
    if others := [name for name in taken.lost if name != better.name]:
        said.append(f"So {are(others)} {some(others)}.")
    said.append(mend_of(study, [better.name]))
    return said


def all_lost(
    study: StudyFolder, eligible: Sequence[TrialRecord]
) -> tuple[tuple[str, ...], dict[str, str]]:
    """The sentences where no trial that counts has predictions, and what is wrong with each."""
    lost = named(lost_predictions(study, eligible))
    first = next(iter(lost))
    none = "No model can be recommended: the predictions of all trials that count are lost."
    return (none, f"For example, {first}: its {lost[first]}.", mend_of(study, list(lost))), lost


def lost_seeds(study: StudyFolder, lost: Mapping[str, str]) -> str:
    """Which trials of a confirmation its intervals and comparisons leave out; empty for none."""
    if not lost:
        return ""
    by_reason: dict[str, list[str]] = {}
    for name, reason in lost.items():
        by_reason.setdefault(reason, []).append(name)
    each = "; ".join(f"{some(names)} ({reason})" for reason, names in by_reason.items())
    return (
        f"Left out of all intervals and comparisons here: {each} of {study.name}. The choice"
        " uses the recorded values of all seeds; with these files the comparisons may change."
        f" {mend_of(study, list(lost))}"
    )


def seeds_text(study: StudyFolder, seeds: int, readable: int) -> str:
    """`3 fresh seeds`; where files are lost, of how many of these the values are."""
    kind = "seed" if study.confirms_itself else "fresh seed"
    text = counted(seeds, kind)
    if readable == seeds:
        return text
    return f"{readable} of {text}" if readable else f"{text} as recorded, without intervals"


def named(lost: Mapping[str, str]) -> dict[str, str]:
    """What is wrong with their predictions.npz, with the file's name."""
    return {name: f"{PREDICTIONS} {problem}" for name, problem in lost.items()}
