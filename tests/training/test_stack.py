"""Trials trained as one program, against the same trials one by one."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from tests import simulated_graph
from tests.methods.test_method_contract import WITH_LOSS, ends_of_the_space
from trainables import methods
from trainables.config import TrialConfig
from trainables.loading.batches import DeviceSplit
from trainables.loading.trial_data import trial_data
from trainables.method import Batch, Method
from trainables.methods.cross_entropy import CrossEntropy
from trainables.methods.focal import focal_loss
from trainables.methods.mixup import Mixup
from trainables.model import Network
from trainables.stacks import likeness, why_alone
from trainables.training import program
from trainables.training.choices import Choices
from trainables.training.learner import Diverged, Learner
from trainables.training.stack import Stack
from trainables.training.stacked import StackedNetwork

CPU = torch.device("cpu")
STACKED = [name for name in methods.names() if methods.find(name)().stackable]
ROWS = {"data": {"name": "gaussian_clusters", "train": 300}}
KINDS: dict[str, dict[str, Any]] = {
    "images": {
        "data": {"name": "digits", "augment": "crop_flip", "validation": 0.8},
        "model": {"name": "mlp", "width": 8},
    },
    "rows": {**ROWS, "model": {"name": "mlp", "width": 8, "depth": 2}},
    "rows, without hidden layers": {**ROWS, "model": {"name": "mlp", "depth": 0}},
}


def config(method: Any = "cross_entropy", number: int = 0, **settings: Any) -> TrialConfig:
    plain = {**KINDS["images"], "epochs": 3, "batch_size": 32, "method": method, "number": number}
    return TrialConfig.from_mapping({**plain, **settings})


def alone(one: TrialConfig) -> Learner:
    return Learner(one, trial_data(one, CPU), CPU)


def stack(configs: list[TrialConfig]) -> Stack:
    return Stack(configs, trial_data(configs[0], CPU), CPU)


def weights_of(learner: Learner) -> Tensor:
    return torch.cat([each.detach().flatten() for each in learner.network.parameters()])


def told(learner: Learner) -> list[dict[str, float]]:
    return [{**row, "time": 0.0, "seconds": 0.0} for row in learner.history]


def assert_same(one: Learner, other: Learner) -> None:
    """To the bit."""
    assert torch.equal(weights_of(one), weights_of(other))
    assert told(one) == told(other)
    assert torch.equal(one.predictions().logits, other.predictions().logits)


# ---- one by one ----------------------------------------------------------------------------------


@pytest.fixture
def in_double(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Networks, and the samples they get, in float64."""
    made, batch, draw = program.new_network, DeviceSplit.batch, Mixup.draw

    def shares_of_double(method: Mixup, *given: Any) -> dict[str, Tensor]:
        drawn = draw(method, *given)
        return {name: each.double() if name == "share" else each for name, each in drawn.items()}

    def of_double(split: DeviceSplit, decided: Any) -> Batch:
        found = batch(split, decided)
        return found._replace(images=found.images.double())

    monkeypatch.setattr(program, "new_network", lambda *given: made(*given).double())
    monkeypatch.setattr(DeviceSplit, "batch", of_double)
    monkeypatch.setattr(Mixup, "draw", shares_of_double)
    yield


def different(name: str) -> list[TrialConfig]:
    """Trials of other numbers, hyperparameters, rates and rules' numbers, beside another method."""
    found = []
    for number, values in enumerate(ends_of_the_space(name)):
        # Large ones: a weight has a precision of its own, beside which the change must show.
        rule = {"lr": 0.2 * (1 + number), "momentum": 0.5 + 0.1 * number, "weight_decay": 1e-3}
        found.append(config({"name": name, **values}, number // 2, optimizer=rule))
    return [*found, config("brier", 0), config("brier", 7, optimizer={"schedule": "one_cycle"})]


def one_step(configs: list[TrialConfig]) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Of each trial its weights before a step, and after it, alone and in a stack."""
    together = stack(configs)
    before = [weights_of(row) for row in together.rows]
    first, *_ = together._decided()
    together._program.run(first_step_of(first), together._take)
    for one, start, row in zip(configs, before, together.rows, strict=True):
        learner = alone(one)
        assert_close(weights_of(learner), start, rtol=0, atol=0)
        preparation = learner.own_stream("preparation", 0)
        own, *_ = learner._decided(learner.order(), preparation)
        learner._program.run(first_step_of(own), partial(step_of, learner))
        yield start, weights_of(learner), weights_of(row)


def step_of(learner: Learner, now: Choices) -> Any:
    return learner._step(now, torch.Generator())


def first_step_of(choices: Any) -> Any:
    """The first step alone."""
    parts = ({name: values[:1] for name, values in part.items()} for part in choices[2:])
    return type(choices)(choices.progress[:1], choices.learning_rate[:1], *parts)


@pytest.mark.parametrize("name", STACKED)
def test_a_step_in_float64_is_the_one_alone(name: str, in_double: None) -> None:
    for before, expected, found in one_step(different(name)):
        change = (expected - before).abs().max()
        assert change > 0 and (found - expected).abs().max() < 1e-6 * change


@pytest.mark.parametrize("name", STACKED)
def test_a_step_in_float32_is_the_one_alone(name: str) -> None:
    for before, expected, found in one_step(different(name)):
        change = (expected - before).abs().max()
        assert (found - expected).abs().max() < 1e-5 * change


@pytest.mark.parametrize(
    ("rule", "kind"),
    [
        ({"clip": 0.5}, "images"),
        ({"nesterov": True, "bias_lr_factor": 4.0}, "rows"),
        ({"name": "adam", "lr": 0.01}, "rows, without hidden layers"),
        ({"name": "adamw", "lr": 0.01, "weight_decay": 0.1, "clip": 0.5}, "rows"),
        ({"name": "adagrad", "lr": 0.05, "weight_decay": 0.01}, "images"),
    ],
    ids=str,
)
def test_a_training_is_the_one_alone_up_to_rounding(rule: dict[str, Any], kind: str) -> None:
    configs = []
    for number in range(2):
        own = {**rule, "lr": (1 + number) * rule.get("lr", 0.02)}
        focal = {"name": "focal", "gamma": float(number)}
        mixed = {"name": "mixup", "alpha": 0.1 + number, "base": focal}
        for method in ("cross_entropy", focal, "mixup", mixed):
            configs.append(config(method, number, optimizer=own, batch_size=64, **KINDS[kind]))
    together = stack(configs)
    for row, one in zip(together.rows, configs, strict=True):
        assert row.config == one
    while not together.finished:
        assert not together.advance()
    for row, one in zip(together.rows, configs, strict=True):
        learner = alone(one)
        while not learner.finished:
            learner.train_epoch()
        assert_close(weights_of(row), weights_of(learner), rtol=1e-3, atol=1e-4)
        for mine, theirs in zip(told(row), told(learner), strict=True):
            assert mine == pytest.approx(theirs, rel=5e-3, abs=5e-3)
        assert row.samples == learner.samples


# Of the version before there were stacks: the last epoch's train_loss and NLL, the weights' norm.
HELD: dict[tuple[str, int], tuple[float, float, float]] = {
    ("cross_entropy", 0): (1.906591, 1.615452, 3.635099),
    ("focal", 0): (1.105876, 1.495146, 3.882617),
    ("mixup", 0): (2.030043, 1.727255, 3.480699),
    ("sece", 0): (1.946399, 1.564222, 3.725044),
    ("mmce", 1): (2.684032, 2.353343, 3.852074),
    ("mbls", 1): (1.732249, 1.367198, 4.288366),
    ("label_smoothing", 1): (1.815196, 1.445944, 4.125019),
    ("focal_sample_dependent", 1): (0.776175, 1.288286, 4.641012),
}


@pytest.mark.parametrize("how", ["alone", "stacked"])
def test_trainings_end_where_they_always_did(how: str) -> None:
    configs = [
        config(
            *place,
            data={"name": "digits", "augment": "crop_flip"},
            model={"name": "mlp", "width": 16},
            batch_size=64,
            optimizer={"lr": 0.05 * (1 + place[1]), "clip": 1.0},
        )
        for place in HELD
    ]
    rows = trained(configs) if how == "stacked" else list(map(alone, configs))
    for row, held in zip(rows, HELD.values(), strict=True):
        while not row.finished:
            row.train_epoch()
        last = row.history[-1]
        found = (last["train_loss"], last["nll"], float(weights_of(row).norm()))
        assert found == pytest.approx(held, rel=1e-5)


# ---- rows do not know of each other --------------------------------------------------------------


def mixed_configs(**settings: Any) -> list[TrialConfig]:
    found = []
    for number in range(3):
        for name in ("cross_entropy", "focal", "mixup", "sece"):
            rule = {"lr": 0.01 * (1 + number), **settings.pop("rule", {})}
            found.append(config(name, number, optimizer=rule, **settings))
    return found


def trained(configs: list[TrialConfig]) -> list[Learner]:
    together = stack(configs)
    while not together.finished:
        together.advance()
    return together.rows


def test_the_order_of_rows_does_not_matter() -> None:
    configs = mixed_configs()
    order = torch.randperm(len(configs), generator=torch.Generator().manual_seed(2)).tolist()
    found = trained([configs[place] for place in order])
    for place, row in zip(order, found, strict=True):
        assert row.config == configs[place]
    for place, one in enumerate(trained(configs)):
        assert_same(one, found[order.index(place)])


ADAPTIVE = [{"name": "adam"}, {"name": "adamw"}, {"name": "adagrad"}]


@pytest.mark.parametrize(
    ("rule", "value"),
    [
        ({"clip": 0.5}, math.nan),
        ({"clip": 0.5}, math.inf),
        ({}, math.inf),
        *((rule, math.nan) for rule in ADAPTIVE),
    ],
    ids=str,
)
def test_a_row_that_diverges_leaves_the_others_their_bits(
    rule: dict[str, Any], value: float
) -> None:
    settings = {"optimizer": {"lr": 0.01, **rule}, "epochs": 2}
    configs = [
        config(name, number, **settings)
        for number in (0, 1)
        for name in ("focal", "mixup", "brier")
    ]
    sound, broken = stack(configs), stack(configs)
    lost = broken.rows[1]
    for each in lost.network.parameters():
        each.data.fill_(value)
    (ended,) = broken.advance().items()
    sound.advance()
    assert ended[0] is lost and isinstance(ended[1], Diverged) and "at epoch 1" in str(ended[1])
    assert lost not in broken.training and lost.history == []
    while not sound.finished:
        sound.advance()
        assert not broken.advance()
    for place, (one, other) in enumerate(zip(sound.rows, broken.rows, strict=True)):
        if place != 1:
            assert_same(one, other)
    assert lost.history == []


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_stack_gives_the_same_bits_without_a_row_that_ended(kind: str) -> None:
    configs = mixed_configs(result="best_nll", **KINDS[kind])
    whole, again = stack(configs), stack(configs)
    whole.advance()
    again.advance()
    again.drop(again.rows[5])
    while not whole.finished:
        whole.advance()
        again.advance()
    for place, (one, other) in enumerate(zip(whole.rows, again.rows, strict=True)):
        if place != 5:
            assert one.take_result() == other.take_result()
            assert_same(one, other)


def test_rows_share_the_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 10_000, 6))
    monkeypatch.setattr("trainables.training.stack.time.monotonic", lambda: float(next(clock)))
    together = stack([config(number=number) for number in range(3)])
    together.advance()
    assert [row.history[0]["seconds"] for row in together.rows] == [2.0, 2.0, 2.0]
    together.drop(together.rows[0])
    together.advance()
    assert [row.history[-1]["seconds"] for row in together.rows] == [2.0, 3.0, 3.0]


# ---- which trials --------------------------------------------------------------------------------


def test_the_stackable_methods_are_those_with_a_loss_and_no_more() -> None:
    rest = set(methods.names()) - set(STACKED)
    assert rest == {"gamma_net", "meta_l2", "reg_mixup", "sample_prioritization"}
    assert set(STACKED) <= set(WITH_LOSS) | {"mixup"}


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"model": "cnn"}, "cnn has no stacked form"),
        ({"method": "gamma_net"}, "gamma_net needs a meta split"),
        ({"method": "sample_prioritization"}, "sample_prioritization has a training step of"),
        ({"record": "train_entropy"}, "record: train_entropy"),
        ({"diagnostics": True}, "diagnostics: true"),
        ({"compile": True}, "compile: true"),
    ],
    ids=str,
)
def test_what_trains_alone(settings: dict[str, Any], why: str) -> None:
    found = why_alone(config(settings.pop("method", "focal"), **settings))
    assert found is not None and found.startswith(why)
    assert why_alone(config("focal")) is None


@pytest.mark.parametrize(
    ("settings", "alike"),
    [
        ({"optimizer": {"lr": 0.3, "momentum": 0.1, "schedule": "constant"}}, True),
        ({"method": "mixup", "number": 9}, True),
        ({"batch_size": 16}, False),
        ({"model": {"name": "mlp", "width": 9}}, False),
        ({"optimizer": {"name": "adam"}}, False),
        ({"optimizer": {"clip": 1.0}}, False),
        ({"precision": "bfloat16"}, False),
        ({"epochs": 4}, False),
    ],
    ids=str,
)
def test_what_may_share_a_stack(settings: dict[str, Any], alike: bool) -> None:
    one, other = config(), config(**settings)
    assert (likeness(one) == likeness(other)) == alike


@dataclass(frozen=True)
class Scaled(Method):
    """Somebody's own, whose trials can be stacked."""

    factor: float = 2.0
    stackable = True

    def loss(self, logits: Tensor, targets: Tensor, progress: float | Tensor) -> Tensor:
        return self.factor * focal_loss(logits, targets, 1.0)


class Silent(CrossEntropy):
    """Does not say that it can."""


def test_an_extension_is_stacked_if_it_says_so() -> None:
    assert why_alone(replace(config(), method=Silent())) is not None
    around = replace(config(), method=Mixup(base=Silent()))
    assert why_alone(around) is not None
    configs = [replace(config(number=one), method=Scaled(1.0 + one)) for one in range(3)]
    for before, expected, found in one_step(configs):
        change = (expected - before).abs().max()
        assert (found - expected).abs().max() < 1e-5 * change


def test_a_network_of_other_layers_has_no_stacked_form() -> None:
    dropped = Network(nn.Sequential(nn.Flatten(), nn.Dropout()), nn.Linear(4, 2))
    with pytest.raises(TypeError, match=r"features\.1 is a Dropout\(.*, which has no stacked form"):
        StackedNetwork(dropped)
    for layer in (nn.Linear(4, 4, bias=False), nn.Flatten(0), nn.GELU()):
        with pytest.raises(TypeError, match="which has no stacked form"):
            StackedNetwork(Network(nn.Sequential(layer), nn.Linear(4, 2)))


# ---- on a GPU ------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("names", "numbers"), [(STACKED, [0]), (["focal", "mixup"], [0, 1])], ids=str
)
def test_a_captured_stack_trains_as_the_eager_one_and_leaves_its_program(
    names: list[str], numbers: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The graph is simulated: see test_program.py."""
    configs = [config(name, number, epochs=2) for name in names for number in numbers]
    expected = trained(configs)
    monkeypatch.setattr(program, "captures", lambda device: True)
    monkeypatch.setattr(program, "capture", simulated_graph.capture)
    monkeypatch.setattr(program, "waits", simulated_graph.waits)
    program.forget()
    together = stack(configs)
    while not together.finished:
        together.advance()
    assert together._program.eager_because is None and together._program.is_captured
    for one, other in zip(together.rows, expected, strict=True):
        assert_same(one, other)
    together.leave()
    moved = [replace(one, number=one.number + 4) for one in configs]
    later = stack(moved)
    assert later._program is together._program
    while not later.finished:
        later.advance()
    monkeypatch.undo()
    for one, other in zip(later.rows, trained(moved), strict=True):
        assert_same(one, other)
