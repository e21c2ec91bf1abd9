"""Which model to take, how sure that is, and what to do next: sentences from a study's records.

The terminal, the report page, MLflow's description and the model card show the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from study.analysis.left_out import mend_of
from study.analysis.ranking import set_aside_line
from study.answer.by_name import export_command, named_export, next_for, served_otherwise
from study.answer.choice import Choice, choose, not_finished, rows_that_count
from study.answer.compared import (
    compared_with,
    group_text,
    methods_of,
    resolution_of,
    served_and_resampled,
)
from study.answer.confirmation import (
    BASELINE,
    DEFAULT,
    Confirmation,
    Confirmed,
    Results,
    default_texts,
)
from study.answer.lost import all_lost, lost_lines, lost_seeds, named, seeds_text, take
from study.answer.phrases import (
    counted,
    first_upper,
    headline,
    how_sure,
    label_of,
    listed,
    name_of,
    on_split,
    params_text,
    served,
    values_text,
    why,
    words_text,
)
from study.answer.registering import registering
from study.answer.serving import other_way, temperature_text
from study.schema.temperature import temperature_note
from study.store.confirmed import RESTORE, can_confirm_itself, matters_at_opening
from study.store.files import PREDICTIONS, lost_predictions, stored_predictions
from study.store.spending import not_begun
from study.store.study import Study
from study.store.trials import TrialRecord
from study.uncertainty.bootstrap import analyse, differences_from
from study.uncertainty.intervals import LEVEL, Interval
from study.uncertainty.words import AS_GOOD, BETTER, NOT_TOLD, WORSE, level_of_each, words_for
from trainables.problems import FieldError

if TYPE_CHECKING:
    from study.uncertainty.intervals import Interval
    from study.uncertainty.methods import NetworkPredictions

Values = Mapping[str, "Interval | float"]
Networks = Mapping[str, Sequence["NetworkPredictions"]]  # of each row, by label
WORDS_IN_ORDER = (AS_GOOD, NOT_TOLD, BETTER, f"{BETTER} and {WORSE}", WORSE)


@dataclass(frozen=True)
class Answer:
    """sentences: the answer, the first names the model. next: commands, each with what it does."""

    sentences: tuple[str, ...]
    next: tuple[tuple[str, str], ...]
    choice: Choice | None = None
    # What is wrong with a file of trials that it leaves out, by trial.
    left_out: Mapping[str, str] = field(default_factory=dict)
    values: Values = field(default_factory=dict)  # of the model, by objective as served
    split: str = "validation"  # on which these are

    def to_plain(self) -> dict[str, object]:
        """The answer as JSON.

        taken: the label of the confirmed row. trial: of the search, whose values it has. None:
        there is none.
        """
        plain = {"sentences": list(self.sentences), "next": [list(each) for each in self.next]}
        chosen = {"taken": None, "trial": None} if self.choice is None else self.choice.names
        return {**plain, **chosen, "left_out": dict(self.left_out)}


def answer(found: Results, level: float = LEVEL) -> Answer:
    """The model to take from a study now. Raises FieldError if a file is missing or altered."""
    study = found.study
    confirmation = found.confirmation
    if study.confirms is not None:
        raise FieldError(
            study.name, f"confirms '{study.confirms}', whose answer covers both", "Ask that one."
        )
    if (
        confirmation is not None
        and any(row.records for row in confirmation.rows)
        and confirmation.finished
    ):
        return _confirmed(found, confirmation, level)
    if missing := found.missing:
        return Answer((f"{missing}.", f"{RESTORE}: which model to take was decided there."), ())
    if not found.ranking.eligible:
        return _nothing(found)
    return _unconfirmed(found, level)


def _nothing(found: Results) -> Answer:
    look = (found.study.command("trials"), "lists every trial with its values")
    aside = found.ranking.set_aside
    if aside:
        name, reason = next(iter(aside.items()))
        none = "No model can be recommended: no trial counts."
        example = f"For example, {name}: {reason}."
        return Answer((none, set_aside_line(aside), example), (look,))
    if found.lacking:
        return Answer(("No trial is complete yet.",), (_resume(found),))
    return Answer(("No model can be recommended: no trial is complete.",), (look,))


# ---- before a confirmation -----------------------------------------------------------------------


def _unconfirmed(found: Results, level: float) -> Answer:
    study = found.study
    taken = take(found)
    if taken is None:
        said, lost = all_lost(study, found.ranking.eligible)
        return Answer(said, (_confirms(found),), left_out=lost)
    record = taken.record
    choice = Choice(study, record, decision=taken.decision)
    default = _default_beside(found, record)
    uncompared = lost_predictions(study, [default] if default else [])
    words = {} if default is None or uncompared else _words_before(study, record, default, level)
    reason = "It is the only trial that counts."
    if taken.count > 1 or taken.lost:
        whose = " and have predictions" if taken.lost else ""
        reason = why(study, taken.decision, f"{counted(taken.count, 'trial')} that count{whose}")
    noun = study.recorded.noun
    values = _of_trial(study, record, level)
    for_now = ", for now"
    if taken.better is not None:
        for_now += f" and without {taken.better.name}"
    sentences = [
        headline(f"{record.name}{params_text(record.params)}", served(study) + for_now, words),
        *lost_lines(study, taken),
        reason,
        (
            f"{values_text(values)} {on_split(study, 'validation')}, one"
            f" seed ({how_sure(study, 'validation', level)}). It was selected on these {noun}, so"
            " it looks better than it is."
        ),
    ]
    for name, problem in uncompared.items():
        sentences.append(
            f"Cross-entropy's default, {name}, is not compared: its {PREDICTIONS} {problem}."
            f" {mend_of(study, [name])}"
        )
    if words:
        sentences.append(
            f"Cross-entropy's default beside it: {words_text(words)}, as two trained networks, by"
            f" these {noun} alone."
        )
    sentences += [
        _not_known(study),
        "" if taken.lost else other_way(found),
        temperature_text(study, study, record, level),
        _doubt(choice),
        *_asides(found),
    ]
    following = [_confirms(found)]
    if study.given is not None and following[0][0] == study.command("confirm"):
        following = next_for(study, choice)
    if found.lacking:
        following.insert(0, _resume(found))
    lost = named({**taken.lost, **uncompared})
    said = tuple(filter(None, sentences))
    return Answer(said, tuple(following), choice, lost, values)


def _not_known(study: Study) -> str:
    unknown = f"Not known yet: its values on the sealed test {study.recorded.noun}"
    if can_confirm_itself(study) and study.planned > 1:
        return f"{unknown}."
    return f"{unknown}, and how much another seed changes them."


def _confirms(found: Results) -> tuple[str, str]:
    does = "retrains the front with fresh seeds and opens the test split"
    if found.confirmation is not None:
        does = "resumes the confirmation, which is not finished"
    elif can_confirm_itself(found.study) and found.missing is None:
        does = "measures these trials on the test split, without training"
    return found.study.command("confirm"), does


def _default_beside(found: Results, record: TrialRecord) -> TrialRecord | None:
    """Cross-entropy's default, to compare with the trial; None where that has its settings or its
    predictions, or where it was not trained."""
    study = found.study
    labels = {entry["label"] for entry in study.plain["methods"] if entry["name"] == BASELINE}
    ranking = found.ranking
    defaults = [ranking.default_of(label) for label in study.labels if label in labels]
    names = [ranking.stands_for.get(one.name, one.name) for one in defaults if one is not None]
    default = next((one for one in ranking.eligible if one.name in names), None)
    alone = default is None or default.name == record.name or default.setting == record.setting
    return None if alone else default


def _words_before(
    study: Study, record: TrialRecord, default: TrialRecord, level: float
) -> dict[str, str]:
    """The words for cross-entropy's default beside the trial, by objective.

    About two trained networks, by samples alone: one seed does not show what another would change.
    """
    wanted = served_and_resampled(study)
    if not wanted or study.recorded.too_few("validation"):
        return {}
    each = level_of_each(level, wanted)
    differences = {
        name: differences_from(study, record, [default], name, level=each)[default.name]
        for name in wanted
    }
    return words_for(differences, study.matters)


def _of_trial(study: Study, record: TrialRecord, level: float) -> dict[str, Interval | float]:
    """Validation values of the objectives as served, with intervals where there are any."""
    names = [one.metric for one in study.served if one.metric in record.metrics]
    if study.recorded.too_few("validation"):
        return {name: record.metrics[name] for name in names}
    sure = analyse(study, [record], wanted=names, level=level).intervals[record.name]
    return {name: sure.get(name, record.metrics[name]) for name in names}


def _resume(found: Results) -> tuple[str, str]:
    does = "resumes the search"
    if not_begun(found.study, found.records) > 0:
        does += ", once its budget is raised"
    return found.study.goes_on, does


def _doubt(choice: Choice) -> str:
    """A sentence about the temperature that `export` would apply, if it is doubtful; else empty."""
    found = stored_predictions(choice.study, choice.record)
    accuracy = choice.record.metrics["accuracy"]
    return temperature_note(found.temperature(), accuracy, len(found.labels))


def _asides(found: Results) -> list[str]:
    lines = []
    if found.lacking:
        lines.append(not_finished(found.lacking))
    lines += filter(None, [set_aside_line(found.ranking.set_aside), found.ranking.rules.no_test])
    if note := found.study.serves_note:
        lines.append(f"{first_upper(note)}.")
    cautions = found.study.recorded.shared or ()
    if found.confirmation is not None:
        cautions = found.confirmation.cautions
    lines += (f"{first_upper(caution)}." for caution in cautions)
    return lines


# ---- after a confirmation ------------------------------------------------------------------------


def _confirmed(found: Results, confirmation: Confirmation, level: float) -> Answer:
    study = found.study
    rows, aside = rows_that_count(study, confirmation.rows)
    names = {row.label: row.name for row in confirmation.rows}
    if not rows:
        reasons = (f"{names[label]}: {why}." for label, why in aside.items())
        command = study.command("confirm", trial="METHOD/NUMBER")
        none = "No model can be recommended: no confirmed model counts."
        return Answer((none, *reasons), ((command, "confirms another trial"),))
    from study.answer.networks import networks_on_test

    choice = choose(found)
    assert choice.row is not None
    lost: dict[str, str] = {}
    networks = networks_on_test(confirmation, lost)
    seeds = seeds_text(study, len(choice.row.records), len(networks[choice.row.label]))
    texts = default_texts(confirmation)
    baseline = _baseline(confirmation, choice.row)
    words = _words_on_test(study, choice.row, baseline, networks, level)
    values = _over_seeds(study, choice.row, networks, level)
    sure = how_sure(study, "test", level)
    sentences = [f"{values_text(values)} {on_split(study, 'test')}, {seeds} ({sure})."]
    if len(rows) > 1:
        many = f"{len(rows)} confirmed models that count"
        sentences.append(why(study, choice.decision, many, names))
    sentences += _beside(study, choice.row, rows, confirmation, texts, level, lost)
    # The seed to register; another's file decides no more than intervals.
    unreadable = lost_predictions(choice.study, [choice.record])
    lost |= named(unreadable)
    if aside:
        left = listed([names[label] for label in aside])
        sentences.append(f"Set aside of those confirmed: {left}.")
    sentences += [
        _of_the_baseline(study, baseline, networks, words, level),
        other_way(found),
    ]
    report = study.command("report", **study.given_option)
    following: list[tuple[str, str]] = [(report, "shows all results on one page")]
    if unreadable:
        sentences.append(f"{choice.record.name}, its seed to export, can only be exported then.")
    else:
        sentences += [
            temperature_text(study, choice.study, choice.record, level),
            _doubt(choice),
        ]
        exported = export_command(study, choice.study, choice.record)
        if asked := served_otherwise(study):  # for here alone
            exported = named_export(study, choice.study, choice.record, asked)
        following.insert(0, registering(study, choice, exported))
    sentences += [_changed_matters(study), *_asides(found)]
    how = served(study) + ("; files of its confirmation are lost" if lost else "")
    first = headline(name_of(choice.row, texts), how, words)
    said = filter(None, (first, lost_seeds(choice.study, lost), *sentences))
    return Answer(tuple(said), tuple(following), choice, lost, values, "test")


def _over_seeds(
    study: Study, row: Confirmed, networks: Networks, level: float
) -> dict[str, Interval | float]:
    """Test values of the objectives as served: means over seeds, with intervals where there are
    any."""
    from study.uncertainty.methods import mean_over_seeds

    names = [one.metric for one in study.served]
    of_row = networks[row.label]
    has_intervals = of_row and not study.recorded.too_few("test")
    sure = mean_over_seeds(of_row, names, level=level) if has_intervals else {}
    plain = {name: [test[name] for test in row.tests if name in test] for name in names}
    means = {name: sum(values) / len(values) for name, values in plain.items() if values}
    return {name: sure.get(name, means[name]) for name in names if name in means}


def _beside(
    study: Study,
    taken: Confirmed,
    rows: Sequence[Confirmed],
    confirmation: Confirmation,
    texts: Mapping[str, str],
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
        return [f"Whether the other confirmed models differ from it is not known: {few}."]
    size, unit = study.recorded.units("validation")
    seeds = min(len(row.records) for row in rows)
    methods = methods_of(study, confirmation, rows, level, lost)
    known = {label for found in methods.values() for label in found.rows}
    others = [row for row in others if row.label in known]
    if taken.label not in known or not others:
        return [
            "Whether the other confirmed models differ from it is not known: each needs two seeds"
            " or more."
        ]
    by_label = {row.label: name_of(row, texts, short=True) for row in others}
    found = compared_with(study, methods, taken.label, list(by_label))
    lines = [
        group_text(word, [each for each in found if each.overall == word], by_label)
        for word in WORDS_IN_ORDER
    ]
    said = [f"Beside it, on {size:,} validation {unit}: {'; '.join(filter(None, lines))}."]
    resolution = resolution_of(study, methods, size, seeds)
    if resolution is not None:
        said.append(resolution.in_words(size, seeds, len(known), unit))
    return said


def _baseline(confirmation: Confirmation, taken: Confirmed) -> Confirmed | None:
    """Cross-entropy's default; also where it was a candidate too. None if its networks are
    those taken."""
    names = {entry["label"]: entry["name"] for entry in confirmation.study.plain["methods"]}
    plain = [row for row in confirmation.rows if row.records and names[row.label] == BASELINE]
    defaults = (row for row in plain if row.role == "baseline" or row.label.endswith(DEFAULT))
    found = next(defaults, None)
    return None if found is None or found.networks == taken.networks else found


def _words_on_test(
    study: Study,
    row: Confirmed,
    baseline: Confirmed | None,
    networks: Networks,
    level: float,
) -> dict[str, str]:
    """The words for cross-entropy's default beside the row on test; empty with none to compare."""
    from study.uncertainty.methods import compare_methods

    if baseline is None or study.recorded.too_few("test"):
        return {}
    pair = {label: networks[label] for label in (row.label, baseline.label)}
    if any(len(found) < 2 for found in pair.values()):
        return {}
    names = [one.metric for one in study.served]
    compared = compare_methods(pair, names, level=level_of_each(level, names))
    differences = {
        name: methods.difference(baseline.label, row.label) for name, methods in compared.items()
    }
    return words_for(differences, study.matters)


def _of_the_baseline(
    study: Study,
    baseline: Confirmed | None,
    networks: Networks,
    words: Mapping[str, str],
    level: float,
) -> str:
    """Cross-entropy's test values, and the words for it; empty without it."""
    if baseline is None:
        return ""
    text = values_text(_over_seeds(study, baseline, networks, level), capital=False)
    seeds = len(networks[baseline.label])
    beside = ""
    if words:
        beside = f": {words_text(words)}"
    elif seeds < len(baseline.records):
        beside = f" ({seeds_text(study, len(baseline.records), seeds)})"
    whose = "Cross-entropy" if study.confirms_itself else "Cross-entropy's default"
    return f"{whose} ({baseline.name}) has {text}{beside}."


def _changed_matters(study: Study) -> str:
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
