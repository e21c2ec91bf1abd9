"""Which model to take, how sure that is, and what to do next: said in sentences, from the records of a study.

The terminal, the report page, MLflow's description and the model card show the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from study.analysis.ranking import Ranking, set_aside_line
from study.answer.choice import Choice, choose, is_finished, mean_of, rows_that_count
from study.confirmation.results import (
    BASELINE,
    DEFAULT,
    Confirmation,
    Confirmed,
    confirmation_of,
    default_texts,
)
from study.schema.objective import RAW, TEMPERATURE, as_served
from study.store.confirmed import RESTORE, missing_confirmation
from study.store.spending import not_begun
from study.store.study import Study
from study.store.trials import TrialRecord
from trainables.fields import FieldError
from trainables.metrics import describe

if TYPE_CHECKING:
    from study.uncertainty.intervals import Interval
    from study.uncertainty.methods import Measured

LEVEL = 0.95


@dataclass(frozen=True)
class Answer:
    """sentences: the answer, the first names the model. next: commands, each with what it does."""

    sentences: tuple[str, ...]
    next: tuple[tuple[str, str], ...]
    choice: Choice | None = None

    def to_plain(self) -> dict[str, Any]:
        """taken: the label of the confirmed row. trial: of the search, whose values it has. None: there is none."""
        choice = self.choice
        row = None if choice is None else choice.row
        trial = None if choice is None else choice.record if row is None else row.candidate
        return {
            "sentences": list(self.sentences),
            "next": [list(each) for each in self.next],
            "taken": None if row is None else row.label,
            "trial": None if trial is None else trial.name,
        }


def answer(study: Study, level: float = LEVEL) -> Answer:
    """What to take from a study, at its present state. Raises FieldError if a file it needs is missing or altered."""
    if study.confirms is not None:
        raise FieldError(
            study.name, f"confirms '{study.confirms}', whose answer covers both. Ask that one."
        )
    ranking, confirmation = Ranking(study, study.all_records()), confirmation_of(study)
    if (
        confirmation is not None
        and any(row.records for row in confirmation.rows)
        and is_finished(confirmation)
    ):
        return _confirmed(study, ranking, confirmation, level)
    if missing := missing_confirmation(study):
        return Answer((f"{missing}.", f"{RESTORE}: which model to take was decided there."), ())
    if not ranking.eligible:
        return _nothing(study, ranking)
    return _unconfirmed(study, ranking, confirmation, level)


def _nothing(study: Study, ranking: Ranking) -> Answer:
    look = (f"calstudy trials {study.name}", "lists every trial with its values")
    if ranking.set_aside:
        some = next(iter(ranking.set_aside.items()))
        sentences = [
            "No model can be recommended: no trial counts.",
            set_aside_line(ranking.set_aside),
        ]
        return Answer((*sentences, f"For example, {some[0]}: {some[1]}."), (look,))
    if _lacking(study, ranking):
        return Answer(("No trial is complete yet.",), (_resume(study, ranking),))
    return Answer(("No model can be recommended: no trial is complete.",), (look,))


# ---- before a confirmation -----------------------------------------------------------------------------------------


def _unconfirmed(
    study: Study, ranking: Ranking, confirmation: Confirmation | None, level: float
) -> Answer:
    from study.uncertainty.intervals import percent
    from study.uncertainty.recommended import recommended

    choice = Choice(study, recommended(ranking) or ranking.front[0])
    record, size = choice.record, study.recorded["sizes"]["validation"]
    values = _of_trial(study, record, level)
    count = len(ranking.eligible)
    others = f"of {count:,} trials, the one with the lowest NLL of those not significantly different from the knee"
    if record is not ranking.knee and ranking.knee is not None:
        others += f", {ranking.knee.name}"
    many = "the only trial that counts" if count == 1 else others
    sentences = [
        f"Take {record.name}{_values(record.params)}, {_served(study)}, for now: {many}.",
        f"{_values_text(study, values)} on {size:,} validation images of {_data(study)}, one seed ({percent(level)}"
        " intervals). The search selected it on these images, so it looks better than it is.",
        "Not known yet: its values on the sealed test images, and how much another seed changes them.",
        _with_the_other(
            study,
            record.metrics.get(_other_ece(study)),
            record.metrics.get(as_served("ece", study.serves)),
        ),
        *_asides(study, ranking),
    ]
    if confirmation is None:
        command = (
            f"calstudy confirm {study.name}",
            "retrains the front with fresh seeds and opens the test split",
        )
    else:
        command = (
            f"calstudy confirm {study.name}",
            "resumes the confirmation, which is not finished",
        )
    following = (_resume(study, ranking), command) if _lacking(study, ranking) else (command,)
    return Answer(tuple(filter(None, sentences)), following, choice)


def _of_trial(study: Study, record: TrialRecord, level: float) -> dict[str, Interval | float]:
    """Validation values of the objectives as served, with intervals where there are any."""
    from study.uncertainty.bootstrap import analyse

    names = [one.metric for one in study.served if one.metric in record.metrics]
    sure = analyse(study, [record], wanted=names, level=level).intervals[record.name]
    return {name: sure.get(name, record.metrics[name]) for name in names}


def _by_method(study: Study, ranking: Ranking) -> dict[str, list[TrialRecord]]:
    return {label: [one for one in ranking.records if one.label == label] for label in study.labels}


def _lacking(study: Study, ranking: Ranking) -> int:
    """How many trials of the search are not done."""
    return study.lacking(_by_method(study, ranking))


def _resume(study: Study, ranking: Ranking) -> tuple[str, str]:
    spent = not_begun(study, _by_method(study, ranking)) > 0
    return (
        "calstudy run SPEC",
        "resumes the search, once its budget is raised" if spent else "resumes the search",
    )


def _asides(study: Study, ranking: Ranking) -> list[str]:
    lacking = _lacking(study, ranking)
    found = (
        [f"The search is not finished: {lacking:,} trial{'s' * (lacking != 1)} not done yet."]
        if lacking
        else []
    )
    found += [line] if (line := set_aside_line(ranking.set_aside)) else []
    found += (
        [f"{study.serves_note[0].upper()}{study.serves_note[1:]}."] if study.serves_note else []
    )
    return found


# ---- after a confirmation ------------------------------------------------------------------------------------------


def _confirmed(study: Study, ranking: Ranking, confirmation: Confirmation, level: float) -> Answer:
    rows, aside = rows_that_count(study, confirmation.rows)
    if not rows:
        reasons = (f"{label}: {why}." for label, why in aside.items())
        command = f"calstudy confirm {study.name} --trial METHOD/NUMBER"
        none = "No model can be recommended: no confirmed model counts."
        return Answer((none, *reasons), ((command, "confirms another trial"),))
    from study.answer.networks import networks_on_test
    from study.uncertainty.intervals import percent

    choice = choose(study, None, confirmation)
    assert choice.row is not None
    networks, size = networks_on_test(confirmation), study.recorded["sizes"]["test"]
    mine, seeds = networks[choice.row.label], len(choice.row.records)
    texts, own_ece = default_texts(confirmation), as_served("ece", study.serves)
    sentences = [
        f"Take {_name(choice.row, texts)}, {_served(study)}.",
        f"{_values_text(study, _over_seeds(choice.row, mine, [one.metric for one in study.served], level))} on"
        f" {size:,} sealed test images of {_data(study)}, {seeds} fresh seed{'s' * (seeds != 1)} ({percent(level)}"
        " intervals).",
        _ties(choice, rows, texts, study),
        f"Set aside of those confirmed: {_listed(list(aside))}." if aside else "",
        *_against_the_baseline(study, choice.row, _baseline(confirmation), networks, level),
        _with_the_other(
            study, *(_over_validation(choice.row, name) for name in (_other_ece(study), own_ece))
        ),
        *_asides(study, ranking),
    ]
    following = (
        (f"calstudy export {study.name} --name {study.name}", "registers it"),
        (f"calstudy report {study.name}", "shows all results on one page"),
    )
    return Answer(tuple(filter(None, sentences)), following, choice)


def _over_seeds(
    row: Confirmed, networks: Sequence[Measured], names: Sequence[str], level: float
) -> dict[str, Interval | float]:
    """Test values of these metrics: means over seeds, with intervals where there are any."""
    from study.uncertainty.methods import mean_over_seeds

    sure = mean_over_seeds(networks, names, level=level)
    plain = {name: [test[name] for test in row.tests if name in test] for name in names}
    means = {name: sum(values) / len(values) for name, values in plain.items() if values}
    return {name: sure.get(name, means[name]) for name in names if name in means}


def _ties(choice: Choice, rows: Sequence[Confirmed], texts: Mapping[str, str], study: Study) -> str:
    """Which other confirmed models are as good, as far as validation tells."""
    if len(rows) < 2:
        return ""
    if choice.tied is None:
        return "Whether the other confirmed models differ from it is not known: each needs two seeds or more."
    size = study.recorded["sizes"]["validation"]
    if not choice.tied:
        return f"Every other confirmed model differs significantly from it on {size:,} validation images."
    tied = [_name(row, texts, short=True) for row in rows if row.label in choice.tied]
    few = _listed(tied if len(tied) <= 8 else [*tied[:7], f"{len(tied) - 7} more"])
    nll = {row.label: mean_of(row).metrics[as_served("nll", study.serves)] for row in rows}
    lowest = all(nll[choice.record.label] <= nll[label] for label in choice.tied)
    which = "of all these" if lowest else "of all these that no confirmed model beats in everything"
    verb = "do" if len(tied) > 1 else "does"
    return (
        f"{few} {verb} not differ significantly from it on {size:,} validation images; {which}, it has the lowest NLL"
        " as served."
    )


def _baseline(confirmation: Confirmation) -> Confirmed | None:
    """Cross-entropy's default; also where it was a candidate too."""
    names = {entry["label"]: entry["name"] for entry in confirmation.study.plain["methods"]}
    plain = [row for row in confirmation.rows if row.records and names[row.label] == BASELINE]
    return next(
        (row for row in plain if row.role == "baseline" or row.label.endswith(DEFAULT)), None
    )


def _against_the_baseline(
    study: Study,
    row: Confirmed,
    baseline: Confirmed | None,
    networks: Mapping[str, Sequence[Measured]],
    level: float,
) -> list[str]:
    """Cross-entropy's test values, and whether this model is better."""
    from study.uncertainty.methods import compare_methods

    if baseline is None or baseline is row:
        return []
    names = [one.metric for one in study.served]
    values = _over_seeds(baseline, networks[baseline.label], names, level)
    pair = {label: networks[label] for label in (row.label, baseline.label)}
    text = f"Cross-entropy's default has {_values_text(study, values, capital=False)}"
    if any(len(found) < 2 for found in pair.values()):
        return [f"{text}."]
    verdicts: dict[str, list[str]] = {"better": [], "worse": [], "tied": []}
    for name, methods in compare_methods(pair, names, level=level).items():
        _, low, high = methods.difference(row.label, baseline.label)
        larger = describe(name).better == "higher"
        word = "tied" if low <= 0 <= high else "better" if (low > 0) == larger else "worse"
        verdicts[word].append(label_of(name))
    said = [
        f"this model is {word} in {_listed(verdicts[word])}"
        for word in ("better", "worse")
        if verdicts[word]
    ]
    said += (
        [f"in {_listed(verdicts['tied'])} the two do not differ significantly"]
        if verdicts["tied"]
        else []
    )
    return [f"{text}: {'; '.join(said)}."] if said else [f"{text}."]


def _other_ece(study: Study) -> str:
    """ECE as the model would have it if it were served the other way."""
    return as_served("ece", RAW if study.serves == TEMPERATURE else TEMPERATURE)


def _over_validation(row: Confirmed, name: str) -> float | None:
    values = [record.metrics[name] for record in row.records if name in record.metrics]
    return sum(values) / len(values) if values else None


def _with_the_other(study: Study, other: float | None, own: float | None) -> str:
    """What ECE would be if it were served the other way; on validation, since the test split must not decide."""
    if other is None or own is None:
        return ""
    option = RAW if study.serves == TEMPERATURE else TEMPERATURE
    what = "After a temperature" if option == TEMPERATURE else "As trained"
    command = f"calstudy export {study.name} --name {study.name} --{option}"
    return f"{what} it would have ECE {other:.4f} instead of {own:.4f} on validation (`{command}`)."


# ---- words ---------------------------------------------------------------------------------------------------------


def _name(row: Confirmed, texts: Mapping[str, str], short: bool = False) -> str:
    """`focal/0007 (gamma 2.1)`, or `focal_default (published default)`."""
    if row.candidate is not None:
        return row.candidate.name + ("" if short else _values(row.candidate.params))
    return row.label if short or row.label not in texts else f"{row.label} ({texts[row.label]})"


def _values(params: Mapping[str, Any]) -> str:
    plain = {path.removeprefix("method."): value for path, value in params.items()}
    shown = (
        f"{path} {value:.3g}" if isinstance(value, float) else f"{path} {value}"
        for path, value in plain.items()
    )
    return f" ({', '.join(shown)})" if params else ""


def _served(study: Study) -> str:
    return "with its temperature" if study.serves == TEMPERATURE else "as trained"


def _values_text(study: Study, values: Mapping[str, Interval | float], capital: bool = True) -> str:
    text = _listed([f"{label_of(name)} {_figure(value)}" for name, value in values.items()])
    return text[0].upper() + text[1:] if capital else text


def label_of(metric: str) -> str:
    """The metric in words, without saying whether it is after a temperature."""
    return describe(metric).label


def _figure(value: Interval | float) -> str:
    if isinstance(value, float):
        return f"{value:.4f}"
    return f"{value.estimate:.4f} [{value.low:.4f}, {value.high:.4f}]"


def _listed(words: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def _data(study: Study) -> str:
    """`digits`, or the file name of a data set with a path."""
    data = study.plain["data"]
    plain: Mapping[str, Any] = data if isinstance(data, Mapping) else {"name": data}
    return Path(plain["path"]).name if plain.get("path") else str(plain["name"])
