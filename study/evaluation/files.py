"""Predictions in a file whose columns (or arrays) have names of their own: which is which.

Of labels that are words, a class is what `*` of the pattern stands for. Of whole numbers, classes
are 0 to K-1, and the columns are in the order of their numbers. All else is refused.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from study.evaluation.user_predictions import UserPredictions, given, of_one_class, texts_of
from trainables.data.shared.columns import MOST_NAMES, NUMBER, TRUTH, whole
from trainables.data.shared.groups import group_column
from trainables.files.arrays import array_headers, read_arrays
from trainables.kinds import count_of
from trainables.outputs.prediction_tables import FILL, GROUP, column_of_numbers, open_columns, told
from trainables.outputs.predictions import TABLES, WANTED, WORKING, Normalized, Predictions
from trainables.outputs.probabilities import Door, as_probs, refuse_probs
from trainables.problems import FieldError, nearest

WORD = re.compile(f"(?!{NUMBER}|{TRUTH})")


@dataclass(frozen=True)
class Columns:
    """The names that options give: columns of a csv or parquet file, arrays of an npz.

    probs, logits: a pattern with one `*`, or names with commas between; of an npz, an array. score:
    the probability of the class `positive`.
    """

    label: str | None = None
    probs: str | None = None
    logits: str | None = None
    score: str | None = None
    positive: str | None = None
    id: str | None = None
    group: str | None = None

    @property
    def scores(self) -> tuple[str, str] | None:
        """The option that names the scores, and what it says. Raises FieldError for several."""
        options = ("probs", "logits", "score")
        said = [(name, value) for name in options if (value := getattr(self, name)) is not None]
        if len(said) > 1:
            named = " and ".join(f"--{name}" for name, _ in said)
            raise FieldError(f"--{said[1][0]}", f"{named} are given", "Give one of them.")
        if self.positive is not None and self.score is None:
            raise FieldError("--positive", "is for --score", "Name the column of scores by it.")
        return said[0] if said else None


def read(
    path: Path, columns: Columns, ignore: str | None = None, normalized: Normalized | None = None
) -> UserPredictions:
    """The predictions of a csv, parquet or npz file. Raises FieldError.

    ignore: the label of samples that do not count. normalized: as in `as_probs`.
    """
    is_table = path.suffix.lower() in TABLES
    chosen = columns.scores
    if chosen is None and columns.label is None and columns.id is None:
        if is_table and path.exists():
            _suggest(path)
        if ignore is None and not _is_ours_alone(path):
            own = Predictions.load(path, normalized)
            names = tuple(map(str, range(own.logits.shape[1])))
            divided = "logits" if own.probs is None else "log-probabilities"
            return UserPredictions(
                own, names, divided=divided, notes=tuple(of_one_class(own, names))
            )
    if is_table:
        return told(path, lambda: _of_table(path, columns, ignore, normalized))
    return _of_arrays(path, columns, ignore, normalized)


# ---- npz -----------------------------------------------------------------------------------------


def _is_ours_alone(path: Path) -> bool:
    """Whether an npz has maps, or names of classes, which `Predictions` do not know."""
    if path.suffix != ".npz" or not path.exists():
        return False
    headers = array_headers(path, WANTED)
    maps = (len(headers[name][0]) == 4 for name in ("logits", "probs") if name in headers)
    return "classes" in headers or any(maps)


def _of_arrays(
    path: Path, columns: Columns, ignore: str | None, normalized: Normalized | None
) -> UserPredictions:
    arrays = read_arrays(path, WANTED, working=WORKING)
    kind, name = columns.scores or (("logits",) * 2 if "logits" in arrays else ("probs",) * 2)
    wanted = {"scores": name, "labels": columns.label or "labels"}
    if columns.id is not None:
        wanted["ids"] = columns.id
    for each in wanted.values():
        if each not in arrays:
            mend = nearest(each, arrays)
            raise FieldError(str(path), f"has no array '{each}'", mend)
    found = {what: arrays[each] for what, each in wanted.items()}
    groups = columns.group or "groups"
    if columns.group is not None and groups not in arrays:
        raise FieldError(str(path), f"has no array '{groups}'", nearest(groups, arrays))
    if groups in arrays:
        found["groups"] = arrays[groups]
    classes = arrays["classes"].tolist() if "classes" in arrays else None
    return _checked(path, kind, found, classes, columns, ignore, normalized)


# ---- csv and parquet -----------------------------------------------------------------------------


def _of_table(
    path: Path, columns: Columns, ignore: str | None, normalized: Normalized | None
) -> UserPredictions:
    source = open_columns(path)
    names = list(source.schema().names)
    kind, said = columns.scores or ("logits" if "logit_0" in names else "probs", "")
    label = "label" if columns.label is None else columns.label
    wanted = [label, *([] if columns.id is None else [columns.id])]
    for option, name in zip(("label", "id"), wanted, strict=False):
        _check_column(f"--{option}", name, names)
    if kind == "score":
        _check_column("--score", said, names)
        chosen = {said: ""}
    else:
        if not said and not {"logit_0", "prob_0"}.intersection(names):
            lacking = "has no columns 'logit_0', ... or 'prob_0', ..."
            raise FieldError("", lacking, f"Name those of the scores: {_words_for(source, label)}")
        chosen = _matched(f"--{kind}", said or f"{kind[:-1]}_*", names, wanted)
    is_twice = columns.group is not None and columns.group in (*chosen, label)
    if len({*chosen, *wanted}) < len(chosen) + len(wanted) or is_twice:
        raise FieldError("", "one column is named for two things", "Name each by its own option.")
    group = columns.group or GROUP
    if columns.group is not None:
        _check_column("--group", group, names)
    # That of the ids may be it too.
    groups = [group] if group in names and group not in (*chosen, label) else []
    table = source.read([*dict.fromkeys([*chosen, *wanted, *groups])])
    if not table.num_rows:
        raise FieldError("", "has no rows", "Give each sample a row.")
    notes = []
    if ignore == "":
        words = pc.utf8_trim_whitespace(pc.cast(table.column(label), pa.string()))
        labelled = table.filter(pc.fill_null(pc.not_equal(words, ""), False))
        count = count_of(table.num_rows - labelled.num_rows, "samples")
        notes = [f"{count} without a label left out."]
        table, ignore = labelled, None
        if not table.num_rows:
            raise FieldError("--ignore", f"no row has a '{label}'", "Measure once some have.")
    labels = _words(path, label, table.column(label))
    labels = _of_truth(labels, [*chosen.values(), *chosen])
    counted = labels if ignore is None else labels[labels != ignore]
    classes: list[str] | None = None
    if kind != "score":
        chosen, classes = _in_order(kind, chosen, np.unique(counted).tolist(), label)
    scores = [column_of_numbers(path, table, name) for name in chosen]
    found = {"scores": np.column_stack(scores), "labels": labels}
    if columns.id is not None:
        found["ids"] = _words(path, columns.id, table.column(columns.id))
    if groups:
        own = group_column(path, table.column(group), FILL)
        found["groups"] = np.array(own.to_pylist(), None if pa.types.is_integer(own.type) else str)
    made = _checked(path, kind, found, classes, columns, ignore, normalized)
    return replace(made, notes=(*notes, *made.notes))


def _of_truth(labels: np.ndarray, names: Sequence[str]) -> np.ndarray:
    """Labels that are true or false as 1 and 0, unless columns are called so."""
    known = set(np.unique(labels).tolist())
    if known <= set(names) or not all(re.match(TRUTH, text) for text in known):
        return labels
    return np.where(np.char.lower(labels) == "true", "1", "0")


def _check_column(option: str, name: str, names: Sequence[str]) -> None:
    if name not in names:
        mend = nearest(name, names[:MOST_NAMES])
        raise FieldError(option, f"there is no column '{name}'", mend)


def _words(path: Path, name: str, column: Any) -> np.ndarray:
    """The column as text, [N]. Raises FieldError for a missing value."""
    values = whole("", f"value of '{name}'", FILL, path, column)
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        return texts_of(np.array(values.to_pylist(), str))
    return texts_of(np.asarray(values.to_numpy(zero_copy_only=False)))


def _matched(option: str, said: str, names: Sequence[str], others: Sequence[str]) -> dict[str, str]:
    """By column, what `*` stands for in it; of a list of columns nothing. Raises FieldError."""
    if "*" not in said:
        listed = [name.strip() for name in said.split(",")]
        for name in listed:
            _check_column(option, name, names)
        chosen = dict.fromkeys(listed, "")
        if len(chosen) < len(listed):
            raise FieldError(option, f"'{said}' has a column twice", "Name each class's once.")
    else:
        before, _, after = said.partition("*")
        if "*" in after:
            raise FieldError(option, f"'{said}' has several *", "Put one in place of the class.")
        pattern = re.compile(f"{re.escape(before)}(.+){re.escape(after)}", re.DOTALL)
        chosen = {name: fits[1] for name in names if (fits := pattern.fullmatch(name))}
    if caught := [name for name in others if name in chosen]:
        mend = f"List the columns of scores instead: {option} p_cat,p_dog"
        raise FieldError(option, f"'{said}' also matches the column '{caught[0]}'", mend)
    if len(chosen) < 2:
        found = f"'{said}' matches {'one column' if chosen else 'no column'}"
        mend = "Name a single score of two classes by --score."
        raise FieldError(option, found, mend if chosen else nearest(said, names[:MOST_NAMES]))
    return chosen


def _in_order(
    kind: str, chosen: Mapping[str, str], labels: Sequence[str], label: str
) -> tuple[dict[str, str], list[str]]:
    """The columns in the order of the classes, and the names of these. Raises FieldError."""
    columns = list(chosen)
    stands = [chosen[name] or name for name in columns]
    listed = f"List the columns in the order of the classes: --{kind} {','.join(columns[:3])}"
    listed += ",..." if len(columns) > 3 else ""
    if (words := [text for text in labels if WORD.match(text)]) or set(labels) <= set(stands):
        if lacking := [word for word in words if word not in stands]:
            known = f"{', '.join(stands[:10])}{', ...' if len(stands) > 10 else ''}"
            found = f"'{lacking[0]}' in '{label}' has no column: the classes are {known}"
            mend = f"Put * in place of the class: --{kind} 'p_*' matches p_{lacking[0]}."
            raise FieldError("--label", found, mend)
        return dict(chosen), stands
    if not all(chosen.values()):  # they are listed, in order
        return dict(chosen), [str(number) for number in range(len(columns))]
    if not all(re.fullmatch("[0-9]{1,6}", text) for text in stands):
        found = f"'{label}' holds numbers, and the columns are named by words"
        raise FieldError(f"--{kind}", found, f"{listed}.")
    ordered = sorted(columns, key=lambda name: int(chosen[name]))
    numbers = [int(chosen[name]) for name in ordered]
    if numbers != list(range(len(numbers))):
        found = f"the columns are numbered {numbers[0]} to {numbers[-1]}"
        listed = "Count classes from 0, in the columns' names and in the labels"
        if numbers[0] == 0:
            gap = next(place for place, number in enumerate(numbers) if place != number)
            found = f"class {gap} has no column, or two"
            listed = "Give each class one column, numbered from 0"
        raise FieldError(f"--{kind}", f"{found}; labels count from 0", f"{listed}.")
    return {name: chosen[name] for name in ordered}, list(map(str, numbers))


# ---- both ----------------------------------------------------------------------------------------


def _checked(
    path: Path,
    kind: str,
    found: dict[str, np.ndarray],
    classes: Sequence[str] | None,
    columns: Columns,
    ignore: str | None,
    normalized: Normalized | None,
) -> UserPredictions:
    """What was read, as Python's `evaluate` checks it; its errors name the file."""
    scores = found.pop("scores")
    if kind == "score":
        classes = _two_classes(columns, found["labels"], ignore)
        kind = "probs"
    elif scores.ndim == 2 and scores.dtype.kind in "fiu" and np.isfinite(scores).all():
        door = Door(
            str(path),
            "the columns of --probs",
            "If they are logits, name them by --logits.",
            "Name them by --probs.",
            "If they were rounded, --normalize divides each row by its sum.",
        )
        if kind == "logits":
            refuse_probs(scores, door)
        else:
            as_probs(scores, door, normalized)
    if normalized is not None and kind == "probs":
        scores = scores / scores.sum(axis=1, keepdims=True, dtype=np.float64)
    labels = found.pop("labels")
    brought_in: dict[str, Any] = {kind: scores, "classes": classes, "ignore": ignore, **found}
    try:
        return given(labels, **brought_in)
    except FieldError as error:
        what = f"{error.path}: " if error.path and error.path != "labels" else ""
        said = f"'{columns.label}': " if error.path == "labels" and columns.label else what
        raise FieldError(str(path), f"{said}{error.found}", error.mend) from None


def _two_classes(columns: Columns, labels: np.ndarray, ignore: str | None) -> list[str] | None:
    """The names of the other class and of the positive one; None: they are 0 and 1."""
    words = [text for text in np.unique(texts_of(labels)).tolist() if text != ignore]
    positive = columns.positive
    if positive is None:
        if any(map(WORD.match, words)):
            found = f"'{columns.label or 'label'}' holds words: {', '.join(words[:5])}"
            raise FieldError("--positive", found, f"Name the scored one: --positive {words[-1]}")
        return None
    others = [word for word in words if word != positive]
    if len(others) > 1:
        found = f"the labels besides '{positive}' are {', '.join(others[:5])}, not one class"
        mend = nearest(positive, words)
        if positive in words:
            mend = "Of more classes, name all columns: --probs 'p_*'."
        raise FieldError("--positive", found, mend)
    return [others[0] if others else f"not {positive}", positive]


def _suggest(path: Path) -> None:
    """Raise FieldError for a table without the usual columns that options would fit, and say so."""
    source = told(path, lambda: open_columns(path))
    names = list(told(path, source.schema).names)
    if "label" in names and {"logit_0", "prob_0"} & {*names}:
        return
    words = _words_for(source)
    if "--label" in words:
        found = f"has columns {', '.join(names[:12])}{', ...' if len(names) > 12 else ''}"
        raise FieldError(str(path), found, f"Name its columns: {words}")


def _words_for(source: Any, label: str | None = None) -> str:
    """The command that would fit the columns, by what they look like."""
    schema = source.schema()
    numeric = [name for name in schema.names if not pa.types.is_string(schema.field(name).type)]
    option = _likely_scores([name for name in numeric if name != label])
    if option is None:
        return "--probs 'p_*'"
    kind, pattern, stands = option
    label = label or _likely_label([name for name in schema.names if name not in stands])
    words = ["calstudy", "evaluate", str(source.file), "--label", label, f"--{kind}"]
    return f"{shlex.join(words)} '{pattern}'"


def _likely_scores(numeric: Sequence[str]) -> tuple[str, str, list[str]] | None:
    """The option, the pattern and the columns that look like scores, by their names."""
    groups: dict[str, list[str]] = {}
    for name in numeric:
        if parts := re.fullmatch(r"(.*[_\-. ]|[A-Za-z]+)([^_\-. ]+)", name):
            groups.setdefault(parts[1], []).append(name)
    prefix, columns = max(groups.items(), key=lambda item: len(item[1]), default=("", []))
    if len(columns) > 1:
        kind = "logits" if re.match(r"(logit|z)", prefix, re.I) else "probs"
        return kind, f"{prefix}*", columns
    single = [
        name for name in numeric if re.match(r"(p|prob|probability|score|proba)$", name, re.I)
    ]
    return ("score", single[0], single) if single else None


def _likely_label(names: Sequence[str]) -> str:
    likely = re.compile(r"(label|target|truth|true|class|y)", re.I)
    scored = sorted(names, key=lambda name: ("pred" in name.lower(), not likely.search(name)))
    return scored[0] if scored else "LABEL"
