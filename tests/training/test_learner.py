"""Training: equal configs train equally, a checkpoint is whole or not taken, what is left
is what was measured."""

import json
import math
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from tests import simulated_graph
from trainables import metrics
from trainables.config import TrialConfig
from trainables.files.digest import file_digest
from trainables.loading.cache import load_split, prepare
from trainables.loading.trial_data import trial_data
from trainables.model import Network
from trainables.optimizer import Optimizer
from trainables.outputs.classifier import Classifier
from trainables.outputs.predictions import Predictions
from trainables.plugins import use_extensions
from trainables.problems import FieldError
from trainables.training import checkpoint
from trainables.training import learner as learner_module
from trainables.training.diagnostics import GROUPED, diagnostics, feature_norms
from trainables.training.learner import Diverged, Learner

CPU = torch.device("cpu")


def learner(**settings: Any) -> Learner:
    plain = {
        "data": "digits",
        "model": {"name": "mlp", "width": 32},
        "method": "cross_entropy",
        "epochs": 2,
        **settings,
    }
    config = TrialConfig.from_mapping(plain)
    return Learner(config, trial_data(config, CPU), CPU)


def trained(**settings: Any) -> Learner:
    made = learner(**settings)
    while not made.finished:
        made.train_epoch()
    return made


def test_equal_configs_train_equally_and_trials_differ() -> None:
    first, again, other = trained(), trained(), trained(number=1)
    assert_close(first.predict().logits, again.predict().logits, rtol=0, atol=0)
    assert not torch.equal(first.predict().logits, other.predict().logits)


def test_trial_k_of_every_method_starts_from_the_same_weights() -> None:
    one, other = learner(number=5), learner(number=5, method="mbls")
    for ours, theirs in zip(one.network.parameters(), other.network.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_one_update_is_what_sgd_is_defined_as() -> None:
    """One epoch of one full batch against the update written out: w - lr (grad + weight_decay
    w)."""
    settings = {
        "name": "sgd",
        "lr": 0.05,
        "momentum": 0.0,
        "weight_decay": 0.01,
        "schedule": "constant",
    }
    made = learner(optimizer=settings, batch_size=5000, epochs=1)
    split = made.data.train
    images, labels = split.images(0, len(split)), split.labels
    weights = [
        parameter.detach().clone().requires_grad_() for parameter in made.network.parameters()
    ]
    hidden = torch.relu(torch.nn.functional.linear(images.flatten(1), weights[0], weights[1]))
    log_p = torch.log_softmax(torch.nn.functional.linear(hidden, weights[2], weights[3]), dim=-1)
    loss = -log_p[torch.arange(len(labels)), labels].mean()
    gradients = torch.autograd.grad(loss, weights)
    row = made.train_epoch()
    assert row["train_loss"] == pytest.approx(loss.item(), rel=1e-5)
    for parameter, weight, gradient in zip(
        made.network.parameters(), weights, gradients, strict=True
    ):
        assert_close(parameter, weight - 0.05 * (gradient + 0.01 * weight), rtol=1e-5, atol=1e-6)


def test_a_batch_of_one_trains_and_a_lone_leftover_is_left_out() -> None:
    few = {"data": {"name": "digits", "validation": 0.9}, "epochs": 1}
    assert trained(**few, batch_size=1).history[0]["train_loss"] > 0
    # 145 samples: 72 batches of two, and one sample that batch norm could not train on.
    made = learner(**few, batch_size=2)
    made.train_epoch()
    assert len(made.data.train) == 145 and made.samples == 144


def test_the_data_are_those_the_study_was_begun_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALSTUDY_CACHE", str(tmp_path))
    config = TrialConfig.from_mapping(
        {"data": "digits", "model": "mlp", "method": "focal", "seed": 77}
    )
    with pytest.raises(FieldError, match="but the study started with"):
        trial_data(config, CPU, digest="0" * 64)
    digest = prepare(config.data, config.seed).digest
    assert trial_data(config, CPU, digest=digest).prepared.digest == digest


def test_the_cosine_schedule_at_known_points() -> None:
    optimizer = Optimizer(lr=0.2)
    rates = [optimizer.learning_rate(progress) for progress in (0.0, 1 / 3, 0.5, 1.0)]
    assert rates == pytest.approx([0.2, 0.15, 0.1, 0.0])


def test_history_has_a_row_an_epoch_with_the_metrics_of_its_predictions() -> None:
    made = trained(epochs=3)
    assert [row["epoch"] for row in made.history] == [1, 2, 3]
    predictions = made.predict()
    for name in ("accuracy", "nll", "brier", "ece"):
        expected = float(metrics.find(name)(predictions.logits, predictions.labels))
        assert made.history[-1][name] == pytest.approx(expected, abs=1e-12)
    assert made.history[0]["time"] <= made.history[1]["time"] <= made.history[2]["time"]


@pytest.mark.parametrize(
    ("result", "best"), [("best_accuracy", max), ("best_nll", min), ("best_ece", min)]
)
def test_the_best_epoch_is_the_result_where_asked(result: str, best: Any) -> None:
    made = trained(result=result, epochs=5, optimizer={"lr": 0.5})
    name = result.removeprefix("best_")
    values = [row[name] for row in made.history]
    epoch, predictions = made.take_result(), made.predictions()
    assert epoch == values.index(best(values)) + 1
    assert torch.equal(predictions.logits, made.predict().logits)
    assert predictions.evaluate()[name] == pytest.approx(best(values), abs=1e-12)


def test_of_equally_good_epochs_the_earlier_is_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even at chance accuracy: the rule looks at the ECE alone."""
    made = learner(result="best_ece", epochs=4)
    rows = iter([(0.5, 0.3), (0.1, 0.02), (0.9, 0.02), (0.95, 0.04)])
    monkeypatch.setattr(
        made, "_row", lambda *_: dict(zip(("accuracy", "ece"), next(rows), strict=True))
    )
    while not made.finished:
        made.train_epoch()
    assert made.take_result() == 2


def test_a_result_is_predicted_in_float32_whatever_trained_it() -> None:
    made = trained(model={"name": "cnn", "width": 8}, precision="bfloat16")
    split, epoch, result = made.data.validation, made.take_result(), made.predictions()
    with torch.inference_mode():
        made.network.eval()
        expected = made.network(split.images(0, len(split)))
    assert epoch == 2 and torch.equal(result.logits, expected)
    assert all(parameter.dtype == torch.float32 for parameter in made.network.parameters())
    measured = made.history[-1]["nll"]
    assert measured != result.evaluate()["nll"] == pytest.approx(measured, abs=0.02)


def test_only_a_deterministic_trial_uses_deterministic_algorithms(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen, made = [], {wanted: learner(deterministic=wanted) for wanted in (True, False)}
    for wanted, each in made.items():
        step = each._step

        def observed(now: Any, preparation: Any, step: Any = step) -> Any:
            seen.append(torch.are_deterministic_algorithms_enabled())
            return step(now, preparation)

        monkeypatch.setattr(each, "_step", observed)
        each.train_epoch()
        assert set(seen) == {wanted} and not torch.are_deterministic_algorithms_enabled()
        seen.clear()


TRAIN = """
import sys, torch
from trainables.config import TrialConfig
from trainables.training.learner import Learner
from trainables.loading.trial_data import trial_data

plain = {"data": "digits", "model": "mlp", "method": "focal", "epochs": 1}
config = TrialConfig.from_mapping(plain)
Learner(config, trial_data(config, torch.device("cpu")), torch.device("cpu")).train_epoch()
print([name for name in ("torch._dynamo", "torch._inductor", "sympy") if name in sys.modules])
import trainables.models.timm, study.terminal.catalogue as catalogue
catalogue.catalogue("models")
print("timm" in sys.modules)
"""


def test_training_imports_no_compiler_and_a_list_of_networks_no_timm() -> None:
    """With SymPy a compiler takes more than a second of every process that trains."""
    done = subprocess.run([sys.executable, "-c", TRAIN], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\nFalse\n"


def test_a_loss_that_is_no_number_ends_the_training() -> None:
    with pytest.raises(Diverged, match=r"at epoch 1 \(optimizer.lr=0.1\)"):
        trained(method={"name": "mbls", "weight": 1e30})


def test_a_checkpoint_is_whole_or_not_taken(tmp_path: Path) -> None:
    made = learner()
    made.train_epoch()
    checkpoint.save(made, tmp_path / "last.pt")
    content = (tmp_path / "last.pt").read_bytes()
    damaged = bytearray(content)
    damaged[len(damaged) // 2] ^= 1  # one bit, in the weights
    for torn in (b"", content[: len(content) // 2], bytes(damaged), b"no archive"):
        (tmp_path / "torn.pt").write_bytes(torn)
        fresh = learner()
        assert not checkpoint.load(fresh, tmp_path / "torn.pt") and fresh.epoch == 0
    assert not checkpoint.load(learner(), tmp_path / "absent.pt")
    assert not checkpoint.load(learner(number=1), tmp_path / "last.pt"), (
        "another trial's checkpoint"
    )
    assert checkpoint.load(learner(capture="on"), tmp_path / "last.pt")


def test_a_checkpoint_outlives_a_move_of_the_extensions_and_a_new_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the extensions lay is no part of the trial; what the file does not
    know yet has its default."""
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    made, to_mapping = learner(extensions=str(tmp_path / "here")), TrialConfig.to_mapping
    made.train_epoch()
    monkeypatch.setattr(
        TrialConfig,
        "to_mapping",
        lambda config: {
            name: value for name, value in to_mapping(config).items() if name != "equal_train"
        },
    )
    checkpoint.save(made, tmp_path / "last.pt")
    monkeypatch.undo()
    (tmp_path / "here").rmdir()
    moved = str(tmp_path / "there")
    assert not checkpoint.load(learner(extensions=moved, batch_size=32), tmp_path / "last.pt")
    assert not checkpoint.load(learner(extensions=moved, equal_train=True), tmp_path / "last.pt")
    assert checkpoint.load(learner(extensions=moved), tmp_path / "last.pt")
    use_extensions(None)


READS_RATE = """
import torch
from trainables.methods.cross_entropy import CrossEntropy


class ReadsRate(CrossEntropy):
    def order(self, learner, state, generator):
        rate = float(learner.learning_rate)
        return torch.randperm(learner.num_samples, generator=generator)[: int(2000 * rate)]
"""


def test_a_method_finds_the_learning_rate_it_was_interrupted_at(tmp_path: Path) -> None:
    """Cosine over four epochs from 0.2: after two, `order` reads 0.1, which is half
    of the samples of 0.2."""
    (tmp_path / "methods").mkdir()
    (tmp_path / "methods" / "reads_rate.py").write_text(READS_RATE)
    settings = {
        "method": "reads_rate",
        "extensions": str(tmp_path),
        "epochs": 4,
        "optimizer": {"lr": 0.2},
    }
    made, resumed = learner(**settings), learner(**settings)
    made.train_epoch(), made.train_epoch()
    checkpoint.save(made, tmp_path / "last.pt")
    assert checkpoint.load(
        resumed, tmp_path / "last.pt"
    ) and resumed.learning_rate == pytest.approx(0.1)
    for each in (made, resumed):
        assert each.train_epoch()["samples"] - each.history[1]["samples"] == 200
    assert torch.equal(made.predict().logits, resumed.predict().logits)
    use_extensions(None)


def test_a_checkpoint_is_data(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "sprung",)

    torch.save({"sha256": "", "state": Trap()}, tmp_path / "last.pt")
    assert not checkpoint.load(learner(), tmp_path / "last.pt")
    torch.save({"network.head.weight": Trap()}, tmp_path / "model.pt")
    with pytest.raises(Exception, match="Weights only load failed"):
        learner().classifier().load(tmp_path / "model.pt")
    assert not (tmp_path / "sprung").exists()


def test_predictions_survive_a_file(tmp_path: Path) -> None:
    predictions = trained().predict()
    digest = predictions.save(tmp_path / "predictions.npz")
    again = Predictions.load(tmp_path / "predictions.npz")
    assert torch.equal(again.logits, predictions.logits) and torch.equal(
        again.labels, predictions.labels
    )
    assert digest == file_digest(tmp_path / "predictions.npz")
    assert json.dumps(again.evaluate()) == json.dumps(predictions.evaluate())


@pytest.mark.parametrize("model", ["mlp", "cnn"])
def test_a_classifier_gives_what_was_measured(model: str, tmp_path: Path) -> None:
    made = trained(model=model, epochs=1)
    made.classifier().save(tmp_path / "model.pt")
    prepared = made.data.prepared
    network = made.config.model.build(prepared.input_shape, prepared.num_classes)
    classifier = Classifier(network, prepared.mean, prepared.std).load(tmp_path / "model.pt")
    images = load_split(prepared, "validation").images
    with torch.no_grad():
        assert_close(classifier.logits(images), made.predict().logits, rtol=1e-5, atol=1e-5)
        assert_close(classifier(images), made.predict().logits.softmax(-1), rtol=1e-5, atol=1e-5)
        classifier.temperature.fill_(2.0)
        assert_close(
            classifier(images), (made.predict().logits / 2).softmax(-1), rtol=1e-5, atol=1e-5
        )


# The meta split, diagnostics, costs


def test_the_meta_split_is_carved_from_train_of_each_class_its_share() -> None:
    whole = learner(method="gamma_net")
    train, meta = whole.train, whole._meta
    assert meta is not None
    assert sorted([*train.rows.tolist(), *meta.rows.tolist()]) == list(range(len(whole.data.train)))
    counts = torch.bincount(whole.data.train.labels)
    assert torch.bincount(meta.labels).tolist() == (0.1 * counts).round().int().tolist()
    images = whole.data.train.images(0, len(whole.data.train))
    for part in (train, meta):
        assert torch.equal(part.images(3, 9), images[part.rows[3:9]])
        batch = part.batch(part.decide(torch.tensor([5, 2]), torch.Generator()))
        assert torch.equal(batch.images, images[part.rows[[5, 2]]]) and batch.indices.tolist() == [
            5,
            2,
        ]
    assert whole.data.with_meta(0.1, 1)[1].rows.tolist() != meta.rows.tolist()


def test_equal_train_gives_every_method_the_same_samples() -> None:
    meta_learned, equal, usual = learner(method="gamma_net"), learner(equal_train=True), learner()
    assert torch.equal(meta_learned.train.rows, equal.train.rows)
    assert len(usual.train) == len(usual.data.train) > len(equal.train)


@pytest.mark.parametrize(("meta_batch", "taken"), [("batch_size", 32), (50, 50), ("auto", 116)])
def test_meta_batches_go_round_without_a_sample_twice(meta_batch: str | int, taken: int) -> None:
    """auto: all of this meta split, which has fewer than 512."""
    made = learner(method={"name": "gamma_net", "meta_batch": meta_batch}, batch_size=32)
    size = len(made._meta or ())
    order = made._meta_order(2 * size, torch.Generator()).flatten()
    assert len(order) == 2 * size * taken
    for begun in range(0, len(order), size):
        assert sorted(order[begun : begun + size].tolist()) == list(range(size))


def test_repeatable_steps_fill_no_memory_that_they_write() -> None:
    made = learner(deterministic=True)
    with made._training(1):
        assert torch.are_deterministic_algorithms_enabled()
        assert not torch.utils.deterministic.fill_uninitialized_memory
    assert not torch.are_deterministic_algorithms_enabled()
    assert torch.utils.deterministic.fill_uninitialized_memory


def test_what_training_cost_is_counted_in_samples() -> None:
    usual, meta_learned = trained(batch_size=64), trained(method="meta_l2", batch_size=64)
    n = len(usual.train)
    assert [row["samples"] for row in usual.history] == [n, 2 * n]
    updates = -(-len(meta_learned.train) // 64)
    assert meta_learned.history[0]["samples"] == len(meta_learned.train) + 64 * updates


def test_diagnostics_by_hand() -> None:
    """Two right, one wrong; uniform over three classes is entropy log 3."""
    logits = torch.tensor([[0.0, 0.0, 0.0], [1000.0, 0.0, 0.0], [0.0, 1000.0, 0.0]])
    head = torch.nn.Linear(2, 1)
    torch.nn.init.constant_(head.weight, 3.0), torch.nn.init.constant_(head.bias, 4.0)
    network = Network(torch.nn.Identity(), head)
    with simulated_graph.Reading() as reading:
        with feature_norms(network) as norms:
            network(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
            network(torch.tensor([[5.0, 12.0]]))
        predictions = Predictions(logits, torch.tensor([0, 0, 0]), by_network=True)
        found = diagnostics(predictions, network, norms)
    assert reading.reads == []
    assert {name: float(value) for name, value in found.items()} == pytest.approx(
        {
            "nll_right": math.log(3) / 2,
            "nll_wrong": 1000.0,
            "entropy_right": math.log(3) / 2,
            "entropy_wrong": 0.0,
            "head_norm": math.sqrt(9 + 9 + 16),
            "feature_norm": (5 + 0 + 13) / 3,
        },
        abs=1e-9,
    )
    only_right = diagnostics(Predictions(logits[:2], torch.tensor([0, 0])), network, norms)
    assert only_right["nll_wrong"].isnan() and only_right["entropy_wrong"].isnan()


def test_the_norms_of_a_network_of_pixels_are_of_each_place() -> None:
    """Features [N, D, h, w], coarser than the images: the norm over D, the mean over all places."""
    random = np.random.default_rng(0)
    features = random.normal(size=(3, 5, 2, 4))
    head = torch.nn.Sequential(torch.nn.Conv2d(5, 2, 1), torch.nn.Upsample(scale_factor=2))
    torch.nn.init.constant_(head[0].weight, 3.0), torch.nn.init.constant_(head[0].bias, 4.0)
    network = Network(torch.nn.Identity(), head)
    with feature_norms(network) as norms:
        network(torch.from_numpy(features[:2]).float())
        network(torch.from_numpy(features[2:]).float())
    rows = Predictions(torch.zeros(7, 2), torch.zeros(7, dtype=torch.int64))
    found = diagnostics(rows, network, norms)
    each = [
        math.sqrt(sum(features[n, d, row, column] ** 2 for d in range(5)))
        for n in range(3)
        for row in range(2)
        for column in range(4)
    ]
    assert float(found["feature_norm"]) == pytest.approx(sum(each) / 24, rel=1e-6)
    assert float(found["head_norm"]) == pytest.approx(math.sqrt(10 * 9 + 2 * 16))


def test_a_row_has_the_diagnostics_of_groups_that_have_predictions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = set(GROUPED) | {"head_norm", "feature_norm"}
    assert set(trained(diagnostics=True).history[0]) == set(trained().history[0]) | own
    values = dict.fromkeys(("nll_wrong", "entropy_wrong"), torch.tensor(math.nan))
    monkeypatch.setattr(learner_module, "diagnostics", lambda *of: values)
    assert not set(GROUPED) & set(trained(diagnostics=True).history[0])


def test_the_feature_norm_is_that_of_the_hidden_layer_and_changes_nothing() -> None:
    """Each sample by itself in NumPy: relu(W x + b), without the head."""
    made = trained(diagnostics=True, epochs=1)
    hidden = made.network.features[1]
    weight, bias = (each.detach().double().numpy() for each in (hidden.weight, hidden.bias))
    split = made.data.validation
    norms = [
        np.sqrt((np.maximum(weight @ image.double().numpy().ravel() + bias, 0) ** 2).sum())
        for image in split.images(0, len(split))
    ]
    assert made.history[-1]["feature_norm"] == pytest.approx(np.mean(norms), rel=1e-6)
    plain = trained(epochs=1)
    assert torch.equal(made.predict().logits, plain.predict().logits)
    assert made.history[-1]["ece"] == plain.history[-1]["ece"]
    assert not made.network.head._forward_pre_hooks  # steps, and what is registered, have none


def test_without_hidden_layers_the_feature_norm_is_that_of_the_rows() -> None:
    rows = {"name": "gaussian_clusters", "train": 1000}
    made = trained(data=rows, model={"name": "mlp", "depth": 0}, diagnostics=True)
    split = made.data.validation
    norm = np.linalg.norm(split.images(0, len(split)).double().numpy(), axis=1).mean()
    assert [row["feature_norm"] for row in made.history] == pytest.approx([norm, norm], rel=1e-6)


def test_an_epochs_seconds_are_those_that_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's clock was set back by five minutes, once: an epoch had -287 seconds, and the
    trial could not be read any more."""
    made = learner(epochs=3)
    began = time.monotonic()
    made.train_epoch()
    monkeypatch.setattr("time.time", lambda: 1.7e9 - made.epoch * 3600)
    while not made.finished:
        made.train_epoch()
    seconds = [row["seconds"] for row in made.history]
    assert min(seconds) > 0 and sum(seconds) <= time.monotonic() - began


def test_recorded_entropies_are_of_the_training_passes() -> None:
    """With one batch an epoch, the pass of the first epoch is of the weights it began with."""
    made = learner(record="train_entropy", batch_size=5000)
    split = made.data.train
    with torch.no_grad():
        probs = made.network(split.images(0, len(split))).double().softmax(dim=-1).numpy()
    made.train_epoch()
    recorded = made.recorded()
    assert recorded is not None
    assert recorded.entropy[0].tolist() == pytest.approx(-(probs * np.log(probs)).sum(1), abs=1e-4)
    assert recorded.entropy[1].isnan().all()
