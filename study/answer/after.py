"""The answer after a confirmation: of the confirmed models, selected on validation, with their
values on test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from study.answer.by_name import export_command, named_export, served_otherwise
from study.answer.choice import Choice, choose, rows_that_count
from study.answer.compared import (
    compared_metrics,
    compared_with,
    group_text,
    methods_of,
    resolution_of,
)
from study.answer.confirmation import (
    BASELINE,
    DEFAULT,
    Confirmation,
    Confirmed,
    Results,
)
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
from study.answer.lost import lost_seeds, named, seeds_text
from study.answer.networks import networks_on_test, networks_on_validation
from study.answer.phrases import (
    how_sure,
    label_of,
    listed,
    on_split,
    served,
    values_line,
    values_text,
    words_text,
)
from study.answer.raced import how_it_ended
from study.answer.registering import registering
from study.answer.said import Answer, Model, Values
from study.answer.serving import other_way
from study.answer.settings import method_of, settings_of, shown_settings
from study.answer.verdict import PLAIN, verdict
from study.store.confirmed import matters_at_opening
from study.store.files import lost_predictions
from study.store.study import StudyFolder
from study.uncertainty.methods import compare_methods, mean_over_seeds
from study.uncertainty.words import AS_GOOD, BETTER, UNDECIDED, WORSE, level_of_each, word_for

if TYPE_CHECKING:
    from study.uncertainty.methods import NetworkPredictions

Networks = Mapping[str, Sequence["NetworkPredictions"]]  # of each row, by label
WORDS_IN_ORDER = (AS_GOOD, UNDECIDED, BETTER, f"{BETTER} and {WORSE}", WORSE)


def confirmed(found: Results, confirmation: Confirmation, level: float) -> Answer:
    """The answer of a study whose confirmation is finished."""
    study = found.study
    rows, aside = rows_that_count(study, confirmation.rows)
    names = {row.label: row.name for row in confirmation.rows}
    if not rows:
        reasons = (f"{names[label]}: {why}." for label, why in aside.items())
        command = study.command("confirm", trial="METHOD/NUMBER")
        none = "No model can be recommended: no confirmed model counts."
        return Answer((none, *reasons), ((command, "confirms another trial"),))
    choice = choose(found)
    row = choice.row
    assert row is not None
    lost: dict[str, str] = {}
    networks = networks_on_test(confirmation, lost)
    default = _default(confirmation)
    # A model is not compared with itself: those of equal networks are one.
    beside = None if default is None or default.networks == row.networks else default
    words = _words_beside(study, row, beside, networks, level)
    models = {
        each.label: _model(found, confirmation, each, networks[each.label], level)
        for each in (row, beside)
        if each is not None
    }
    model = models[row.label]
    others = _others(study, row, rows, confirmation, level, lost)
    # The seed to register; another's file decides no more than intervals.
    unreadable = lost_predictions(choice.study, [choice.record])
    lost |= named(unreadable)
    is_default = beside is None and default is not None
    code, about = verdict(words, is_default, _why_not(study, row, beside, networks))
    cautions = _cautions(found, choice, lost, registered=not unreadable)
    many = f"{len(rows)} confirmed models that count"
    noun = study.recorded.noun
    seeds = seeds_text(study, len(row.records), len(networks[row.label]))
    where = f"on {study.recorded.sizes['test']:,} sealed test {noun}, {seeds}"
    left = listed([names[label] for label in aside]) if aside else ""
    how = served(study) + ("; files of its confirmation are lost" if lost else "")
    parts = [
        part(
            "How it was selected",
            rule_text(study, choice.decision, many, names),
            how_it_ended(confirmation) or "",
        ),
        part("How sure", *_how_sure(study, row, model.test, level)),
        part(f"Beside {PLAIN}", *_beside(study, beside, models, words, networks)),
        part("Beside the other confirmed models", *others),
        part("Temperature", other_way(found))
        if unreadable
        else temperature_part(found, choice, level),
        part(
            "Left out",
            f"Excluded of those confirmed: {left}." if left else "",
            *asides(found),
        ),
        part("Cautions", *cautions),
    ]
    settings = shown_settings(row.candidate, model.settings)
    return Answer(
        lines_of(
            study,
            f"Take {row.name}{settings}, {how}.",
            values_line(study, model.test, where, "test", level),
            about,
            cautions,
        ),
        tuple(_next(study, choice, registered=not unreadable)),
        tuple(filter(None, parts)),
        choice,
        model,
        None if beside is None else models[beside.label],
        study.serves,
        code,
        words,
        lost,
        about,
    )


def _why_not(
    study: StudyFolder, row: Confirmed, default: Confirmed | None, networks: Networks
) -> str:
    """Why the row would not be compared with cross-entropy's default; empty without that."""
    if default is None:
        return ""
    if min(len(networks[each.label]) for each in (row, default)) < 2:
        return "each needs two seeds or more"
    return study.recorded.too_few("test")


def _cautions(
    found: Results, choice: Choice, lost: Mapping[str, str], registered: bool
) -> list[str]:
    """registered: whether the seed to export can be."""
    said = [lost_seeds(choice.study, lost)]
    if not registered:
        said.append(f"{choice.record.name}, its seed to export, can only be exported then.")
    said += [_changed_matters(found.study), *cautions_of(found)]
    if registered:
        said.append(doubt(choice))
    return [*filter(None, said)]


def _next(study: StudyFolder, choice: Choice, registered: bool) -> list[tuple[str, str]]:
    """What to do with the model. registered: whether it can be."""
    report = study.command("report", **study.given_option)
    following: list[tuple[str, str]] = [(report, "shows all results on one page")]
    if registered:
        exported = export_command(study, choice.study, choice.record)
        if asked := served_otherwise(study):  # for here alone
            exported = named_export(study, choice.study, choice.record, asked)
        following.insert(0, registering(study, choice, exported))
    return following


def _model(
    found: Results,
    confirmation: Confirmation,
    row: Confirmed,
    networks: Sequence[NetworkPredictions],
    level: float,
) -> Model:
    """A row as means over its seeds; validation without intervals where a file is lost."""
    study = found.study
    of = networks_on_validation(confirmation.study, [row], {})[row.label]
    whole = of if len(of) == len(row.records) else []
    return Model(
        row.name,
        method_of(confirmation.study, row.label),
        settings_of(confirmation.study, row.records[0]),
        _over_seeds(study, [one.metrics for one in row.records], whole, "validation", level),
        _over_seeds(study, row.tests, networks, "test", level),
    )


def _over_seeds(
    study: StudyFolder,
    seeds: Sequence[Mapping[str, float]],
    networks: Sequence[NetworkPredictions],
    split: str,
    level: float,
) -> Values:
    """Values of the objectives as deployed: means over seeds, with the intervals there are."""
    names = [one.metric for one in study.served]
    has_intervals = networks and not study.recorded.too_few(split)
    sure = mean_over_seeds(networks, names, level=level) if has_intervals else {}
    plain = {name: [values[name] for values in seeds if name in values] for name in names}
    means = {name: sum(values) / len(values) for name, values in plain.items() if values}
    return {name: sure.get(name, means[name]) for name in names if name in means}


def _how_sure(study: StudyFolder, row: Confirmed, values: Values, level: float) -> list[str]:
    seeds = "seed" if study.confirms_itself else "fresh seed"
    several = "means over seeds, " if len(row.records) > 1 else f"of one {seeds}, "
    return [
        f"Values are {several}{on_split(study, 'test')} ({how_sure(study, 'test', level)}).",
        floors_text(values, study.recorded.noun),
    ]


def _beside(
    study: StudyFolder,
    default: Confirmed | None,
    models: Mapping[str, Model],
    words: Mapping[str, str],
    networks: Networks,
) -> list[str]:
    """The words for the model beside cross-entropy, and cross-entropy's values; empty without."""
    if default is None:
        return []
    seeds = len(networks[default.label])
    of = ""
    if seeds < len(default.records):
        of = f" ({seeds_text(study, len(default.records), seeds)})"
    text = f"{default.name} has {values_text(models[default.label].test)} there{of}."
    if not words:
        return [text]
    return [
        text,
        f"Beside it the model is {words_text(words)}. Both are measured on the same"
        f" {study.recorded.noun}: the difference may be clear where their intervals overlap.",
    ]


def _others(
    study: StudyFolder,
    taken: Confirmed,
    rows: Sequence[Confirmed],
    confirmation: Confirmation,
    level: float,
    lost: dict[str, str],
) -> list[str]:
    """The four words for the other confirmed models, and what the samples and seeds can tell.

    lost: takes what is wrong with the files of trials that are left out.
    """
    others = [row for row in rows if row is not taken]
    if not others:
        return []
    if few := study.recorded.too_few("validation"):
        return [f"Whether they differ from it is not known: {few}."]
    size, unit = study.recorded.units("validation")
    seeds = min(len(row.records) for row in rows)
    methods = methods_of(study, confirmation, rows, level, lost)
    known = {label for found in methods.values() for label in found.rows}
    others = [row for row in others if row.label in known]
    if taken.label not in known or not others:
        return ["Whether they differ from it is not known: each needs two seeds or more."]
    by_label = {row.label: row.name for row in others}
    found = compared_with(study, methods, taken.label, list(by_label))
    lines = [
        group_text(word, [each for each in found if each.overall == word], by_label)
        for word in WORDS_IN_ORDER
    ]
    said = [f"On {size:,} validation {unit}, {'; '.join(filter(None, lines))}."]
    if "guard" not in confirmation.study.plain:  # of a version without it
        said.append(
            "An earlier version began this confirmation: the words are computed anew, by this"
            " version's intervals, and also in NLL and Brier score."
        )
    resolution = resolution_of(study, methods, size, seeds)
    if resolution is not None:
        said.append(resolution.in_words(size, seeds, len(known), unit))
    return said


def _default(confirmation: Confirmation) -> Confirmed | None:
    """Cross-entropy's default; also where it was a candidate too."""
    names = {entry["label"]: entry["name"] for entry in confirmation.study.plain["methods"]}
    plain = [row for row in confirmation.rows if row.records and names[row.label] == BASELINE]
    defaults = (row for row in plain if row.role == "baseline" or row.label.endswith(DEFAULT))
    return next(defaults, None)


def _words_beside(
    study: StudyFolder,
    row: Confirmed,
    default: Confirmed | None,
    networks: Networks,
    level: float,
) -> dict[str, str]:
    """The words for the row beside cross-entropy's default on test; empty with none to compare."""
    if default is None or study.recorded.too_few("test"):
        return {}
    pair = {label: networks[label] for label in (row.label, default.label)}
    if any(len(found) < 2 for found in pair.values()):
        return {}
    wanted = compared_metrics(study)
    compared = compare_methods(pair, wanted, level=level_of_each(level, [*wanted]))
    return {
        name: word_for(compared[name].difference(row.label, default.label), name, matters)
        for name, matters in wanted.items()
        if name in compared
    }


def _changed_matters(study: StudyFolder) -> str:
    """A sentence where `matters` changed since test was opened, and may suit what test showed."""
    then = matters_at_opening(study)
    changed = [
        f"{label_of(name)} {then[name]:g} then"
        for name, now in study.matters.items()
        if then.get(name, now) != now
    ]
    if not changed:
        return ""
    return f"`matters` was changed after the test split had been opened ({listed(changed)})."
