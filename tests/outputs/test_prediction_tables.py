"""Predictions of a csv or parquet file are those of an npz with the same numbers."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.metrics import accuracy_score, log_loss

from trainables.outputs.predictions import Predictions, has_groups, load_scores
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
    assert torch.equal(load_scores(tmp_path / f"p{ending}").logits, found.logits)


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


def test_whole_numbers_are_logits(tmp_path: Path) -> None:
    frame = pd.DataFrame({"label": [0, 1], "logit_0": [3, 0], "logit_1": [-1, 2]})
    frame.to_parquet(tmp_path / "p.parquet")
    assert Predictions.load(tmp_path / "p.parquet").logits.tolist() == [[3.0, -1.0], [0.0, 2.0]]


GOOD = frame_of("logit")
PROBS = frame_of("prob")
GIVE = "Give `label`, and `logit_0`, `logit_1`, ... or `prob_0`, `prob_1`, ..."
BAD = [
    (
        GOOD[["file", "weight"]],
        "has no columns 'logit_0', ... or 'prob_0', ..., and no column 'label'. It has file,"
        f" weight. {GIVE}",
    ),
    (GOOD.drop(columns=["logit_1"]), "has no column 'logit_1'. It has file, logit_2, logit_0,"),
    (GOOD.assign(label="cat"), "row 0: 'label' is 'cat', no number. Write numbers; a label is"),
    (GOOD.assign(label=GOOD.label + 0.5), f"row 0: 'label' is {GOOD.label[0] + 0.5:g}, not one of"),
    (
        GOOD.assign(label=np.arange(40) // 7),
        "row 21: 'label' is 3, not one of 0..2. A label is the",
    ),
    (GOOD.assign(label=-1), "row 0: 'label' is -1, not one of 0..2."),
    (GOOD.assign(label=[None, *GOOD.label[1:]]), "row 0: the value of 'label' is missing."),
    (
        GOOD.rename(columns={"logit_0": "prob_0"}),
        "has columns of logits ('logit_0', ...) and of probabilities ('prob_0', ...). Leave one",
    ),
    (GOOD.assign(group=[None, *range(39)]), "row 0: the group is missing."),
    (GOOD[:0], "has no rows. Give each sample a row."),
    (
        GOOD[["logit_0", "label"]],
        "has one class, 'logit_0'. Give two or more: 'logit_0', 'logit_1'",
    ),
    (
        GOOD.assign(logit_1=[*GOOD.logit_1[:39], np.inf]),
        "row 39: 'logit_1' is inf. Give finite numbers, or remove the row.",
    ),
    (
        PROBS.assign(prob_2=[*PROBS.prob_2[:5], PROBS.prob_2[5] + 1, *PROBS.prob_2[6:]]),
        "row 5: 'prob_0' to 'prob_2' sum to 2, not 1. If they are logits, name the columns"
        " 'logit_0', 'logit_1', ...",
    ),
    (
        PROBS.assign(prob_0=0.5, prob_1=-0.25, prob_2=0.75),
        "row 0: 'prob_1' is -0.25, less than 0. If they are logits",
    ),
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
    assert said in str(caught.value) and str(caught.value).startswith(str(file))
    assert str(caught.value).count(str(file)) == 1


def test_what_is_no_table_is_said(tmp_path: Path) -> None:
    broken = tmp_path / "p.parquet"
    broken.write_bytes(b"no")
    semicolons = tmp_path / "semi.csv"
    semicolons.write_text("label;logit_0;logit_1\n0;1;2\n")
    other = tmp_path / "p.tsv"
    other.write_text("label\tlogit_0\tlogit_1\n")
    said = {
        broken: f"{broken} cannot be read as parquet:",
        semicolons: f"{semicolons}: its header has no comma, but ';'. Save it with commas",
        other: f"{other}: is no npz. Give an npz with `logits` or `probs`, and `labels`, or a csv",
        tmp_path / "none.csv": f"{tmp_path / 'none.csv'}: there is no such file.",
        tmp_path
        / "sem.csv": f"{tmp_path / 'sem.csv'}: there is no such file. Did you mean 'semi.c",
    }
    for file, message in said.items():
        with pytest.raises(FieldError) as caught:
            Predictions.load(file)
        assert str(caught.value).startswith(message) and str(caught.value).count(str(file)) == 1


def test_the_first_label_of_no_class_in_an_npz(tmp_path: Path) -> None:
    file = tmp_path / "p.npz"
    np.savez(file, logits=np.zeros((4, 3)), labels=[0, 2, 3, -1])
    with pytest.raises(FieldError, match=r"row 2: 'labels' is 3, not one of 0\.\.2"):
        Predictions.load(file)
