"""Cross-entropy against its definition, torch's own and values by hand."""

import math

import pytest
import torch
import torch.nn.functional as F
from pytest import approx
from torch.testing import assert_close

from tests import golden, references
from tests.cases import every_shape, logits_of, random_case
from trainables.methods.cross_entropy import CrossEntropy, cross_entropy_loss


@every_shape
def test_matches_its_definition(shape: tuple[int, int, float]) -> None:
    logits, labels = random_case(shape)
    expected = references.cross_entropy(logits, labels)
    assert cross_entropy_loss(logits, labels).item() == approx(expected, rel=1e-9)


def test_two_classes_by_hand() -> None:
    loss = cross_entropy_loss(logits_of([0.75, 0.25], [0.75, 0.25]), torch.tensor([0, 1]))
    assert loss.item() == approx((math.log(4 / 3) + math.log(4)) / 2, rel=1e-12)


def test_flat_logits_cost_log_k() -> None:
    loss = cross_entropy_loss(torch.zeros(3, 7), torch.tensor([0, 3, 6]))
    assert loss.item() == approx(math.log(7), rel=1e-6)


def test_logits_of_ten_thousand_stay_finite() -> None:
    loss = cross_entropy_loss(torch.tensor([[1e4, 0.0], [1e4, 0.0]]), torch.tensor([0, 1]))
    assert loss.item() == approx(5e3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_is_a_scalar_of_the_logits_dtype(dtype: torch.dtype) -> None:
    loss = cross_entropy_loss(torch.zeros(2, 3, dtype=dtype), torch.tensor([0, 1]))
    assert loss.shape == () and loss.dtype == dtype


def test_mixed_targets_cost_the_mixture_of_both_losses() -> None:
    logits, labels, tolerance = golden.input_a()
    first, second = F.one_hot(labels, 10).float(), F.one_hot(labels.flip(0), 10).float()
    loss = CrossEntropy().loss(logits, 0.3 * first + 0.7 * second, 0.0)
    assert loss.item() == approx(
        golden.GOLDEN["other"]["mixup CE A lam=.3 perm=reversed"], rel=tolerance
    )


def test_one_hot_targets_are_labels() -> None:
    logits, labels = random_case((40, 10, 5.0))
    expected = F.cross_entropy(logits, labels)
    assert_close(CrossEntropy().loss(logits, labels, 0.0), expected)
    assert_close(CrossEntropy().loss(logits, F.one_hot(labels, 10).double(), 0.0), expected)
