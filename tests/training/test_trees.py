"""Training on trees: which labels count, that methods and AdaGrad go on bit for bit, and that a
network that sees the structure learns what a bag of words cannot."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close

from tests.data.tree_files import write_negations
from trainables import methods
from trainables.config import TrialConfig
from trainables.loading.trial_data import trial_data
from trainables.training import checkpoint
from trainables.training.learner import Learner
from trainables.training.weights import Weights

CPU = torch.device("cpu")
FITTING = [
    name
    for name in methods.names()
    if methods.find(name)().per_position and not methods.find(name)().mixes
]
TREES = {"name": "tree_lstm", "width": 6, "memory": 5}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_negations(tmp_path_factory.mktemp("trees"), train=60, other=20)


def learner(folder: Path, method: str = "cross_entropy", **settings: Any) -> Learner:
    plain = {
        "data": {"name": "tree_bank", "path": str(folder)},
        "method": method,
        "model": TREES,
        "optimizer": {"name": "adagrad", "lr": 0.05, "weight_decay": 1e-4},
        "batch_size": 16,
        "epochs": 3,
        **settings,
    }
    config = TrialConfig.from_mapping(plain)
    return Learner(config, trial_data(config, CPU), CPU)


def gradients_of(made: Learner, monkeypatch: pytest.MonkeyPatch) -> list[torch.Tensor]:
    """Of the steps of an epoch that it trains."""
    found = []
    backward = Weights.backward

    def noting(weights: Weights, loss: torch.Tensor) -> None:
        backward(weights, loss)
        found.append(weights.gradient.clone())

    monkeypatch.setattr(Weights, "backward", noting)
    made.train_epoch()
    return found


@pytest.mark.parametrize("method", FITTING)
def test_every_method_for_nodes_has_finite_gradients(
    method: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = learner(folder, method)
    found = gradients_of(made, monkeypatch)
    assert len(found) == 4 and all(each.isfinite().all() and each.any() for each in found)
    assert all(weight.isfinite().all() for weight in made.network.parameters())


def test_the_methods_for_nodes_have_a_loss_of_single_rows_or_of_their_means() -> None:
    assert set(FITTING) == {
        "acls",
        "brier",
        "confidence_penalty",
        "cross_entropy",
        "dca",
        "dual_focal",
        "focal",
        "focal_sample_dependent",
        "focal_scheduled",
        "inverse_focal",
        "label_smoothing",
        "logit_norm",
        "mbls",
        "mdca",
    }


def test_a_step_is_over_all_labelled_nodes_and_evaluation_over_roots(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first gradient, of the loss written out node by node."""
    whole = {"batch_size": 60, "model": {**TREES, "dropout": 0.0}}
    made, again = learner(folder, **whole), learner(folder, **whole)
    (found,) = gradients_of(made, monkeypatch)
    split = again.data.train
    samples = split._images
    logits = again.network.train()(samples[..., :4])
    losses = []
    for tree, own in zip(samples, logits, strict=True):
        for node, label in enumerate(tree[:, 4].tolist()):
            if label > 0:
                losses.append(F.cross_entropy(own[None, :, node], torch.tensor([label - 1])))
    assert 0 < len(losses) < int((samples[..., 0] > 0).sum() + (samples[..., 1] > 0).sum())
    again.weights.backward(torch.stack(losses).mean())
    assert_close(found, again.weights.gradient, rtol=1e-5, atol=1e-7)
    predictions = again.predict()
    assert predictions.logits.shape == (20, 2) and predictions.groups is None
    roots = again.data.validation._images
    last = [int((tree[:, 4] + tree[:, 0] + tree[:, 1] > 0).sum()) - 1 for tree in roots]
    labels = [int(tree[row, 4]) - 1 for tree, row in zip(roots, last, strict=True)]
    assert predictions.labels.tolist() == labels


def test_a_bag_of_words_learns_the_roots_labels(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"batch_size": 60, "model": {"name": "bag_of_words", "width": 6}}
    made, again = learner(folder, **settings), learner(folder, **settings)
    (found,) = gradients_of(made, monkeypatch)
    bag = again.network.features.mean.vectors.weight
    means = [
        bag[[word for word in tree[:, 0].tolist() if word > 0]].mean(dim=0)
        for tree in again.data.train._images
    ]
    logits = again.network.head(torch.stack(means))
    again.weights.backward(F.cross_entropy(logits, again.data.train.labels))
    assert_close(found, again.weights.gradient, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("model", [TREES, {"name": "bag_of_words", "width": 6, "dropout": 0.2}])
def test_a_training_that_is_resumed_is_the_same_bit_for_bit(
    model: dict[str, Any], folder: Path, tmp_path: Path
) -> None:
    settings = {"model": model, "result": "best_nll"}
    whole, cut, resumed = (learner(folder, "focal", **settings) for _ in range(3))
    cut.train_epoch()
    checkpoint.save(cut, tmp_path / "last.pt")
    assert checkpoint.load(resumed, tmp_path / "last.pt")
    for each in (whole, resumed):
        while not each.finished:
            each.train_epoch()
        each.take_result()
    assert torch.equal(whole.weights.vector, resumed.weights.vector)
    assert torch.equal(whole.weights.moments[0], resumed.weights.moments[0])
    assert torch.equal(whole.predict().logits, resumed.predict().logits)


@pytest.mark.slow
def test_nested_negations_are_learned_by_structure_and_not_by_words(tmp_path: Path) -> None:
    """A bag of words sees whether there is a negation, which is right of .84, not if they are
    even."""
    bank = write_negations(tmp_path, train=1000, other=300)
    large = {"batch_size": 25, "epochs": 4, "optimizer": {"name": "adagrad", "lr": 0.05}}
    tree = learner(bank, model={"name": "tree_lstm", "width": 16, "memory": 16}, **large)
    bag = learner(bank, model={"name": "bag_of_words", "width": 16}, **{**large, "epochs": 8})
    for each in (tree, bag):
        while not each.finished:
            each.train_epoch()
    reached = tree.history[-1]["accuracy"], bag.history[-1]["accuracy"]
    assert reached[0] >= 0.98 and max(row["accuracy"] for row in bag.history) <= reached[0] - 0.1
