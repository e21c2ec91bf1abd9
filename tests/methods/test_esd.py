"""ESD against its definition, its unbiasedness, and where it has nothing to compare."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from pytest import approx
from torch.testing import assert_close

from tests import references
from tests.cases import SHAPES, logits_of, random_case
from trainables.methods.esd import Esd, expected_squared_difference
from trainables.methods.focal import Focal


@pytest.mark.parametrize("shape", [each for each in SHAPES if each[0] > 2], ids=str)
def test_matches_its_definition(shape: tuple[int, int, float]) -> None:
    logits, labels = random_case(shape)
    expected = references.esd(logits, labels)
    found = expected_squared_difference(logits, labels).item()
    assert found == approx(expected, rel=1e-9, abs=1e-15)


def test_gradient_is_that_of_its_definition() -> None:
    logits, labels = random_case((7, 3, 1.0))
    (gradient,) = torch.autograd.grad(
        expected_squared_difference(logits.requires_grad_(), labels), logits
    )
    expected = references.central_differences(lambda z: references.esd(z, labels), logits.detach())
    assert gradient.numpy() == approx(expected, abs=1e-8)


@pytest.mark.parametrize("samples", [3, 4, 5])
def test_it_is_unbiased_for_every_batch_size(samples: int) -> None:
    """The mean over all batches that can be drawn is the population's sum over pairs of other
    draws: by the definition of an expectation, with every draw equally likely."""
    p = [0.9, 0.7, 0.6]
    population = [(logits_of([q, 1 - q]), label) for q, label in zip(p, [0, 1, 0], strict=True)]
    found = []
    for chosen in itertools.product(range(3), repeat=samples):
        logits = torch.cat([population[k][0] for k in chosen])
        labels = torch.tensor([population[k][1] for k in chosen])
        found.append(expected_squared_difference(logits, labels).item())
    gaps = [1 - 0.9, 0 - 0.7, 1 - 0.6]
    inner = [sum(g * (c <= limit) for g, c in zip(gaps, p, strict=True)) / 3 for limit in p]
    assert sum(found) / len(found) == approx(sum(m**2 for m in inner) / 3, rel=1e-9)
    assert min(found) < 0


@pytest.mark.parametrize("samples", [1, 2])
def test_fewer_than_three_samples_are_the_base_alone(samples: int) -> None:
    logits, labels = random_case((samples, 3, 1.0))
    found = Esd(weight=5.0).loss(logits.requires_grad_(), labels, 0.5)
    assert_close(found, F.cross_entropy(logits, labels), rtol=0, atol=0)
    (gradient,) = torch.autograd.grad(found, logits)
    assert gradient.isfinite().all()


@pytest.mark.parametrize("label", [0, 1], ids=["all right", "all wrong"])
def test_one_confidence_by_hand(label: int) -> None:
    """Equal gaps have no variance: the square of the gap."""
    logits = logits_of(*[[0.8, 0.2]] * 4)
    found = expected_squared_difference(logits, torch.full((4,), label))
    assert found.item() == approx((0.2 if label == 0 else 0.8) ** 2, rel=1e-12)


def test_a_class_that_cannot_occur_adds_nothing() -> None:
    rows = [[2.0, -torch.inf, 0.0], [0.5, -torch.inf, 1.0], [1.0, -torch.inf, 0.0]]
    logits, labels = torch.tensor(rows, requires_grad=True), torch.tensor([0, 1, 2])
    found = expected_squared_difference(logits, torch.tensor([0, 2, 2]))
    (gradient,) = torch.autograd.grad(found, logits)
    two = logits.detach()[:, [0, 2]]
    assert_close(found, expected_squared_difference(two, torch.tensor([0, 1, 1])))
    assert gradient.isfinite().all() and not gradient[:, 1].any() and len(labels) == 3


def test_it_is_added_to_its_base() -> None:
    logits, labels = random_case((40, 10, 5.0))
    expected = references.focal(logits, labels, 2.0) + 3.0 * references.esd(logits, labels)
    found = Esd(weight=3.0, base=Focal(gamma=2.0)).loss(logits, labels, 0.5)
    assert found.item() == approx(expected, rel=1e-9)


def test_soft_targets_are_refused() -> None:
    logits, labels = random_case((40, 10, 5.0))
    with pytest.raises(TypeError, match="Esd needs labels"):
        Esd().loss(logits, F.one_hot(labels, 10).double(), 0.5)
