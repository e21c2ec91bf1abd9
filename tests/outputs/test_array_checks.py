"""The same kinds of labels and scores are taken, or refused, from every container."""

import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from trainables.outputs.predictions import Predictions
from trainables.problems import FieldError

Read = Callable[[str, Any, Any, Path], Predictions]


def of_frame(kind: str, scores: Any, labels: Any) -> pd.DataFrame:
    columns = {
        f"{kind}_{number}": list(column) for number, column in enumerate(zip(*scores, strict=True))
    }
    return pd.DataFrame({**columns, "label": labels})


def csv(kind: str, scores: Any, labels: Any, folder: Path) -> Predictions:
    of_frame(kind, scores, labels).to_csv(folder / "p.csv", index=False)
    return Predictions.load(folder / "p.csv")


def parquet(kind: str, scores: Any, labels: Any, folder: Path) -> Predictions:
    of_frame(kind, scores, labels).to_parquet(folder / "p.parquet")
    return Predictions.load(folder / "p.parquet")


def npz(kind: str, scores: Any, labels: Any, folder: Path) -> Predictions:
    arrays = {f"{kind}s": np.asarray(scores), "labels": np.asarray(labels)}
    for name, array in arrays.items():
        if array.dtype == object:  # which an npz does not hold: as text, or not a number
            gaps = np.array([each is None for each in array.ravel()]).reshape(array.shape)
            arrays[name] = np.where(gaps, "nan", array.astype(str))
    np.savez(folder / "p.npz", **arrays)
    return Predictions.load(folder / "p.npz")


def lists(kind: str, scores: Any, labels: Any, folder: Path) -> Predictions:
    return Predictions.of(**{f"{kind}s": np.asarray(scores).tolist()}, labels=list(labels))


def arrays(kind: str, scores: Any, labels: Any, folder: Path) -> Predictions:
    return Predictions.of(**{f"{kind}s": np.asarray(scores)}, labels=np.asarray(labels))


def frames(kind: str, scores: Any, labels: Any, folder: Path) -> Predictions:
    frame = of_frame(kind, scores, labels)
    return Predictions.of(**{f"{kind}s": frame.drop(columns="label")}, labels=frame["label"])


CONTAINERS = {read.__name__: read for read in (csv, parquet, npz, lists, arrays, frames)}
every_container = pytest.mark.parametrize("read", CONTAINERS.values(), ids=CONTAINERS)

LOGITS = [[1.5, -2.0], [0.25, 3.0], [-1.0, 0.0]]
LABELS = [1, 0, 1]
NUMBER_TYPES = [
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "str", "bool"),
]
SCORE_TYPES = ["float16", "float32", "float64", "str", "object"]


@every_container
def test_labels_of_every_type_are_the_numbers_they_write(read: Read, tmp_path: Path) -> None:
    for dtype in NUMBER_TYPES:
        found = read("logit", LOGITS, np.array(LABELS).astype(dtype), tmp_path)
        assert found.labels.tolist() == LABELS and found.labels.dtype == torch.int64, dtype


@every_container
def test_scores_of_every_type_are_the_numbers_they_write(read: Read, tmp_path: Path) -> None:
    for dtype in SCORE_TYPES:
        scores = np.array(LOGITS).astype(dtype)
        if dtype == "object":
            scores = np.array([[Decimal(value) for value in row] for row in LOGITS])
        found = read("logit", scores, LABELS, tmp_path)
        assert found.logits.tolist() == LOGITS, dtype
        assert found.logits.dtype in (torch.float32, torch.float64), dtype


@pytest.mark.parametrize("read", [npz, arrays])
def test_the_order_of_bytes_does_not_matter(read: Read, tmp_path: Path) -> None:
    found = read("logit", np.array(LOGITS, ">f8"), np.array(LABELS, ">i4"), tmp_path)
    assert found.logits.tolist() == LOGITS and found.labels.tolist() == LABELS


@every_container
@pytest.mark.parametrize("dtype", ["int8", "uint64", "bool"])
def test_whole_numbers_are_scores(read: Read, dtype: str, tmp_path: Path) -> None:
    found = read("prob", np.array([[1, 0], [0, 1]]).astype(dtype), [0, 1], tmp_path)
    assert found.logits.exp().tolist() == [[1.0, 0.0], [0.0, 1.0]]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_tensors_are_the_numbers_they_hold(dtype: torch.dtype) -> None:
    logits = torch.tensor(LOGITS, dtype=dtype, requires_grad=True)
    for kind in (torch.int8, torch.bool, torch.bfloat16):
        found = Predictions.of(logits=logits, labels=torch.tensor(LABELS).to(kind), groups=LABELS)
        assert found.logits.tolist() == LOGITS and found.labels.tolist() == LABELS
        assert found.groups is not None and found.groups.tolist() == [0, 1, 0]


GOOD = np.tile([0.7, 0.2, 0.1], (5, 1))
NAMES = [0, 1, 2, 0, 1]


def with_score(value: Any, row: int, column: int = 1) -> list[list[Any]]:
    rows: list[list[Any]] = GOOD.tolist()
    rows[row][column] = value
    return rows


WRONG: dict[str, tuple[str, Any, Any, str]] = {
    "a word": ("prob", GOOD, ["0", "1", "2", "cat", "0"], "row 3"),
    "a label's fraction": ("prob", GOOD, [0, 1, 2, 0, 1.5], "row 4"),
    "a label beyond": ("prob", GOOD, [0, 1, 3, 0, 7], "row 2"),
    "a negative label": ("prob", GOOD, [0, 1, 2, 0, -1], "row 4"),
    "a label that is missing": ("prob", GOOD, [0, 1, 2, None, 0], "row 3"),
    "a label that is none": ("prob", GOOD, [0.0, np.nan, 2, 1, 0], "row 1"),
    "two truth values for three classes": ("prob", GOOD, [True, False] * 2 + [True], "row 0"),
    "a score's word": ("logit", np.array(with_score("high", 4)), NAMES, "row 4"),
    "a score that is missing": ("logit", with_score(None, 3), NAMES, "row 3"),
    "not a number": ("logit", with_score(np.nan, 2), NAMES, "row 2"),
    "infinity": ("logit", with_score(np.inf, 4), NAMES, "row 4"),
    "minus infinity": ("logit", with_score(-np.inf, 4), NAMES, "row 4"),
    "beyond float32": ("logit", with_score(1e39, 3), NAMES, "row 3"),
    "below float32": ("logit", with_score(-1e39, 3), NAMES, "row 3"),
    "less than 0": ("prob", with_score(-0.25, 3), NAMES, "row 3"),
    "less than 0 in the last row": ("prob", with_score(-0.25, 4), NAMES, "row 4"),
    "less than 0, with the sum 1": ("prob", [*GOOD[:4], [1.25, -0.25, 0]], NAMES, "row 4"),
    "less than 0 twice": ("prob", [*GOOD[:3], [2, -1, 0], [1.5, -0.5, 0]], NAMES, "row 3"),
    "more than 1": ("prob", with_score(1.5, 4), NAMES, "row 4"),
    "not finite": ("prob", with_score(np.nan, 4), NAMES, "row 4"),
    "percentages": ("prob", GOOD * 100, NAMES, "row 0"),
}


@every_container
def test_the_row_of_what_is_wrong_is_named(read: Read, tmp_path: Path) -> None:
    for name, (kind, scores, labels, row) in WRONG.items():
        with pytest.raises(FieldError) as caught:
            read(kind, scores, labels, tmp_path)
        assert re.findall(r"row \d+", caught.value.found) == [row], name


def test_what_is_said_of_it(approved: Any, tmp_path: Path) -> None:
    said = []
    for name, (kind, scores, labels, _) in WRONG.items():
        for read in (csv, arrays) if name != "more than 1" else ():  # their sums are
            with pytest.raises(FieldError) as caught:
                read(kind, scores, labels, tmp_path)
            said.append(str(caught.value))
    approved("\n".join(said))


@pytest.mark.parametrize("read", [npz, csv, lists])
def test_the_largest_float32_is_a_logit(read: Read, tmp_path: Path) -> None:
    least = float(np.finfo(np.float32).min)
    for value in (least, -3.4028235e38):  # as float32 prints it, a little larger
        found = read("logit", [[value, 1.0], [1.0, 0.0]], [1, 0], tmp_path)
        assert found.logits.float().isfinite().all() and found.evaluate()["nll"] < 1


def test_bfloat16_of_an_npz_is_refused_with_the_mend(tmp_path: Path) -> None:
    raw = torch.tensor(LOGITS).bfloat16().view(torch.int16).numpy().view("V2")  # as NumPy saves it
    np.savez(tmp_path / "p.npz", logits=raw, labels=LABELS)
    with pytest.raises(FieldError, match="float32"):
        Predictions.load(tmp_path / "p.npz")


@every_container
def test_one_row_of_one_class_with_certainty_is_measured(read: Read, tmp_path: Path) -> None:
    found = read("prob", [[0.0, 1.0]], [1], tmp_path).evaluate()
    assert (found["accuracy"], found["nll"], found["ece"], found["ts_nll"]) == (1, 0, 0, 0)


def test_rows_whose_label_cannot_occur_are_named() -> None:
    probs = torch.eye(2)[[0, 1, 0, 1]]
    found = Predictions.of(probs=probs, labels=[1, 1, 0, 0])
    assert found.impossible().tolist() == [0, 3]
    assert found.evaluate()["nll"] == np.inf


def test_the_constructor_takes_checked_tensors_alone() -> None:
    for given in (np.array(LOGITS), torch.tensor(LOGITS).half()):
        with pytest.raises(FieldError) as caught:
            Predictions(given, torch.tensor(LABELS))  # type: ignore[arg-type]
        assert caught.value.path == "logits"
    with pytest.raises(FieldError) as caught:
        Predictions(torch.tensor(LOGITS), torch.tensor(LABELS).int())
    assert caught.value.path == "labels"


def test_arguments_that_do_not_fit_are_named() -> None:
    frame = pd.DataFrame(LOGITS)
    wrong = {
        "logits, probs": {"labels": LABELS},
        "labels": {"logits": frame, "labels": pd.Series(LABELS, index=[2, 1, 0])},
        "logits": {"logits": [[1.0, 2.0], [1.0]], "labels": [0, 1]},
        "groups": {"logits": LOGITS, "labels": LABELS, "groups": ["a", "", "b"]},
    }
    for path, given in wrong.items():
        with pytest.raises(FieldError) as caught:
            Predictions.of(**given)
        assert caught.value.path == path
