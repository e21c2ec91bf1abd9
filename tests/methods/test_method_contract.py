"""What holds for every method, written once and run over `names()`."""

import math
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from search_spaces import space
from tests.texts import texts_file
from trainables import methods
from trainables.config import TrialConfig, to_plain
from trainables.loading.trial_data import trial_data
from trainables.method import Batch, Method, Task, Trainer
from trainables.methods.cross_entropy import CrossEntropy
from trainables.training import checkpoint
from trainables.training.learner import Learner
from trainables.training.weights import Weights

CPU = torch.device("cpu")


# The others take training steps of their own: test_gamma_net.py, test_meta_l2.py.
WITH_LOSS = [name for name in methods.names() if methods.find(name)().overrides("loss")]
FAR, NEAR, TIED = [80.0, 0.0, -80.0], [1.0, -0.5, 0.3], [0.0, 0.0, 0.0]
BATCHES = {  # float32 logits, at most of which softmax is exactly 0 or 1; labels
    "saturated and usual": ([FAR, FAR, [0.0, 17.5, 0.0], TIED, NEAR], [0, 2, 1, 1, 2]),
    "one sample, right": ([FAR], [0]),
    "one sample, wrong": ([FAR], [1]),
    "one sample, tied": ([TIED], [2]),
    "two, all right": ([NEAR, FAR], [0, 0]),
    "two, all wrong": ([NEAR, FAR], [1, 2]),
    "two alike, right and wrong": ([NEAR, NEAR], [0, 1]),
    "all tied": ([TIED] * 4, [0, 1, 2, 0]),
    "two classes": ([[3.0, -1.0], [0.0, 0.0], [90.0, 0.0]], [0, 1, 1]),
    "far": ([[1e4, 0.0, -1e4], [0.0, 1e4, 1e4], [-1e4, -1e4, -1e4]], [0, 1, 2]),
}


def batch(n: int = 24, k: int = 5) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    return torch.randn(n, k, generator=generator).double() * 3, torch.randint(
        0, k, (n,), generator=generator
    )


def settings_of(name: str) -> set[str]:
    return {spec.name for spec in fields(methods.find(name))}


def ends_of_the_space(name: str) -> list[dict[str, Any]]:
    """The method's defaults, and each end (or choice) of each range that is searched."""
    found: list[dict[str, Any]] = [{}]
    for path, entry in space.find_space(name, []).space.items():
        plain = space.to_plain(entry)
        ends = plain.get("choices") or [plain["low"], plain["high"]]
        found += [{path.removeprefix("method."): end} for end in ends]
    return found


@pytest.mark.parametrize(
    ("name", "values"),
    [(name, values) for name in WITH_LOSS for values in ends_of_the_space(name)],
    ids=str,
)
def test_first_and_second_gradients_are_finite_on_every_batch(
    name: str, values: dict[str, Any]
) -> None:
    method = methods.find(name)(**values)
    for case, (rows, classes) in BATCHES.items():
        logits, labels = torch.tensor(rows, requires_grad=True), torch.tensor(classes)
        loss = method.loss(logits, labels, 0.5)
        (first,) = torch.autograd.grad(loss, logits, create_graph=True)
        (second,) = torch.autograd.grad(first.square().sum(), logits)
        assert torch.isfinite(loss), case
        assert torch.isfinite(first).all() and torch.isfinite(second).all(), case


@pytest.mark.parametrize("name", WITH_LOSS)
def test_the_order_of_the_batch_does_not_matter(name: str) -> None:
    logits, labels = batch()
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(1))
    method = methods.find(name)()
    assert_close(method.loss(logits[order], labels[order], 0.5), method.loss(logits, labels, 0.5))


# ESD is unbiased: its expectation, not its value, is that of any batch size (test_esd.py).
@pytest.mark.parametrize("name", [name for name in WITH_LOSS if name != "esd"])
def test_the_loss_is_a_mean_over_samples(name: str) -> None:
    """Every sample twice is the same loss: a learning rate means the same at any batch size."""
    logits, labels = batch()
    method = methods.find(name)()
    doubled = method.loss(logits.repeat(2, 1), labels.repeat(2), 0.5)
    assert_close(doubled, method.loss(logits, labels, 0.5))


@pytest.mark.parametrize("name", WITH_LOSS)
def test_hyperparameters_may_be_tensors(name: str) -> None:
    logits, labels = batch()
    method: Method = methods.find(name)()
    numbers = {spec.name: getattr(method, spec.name) for spec in fields(method)}
    tensors = {
        key: torch.tensor(value, dtype=torch.float64)
        for key, value in numbers.items()
        if isinstance(value, float)
    }
    assert_close(
        replace(method, **tensors).loss(logits, labels, 0.5), method.loss(logits, labels, 0.5)
    )


@pytest.mark.parametrize("name", methods.names())
def test_every_method_has_a_space_that_names_its_own_fields(name: str) -> None:
    found = space.find_space(name, [])
    assert set(found.space) <= {f"method.{setting}" for setting in settings_of(name)}
    assert found.source and found.defaults


class Hooked(CrossEntropy):
    """Uses every hook: half the samples an epoch, noise, a count of what each sample has been
    through."""

    def start(self, task: Task) -> Any:
        return {
            "seen": torch.zeros(task.num_samples),
            "noise": torch.rand(1, generator=task.generator),
        }

    def order(self, learner: Trainer, state: Any, generator: torch.Generator) -> Tensor:
        tired = state["seen"] + 0.1 * torch.rand(learner.num_samples, generator=generator)
        return tired.argsort()[: learner.num_samples // 2]

    def prepare(self, batch: Batch, generator: torch.Generator) -> Batch:
        return batch._replace(
            images=batch.images + 0.1 * torch.randn(batch.images.shape, generator=generator)
        )

    def observe(self, state: Any, batch: Batch, logits: Tensor) -> Any:
        seen = state["seen"].index_add(0, batch.indices, torch.ones(len(batch.indices)))
        return {**state, "seen": seen}


ROWS = {"data": {"name": "gaussian_clusters", "train": 600}}
KINDS: dict[str, dict[str, Any]] = {
    "images": {
        "data": {"name": "digits", "augment": "crop_flip", "validation": 0.65},
        "model": {"name": "cnn", "width": 4},  # batch norm's statistics are state too
    },
    "rows": {**ROWS, "model": {"name": "mlp", "width": 8}},
    # Nothing in `features` is trained.
    "rows, without hidden layers": {**ROWS, "model": {"name": "mlp", "depth": 0}},
    "texts": {
        "data": {"name": "text", "path": str(texts_file()), "label": "y", "length": 12},
        "model": {"name": "bag_of_words", "width": 8, "dropout": 0.1},
    },
}


def learner(method: Method | str, kind: str = "images", **settings: Any) -> Learner:
    plain = {**KINDS[kind], "epochs": 3, "batch_size": 128}
    told = {"record": "train_entropy", "diagnostics": True}
    base = TrialConfig.from_mapping({**plain, **told, "method": "cross_entropy", **settings})
    config = replace(base, method=methods.find(method)() if isinstance(method, str) else method)
    return Learner(config, trial_data(config, CPU), CPU)


LOOKING_AHEAD = [name for name in methods.names() if "lookahead" in settings_of(name)]
VARIANTS: list[tuple[str, dict[str, Any]]] = [(name, {}) for name in methods.names()]
VARIANTS += [(name, {"lookahead": "all"}) for name in LOOKING_AHEAD]
VARIANTS += [(name, {"leak": True, "moves_first": "phi"}) for name in LOOKING_AHEAD]
VARIANTS += [("gamma_net", {"detach_features": False})]


def epochs_of_every_kind() -> Iterator[Any]:
    """Every kind and variant, but for those that mix texts: `plan` refuses them."""
    for kind in KINDS:
        for name, values in VARIANTS:
            if kind != "texts" or not methods.find(name)(**values).mixes:
                marks = [pytest.mark.slow] if kind == "images" else []
                yield pytest.param(kind, name, values, marks=marks, id=f"{name}-{values}-{kind}")


@pytest.mark.parametrize(("kind", "name", "values"), epochs_of_every_kind())
def test_an_epoch_of_every_kind_of_samples_has_finite_gradients(
    name: str, values: dict[str, Any], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gradients = []
    backward = Weights.backward

    def noting(weights: Weights, loss: Tensor) -> None:
        backward(weights, loss)
        gradients.append(weights.gradient.clone())

    monkeypatch.setattr(Weights, "backward", noting)
    method = methods.find(name)(**values)
    made = learner(method, kind)
    row = made.train_epoch()
    assert math.isfinite(row["train_loss"]) and len(gradients) >= 4
    assert all(found.isfinite().all() and found.any() for found in gradients)
    assert all(weight.isfinite().all() for weight in made.network.parameters())


def assert_equal_state(one: Any, other: Any) -> None:
    assert_close(one, other, rtol=0, atol=0)


# They draw, choose or keep something, or take steps of their own; beside them one that only has a
# loss.
OF_MORE_THAN_A_LOSS = [
    name
    for name in methods.names()
    if any(
        methods.find(name)().overrides(hook)
        for hook in ("start", "order", "prepare", "step", "observe")
    )
]
TELLING = ["cross_entropy", *OF_MORE_THAN_A_LOSS, "hooked"]


def resumed() -> Iterator[tuple[str, str, str]]:
    """Every method on rows; of the other kinds, what a loss has no part in, but for those that mix
    texts."""
    for name in [*methods.names(), "hooked"]:
        yield "rows", "float32", name
    for name in TELLING:
        yield "images", "bfloat16", name
        yield "rows, without hidden layers", "float32", name
        if name not in ("mixup", "reg_mixup", "hooked"):
            yield "texts", "float32", name
    for name in ("cross_entropy", "gamma_net", "hooked"):
        yield "images", "float32", name


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "precision", "name"), resumed())
def test_resume_equals_no_interruption_bit_for_bit(
    name: str, kind: str, precision: str, tmp_path: Path
) -> None:
    method = Hooked() if name == "hooked" else name
    settings = {"kind": kind, "result": "best_nll", "precision": precision}
    whole, cut = learner(method, **settings), learner(method, **settings)
    while not whole.finished:
        whole.train_epoch()
    cut.train_epoch()
    checkpoint.save(cut, tmp_path / "last.pt")
    resumed = learner(method, **settings)
    assert to_plain(resumed.config) == to_plain(cut.config)
    assert checkpoint.load(resumed, tmp_path / "last.pt")
    while not resumed.finished:
        resumed.train_epoch()
    assert whole.take_result() == resumed.take_result()
    assert_equal_state(resumed.network.state_dict(), whole.network.state_dict())
    assert_equal_state(resumed.predict().logits, whole.predict().logits)
    assert_equal_state(resumed.method_state, whole.method_state)
    assert_close(resumed.entropies, whole.entropies, rtol=0, atol=0, equal_nan=True)
    untimed = [
        {key: value for key, value in row.items() if key not in ("time", "seconds")}
        for row in whole.history
    ]
    again = [
        {key: value for key, value in row.items() if key not in ("time", "seconds")}
        for row in resumed.history
    ]
    assert again == untimed
