"""How models, values and words are said in an answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from study.schema.objective import TEMPERATURE, plain_name
from study.store.own_data import ARRAYS
from study.store.study import StudyFolder
from study.uncertainty.forms import value_text
from study.uncertainty.intervals import LEVEL, Interval, percent
from study.uncertainty.without_intervals import no_intervals_of, without_intervals
from trainables.metrics import describe


def first_upper(text: str) -> str:
    """The text as the beginning of a sentence; a name such as mIoU stays as it is."""
    return text if text[1:2].isupper() else text[:1].upper() + text[1:]


def counted(number: int, noun: str) -> str:
    """`1 trial`, `1,000 trials`."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def words_text(words: Mapping[str, str]) -> str:
    """`as good in accuracy, worse in ECE`."""
    by_word: dict[str, list[str]] = {}
    for name, word in words.items():
        by_word.setdefault(word, []).append(label_of(name))
    return ", ".join(f"{word} in {listed(names)}" for word, names in by_word.items())


def setting_text(path: str, value: object) -> str:
    """`gamma 2.1`, `optimizer.lr 0.08`."""
    text = f"{value:.3g}" if isinstance(value, float) else f"{value}"
    return f"{path.removeprefix('method.')} {text}"


def served(study: StudyFolder) -> str:
    return "with its temperature" if study.serves == TEMPERATURE else "as trained"


def values_text(values: Mapping[str, Interval | float]) -> str:
    """`accuracy 0.974 [0.950, 0.988], ECE 0.022 [0, 0.036]`."""
    return ", ".join(f"{label_of(name)} {value_text(value)}" for name, value in values.items())


def values_line(
    study: StudyFolder, values: Mapping[str, Interval | float], where: str, split: str, level: float
) -> str:
    """The sentence of the values. It says so where their intervals are no usual ones, or absent."""
    sure = how_sure(study, split, level)
    known = "" if sure == f"{percent(LEVEL)} intervals" else f" ({sure})"
    return f"{first_upper(values_text(values))} {where}{known}."


def label_of(metric: str) -> str:
    """The metric in words, without saying whether it is after a temperature."""
    return describe(metric).label


def on_split(study: StudyFolder, split: str) -> str:
    """`on 360 sealed test images (36 patients) of scans.parquet`."""
    recorded = study.recorded
    called = "sealed test" if split == "test" else split
    samples = f"{recorded.sizes[split]:,} {called} {recorded.noun}"
    return f"on {samples}{recorded.in_groups(split)} of {data_of(study)}"


def how_sure(study: StudyFolder, split: str, level: float) -> str:
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


def data_of(study: StudyFolder) -> str:
    """`digits`, or the file name of a data set with a path; `STUDY/data` of objects."""
    data = study.plain["data"]
    if not isinstance(data, Mapping):
        return str(data)
    if not data.get("path"):
        return str(data["name"])
    if data["name"] == ARRAYS:
        return "/".join((study.directory / data["path"]).parts[-2:])
    return Path(data["path"]).name
