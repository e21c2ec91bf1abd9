"""Predictions of a csv or parquet file are those of an npz with the same numbers."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.metrics import accuracy_score, log_loss

from trainables.outputs.predictions import Predictions, has_groups, load_logits
from trainables.problems import FieldError

Write = Callable[[pd.DataFrame, Path], None]
WRITERS: dict[str, Write] = {
    ".csv": lambda frame, file: frame.to_csv(file, index=False),
    ".CSV": lambda frame, file: frame.to_csv(file, index=False),
    ".parquet": lambda frame, file: frame.to_parquet(file),
}


def frame_of(kind: str, classes: int = 3) -> pd.DataFrame:
    """Columns in no order, and two that nobody asks for."""
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(40, classes))
    if kind == "prob":
        scores = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    columns = {f"{kind}_{number}": scores[:, number] for number in reversed(range(classes))}
    labels = rng.integers(0, classes, 40)
    names = [f"scan {number}" for number in range(40)]
    return pd.DataFrame({"file": names, **columns, "label": labels, "weight": 1.0})


@pytest.mark.parametrize("ending", WRITERS)
@pytest.mark.parametrize("kind", ["logit", "prob"])
def test_values_equal_sklearns(kind: str, ending: str, tmp_path: Path) -> None:
    frame = frame_of(kind, 11)
    WRITERS[ending](frame, tmp_path / f"p{ending}")
    found = Predictions.load(tmp_path / f"p{ending}")
    scores = frame[[f"{kind}_{number}" for number in range(11)]].to_numpy()
    probs = np.exp(scores) / np.exp(scores).sum(1, keepdims=True) if kind == "logit" else scores
    values = found.evaluate()
    assert values["nll"] == pytest.approx(log_loss(frame.label, probs, labels=range(11)), abs=1e-12)
    assert values["accuracy"] == accuracy_score(frame.label, probs.argmax(1))
    assert found.groups is None and not has_groups(tmp_path / f"p{ending}")
    assert torch.equal(load_logits(tmp_path / f"p{ending}"), found.logits)


@pytest.mark.parametrize("ending", WRITERS)
@pytest.mark.parametrize("groups", [[7, 7, 3] * 13 + [3], ["b", "b", "007"] * 13 + ["007"]])
def test_groups_are_a_column(ending: str, groups: list[object], tmp_path: Path) -> None:
    file = tmp_path / f"p{ending}"
    WRITERS[ending](frame_of("logit").assign(group=groups), file)
    found = Predictions.load(file).groups
    assert found is not None and found.tolist() == [0, 0, 1] * 13 + [1] and has_groups(file)


@pytest.mark.parametrize("ending", WRITERS)
def test_whole_numbers_in_floats_are_labels(ending: str, tmp_path: Path) -> None:
    frame = frame_of("logit")
    WRITERS[ending](frame.assign(label=frame.label.astype(float)), tmp_path / f"p{ending}")
    assert Predictions.load(tmp_path / f"p{ending}").labels.tolist() == frame.label.tolist()


GOOD = frame_of("logit")
GIVE = "Give `label`, and `logit_0`, `logit_1`, ... or `prob_0`, `prob_1`, ..."
BAD = [
    (
        GOOD[["file", "weight"]],
        "has no columns 'logit_0', ... or 'prob_0', ..., and no column 'label'. It has file,"
        f" weight. {GIVE}",
    ),
    (GOOD.drop(columns=["logit_1"]), "has no column 'logit_1'. It has file, logit_2, logit_0,"),
    (GOOD.assign(label="cat"), "row 0: 'label' is 'cat', no number. Write numbers; a label is"),
    (GOOD.assign(label=GOOD.label + 0.5), "'labels' must be whole numbers, got"),
    (GOOD.assign(label=GOOD.label + 1), "'labels' must lie in 0..2, got 1..3"),
    (GOOD.assign(label=[None, *GOOD.label[1:]]), "row 0: the value of 'label' is missing."),
    (GOOD.rename(columns={"logit_0": "prob_0"}), "has no column 'logit_0'. It has file,"),
    (GOOD.assign(group=[None, *range(39)]), "row 0: the group is missing."),
    (GOOD[:0], "'logits' is empty"),
]


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
@pytest.mark.parametrize(("frame", "said"), BAD, ids=[said[:30] for _, said in BAD])
def test_what_is_wrong_is_named(
    frame: pd.DataFrame, said: str, ending: str, tmp_path: Path
) -> None:
    file = tmp_path / f"bad{ending}"
    WRITERS[ending](frame, file)
    with pytest.raises(FieldError) as caught:
        Predictions.load(file)
    assert said in str(caught.value) and str(file) in str(caught.value)


def test_what_is_no_table_is_said(tmp_path: Path) -> None:
    (tmp_path / "p.parquet").write_bytes(b"no")
    for name in ("p.parquet", "none.csv", "none.parquet"):
        with pytest.raises(FieldError, match=name):
            Predictions.load(tmp_path / name)
