"""Scores that are nearly probabilities, or no logits, are refused where they come in."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from pytest import approx

from tests.cases import random_case
from tests.study.command_line import here_apart, here_json
from trainables import metrics
from trainables.outputs.predictions import Predictions
from trainables.problems import FieldError

LOGITS, LABELS = random_case((40, 4, 3.0), 0)
EXACT = LOGITS.double().softmax(dim=-1)
BFLOAT16 = LOGITS.bfloat16().softmax(dim=-1).double()
TWO_DECIMALS = (100 * EXACT).round() / 100
NEARLY = [BFLOAT16, TWO_DECIMALS]
Write = Callable[[Path, str, torch.Tensor], Path]


def as_npz(folder: Path, kind: str, scores: torch.Tensor) -> Path:
    np.savez(folder / "p.npz", **{f"{kind}s": scores.numpy(), "labels": LABELS.numpy()})
    return folder / "p.npz"


def as_csv(folder: Path, kind: str, scores: torch.Tensor) -> Path:
    _frame(kind, scores).to_csv(folder / "p.csv", index=False)
    return folder / "p.csv"


def as_parquet(folder: Path, kind: str, scores: torch.Tensor) -> Path:
    _frame(kind, scores).to_parquet(folder / "p.parquet")
    return folder / "p.parquet"


def _frame(kind: str, scores: torch.Tensor) -> pd.DataFrame:
    return pd.DataFrame(scores.numpy()).add_prefix(f"{kind}_").assign(label=LABELS.numpy())


files = pytest.mark.parametrize("write", [as_npz, as_csv, as_parquet])


@files
@pytest.mark.parametrize("scores", NEARLY, ids=["bfloat16", "two decimals"])
def test_rounded_ones_are_refused_with_their_sums(
    write: Write, scores: torch.Tensor, tmp_path: Path
) -> None:
    file = write(tmp_path, "prob", scores)
    with pytest.raises(FieldError) as caught:
        Predictions.load(file)
    sums = scores.sum(dim=-1)
    assert f"{float(sums.min()):.4g} to {float(sums.max()):.4g}" in str(caught.value)
    assert "--normalize" in caught.value.mend and "logit" not in caught.value.mend


@files
@pytest.mark.parametrize("scores", NEARLY, ids=["bfloat16", "two decimals"])
def test_normalize_divides_and_says_by_how_much(
    write: Write, scores: torch.Tensor, tmp_path: Path
) -> None:
    file = write(tmp_path, "prob", scores)
    divided = scores / scores.sum(dim=-1, keepdim=True)
    found = here_json("evaluate", file, "--normalize")["metrics"]
    for name in ("accuracy", "brier", "ece"):
        given = metrics.measure(divided.log(), LABELS, [name], probs=divided)
        assert found[name] == approx(given[name], abs=1e-12)
    _, said = here_apart("evaluate", file, "--normalize")
    most = float((scores.sum(dim=-1) - 1).abs().max())
    assert f"off by at most {most:.3g}" in said


@files
def test_normalize_is_for_probabilities(write: Write, tmp_path: Path) -> None:
    with pytest.raises(FieldError, match="has logits"):
        Predictions.load(write(tmp_path, "logit", LOGITS), normalized=print)


@files
@pytest.mark.parametrize("scores", [EXACT, EXACT.float(), *NEARLY])
def test_logits_that_are_probabilities_are_refused(
    write: Write, scores: torch.Tensor, tmp_path: Path
) -> None:
    """Their temperature, and any calibration error, would be far off."""
    with pytest.raises(FieldError) as caught:
        Predictions.load(write(tmp_path, "logit", scores))
    assert "prob" in caught.value.mend
    with pytest.raises(FieldError) as caught:
        Predictions(scores, LABELS)
    assert "probs=" in caught.value.mend
    assert Predictions(probs=EXACT, labels=LABELS).probs is not None


@pytest.mark.parametrize(
    "logits",
    [EXACT[:1], LOGITS, LOGITS.relu(), EXACT - 1e-3, EXACT * 1.2],
    ids=["one row", "logits", "not negative", "one below 0", "another sum"],
)
def test_other_logits_are_taken(logits: torch.Tensor) -> None:
    assert Predictions(logits, LABELS[: len(logits)]).probs is None


def test_what_a_network_gave_is_never_refused(tmp_path: Path) -> None:
    """One that ends in a softmax is trained, stored and read as ever."""
    made = Predictions(EXACT.float(), LABELS, by_network=True)
    made.save(tmp_path / "p.npz")
    assert torch.equal(Predictions.stored(tmp_path / "p.npz").logits, EXACT.float())


@files
@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda p: 100 * p, "percentages"),
        (lambda p: LOGITS.double().abs() + 1, "If they are logits"),
        (lambda p: p.index_fill(0, torch.tensor([7]), 0.0), "row 7"),
    ],
    ids=["percent", "logits", "a row of zeros"],
)
def test_what_are_no_probabilities(
    write: Write, change: Callable[[torch.Tensor], torch.Tensor], says: str, tmp_path: Path
) -> None:
    """Nor does --normalize take them."""
    file = write(tmp_path, "prob", change(EXACT))
    for normalized in (None, print):
        with pytest.raises(FieldError) as caught:
            Predictions.load(file, normalized)
        assert says in str(caught.value)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -0.5])
def test_a_tensor_with_a_value_that_is_none_is_refused_by_its_row(value: float) -> None:
    probs = EXACT.clone()
    probs[7, 2] = value
    with pytest.raises(FieldError, match="row 7"):
        Predictions(probs=probs, labels=LABELS)


def test_saved_ones_are_read_as_they_were(tmp_path: Path) -> None:
    Predictions(probs=EXACT.float(), labels=LABELS).save(tmp_path / "p.npz")
    found = Predictions.load(tmp_path / "p.npz").probs
    assert found is not None and torch.equal(found, EXACT.float())


@pytest.mark.parametrize(
    "given", [{}, {"labels": LABELS}, {"labels": LABELS, "logits": LOGITS, "probs": EXACT}]
)
def test_it_takes_logits_or_probabilities(given: dict[str, torch.Tensor]) -> None:
    with pytest.raises(FieldError, match="either logits or probs"):
        Predictions(**given)
