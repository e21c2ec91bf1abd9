"""A trial's cost, measured by training a part of it. Writes only into the folder it is given."""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from trainables.config import TrialConfig
from trainables.loading.batches import DeviceSplit
from trainables.loading.trial_data import prepared_for, trial_data
from trainables.outputs.classifier import batch_size
from trainables.outputs.outcome import Outcome
from trainables.plain import Plain
from trainables.training import checkpoint
from trainables.training.attempt import Assignment, Attempt
from trainables.training.device import CONTEXT, prepared_device
from trainables.training.learner import Diverged, Learner
from trainables.training.probe_cost import Cost

# Wall-clock seconds trained at most, of an epoch and of a trial beside its first epoch.
EPOCH_SECONDS = 1.0
TRIAL_SECONDS = 2.0
FEWEST_EPOCHS = 3  # beside the first, which is start-up
FEWEST_STEPS = 8  # of an epoch: on a GPU the first are eager, and a capture follows


class Clock(NamedTuple):
    """process: CPU seconds of all threads. wall: of the clock on the wall."""

    process: float
    wall: float

    def since(self, before: Clock) -> Clock:
        return Clock(self.process - before.process, self.wall - before.wall)

    def times(self, factor: float) -> Clock:
        return Clock(self.process * factor, self.wall * factor)

    def plus(self, other: Clock) -> Clock:
        return Clock(self.process + other.process, self.wall + other.wall)


NO_TIME = Clock(0.0, 0.0)


class PartLearner(Learner):
    """Trains the first `steps` batches of each epoch; predicts the first `rows` of a split.

    left_out: the time of the rest, as much a batch and a sample as what was done.
    """

    steps = FEWEST_STEPS
    rows = 0  # a batch, until it grows
    left_out = NO_TIME
    step_wall = row_wall = 0.0  # of the last epoch
    diverged: str | None = None  # what was not finite, the first time

    @property
    def batch(self) -> int:
        """The samples of a forward pass in prediction."""
        inputs = self.data.prepared.input_shape
        return batch_size(inputs, inputs.marked, inputs.words > 0)

    def now(self) -> Clock:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return Clock(time.process_time(), time.perf_counter())

    def _decided(self, order: Tensor, preparation: torch.Generator) -> Any:
        self._batches = max(1, math.ceil(len(order) / self.config.batch_size))
        return super()._decided(order[: self.steps * self.config.batch_size], preparation)

    @contextmanager
    def _training(self, steps: int) -> Iterator[None]:
        before = self.now()
        with super()._training(steps):
            yield
        self.step_wall = self._note(before, steps, self._batches)

    def _logits(self, split: DeviceSplit) -> Tensor:
        before = self.now()
        whole = len(split)
        labels = len(split.labels)
        rows = min(self.rows or self.batch, whole)
        if rows < whole:
            split = split.subset(torch.arange(rows), "none")
        logits = super()._logits(split)
        self.row_wall = self._note(before, rows, whole)
        return logits.repeat(math.ceil(labels / len(logits)), 1)[:labels]

    def _note(self, before: Clock, done: int, whole: int) -> float:
        """Add the time of what is left out; returns the wall-clock seconds of one that was done."""
        taken = self.now().since(before)
        self.left_out = self.left_out.plus(taken.times(whole / done - 1))
        return taken.wall / done

    def timed_epoch(self, epoch: int) -> Clock:
        """The time of the whole epoch, trained in part. A loss that diverged is noted."""
        self.epoch = epoch
        self.left_out = NO_TIME
        before = self.now()
        try:
            self.advance()
            self.catch_up()
        except Diverged as error:
            self.diverged = self.diverged or str(error)
        return self.now().since(before).plus(self.left_out)

    def grow(self) -> None:
        """Train from now on as much of an epoch as fits in EPOCH_SECONDS, by the last one."""
        self.steps = max(FEWEST_STEPS, int(EPOCH_SECONDS / self.step_wall))
        batches = int(EPOCH_SECONDS / (self.row_wall * self.batch))
        self.rows = self.batch * max(1, batches)


def probe_trial(
    config: dict[str, Plain],
    digest: str,
    resources: dict[str, float],
    also: Collection[str],
    folder: str,
    process_start: float = 0.0,
) -> Cost:
    """Train a part of the trial `config` (plain values) twice, the second time all warm.

    digest: of its data. resources: cpu, gpu. also: the objectives. folder: for its files, which are
    removed. process_start: of this process, if known.
    """
    device = prepared_device(resources)
    trial = TrialConfig.from_mapping(config)
    assignment = Assignment("probe", folder, 1, config, digest, 0.0, resources, tuple(also))
    written = assignment.attempt_directory
    written.mkdir(parents=True)
    if trial.model.frozen:  # its features are computed once per node, not by each trial
        prepared_for(trial, device, digest)
    _forget_peak(device)

    def build() -> tuple[PartLearner, Clock]:
        began = Clock(time.process_time(), time.perf_counter())
        learner = PartLearner(trial, trial_data(trial, device, digest), device)
        return learner, learner.now().since(began)

    undefined: list[str] = []

    def end(learner: PartLearner) -> Clock:
        before = learner.now()
        learner.left_out = NO_TIME
        outcome = Attempt(assignment).finish(learner)  # one attempt writes its model once
        undefined.extend(_not_finite(outcome, also))
        return learner.now().since(before).plus(learner.left_out)

    cold, cold_build = build()
    cold_first = cold.timed_epoch(0)
    warm_epoch = cold.timed_epoch(min(1, trial.epochs - 1))
    cold.grow()
    cold_end = end(cold)
    cold.leave()
    learner, built = build()
    learner.steps = cold.steps
    learner.rows = cold.rows
    first = learner.timed_epoch(0)
    most = TRIAL_SECONDS / max(1e-6, min(first.wall, 2 * EPOCH_SECONDS))
    spent = [learner.timed_epoch(epoch) for epoch in _spread(trial.epochs, most)]
    mean = sum((each.process for each in spent), 0.0) / len(spent)
    ended = end(learner)
    surplus = cold_build.process - built.process + cold_first.process - warm_epoch.process
    files = [file.stat().st_size for file in written.iterdir() if file.name != "history.json"]
    before = learner.now()
    checkpoint.save(learner, written / "last.pt")
    saved = learner.now().since(before)
    row = learner.history[-1] if learner.history else {}
    logged = (f"{name}={value:.6g} " for name, value in row.items())
    cost = Cost(
        process_start=process_start,
        first=max(0.0, surplus + cold_end.process - ended.process),
        build=built.process + max(0.0, first.process - mean),
        epoch=mean,
        epoch_wall=sum(each.wall for each in spent) / len(spent),
        result=ended.process,
        checkpoint=saved.process,
        files=sum(files),
        rows=float(len(json.dumps(row)) + len("".join(logged))),
        checkpoint_size=(written / "last.pt").stat().st_size,
        memory=_peak(),
        device_memory=_device_peak(device),
        epochs=len(spent) + 3,
        diverged=learner.diverged,
        undefined=undefined[0] if undefined else None,
    )
    learner.leave()
    shutil.rmtree(written)
    return cost


def _not_finite(outcome: Outcome, objectives: Collection[str]) -> Iterator[str]:
    """The objectives that have no value, or an infinite one: a trial fails then."""
    for name in objectives:
        value = (outcome.metrics or {}).get(name, math.nan)
        if not math.isfinite(value):
            yield f"objective {name} is {value}"


def _spread(epochs: int, most: float) -> list[int]:
    """Some of the epochs, evenly over the training, whose epochs may differ."""
    count = min(epochs, max(FEWEST_EPOCHS, int(most)))
    return [int((place + 0.5) * epochs / count) for place in range(count)]


def _forget_peak(device: torch.device) -> None:
    with suppress(OSError):  # Linux: the peak counts from here on
        Path("/proc/self/clear_refs").write_text("5")
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def _device_peak(device: torch.device) -> int | None:
    """Bytes that the process had of a GPU at most; None of a CPU."""
    if device.type != "cuda":
        return None
    return torch.cuda.max_memory_reserved(device) + CONTEXT


def _peak() -> int:
    """Bytes that the process had in memory at most; 0 if the system does not tell."""
    with suppress(OSError, StopIteration):
        lines = Path("/proc/self/status").read_text().splitlines()
        return 1024 * int(next(line for line in lines if line.startswith("VmHWM:")).split()[1])
    return 0
