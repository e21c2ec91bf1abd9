"""DECE against its definition, its limits, and finite differences."""

import pytest
import torch
from pytest import approx
from torch.testing import assert_close

from tests import references
from tests.cases import SHAPES, logits_of, random_case
from trainables.methods.dece import Dece, differentiable_ece, soft_hits
from trainables.methods.label_smoothing import LabelSmoothing

# The released code adds 1e-6 to each soft bin, we nothing: with M bins they differ by up to M 1e-6.
FLOOR = 2e-5


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("bins", "tau_a", "tau_b"), [(15, 100.0, 0.01), (10, 10.0, 0.1), (1, 100.0, 0.01)]
)
def test_matches_its_definition(
    shape: tuple[int, int, float], bins: int, tau_a: float, tau_b: float
) -> None:
    logits, labels = random_case(shape)
    expected = references.dece(logits, labels, bins, tau_a, tau_b)
    assert differentiable_ece(logits, labels, bins, tau_a, tau_b).item() == approx(
        expected, rel=FLOOR, abs=FLOOR
    )


def test_soft_hits_by_hand() -> None:
    """The true class behind by .02 of probability: rank 1 + sigmoid(2), hit 1 - sigmoid(2)."""
    hit = 1 - 1 / (1 + 2.718281828459045**-2)
    found = soft_hits(torch.tensor([[0.51, 0.49]], dtype=torch.float64), torch.tensor([1]))
    assert found.item() == approx(hit, rel=1e-9)


def test_hard_limits_are_the_binned_error() -> None:
    """Sharp ranks and narrow soft bins: ECE with bins of equal width, whose edges no
    confidence here touches."""
    logits, labels = random_case((64, 4, 2.0))
    expected = references.ece(logits, labels, 10)
    assert differentiable_ece(logits, labels, 10, 1e7, 1e-7).item() == approx(expected, abs=1e-9)


def test_one_bin_is_the_gap_of_the_means() -> None:
    logits, labels = logits_of([0.9, 0.1], [0.8, 0.2]), torch.tensor([0, 1])
    assert differentiable_ece(logits, labels, 1).item() == approx(abs(0.5 - 0.85), abs=1e-6)


def test_gradient_is_that_of_its_definition() -> None:
    logits, labels = random_case((6, 4, 2.0))
    (gradient,) = torch.autograd.grad(
        differentiable_ece(logits.requires_grad_(), labels, 10, 10.0, 0.1), logits
    )
    expected = references.central_differences(
        lambda z: references.dece(z, labels, 10, 10.0, 0.1), logits.detach()
    )
    assert gradient.numpy() == approx(expected, abs=FLOOR)


def test_it_is_added_to_its_base() -> None:
    logits, labels = random_case((40, 10, 5.0))
    base = LabelSmoothing(epsilon=0.1)
    expected = base.loss(logits, labels, 0.5) + 2.0 * differentiable_ece(logits, labels)
    assert_close(Dece(weight=2.0, base=base).loss(logits, labels, 0.5), expected)
