"""Data frames as data: pandas says which rows belong together, and calstudy does not guess."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from study.schema.errors import SpecError
from tests.study.notebook.test_objects import LABELS, ROWS, created, raw

FRAME = pd.DataFrame(ROWS, columns=list("abcde"))
SERIES = pd.Series(LABELS, name="kind")
MIXED = FRAME.sample(frac=1, random_state=0)
WHOLE = FRAME.assign(kind=SERIES)


def test_rows_in_the_same_other_order(tmp_path: Path) -> None:
    found = raw(tmp_path, (MIXED, SERIES.loc[MIXED.index])).train
    mixed = WHOLE.loc[MIXED.index]
    assert np.array_equal(found.images, mixed[list("abcde")].to_numpy())
    assert found.labels.tolist() == mixed.kind.tolist()


@pytest.mark.parametrize("name", ["kind", "label"])
def test_a_frame_and_the_name_of_its_labels(name: str, tmp_path: Path) -> None:
    frame = WHOLE.rename(columns={"kind": name})[["a", name, "b"]]
    found = raw(tmp_path, {"train": frame, "test": frame[:12], "label": name})
    assert found.columns == ("a", "b") and found.test is not None
    assert np.array_equal(found.train.images, frame[["a", "b"]].to_numpy())
    assert found.train.labels.tolist() == LABELS.tolist()
    assert found.test.labels.tolist() == LABELS[:12].tolist()


@pytest.mark.parametrize("labels", ["a column", "a pair"])
def test_the_name_of_the_column_of_groups(labels: str, tmp_path: Path) -> None:
    patients = [f"patient {number % 7}" for number in range(60)]
    frame = WHOLE.assign(patient=patients)
    data: dict[str, Any] = {"train": frame, "test": frame[:12], "label": "kind"}
    if labels == "a pair":
        data = {"train": (frame.drop(columns="kind"), SERIES)}
    found = raw(tmp_path, {**data, "groups": "patient"})
    expected = raw(tmp_path / "apart", {"train": (FRAME, SERIES), "groups": patients})
    assert found.columns == tuple("abcde")
    assert found.train.groups is not None and expected.train.groups is not None
    assert found.train.groups.tolist() == expected.train.groups.tolist()


FIRST = MIXED.index[0]
REFUSED: dict[str, tuple[Any, str]] = {
    "another order": (
        (MIXED, SERIES),
        f"train: row 0 of the samples has index {FIRST}, that of the labels 0. Give labels.loc"
        r"[samples.index]. If they are in the same order, give labels.to_numpy().",
    ),
    "another index": (
        (FRAME[20:], SERIES[20:].reset_index(drop=True)),
        "train: row 0 of the samples has index 20, that of the labels 0. If they are in the same",
    ),
    "one row": (
        (FRAME, SERIES.rename(index={7: "x"})),
        "train: row 7 of the samples has index 7, that of the labels 'x'. If they",
    ),
    "groups in another order": (
        {"train": (MIXED, SERIES.loc[MIXED.index]), "groups": SERIES},
        f"groups.train: row 0 of the samples has index {FIRST}, that of the groups 0. Give groups",
    ),
    "columns of one name": (
        (FRAME.rename(columns={"b": "a"}), SERIES),
        "train: 2 columns are called 'a'. Give each a name of its own",
    ),
    "a frame alone": (
        WHOLE,
        'train: is of type DataFrame, without labels. Name its column of labels: data={"train":'
        ' frame, "label": "..."}.',
    ),
    "a frame without it": (
        {"train": WHOLE, "label": "kin"},
        "train: there is no column 'kin'. Did you mean 'kind'?",
    ),
    "a frame without that of the groups": (
        {"train": WHOLE, "label": "kind", "groups": "patient"},
        "train: there is no column 'patient'.",
    ),
    "the name of groups without a frame": (
        {"train": (ROWS, LABELS), "groups": "patient"},
        "groups: 'patient' is the name of a column, and train is no data frame. Give an array",
    ),
    "one column": (
        (FRAME, WHOLE[["kind"]]),
        "train: labels are int64 [60, 1]. Take the column: labels.iloc[:, 0].",
    ),
    "an array of one column": (
        (ROWS, LABELS[:, None]),
        "train: labels are int64 [60, 1]. Take the column: labels[:, 0].",
    ),
    "one column of text": (
        (FRAME.assign(a="x"), SERIES),
        "train: the column 'a' holds other than numbers. Encode text",
    ),
    "text": (
        (FRAME.assign(a="x", c="y"), SERIES),
        "train: the columns 'a', 'c' hold other than numbers. Encode text",
    ),
}


@pytest.mark.parametrize(("data", "message"), REFUSED.values(), ids=list(REFUSED))
def test_what_is_refused(data: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError) as raised:
        created(tmp_path, data)
    assert f"data.{message}" in str(raised.value) and not any(tmp_path.iterdir())
