"""Classes that cannot occur: however a file says so, post-hoc calibration is the same.

Fits are compared with scipy's optimum of the likelihood, written out with the masked entries left
out of each sample's sum.
"""

import json
import math
from collections.abc import Collection
from pathlib import Path

import numpy as np
import pytest
import torch
from pytest import CaptureFixture, approx
from scipy.optimize import minimize
from torch import Tensor
from torch.testing import assert_close

from tests.cases import random_case
from tests.metrics.test_evaluate import run
from trainables import metrics
from trainables.metrics.shared import post_hoc
from trainables.metrics.shared.temperature_of_ece import behind_top

MASKS = [-1e2, -1e4, float(np.finfo("f2").min), -1e9, float(np.finfo("f4").min)]
KINDS = [
    "one of each sample",
    "most",
    "those of one sample",
    "one of all samples",
    "one of all samples but one",
]


def masked_samples(kind: str, number: int, classes: int) -> tuple[np.ndarray, ...]:
    """Logits [N, K] of a network that is too sure, labels [N], and which classes cannot occur
    [N, K], never a label's."""
    random = np.random.default_rng([number, classes, KINDS.index(kind)])
    logits = 2 * random.normal(size=(number, classes))
    probs = np.exp(0.6 * logits)
    probs /= probs.sum(axis=1, keepdims=True)
    labels = np.array([random.choice(classes, p=row) for row in probs])
    masked = np.zeros((number, classes), dtype=bool)
    if kind == "one of each sample":
        others = (labels + random.integers(1, classes, number)) % classes
        masked[np.arange(number), others] = True
    elif kind == "most":
        masked[:] = random.random(masked.shape) < 0.7
    elif kind == "those of one sample":
        masked[0] = True
    else:
        labels %= classes - 1
        if kind == "one of all samples but one":
            labels[0] = classes - 1
        masked[:, -1] = True
    masked[np.arange(number), labels] = False
    return logits, labels, masked


def with_mask(logits: np.ndarray, masked: np.ndarray, mask: float) -> Tensor:
    return torch.from_numpy(np.where(masked, logits.dtype.type(mask), logits))


def as_probs(logits: np.ndarray, masked: np.ndarray) -> np.ndarray:
    probs = np.where(masked, 0.0, np.exp(logits))
    return probs / probs.sum(axis=1, keepdims=True)


def ways(logits: np.ndarray, masked: np.ndarray) -> dict[str, Tensor]:
    """The same probabilities, by how they are written: logits [N, K] as they are read."""
    single = logits.astype(np.float32)
    probs = as_probs(logits, masked)
    found = {f"{mask:g}": with_mask(logits, masked, mask) for mask in (*MASKS, -math.inf)}
    found["-100 in float32"] = with_mask(single, masked, -100.0)
    found["least of float32"] = with_mask(single, masked, MASKS[-1])
    found["raised"] = with_mask(logits, masked, -1e4) + 30
    found["probs"] = torch.from_numpy(probs).log()
    found["probs in float32"] = torch.from_numpy(probs.astype(np.float32)).double().log()
    return found


def least_cost(
    logits: np.ndarray, labels: np.ndarray, masked: np.ndarray, centre: float, prior: float
) -> np.ndarray:
    """Scale and bias [2, K] of least NLL, summed, plus the priors; masked entries left out."""
    classes = logits.shape[1]

    def cost(parameters: np.ndarray) -> float:
        scale, bias = parameters.reshape(2, classes)
        total = 0.0
        for row, label, never in zip(logits, labels, masked, strict=True):
            scaled = (scale * row + bias)[~never]
            top = scaled.max()
            total += top + np.log(np.exp(scaled - top).sum()) - scale[label] * row[label]
            total -= bias[label]
        return total + prior * (((scale / centre - 1) ** 2).sum() + (bias**2).sum()) / 2

    start = np.repeat([centre, 0.0], classes)
    return minimize(cost, start, method="BFGS", options={"gtol": 1e-4}).x.reshape(2, classes)


# A small number, none, an offset, and what is rounded.
MAIN = ("-100", "-inf", "raised", "probs in float32")


def check_metrics(
    logits: np.ndarray,
    labels: np.ndarray,
    masked: np.ndarray,
    fit: post_hoc.Fit,
    chosen: Collection[str] = MAIN,
) -> None:
    """The cross-fitted metrics are those of the first way."""
    truth = torch.from_numpy(labels)
    first, *others = (
        metrics.measure(post_hoc.cross_fitted(row, truth, fit=fit), truth, metrics.ESSENTIAL)
        for name, row in ways(logits, masked).items()
        if name in chosen
    )
    assert len(others) == len(chosen) - 1
    for each in others:
        assert each == approx(first, abs=1e-4)


@pytest.mark.parametrize(
    ("kind", "classes"), [("one of each sample", 2), *((kind, 4) for kind in KINDS)]
)
def test_vector_scaling_is_the_same_for_each_way_to_write_the_same_probabilities(
    kind: str, classes: int
) -> None:
    logits, labels, masked = masked_samples(kind, 60, classes)
    chosen = MAIN if kind != "one of each sample" else ways(logits, masked)
    check_metrics(logits, labels, masked, post_hoc.fit_vector_scaling, chosen)


@pytest.mark.parametrize("name", post_hoc.FITS)
def test_so_is_every_fit(name: str) -> None:
    check_metrics(*masked_samples("one of each sample", 60, 3), post_hoc.FITS[name])


@pytest.mark.parametrize("number", [1, 2, 7])
def test_a_few_samples_do_too(number: int) -> None:
    logits, labels, masked = masked_samples("one of each sample", number, 3)
    truth = torch.from_numpy(labels)
    first, *others = (
        post_hoc.cross_fitted(row, truth, fit=post_hoc.fit_vector_scaling).softmax(dim=-1)
        for row in ways(logits, masked).values()
    )
    for each in others:
        assert_close(each, first, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("mask", "prior"), [*((mask, 1.0) for mask in MASKS), (-math.inf, 0.0), (-1e4, 0.0)]
)
def test_the_fit_has_the_least_nll_without_the_masked_entries(mask: float, prior: float) -> None:
    logits, labels, masked = masked_samples("one of each sample", 80, 3)
    given = with_mask(logits, masked, mask)
    truth = torch.from_numpy(labels)
    found = post_hoc.fit_vector_scaling(given, truth, prior)
    temperature = post_hoc.fit_temperature(given, truth)
    expected = least_cost(logits, labels, masked, 1 / temperature, prior)
    if not prior:  # without one, a bias for all classes changes nothing
        expected[1] += float(found.bias.mean()) - expected[1].mean()
    assert_close(torch.stack([found.scale, found.bias]).numpy(), expected, rtol=0, atol=1e-4)
    scaled = np.where(masked, -np.inf, logits * expected[0] + expected[1])
    assert_close(
        found(given).softmax(dim=-1), torch.from_numpy(scaled).softmax(dim=-1), rtol=0, atol=1e-4
    )


def test_cross_fitted_values_are_of_log_probabilities_without_the_masked_entries() -> None:
    logits, labels, masked = masked_samples("one of each sample", 60, 3)
    kept = np.log(np.maximum(as_probs(logits, masked), 1e-300))
    truth = torch.from_numpy(labels)
    found = post_hoc.cross_fitted(
        with_mask(logits, masked, -1e4), truth, fit=post_hoc.fit_vector_scaling
    )
    for fold in range(5):
        own = np.arange(60) % 5 == fold
        others = torch.from_numpy(np.where(masked, -np.inf, kept)[~own])
        temperature = post_hoc.fit_temperature(others, truth[~own])
        scale, bias = least_cost(kept[~own], labels[~own], masked[~own], 1 / temperature, 1.0)
        expected = np.where(masked, -np.inf, kept * scale + bias)[own]
        assert_close(
            found[own].softmax(dim=-1),
            torch.from_numpy(expected).softmax(dim=-1),
            rtol=0,
            atol=1e-4,
        )


@pytest.mark.parametrize("mask", MASKS)
def test_a_class_stays_impossible_whatever_its_scale(mask: float) -> None:
    """Class 0 is right where its logit is low: a scale below 0, which would raise the mask."""
    random = np.random.default_rng(0)
    logits = random.normal(size=(300, 3))
    labels = np.where(logits[:, 0] < 0, 0, 1 + (logits[:, 1] < logits[:, 2]))
    masked = np.zeros((300, 3), dtype=bool)
    masked[::3, 0] = labels[::3] != 0
    given = with_mask(logits, masked, mask)
    found = post_hoc.fit_vector_scaling(given, torch.from_numpy(labels), prior=0)
    assert found.scale[0] < 0
    probs = found(given).softmax(dim=-1)
    assert probs[torch.from_numpy(masked)].max() < 1e-9
    assert probs.isfinite().all()


def test_a_mask_that_the_fit_has_not_seen_is_one() -> None:
    logits, labels = random_case((100, 3, 2.0))
    found = post_hoc.fit_vector_scaling(logits, labels)
    new = torch.tensor([[1.0, -1e4, 2.0], [1.0, -math.inf, 2.0]], dtype=torch.float64)
    masked, never = found(new).softmax(dim=-1)
    assert_close(masked, never, rtol=0, atol=1e-12)


def test_logits_far_apart_without_a_gap_are_no_masks() -> None:
    """Of a sharp network, right about its doubts: gaps of 0 to 150 nats."""
    random = np.random.default_rng(1)
    logits = torch.from_numpy(20 * random.normal(size=(2000, 10)))
    labels = torch.distributions.Categorical(logits=0.6 * logits).sample()
    assert -behind_top(logits).min() > 100
    found = post_hoc.fit_vector_scaling(logits, labels)
    assert -behind_top(logits).min() < found.reach
    crossed = post_hoc.cross_fitted(logits, labels, fit=post_hoc.fit_vector_scaling)
    own = torch.arange(2000) % 5 == 0
    alone = post_hoc.fit_vector_scaling(logits[~own], labels[~own])
    assert crossed[own].equal(logits[own] * alone.scale + alone.bias)


@pytest.mark.parametrize("mask", MASKS)
def test_a_label_that_is_masked_keeps_a_finite_nll(mask: float) -> None:
    """It did occur: so the number is a logit like others, for all classes that have it."""
    logits, labels, masked = masked_samples("one of each sample", 100, 4)
    masked[7, labels[7]] = True
    given = with_mask(logits, masked, mask)
    truth = torch.from_numpy(labels)
    found = post_hoc.fit_vector_scaling(given, truth)
    assert -float(behind_top(given)[masked].min()) < found.reach
    calibrated = post_hoc.cross_fitted(given, truth, fit=post_hoc.fit_vector_scaling)
    assert metrics.measure(calibrated, truth, ["nll"])["nll"] < math.inf


def test_a_label_of_probability_zero_has_an_infinite_nll_and_informs_no_fit() -> None:
    logits, labels, masked = masked_samples("one of each sample", 101, 4)
    truth = torch.from_numpy(labels)
    masked[100, labels[100]] = True
    given = with_mask(logits, masked, -math.inf)
    alone = post_hoc.fit_vector_scaling(given[:100], truth[:100])
    found = post_hoc.fit_vector_scaling(given, truth)
    assert_close(found.scale, alone.scale, rtol=0, atol=1e-4)
    assert metrics.measure(found(given), truth, ["nll"]).get("nll", math.inf) == math.inf


@pytest.mark.slow
def test_evaluate_prints_the_same_for_each_way(capsys: CaptureFixture[str], tmp_path: Path) -> None:
    logits, labels, masked = masked_samples("one of each sample", 200, 4)
    files = {"probs": {"probs": as_probs(logits, masked)}}
    for mask in (MASKS[0], MASKS[-1]):
        files[f"{mask:g}"] = {"logits": with_mask(logits, masked, mask).numpy()}
    rows = []
    for name, arrays in files.items():
        np.savez(tmp_path / f"{name}.npz", **arrays, labels=labels)
        _, out, _ = run(capsys, tmp_path / f"{name}.npz", "--post-hoc", "--json")
        rows.append(json.loads(out)["post_hoc"])
    assert "vector_scaling" in rows[0]
    for found in rows[1:]:
        for name, row in rows[0].items():
            assert found[name] == approx(row, abs=1e-4), name
    assert rows[0]["vector_scaling"]["nll"] < rows[0]["none"]["nll"] - 0.02
