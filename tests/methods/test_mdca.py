"""MDCA against its definition and by hand."""

import pytest
import torch
import torch.nn.functional as F
from pytest import approx
from torch.testing import assert_close

from tests import references
from tests.cases import every_shape, logits_of, random_case
from trainables.methods.focal import Focal
from trainables.methods.mdca import Mdca, multiclass_difference


@every_shape
def test_matches_its_definition(shape: tuple[int, int, float]) -> None:
    logits, labels = random_case(shape)
    expected = references.mdca(logits, labels)
    assert multiclass_difference(logits, labels).item() == approx(expected, rel=1e-9, abs=1e-15)


def test_gradient_is_that_of_its_definition() -> None:
    logits, labels = random_case((7, 3, 1.0))
    (gradient,) = torch.autograd.grad(
        multiclass_difference(logits.requires_grad_(), labels), logits
    )
    expected = references.central_differences(lambda z: references.mdca(z, labels), logits.detach())
    assert gradient.numpy() == approx(expected, abs=1e-9)


def test_by_hand() -> None:
    """Means .5, .3, .2 of two samples; labels 0 and 0 are shares 1, 0, 0."""
    logits = logits_of([0.7, 0.2, 0.1], [0.3, 0.4, 0.3])
    found = multiclass_difference(logits, torch.tensor([0, 0]))
    assert found.item() == approx((0.5 + 0.3 + 0.2) / 3, rel=1e-12)


def test_marginals_that_agree_are_no_gap_and_have_no_gradient() -> None:
    """The right and the wrong sample cancel: their mean is .5 for either class."""
    logits = logits_of([0.9, 0.1], [0.1, 0.9]).requires_grad_()
    found = multiclass_difference(logits, torch.tensor([1, 0]))
    (gradient,) = torch.autograd.grad(found, logits)
    assert found.item() == approx(0.0, abs=1e-15) and gradient.abs().max() < 0.2


def test_a_class_that_cannot_occur_adds_nothing() -> None:
    logits = torch.tensor([[2.0, -torch.inf, 0.0]], requires_grad=True)
    found = multiclass_difference(logits, torch.tensor([0]))
    (gradient,) = torch.autograd.grad(found, logits)
    two = multiclass_difference(torch.tensor([[2.0, 0.0]]), torch.tensor([0]))
    assert_close(found, two * 2 / 3)
    assert gradient.isfinite().all()


def test_it_is_added_to_its_base() -> None:
    logits, labels = random_case((40, 10, 5.0))
    expected = references.focal(logits, labels, 1.0) + 3.0 * references.mdca(logits, labels)
    found = Mdca(weight=3.0, base=Focal(gamma=1.0)).loss(logits, labels, 0.5)
    assert found.item() == approx(expected, rel=1e-9)


def test_soft_targets_are_refused() -> None:
    logits, labels = random_case((40, 10, 5.0))
    with pytest.raises(TypeError, match="Mdca needs labels"):
        Mdca().loss(logits, F.one_hot(labels, 10).double(), 0.5)
