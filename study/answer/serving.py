"""The other way of serving: its model, and what a temperature changes in the one to take."""

from __future__ import annotations

from typing import NamedTuple

from study.answer.by_name import export_command
from study.answer.choice import Choice, choose
from study.answer.confirmation import Results
from study.answer.phrases import label_of, listed
from study.schema.objective import RAW, TEMPERATURE, other_than
from study.store.files import stored_predictions
from study.store.study import StudyFolder
from study.store.trials import TrialRecord
from study.uncertainty.bootstrap import (
    RESAMPLES,
    estimates_of,
    measured,
    values_of,
    worlds_of,
)
from study.uncertainty.forms import difference_text
from study.uncertainty.intervals import Interval, percent, percentile, unseen, widened
from study.uncertainty.resampling import draws_for, too_few
from study.uncertainty.temperature import temperature_of
from study.uncertainty.words import level_of_each
from trainables.metrics import AFTER_TEMPERATURE
from trainables.problems import FieldError

METRICS = ("nll", "ece")
NO_DIFFERENCE = "makes no measurable difference in {}"


class TemperatureEffect(NamedTuple):
    """The temperature that `export` would apply, and what it changes.

    differences: after it (cross-fitted, each sample at a temperature from others) less as trained,
    by metric, with their intervals; metrics without one are absent.
    """

    temperature: float
    differences: dict[str, Interval]


def temperature_effect(study: StudyFolder, record: TrialRecord, level: float) -> TemperatureEffect:
    """The effect of a temperature on a trained network. The intervals hold together.

    Raises FieldError if stored predictions are missing or altered.
    """
    predictions = stored_predictions(study, record)
    if too_few(predictions):
        return TemperatureEffect(temperature_of(predictions.arrays), {})
    draws = draws_for(predictions, RESAMPLES)
    wanted = [*METRICS, *(AFTER_TEMPERATURE + name for name in METRICS)]
    parts = measured(predictions, draws, wanted)
    estimates = estimates_of(parts)
    values = values_of(parts, wanted)
    worlds = worlds_of(parts, values)
    each = level_of_each(level, METRICS)
    wide = widened(each, parts[""].sample)
    found = {}
    for name in METRICS:
        after = AFTER_TEMPERATURE + name
        defined = name in values and after in values
        if defined and unseen(parts[""].sample, name, each) == 0.0:
            estimate = estimates[after] - estimates[name]
            if name in worlds:
                ends = worlds[after].less(worlds[name], wide)
            else:
                ends = percentile(values[after] - values[name], wide)
            found[name] = Interval(estimate, *ends)
    return TemperatureEffect(temperature_of(predictions.arrays), found)


# ---- in words ------------------------------------------------------------------------------------


def other_way(found: Results) -> str:
    """The answer if models were served the other way, by validation; empty where it is the same."""
    study = found.study
    other = other_than(study.serves)
    try:
        mine = choose(found)
        theirs = choose(found.served_as(other))
    except FieldError:
        return ""
    if _is_of(mine) == _is_of(theirs):
        return ""
    name = theirs.record.name if theirs.row is None else theirs.row.name
    how = {TEMPERATURE: "with a temperature", RAW: "as trained"}[other]
    shows = study.command("answer", **{other: True, **study.given_option})
    return f"If models were served {how}, validation would select {name}: `{shows}`."


def temperature_text(
    search: StudyFolder, study: StudyFolder, record: TrialRecord, level: float
) -> str:
    """The effect of a temperature here, on validation: the test split must not decide.

    search: the study that is answered; study: the one of the record, its confirmation or itself.
    """
    temperature, differences = temperature_effect(study, record, level)
    if not differences:
        few = study.recorded.too_few("validation")
        because = f": {few}" if few else ""
        return (
            f"A temperature is {temperature:.3g} for this network; how much it changes NLL and ECE"
            f" has no interval{because}."
        )
    said: dict[str, list[str]] = {"lowers {}": [], "raises {}": [], NO_DIFFERENCE: []}
    for name, difference in differences.items():
        text = f"{label_of(name)} ({difference_text(difference)})"
        said[_direction(difference)].append(text)
    shown = [does.format(listed(names)) for does, names in said.items() if names]
    text = f"A temperature ({temperature:.3g} for this network) {listed(shown)}"
    way = other_than(search.serves)
    command = export_command(search, study, record, way)
    does = "applies it" if way == TEMPERATURE else "leaves it out"
    how_sure = f"Cross-fitted on validation, with {percent(level)} intervals of this one network"
    return f"{text}. {how_sure}. `{command}` {does}."


def _direction(difference: Interval) -> str:
    if difference.high < 0:
        return "lowers {}"
    return "raises {}" if difference.low > 0 else NO_DIFFERENCE


def _is_of(choice: Choice) -> tuple[str, int | None]:
    """The row of a confirmation, whichever of its seeds; or the trial."""
    return choice.record.label, choice.record.number if choice.row is None else None
