"""Dual focal loss against its definition, its limits and where probabilities round."""

import math

import pytest
import torch
import torch.nn.functional as F
from pytest import approx
from torch.testing import assert_close

from tests import references
from tests.cases import every_shape, logits_of, random_case
from trainables.methods.dual_focal import DualFocal, dual_focal_loss

GAMMAS = [0.0, 0.3, 1.0, 2.0, 5.0]


@every_shape
@pytest.mark.parametrize("gamma", GAMMAS)
def test_matches_its_definition(shape: tuple[int, int, float], gamma: float) -> None:
    logits, labels = random_case(shape)
    expected = references.dual_focal(logits, labels, gamma)
    assert dual_focal_loss(logits, labels, gamma).item() == approx(expected, rel=1e-9)


@pytest.mark.parametrize("gamma", GAMMAS)
def test_gradient_is_that_of_its_definition(gamma: float) -> None:
    logits, labels = random_case((6, 4, 2.0))
    loss = dual_focal_loss(logits.requires_grad_(), labels, gamma)
    (gradient,) = torch.autograd.grad(loss, logits)
    expected = references.central_differences(
        lambda z: references.dual_focal(z, labels, gamma), logits.detach()
    )
    assert gradient.numpy() == approx(expected, abs=1e-8)


def test_gamma_zero_is_cross_entropy() -> None:
    logits, labels = random_case((40, 10, 5.0))
    assert_close(dual_focal_loss(logits, labels, 0.0), F.cross_entropy(logits, labels))


def test_by_hand_the_runner_up_is_below_the_label() -> None:
    """Label .3: the runner-up is .2, not the larger .5; label .2: there is none, 1 - p alone."""
    logits = logits_of([0.5, 0.3, 0.2])
    of_middle = dual_focal_loss(logits, torch.tensor([1]), 2.0)
    assert of_middle.item() == approx(-(0.9**2) * math.log(0.3), rel=1e-12)
    of_last = dual_focal_loss(logits, torch.tensor([2]), 2.0)
    assert of_last.item() == approx(-(0.8**2) * math.log(0.2), rel=1e-12)


def test_a_class_tied_with_the_label_is_no_runner_up() -> None:
    logits = logits_of([0.4, 0.4, 0.2])
    loss = dual_focal_loss(logits, torch.tensor([0]), 1.0)
    assert loss.item() == approx(-0.8 * math.log(0.4), rel=1e-12)
    equal = dual_focal_loss(torch.zeros(2, 4), torch.tensor([0, 3]), 1.0)
    assert equal.item() == approx(0.75 * math.log(4), rel=1e-6)


def test_gradients_pass_through_the_runner_up() -> None:
    """With p_j a constant, the softmax's derivative for class 2 would have one term less."""
    p = [0.6, 0.1, 0.3]
    logits = logits_of(p).requires_grad_()
    loss = dual_focal_loss(logits, torch.tensor([0]), 1.0)
    (gradient,) = torch.autograd.grad(loss, logits)
    # d/dz_2 of -(1 - p_0 + p_2) log p_0, with dp_0 = -p_0 p_2 and dp_2 = p_2 (1 - p_2).
    expected = -(p[0] * p[2] + p[2] * (1 - p[2])) * math.log(p[0]) + (1 - p[0] + p[2]) * p[2]
    assert gradient[0, 2].item() == approx(expected, rel=1e-12)


@pytest.mark.parametrize("gap", [17.0, 30.0, 1e4])
@pytest.mark.parametrize("gamma", [0.1, 0.5, 0.9])
def test_a_gamma_below_one_where_p_rounds_to_one(gamma: float, gap: float) -> None:
    logits, labels = torch.tensor([[gap, 1.0, 0.0]], requires_grad=True), torch.tensor([0])
    assert F.softmax(logits, -1)[0, 0] == 1.0 or gap < 20
    loss = dual_focal_loss(logits, labels, gamma)
    expected = references.dual_focal(logits.detach(), labels, gamma)
    assert loss.item() == approx(expected, rel=1e-4, abs=1e-37)
    (first,) = torch.autograd.grad(loss, logits, create_graph=True)
    (second,) = torch.autograd.grad(first[0, 0], logits)
    assert first.isfinite().all() and second.isfinite().all() and first.abs().max() < 1e-5


@pytest.mark.parametrize("row", [[2.0, -math.inf], [2.0, -math.inf, 1.0], [-math.inf, 0.0, 3.0]])
def test_a_class_that_cannot_occur_adds_nothing(row: list[float]) -> None:
    label = torch.tensor([row.index(max(row))])
    logits = torch.tensor([row], requires_grad=True)
    there = [z for z in row if z > -math.inf]
    loss = dual_focal_loss(logits, label, 1.5)
    (gradient,) = torch.autograd.grad(loss, logits)
    assert gradient.isfinite().all() and not gradient[logits.isneginf()].any()
    if len(there) == 1:
        assert loss == 0
    else:
        within = torch.tensor([there.index(max(there))])
        assert_close(loss, dual_focal_loss(torch.tensor([there]), within, 1.5))


def test_soft_targets_are_refused() -> None:
    logits, labels = random_case((40, 10, 5.0))
    with pytest.raises(TypeError, match="DualFocal needs labels"):
        DualFocal().loss(logits, F.one_hot(labels, 10).double(), 0.5)
