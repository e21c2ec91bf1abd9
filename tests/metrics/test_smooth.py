"""Smooth ECE against the density integrated numerically, closed forms, and the
limits its paper states."""

import math

import pytest
import torch
from pytest import approx
from scipy.stats import norm
from torch import Tensor

from tests import references
from tests.cases import logits_of, random_case
from trainables import metrics
from trainables.metrics.smooth import smooth_calibration_error, smooth_calibration_error_at


def of_confidences(*groups: tuple[float, int, int]) -> tuple[Tensor, Tensor]:
    """Two classes: (confidence, samples, right ones) of each group."""
    rows = [[c, 1 - c] for c, samples, _ in groups for _ in range(samples)]
    labels = [int(k >= right) for _, samples, right in groups for k in range(samples)]
    return logits_of(*rows), torch.tensor(labels)


@pytest.mark.parametrize("sigma", [0.02, 0.1, 0.5])
@pytest.mark.parametrize("shape", [(7, 3, 1.0), (40, 10, 5.0), (33, 12, 30.0), (64, 4, 0.1)])
def test_matches_its_definition_at_a_bandwidth(shape: tuple[int, int, float], sigma: float) -> None:
    logits, labels = random_case(shape)
    expected = references.smooth_ece_at(logits, labels, sigma)
    assert smooth_calibration_error_at(logits, labels, sigma).item() == approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    "case",
    [
        random_case((33, 12, 30.0)),
        random_case((64, 4, 0.1)),
        # The mass at 1 is too sure, that beside it not sure enough.
        of_confidences((0.9, 20, 20), (1.0, 20, 17)),
        of_confidences((0.6, 100, 63), (0.7, 100, 68), (0.8, 100, 80), (0.95, 100, 96)),
    ],
)
def test_matches_the_fixed_point_of_its_definition(case: tuple[Tensor, Tensor]) -> None:
    """There is one alone: at a bandwidth, the error falls as that grows."""
    value = smooth_calibration_error(*case).item()
    assert 0.001 < value == approx(references.smooth_ece_at(*case, value), abs=2e-6)


def test_mass_at_one_counts_whole() -> None:
    """One sample at exactly 1, wrong, of four; the others at 1/2 and calibrated in pairs:
    at a small bandwidth the
    mass at 1 smooths to a half bell with all of its weight, 1/4. A reflection that counts
    the boundary once loses some.
    """
    logits = torch.tensor([[900.0, 0.0], [0.0, 0.0], [0.0, 0.0], [900.0, 0.0]], dtype=torch.float64)
    labels = torch.tensor([1, 0, 1, 0])
    assert smooth_calibration_error_at(logits, labels, 0.01).item() == approx(0.25, abs=1e-9)


def test_two_opposite_masses_by_hand() -> None:
    """Half at .4 with residual +.6, half at .6 with -.6, all in two classes of three:
    the bells cancel at 1/2.

    The integral of |phi(t - .4) - phi(t - .6)| * .3, images beyond 0 and 1 being negligible.
    """
    logits, labels = logits_of([0.4, 0.35, 0.25], [0.6, 0.2, 0.2]), torch.tensor([0, 1])
    for sigma in (0.02, 0.05):
        expected = 0.3 * 2 * (2 * norm.cdf(0.1 / sigma) - 1)
        assert smooth_calibration_error_at(logits, labels, sigma).item() == approx(
            expected, abs=1e-6
        )


def test_between_the_mean_residual_and_the_mean_of_residuals() -> None:
    logits, labels = random_case((64, 4, 1.0))
    confidence = logits.softmax(-1).amax(-1)
    residual = (logits.argmax(-1) == labels).double() - confidence
    value = smooth_calibration_error(logits, labels)
    assert residual.mean().abs() <= value <= residual.abs().mean()
    assert smooth_calibration_error_at(logits, labels, 1.0).item() == approx(
        residual.mean().abs().item(), abs=1e-3
    )


def test_falls_as_the_bandwidth_grows() -> None:
    logits, labels = random_case((64, 4, 1.0))
    values = [
        smooth_calibration_error_at(logits, labels, sigma).item()
        for sigma in (1e-3, 1e-2, 0.1, 0.3, 1.0)
    ]
    assert values == sorted(values, reverse=True) and values[0] > values[-1]


@pytest.mark.parametrize("scale", [1e-2, 1e-3, 1e-6])
def test_small_values_are_resolved(scale: float) -> None:
    """Two groups, of frequency .5 and .75, off by scale and of opposite sign: far apart, so
    that nothing cancels."""
    n = 4
    confidence = torch.tensor([0.5 + scale] * n + [0.75 - scale] * n, dtype=torch.float64)
    logits = torch.stack([confidence.log(), (1 - confidence).log()], dim=1)
    labels = torch.tensor([0, 0, 1, 1, 0, 0, 0, 1])
    assert smooth_calibration_error(logits, labels).item() == approx(scale, rel=1e-6)


def test_calibrated_is_zero() -> None:
    assert smooth_calibration_error(torch.zeros(4, 2), torch.tensor([0, 1, 0, 1])).item() == approx(
        0.0, abs=1e-12
    )
    sure = torch.tensor([[900.0, 0.0]] * 3)
    assert smooth_calibration_error(sure, torch.tensor([0, 0, 0])).item() == 0.0
    assert smooth_calibration_error(sure, torch.tensor([1, 1, 1])).item() == 1.0


def test_samples_are_transformed_in_chunks() -> None:
    """More samples than one chunk: thrice the same set gives the same value."""
    logits, labels = random_case((3000, 4, 1.0))
    value = metrics.find("smooth_ece")(logits, labels).item()
    assert metrics.find("smooth_ece")(logits.repeat(3, 1), labels.repeat(3)).item() == approx(
        value, rel=1e-9
    )
    assert not math.isclose(value, metrics.find("ece")(logits, labels).item(), rel_tol=1e-6)
