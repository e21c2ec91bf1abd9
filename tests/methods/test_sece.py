"""Smooth ECE against its definition, its limits in the bandwidth, and finite differences."""

import math
from typing import Literal

import pytest
import torch
import torch.nn.functional as F
from pytest import approx
from torch import Tensor

from tests import golden, references
from tests.cases import SHAPES, logits_of, random_case
from trainables.methods.cross_entropy import CrossEntropy
from trainables.methods.focal import Focal
from trainables.methods.sece import Sece, smooth_ece

Hits = Literal["hard", "soft"]
every_variant = pytest.mark.parametrize(
    ("hits", "self_weight"), [("hard", True), ("hard", False), ("soft", True), ("soft", False)]
)


def confidences_and_hits(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    confidences, top = torch.softmax(logits, -1).max(-1)
    return confidences, (top == labels).double()


@pytest.mark.parametrize("shape", SHAPES[1:])
@every_variant
@pytest.mark.parametrize("bandwidth", [0.01, 0.1, 0.3])
def test_matches_its_definition(
    shape: tuple[int, int, float], hits: Hits, self_weight: bool, bandwidth: float
) -> None:
    logits, labels = random_case(shape)
    expected = references.smooth_ece(logits, labels, bandwidth, hits, self_weight)
    value = smooth_ece(logits, labels, bandwidth, hits=hits, self_weight=self_weight)
    assert value.shape == () and value.item() == approx(expected, rel=1e-9)


def test_validation_batch_of_the_lookahead_rows() -> None:
    logits, labels, tolerance = golden.lookahead_validation()
    expected = golden.GOLDEN["gamma_net"]["sece_before"]
    assert smooth_ece(logits, labels, 0.1).item() == approx(expected, rel=tolerance)


def test_two_samples_by_hand() -> None:
    """Confidences .9 (right) and .6 (wrong), h = .3: each weighs the other by w
    = e^-.5 / (1 + e^-.5)."""
    logits, labels = logits_of([0.9, 0.1], [0.6, 0.4]), torch.tensor([0, 1])
    w = math.exp(-0.5) / (1 + math.exp(-0.5))
    assert smooth_ece(logits, labels, 0.3).item() == approx(
        (abs(1 - w - 0.9) + abs(w - 0.6)) / 2, rel=1e-12
    )
    without_self = smooth_ece(logits, labels, 0.3, self_weight=False)
    assert without_self.item() == approx((0.9 + 0.4) / 2, rel=1e-12)


def test_soft_hits_by_hand() -> None:
    """The true class behind by .02 of probability: rank 1 + sigmoid(2), hit 1 - sigmoid(2)."""
    logits, labels = logits_of([0.51, 0.49]), torch.tensor([1])
    hit = 1 - 1 / (1 + math.exp(-2.0))
    assert smooth_ece(logits, labels, 0.1, hits="soft").item() == approx(0.51 - hit, rel=1e-9)


def test_wide_kernel_is_mean_accuracy_against_each_confidence() -> None:
    logits, labels, _ = golden.input_b()
    confidences, hits = confidences_and_hits(logits, labels)
    expected = (hits.mean() - confidences).abs().mean().item()
    assert smooth_ece(logits, labels, 1e6).item() == approx(expected, rel=1e-9)


def test_narrow_kernel_is_each_hit_against_its_own_confidence() -> None:
    logits, labels, _ = golden.input_b()
    confidences, hits = confidences_and_hits(logits, labels)
    expected = (hits - confidences).abs().mean().item()
    assert smooth_ece(logits, labels, 1e-9).item() == approx(expected, rel=1e-9)


@every_variant
def test_saturated_batches_by_hand(hits: Hits, self_weight: bool) -> None:
    logits = torch.tensor([[1000.0, 0.0, 0.0]] * 4, dtype=torch.float64)
    right, wrong = torch.zeros(4, dtype=torch.int64), torch.ones(4, dtype=torch.int64)
    assert smooth_ece(logits, right, 0.1, hits=hits, self_weight=self_weight).item() == approx(
        0.0, abs=1e-12
    )
    assert smooth_ece(logits, wrong, 0.1, hits=hits, self_weight=self_weight).item() == approx(1.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_lone_sample_leans_on_its_nearest_neighbour(dtype: torch.dtype) -> None:
    """Itself left out and 40 bandwidths from the next, its kernels underflow;
    the nearest hit counts."""
    rows = logits_of([0.95, 0.05], [0.55, 0.45], [0.54, 0.46]).to(dtype).requires_grad_()
    value = smooth_ece(rows, torch.tensor([1, 0, 1]), 0.01, self_weight=False)
    (gradient,) = torch.autograd.grad(value, rows)
    # Of the .55 against the .54: almost 1.
    w = 1 / (1 + math.exp(-((0.41**2 - 0.40**2) / (2 * 0.01**2))))
    assert value.dtype == dtype
    assert value.item() == approx((abs(w - 0.95) + 0.55 + abs(1 - 0.54)) / 3, rel=1e-5)
    assert torch.isfinite(gradient).all()


def test_a_batch_of_one() -> None:
    logits, label = logits_of([0.7, 0.3]).requires_grad_(), torch.tensor([0])
    assert smooth_ece(logits, label, 0.1).item() == approx(0.3, rel=1e-12)
    # No other sample to be compared with.
    nothing = smooth_ece(logits, label, 0.1, self_weight=False)
    (gradient,) = torch.autograd.grad(nothing, logits)
    assert nothing.item() == 0.0 and gradient.tolist() == [[0.0, 0.0]]


@every_variant
def test_gradient_is_that_of_its_definition(hits: Hits, self_weight: bool) -> None:
    logits, labels = random_case((6, 4, 1.0))
    value = smooth_ece(logits.requires_grad_(), labels, 0.1, hits=hits, self_weight=self_weight)
    (gradient,) = torch.autograd.grad(value, logits)
    expected = references.central_differences(
        lambda z: references.smooth_ece(z, labels, 0.1, hits, self_weight), logits.detach()
    )
    assert gradient.abs().max() > 1e-3
    assert gradient.numpy() == approx(expected, abs=1e-6)


@every_variant
def test_second_gradient_exists(hits: Hits, self_weight: bool) -> None:
    """A look-ahead through this loss differentiates it twice: d (g . v) / dz
    against differences of g."""
    logits, labels = random_case((6, 4, 1.0))
    logits.requires_grad_()
    direction = torch.linspace(-1.0, 1.0, 24, dtype=torch.float64).view(6, 4)

    def slope(z: Tensor) -> Tensor:
        value = smooth_ece(z, labels, 0.1, hits=hits, self_weight=self_weight)
        return torch.autograd.grad(value, z, create_graph=True)[0]

    (curvature,) = torch.autograd.grad((slope(logits) * direction).sum(), logits)
    step = 1e-5
    ahead, behind = slope(logits + step * direction), slope(logits - step * direction)
    assert curvature.numpy() == approx(((ahead - behind) / (2 * step)).detach().numpy(), abs=1e-5)


def test_permuting_the_batch_changes_nothing() -> None:
    logits, labels, _ = golden.input_b()
    order = torch.arange(199, -1, -1)
    value = smooth_ece(logits, labels, 0.1).item()
    assert smooth_ece(logits[order], labels[order], 0.1).item() == approx(value, rel=1e-12)


def test_method_adds_its_weight_of_it_to_the_base() -> None:
    logits, labels = random_case((40, 10, 5.0))
    smooth = references.smooth_ece(logits, labels, 0.05, "soft", False)
    method = Sece(bandwidth=0.05, weight=2.0, hits="soft", self_weight=False, base=Focal(gamma=3.0))
    expected = references.focal(logits, labels, 3.0) + 2.0 * smooth
    assert method.loss(logits, labels, 0.5).item() == approx(expected, rel=1e-9)


def test_method_stands_on_cross_entropy_unless_told() -> None:
    logits, labels = random_case((40, 10, 5.0))
    expected = references.cross_entropy(logits, labels) + 0.5 * references.smooth_ece(
        logits, labels, 0.1
    )
    assert Sece().base == CrossEntropy()
    assert Sece().loss(logits, labels, 0.0).item() == approx(expected, rel=1e-9)


def test_soft_targets_are_refused() -> None:
    logits, labels = random_case((40, 10, 5.0))
    with pytest.raises(TypeError, match="Sece needs labels"):
        Sece().loss(logits, F.one_hot(labels, 10).double(), 0.0)
