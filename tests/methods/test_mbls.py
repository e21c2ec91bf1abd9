"""Margin-based label smoothing against its definition, its limits and values by hand."""

import math

import pytest
import torch
import torch.nn.functional as F
from pytest import approx
from torch.testing import assert_close

from tests import references
from tests.cases import every_shape, random_case
from trainables.methods.mbls import Mbls, mbls_loss


@every_shape
@pytest.mark.parametrize(("margin", "weight"), [(0.0, 0.1), (2.0, 0.5), (10.0, 0.1), (10.0, 1.0)])
def test_matches_its_definition(
    shape: tuple[int, int, float], margin: float, weight: float
) -> None:
    logits, labels = random_case(shape)
    expected = references.mbls(logits, labels, margin, weight)
    assert mbls_loss(logits, labels, margin, weight).item() == approx(expected, rel=1e-9)


def test_by_hand() -> None:
    logits = torch.tensor([[12.0, 0.0, 1.0, 11.0]], dtype=torch.float64)
    cross_entropy = math.log(1 + math.exp(-12) + math.exp(-11) + math.exp(-1))
    violations = (2 + 1) / 4  # 12 - 0 - 10 and 12 - 1 - 10, over four classes
    loss = mbls_loss(logits, torch.tensor([0]), 10.0, 0.1)
    assert loss.item() == approx(cross_entropy + 0.1 * violations, rel=1e-12)


@pytest.mark.parametrize(("margin", "weight"), [(1e6, 0.1), (3.0, 0.0)])
def test_huge_margin_or_no_weight_is_cross_entropy(margin: float, weight: float) -> None:
    logits, labels = random_case((40, 10, 5.0))
    assert_close(mbls_loss(logits, labels, margin, weight), F.cross_entropy(logits, labels))


def test_only_differences_of_logits_count() -> None:
    logits, labels = random_case((40, 10, 5.0))
    assert_close(mbls_loss(logits + 100.0, labels, 2.0, 0.5), mbls_loss(logits, labels, 2.0, 0.5))


def test_gradient_is_that_of_its_definition() -> None:
    logits, labels = random_case((6, 4, 4.0))
    (gradient,) = torch.autograd.grad(mbls_loss(logits.requires_grad_(), labels, 1.0, 0.7), logits)
    expected = references.central_differences(
        lambda z: references.mbls(z, labels, 1.0, 0.7), logits.detach()
    )
    assert gradient.numpy() == approx(expected, abs=1e-8)


def test_method_passes_its_fields_on() -> None:
    logits, labels = random_case((40, 10, 5.0))
    expected = references.mbls(logits, labels, 4.0, 0.3)
    assert Mbls(margin=4.0, weight=0.3).loss(logits, labels, 0.5).item() == approx(
        expected, rel=1e-9
    )
    one_hot = F.one_hot(labels, 10).double()
    assert Mbls(margin=4.0, weight=0.3).loss(logits, one_hot, 0.5).item() == approx(
        expected, rel=1e-9
    )


def test_margin_zero_is_maxsup() -> None:
    """Zhou et al. 2025: cross-entropy + weight * mean of z_max less the mean logit."""
    logits, labels = random_case((40, 10, 5.0))
    maxsup = (logits.max(dim=-1).values - logits.mean(dim=-1)).mean()
    expected = F.cross_entropy(logits, labels) + 0.15 * maxsup
    assert_close(mbls_loss(logits, labels, 0.0, 0.15), expected)


@pytest.mark.parametrize(("progress", "weight"), [(0.0, 0.1), (0.25, 0.125), (0.5, 0.15)])
def test_the_weight_grows_linearly_to_its_end(progress: float, weight: float) -> None:
    logits, labels = random_case((40, 10, 5.0))
    method = Mbls(margin=0.0, weight=0.1, weight_end=0.2)
    expected = references.mbls(logits, labels, 0.0, weight)
    assert method.loss(logits, labels, progress).item() == approx(expected, rel=1e-9)
    tensors = Mbls(margin=0.0, weight=torch.tensor(0.1), weight_end=torch.tensor(0.2))
    found = tensors.loss(logits, labels, torch.tensor(progress))
    assert found.item() == approx(expected, rel=1e-6)


def test_without_an_end_the_weight_is_constant_to_the_bit() -> None:
    logits, labels = random_case((40, 10, 5.0))
    found = {Mbls(margin=2.0).loss(logits, labels, progress).item() for progress in (0.0, 0.3, 0.9)}
    assert found == {mbls_loss(logits, labels, 2.0, 0.1).item()}


def test_stacked_weights_that_grow_are_those_alone() -> None:
    methods = [Mbls(weight=0.1, weight_end=0.2, margin=0.0), Mbls(weight=0.3, weight_end=0.0)]
    logits, labels = random_case((6, 4, 5.0))
    both = Mbls(
        margin=torch.tensor([[0.0], [10.0]]),
        weight=torch.tensor([[0.1], [0.3]]),
        weight_end=torch.tensor([[0.2], [0.0]]),
    )
    found = both.loss(torch.stack([logits] * 2), torch.stack([labels] * 2), torch.tensor(0.5))
    alone = [[method.loss(logits, labels, 0.5).item()] for method in methods]
    assert_close(found, torch.tensor(alone, dtype=torch.float64), rtol=1e-6, atol=1e-6)
