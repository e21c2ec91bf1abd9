"""RegMixup: its loss on both halves, what its step gives, and which bases it takes."""

from typing import Any

import numpy as np
import pytest
import torch
from pytest import approx
from scipy.stats import beta, kstest
from torch import Tensor
from torch.testing import assert_close

from tests import references
from tests.cases import random_case
from tests.methods.fakes import FakeLearner, linear
from trainables.method import Batch, Method
from trainables.methods.cross_entropy import CrossEntropy
from trainables.methods.focal import Focal
from trainables.methods.gamma_net import GammaNet
from trainables.methods.mdca import Mdca
from trainables.methods.mixup import Mixup
from trainables.methods.reg_mixup import RegMixup
from trainables.methods.sample_prioritization import SamplePrioritization
from trainables.problems import FieldError

PARTNER = [3, 0, 2, 5, 1, 4, 6]


def batch_of(images: Tensor, labels: Tensor) -> Batch:
    drawn = {"share": torch.tensor(0.3), "partner": torch.tensor(PARTNER)}
    return Batch(images, labels, torch.arange(len(labels)), drawn)


@pytest.mark.parametrize(
    ("base", "definition"),
    [
        (CrossEntropy(), references.cross_entropy),
        (Focal(gamma=2.0), lambda z, y: references.focal(z, y, 2.0)),
        (
            Mdca(weight=0.5),
            lambda z, y: references.cross_entropy(z, y) + 0.5 * references.mdca(z, y),
        ),
    ],
    ids=lambda case: type(case).__name__,
)
@pytest.mark.parametrize("parts", ["mean", "sum"])
def test_a_step_is_of_the_samples_and_of_their_mixtures(
    base: Method, definition: Any, parts: str
) -> None:
    images, labels = random_case((7, 4, 2.0))
    weight = torch.from_numpy(np.random.default_rng(0).normal(size=(4, 4)))
    learner = FakeLearner(network=linear(weight))
    step = RegMixup(base=base, parts=parts).step(learner, "state", batch_of(images, labels))
    mixed = torch.from_numpy(references.mixed_inputs(images, 0.3, PARTNER))

    def loss_at(weight: Any) -> float:
        matrix = torch.as_tensor(weight)
        z, of_mixed = images @ matrix, mixed @ matrix
        half = references.reg_mixup(definition, z, of_mixed, labels, 0.3, PARTNER)
        return half if parts == "mean" else 2 * half

    assert step.loss.item() == approx(loss_at(weight), rel=1e-6)
    gradient = learner.gradients[0]["head.weight"].T
    assert gradient.numpy() == approx(
        references.central_differences(loss_at, weight), rel=1e-4, abs=1e-6
    )
    # What is observed is of the samples themselves.
    assert_close(step.logits, images @ weight)
    assert step.state == "state" and not step.logits.requires_grad


def test_one_forward_pass() -> None:
    images, labels = random_case((7, 4, 2.0))
    learner = FakeLearner(network=linear(torch.eye(4, dtype=torch.float64)))
    shapes = []
    learner.network.register_forward_hook(lambda module, given, out: shapes.append(out.shape))
    RegMixup().step(learner, None, batch_of(images, labels))
    assert shapes == [(14, 4)]


def test_shares_are_beta_distributed_and_partners_a_permutation() -> None:
    drawn = RegMixup(alpha=10.0).draw(400, 6, torch.Generator().manual_seed(0))
    assert kstest(drawn["share"].numpy(), beta(10, 10).cdf).pvalue > 1e-3
    assert torch.equal(drawn["partner"].sort(dim=-1).values, torch.arange(6).expand(400, 6))


@pytest.mark.parametrize(
    ("base", "problem"),
    [
        (GammaNet(), "GammaNet overrides the training step"),
        (RegMixup(), "RegMixup overrides the training step"),
        (Mixup(), "Mixup mixes samples already"),
        (Mdca(base=Mixup()), "Mdca mixes samples already"),
    ],
    ids=str,
)
def test_bases_that_cannot_be_mixed(base: Method, problem: str) -> None:
    with pytest.raises(FieldError, match=problem):
        RegMixup(base=base)


def test_what_cannot_be_around_it() -> None:
    with pytest.raises(FieldError, match="Wrap Mdca in RegMixup instead"):
        Mdca(base=RegMixup())
    with pytest.raises(FieldError, match="RegMixup overrides the training step"):
        Mixup(base=RegMixup())
    assert SamplePrioritization(base=RegMixup()).mixes
