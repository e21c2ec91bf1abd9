"""The predictions that people bring, with the names of their classes: from arrays, lists, pandas or
torch objects. Which column is which class is never guessed."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import Tensor

from trainables.kinds import count_of
from trainables.outputs.array_checks import array_of, numbers_of, refuse_other_order
from trainables.outputs.predictions import Predictions
from trainables.problems import FieldError, nearest

UNNAMED = (
    "Name the classes in the order of the columns: classes=['cat', 'dog', ...], of scikit-learn"
    " classes=model.classes_."
)


@dataclass(frozen=True)
class UserPredictions:
    """Predictions [N, K], the names of the K classes, and of each sample its id and weight, if any.

    divided: what a temperature divides. notes: what was taken for what, in sentences.
    """

    predictions: Predictions
    classes: tuple[str, ...]
    ids: tuple[str, ...] | None = None
    weights: np.ndarray | None = None  # [N] float64
    divided: str = "logits"
    notes: tuple[str, ...] = ()

    @property
    def ends(self) -> str:
        """`3 classes, cat to eel`."""
        return f"{len(self.classes)} classes, {self.classes[0]} to {self.classes[-1]}"

    def in_order_of(self, classes: Sequence[str]) -> UserPredictions:
        """The same with the columns of these classes. Raises FieldError for other classes."""
        if self.classes == tuple(classes):
            return self
        if sorted(self.classes) != sorted(classes):
            found = f"has {self.ends}; the other has {len(classes)}, {classes[0]} to {classes[-1]}"
            raise FieldError("classes", found, "Compare models of the same classes.")
        order = [self.classes.index(name) for name in classes]
        numbers = np.argsort(order)[self.predictions.labels.numpy()]
        scores = self.scores[:, order]
        return self._with(scores, numbers, self.predictions.groups, tuple(classes))

    def in_rows(self, rows: Sequence[int], ids: tuple[str, ...]) -> UserPredictions:
        """The same with the samples in this order, and their ids."""
        own = self.predictions
        groups = None if own.groups is None else own.groups[rows]
        moved = self._with(self.scores[rows], own.labels[rows], groups, self.classes)
        return replace(moved, ids=ids)

    @property
    def kind(self) -> str:
        """What the scores are: `logits` or `probs`."""
        return "logits" if self.predictions.probs is None else "probs"

    @property
    def scores(self) -> Tensor:
        """As they were given, [N, K]."""
        own = self.predictions
        return own.logits if own.probs is None else own.probs

    def _with(
        self, scores: Tensor, labels: Any, groups: Any, classes: tuple[str, ...]
    ) -> UserPredictions:
        given: dict[str, Any] = {self.kind: scores, "labels": labels, "groups": groups}
        return replace(self, predictions=Predictions.of(**given), classes=classes)


def given(
    labels: Any,
    *,
    probs: Any = None,
    logits: Any = None,
    groups: Any = None,
    classes: Sequence[Any] | None = None,
    weights: Any = None,
    ids: Any = None,
    ignore: str | None = None,
) -> UserPredictions:
    """Check what was given. ignore: the label of samples that do not count. Raises FieldError.

    labels [N] with probs or logits [N, K]; of two classes also probs [N] of the second; of maps
    [N, H, W] with [N, K, H, W], whose pixels belong together. Classes are named by `classes`, in
    the order of the columns, or by the columns of a DataFrame. Labels are names, or numbers: of
    `classes` from 0, of a DataFrame those in the columns' names (`p_10`).
    """
    if (logits is None) == (probs is None):
        found = "neither is given" if probs is None else "both are given"
        raise FieldError("probs, logits", found, "Give one of them: probs=... or logits=...")
    kind = "logits" if probs is None else "probs"
    brought = {"labels": labels, kind: logits if probs is None else probs}
    beside = {"groups": groups, "weights": weights, "ids": ids}
    brought |= {name: value for name, value in beside.items() if value is not None}
    refuse_other_order(brought)
    names = _names(classes, brought[kind])
    arrays = {name: _array(name, value) for name, value in brought.items()}
    arrays, divided, notes = _in_rows(kind, arrays, names)
    _check_lengths(kind, arrays)
    columns = arrays[kind].shape[1]
    if names and len(names) != columns:
        found = f"{len(names)} names for {count_of(columns, 'columns')}"
        raise FieldError("classes", found, "Name the class of each column, in their order.")
    if ignore is not None:
        kept = texts_of(arrays["labels"]) != ignore
        notes.append(f"{count_of(int((~kept).sum()), 'samples')} of label {ignore} left out.")
        arrays = {name: values[kept] for name, values in arrays.items()}
    if not len(arrays[kind]):
        raise FieldError("labels", "there is no sample", "Give one at least.")
    if names and classes is None and _are_numbers(arrays["labels"]):
        arrays[kind] = arrays[kind][:, _order(kind, names)]
        names = tuple(map(str, range(columns)))
    ids_of = arrays.pop("ids", None)
    weighed = _checked_weights(arrays.pop("weights", None))
    arrays["labels"] = _numbers(arrays["labels"], names)
    try:
        made = Predictions.of(**arrays)
    except FieldError as error:
        raise error.at(kind) if error.path == "Predictions" else error from None
    names = names or tuple(map(str, range(columns)))
    return UserPredictions(
        made,
        names,
        None if ids_of is None else tuple(texts_of(ids_of).tolist()),
        weighed,
        divided,
        (*notes, *of_one_class(made, names)),
    )


def of_one_class(predictions: Predictions, names: Sequence[str]) -> list[str]:
    """The note that all labels are of one class, where they are."""
    labels = predictions.labels
    if len(labels) < 2 or int(labels.min()) < int(labels.max()):
        return []
    return [f"Every label is {names[int(labels[0])]}."]


def _array(name: str, value: Any) -> np.ndarray:
    """A copy, which the caller cannot change any more. Raises FieldError."""
    if np.ma.isMaskedArray(value) and np.ma.getmaskarray(value).any():
        row = int(np.argwhere(np.ma.getmaskarray(value))[0][0])
        raise FieldError(name, f"row {row}: it is masked", "Fill it, or remove the row.")
    return np.array(array_of(name, value))


def _in_rows(
    kind: str, arrays: dict[str, np.ndarray], names: Sequence[str]
) -> tuple[dict[str, np.ndarray], str, list[str]]:
    """Maps as pixels and one column as two, what a temperature divides, and what is said of it."""
    scores = arrays[kind]
    if not scores.ndim:
        raise FieldError(kind, "is no array", "Give numbers [N, K].")
    divided = "logits" if kind == "logits" else "log-probabilities"
    if scores.ndim == 4:
        return _of_pixels(kind, arrays), divided, ["The pixels of a map belong together."]
    if scores.ndim == 1 or scores.shape[1:] == (1,):
        positive = names[1] if len(names) == 2 else "class 1"
        said = [f"One column of scores: the probability of {positive}."]
        both = {**arrays, kind: _both_classes(kind, scores)}
        return both, "log-odds of the scores", said
    return arrays, divided, []


def _check_lengths(kind: str, arrays: Mapping[str, np.ndarray]) -> None:
    samples = len(arrays[kind])
    for name, values in arrays.items():
        if name != kind and values.shape != (samples,):
            found = f"has the shape {list(values.shape)}; {kind} has {samples:,} rows"
            raise FieldError(name, found, "Give one value for each sample.")


def _names(classes: Sequence[Any] | None, scores: Any) -> tuple[str, ...]:
    """The names that were given, or those of a DataFrame's columns; empty: there are none."""
    if classes is None:
        columns = list(getattr(scores, "columns", ()))
        classes = () if len(columns) < 2 or columns == [*range(len(columns))] else columns
    if isinstance(classes, str | Mapping | set | frozenset) or not hasattr(classes, "__len__"):
        found = f"is a {type(classes).__name__}, which has no order of classes"
        raise FieldError("classes", found, "Give a list of names, in the order of the columns.")
    names = tuple(map(_text, classes))
    if twice := [name for name in names if names.count(name) > 1]:
        raise FieldError("classes", f"'{twice[0]}' is there twice", "Name each class once.")
    return names


def _are_numbers(labels: np.ndarray) -> bool:
    return all(map(_is_number, np.unique(texts_of(labels)).tolist()))


def _order(kind: str, columns: Sequence[str]) -> list[int]:
    """The places of the columns of class 0, 1, ..., of a DataFrame beside labels that are numbers.

    Their names are 0 to K-1, perhaps with the same text around. Raises FieldError for others.
    """
    parts = [re.fullmatch(r"(\D*)(\d{1,6})(\D*)", name) for name in columns]
    numbers = [int(part[2]) for part in parts if part]
    around = {(part[1], part[3]) for part in parts if part}
    if len(around) != 1 or sorted(numbers) != list(range(len(columns))):
        found = f"labels are numbers, and the columns are {', '.join(columns[:5])}"
        mend = f"Name the classes in the order of their numbers (classes=...), or give {kind}"
        raise FieldError(kind, found, f"{mend}.to_numpy() if the columns are in that order.")
    return np.argsort(numbers).tolist()


def _text(value: Any) -> str:
    """The name of a class, or a label, as text: 3.0 is 3."""
    is_whole = isinstance(value, float | np.floating) and float(value).is_integer()
    return str(int(value)) if is_whole else str(value)


def texts_of(values: np.ndarray) -> np.ndarray:
    """The values [N] as text; of whole numbers, also as text, without a point."""
    if values.dtype.kind == "U":
        found, place = np.unique(values, return_inverse=True)
        known = found.tolist()
        if any(map(re.compile(r"-?\d+\.0+").fullmatch, known)) and all(map(_is_number, known)):
            return np.array([_text(float(text)) for text in known])[place.reshape(values.shape)]
        return values
    if values.dtype.kind == "O":
        return np.array([_text(value) for value in values.tolist()])
    found, place = np.unique(values, return_inverse=True)
    return np.array([_text(value) for value in found.tolist()])[place.reshape(values.shape)]


def _numbers(labels: np.ndarray, names: tuple[str, ...]) -> np.ndarray:
    """The numbers of labels that are names; labels that are numbers are returned as they are.

    Of classes that are named by numbers, a label is a name.
    """
    texts, place = np.unique(texts_of(labels), return_inverse=True)
    if set(texts.tolist()) <= set(names):
        return np.array([names.index(word) for word in texts.tolist()])[place]
    is_number = [word.lower() in ("true", "false") or _is_number(word) for word in texts.tolist()]
    if all(is_number) and not all(map(_is_number, names or ("",))):
        return labels
    wrong = ~np.isin(texts, names) & ~(np.array(is_number) & (not names))
    row = int(np.flatnonzero(wrong[place])[0])
    word = str(texts[place[row]])
    if word in ("None", "nan", "NaN", "<NA>", "NaT", ""):
        raise FieldError("labels", f"row {row}: it is missing", "Fill it, or remove the row.")
    if not names:
        found = f"row {row}: '{word}' is a word, and the classes have no names"
        raise FieldError("labels", found, UNNAMED)
    raise FieldError("labels", f"row {row}: '{word}' is no class", nearest(word, names))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return text.lower() not in ("nan", "inf", "-inf")


def _of_pixels(kind: str, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Of maps [N, K, H, W] a row for each pixel, and the maps as groups, unless there are some."""
    scores = arrays[kind]
    maps, classes, *size = scores.shape
    if arrays["labels"].shape != (maps, *size):
        found = f"has the shape {list(arrays['labels'].shape)}; {kind} has {list(scores.shape)}"
        raise FieldError("labels", found, "Give a mask [N, H, W] for maps [N, K, H, W].")
    pixels = math.prod(size)
    beside = {"groups": np.arange(maps), **arrays}
    rows: dict[str, Any] = {}
    for name, each in beside.items():
        if each.shape == (maps,):
            rows[name] = np.repeat(each, pixels)
        elif name in ("labels", kind) or each.shape == (maps, *size):
            rows[name] = each.ravel()
        else:
            found = f"has the shape {list(each.shape)}; {kind} has {list(scores.shape)}"
            raise FieldError(name, found, "Give one value for each map, or for each pixel.")
    rows[kind] = np.moveaxis(scores, 1, -1).reshape(-1, classes)
    return rows


def _both_classes(kind: str, scores: np.ndarray) -> np.ndarray:
    """Probabilities [N, 2] of the second class's [N]. Raises FieldError."""
    if kind == "logits":
        mend = "Give the logits of both classes, or probs=... of the second."
        raise FieldError(kind, "there is one column", mend)
    values = _numbers_at(kind, scores.reshape(-1), "the score")
    wrong = np.flatnonzero(~((values >= 0) & (values <= 1)))
    if len(wrong):
        found = f"row {wrong[0]}: {values[wrong[0]]:g} is no probability"
        raise FieldError(kind, found, "A score is in [0, 1], the probability of the second class.")
    values = values if values.dtype.kind == "f" else values.astype(float)
    return np.column_stack([1 - values, values])


def _checked_weights(weights: np.ndarray | None) -> np.ndarray | None:
    """[N] float64. Raises FieldError for one that is negative or not finite, and if all are 0."""
    if weights is None:
        return None
    values = _numbers_at("weights", weights, "the weight").astype(float)
    wrong = np.flatnonzero(~((values >= 0) & (values < np.inf)))
    if len(wrong):
        found = f"row {wrong[0]}: {values[wrong[0]]:g}"
        raise FieldError("weights", found, "A weight is a finite number from 0.")
    if not values.any():
        raise FieldError("weights", "all are 0", "Give one that is above 0.")
    return values / values.max()


def _numbers_at(name: str, values: np.ndarray, called: str) -> np.ndarray:
    try:
        return numbers_of(values, lambda _: called)
    except FieldError as error:
        raise FieldError(name, error.found, "Give numbers.") from None
