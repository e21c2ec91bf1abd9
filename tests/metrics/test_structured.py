"""Structured vector and matrix scaling: against golden values, their slow definition, and what may
be wrong with samples.

The golden values are fits to a thousand test probabilities of two networks of CIFAR-10 (netcal's
examples, Apache-2.0), by L-BFGS and Newton in plain NumPy; CalArena's own code stops up to 2e-3
short of them.
"""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pytest import approx
from scipy.optimize import minimize
from torch import Tensor
from torch.testing import assert_close

from tests.cases import random_case
from trainables.metrics.shared import post_hoc
from trainables.metrics.shared.structured import FORMS, MATRIX, VECTOR, Structured
from trainables.problems import FieldError

HERE = Path(__file__).parents[1]
GOLDEN: dict[str, Any] = json.loads((HERE / "golden_calibrators.json").read_text())
FITTED = 1000  # rows; the next one is calibrated
every_form = pytest.mark.parametrize("form", FORMS)


def fitted(form: str, logits: Tensor, labels: Tensor) -> Structured:
    found = post_hoc.FITS[form](logits, labels)
    assert isinstance(found, Structured)
    return found


def golden_case(network: str) -> tuple[Tensor, Tensor]:
    with np.load(HERE / "golden_calibrators.npz") as arrays:
        probs = arrays[f"{network}_probs"].astype(float)
        labels = arrays[f"{network}_labels"].astype(int)
    return torch.from_numpy(probs / probs.sum(axis=1, keepdims=True)).log(), torch.tensor(labels)


def matrix_of(found: Structured) -> np.ndarray:
    weight = found.weight.numpy()
    return np.diag(weight) if weight.ndim == 1 else weight


def objective(
    logits: Tensor, labels: Tensor, temperature: float, weight: np.ndarray, bias: np.ndarray
) -> float:
    """Mean NLL and ridge, sample by sample."""
    samples, classes = logits.shape
    total = 0.0
    for row, label in zip(logits.double().numpy(), labels.tolist(), strict=True):
        scaled = row / temperature
        probs = np.exp(scaled - scaled.max())
        probs = (samples * probs / probs.sum() + 1 / classes) / (samples + 1)
        score = weight @ np.log(probs) + bias
        total += score.max() + math.log(np.exp(score - score.max()).sum()) - score[label]
    for row in range(classes):
        total += classes * bias[row] ** 2
        for column in range(classes):
            if row == column:
                total += classes * (weight[row, column] - 1) ** 2
            else:
                total += classes * (classes - 1) * weight[row, column] ** 2
    return total / samples


@every_form
@pytest.mark.parametrize("network", GOLDEN)
def test_golden_values(network: str, form: str) -> None:
    logits, labels = golden_case(network)
    expected = GOLDEN[network][form]
    found = fitted(form, logits[:FITTED], labels[:FITTED])
    temperature, bias = float(found.temperature), found.bias.numpy()
    assert temperature == approx(expected["T"], rel=1e-7)
    assert found(logits[FITTED:])[0].softmax(-1).numpy() == approx(expected["first_row"], abs=1e-6)
    at = objective(logits[:FITTED], labels[:FITTED], temperature, matrix_of(found), bias)
    assert at == approx(expected["fit_objective"], abs=1e-9)
    assert bias == approx(expected["b"], abs=1e-5)
    if form == VECTOR:
        assert np.diag(matrix_of(found)) == approx(expected["diagonal"], abs=1e-5)


@pytest.mark.slow
@every_form
@pytest.mark.parametrize("shape", [(30, 3, 2.0), (7, 2, 1.0), (3, 4, 1.0)])
def test_least_of_its_definition(shape: tuple[int, int, float], form: str) -> None:
    """SciPy's BFGS, by differences, finds no lower value. Also where samples are fewer than
    classes."""
    logits, labels = random_case(shape)
    classes = shape[1]
    found = fitted(form, logits, labels)
    temperature = float(found.temperature)

    def parts(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        weight = values[:-classes]
        square = np.diag(weight) if form == VECTOR else weight.reshape(classes, classes)
        return square, values[-classes:]

    def cost(values: np.ndarray) -> float:
        return objective(logits, labels, temperature, *parts(values))

    start = np.ones(classes) if form == VECTOR else np.eye(classes).ravel()
    best = minimize(cost, np.append(start, np.zeros(classes)), method="BFGS")
    weight, bias = parts(best.x)
    assert matrix_of(found) == approx(weight, abs=1e-4)
    assert found.bias.numpy() == approx(bias, abs=1e-4)


@every_form
def test_probabilities_are_numpys(form: str) -> None:
    """softmax(W log q + b), in NumPy; float32 logits are read as float64."""
    logits, labels = random_case((60, 5, 3.0))
    found = fitted(form, logits.float(), labels)
    scaled = logits.float().double().numpy() / float(found.temperature)
    probs = np.exp(scaled) / np.exp(scaled).sum(axis=1, keepdims=True)
    mixed = np.log((60 * probs + 1 / 5) / 61)
    expected = np.exp(mixed @ matrix_of(found).T + found.bias.numpy())
    expected /= expected.sum(axis=1, keepdims=True)
    assert found(logits.float()).softmax(-1).numpy() == approx(expected, abs=1e-12)
    assert found.num_parameters == (11 if form == VECTOR else 31)


@every_form
def test_only_probabilities_count_and_no_class_is_special(form: str) -> None:
    logits, labels = random_case((50, 4, 2.0))
    found = fitted(form, logits, labels)(logits)
    assert_close(fitted(form, logits + 30, labels)(logits - 7), found, rtol=0, atol=1e-6)
    order = torch.tensor([2, 0, 3, 1])
    moved = fitted(form, logits[:, order], order.argsort()[labels])(logits[:, order])
    assert_close(moved, found[:, order], rtol=0, atol=1e-6)


@every_form
@pytest.mark.parametrize(
    "kind",
    ["class absent", "separable", "two classes", "fewer than classes", "zeros", "all wrong"],
)
def test_samples_that_tell_little(kind: str, form: str) -> None:
    """Finite parameters near the identity's reach, and probabilities that sum to 1."""
    logits, labels = random_case((40, 4, 3.0))
    match kind:
        case "class absent":
            kept = labels != 2
            logits, labels = logits[kept], labels[kept]
        case "separable":
            labels = logits.argmax(dim=1)
        case "two classes":
            logits, labels = random_case((40, 2, 3.0))
        case "fewer than classes":
            logits, labels = logits[:2], labels[:2]
        case "zeros":  # probabilities of exactly 0 and 1; the last label has 0
            probs = torch.eye(4, dtype=torch.float64)[labels]
            labels = torch.cat([labels[:-1], (labels[-1:] + 1) % 4])
            logits = probs.log()
        case "all wrong":
            labels = logits.argmin(dim=1)
    found = fitted(form, logits, labels)
    probs = found(logits).softmax(dim=-1)
    assert bool(probs.isfinite().all()) and bool((probs > 0).all())
    assert_close(probs.sum(dim=-1), torch.ones(len(probs), dtype=torch.float64))
    assert float(found.weight.abs().max()) < 20
    if kind == "class absent":
        assert float(probs[:, 2].mean()) < 0.2
    if kind in ("separable", "zeros"):
        assert torch.equal(probs.argmax(dim=1), logits.argmax(dim=1))


@every_form
def test_nan_is_refused(form: str) -> None:
    logits, labels = random_case((10, 3, 1.0))
    logits[3, 1] = math.nan
    with pytest.raises(FieldError, match=f"{form}: .*NaN"):
        fitted(form, logits, labels)


def test_a_matrix_of_too_many_classes_is_refused() -> None:
    logits, labels = torch.zeros(20, 1000), torch.arange(20)
    with pytest.raises(FieldError, match=r"1,000 classes.* structured_vector; .*256 classes"):
        fitted(MATRIX, logits, labels)
    assert fitted(VECTOR, logits, labels)(logits).shape == (20, 1000)


@every_form
def test_cross_fitting_uses_no_group_of_its_own(form: str) -> None:
    logits, labels = random_case((60, 4, 2.0))
    groups = torch.arange(60) // 4
    found = post_hoc.cross_fitted(logits, labels, fit=post_hoc.FITS[form], groups=groups)
    for fold in range(5):
        own = groups % 5 == fold
        calibrate = fitted(form, logits[~own], labels[~own])
        assert_close(found[own], calibrate(logits[own]), rtol=0, atol=1e-9)
