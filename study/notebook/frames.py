"""Data frames as samples and labels: pandas', or whatever has its columns by name."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from study.notebook.samples import NUMBERS, array_of
from trainables.problems import FieldError, nearest


def is_frame(found: Any) -> bool:
    # Arrow and Hugging Face have `column_names`.
    return all(hasattr(found, name) for name in ("columns", "shape")) and not hasattr(
        found, "column_names"
    )


def names_of(frame: Any) -> tuple[str, ...]:
    """The columns, if all are text. Raises FieldError for two of one name."""
    found = list(frame.columns)
    name, times = Counter(found).most_common(1)[0] if found else ("", 0)
    if times > 1:
        what = f"{times} columns are called '{name}'"
        raise FieldError("", what, "Give each a name of its own, or leave it out.")
    return tuple(found) if all(isinstance(name, str) for name in found) else ()


def numbers_of(frame: Any) -> np.ndarray:
    """Its numbers [N, D]. Raises FieldError naming the columns that hold none."""
    found = array_of(frame)
    if found.dtype.kind in NUMBERS:
        return found
    columns = {name: np.asarray(frame[name]) for name in frame.columns}
    other = [f"'{name}'" for name, column in columns.items() if column.dtype.kind not in NUMBERS]
    if other:
        hold = "column {} holds" if len(other) == 1 else "columns {} hold"
        what = f"the {hold.format(', '.join(other[:5]))} other than numbers"
        mend = "Encode text as numbers, fill what is missing, or leave the column out."
        raise FieldError("", what, mend)
    return np.column_stack([column.astype(np.float64) for column in columns.values()])


def without_labels(frame: Any, label: str | None) -> tuple[Any, Any]:
    """The other columns, and that of the labels. Raises FieldError if there is none."""
    if label is None:
        name = "label" if "label" in list(frame.columns) else "..."
        mend = f'Name its column of labels: data={{"train": frame, "label": "{name}"}}.'
        raise FieldError("", f"is of type {type(frame).__name__}, without labels", mend)
    return without_column(frame, label)


def without_column(frame: Any, name: str) -> tuple[Any, Any]:
    """The other columns, and that one. Raises FieldError if there is none."""
    names = list(frame.columns)
    if name not in names:
        raise FieldError("", f"there is no column '{name}'", nearest(name, map(str, names)))
    names_of(frame)
    return frame[[other for other in names if other != name]], frame[name]


def check_order(samples: Any, others: Any, what: str) -> None:
    """Raise FieldError where both are pandas' and their indices differ: their rows may be in
    another order. what: `labels`."""
    if not (hasattr(samples, "iloc") and hasattr(others, "iloc")):
        return
    if samples.index.equals(others.index):
        return
    ours = list(map(repr, samples.index))
    theirs = list(map(repr, others.index))
    places = (
        place for place, pair in enumerate(zip(ours, theirs, strict=True)) if len({*pair}) > 1
    )
    place = next(places, 0)
    found = (
        f"row {place} of the samples has index {ours[place]}, that of the {what} {theirs[place]}"
    )
    mend = f"If they are in the same order, give {what}.to_numpy()."
    if sorted(ours) == sorted(theirs) and len({*ours}) == len(ours):
        mend = f"Give {what}.loc[samples.index]. {mend}"
    raise FieldError("", found, mend)
