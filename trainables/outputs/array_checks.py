"""Scores and labels as anyone gives them become arrays of one kind.

A FieldError names the first wrong row, from 0, and what stands there: `called` says what a class's
score, or the label, is called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from trainables.problems import FieldError

Called = Callable[[int], str]
# The least number that float32 rounds to infinity: halfway beyond its largest.
BEYOND = float(np.finfo(np.float32).max) * (1 + 2**-25)
ROUNDING = 1e-3  # by which a probability may exceed 1
PERCENT = 1.0  # by which percentages may miss 100
MISSING = ("NoneType", "NAType", "NaTType")
NUMBERED = "Write numbers; a label is the number of a class, from 0."
CANNOT_OCCUR = "Give probabilities: that of a class that cannot occur is 0."


def array_of(name: str, value: Any) -> np.ndarray:
    """The NumPy array of what NumPy, torch, pandas or lists hold. Raises FieldError."""
    if hasattr(value, "detach"):
        tensor = value.detach().cpu()
        is_bfloat16 = str(tensor.dtype) == "torch.bfloat16"
        return np.asarray((tensor.float() if is_bfloat16 else tensor).numpy())
    try:
        found = np.asarray(value.to_numpy() if hasattr(value, "to_numpy") else value)
    except ValueError:
        raise FieldError(name, "its rows differ in length", "Give each sample one row.") from None
    if found.dtype.kind == "O" and all(isinstance(one, str) for one in found.ravel()):
        found = found.astype(str)
    return found if found.flags.writeable else found.copy()  # torch takes it as it is


def refuse_other_order(given: Mapping[str, Any]) -> None:
    """Raise FieldError where two are pandas' and their indices differ: their rows may be in another
    order."""
    ordered = {name: one.index for name, one in given.items() if hasattr(one, "iloc")}
    for (first, index), (name, other) in pairwise(ordered.items()):
        if not other.equals(index):
            found = f"its index is not that of {first}"
            mend = f"If they are in the same order, give {name}.to_numpy()."
            raise FieldError(name, found, mend)


def numbers_of(values: np.ndarray, called: Called) -> np.ndarray:
    """The same as numbers of this machine: bool, integers, float32 or float64.

    values: [N] or [N, K], also of text and of objects. Raises FieldError.
    """
    if values.dtype.kind in "OUT":
        columns = values.shape[1] if values.ndim > 1 else 1
        return _of_objects(values.ravel(), columns, called).reshape(values.shape)
    if values.dtype.kind not in "biuf":
        found = f"are {values.dtype} {list(values.shape)}, not numbers"
        mend = "Save bfloat16 as float32." if values.dtype.kind == "V" else "Give numbers."
        raise FieldError("", f"{called(0)}: values {found}", mend)
    if values.dtype.kind != "f":
        return values
    wide = np.dtype(np.float32 if values.dtype.itemsize <= 4 else np.float64)
    return values.astype(wide, copy=False)


def _of_objects(values: np.ndarray, columns: int, called: Called) -> np.ndarray:
    import pyarrow as pa

    objects = values.tolist()
    for place, value in enumerate(objects):
        if type(value).__name__ in MISSING:
            row, column = divmod(place, columns)
            found = f"row {row}: the value of {called(column)} is missing"
            raise FieldError("", found, "Fill it, or remove the row.")
    texts = pa.array([str(value) for value in objects], pa.string())
    return numbers_in(texts, lambda place: called(place % columns), columns)


def numbers_in(texts: Any, called: Called, columns: int = 1) -> np.ndarray:
    """The numbers, or truth values, that Arrow texts without gaps write. Raises FieldError."""
    import pyarrow.compute as pc

    from trainables.data.shared.columns import TRUTH, parsed

    if len(texts) and pc.all(pc.match_substring_regex(texts, TRUTH)).as_py():
        return np.asarray(pc.equal(pc.utf8_lower(texts), "true").to_numpy(zero_copy_only=False))
    numbers, wrong = parsed(texts)
    if (true := pc.index(pc.match_substring_regex(texts, TRUTH), True).as_py()) >= 0:
        wrong = true  # one truth value among numbers is a slip
    if wrong is not None:
        found = f"row {wrong // columns}: {called(wrong)} is {texts[wrong].as_py()!r}, no number"
        raise FieldError("", found, NUMBERED)
    return np.array(numbers.to_numpy(zero_copy_only=False))


def finite(scores: np.ndarray, called: Called) -> np.ndarray:
    """The scores [N, K], of `numbers_of`, as float32 or float64. Raises FieldError for one that is
    not finite in float32."""
    if scores.dtype.kind != "f":
        scores = scores.astype(np.float64)
    if scores.min() > -BEYOND and scores.max() < BEYOND:
        return scores
    row, column = np.argwhere(~(np.abs(scores) < BEYOND))[0]
    value = scores[row, column]
    found = f"row {row}: {called(column)} is {value:g}"
    mend = "Give finite numbers, or remove the row."
    if np.isfinite(value):
        found = f"{found}, beyond the largest float32, {np.finfo(np.float32).max:.3g}"
    elif value == -np.inf:
        mend = CANNOT_OCCUR
    raise FieldError("", found, mend)


def refuse_negative(probs: np.ndarray, called: Called, mend: str) -> None:
    """Raise FieldError for the first row [K] with a value below 0, or with percentages.

    mend: what to do if they are logits.
    """
    if probs.min() >= 0 and probs.max() <= 1 + ROUNDING:
        return
    lowest: np.ndarray = probs.min(axis=1)
    is_percent = np.abs(probs.sum(axis=1, dtype=np.float64) - 100) < PERCENT
    wrong = np.flatnonzero((lowest < 0) | is_percent)
    if not len(wrong):  # their sums say it
        return
    row = wrong[0]
    if lowest[row] >= 0:
        found = f"row {row}: its probabilities sum to {probs[row].sum():.6g}, not 1"
        raise FieldError("", found, "If they are percentages, divide them by 100.")
    column = int(probs[row].argmin())
    found = f"row {row}: {called(column)} is {probs[row, column]:g}, less than 0"
    raise FieldError("", found, mend)


def class_numbers(labels: np.ndarray, num_classes: int, called: str) -> np.ndarray:
    """The labels [N], of `numbers_of`, as int64 in [0, K). Raises FieldError.

    Of two classes, false is class 0 and true class 1.
    """
    if labels.dtype.kind == "b" and num_classes != 2:
        found = f"row 0: {called} is {str(labels[0]).lower()}, and there are {num_classes} classes"
        raise FieldError("", found, "A label is the number of a class, from 0.")
    wrong = np.flatnonzero(~np.isin(labels, np.arange(num_classes)))
    if len(wrong):
        row = wrong[0]
        found = f"row {row}: {called} is {labels[row]:.10g}, not one of 0..{num_classes - 1}"
        raise FieldError("", found, "A label is the number of a class, from 0.")
    return labels.astype(np.int64)
