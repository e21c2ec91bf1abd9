"""How models, values and words are said in an answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from study.analysis.rule import TakenTrial, nll_unit
from study.answer.confirmation import Confirmed
from study.schema.objective import TEMPERATURE, plain_name
from study.store.own_data import ARRAYS
from study.store.study import Study
from study.uncertainty.intervals import Interval, percent
from study.uncertainty.without_intervals import no_intervals_of, without_intervals
from study.uncertainty.words import AS_GOOD, NOT_TOLD, overall
from trainables.metrics import describe

FLOOR = "floor, what a perfectly calibrated model with these confidences would measure:"


def headline(name: str, served: str, baseline: Mapping[str, str]) -> str:
    """The first sentence: it names the model, after news of a default that does as well."""
    word = overall(baseline) if baseline else ""
    if word not in (AS_GOOD, NOT_TOLD):
        return f"Take {name}, {served}."
    news = "is as good as" if word == AS_GOOD else "is not told apart from"
    return f"Cross-entropy's default {news} the model that scores best. Take {name}, {served}."


def why(
    study: Study, decision: TakenTrial | None, many: str, names: Mapping[str, str] | None = None
) -> str:
    """The metric by which the rule took the model, and what follows it. names: rows' by label."""
    if decision is None or decision.following is None:
        return ""
    units = {label_of(name): unit for name, unit in study.units.items()}
    summed = "the lowest sum of objectives"
    if label_of("nll") not in units:
        units[label_of("nll")] = nll_unit(study)
        summed += " and half of NLL"
    listed_units = ", ".join(f"{name} {unit:g}" for name, unit in units.items())
    after = decision.following
    follows = after.name if names is None else names[after.label]
    total = f"{summed}, in units of what matters ({listed_units})"
    return (
        f"Of {many}, it has {total}; {follows} follows. {first_upper(label_of(decision.by))}"
        " decided."
    )


def first_upper(text: str) -> str:
    """The text as the beginning of a sentence; a name such as mIoU stays as it is."""
    return text if text[1:2].isupper() else text[0].upper() + text[1:]


def counted(number: int, noun: str) -> str:
    """`1 trial`, `1,000 trials`."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def words_text(words: Mapping[str, str]) -> str:
    """`as good in accuracy, worse in ECE`."""
    by_word: dict[str, list[str]] = {}
    for name, word in words.items():
        by_word.setdefault(word, []).append(label_of(name))
    return ", ".join(f"{word} in {listed(names)}" for word, names in by_word.items())


def name_of(row: Confirmed, texts: Mapping[str, str], short: bool = False) -> str:
    """`focal/0007 (gamma 2.1)`, or `focal_default (published default)`."""
    if short:
        return row.name
    if row.candidate is not None:
        return row.name + params_text(row.candidate.params)
    return f"{row.name} ({texts[row.label]})" if row.label in texts else row.name


def params_text(params: Mapping[str, Any]) -> str:
    if not params:
        return ""
    shown = []
    for path, value in params.items():
        text = f"{value:.3g}" if isinstance(value, float) else f"{value}"
        shown.append(f"{path.removeprefix('method.')} {text}")
    return f" ({', '.join(shown)})"


def served(study: Study) -> str:
    return "with its temperature" if study.serves == TEMPERATURE else "as trained"


def values_text(values: Mapping[str, Interval | float], capital: bool = True) -> str:
    """capital: at the start of a sentence, whose first floor says what it is."""
    parts = []
    called = FLOOR if capital else "floor"
    for name, value in values.items():
        parts.append(f"{label_of(name)} {figure(value, called)}")
        if not isinstance(value, float) and value.floor is not None:
            called = "floor"
    text = listed(parts)
    return first_upper(text) if capital else text


def label_of(metric: str) -> str:
    """The metric in words, without saying whether it is after a temperature."""
    return describe(metric).label


def figure(value: Interval | float, called: str = "floor") -> str:
    if isinstance(value, float):
        return f"{value:.4f}"
    floor = "" if value.floor is None else f" ({called} {value.floor})"
    return f"{value.estimate:.4f} [{value.low:.4f}, {value.high:.4f}]{floor}"


def on_split(study: Study, split: str) -> str:
    """`on 360 sealed test images (36 patients) of scans.parquet`."""
    recorded = study.recorded
    called = "sealed test" if split == "test" else split
    samples = f"{recorded.sizes[split]:,} {called} {recorded.noun}"
    return f"on {samples}{recorded.in_groups(split)} of {data_of(study)}"


def how_sure(study: Study, split: str, level: float) -> str:
    """`95% intervals`; or that there are none, and why."""
    if few := study.recorded.too_few(split):
        return f"no intervals: {few}"
    names = [one.metric for one in study.served]
    without = no_intervals_of(names)
    if len(without_intervals(names)) == len({plain_name(name) for name in names}):
        return without
    return "; ".join(filter(None, (f"{percent(level)} intervals", without)))


def listed(words: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def data_of(study: Study) -> str:
    """`digits`, or the file name of a data set with a path; `STUDY/data` of objects."""
    data = study.plain["data"]
    if not isinstance(data, Mapping):
        return str(data)
    if not data.get("path"):
        return str(data["name"])
    if data["name"] == ARRAYS:
        return "/".join((study.directory / data["path"]).parts[-2:])
    return Path(data["path"]).name
