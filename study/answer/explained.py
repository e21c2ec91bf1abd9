"""The explanation of an answer: what its paragraphs have in common before and after a
confirmation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from study.analysis.ranking import excluded_line
from study.analysis.rule import TakenTrial, nll_unit
from study.answer.choice import Choice, not_finished
from study.answer.confirmation import Results
from study.answer.phrases import first_upper, label_of, listed
from study.answer.said import Part, Values
from study.answer.serving import other_way, temperature_text
from study.schema.objective import EITHER, TEMPERATURE
from study.schema.temperature import temperature_note
from study.store.extensions import mended_code
from study.store.files import stored_predictions
from study.store.study import StudyFolder
from study.uncertainty.forms import floor_text
from study.uncertainty.temperature import temperature_of


def part(heading: str, *sentences: str) -> Part | None:
    """The paragraph of these sentences; None where all are empty."""
    text = " ".join(filter(None, sentences))
    return Part(heading, text) if text else None


def lines_of(
    study: StudyFolder, first: str, values: str, verdict: str, cautions: Sequence[str]
) -> tuple[str, ...]:
    """The answer in at most four sentences: the model, its values, the verdict, and a caution."""
    caution = cautions[0] if cautions else ""
    if len(cautions) > 1:
        more = study.command("answer", why=True, **study.given_option)
        caution += f" {len(cautions) - 1} more: `{more}`."
    return tuple(filter(None, [first, values, verdict, caution]))


def rule_text(
    study: StudyFolder,
    decision: TakenTrial | None,
    many: str,
    names: Mapping[str, str] | None = None,
) -> str:
    """How the rule took the model of so many, and what follows it. names: rows' by label."""
    if decision is None:
        return ""
    if decision.following is None:
        return "It is the only one that counts."
    units = {label_of(name): unit for name, unit in study.units.items()}
    terms = [
        f"1 - {label_of(one.metric)}" if one.sign < 0 else label_of(one.metric)
        for one in study.served
    ]
    if label_of("nll") not in units:
        units[label_of("nll")] = nll_unit(study)
        terms.append("half of NLL")
    matters = ", ".join(f"{name} {unit:g}" for name, unit in units.items())
    after = decision.following
    follows = after.name if names is None else names[after.label]
    return (
        f"Of {many}, it has the lowest sum of {listed(terms)}, each divided by the difference that"
        f" matters in it ({matters}). Next comes {follows}, which loses most in"
        f" {label_of(decision.by)}.{_form_text(study)}"
    )


def _form_text(study: StudyFolder) -> str:
    """Why the models are as trained or have their temperature, where the study says either."""
    if study.serve != EITHER:
        return ""
    if study.serves == TEMPERATURE:
        return " All have their temperatures: with them the search's lowest sum is lower."
    return " All are as trained: with temperatures the search's lowest sum is no lower."


def floors_text(values: Values, noun: str) -> str:
    """What calibration errors a perfectly calibrated model would measure; empty for none."""
    floors = {
        label_of(name): floor_text(value.floor)
        for name, value in values.items()
        if not isinstance(value, float) and value.floor is not None
    }
    if not floors:
        return ""
    each = listed([f"{label} {text}" for label, text in floors.items()])
    return (
        f"A perfectly calibrated model with these confidences would measure {each} on as many"
        f" {noun}: that is the floor."
    )


def temperature_part(
    found: Results, choice: Choice, level: float, other: bool = True
) -> Part | None:
    """What a temperature changes in the model, and the model to take if it were served otherwise.

    other: False where that is not asked.
    """
    changes = temperature_text(found.study, choice.study, choice.record, level)
    return part("Temperature", changes, other_way(found) if other else "")


def doubt(choice: Choice) -> str:
    """A sentence about the temperature that `export` would apply, if it is doubtful; else empty."""
    found = stored_predictions(choice.study, choice.record).arrays
    accuracy = choice.record.metrics["accuracy"]
    return temperature_note(temperature_of(found), accuracy, len(found.labels))


def cautions_of(found: Results) -> list[str]:
    """What may change the answer, or what its values are worth."""
    lines = [not_finished(found.lacking)] if found.lacking else []
    cautions = [*(found.study.recorded.shared or ()), *mended_code(found.records)]
    if found.confirmation is not None:
        cautions = found.confirmation.cautions
    return [*lines, *(f"{first_upper(caution)}." for caution in cautions)]


def asides(found: Results) -> list[str]:
    """What was excluded, and what the study says of serving."""
    note = found.study.serves_note
    return [
        *filter(None, [excluded_line(found.ranking.excluded), found.ranking.rules.no_test]),
        *([f"{first_upper(note)}."] if note else []),
    ]
