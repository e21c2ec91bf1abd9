"""DCA against its definition and by hand."""

import pytest
import torch
import torch.nn.functional as F
from pytest import approx

from tests import references
from tests.cases import every_shape, logits_of, random_case
from trainables.methods.dca import Dca, confidence_difference
from trainables.methods.focal import Focal


@every_shape
def test_matches_its_definition(shape: tuple[int, int, float]) -> None:
    logits, labels = random_case(shape)
    expected = references.dca(logits, labels)
    assert confidence_difference(logits, labels).item() == approx(expected, rel=1e-9, abs=1e-15)


def test_gradient_is_that_of_its_definition() -> None:
    logits, labels = random_case((7, 3, 1.0))
    (gradient,) = torch.autograd.grad(
        confidence_difference(logits.requires_grad_(), labels), logits
    )
    expected = references.central_differences(lambda z: references.dca(z, labels), logits.detach())
    assert gradient.numpy() == approx(expected, abs=1e-9)


@pytest.mark.parametrize(("labels", "gap"), [([0, 0], 0.25), ([1, 1], 0.75), ([0, 1], 0.25)])
def test_by_hand(labels: list[int], gap: float) -> None:
    """Confidences .9 and .6: all right, all wrong, one of two."""
    logits = logits_of([0.9, 0.1], [0.6, 0.4])
    found = confidence_difference(logits, torch.tensor(labels))
    assert found.item() == approx(gap, rel=1e-12)


def test_it_is_added_to_its_base() -> None:
    logits, labels = random_case((40, 10, 5.0))
    expected = references.focal(logits, labels, 2.0) + 3.0 * references.dca(logits, labels)
    found = Dca(weight=3.0, base=Focal(gamma=2.0)).loss(logits, labels, 0.5)
    assert found.item() == approx(expected, rel=1e-9)


def test_a_class_that_cannot_occur_adds_nothing() -> None:
    logits = torch.tensor([[2.0, -torch.inf, 0.0]], requires_grad=True)
    found = confidence_difference(logits, torch.tensor([0]))
    (gradient,) = torch.autograd.grad(found, logits)
    assert found.item() == approx(1 - 1 / (1 + torch.e**-2), rel=1e-5)
    assert gradient.isfinite().all() and gradient[0, 1] == 0


def test_soft_targets_are_refused() -> None:
    logits, labels = random_case((40, 10, 5.0))
    with pytest.raises(TypeError, match="Dca needs labels"):
        Dca().loss(logits, F.one_hot(labels, 10).double(), 0.5)
