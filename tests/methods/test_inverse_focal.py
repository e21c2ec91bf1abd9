"""Inverse focal loss against its definition and its limits."""

import math

import pytest
import torch
import torch.nn.functional as F
from pytest import approx
from torch.testing import assert_close

from tests import references
from tests.cases import every_shape, logits_of, random_case
from trainables.methods.inverse_focal import InverseFocal, inverse_focal_loss

GAMMAS = [0.0, 0.5, 1.0, 2.0, 5.0]


@every_shape
@pytest.mark.parametrize("gamma", GAMMAS)
def test_matches_its_definition(shape: tuple[int, int, float], gamma: float) -> None:
    logits, labels = random_case(shape)
    expected = references.inverse_focal(logits, labels, gamma)
    assert inverse_focal_loss(logits, labels, gamma).item() == approx(expected, rel=1e-9)


@pytest.mark.parametrize("gamma", GAMMAS)
def test_gradient_is_that_of_its_definition(gamma: float) -> None:
    logits, labels = random_case((6, 4, 2.0))
    loss = inverse_focal_loss(logits.requires_grad_(), labels, gamma)
    (gradient,) = torch.autograd.grad(loss, logits)
    expected = references.central_differences(
        lambda z: references.inverse_focal(z, labels, gamma), logits.detach()
    )
    assert gradient.numpy() == approx(expected, abs=1e-7)


def test_gamma_zero_is_cross_entropy() -> None:
    logits, labels = random_case((40, 10, 5.0))
    assert_close(inverse_focal_loss(logits, labels, 0.0), F.cross_entropy(logits, labels))


def test_two_classes_by_hand() -> None:
    loss = inverse_focal_loss(logits_of([0.75, 0.25]), torch.tensor([0]), 2.0)
    assert loss.item() == approx(1.75**2 * math.log(4 / 3), rel=1e-12)


def test_a_class_that_cannot_occur_adds_nothing() -> None:
    logits = torch.tensor([[2.0, -math.inf, 1.0], [3.0, -math.inf, -math.inf]], requires_grad=True)
    loss = inverse_focal_loss(logits, torch.tensor([0, 0]), 1.0)
    (gradient,) = torch.autograd.grad(loss, logits)
    alone = inverse_focal_loss(torch.tensor([[2.0, 1.0]]), torch.tensor([0]), 1.0)
    assert_close(loss, alone / 2)
    assert gradient.isfinite().all()


def test_soft_targets_are_refused() -> None:
    logits, labels = random_case((40, 10, 5.0))
    with pytest.raises(TypeError, match="InverseFocal needs labels"):
        InverseFocal().loss(logits, F.one_hot(labels, 10).double(), 0.5)
