"""Confidence penalty against its definition and its limits."""

import math

import pytest
import torch
import torch.nn.functional as F
from pytest import approx
from torch.testing import assert_close

from tests import references
from tests.cases import every_shape, random_case
from trainables.methods.confidence_penalty import (
    ConfidencePenalty,
    confidence_penalty_loss,
    entropy,
)


@every_shape
@pytest.mark.parametrize("weight", [0.1, 1.0])
def test_matches_its_definition(shape: tuple[int, int, float], weight: float) -> None:
    logits, labels = random_case(shape)
    expected = references.confidence_penalty(logits, labels, weight)
    assert confidence_penalty_loss(logits, labels, weight).item() == approx(
        expected, rel=1e-9, abs=1e-12
    )
    assert ConfidencePenalty(weight=weight).loss(logits, labels, 0.5).item() == approx(
        expected, rel=1e-9, abs=1e-12
    )


def test_no_weight_is_cross_entropy() -> None:
    logits, labels = random_case((40, 10, 5.0))
    assert_close(confidence_penalty_loss(logits, labels, 0.0), F.cross_entropy(logits, labels))


def test_entropy_of_the_sure_and_of_the_clueless() -> None:
    logits = torch.tensor([[1000.0, 0.0, 0.0, 0.0], [3.0, 3.0, 3.0, 3.0]])
    assert entropy(logits).tolist() == approx([0.0, math.log(4)], rel=1e-6)


def test_gradient_is_that_of_its_definition() -> None:
    logits, labels = random_case((6, 4, 2.0))
    (gradient,) = torch.autograd.grad(
        confidence_penalty_loss(logits.requires_grad_(), labels, 0.7), logits
    )
    expected = references.central_differences(
        lambda z: references.confidence_penalty(z, labels, 0.7), logits.detach()
    )
    assert gradient.numpy() == approx(expected, abs=1e-8)
