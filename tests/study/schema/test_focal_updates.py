"""The focal paper's updates: its released code sums a loss over a batch, our studies take means."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.testing import assert_close

import study
from study.schema.reading import read_spec
from study.schema.spec import StudySpec
from trainables.training.weights import Weights

FOLDER = Path(study.__file__).parent / "specs" / "papers"
CLASSES = 10
STEPS = 8
SMALL = 0.005
# Clipping divides by a norm plus 1e-6, which is more beside the norm of a mean than of a sum.
CLIPPED = {"rtol": 1e-5, "atol": 1e-5}
EXACT = {"rtol": 1e-9, "atol": 1e-9}


class Released(NamedTuple):
    """What the released scripts train a study with. last: samples of an epoch's last batch."""

    batch: int
    last: int
    brier_lr: float


STUDIES = {
    "focal_cifar10": Released(128, 45_000 % 128, 0.1),
    "focal_tiny_imagenet": Released(64, 90_000 % 64, 0.035),
}


def summed_focal(logits: Tensor, labels: Tensor, gamma: Callable[[Tensor], Tensor]) -> Tensor:
    p = logits.softmax(dim=-1)[torch.arange(len(labels)), labels]
    return (-((1 - p) ** gamma(p.detach())) * p.log()).sum()


def flsd_53(p: Tensor) -> Tensor:
    return torch.where(p < 0.2, 5.0, 3.0)


def brier(logits: Tensor, labels: Tensor) -> Tensor:
    return ((logits.softmax(dim=-1) - F.one_hot(labels, CLASSES)) ** 2).sum() / len(labels)


# As in the released code, by label: sums, and a mean for Brier.
THEIRS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cross_entropy": lambda z, y: F.cross_entropy(z, y, reduction="sum"),
    "label_smoothing": lambda z, y: F.cross_entropy(z, y, reduction="sum", label_smoothing=0.05),
    "focal_3": lambda z, y: summed_focal(z, y, lambda p: torch.full_like(p, 3.0)),
    "flsd_53": lambda z, y: summed_focal(z, y, flsd_53),
    "brier": brier,
}


class Trained(NamedTuple):
    ours: nn.Sequential
    theirs: nn.Sequential
    norms: list[float]  # of their gradients, before clipping


def trained(name: str, label: str, sizes: list[int], scale: float) -> Trained:
    """Two equal networks after a step on each batch: our optimizer and method, their loss and SGD.

    scale: of the logits. A small one leaves gradients too small to be clipped.
    """
    trial = spec_of(name).trial(label)
    ours = network()
    theirs = network()
    rate = STUDIES[name].brier_lr if label == "brier" else 0.1
    sgd = torch.optim.SGD(theirs.parameters(), lr=rate, momentum=0.9, weight_decay=5e-4)
    weights = Weights(ours.named_parameters(), trial.optimizer)
    generator = torch.Generator().manual_seed(0)
    norms = []
    for size in sizes:
        inputs = torch.randn(size, 20, generator=generator, dtype=torch.float64)
        labels = torch.randint(CLASSES, (size,), generator=generator)
        sgd.zero_grad()
        THEIRS[label](scale * theirs(inputs), labels).backward()
        norms.append(float(nn.utils.clip_grad_norm_(theirs.parameters(), 2.0)))
        sgd.step()
        weights.backward(trial.method.loss(scale * ours(inputs), labels, 0.0))
        weights.update(torch.tensor(trial.optimizer.learning_rate(0.0), dtype=torch.float64))
    return Trained(ours, theirs, norms)


@cache
def spec_of(name: str) -> StudySpec:
    return read_spec(FOLDER / f"{name}.yaml")


def network() -> nn.Sequential:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return nn.Sequential(nn.Linear(20, 16), nn.ReLU(), nn.Linear(16, CLASSES)).double()


@pytest.mark.parametrize("scale", [1.0, SMALL])
@pytest.mark.parametrize("label", THEIRS)
@pytest.mark.parametrize("name", STUDIES)
def test_several_updates_are_those_of_the_released_code(
    name: str, label: str, scale: float
) -> None:
    ours, theirs, norms = trained(name, label, [STUDIES[name].batch] * STEPS, scale)
    is_clipped = scale == 1.0 and label != "brier"  # a mean is below 2
    assert all((norm > 2) == is_clipped for norm in norms)
    for mine, reference in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert_close(mine, reference, **(CLIPPED if is_clipped else EXACT))
    assert not torch.equal(ours[2].weight, network()[2].weight)


@pytest.mark.parametrize("name", STUDIES)
def test_the_last_batch_of_an_epoch_weighs_more_than_in_a_sum(name: str) -> None:
    """By batch / last, unless both are clipped. Weights decay equally beside it."""
    batch, last, _ = STUDIES[name]
    ours, theirs, _ = trained(name, "cross_entropy", [last], SMALL)
    for before, mine, reference in zip(
        network().parameters(), ours.parameters(), theirs.parameters(), strict=True
    ):
        decayed = before - 0.1 * 5e-4 * before
        assert_close(decayed - mine, (decayed - reference) * batch / last, **EXACT)
    ours, theirs, _ = trained(name, "cross_entropy", [last], 1.0)
    for mine, reference in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert_close(mine, reference, **CLIPPED)


@pytest.mark.parametrize("name", STUDIES)
def test_mmce_is_scaled_as_a_sum(name: str) -> None:
    """Their code multiplies its mean by the number of samples."""
    spec = spec_of(name)
    assert spec.trial("mmce").optimizer == spec.trial("cross_entropy").optimizer


def test_cifar100_is_trained_as_cifar10() -> None:
    for label in (variant.label for variant in spec_of("focal_cifar10").variants):
        ours = spec_of("focal_cifar100").trial(label)
        assert ours.optimizer == spec_of("focal_cifar10").trial(label).optimizer
