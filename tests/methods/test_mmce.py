"""MMCE against its definition, by hand, and where it has nothing to compare."""

import math

import pytest
import torch
import torch.nn.functional as F
from pytest import approx
from torch.testing import assert_close

from tests import references
from tests.cases import every_shape, logits_of, random_case
from trainables.methods.focal import Focal
from trainables.methods.mmce import Mmce, mmce_penalty, weighted_mmce


@every_shape
@pytest.mark.parametrize("width", [0.1, 0.4])
def test_matches_its_definition(shape: tuple[int, int, float], width: float) -> None:
    logits, labels = random_case(shape)
    expected = references.weighted_mmce_squared(logits, labels, width)
    assert weighted_mmce(logits, labels, width).item() == approx(expected, rel=1e-9, abs=1e-14)
    method = Mmce(weight=3.0, kernel_width=width)
    whole = references.mmce_loss(logits, labels, 3.0, width)
    assert method.loss(logits, labels, 0.5).item() == approx(whole, rel=1e-6, abs=1e-6)


@every_shape
def test_the_released_codes_normalisation(shape: tuple[int, int, float]) -> None:
    logits, labels = random_case(shape)
    expected = references.weighted_mmce_squared(logits, labels, 0.4, "released")
    assert weighted_mmce(logits, labels, 0.4, "released_code").item() == approx(
        expected, rel=1e-8, abs=1e-14
    )


def test_two_samples_by_hand() -> None:
    """Confidence .9, right; .6, wrong: .1^2 + .6^2 - 2 * .1 * .6 * exp(-.3 / .4)."""
    logits, labels = logits_of([0.9, 0.1], [0.6, 0.4]), torch.tensor([0, 1])
    squared = 0.01 + 0.36 - 0.12 * math.exp(-0.75)
    assert weighted_mmce(logits, labels, 0.4).item() == approx(squared, rel=1e-12)
    assert mmce_penalty(logits, labels, 0.4).item() == approx(math.sqrt(squared + 1e-10), rel=1e-12)


@pytest.mark.parametrize("labels", [[0, 0, 0], [1, 1, 1]], ids=["all right", "all wrong"])
def test_nothing_to_compare_is_the_base_alone(labels: list[int]) -> None:
    logits, classes = torch.tensor([[2.0, 0.0], [1.0, 0.0], [90.0, 0.0]]), torch.tensor(labels)
    assert_close(
        Mmce().loss(logits, classes, 0.5), F.cross_entropy(logits, classes), rtol=0, atol=0
    )


def test_gradient_is_that_of_its_definition() -> None:
    logits, labels = random_case((7, 3, 1.0))
    (gradient,) = torch.autograd.grad(
        Mmce(weight=2.0).loss(logits.requires_grad_(), labels, 0.5), logits
    )
    expected = references.central_differences(
        lambda z: references.mmce_loss(z, labels, 2.0), logits.detach()
    )
    assert gradient.numpy() == approx(expected, abs=1e-6)


def test_it_is_added_to_its_base() -> None:
    logits, labels = random_case((40, 10, 5.0))
    expected = Focal(gamma=2.0).loss(logits, labels, 0.5) + 2.0 * mmce_penalty(logits, labels, 0.4)
    assert_close(Mmce(base=Focal(gamma=2.0)).loss(logits, labels, 0.5), expected)
