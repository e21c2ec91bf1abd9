"""What a study will cost, from a probe of each method: arithmetic on measured numbers."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from study.analysis.rungs import FIRST, is_protected
from study.schema.spec import StudySpec
from trainables.probe_cost import Cost

# What the driver and Ray take, in units of what the process of a probe takes to start, which tells how fast a machine
# is. Fitted to four runs of study/specs/digits.yaml with 2 to 24 trials of 2 to 500 epochs (benchmarks/probe.py).
RUN, RUN_TRIAL, RUN_EPOCH = 4.9, 0.0175, 0.0003
WORKER = 1.45  # of a worker, with its connection to Ray

Probes = Sequence[tuple[float, Cost]]  # of one method, weighted; the weights sum to 1


@dataclass(frozen=True)
class MethodPrediction:
    """Of all trials of a method. Times are process (CPU) seconds where not said otherwise; sizes are bytes."""

    label: str
    trials: int
    epochs_share: float  # of the epochs, with early stopping
    trial_seconds: (
        float  # wall-clock, of training, as the ledger will have it; with no early stopping
    )
    trial_process_seconds: float  # with no early stopping
    process_seconds: float
    cpu_hours: float  # trial_seconds x resources.cpu
    gpu_hours: float
    disk: float
    checkpoint_size: int
    checkpoint_bandwidth: float  # bytes a second of one trial
    memory: int
    device_memory: int | None


@dataclass(frozen=True)
class Prediction:
    """Of a study. workers: the start of their processes. driver: the driver and Ray's own processes."""

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
        """Of all processes of the run."""
        return self.total("process_seconds") + self.workers + self.driver

    @property
    def checkpoint_bandwidth(self) -> float:
        """Bytes a second, with all slots in use."""
        return self.slots * max(method.checkpoint_bandwidth for method in self.methods)


def epochs_share(spec: StudySpec, label: str) -> float:
    """The expected share of a method's epochs that `early_stopping` leaves."""
    rule, variant, trials = spec.early_stopping, spec.variant(label), spec.trials
    if rule is None:
        return 1.0
    protected = min(
        trials, max(FIRST, sum(is_protected(variant, number) for number in range(trials)))
    )
    spared = (1 - rule.epoch(spec.epochs) / spec.epochs) * (1 - rule.keep)
    return 1 - spared * (trials - protected) / trials


def predict(
    spec: StudySpec, probes: Mapping[str, Probes], slots: int, stopping: bool = False
) -> Prediction:
    """The cost of all trials of the study. probes: by label. stopping: with its early stopping."""
    methods = tuple(_of_method(spec, label, found, stopping) for label, found in probes.items())
    start = statistics.fmean(cost.process_start for found in probes.values() for _, cost in found)
    first = sum(weight * cost.first for found in probes.values() for weight, cost in found)
    trials = sum(method.trials for method in methods)
    epochs = sum(method.trials * method.epochs_share * spec.epochs for method in methods)
    driver = start * (RUN + RUN_TRIAL * trials + RUN_EPOCH * epochs)
    workers = min(slots, trials) * (start * WORKER + first)
    return Prediction(
        methods, slots, workers, driver, _elapsed(spec, methods, probes, slots, start, driver)
    )


def _of_method(spec: StudySpec, label: str, probes: Probes, stopping: bool) -> MethodPrediction:
    def mean(name: str) -> float:
        return sum(weight * float(getattr(cost, name)) for weight, cost in probes)

    share, resources = epochs_share(spec, label) if stopping else 1.0, spec.resources_of(label)
    seconds, interval = (
        spec.epochs * mean("epoch_wall"),
        max(spec.checkpoint_seconds, mean("epoch_wall")),
    )
    checkpoints = int(share * seconds / interval)
    once, epochs = mean("build") + mean("result"), spec.epochs * mean("epoch")
    size = max(cost.checkpoint_size for _, cost in probes)
    devices = [cost.device_memory for _, cost in probes if cost.device_memory is not None]
    return MethodPrediction(
        label,
        spec.trials,
        share,
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
    )


def _elapsed(
    spec: StudySpec,
    methods: Sequence[MethodPrediction],
    probes: Mapping[str, Probes],
    slots: int,
    start: float,
    driver: float,
) -> tuple[float, float]:
    """Graham 1966: what list scheduling takes lies between work / slots and that and the longest trial.

    At the upper end the driver takes its share of the same cores.
    """
    once = {
        label: sum(weight * (cost.build + cost.result) for weight, cost in probes[label])
        for label in probes
    }
    work = sum(of.trials * (of.epochs_share * of.trial_seconds + once[of.label]) for of in methods)
    longest = max(of.trial_seconds + once[of.label] for of in methods)
    begin = start * (RUN + WORKER)
    return begin + max(work / slots, longest), begin + (
        work + driver - start * RUN
    ) / slots + longest
