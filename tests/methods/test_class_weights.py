"""Class weights: each sample's loss times its label's weight, in every method that has such a
loss."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from pytest import approx
from sklearn.utils.class_weight import compute_class_weight
from torch import Tensor
from torch.testing import assert_close

from tests import references
from tests.cases import random_case
from tests.masks import CPU, masks_and_config
from trainables import methods
from trainables.config import TrialConfig
from trainables.loading.trial_data import trial_data
from trainables.method import Method, Mixed, with_class_weights
from trainables.methods.cross_entropy import CrossEntropy
from trainables.methods.focal import Focal, focal_loss
from trainables.methods.mdca import Mdca
from trainables.methods.mixup import Mixup
from trainables.methods.sece import Sece
from trainables.problems import FieldError
from trainables.training.learner import Learner
from trainables.training.stack import Stack

WEIGHTS = torch.tensor([0.5, 2.0, 1.0, 0.25, 3.0], dtype=torch.float64)
WRITTEN = tuple(WEIGHTS.tolist())
EACH = [name for name in methods.names() if methods.find(name)().elementwise]


def case() -> tuple[Tensor, Tensor]:
    return random_case((24, 5, 3.0))


def by_hand(method: Method, logits: Tensor, labels: Tensor) -> float:
    """The losses of batches of one, each times the weight of its label, over their number."""
    rows = logits.detach()
    alone = [method.loss(rows[i : i + 1], labels[i : i + 1], 0.5) for i in range(len(labels))]
    return float(torch.stack(alone) @ WEIGHTS[labels]) / len(labels)


def test_every_method_takes_them() -> None:
    assert {name for name in methods.names() if methods.find(name)().weighable} == {
        *methods.names()
    }


@pytest.mark.parametrize("name", EACH)
def test_it_is_each_samples_loss_times_its_weight(name: str) -> None:
    logits, labels = case()
    method = methods.find(name)()
    weighted = with_class_weights(method, WEIGHTS)
    found = weighted.loss_of(logits.requires_grad_(), labels, 0.5)
    assert found.item() == approx(by_hand(method, logits, labels), rel=1e-6)
    (gradient,) = torch.autograd.grad(found, logits)
    assert gradient.isfinite().all() and method.loss_of(logits, labels, 0.5) != found
    ones = with_class_weights(method, torch.ones(5, dtype=torch.float64))
    assert_close(ones.loss_of(logits, labels, 0.5), method.loss_of(logits, labels, 0.5))


def test_cross_entropy_is_that_of_torch_but_for_its_division() -> None:
    logits, labels = case()
    found = with_class_weights(CrossEntropy(), WEIGHTS).loss_of(logits, labels, 0.5)
    total = F.cross_entropy(logits, labels, WEIGHTS, reduction="sum")
    assert_close(found, total / len(labels))


def test_a_term_is_not_weighted_but_its_base_is() -> None:
    logits, labels = case()
    weighted = with_class_weights(Mdca(weight=3.0, base=Focal(gamma=2.0)), WEIGHTS)
    expected = by_hand(Focal(gamma=2.0), logits, labels) + 3.0 * references.mdca(logits, labels)
    assert weighted.loss_of(logits, labels, 0.5).item() == approx(expected, rel=1e-9)


def test_a_mixed_sample_has_the_weight_of_each_label() -> None:
    logits, labels = case()
    other = labels.flip(0)
    for method in (Mixup(), Mixup(base=Sece())):
        weighted = with_class_weights(method, WEIGHTS)
        found = weighted.loss_of(logits, Mixed(labels, other, 0.3), 0.5)
        first, second = (weighted.loss_of(logits, each, 0.5) for each in (labels, other))
        assert_close(found, 0.3 * first + 0.7 * second)
    with pytest.raises(TypeError, match="CrossEntropy needs labels"):
        with_class_weights(CrossEntropy(), WEIGHTS).loss_of(logits, logits.softmax(-1), 0.5)


def test_balanced_weights_are_those_of_scikit_learn_and_lists_have_a_mean_of_one() -> None:
    labels = torch.tensor([0] * 70 + [1] * 25 + [2] * 5)
    counts = labels.bincount()
    expected = compute_class_weight("balanced", classes=np.arange(3), y=labels.numpy())
    found = Focal(class_weights="balanced").weights_of(counts)
    assert found is not None and found.tolist() == approx(expected.tolist())
    listed = Mdca(class_weights=[1, 2, 3]).weights_of(counts)
    assert listed is not None and listed[labels].mean().item() == approx(1.0)
    assert (listed / listed[0]).tolist() == approx([1.0, 2.0, 3.0])
    # A class without a sample changes nothing for the others.
    absent = Focal(class_weights="balanced").weights_of(torch.tensor([70, 0, 30]))
    assert absent is not None and absent[[0, 2]].tolist() == approx([50 / 70, 50 / 30])
    assert Focal().weights_of(counts) is None
    outer = Sece(class_weights="balanced", base=Focal(class_weights=[1, 1, 9]))
    assert_close(outer.weights_of(counts), found)


def config(method: Any, number: int = 0, **settings: Any) -> TrialConfig:
    data = {"name": "gaussian_clusters", "train": 200, "meta": 0.2}
    plain = {"data": data, "model": {"name": "mlp", "width": 8}, "epochs": 2, "batch_size": 32}
    return TrialConfig.from_mapping({**plain, "method": method, "number": number, **settings})


def trained(one: TrialConfig) -> Learner:
    learner = Learner(one, trial_data(one, CPU), CPU)
    while not learner.finished:
        learner.train_epoch()
    return learner


def weights_of(learner: Learner) -> Tensor:
    return torch.cat([each.detach().flatten() for each in learner.network.parameters()])


@pytest.mark.parametrize("name", methods.names())
def test_every_method_trains_with_them(name: str) -> None:
    """Equal weights are none, but for rounding; others train another network."""
    classes = trial_data(config(name), CPU).prepared.num_classes
    plain, equal, other = (
        weights_of(trained(config({"name": name, **given}, epochs=1)))
        for given in (
            {},
            {"class_weights": [2.0] * classes},
            {"class_weights": [9.0, *[1.0] * (classes - 1)]},
        )
    )
    assert_close(equal, plain, rtol=1e-3, atol=1e-4)
    assert other.isfinite().all() and (other - plain).abs().max() > 1e-3


def test_a_stack_trains_as_each_alone() -> None:
    skewed = [5.0, *[1.0] * (trial_data(config("focal"), CPU).prepared.num_classes - 1)]
    found = []
    for number in (0, 1):
        for given in ({}, {"class_weights": skewed}, {"class_weights": "balanced"}):
            for name in ("focal", "mdca", "mixup"):
                found.append(config({"name": name, **given}, number))
    together = Stack(found, trial_data(found[0], CPU), CPU)
    while not together.finished:
        assert not together.advance()
    for row, one in zip(together.rows, found, strict=True):
        assert_close(weights_of(row), weights_of(trained(one)), rtol=1e-3, atol=1e-4)


def test_labels_of_pixels_and_their_frequencies(tmp_path: Path) -> None:
    given, data = masks_and_config(tmp_path, method="focal")
    given = replace(given, method=Focal(class_weights="balanced"))
    learner = Learner(given, data, CPU)
    counts = data.train.class_counts(data.prepared.num_classes)
    assert_close(learner._method._by_class, Focal(class_weights="balanced").weights_of(counts))
    row = learner.train_epoch()
    assert np.isfinite(row["train_loss"])


def test_a_trial_without_them_is_recorded_as_before() -> None:
    assert config("focal").to_mapping()["method"] == {"name": "focal", "gamma": 3.0}
    one = config({"name": "focal", "class_weights": [1, 2, 3]})
    assert TrialConfig.from_mapping(one.to_mapping()) == one
    assert one.method == Focal(class_weights=(1.0, 2.0, 3.0))


class Own(Method):
    """A loss that is not known to be of single samples."""

    def loss(self, logits: Tensor, targets: Tensor, progress: float | Tensor) -> Tensor:
        return F.cross_entropy(logits, targets)


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: Focal(class_weights="balancd"), "must be balanced or a list of numbers"),
        (lambda: Focal(class_weights=[1.0, 0.0]), "each number must be > 0, got 0"),
        (lambda: Focal(class_weights=[]), "must be balanced or a list"),
        (lambda: Own(class_weights="balanced"), "Own does not give the loss of each sample"),
        (lambda: Sece(base=Own(), class_weights="balanced"), "Sece does not give the loss"),
    ],
)
def test_what_is_refused(make: Any, problem: str) -> None:
    with pytest.raises(FieldError, match=problem):
        make()


class OwnEach(Method):
    """As docs/how-to/bring-a-method.md has it."""

    elementwise = True

    def loss(self, logits: Tensor, targets: Tensor, progress: float | Tensor) -> Tensor:
        return focal_loss(logits, targets, 2.0)


def test_a_method_of_ones_own_that_gives_each_samples_loss() -> None:
    logits, labels = case()
    found = with_class_weights(OwnEach(class_weights=WRITTEN), WEIGHTS).loss_of(logits, labels, 0.5)
    assert found.item() == approx(by_hand(OwnEach(), logits, labels), rel=1e-9)


def test_weights_move_the_best_probabilities_to_rare_classes() -> None:
    """docs/why/methods.md: those that minimize cross-entropy are w_k p_k over their sum."""
    frequency = torch.tensor([0.7, 0.25, 0.05], dtype=torch.float64)
    weights = torch.tensor([0.5, 1.0, 8.0], dtype=torch.float64)
    labels = torch.tensor([0] * 70 + [1] * 25 + [2] * 5)
    row = (weights * frequency).log().requires_grad_()
    weighted = with_class_weights(CrossEntropy(), weights)
    (gradient,) = torch.autograd.grad(weighted.loss_of(row.expand(100, 3), labels, 0.5), row)
    assert gradient.abs().max() < 1e-12
    plain = CrossEntropy().loss_of(row.expand(100, 3), labels, 0.5)
    assert torch.autograd.grad(plain, row)[0].abs().max() > 0.1
