"""Label smoothing, (1 - epsilon) onehot + epsilon / K, against its definition,
torch's own and limits."""

import math

import pytest
import torch
import torch.nn.functional as F
from pytest import approx
from torch.testing import assert_close

from tests import references
from tests.cases import every_shape, logits_of, random_case
from trainables.methods.label_smoothing import LabelSmoothing, label_smoothing_loss

EPSILONS = [0.0, 0.03, 0.1, 0.5, 1.0]


@every_shape
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_matches_its_definition(shape: tuple[int, int, float], epsilon: float) -> None:
    logits, labels = random_case(shape)
    expected = references.label_smoothing(logits, labels, epsilon)
    assert label_smoothing_loss(logits, labels, epsilon).item() == approx(expected, rel=1e-9)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_agrees_with_torch(epsilon: float) -> None:
    logits, labels = random_case((40, 10, 5.0))
    expected = F.cross_entropy(logits, labels, label_smoothing=epsilon)
    assert_close(label_smoothing_loss(logits, labels, epsilon), expected)


def test_epsilon_zero_is_cross_entropy() -> None:
    logits, labels = random_case((40, 10, 5.0))
    assert_close(label_smoothing_loss(logits, labels, 0.0), F.cross_entropy(logits, labels))


def test_two_classes_by_hand() -> None:
    loss = label_smoothing_loss(logits_of([0.75, 0.25]), torch.tensor([0]), 0.2)
    assert loss.item() == approx(-0.9 * math.log(0.75) - 0.1 * math.log(0.25), rel=1e-12)


def test_least_loss_is_the_entropy_of_the_smoothed_target() -> None:
    target = [0.925, 0.025, 0.025, 0.025]  # epsilon = .1, K = 4
    logits, labels = logits_of(target).requires_grad_(), torch.tensor([0])
    loss = label_smoothing_loss(logits, labels, 0.1)
    (gradient,) = torch.autograd.grad(loss, logits)
    assert loss.item() == approx(-sum(t * math.log(t) for t in target), rel=1e-12)
    assert gradient.abs().max().item() == approx(0.0, abs=1e-12)


def test_method_passes_its_epsilon_on() -> None:
    logits, labels = random_case((40, 10, 5.0))
    expected = references.label_smoothing(logits, labels, 0.07)
    assert LabelSmoothing(epsilon=0.07).loss(logits, labels, 0.5).item() == approx(
        expected, rel=1e-9
    )
    one_hot = F.one_hot(labels, 10).double()
    assert LabelSmoothing(epsilon=0.07).loss(logits, one_hot, 0.5).item() == approx(
        expected, rel=1e-9
    )
