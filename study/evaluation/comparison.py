"""Two models on the same samples: the difference in each metric, with its interval and word."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from study.evaluation.user_predictions import UserPredictions, texts_of
from study.schema.matters import matters_in
from study.uncertainty.bootstrap import resampled_names, side_of
from study.uncertainty.forms import finite, signed_ends
from study.uncertainty.intervals import FRACTIONS, Interval, percent
from study.uncertainty.resampling import Draws, differs, too_few
from study.uncertainty.words import FORMER, word_for
from trainables.metrics import AFTER_TEMPERATURE
from trainables.outputs.array_checks import array_of
from trainables.outputs.predictions import Predictions
from trainables.problems import FieldError

if TYPE_CHECKING:
    from study.evaluation.measure import Numbers


class Difference(NamedTuple):
    """A metric of two models, the first less the second; its interval, and the word for the first:
    better, worse, as good or undecided. None: the metric has no interval."""

    one: float
    other: float
    difference: float
    interval: tuple[float, float] | None
    word: str | None


@dataclass(frozen=True, repr=False)
class Comparison:
    """The differences by metric, before and (`ts_`) after a temperature for each model."""

    differences: dict[str, Difference]
    samples: int
    level: float
    why_none: str = ""  # why there are no intervals

    @property
    def lines(self) -> tuple[str, ...]:
        """What is printed."""
        width = max(map(len, self.differences), default=0)
        shown = [f"the first less the second, on {self.samples:,} samples"]
        for name, (one, other, by, ends, word) in self.differences.items():
            said = f"{by:+.4f}" if math.isfinite(by) else "-"
            if ends is not None:
                estimate, interval = signed_ends(Interval(by, *ends))
                said = f"{estimate} {interval}  {word}"
            shown.append(f"{name:{width}}  {one:.4f}  {other:.4f}  {said}")
        how = f"No intervals: {self.why_none}." if self.why_none else ""
        return tuple(filter(None, [*shown, how]))

    def to_dict(self) -> dict[str, object]:
        """Every number, for JSON."""
        found: dict[str, object] = {}
        for name, each in self.differences.items():
            low, high = each.interval or (None, None)
            found[name] = {
                **finite({"one": each.one, "other": each.other, "difference": each.difference}),
                "low": low,
                "high": high,
                "word": each.word,
                "word_former": FORMER.get(each.word or "", each.word),
            }
        return {"num_samples": self.samples, "level": self.level, "differences": found}

    def __str__(self) -> str:
        return "\n".join(self.lines)

    def __repr__(self) -> str:
        return f"Comparison({self.lines[0]!r})"

    def _repr_html_(self) -> str:
        heads = ("metric", "first", "second", "difference", f"{percent(self.level)} interval", "")
        rows = ["".join(f"<th>{head}</th>" for head in heads)]
        for name, (one, other, by, ends, word) in self.differences.items():
            estimate, interval = f"{by:+.4f}", "-"
            if ends is not None:
                estimate, interval = signed_ends(Interval(by, *ends))
            cells = (name, f"{one:.4f}", f"{other:.4f}", estimate, interval, word or "-")
            rows.append("".join(f"<td>{escape(cell)}</td>" for cell in cells))
        return f"<table>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"


def compare(
    one: UserPredictions,
    other: UserPredictions,
    numbers: tuple[Numbers, Numbers],
    names: Sequence[str],
    level: float,
    id: tuple[Any, Any] | None = None,
) -> Comparison:
    """The differences of two models in metrics of these names, without `ts_`.

    numbers: of each. id: the ids of each. Raises FieldError unless samples, labels, classes and
    groups are the same.
    """
    other = paired(one, other, id)
    if not names:
        raise FieldError("metrics", "the two have none in common", "Measure both by the same.")
    both = (one.predictions, other.predictions)
    why_none = too_few(both[0])
    # No temperature changes a fraction of right predictions.
    every = [*names, *(AFTER_TEMPERATURE + name for name in names if name not in FRACTIONS)]
    found: dict[str, Difference] = {}
    if resamples := min(each.resamples for each in numbers):
        found = _resampled(both, every, level, resamples)
    first, second = (each.values for each in numbers)
    for name in every:
        if name not in found and name in first and name in second:
            by = first[name] - second[name]
            found[name] = Difference(first[name], second[name], by, None, None)
    ordered = {name: found[name] for name in every if name in found}
    return Comparison(ordered, len(both[0].labels), level, why_none)


def paired(
    one: UserPredictions, other: UserPredictions, id: tuple[Any, Any] | None = None
) -> UserPredictions:
    """The other with its classes and, where both have ids, its samples in the order of `one`.

    Raises as `compare`.
    """
    if one.weights is not None or other.weights is not None:
        raise FieldError("weights", "a difference has no weighted form", "Leave them out.")
    other = other.in_order_of(one.classes)
    if id is not None and not (isinstance(id, tuple | list) and len(id) == 2):
        raise FieldError("id", "is no pair", "Give the ids of both: id=(own, other's).")
    ids = (one.ids, other.ids) if id is None else (_ids(id[0], one), _ids(id[1], other))
    if ids[0] is not None and ids[1] is not None:
        other = other.in_rows(_places(ids[0], ids[1]), ids[0])
    _check_same(one, other)
    return other


def _resampled(
    both: tuple[Predictions, Predictions], names: Sequence[str], level: float, resamples: int
) -> dict[str, Difference]:
    """The differences of those that are resampled, where their intervals are finite."""
    draws = Draws.of(len(both[0].labels), resamples, 0, both[0].groups)
    wanted = [name for name in names if name in resampled_names()]
    if not wanted:
        return {}
    with np.errstate(invalid="ignore"):  # an infinite NLL has no interval
        first, second = (side_of(wanted, each, draws) for each in both)
    found = {}
    for name in wanted:
        if name in first.values and name in second.values:
            by = first.less(second, name, level)
            if math.isfinite(by.low) and math.isfinite(by.high):
                word = word_for(by, name, matters_in(name, {}, both[0].logits.shape[1]))
                values = (first.estimates[name], second.estimates[name])
                found[name] = Difference(*values, by.estimate, (by.low, by.high), word)
    return found


def _ids(values: Any, given: UserPredictions) -> tuple[str, ...]:
    ids = tuple(texts_of(array_of("id", values).reshape(-1)).tolist())
    samples = len(given.predictions.labels)
    if len(ids) != samples:
        found = f"{len(ids):,} ids for {samples:,} samples"
        raise FieldError("id", found, "Give the ids of both: id=(own, other's).")
    return ids


def _places(ids: Sequence[str], others: Sequence[str]) -> list[int]:
    """The row of each id among the other's. Raises FieldError for ids that repeat or differ."""
    for each in (ids, others):
        if len(each) != len(set(each)):
            twice, _ = Counter(each).most_common(1)[0]
            found = f"'{twice}' is there twice"
            raise FieldError("id", found, "Give each sample an id of its own.")
    place = {one: row for row, one in enumerate(others)}
    own = [one for one in ids if one not in place]
    known = set(ids)
    only = [one for one in others if one not in known]
    if own or only:
        firsts = " and ".join(f"'{each[0]}'" for each in (own, only) if each)
        found = f"{len(own) + len(only):,} are in one of the two only, the first is {firsts}"
        raise FieldError("id", found, "Compare models on the same samples.")
    return [place[one] for one in ids]


def _check_same(first: UserPredictions, second: UserPredictions) -> None:
    mend = "Give both the same samples in one order, or pair them by an id."
    sizes = [len(each.predictions.labels) for each in (first, second)]
    if sizes[0] != sizes[1]:
        raise FieldError("labels", f"{sizes[0]:,} samples, the other has {sizes[1]:,}", mend)
    what = differs(first.predictions, second.predictions)
    if what == "labels":
        other = second.predictions.labels
        row = int((first.predictions.labels != other).nonzero()[0])
        names = [first.classes[int(each.predictions.labels[row])] for each in (first, second)]
        raise FieldError("labels", f"row {row} is {names[0]}, of the other {names[1]}", mend)
    if what is not None:
        raise FieldError(what, "differ between the two", mend)
