"""Focal loss against its definition, its gradient ratios to cross-entropy, and
where 1 - p_y underflows."""

import math

import mpmath
import pytest
import torch
import torch.nn.functional as F
from pytest import approx
from torch import Tensor
from torch.testing import assert_close

from tests import golden, references
from tests.cases import every_shape, logits_of, random_case
from trainables.methods.focal import Focal, focal_loss

GAMMAS = [0.0, 0.3, 0.5, 1.0, 1.5, 2.0, 5.0]


@every_shape
@pytest.mark.parametrize("gamma", GAMMAS)
def test_matches_its_definition(shape: tuple[int, int, float], gamma: float) -> None:
    logits, labels = random_case(shape)
    expected = references.focal(logits, labels, gamma)
    assert focal_loss(logits, labels, gamma).item() == approx(expected, rel=1e-9)


def test_gamma_may_differ_from_sample_to_sample() -> None:
    logits, labels, tolerance = golden.lookahead_training()
    values = golden.GOLDEN["gamma_net"]
    gamma = torch.tensor(values["gamma_net b=8 d=6 k=4 tau=1"], dtype=torch.float64)
    assert focal_loss(logits, labels, gamma).item() == approx(values["inner_focal"], rel=tolerance)


def test_gamma_zero_is_cross_entropy() -> None:
    logits, labels = random_case((40, 10, 5.0))
    assert_close(focal_loss(logits, labels, 0.0), F.cross_entropy(logits, labels))


def test_two_classes_by_hand() -> None:
    loss = focal_loss(logits_of([0.75, 0.25]), torch.tensor([0]), 2.0)
    assert loss.item() == approx(0.25**2 * math.log(4 / 3), rel=1e-12)


@pytest.mark.parametrize("gamma", GAMMAS)
def test_gradient_is_that_of_its_definition(gamma: float) -> None:
    logits, labels = random_case((6, 4, 2.0))
    (gradient,) = torch.autograd.grad(focal_loss(logits.requires_grad_(), labels, gamma), logits)
    expected = references.central_differences(
        lambda z: references.focal(z, labels, gamma), logits.detach()
    )
    assert gradient.numpy() == approx(expected, abs=1e-8)


# Mukhoti et al. 2020: g(p, gamma) = (1 - p)^gamma - gamma p (1 - p)^(gamma - 1) log
# p. First where it is 1.
RATIOS = [
    (1.0, 0.3678794412, 1.0),
    (2.0, 0.2976365550, 1.0),
    (3.0, 0.2525839887, 1.0),
    (4.0, 0.2207329029, 1.0),
    (5.0, 0.1968027390, 1.0),
    (5.0, 0.20, 0.98690577),
    (3.0, 0.20, 1.13002416),
    (3.0, 0.25, 1.00671793),
    (3.0, 0.50, 0.38493019),
    (2.0, 0.50, 0.59657359),
    (1.0, 0.50, 0.84657359),
]


@pytest.mark.parametrize(("gamma", "p", "ratio"), RATIOS)
def test_gradient_relative_to_cross_entropy(gamma: float, p: float, ratio: float) -> None:
    logits, labels = logits_of([p, 1 - p]).requires_grad_(), torch.tensor([0])
    (ours,) = torch.autograd.grad(focal_loss(logits, labels, gamma), logits)
    (plain,) = torch.autograd.grad(F.cross_entropy(logits, labels), logits)
    assert (ours / plain).tolist() == [[approx(ratio, abs=1e-8)] * 2]


def saturated(gap: float) -> tuple[Tensor, Tensor]:
    """Three classes, the true one ahead by `gap`: from about 17 on, p_y == 1 in float32."""
    return torch.tensor([[gap, 0.0, 0.0]], requires_grad=True), torch.tensor([0])


@pytest.mark.parametrize("gamma", GAMMAS)
def test_value_where_one_minus_p_underflows(gamma: float) -> None:
    logits, labels = saturated(30.0)
    assert F.softmax(logits, -1)[0, 0] == 1.0
    expected = references.focal(logits.detach(), labels, gamma)
    # Far below any loss that matters, and yet of the right size down to float32's
    # smallest normal number.
    assert focal_loss(logits, labels, gamma).item() == approx(expected, rel=1e-4, abs=1e-37)


@pytest.mark.parametrize("gap", [17.0, 30.0, 100.0, 1000.0])
@pytest.mark.parametrize("gamma", GAMMAS)
def test_first_and_second_gradients_stay_finite_at_p_one(gamma: float, gap: float) -> None:
    logits, labels = saturated(gap)
    (first,) = torch.autograd.grad(focal_loss(logits, labels, gamma), logits, create_graph=True)
    weights = torch.tensor([[1.0, -2.0, 3.0]])  # a plain sum would be zero by shift invariance
    (second,) = torch.autograd.grad((first * weights).sum(), logits)
    assert torch.isfinite(first).all() and torch.isfinite(second).all()
    assert first.abs().max() < 1e-6 and second.abs().max() < 1e-6


@pytest.mark.parametrize("gamma", GAMMAS)
def test_first_and_second_gradients_are_exact_at_p_one(gamma: float) -> None:
    """Against sixty digits: from a lead of 17 on 1 - p_y is 0 in float32, and factors of it
    vanish in a naive form."""
    for lead in (3.0, 10.0, 14.0, 17.0, 20.0, 30.0):
        logits, labels = torch.tensor([[lead, 0.0]], requires_grad=True), torch.tensor([0])
        loss = focal_loss(logits, labels, gamma)
        (first,) = torch.autograd.grad(loss, logits, create_graph=True)
        (second,) = torch.autograd.grad(first[0, 0], logits)
        for order, found in enumerate((loss, first[0, 0], second[0, 0])):
            with mpmath.workdps(60):
                expected = float(
                    mpmath.diff(lambda x: references.focal_of_lead(x, gamma), lead, order)
                )
            # exp and log cost digits in proportion to the exponent; below 1e-37 float32 underflows.
            assert found.item() == approx(expected, rel=2e-5, abs=1e-37), (lead, order)


@pytest.mark.parametrize("gamma", GAMMAS)
def test_gradients_where_p_rounds_to_zero(gamma: float) -> None:
    """The loss falls by 1 for 1 of lead: the first gradients are -1 and 1, the second
    ones 0 within rounding."""
    for lead in (-30.0, -1000.0):
        logits, labels = torch.tensor([[lead, 0.0]], requires_grad=True), torch.tensor([0])
        (first,) = torch.autograd.grad(focal_loss(logits, labels, gamma), logits, create_graph=True)
        (second,) = torch.autograd.grad(first[0, 0], logits)
        assert first.tolist() == [[approx(-1.0), approx(1.0)]] and second.abs().max() < 1e-6


def test_gradient_with_respect_to_gamma() -> None:
    logits, gamma = (
        logits_of([0.75, 0.25]),
        torch.tensor(2.0, dtype=torch.float64, requires_grad=True),
    )
    (gradient,) = torch.autograd.grad(focal_loss(logits, torch.tensor([0]), gamma), gamma)
    assert gradient.item() == approx(0.25**2 * math.log(0.25) * math.log(4 / 3), rel=1e-12)


def test_method_passes_its_gamma_on() -> None:
    logits, labels = random_case((40, 10, 5.0))
    expected = references.focal(logits, labels, 1.7)
    assert Focal(gamma=1.7).loss(logits, labels, 0.5).item() == approx(expected, rel=1e-9)


def test_soft_targets_are_refused() -> None:
    logits, labels = random_case((40, 10, 5.0))
    with pytest.raises(TypeError, match="Focal needs labels"):
        Focal(gamma=1.7).loss(logits, F.one_hot(labels, 10).double(), 0.5)
