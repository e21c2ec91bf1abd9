"""A captured step trains as the eager one does, for one trial after another; what cannot
be captured runs eagerly.

The graph is simulated on the CPU (tests/simulated_graph.py); on a GPU `python -m
benchmarks.gpu` compares the real one.
"""

import math
import random
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounter
from torch.testing import assert_close

from benchmarks.gpu.stages import Branches
from tests import simulated_graph
from trainables import methods
from trainables.config import TrialConfig
from trainables.loading import batches
from trainables.loading import trial_data as trial_data_module
from trainables.loading.trial_data import trial_data
from trainables.method import Batch, Method
from trainables.methods.cross_entropy import CrossEntropy
from trainables.model import Model, Network
from trainables.models.resnet18 import Resnet18
from trainables.training import checkpoint, program
from trainables.training.learner import Learner

CPU = torch.device("cpu")
PLAIN = {
    "data": {"name": "digits", "augment": "crop_flip", "validation": 0.8},
    "model": {"name": "cnn", "width": 3},
    "capture": "on",
    "batch_size": 64,  # four steps, and one of half as many samples
}


@pytest.fixture
def captures(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Steps are captured; one entry for each time."""
    done: list[str] = []

    def capture(*args: Any) -> Any:
        done.append("captured")
        return simulated_graph.capture(*args)

    monkeypatch.setattr(program, "captures", lambda device: True)
    monkeypatch.setattr(program, "capture", capture)
    monkeypatch.setattr(program, "waits", simulated_graph.waits)
    program.forget()
    return done


def learner(method: Method | str = "cross_entropy", **settings: Any) -> Learner:
    base = TrialConfig.from_mapping(
        {**PLAIN, "epochs": 2, "record": "train_entropy", "method": "brier", **settings}
    )
    config = replace(base, method=methods.find(method)() if isinstance(method, str) else method)
    return Learner(config, trial_data(config, CPU), CPU)


def trained(made: Learner) -> Learner:
    while not made.finished:
        made.train_epoch()
    return made


def eagerly(made: Learner) -> Learner:
    made._program.eager_because = "to compare"
    return trained(made)


def assert_equal(one: Learner, other: Learner) -> None:
    assert_close(one.network.state_dict(), other.network.state_dict(), rtol=0, atol=0)
    assert_close(one.method_state, other.method_state, rtol=0, atol=0, equal_nan=True)
    assert_close(one.entropies, other.entropies, rtol=0, atol=0, equal_nan=True)
    values = [[{**row, "time": 0, "seconds": 0} for row in each.history] for each in (one, other)]
    assert values[0] == values[1]


def moved(method: Method) -> Method:
    """With other values of all its numbers."""
    numbers = {each.name: getattr(method, each.name) for each in fields(method)}
    return replace(
        method, **{name: 0.7 * value for name, value in numbers.items() if isinstance(value, float)}
    )


def model_for(method: str) -> dict[str, Any]:
    """Of methods that are a loss alone, a network of few operations."""
    hooks = ("start", "prepare", "step")
    more = any(methods.find(method)().overrides(hook) for hook in hooks)
    return PLAIN["model"] if more or method == "cross_entropy" else {"name": "mlp", "width": 3}


ALL = [(name, "float32") for name in methods.names()]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["focal", "mdca", "gamma_net"])
def test_class_weights_are_those_of_the_captured_step(name: str, captures: list[str]) -> None:
    method = methods.find(name)(class_weights="balanced")
    first = trained(learner(method, epochs=3))
    assert first._program.is_captured
    assert_equal(first, eagerly(learner(method, epochs=3)))
    first.leave()
    count, other = len(captures), {"number": 7, "epochs": 1}
    second = trained(learner(moved(method), **other))
    assert second._program is first._program and len(captures) == count
    assert_equal(second, eagerly(learner(moved(method), **other)))
    unweighted = trained(learner(name, **other))
    assert unweighted._program is not first._program


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "precision"), [*ALL, ("cross_entropy", "bfloat16"), ("gamma_net", "bfloat16")]
)
def test_a_captured_step_trains_as_the_eager_one_for_one_trial_after_another(
    name: str, precision: str, captures: list[str]
) -> None:
    settings = {"model": model_for(name), "precision": precision}
    expected = eagerly(learner(name, **settings, epochs=3))  # the third captures the half batch
    first = trained(learner(name, **settings, epochs=3))
    assert first._program.eager_because is None and first._program.is_captured
    assert_equal(first, expected)
    count = len(captures)
    first.leave()
    rule = {"lr": 0.03, "momentum": 0.5}
    other = {**settings, "number": 7, "optimizer": rule, "epochs": 1}
    second = trained(learner(moved(methods.find(name)()), **other))
    assert second._program is first._program and len(captures) == count
    assert_equal(second, eagerly(learner(moved(methods.find(name)()), **other)))


@pytest.mark.parametrize("name", ["cross_entropy", "gamma_net"])
def test_a_captured_step_that_differs_from_an_eager_one_is_not_used(
    name: str, captures: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has done is undone: training goes on as if nothing had been captured."""
    made = learner(name)
    weights = made.weights.vector

    def capture(*args: Any) -> Any:
        replay = simulated_graph.capture(*args)

        def differs() -> None:
            replay()
            weights.mul_(1 + 2 * program.TOLERANCE)

        return differs

    monkeypatch.setattr(program, "capture", capture)
    trained(made)
    assert made.eager_because == "a captured step differed from an eager one by 2e-05"
    assert made.facts()["step"] == "eager"
    assert_equal(made, eagerly(learner(name)))


class Dropping(Model):
    def build(self, input_shape: tuple[int, int, int], num_classes: int) -> Network:
        features = nn.Sequential(nn.Flatten(), nn.Dropout(0.5))
        return Network(features, nn.Linear(math.prod(input_shape), num_classes))


def test_what_is_random_is_drawn_once_though_a_step_is_taken_twice(captures: list[str]) -> None:
    """The simulated graph draws anew, as a replay does."""
    plain = learner()
    config = replace(plain.config, model=Dropping())
    made, other = (Learner(config, plain.data, CPU) for _ in range(2))
    assert trained(made)._program.is_captured and captures
    assert_equal(made, eagerly(other))


@dataclass(frozen=True)
class DroppingLayers(Model):
    generator: str = "python"

    def build(self, input_shape: tuple[int, int, int], num_classes: int) -> Network:
        draw = {"python": random.random, "numpy": np.random.random}[self.generator]

        class Dropped(nn.Module):
            def forward(self, images: Tensor) -> Tensor:
                return images if draw() < 0.999 else -images  # seldom another step

        features = nn.Sequential(nn.Flatten(), Dropped())
        return Network(features, nn.Linear(math.prod(input_shape), num_classes))


@pytest.mark.parametrize("generator", ["python", "numpy"])
def test_a_step_that_draws_on_the_host_stays_eager(generator: str, captures: list[str]) -> None:
    """A graph would repeat one draw for ever, and one comparison seldom shows it."""
    plain = learner()
    config = replace(plain.config, model=DroppingLayers(generator=generator))
    made = trained(Learner(config, plain.data, CPU))
    assert made.eager_because == "a step draws random numbers on the host"
    assert captures and made.facts()["step"] == "eager"


@pytest.mark.parametrize("name", ["cnn", "resnet18"])
def test_features_compile_to_one_graph_for_all_trials(
    name: str, monkeypatch: pytest.MonkeyPatch, captures: list[str]
) -> None:
    """Nothing is compiled: what torch.compile would compile is counted."""
    torch._dynamo.reset()
    counter = CompileCounter()
    monkeypatch.setattr(program, "COMPILER", counter)
    monkeypatch.setattr(Resnet18, "layers", (1, 1, 1, 1))
    left = None
    for number in range(2):
        rate = {"lr": 0.1 / (1 + number)}
        made = learner(
            model=name, number=number, compile=True, optimizer=rate, record=None, batch_size=8
        )
        assert left in (None, made._program) and made.facts()["features"] == "compiled"
        choices, _ = made._decided(torch.arange(28), torch.Generator())
        with made._training(3):
            made._program.run(choices, lambda now, made=made: made._step(now, torch.Generator()))
        made.leave()
        left = made._program
    assert counter.frame_count == 1


def test_a_step_that_differentiates_twice_is_not_compiled(captures: list[str]) -> None:
    base = {"name": "cross_entropy"}
    method = {"name": "sample_prioritization", "base": {"name": "gamma_net", "lookahead": "all"}}
    for chosen, features in ((base, "compiled"), (method, "eager")):
        config = replace(TrialConfig.from_mapping({**PLAIN, "method": chosen}), compile=True)
        assert Learner(config, trial_data(config, CPU), CPU).facts()["features"] == features


def test_rows_that_come_an_epoch_late_are_the_same(captures: list[str], tmp_path: Path) -> None:
    made, expected = learner(epochs=4), eagerly(learner(epochs=4))
    began = time.monotonic()
    made.advance()
    assert made.epoch == 1 and made.history == []
    made.advance()
    assert made.epoch == 2 and [row["epoch"] for row in made.history] == [1]
    checkpoint.save(made, tmp_path / "last.pt")
    assert [row["epoch"] for row in made.history] == [1, 2]
    made.advance()
    made.advance()
    assert sum(row["seconds"] for row in made.history) <= time.monotonic() - began
    assert [row["epoch"] for row in made.history] == [1, 2, 3, 4]
    assert_equal(made, expected)


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The device has no room for the images."""
    monkeypatch.setattr(batches, "place_of", lambda size, device: "streamed")
    trial_data_module._trial_data.cache_clear()
    yield
    trial_data_module._trial_data.cache_clear()


@pytest.mark.parametrize("name", ["mixup", "gamma_net"])
def test_streamed_images_train_as_those_on_the_device(
    name: str, captures: list[str], request: pytest.FixtureRequest
) -> None:
    expected = eagerly(learner(name))
    request.getfixturevalue("streams")
    made = trained(learner(name))
    assert captures and made.facts()["images"] == "streamed"
    assert_equal(made, expected)


@pytest.mark.parametrize("rule", ["sgd", "adam", "adamw", "adagrad"])
def test_every_rule_of_the_optimizer_is_captured(rule: str, captures: list[str]) -> None:
    settings = {"optimizer": {"name": rule, "lr": 0.01, "clip": 1.0, "warmup": 0.3}, "number": 3}
    left = trained(learner(optimizer={**settings["optimizer"], "lr": 0.1, "clip": 0.5}))
    left.leave()
    made = trained(learner(**settings))
    assert made._program is left._program
    assert_equal(made, eagerly(learner(**settings)))


def test_resumed_by_another_process_or_on_a_used_program_it_is_the_same(
    captures: list[str], tmp_path: Path
) -> None:
    cut, expected = learner("gamma_net"), eagerly(learner("gamma_net"))
    cut.train_epoch()
    checkpoint.save(cut, tmp_path / "last.pt")
    trained(cut).leave()
    resumed = learner("gamma_net")
    assert resumed._program is cut._program and checkpoint.load(resumed, tmp_path / "last.pt")
    assert_equal(trained(resumed), expected)


def test_two_programs_are_kept_and_the_least_recently_used_goes_first(captures: list[str]) -> None:
    made = {}
    for name in ("cross_entropy", "focal", "cross_entropy", "brier"):
        made[name] = trained(learner(name, epochs=1))
        made[name].leave()
    assert program._kept == [made["cross_entropy"]._program, made["brier"]._program]
    assert learner("focal")._program is not made["focal"]._program
    program.forget()
    assert not program._kept


def test_a_program_is_of_one_trial_at_a_time(captures: list[str]) -> None:
    trained(learner(epochs=1)).leave()
    assert learner()._program is not learner()._program


@pytest.mark.parametrize(
    "other",
    [
        {"batch_size": 32},
        {"precision": "bfloat16"},
        {"model": {"name": "cnn", "width": 5}},
        {"optimizer": {"name": "adam"}},
        {"optimizer": {"clip": 1.0}},
        {"data": {"name": "digits", "augment": "flip", "validation": 0.8}},
        {"seed": 1},
    ],
    ids=str,
)
def test_another_step_is_another_program(other: dict[str, Any], captures: list[str]) -> None:
    left = trained(learner(epochs=1))
    left.leave()
    made = trained(learner(**other, epochs=1))
    assert made._program is not left._program
    assert_equal(made, eagerly(learner(**other, epochs=1)))


@dataclass(frozen=True)
class Narrow(Model):
    """With convolutions whose weights lie channels last and first at once."""

    def build(self, input_shape: tuple[int, int, int], num_classes: int) -> Network:
        fixed = nn.Conv2d(3, 3, 3).requires_grad_(False)
        features = nn.Sequential(nn.Conv2d(1, 3, 1), fixed, nn.Conv2d(3, 1, 1), nn.Flatten())
        return Network(features, nn.Linear(36, num_classes))


def test_every_weight_is_a_part_of_the_vector_that_is_trained() -> None:
    config = replace(learner().config, model=Narrow())
    made = Learner(config, trial_data(config, CPU), CPU)
    trained_ones = [each for each in made.network.parameters() if each.requires_grad]
    places = {each.untyped_storage().data_ptr() for each in trained_ones}
    assert len(trained_ones) == 6 and places == {made.weights.vector.untyped_storage().data_ptr()}
    fixed = made.network.features.get_submodule("1").weight
    assert isinstance(fixed, Tensor) and fixed.is_contiguous(memory_format=torch.channels_last)


def test_a_model_that_branches_on_values_is_trained_eagerly(captures: list[str]) -> None:
    made, expected = (replace(learner().config, model=Branches()) for _ in range(2))
    ours, theirs = (Learner(config, trial_data(config, CPU), CPU) for config in (made, expected))
    assert_equal(trained(ours), eagerly(theirs))
    assert not captures and ours._program.eager_because == "a step waits for the device"
    ours.leave()
    assert not program._kept


@pytest.mark.parametrize(
    "warning", ["called a synchronizing CUDA operation", "of something else", None]
)
def test_a_call_that_waits_for_the_device_is_told(
    warning: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyTorch warns of it, in a mode that is then left."""
    modes: list[int | str] = [0]
    monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: modes[-1])
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", modes.append)

    def call() -> None:
        assert modes[-1] == "warn"
        if warning:
            warnings.warn(warning, stacklevel=1)

    assert program.waits(call) == (warning == "called a synchronizing CUDA operation")
    assert modes == [0, "warn", 0]


def test_too_little_memory_for_a_capture_is_no_failure(
    monkeypatch: pytest.MonkeyPatch, captures: list[str]
) -> None:
    def fails(*args: Any) -> Any:
        try:
            raise ValueError("An operation.")
        except ValueError:
            raise torch.OutOfMemoryError("CUDA out of memory.\nMore.")  # noqa: B904

    monkeypatch.setattr(program, "capture", fails)
    made = trained(learner())
    assert made._program.eager_because == "CUDA out of memory.\nMore.\nafter: An operation."
    assert_equal(made, eagerly(learner()))


def test_a_capture_that_ends_within_an_evaluation_leaves_training(
    monkeypatch: pytest.MonkeyPatch, captures: list[str]
) -> None:
    """The meta batch of gamma_net is evaluated; what follows there is a step of training."""
    method = methods.find("gamma_net")()
    made = learner(method)

    def fails(*args: Any) -> Any:
        made.network.eval()
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(program, "capture", fails)
    assert_equal(trained(made), eagerly(learner(method)))


def test_a_capture_that_fails_is_followed_by_one_that_succeeds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before PyTorch 2.15 random numbers wait for it: "Offset increment outside graph
    capture encountered"."""
    entered: list[torch.cuda.Stream] = []
    fractions = [0.25]

    @contextmanager
    def graph(
        graph: Any, pool: Any = None, stream: Any = None, capture_error_mode: str = "global"
    ) -> Iterator[None]:
        assert capture_error_mode == "thread_local" and fractions[-1] == 1.0
        entered.append(stream)
        yield

    monkeypatch.setattr(torch.cuda, "graph", graph)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", SimpleNamespace)
    monkeypatch.setattr(torch.cuda, "get_per_process_memory_fraction", lambda: fractions[-1])
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", fractions.append)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: "stream")
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: f"pool {len(entered)}")
    program._stream_and_pool.cache_clear()

    def fails() -> None:
        raise RuntimeError("operation not permitted when stream is capturing")

    with pytest.raises(RuntimeError, match="not permitted"):
        program.capture(fails, CPU)
    assert entered == ["stream", "stream"] and fractions == [0.25, 1.0, 0.25]
    assert program._stream_and_pool(CPU) == ("stream", "pool 2"), (
        "PyTorch 2.11 captures into the last one no more"
    )
    program._stream_and_pool.cache_clear()


class OldContract(CrossEntropy):
    """As extensions were written: numbers, a generator on the host, a count of its own."""

    def start(self, task: Any) -> Any:
        return {"batches": 0}

    def prepare(self, batch: Batch, generator: torch.Generator) -> Batch:
        return batch._replace(
            images=batch.images * (0.9 + 0.2 * torch.rand((), generator=generator).item())
        )

    def loss(self, logits: Tensor, targets: Tensor, progress: float | Tensor) -> Tensor:
        assert isinstance(progress, float)
        return super().loss(logits, targets, progress) * (2.0 if progress > 0.5 else 1.0)

    def observe(self, state: Any, batch: Batch, logits: Tensor) -> Any:
        return {"batches": state["batches"] + 1}


def test_an_extension_of_the_old_contract_is_trained_eagerly(captures: list[str]) -> None:
    made = trained(learner(OldContract()))
    assert not captures and made._program.eager_because == "OldContract does not set tensors_only"
    assert made.method_state == {"batches": 10}


class Growing(CrossEntropy):
    """Keeps to tensors, and its state grows with every batch."""

    tensors_only = True

    def start(self, task: Any) -> Any:
        return torch.zeros(1)

    def observe(self, state: Any, batch: Batch, logits: Tensor) -> Any:
        return torch.cat([state, torch.ones(1)])


def test_a_state_that_grows_is_trained_eagerly(captures: list[str]) -> None:
    made = trained(learner(Growing()))
    assert not captures and "shape" in str(made._program.eager_because)
    assert len(made.method_state) == 11


class Turning(CrossEntropy):
    """Its state's tensors change places: each is copied from where another is copied to."""

    tensors_only = True

    def start(self, task: Any) -> Any:
        return {"now": torch.zeros(()), "before": torch.zeros(()), "earlier": [torch.zeros(())]}

    def observe(self, state: Any, batch: Batch, logits: Tensor) -> Any:
        return {"now": logits.mean(), "before": state["now"], "earlier": [state["before"]]}


def test_a_state_whose_tensors_change_places(captures: list[str]) -> None:
    made, expected = trained(learner(Turning())), eagerly(learner(Turning()))
    assert captures and len({float(made.method_state[name]) for name in ("now", "before")}) == 2
    assert_equal(made, expected)
