"""Brier loss against its definition, its range and its vanishing gradient."""

import pytest
import torch
import torch.nn.functional as F
from pytest import approx

from tests import references
from tests.cases import every_shape, random_case
from trainables.methods.brier import Brier, brier_loss


@every_shape
def test_matches_its_definition(shape: tuple[int, int, float]) -> None:
    logits, labels = random_case(shape)
    expected = references.brier_loss(logits, labels)
    assert brier_loss(logits, labels).item() == approx(expected, rel=1e-9, abs=1e-15)
    assert Brier().loss(logits, labels, 0.5).item() == approx(expected, rel=1e-9, abs=1e-15)


def test_soft_targets() -> None:
    logits, labels = random_case((40, 10, 5.0))
    soft = 0.7 * F.one_hot(labels, 10).double() + 0.3 / 10
    assert brier_loss(logits, soft).item() == approx(references.brier_loss(logits, soft), rel=1e-9)


@pytest.mark.parametrize(("label", "expected"), [(0, 0.0), (1, 2.0)])
def test_saturated_right_is_0_and_wrong_is_2_without_a_gradient(
    label: int, expected: float
) -> None:
    logits = torch.tensor([[1000.0, 0.0, 0.0]], requires_grad=True)
    loss = brier_loss(logits, torch.tensor([label]))
    (gradient,) = torch.autograd.grad(loss, logits)
    assert loss.item() == expected and not gradient.any()


def test_gradient_is_that_of_its_definition() -> None:
    logits, labels = random_case((6, 4, 2.0))
    (gradient,) = torch.autograd.grad(brier_loss(logits.requires_grad_(), labels), logits)
    expected = references.central_differences(
        lambda z: references.brier_loss(z, labels), logits.detach()
    )
    assert gradient.numpy() == approx(expected, abs=1e-8)
