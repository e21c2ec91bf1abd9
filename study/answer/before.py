"""The answer before a confirmation: of the search's trials, by validation alone."""

from __future__ import annotations

from collections.abc import Mapping

from study.analysis.left_out import mend_of
from study.answer.by_name import next_for
from study.answer.choice import Choice
from study.answer.compared import compared_metrics
from study.answer.confirmation import BASELINE, Results
from study.answer.explained import (
    asides,
    cautions_of,
    doubt,
    floors_text,
    lines_of,
    part,
    rule_text,
    temperature_part,
)
from study.answer.lost import all_lost, lost_lines, named, take
from study.answer.phrases import (
    counted,
    how_sure,
    on_split,
    served,
    values_line,
    values_text,
    words_text,
)
from study.answer.said import Answer, Model, Values
from study.answer.settings import method_of, settings_of, shown_settings
from study.answer.verdict import PLAIN, verdict
from study.store.confirmed import can_confirm_itself
from study.store.files import PREDICTIONS, lost_predictions, stored_predictions
from study.store.spending import not_begun
from study.store.study import StudyFolder
from study.store.trials import TrialRecord
from study.uncertainty.bootstrap import RESAMPLES, analyse, side_of
from study.uncertainty.resampling import draws_for
from study.uncertainty.words import level_of_each, word_for


def unconfirmed(found: Results, level: float) -> Answer:
    """The answer of a study with trials that count."""
    study = found.study
    taken = take(found)
    if taken is None:
        said, lost = all_lost(study, found.ranking.eligible)
        return Answer(said, (_confirms(found),), left_out=lost)
    record = taken.record
    choice = Choice(study, record, decision=taken.decision)
    default = _default(found)
    is_default = default is not None and (
        default.name == record.name or default.setting == record.setting
    )
    beside = None if is_default else default
    uncompared = lost_predictions(study, [beside] if beside else [])
    words = {}
    if beside is not None and not uncompared:
        words = _words_beside(study, record, beside, level)
    model = _model(study, record, level)
    default_model = None if beside is None or uncompared else _model(study, beside, level)
    noun = study.recorded.noun
    for_now = ", for now"
    if taken.better is not None:
        for_now += f" and without {taken.better.name}"
    where = f"the {study.recorded.sizes['validation']:,} validation {noun} it was selected on"
    why_not = _aside(found) if default is None else ""
    if beside is not None:
        why_not = study.recorded.too_few("validation")
        if uncompared:
            why_not = f"the predictions of {beside.name} are lost"
    code, about = verdict(words, is_default, why_not)
    lost_text = lost_lines(study, taken)
    cautions = [*filter(None, [" ".join(lost_text), *cautions_of(found), doubt(choice)])]
    whose = " and have predictions" if taken.lost else ""
    many = f"{counted(taken.count, 'trial')} that count{whose}"
    settings = shown_settings(record, model.settings)
    return Answer(
        lines_of(
            study,
            f"Take {record.name}{settings}, {served(study)}{for_now}.",
            values_line(study, model.validation, f"on {where}, one seed", "validation", level),
            about,
            cautions,
        ),
        tuple(_next(found, choice)),
        tuple(
            filter(
                None,
                [
                    part("How it was selected", rule_text(study, taken.decision, many)),
                    part("How sure", *_how_sure(found, model.validation, level)),
                    part(f"Beside {PLAIN}", *_beside(study, default_model, words, uncompared)),
                    temperature_part(found, choice, level, other=not taken.lost),
                    part("Left out", *asides(found)),
                    part("Cautions", *cautions),
                ],
            )
        ),
        choice,
        model,
        default_model,
        study.serves,
        code,
        words,
        named({**taken.lost, **uncompared}),
        about,
    )


def _model(study: StudyFolder, record: TrialRecord, level: float) -> Model:
    settings = settings_of(study, record)
    values = _of_trial(study, record, level)
    return Model(record.name, method_of(study, record.label), settings, values)


def _how_sure(found: Results, values: Values, level: float) -> list[str]:
    """What the values are worth, and what is not known yet."""
    study = found.study
    noun = study.recorded.noun
    unknown = f"Not known yet: its values on the sealed test {noun}"
    if not (can_confirm_itself(study) and study.planned > 1):
        unknown += ", and how much another seed changes them"
    sure = how_sure(study, "validation", level)
    return [
        f"Values are measured {on_split(study, 'validation')} ({sure}).",
        f"The model was selected on these {noun}, so it looks better than it is.",
        floors_text(values, noun),
        f"{unknown}.",
    ]


def _beside(
    study: StudyFolder,
    default: Model | None,
    words: Mapping[str, str],
    uncompared: Mapping[str, str],
) -> list[str]:
    """The words and values of cross-entropy's default, or why there are none."""
    for name, problem in uncompared.items():
        return [f"Not compared with {name}: its {PREDICTIONS} {problem}. {mend_of(study, [name])}"]
    if default is None:
        return []
    values = f"{default.name} has {values_text(default.validation)}."
    if not words:
        return [values]
    return [
        values,
        f"Beside it the model is {words_text(words)}. That compares two trained networks on these"
        f" {study.recorded.noun}: it does not allow for what another seed would change.",
    ]


def _next(found: Results, choice: Choice) -> list[tuple[str, str]]:
    """What to do next: first to end the search, then to confirm."""
    study = found.study
    following = [_confirms(found)]
    if study.given is not None and following[0][0] == study.command("confirm"):
        following = next_for(study, choice)
    if found.lacking:
        following.insert(0, resume(found))
    return following


def _confirms(found: Results) -> tuple[str, str]:
    does = "retrains the best with fresh seeds and opens the test split"
    if found.confirmation is not None:
        does = "resumes the confirmation, which is not finished"
    elif can_confirm_itself(found.study) and found.missing is None:
        does = "measures these trials on the test split, without training"
    return found.study.command("confirm"), does


def _default(found: Results) -> TrialRecord | None:
    """The first trial that counts with the settings or the predictions of cross-entropy's default;
    None for none."""
    ranking = found.ranking
    names = [ranking.stands_for.get(one.name, one.name) for one in _defaults(found)]
    return next((one for one in ranking.eligible if one.name in names), None)


def _defaults(found: Results) -> list[TrialRecord]:
    """The trials of cross-entropy's defaults, whether they count or not."""
    methods = found.study.plain["methods"]
    labels = [entry["label"] for entry in methods if entry["name"] == BASELINE]
    return [*filter(None, map(found.ranking.default_of, labels))]


def _aside(found: Results) -> str:
    """Why cross-entropy's default, which ended, is not compared; empty where there is none."""
    reasons = found.ranking.excluded
    names = [one.name for one in _defaults(found) if one.name in reasons]
    return f"its trial {names[0]} is excluded" if names else ""


def _words_beside(
    study: StudyFolder, record: TrialRecord, default: TrialRecord, level: float
) -> dict[str, str]:
    """The words for the trial beside cross-entropy's default, by metric.

    About two trained networks, by samples alone: one seed does not show what another would change.
    """
    if study.recorded.too_few("validation"):
        return {}
    wanted = compared_metrics(study)
    each = level_of_each(level, [*wanted])
    found = [stored_predictions(study, one) for one in (record, default)]
    draws = draws_for(found[0], RESAMPLES)
    model, other = (side_of([*wanted], one, draws) for one in found)
    return {
        name: word_for(model.less(other, name, each), name, matters)
        for name, matters in wanted.items()
        if name in model.values and name in other.values
    }


def _of_trial(study: StudyFolder, record: TrialRecord, level: float) -> Values:
    """Validation values of the objectives as deployed, with intervals where there are any."""
    names = [one.metric for one in study.served if one.metric in record.metrics]
    if study.recorded.too_few("validation"):
        return {name: record.metrics[name] for name in names}
    sure = analyse(study, [record], wanted=names, level=level).intervals[record.name]
    return {name: sure.get(name, record.metrics[name]) for name in names}


def resume(found: Results) -> tuple[str, str]:
    """The command that goes on with the search, and what it does."""
    does = "resumes the search"
    if not_begun(found.study, found.records) > 0:
        does += ", once its budget is raised"
    return found.study.goes_on, does
