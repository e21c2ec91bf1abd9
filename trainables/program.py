"""The training step as a program over tensors that stay where they are; on a GPU, one CUDA graph of the eager step.

A program owns all that a step reads and writes: the weights and their moments, batch norm's statistics, the method's
hyperparameters and state, and a table of what the epoch decided beforehand. The next trial with an equal step copies
its own values into them, and nothing is captured again. Methods know nothing of this.
"""

from __future__ import annotations

import json
import os
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from functools import cache, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map_only

from trainables.config import TrialConfig
from trainables.fields import Settings
from trainables.files.home import default_cache
from trainables.loading.trial_data import TrialData
from trainables.method import with_tensors
from trainables.model import Network
from trainables.optimizer import Weights

# Programs that a process keeps, the one at work included: a study hands out its methods in turn.
KEPT = 2
# Steps before a capture: they load kernels and choose algorithms, which a capture must not. The last one is watched.
WARM_UP = 2
COMPILER = "inductor"
# Steps by which streamed images are ahead of the device.
AHEAD = 3
# Settings that a step does not depend on: what they decide is in the table, or happens between the steps.
OUTSIDE = ("epochs", "seed", "number", "result", "diagnostics", "equal_train")


class Choices(NamedTuple):
    """What an epoch decides beforehand for batches of one size: the first dimension is the step.

    progress: [S] float64. learning_rate: [S] float32. train, meta: the splits' (`DeviceSplit.decide`). method: the
    method's (`Method.draw`).
    """

    progress: Tensor
    learning_rate: Tensor
    train: dict[str, Tensor]
    meta: dict[str, Tensor]
    method: dict[str, Tensor]

    @property
    def steps(self) -> int:
        return len(self.progress)

    def at(self, step: int) -> Choices:
        """Those of one step."""
        rest = ({name: values[step] for name, values in part.items()} for part in self[2:])
        return Choices(self.progress[step], self.learning_rate[step], *rest)

    def values(self) -> Iterator[tuple[str, Tensor]]:
        """All of them, by a name of their own."""
        yield from (("progress", self.progress), ("learning_rate", self.learning_rate))
        for part in ("train", "meta", "method"):
            yield from ((f"{part}.{name}", values) for name, values in getattr(self, part).items())


class Table:
    """Choices as rows of bytes on the device, and a counter there: a step reads its row in one operation."""

    def __init__(self, choices: Choices, device: torch.device) -> None:
        self.layout = layout(choices)
        self._columns: dict[str, tuple[slice, torch.dtype, torch.Size]] = {}
        start = 0
        for name, values in _widest_first(choices):
            stop = start + values[0].numel() * values.itemsize
            self._columns[name] = slice(start, stop), values.dtype, values.shape[1:]
            start = stop
        self._width = -(-start // 8) * 8  # so that rows begin where a number of eight bytes may
        self._rows = torch.zeros(choices.steps, self._width, dtype=torch.uint8, device=device)
        self._next = torch.zeros(1, dtype=torch.int64, device=device)
        self._images: dict[str, Tensor] = {}

    def holds(self, choices: Choices) -> bool:
        return len(self._rows) >= choices.steps and self.layout == layout(choices)

    def receive(self, images: dict[str, Tensor]) -> None:
        """The next step's images, where they are streamed: {"train": uint8 [B, C, H, W], "meta": ...} on the CPU."""
        for part, found in images.items():
            if part not in self._images:
                self._images[part] = torch.empty_like(found, device=self._rows.device)
            self._images[part].copy_(found, non_blocking=True)

    def fill(self, choices: Choices) -> None:
        """One copy to the device; the first row is next."""
        rows = torch.zeros(
            choices.steps, self._width, dtype=torch.uint8, pin_memory=self._rows.is_cuda
        )
        for name, values in _widest_first(choices):
            part = self._columns[name][0]
            rows[:, part] = values.contiguous().view(choices.steps, -1).view(torch.uint8)
        self._rows[: choices.steps].copy_(rows, non_blocking=True)
        self._next.zero_()

    def next(self) -> Choices:
        """Those of the next step."""
        row = self._rows.index_select(0, self._next)[0]
        self._next += 1
        found: dict[str, Any] = {"train": {}, "meta": {}, "method": {}}
        for name, (part, dtype, shape) in self._columns.items():
            group, _, key = name.rpartition(".")
            (found[group] if group else found)[key] = row[part].view(dtype).view(shape)
        for group, images in self._images.items():
            found[group]["images"] = images
        return Choices(**found)


class HostTable(Table):
    """Choices as they are, for a CPU, where Python takes every step."""

    def __init__(self) -> None:
        self._images = {}

    def holds(self, choices: Choices) -> bool:
        return True

    def fill(self, choices: Choices) -> None:
        self._choices, self._step = choices, -1

    def next(self) -> Choices:
        self._step += 1
        return self._choices.at(self._step)


def layout(choices: Choices) -> tuple[Any, ...]:
    return tuple((name, values.dtype, values.shape[1:]) for name, values in choices.values())


def _widest_first(choices: Choices) -> list[tuple[str, Tensor]]:
    return sorted(choices.values(), key=lambda item: -item[1].itemsize)


# A training step: its loss and the method's new state.
Step = Callable[[Choices], tuple[Tensor, Any]]


class Batches:
    """The steps of one batch size: their table and, once captured, what replays one."""

    def __init__(self, table: Table) -> None:
        self.table, self.eager_steps = table, 0
        self.replay: Callable[[], None] | None = None
        self.at_work: deque[torch.cuda.Event] = deque()  # the ends of steps with streamed images

    def wait(self) -> None:
        """Until the device is at most AHEAD steps behind: their images take memory of the host that it reads from."""
        while len(self.at_work) > AHEAD:
            self.at_work.popleft().synchronize()


class Program:
    """What the steps of one trial after another read and write. `step` is the trial's own, given to `run`."""

    def __init__(
        self, key: str, config: TrialConfig, data: TrialData, network: Network, device: torch.device
    ) -> None:
        self.key, self.data, self.device = key, data, device
        self.weights = Weights(network.to(device).named_parameters(), config.optimizer)
        for each in (*network.parameters(), *network.buffers()):  # what is not trained, too
            if each.dim() == 4 and not each.requires_grad:
                each.data = each.data.contiguous(memory_format=torch.channels_last)
        self.network = network
        self.method = (
            with_tensors(config.method, device) if config.method.tensors_only else config.method
        )
        self.compiled_features: Callable[[Tensor], Tensor] | None = (
            None  # the network's, for training
        )
        if config.compile and captures(device) and not config.method.differentiates_twice:
            os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(default_cache() / "compiled"))
            # A function, for a module of PyTorch's own is not compiled by every version.
            features = self.network.features
            self.compiled_features = torch.compile(
                lambda images: features(images), backend=COMPILER, dynamic=False
            )
        self.state: Any = None
        self.loss = torch.zeros((), device=device)  # the sum over the epoch's steps
        # Why steps are not captured; None: they are, or will be.
        self.eager_because: str | None = (
            None if captures(device) else f"{device.type} has no graphs"
        )
        if captures(device) and not config.method.tensors_only:
            self.eager_because = f"{type(config.method).__name__} does not set tensors_only"
        self._batches: list[Batches] = []

    def restart(self, config: TrialConfig, network: Network) -> None:
        """For another trial with the same step: its weights and numbers, in the place of the last one's."""
        self.network.load_state_dict(network.state_dict())
        self.weights.restart(config.optimizer)
        fresh = with_tensors(config.method, self.device)
        for ours, theirs in zip(_numbers(self.method), _numbers(fresh), strict=True):
            ours.copy_(theirs)

    def keep(self, state: Any) -> None:
        """Take a state as the steps' own: into the tensors of the last one, if they are alike."""
        if not (self.method.tensors_only and captures(self.device)):
            self.state = state
        elif not _copied(self.state, state):
            self.state, self._batches = tree_map_only(Tensor, Tensor.clone, state), []

    def run(
        self,
        choices: Choices,
        step: Step,
        streamed: Callable[[int], dict[str, Tensor]] | None = None,
    ) -> None:
        """All steps of these choices. streamed: gives the images of a step by its index, if the device lacks them."""
        batches = next((each for each in self._batches if each.table.holds(choices)), None)
        if batches is None:
            on_host = self.device.type == "cpu" and not captures(self.device)
            batches = Batches(HostTable() if on_host else Table(choices, self.device))
            self._batches.append(batches)
        table = batches.table
        table.fill(choices)
        with _beside(self.device):
            for index in range(choices.steps):
                if streamed is not None:
                    batches.wait()
                    table.receive(streamed(index))
                advance = partial(self.advance, table, step)
                if (
                    batches.replay is None
                    and self.eager_because is None
                    and batches.eager_steps >= WARM_UP
                ):
                    batches.replay = self._captured(advance)
                if batches.replay is not None:
                    batches.replay()
                else:
                    batches.eager_steps += 1
                    self._eagerly(advance, watched=batches.eager_steps == WARM_UP)
                if streamed is not None and self.device.type == "cuda":
                    batches.at_work.append(torch.cuda.current_stream(self.device).record_event())

    def advance(self, table: Table, step: Step) -> None:
        """One step, eagerly: what is captured."""
        loss, state = step(table.next())
        self.loss += loss
        if not (self.method.tensors_only and captures(self.device)):
            self.state = state
        elif not _copied(self.state, state):
            self.state, self.eager_because = state, "the method's state does not keep its shape"

    def _eagerly(self, advance: Callable[[], None], watched: bool) -> None:
        if not watched or self.eager_because is not None:
            advance()
        elif waits(advance):
            self.eager_because = "a step waits for the device"

    def _captured(self, advance: Callable[[], None]) -> Callable[[], None] | None:
        state = self.state
        try:
            return capture(advance, self.device)
        except RuntimeError as error:  # out of memory, or an operation that cannot be captured
            self.state, self.eager_because = state, f"{error}".partition("\n")[0]
            self.network.train()  # it may have ended in a part of the step that evaluates
            return None

    @property
    def is_captured(self) -> bool:
        return any(batches.replay for batches in self._batches)


def captures(device: torch.device) -> bool:
    """Whether steps on the device are captured."""
    return device.type == "cuda"


@cache
def _stream_and_pool(device: torch.device) -> tuple[torch.cuda.Stream, Any]:
    """Of all captures of a process: graphs that share them share their memory."""
    return torch.cuda.Stream(device), torch.cuda.graph_pool_handle()  # type: ignore[no-untyped-call]


def waits(call: Callable[[], None]) -> bool:
    """Carry out a call; whether it waited for the device, which ends a capture with an error.

    Asked before a capture, because PyTorch 2.11 keeps the pool of one that ends so, and never captures into it again.
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
    """What repeats a call on the device alone; the call itself is not carried out."""
    stream, pool = _stream_and_pool(device)
    graph, share = torch.cuda.CUDAGraph(), torch.cuda.get_per_process_memory_fraction()
    # Memory that is cached cannot be given back within a capture: a limit would end it.
    torch.cuda.set_per_process_memory_fraction(1.0)
    try:
        with torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode="thread_local"):
            advance()
    except RuntimeError:
        # PyTorch 2.11 captures into this pool no more; before 2.15 it draws no random numbers until a capture succeeds.
        _stream_and_pool.cache_clear()
        with torch.cuda.graph(
            torch.cuda.CUDAGraph(), stream=stream, capture_error_mode="thread_local"
        ):
            torch.zeros((), device=device)
        raise
    finally:
        torch.cuda.set_per_process_memory_fraction(share)
    return graph.replay


@contextmanager
def _beside(device: torch.device) -> Iterator[None]:
    """On the stream of captures, so that the steps before one have made all that it uses there."""
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


# ---- programs for later trials -------------------------------------------------------------------------------------

_kept: list[Program] = []  # the least recently used first


def program_for(
    config: TrialConfig, data: TrialData, network: Network, device: torch.device
) -> Program:
    """One that an earlier trial has left, with this trial's values; or a new one. `leave` it for the next."""
    key = json.dumps([_structure(config.to_mapping()), str(device)], sort_keys=True)
    for program in _kept:
        if program.key == key and program.data is data:
            _kept.remove(program)
            program.restart(config, network)
            return program
    del _kept[: len(_kept) - KEPT + 1]
    return Program(key, config, data, network, device)


def leave(program: Program) -> None:
    """Keep a program that no trial uses any longer, if it spares the next one a capture."""
    if program.is_captured and program.eager_because is None:
        _kept.append(program)


def forget() -> None:
    """Free the programs that are kept."""
    _kept.clear()


def _structure(plain: dict[str, Any]) -> dict[str, Any]:
    """The settings without those that a step reads from the device: two trials with the same one have equal steps."""
    kept = {key: value for key, value in plain.items() if key not in OUTSIDE}
    optimizer = _without_numbers(kept["optimizer"]) | {
        "bias_lr_factor": kept["optimizer"]["bias_lr_factor"]
    }
    return {**kept, "method": _without_numbers(kept["method"]), "optimizer": optimizer}


def _without_numbers(plain: Any) -> Any:
    if isinstance(plain, dict):
        return {key: _without_numbers(value) for key, value in plain.items()}
    return "number" if isinstance(plain, float) else plain


def _numbers(settings: Settings) -> Iterator[Tensor]:
    """The numbers that `with_tensors` made tensors of."""
    for value in (getattr(settings, spec.name) for spec in fields(settings)):
        if isinstance(value, Settings):
            yield from _numbers(value)
        elif isinstance(value, Tensor):
            yield value


def _copied(to: Any, source: Any) -> bool:
    """Copy the tensors of a state into those of another; False if the two differ in more than their tensors' values."""
    (ours, structure), (theirs, other) = tree_flatten(to), tree_flatten(source)
    if structure != other or not all(map(_are_alike, ours, theirs)):
        return False
    pairs = [both for both in zip(ours, theirs, strict=True) if isinstance(both[0], Tensor)]
    places = {one.untyped_storage().data_ptr() for one, _ in pairs}
    changed = [(one, other) for one, other in pairs if one is not other]
    # One that lies where another is about to be copied to.
    safe = [
        other.clone() if other.untyped_storage().data_ptr() in places else other
        for _, other in changed
    ]
    for (one, _), other in zip(changed, safe, strict=True):
        one.copy_(other)
    return True


def _are_alike(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return (one.shape, one.dtype) == (other.shape, other.dtype)
    return type(one) is type(other) and bool(one == other)
