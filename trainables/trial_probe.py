"""A trial's cost, measured by training a part of it, in the process that trains trials: one of its
own here, or a Ray task on a node."""

from __future__ import annotations

import json
import math
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainables.config import TrialConfig
from trainables.loading.batches import DeviceSplit
from trainables.loading.trial_data import prepared_for, trial_data
from trainables.machine import free_memory
from trainables.outputs.classifier import batch_size
from trainables.outputs.outcome import Outcome
from trainables.plain import Plain
from trainables.plugins import in_a_line
from trainables.training import checkpoint
from trainables.training.attempt import Assignment, Attempt, with_place
from trainables.training.device import CONTEXT, prepared_device, ran_out_of_memory
from trainables.training.learner import Diverged, Learner

STARTED = time.process_time()  # imports included
# Wall-clock seconds trained at most, of an epoch and of a trial beside its first epoch.
EPOCH_SECONDS = 1.0
TRIAL_SECONDS = 2.0
FEWEST_EPOCHS = 3  # beside the first, which is start-up
FEWEST_STEPS = 8  # of an epoch: on a GPU the first are eager, and a capture follows

Seconds: TypeAlias = NDArray[np.float64]  # of the CPU by all threads, and of the clock on the wall


@dataclass(frozen=True)
class Job:
    """What is asked about a method. trials: the plain configs to probe, weighted."""

    trials: Sequence[tuple[float, dict[str, Plain]]]
    digest: str  # of their data
    resources: dict[str, float]  # of a trial: cpu, gpu
    objectives: Sequence[str]


@dataclass(frozen=True)
class Cost:
    """One trial's cost, alone on its device: process (CPU) seconds if not said otherwise, bytes."""

    process_start: float  # of a worker's process, with its imports
    first: float  # what the first trial of its kind in a process takes more
    build: float  # of the network, and of the first epoch what it takes more than the others
    epoch: float
    epoch_wall: float  # wall-clock seconds, as the trial's history has them
    result: float  # evaluation of the result, and its files
    checkpoint: float  # to write one
    files: int  # of the result
    rows: float  # of history and log, an epoch
    checkpoint_size: int
    memory: int  # of the process, at its peak
    device_memory: int | None  # of the GPU, at its peak; None on a CPU
    memory_free: int | None = None  # of the machine; None: unknown
    device_size: int | None = None
    diverged: str | None = None  # the loss, or the validation NLL, that was not finite, and where
    undefined: str | None = None  # the objective that was not finite


@dataclass(frozen=True)
class Answer:
    """The costs of a job's trials, with their weights; or the problem, in a line, and the path of
    the field that mends it, if that is not the method."""

    costs: Sequence[tuple[float, Cost]] = ()
    problem: str | None = None
    path: str | None = None


def answer(job: Job) -> Answer:
    """What the trials of a job cost here."""
    try:
        with tempfile.TemporaryDirectory(prefix="calstudy-probe-") as folder:
            return Answer([(part, probe_trial(config, job, folder)) for part, config in job.trials])
    except (Exception, SystemExit) as error:
        if ran_out_of_memory(error):
            found = f"runs out of memory with {job.resources['gpu']:g} GPU"
            return Answer(problem=f"{found}. Raise resources.gpu, or lower batch_size.")
        reason = f"{in_a_line(error)}."
        said = with_place(reason, error)
        return Answer(problem=said, path=None if said == reason else "extensions")


def main() -> None:
    """Answer the jobs that come through a pipe until that is closed. Argument: its descriptor."""
    pipe = Connection(int(sys.argv[1]))
    with suppress(EOFError, ConnectionError):
        while True:
            pipe.send(answer(pipe.recv()))


class PartLearner(Learner):
    """Trains the first `steps` batches of each epoch; predicts the first `rows` of a split.

    left_out: the time of the rest, as much a batch and a sample as what was done.
    """

    steps = FEWEST_STEPS
    rows = 0  # a batch, until it grows
    left_out: Seconds = np.zeros(2)
    step_wall = row_wall = 0.0  # of the last epoch
    diverged: str | None = None  # what was not finite, the first time

    @property
    def batch(self) -> int:
        """The samples of a forward pass in prediction."""
        inputs = self.data.prepared.input_shape
        return batch_size(inputs, inputs.marked, inputs.words > 0)

    def now(self) -> Seconds:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return _now()

    def timed(self, work: Callable[[], object]) -> Seconds:
        """The time of the whole work, done in part."""
        self.left_out = np.zeros(2)
        before = self.now()
        work()
        return self.now() - before + self.left_out

    def timed_epoch(self, epoch: int) -> Seconds:
        """The time of the whole epoch, trained in part. A loss that diverged is noted."""

        def train() -> None:
            try:
                self.train_epoch()
            except Diverged as error:
                self.diverged = self.diverged or str(error)

        self.epoch = epoch
        return self.timed(train)

    def grow(self) -> None:
        """Train from now on as much of an epoch as fits in EPOCH_SECONDS, by the last one."""
        self.steps = max(FEWEST_STEPS, int(EPOCH_SECONDS / self.step_wall))
        batches = int(EPOCH_SECONDS / (self.row_wall * self.batch))
        self.rows = self.batch * max(1, batches)

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

    def _note(self, before: Seconds, done: int, whole: int) -> float:
        """Add the time of what is left out; returns the wall-clock seconds of one that was done."""
        taken = self.now() - before
        self.left_out = self.left_out + taken * (whole / done - 1)
        return float(taken[1]) / done


def probe_trial(config: dict[str, Plain], job: Job, folder: str) -> Cost:
    """Train a part of a trial of the job twice, the second time all warm.

    config: its plain values. folder: for its files, which are removed.
    """
    device = prepared_device(job.resources)
    trial = TrialConfig.from_mapping(config)
    given = config, job.digest, 0.0, job.resources, tuple(job.objectives)
    assignment = Assignment("probe", folder, 1, *given)
    written = assignment.attempt_directory
    written.mkdir(parents=True)
    if trial.model.frozen:  # its features are computed once per node, not by each trial
        prepared_for(trial, device, job.digest)
    _forget_peak(device)
    outcomes: list[Outcome] = []

    def build() -> tuple[PartLearner, Seconds]:
        began = _now()
        learner = PartLearner(trial, trial_data(trial, device, job.digest), device)
        return learner, learner.now() - began

    def end(learner: PartLearner) -> Seconds:
        # One attempt writes its model once.
        return learner.timed(lambda: outcomes.append(Attempt(assignment).finish(learner)))

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
    most = TRIAL_SECONDS / max(1e-6, min(first[1], 2 * EPOCH_SECONDS))
    # Evenly over the training, whose epochs may differ.
    count = min(trial.epochs, max(FEWEST_EPOCHS, int(most)))
    epochs = [int((place + 0.5) * trial.epochs / count) for place in range(count)]
    mean = np.mean([learner.timed_epoch(epoch) for epoch in epochs], axis=0)
    ended = end(learner)
    surplus = cold_build - built + cold_first - warm_epoch + cold_end - ended
    files = [file.stat().st_size for file in written.iterdir() if file.name != "history.json"]
    saved = learner.timed(lambda: checkpoint.save(learner, written / "last.pt"))
    row = learner.history[-1] if learner.history else {}
    logged = (f"{name}={value:.6g} " for name, value in row.items())
    found = outcomes[-1].metrics or {}
    values = {name: found.get(name, math.nan) for name in job.objectives}
    undefined = (name for name, value in values.items() if not math.isfinite(value))
    device_memory = device_size = None
    if device.type == "cuda":
        device_memory = torch.cuda.max_memory_reserved(device) + CONTEXT
        device_size = torch.cuda.get_device_properties(device).total_memory
    cost = Cost(
        process_start=STARTED,
        first=max(0.0, float(surplus[0])),
        build=float(built[0] + max(0.0, first[0] - mean[0])),
        epoch=float(mean[0]),
        epoch_wall=float(mean[1]),
        result=float(ended[0]),
        checkpoint=float(saved[0]),
        files=sum(files),
        rows=float(len(json.dumps(row)) + len("".join(logged))),
        checkpoint_size=(written / "last.pt").stat().st_size,
        memory=_peak(),
        device_memory=device_memory,
        memory_free=free_memory(),
        device_size=device_size,
        diverged=learner.diverged,
        undefined=next((f"objective {name} is {values[name]}" for name in undefined), None),
    )
    learner.leave()
    shutil.rmtree(written)
    return cost


def _now() -> Seconds:
    return np.array([time.process_time(), time.perf_counter()])


def _forget_peak(device: torch.device) -> None:
    with suppress(OSError):  # Linux: the peak counts from here on
        Path("/proc/self/clear_refs").write_text("5")
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def _peak() -> int:
    """Bytes that the process had in memory at most; 0 if the system does not tell."""
    with suppress(OSError, StopIteration):
        lines = Path("/proc/self/status").read_text().splitlines()
        return 1024 * int(next(line for line in lines if line.startswith("VmHWM:")).split()[1])
    return 0
