"""LogitNorm against its definition, its scale, and logits of zero."""

import math

import pytest
import torch
import torch.nn.functional as F
from pytest import approx
from torch import Tensor
from torch.testing import assert_close

from tests import references
from tests.cases import every_shape, random_case
from trainables.method import Method
from trainables.methods.cross_entropy import CrossEntropy
from trainables.methods.logit_norm import LogitNorm, logit_norm_loss
from trainables.methods.mixup import Mixup
from trainables.methods.sample_prioritization import SamplePrioritization
from trainables.methods.sece import Sece


@every_shape
@pytest.mark.parametrize("temperature", [0.01, 0.04, 1.0])
def test_matches_its_definition(shape: tuple[int, int, float], temperature: float) -> None:
    logits, labels = random_case(shape)
    expected = references.logit_norm(logits, labels, temperature)
    assert logit_norm_loss(logits, labels, temperature).item() == approx(expected, rel=1e-9)


def test_soft_targets() -> None:
    logits, labels = random_case((12, 5, 3.0))
    soft = 0.8 * F.one_hot(labels, 5) + 0.04
    expected = references.logit_norm(logits, soft, 0.5)
    assert logit_norm_loss(logits, soft, 0.5).item() == approx(expected, rel=1e-9)


def test_gradient_is_that_of_its_definition() -> None:
    logits, labels = random_case((6, 4, 2.0))
    (gradient,) = torch.autograd.grad(logit_norm_loss(logits.requires_grad_(), labels, 0.3), logits)
    expected = references.central_differences(
        lambda z: references.logit_norm(z, labels, 0.3), logits.detach()
    )
    assert gradient.numpy() == approx(expected, abs=1e-7)


def test_by_hand() -> None:
    """(3, 4) over 5 at temperature .1 is (6, 8)."""
    loss = logit_norm_loss(torch.tensor([[3.0, 4.0]]).double(), torch.tensor([1]), 0.1)
    assert loss.item() == approx(math.log(1 + math.exp(-2)), rel=1e-6)


def test_the_scale_of_logits_does_not_matter() -> None:
    logits, labels = random_case((40, 10, 5.0))
    expected = logit_norm_loss(logits, labels, 0.04).item()
    assert logit_norm_loss(3 * logits, labels, 0.04).item() == approx(expected, rel=1e-6)


def test_the_gradient_at_zero_is_that_of_cross_entropy_over_the_temperature() -> None:
    """The released code's is 8e7 there."""
    logits, labels = torch.zeros(2, 3, requires_grad=True), torch.tensor([0, 2])
    loss = logit_norm_loss(logits, labels, 0.5)
    (gradient,) = torch.autograd.grad(loss, logits)
    (plain,) = torch.autograd.grad(F.cross_entropy(logits, labels), logits)
    assert loss.item() == approx(math.log(3))
    assert_close(gradient, plain / 0.5)


def test_a_class_that_cannot_occur_adds_nothing() -> None:
    logits = torch.tensor([[2.0, -torch.inf, 1.0]], requires_grad=True)
    loss = logit_norm_loss(logits, torch.tensor([0]), 0.04)
    (gradient,) = torch.autograd.grad(loss, logits)
    assert_close(loss, logit_norm_loss(torch.tensor([[2.0, 1.0]]), torch.tensor([0]), 0.04))
    assert gradient.isfinite().all() and gradient[0, 1] == 0


def logits_far() -> Tensor:
    return torch.tensor([[1e4, -1e4, 0.0]], requires_grad=True)


def test_far_logits_are_as_near_ones() -> None:
    loss = logit_norm_loss(logits_far(), torch.tensor([0]), 0.5)
    near = logit_norm_loss(logits_far() / 1e4, torch.tensor([0]), 0.5)
    assert_close(loss, near, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    ("method", "fixes"),
    [
        (CrossEntropy(), True),
        (LogitNorm(), False),
        (Mixup(base=LogitNorm()), False),
        (SamplePrioritization(base=LogitNorm()), False),
        (Sece(base=LogitNorm()), True),
    ],
)
def test_what_fixes_the_scale_of_logits(method: Method, fixes: bool) -> None:
    assert method.fixes_scale == fixes
    logits, labels = random_case((40, 10, 5.0))
    moved = method.loss(2 * logits, labels, 0.5) - method.loss(logits, labels, 0.5)
    assert (abs(moved) > 1e-3) == fixes
