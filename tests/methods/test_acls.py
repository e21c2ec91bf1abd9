"""ACLS against its definition, by hand, and what a constant added to all logits does."""

import math

import pytest
import torch
import torch.nn.functional as F
from pytest import approx
from torch.testing import assert_close

from tests import references
from tests.cases import every_shape, random_case
from trainables.methods.acls import Acls, acls_loss

SETTINGS = [(0.1, 1.0, 0.1, 10.0), (0.1, 1.0, 0.1, 2.0), (1.0, 0.3, 2.0, 0.0)]


@every_shape
@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("on", ["logit", "distance"])
def test_matches_its_definition(
    shape: tuple[int, int, float], settings: tuple[float, float, float, float], on: str
) -> None:
    logits, labels = random_case(shape)
    expected = references.acls(logits, labels, *settings, on_distance=on == "distance")
    assert acls_loss(logits, labels, *settings, on).item() == approx(expected, rel=1e-9)


@pytest.mark.parametrize("on", ["logit", "distance"])
def test_gradient_is_that_of_its_definition_with_the_largest_constant_in_distances(on: str) -> None:
    logits, labels = random_case((6, 4, 4.0))
    loss = acls_loss(logits.requires_grad_(), labels, 0.7, 0.5, 2.0, 1.0, on)
    (gradient,) = torch.autograd.grad(loss, logits)
    at = logits.detach()
    expected = references.central_differences(
        lambda z: references.acls(z, labels, 0.7, 0.5, 2.0, 1.0, on == "distance"), at
    )
    # The definition moves z_max in the distances, too: take that slope away again.
    distance = (at.amax(-1, keepdim=True) - at - 1.0).clamp(min=0)
    slope = 0.7 * 2.0 * 2 * distance.sum(-1) / (6 * 3)
    expected[range(6), at.argmax(-1)] -= slope.numpy()
    assert gradient.numpy() == approx(expected, abs=1e-7)


def test_by_hand() -> None:
    """12 is 2 above the margin; 0 and 1 lie 2 and 1 too far below it, of three classes."""
    logits = torch.tensor([[12.0, 0.0, 1.0, 11.0]], dtype=torch.float64)
    cross_entropy = math.log(1 + math.exp(-12) + math.exp(-11) + math.exp(-1))
    penalty = 1.0 * 2**2 + 0.1 * (2**2 + 1**2) / 3
    loss = acls_loss(logits, torch.tensor([0]), 0.1, 1.0, 0.1, 10.0)
    assert loss.item() == approx(cross_entropy + 0.1 * penalty, rel=1e-12)


def test_on_distances_a_constant_added_to_all_logits_changes_nothing() -> None:
    logits, labels = random_case((40, 10, 5.0))
    settings = (0.1, 1.0, 0.1, 2.0)
    at, moved = (acls_loss(z, labels, *settings, "distance") for z in (logits, logits + 5))
    assert_close(at, moved)
    at, moved = (acls_loss(z, labels, *settings) for z in (logits, logits + 5))
    assert moved > at + 1


@pytest.mark.parametrize(("weight", "margin"), [(0.0, 2.0), (0.1, 1e6)])
def test_no_weight_or_a_huge_margin_is_cross_entropy(weight: float, margin: float) -> None:
    logits, labels = random_case((40, 10, 5.0))
    loss = acls_loss(logits, labels, weight, 1.0, 0.1, margin)
    assert_close(loss, F.cross_entropy(logits, labels))


def test_soft_targets() -> None:
    logits, labels = random_case((12, 5, 3.0))
    soft = 0.8 * F.one_hot(labels, 5) + 0.04
    expected = references.acls(logits, soft, 0.1, 1.0, 0.1, 1.0)
    loss = Acls(margin=1.0).loss(logits, soft, 0.5)
    assert loss.item() == approx(expected, rel=1e-9)


@pytest.mark.parametrize("on", ["logit", "distance"])
def test_a_class_that_cannot_occur_is_not_penalised(on: str) -> None:
    logits = torch.tensor([[5.0, -torch.inf, 1.0]], requires_grad=True)
    settings = (1.0, 1.0, 1.0, 2.0)
    loss = acls_loss(logits, torch.tensor([0]), *settings, on)
    (gradient,) = torch.autograd.grad(loss, logits)
    own = (5.0 - (1.0 if on == "distance" else 0.0) - 2.0) ** 2
    expected = math.log(1 + math.exp(-4)) + own + (4.0 - 2.0) ** 2 / 2
    assert loss.item() == approx(expected, rel=1e-5)
    assert gradient.isfinite().all() and gradient[0, 1] == 0


def test_logits_of_ten_thousand_are_finite() -> None:
    logits = torch.tensor([[1e4, -1e4, 0.0]], requires_grad=True)
    loss = Acls().loss(logits, torch.tensor([1]), 0.5)
    (gradient,) = torch.autograd.grad(loss, logits)
    assert loss.isfinite() and gradient.isfinite().all()
