"""Mixup: what a batch becomes, what its loss is, and which shares are drawn."""

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from pytest import approx
from scipy.stats import beta, kstest
from torch.testing import assert_close

from tests import references
from tests.cases import random_case
from tests.methods.fakes import FakeLearner
from trainables.method import Batch, Method, Mixed
from trainables.methods.cross_entropy import CrossEntropy
from trainables.methods.focal import Focal
from trainables.methods.gamma_net import GammaNet
from trainables.methods.mixup import Mixup, mixed_batch
from trainables.methods.sece import Sece
from trainables.problems import FieldError


def images_and_labels() -> Batch:
    images = torch.arange(24.0, dtype=torch.float64).reshape(6, 1, 2, 2)
    return Batch(images, torch.tensor([0, 1, 2, 0, 1, 2]), torch.arange(6))


def prepared(method: Mixup, seed: int) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    drawn = {name: values[1] for name, values in method.draw(2, 6, generator).items()}
    return method.prepare(images_and_labels()._replace(drawn=drawn), generator)


@pytest.mark.parametrize("shape", [(1, 2, 2), (4,)], ids=["images", "rows of numbers"])
def test_samples_and_labels_of_a_mixed_batch(shape: tuple[int, ...]) -> None:
    partner = [5, 4, 3, 2, 1, 0]
    whole = images_and_labels()
    whole = whole._replace(images=whole.images.reshape(6, *shape))
    mixed = mixed_batch(whole, 0.3, torch.tensor(partner))
    expected = references.mixed_inputs(whole.images, 0.3, partner)
    assert mixed.images.shape == whole.images.shape
    assert mixed.images.numpy() == approx(expected, rel=1e-12)
    assert isinstance(mixed.targets, Mixed) and mixed.targets.share == 0.3
    assert mixed.targets.first.tolist() == [0, 1, 2, 0, 1, 2] and mixed.targets.second.tolist() == [
        2,
        1,
        0,
        2,
        1,
        0,
    ]
    assert mixed.indices.tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("alpha", [0.1, 1.0])
def test_shares_are_beta_distributed_and_partners_any(alpha: float) -> None:
    drawn = [prepared(Mixup(alpha=alpha), seed) for seed in range(400)]
    shares = [batch.targets.share for batch in drawn if isinstance(batch.targets, Mixed)]
    assert len(shares) == 400 and kstest(shares, beta(alpha, alpha).cdf).pvalue > 1e-3
    seconds = torch.stack(
        [batch.targets.second for batch in drawn if isinstance(batch.targets, Mixed)]
    )
    # Each class as often, at every place.
    assert seconds.double().mean(0).tolist() == approx([1.0] * 6, abs=0.15)


def test_alpha_zero_mixes_nothing() -> None:
    batch = prepared(Mixup(alpha=0.0), 1)
    assert torch.equal(batch.images, images_and_labels().images) and isinstance(
        batch.targets, torch.Tensor
    )


@pytest.mark.parametrize(
    ("base", "definition"),
    [
        (CrossEntropy(), references.cross_entropy),
        (Focal(gamma=2.0), lambda z, y: references.focal(z, y, 2.0)),
        (
            Sece(bandwidth=0.1, weight=0.5),
            lambda z, y: references.cross_entropy(z, y) + 0.5 * references.smooth_ece(z, y, 0.1),
        ),
    ],
    ids=lambda case: type(case).__name__,
)
def test_the_loss_is_that_of_both_labels(base: Method, definition: Any) -> None:
    logits, labels = random_case((12, 5, 3.0))
    partner = np.random.default_rng(0).permutation(12)
    learner = FakeLearner(logits)
    batch = Batch(torch.empty(12), Mixed(labels, labels[partner], 0.3), torch.arange(12))
    step = Mixup(base=base).step(learner, None, batch)
    assert step.loss.item() == approx(
        references.mixup(definition, logits, labels, 0.3, list(partner)), rel=1e-9
    )


def test_for_cross_entropy_it_is_the_loss_of_the_mixed_label() -> None:
    logits, labels = random_case((12, 5, 3.0))
    other = labels.flip(0)
    batch = Batch(torch.empty(12), Mixed(labels, other, 0.3), torch.arange(12))
    step = Mixup().step(FakeLearner(logits), None, batch)
    soft = 0.3 * F.one_hot(labels, 5) + 0.7 * F.one_hot(other, 5)
    assert_close(step.loss, F.cross_entropy(logits, soft))


@pytest.mark.parametrize(
    ("base", "problem"), [(GammaNet(), "GammaNet overrides"), (Mixup(), "already contains")]
)
def test_bases_that_cannot_be_mixed(base: Method, problem: str) -> None:
    with pytest.raises(FieldError, match=problem):
        Mixup(base=base)
