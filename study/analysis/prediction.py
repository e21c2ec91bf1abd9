"""The cost of a study, from a probe of each method: arithmetic on measured numbers."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from study.analysis.rungs import FIRST, going_on, is_protected
from study.schema.spec import StudySpec
from trainables.training.probe_cost import Cost

# What the driver and Ray take, in units of what the process of a probe takes to start, which tells
# how fast a machine is. Fitted to four runs of study/specs/digits.yaml with 2 to 24 trials of 2 to
# 500 epochs (benchmarks/experiments/probe.py).
RUN = 4.9
RUN_TRIAL = 0.0175
RUN_EPOCH = 0.0003
WORKER = 1.45  # a worker, with its connection to Ray

Probes = Sequence[tuple[float, Cost]]  # of one method, weighted; the weights sum to 1


@dataclass(frozen=True)
class MethodPrediction:
    """All trials of a method. Times are process (CPU) seconds where not said otherwise.

    Sizes are bytes.
    """

    label: str
    trials: int
    epochs_share: float  # the share of the epochs that early stopping leaves
    epochs_between: tuple[float, float]  # the limits of that share
    # wall-clock, of training, as the ledger will have it; with no early stopping.
    trial_seconds: float
    trial_process_seconds: float  # with no early stopping
    process_seconds: float
    cpu_hours: float  # trial_seconds x resources.cpu
    gpu_hours: float
    disk: float
    checkpoint_size: int
    checkpoint_bandwidth: float  # bytes a second of one trial
    memory: int
    device_memory: int | None
    diverged: str | None = None  # what was not finite in a probed trial, and where
    undefined: str | None = None  # the objective that was not finite


@dataclass(frozen=True)
class Prediction:
    """All trials of a study.

    workers: the start of their processes. driver: the driver and Ray's own processes.
    """

    methods: tuple[MethodPrediction, ...]
    slots: int  # trials at once
    workers: float
    driver: float
    elapsed: tuple[float, float]  # wall-clock seconds

    def total(self, name: str) -> float:
        """The sum of a field over the methods."""
        return float(sum(getattr(method, name) for method in self.methods))

    @property
    def process_seconds(self) -> float:
        """The seconds of all processes of the run."""
        return self.total("process_seconds") + self.workers + self.driver

    @property
    def checkpoint_bandwidth(self) -> float:
        """Bytes a second, with all slots in use."""
        return self.slots * max(method.checkpoint_bandwidth for method in self.methods)


def epochs_between(spec: StudySpec, label: str) -> tuple[float, float]:
    """The share of a method's epochs that `early_stopping` leaves, from least to most.

    Expected: `kept_between`.
    """
    rule = spec.early_stopping
    if rule is None:
        return 1.0, 1.0
    spared = 1 - rule.epoch(spec.epochs) / spec.epochs
    variant = spec.variant(label)
    trials = spec.trials
    first = sum(is_protected(variant, number) for number in range(trials))
    least, most = kept_between(first, trials, rule.keep)
    return 1 - spared * (1 - least / trials), 1 - spared * (1 - most / trials)


def kept_between(first: int, trials: int, keep: float) -> tuple[float, float]:
    """How many trials are expected to go on, from least to most.

    If all `first` ones, which are never stopped, are better than each of the rest, and if all are
    alike. The rest are alike in both: any order of them is as likely as another.
    """
    least = most = 0.0
    for place in range(trials):
        if place < max(FIRST, first):
            least += 1
            most += 1
            continue
        count = place + 1
        among = going_on(count, keep)
        most += among / count
        least += max(0, among - first) / (count - first)
    return least, most


def predict(
    spec: StudySpec, probes: Mapping[str, Probes], slots: int, stopping: bool = False
) -> Prediction:
    """The cost of all trials of the study. probes: by label. stopping: with its early stopping."""
    methods = tuple(_of_method(spec, label, found, stopping) for label, found in probes.items())
    probed = list(itertools.chain(*probes.values()))
    start = statistics.fmean(cost.process_start for _, cost in probed)
    first = sum(weight * cost.first for weight, cost in probed)
    trials = sum(method.trials for method in methods)
    epochs = sum(method.trials * method.epochs_share * spec.epochs for method in methods)
    driver = start * (RUN + RUN_TRIAL * trials + RUN_EPOCH * epochs)
    workers = min(slots, trials) * (start * WORKER + first)
    elapsed = _elapsed(methods, probes, slots, start, driver)
    return Prediction(methods, slots, workers, driver, elapsed)


def _of_method(spec: StudySpec, label: str, probes: Probes, stopping: bool) -> MethodPrediction:
    def mean(name: str) -> float:
        return sum(weight * float(getattr(cost, name)) for weight, cost in probes)

    between = epochs_between(spec, label) if stopping else (1.0, 1.0)
    # Recorded trainings lie in the middle: benchmarks/RESULTS.md, "Epochs that early stopping
    # leaves".
    share = statistics.fmean(between)
    resources = spec.resources_of(label)
    seconds = spec.epochs * mean("epoch_wall")
    interval = max(spec.checkpoint_seconds, mean("epoch_wall"))
    checkpoints = int(share * seconds / interval)
    once = mean("build") + mean("result")
    epochs = spec.epochs * mean("epoch")
    size = max(cost.checkpoint_size for _, cost in probes)
    devices = [cost.device_memory for _, cost in probes if cost.device_memory is not None]
    return MethodPrediction(
        label,
        spec.trials,
        share,
        between,
        seconds,
        once + epochs + int(seconds / interval) * mean("checkpoint"),
        spec.trials * (once + share * epochs + checkpoints * mean("checkpoint")),
        spec.trials * share * seconds * resources.cpu / 3600,
        spec.trials * share * seconds * resources.gpu / 3600,
        spec.trials * (mean("files") + share * spec.epochs * mean("rows")),
        size,
        size / interval if seconds > interval else 0.0,
        max(cost.memory for _, cost in probes),
        max(devices, default=None),
        next((cost.diverged for _, cost in probes if cost.diverged), None),
        next((cost.undefined for _, cost in probes if cost.undefined), None),
    )


def _elapsed(
    methods: Sequence[MethodPrediction],
    probes: Mapping[str, Probes],
    slots: int,
    start: float,
    driver: float,
) -> tuple[float, float]:
    """The limits of the wall-clock seconds. At the upper end the driver shares the same cores.

    Graham 1966: what list scheduling takes lies between work / slots and that and the longest
    trial.
    """
    once = {
        label: sum(weight * (cost.build + cost.result) for weight, cost in found)
        for label, found in probes.items()
    }
    work = sum(of.trials * (of.epochs_share * of.trial_seconds + once[of.label]) for of in methods)
    longest = max(of.trial_seconds + once[of.label] for of in methods)
    begin = start * (RUN + WORKER)
    least = begin + max(work / slots, longest)
    most = begin + (work + driver - start * RUN) / slots + longest
    return least, most
