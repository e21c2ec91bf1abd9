"""The training step, over tensors that stay where they are; on a GPU, one captured CUDA graph.

A program owns all that a step reads and writes: the weights and their moments, batch norm's
statistics, the method's hyperparameters and state, and a table of what the epoch decided
beforehand. The next trial with an equal step copies its own values into them, and nothing is
captured again. Methods know nothing of this.
"""

from __future__ import annotations

import json
import os
import random
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map_only

from trainables.config import TrialConfig
from trainables.files.home import default_cache
from trainables.loading.batches import DeviceSplit
from trainables.loading.trial_data import TrialData
from trainables.method import Method, with_class_weights
from trainables.model import Network
from trainables.models.shared.whole_module import network_of
from trainables.plain import Plain, without_numbers
from trainables.seeding import seed_of
from trainables.tensors import numbers, with_tensors
from trainables.training.choices import Choices, ChoiceTable, HostTable
from trainables.training.stacked import StackedStep
from trainables.training.weights import Weights

# Programs that a process keeps, the one at work included: a study hands out its methods in turn.
KEPT = 2
# Steps before a capture: they load kernels and choose algorithms, which a capture must not.
# The last one is watched.
WARM_UP = 2
COMPILER = "inductor"
# The largest difference of the weights after a captured step from those after an eager one, over
# their norm. A step taken twice differs by 6.4e-9 at most (`python -m benchmarks.gpu`, "repeated").
TOLERANCE = 1e-5
# Steps by which streamed images are ahead of the device.
AHEAD = 3
# Settings that a step does not depend on: what they decide is in the table, or happens between the
# steps.
OUTSIDE = ("epochs", "seed", "number", "result", "diagnostics", "equal_train")


Trial = tuple[TrialConfig, Network]
# A training step: its loss and the method's new state.
Step = Callable[[Choices], tuple[Tensor, Any]]


class Batches:
    """The steps of one batch size: their table and, once captured, what replays one."""

    def __init__(self, table: ChoiceTable) -> None:
        self.table = table
        self.eager_steps = 0
        self.replay: Callable[[], None] | None = None
        self.at_work: deque[torch.cuda.Event] = deque()  # the ends of steps with streamed images

    def wait(self) -> None:
        """Wait until the device is at most AHEAD steps behind, whose images take memory."""
        while len(self.at_work) > AHEAD:
            self.at_work.popleft().synchronize()


class Program:
    """The tensors that one trial's steps after another's read and write. `run` gets its `step`.

    others: of the other trials that it trains at once, in the order of their rows.
    """

    def __init__(
        self,
        key: str,
        config: TrialConfig,
        data: TrialData,
        network: Network,
        device: torch.device,
        others: Sequence[Trial] = (),
    ) -> None:
        self.key = key
        self.data = data
        self.device = device
        self.networks = [network, *(other for _, other in others)]
        rows = [(other.to(device).named_parameters(), each.optimizer) for each, other in others]
        named = network.to(device).named_parameters()
        self.weights = Weights(named, config.optimizer, rows)
        self.stacked: StackedStep | None = None
        if others:
            configs = [config, *(each for each, _ in others)]
            self.stacked = StackedStep(configs, network, self.weights, device)
        for each in (*network.parameters(), *network.buffers()):  # what is not trained, too
            if each.dim() == 4 and not each.requires_grad:
                each.data = each.data.contiguous(memory_format=torch.channels_last)
        self.network = network
        self.method = config.method
        if config.method.tensors_only:
            self.method = with_tensors(config.method, device)
        # The network's, for training.
        self.compiled_features: Callable[[Tensor], Tensor] | None = None
        if config.compile and captures(device) and not config.method.differentiates_twice:
            os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(default_cache() / "compiled"))
            # A function, for a module of PyTorch's own is not compiled by every version.
            features = self.network.features
            self.compiled_features = torch.compile(
                lambda images: features(images), backend=COMPILER, dynamic=False
            )
        self.state: Any = None
        # The sum over the epoch's steps; of several trials [K].
        self.loss = torch.zeros([len(others) + 1] if others else [], device=device)
        # Why steps are not captured; None: they are, or will be.
        self.eager_because: str | None = None
        if not captures(device):
            self.eager_because = f"{device.type} has no graphs"
        elif config.capture == "off":
            self.eager_because = "capture: off"
        elif config.model.per_position:
            self.eager_because = "a step waits for the device, which positions are labelled"
        elif not config.method.tensors_only:
            self.eager_because = f"{type(config.method).__name__} does not set tensors_only"
        self._batches: list[Batches] = []

    def restart(self, config: TrialConfig, network: Network, others: Sequence[Trial] = ()) -> None:
        """Take the weights and numbers of another trial, or of others, with the same step."""
        configs = [config, *(each for each, _ in others)]
        networks = [network, *(other for _, other in others)]
        for ours, theirs in zip(self.networks, networks, strict=True):
            ours.load_state_dict(theirs.state_dict())
        self.weights.restart([each.optimizer for each in configs])
        if self.stacked is not None:
            self.stacked.restart(configs)
            return
        fresh = with_tensors(config.method, self.device)
        for number, other in zip(numbers(self.method), numbers(fresh), strict=True):
            number.copy_(other)

    def weighed(self, method: Method, train: DeviceSplit, row: int) -> Method:
        """The program's method, once the loss of a row has its method's weights of classes."""
        weights = method.weights_of(train.class_counts(self.data.prepared.num_classes))
        if weights is not None and self.stacked is not None:
            self.stacked.weigh(weights.to(self.device), row)
        elif weights is not None:
            self.method = with_class_weights(self.method, weights.to(self.device))
        return self.method

    def keep(self, state: Any) -> None:
        """Take a state as the steps' own: into the tensors of the last one, if they are alike."""
        if not (self.method.tensors_only and captures(self.device)):
            self.state = state
        elif not _copied(self.state, state):
            self.state = tree_map_only(Tensor, Tensor.clone, state)
            self._batches = []

    def run(
        self,
        choices: Choices,
        step: Step,
        streamed: Callable[[int], dict[str, Tensor]] | None = None,
    ) -> None:
        """Take all steps of these choices. streamed: the images of a step, if not there."""
        batches = self._for(choices)
        table = batches.table
        table.fill(choices)
        advance = partial(self.advance, table, step)
        with _beside(self.device):
            for index in range(choices.steps):
                if streamed is not None:
                    batches.wait()
                    table.receive(streamed(index))
                self._take(batches, advance)
                if streamed is not None and self.device.type == "cuda":
                    batches.at_work.append(torch.cuda.current_stream(self.device).record_event())

    def _for(self, choices: Choices) -> Batches:
        for batches in self._batches:
            if batches.table.holds(choices):
                return batches
        on_host = self.device.type == "cpu" and not captures(self.device)
        batches = Batches(HostTable() if on_host else ChoiceTable(choices, self.device))
        self._batches.append(batches)
        return batches

    def _take(self, batches: Batches, advance: Callable[[], None]) -> None:
        is_warm = batches.eager_steps >= WARM_UP
        if batches.replay is None and self.eager_because is None and is_warm:
            replay = self._captured(advance)
            if replay is not None and self._compared(batches.table, replay, advance):
                batches.replay = replay
            if replay is not None:
                return
        if batches.replay is not None:
            batches.replay()
            return
        batches.eager_steps += 1
        if self.eager_because is not None or batches.eager_steps != WARM_UP:
            advance()
        elif waits(advance):
            self.eager_because = "a step waits for the device"

    def advance(self, table: ChoiceTable, step: Step) -> None:
        """One step, eagerly: what is captured."""
        loss, state = step(table.next())
        self.loss += loss
        if not (self.method.tensors_only and captures(self.device)):
            self.state = state
        elif not _copied(self.state, state):
            self.state = state
            self.eager_because = "the method's state does not keep its shape"

    def _captured(self, advance: Callable[[], None]) -> Callable[[], None] | None:
        state = self.state
        try:
            return capture(advance, self.device)
        except RuntimeError as error:  # out of memory, or an operation that cannot be captured
            self.state = state
            self.eager_because = _in_full(error)
            self.network.train()  # it may have ended in a part of the step that evaluates
            return None

    def _compared(
        self, table: ChoiceTable, replay: Callable[[], None], advance: Callable[[], None]
    ) -> bool:
        """Take a step eagerly, and again as it was captured. Whether they agree; if not, the eager
        one counts, and from now on steps are eager."""
        written = [*self._written, *table.written]
        before = [each.clone() for each in written]
        drawn, on_host = _random_state(self.device), _drawn_on_host(self.device)
        advance()
        eager = [each.clone() for each in written]
        weights = self.weights.vector.clone()
        if on_host != _drawn_on_host(self.device):  # a graph would repeat what it has drawn
            self.eager_because = "a step draws random numbers on the host"
            return False
        _fill(written, before)
        _set_random_state(self.device, drawn)
        replay()
        difference = float((self.weights.vector - weights).norm() / weights.norm())
        if difference <= TOLERANCE:
            return True
        _fill(written, eager)
        self.eager_because = f"a captured step differed from an eager one by {difference:.2g}"
        return False

    @property
    def _written(self) -> list[Tensor]:
        """What a step changes."""
        state = [each for each in tree_flatten(self.state)[0] if isinstance(each, Tensor)]
        optimizer = [*self.weights.moments, self.weights.count]
        return [self.weights.vector, *optimizer, *self.network.buffers(), *state, self.loss]

    @property
    def is_captured(self) -> bool:
        return any(batches.replay for batches in self._batches)


def _fill(tensors: Iterable[Tensor], values: Iterable[Tensor]) -> None:
    for tensor, value in zip(tensors, values, strict=True):
        tensor.copy_(value)


def _random_state(device: torch.device) -> Tensor:
    """Of the generator from which modules draw, such as dropout."""
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


def _set_random_state(device: torch.device, state: Tensor) -> None:
    if device.type == "cuda":
        torch.cuda.set_rng_state(state, device)
    else:
        torch.set_rng_state(state)


def _drawn_on_host(device: torch.device) -> tuple[object, ...]:
    """The states of the generators from which a module of somebody's own may draw on the host."""
    of_numpy: Any = np.random.get_state()
    name, keys, *position = of_numpy
    of_torch = b"" if device.type == "cpu" else torch.get_rng_state().numpy().tobytes()
    return random.getstate(), name, keys.tobytes(), *position, of_torch


def captures(device: torch.device) -> bool:
    """Steps on the device are captured."""
    return device.type == "cuda"


def _in_full(error: BaseException) -> str:
    """All lines of an error, and of those that it followed."""
    followed = error.__cause__ or error.__context__
    return f"{error}" if followed is None else f"{error}\nafter: {_in_full(followed)}"


@cache
def _stream_and_pool(device: torch.device) -> tuple[torch.cuda.Stream, Any]:
    """The stream and memory that all captures of a process share."""
    return torch.cuda.Stream(device), torch.cuda.graph_pool_handle()  # type: ignore[no-untyped-call]


def waits(call: Callable[[], None]) -> bool:
    """Carry out a call; whether it waited for the device, which ends a capture with an error.

    Asked before a capture, because PyTorch 2.11 keeps the pool of one that ends so, and never
    captures into it again.
    """
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            call()
        finally:
            torch.cuda.set_sync_debug_mode(before)
    return any("synchronizing CUDA operation" in str(each.message) for each in found)


def capture(advance: Callable[[], None], device: torch.device) -> Callable[[], None]:
    """A function that repeats a call on the device alone; the call itself is not carried out."""
    stream, pool = _stream_and_pool(device)
    graph = torch.cuda.CUDAGraph()
    share = torch.cuda.get_per_process_memory_fraction()
    # Memory that is cached cannot be given back within a capture: a limit would end it.
    torch.cuda.set_per_process_memory_fraction(1.0)
    try:
        with torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode="thread_local"):
            advance()
    except RuntimeError:
        # PyTorch 2.11 captures into this pool no more; before 2.15 it draws no random numbers until
        # a capture succeeds.
        _stream_and_pool.cache_clear()
        empty = torch.cuda.CUDAGraph()
        with torch.cuda.graph(empty, stream=stream, capture_error_mode="thread_local"):
            torch.zeros((), device=device)
        raise
    finally:
        torch.cuda.set_per_process_memory_fraction(share)
    return graph.replay


@contextmanager
def _beside(device: torch.device) -> Iterator[None]:
    """Run on the captures' stream, after what the steps before have made there."""
    if device.type != "cuda":
        yield
        return
    stream, _ = _stream_and_pool(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    try:
        with torch.cuda.stream(stream):
            yield
    finally:  # after an error, too: its memory is soon used by others
        torch.cuda.current_stream(device).wait_stream(stream)


def new_network(config: TrialConfig, data: TrialData) -> Network:
    """The network with its initial weights, on the CPU."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed_of(config.seed, config.number, "weights"))
        prepared = data.prepared
        return network_of(config.model, prepared.input_shape, prepared.num_classes)


# ---- programs for later trials -------------------------------------------------------------------

_kept: list[Program] = []  # the least recently used first


def program_for(
    config: TrialConfig,
    data: TrialData,
    network: Network,
    device: torch.device,
    others: Sequence[Trial] = (),
) -> Program:
    """A program an earlier trial, or stack, has left, with this one's values; or a new one, to
    `leave`. others: of the other trials of a stack."""
    configs = [config, *(each for each, _ in others)]
    places = [each.number - config.number for each in configs]
    key = json.dumps([list(map(_structure, configs)), places, str(device)], sort_keys=True)
    for program in _kept:
        if program.key == key and program.data is data:
            _kept.remove(program)
            program.restart(config, network, others)
            return program
    del _kept[: len(_kept) - KEPT + 1]
    return Program(key, config, data, network, device, others)


def leave(program: Program) -> None:
    """Keep a program that no trial uses any longer, if it spares the next one a capture."""
    if program.is_captured and program.eager_because is None:
        _kept.append(program)


def forget() -> None:
    """Free the programs that are kept."""
    _kept.clear()


def _structure(config: TrialConfig) -> dict[str, Plain]:
    """The settings that a step does not read from the device: equal ones have equal steps."""
    kept = {key: value for key, value in config.to_mapping().items() if key not in OUTSIDE}
    for part in ("method", "optimizer"):
        kept[part] = without_numbers(kept[part])
    return {**kept, "bias_lr_factor": config.optimizer.bias_lr_factor}


def _copied(to: Any, source: Any) -> bool:
    """Copy a state's tensors into another's; False if the two differ in more than values."""
    ours, structure = tree_flatten(to)
    theirs, other_structure = tree_flatten(source)
    if structure != other_structure or not all(map(_are_alike, ours, theirs)):
        return False
    pairs = [both for both in zip(ours, theirs, strict=True) if isinstance(both[0], Tensor)]
    places = {one.untyped_storage().data_ptr() for one, _ in pairs}
    for index, (one, other) in enumerate(pairs):
        # One that lies where another is about to be copied to.
        if one is not other and other.untyped_storage().data_ptr() in places:
            pairs[index] = (one, other.clone())
    for one, other in pairs:
        one.copy_(other)
    return True


def _are_alike(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return (one.shape, one.dtype) == (other.shape, other.dtype)
    return type(one) is type(other) and bool(one == other)
