"""The cost of a study, from a probe of each method: arithmetic on measured numbers."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from study.analysis.rungs import FIRST, going_on, is_protected
from study.schema.spec import StudySpec

if TYPE_CHECKING:
    from trainables.trial_probe import Cost

# What the driver and Ray take, in units of what the process of a probe takes to start, which tells
# how fast a machine is. Fitted to four runs of study/specs/digits.yaml with 2 to 24 trials of 2 to
# 500 epochs (benchmarks/experiments/probe.py).
RUN = 4.9
RUN_TRIAL = 0.0175
RUN_EPOCH = 0.0003
WORKER = 1.45  # a worker, with its connection to Ray

# By label, of one trial, weighted; the weights of a label sum to 1.
Costs: TypeAlias = Mapping[str, Sequence[tuple[float, "Cost"]]]


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
    once: float  # of them, beside its epochs
    process_seconds: float
    cpu_hours: float  # trial_seconds x resources.cpu
    gpu_hours: float
    disk: float
    checkpoint_size: int
    checkpoint_bandwidth: float  # bytes a second of one trial
    memory: int
    device_memory: int | None
    diverged: str | None  # what was not finite in a probed trial, and where
    undefined: str | None  # the objective that was not finite


@dataclass(frozen=True)
class Prediction:
    """All trials of a study, trained to their end but in `with_early_stopping`, if it has that.

    workers: the start of their processes. driver: the driver and Ray's own processes.
    """

    methods: tuple[MethodPrediction, ...]
    slots: int  # trials at once
    workers: float
    driver: float
    process_seconds: float  # of all processes of the run
    elapsed: tuple[float, float]  # wall-clock seconds
    memory_free: int | None  # bytes of the machine that has least, like `device_size`
    device_size: int | None
    with_early_stopping: Prediction | None

    def total(self, name: str) -> float:
        """The sum of a field over the methods."""
        return float(sum(getattr(method, name) for method in self.methods))

    @property
    def checkpoint_bandwidth(self) -> float:
        """Bytes a second, with all slots in use."""
        return self.slots * max(method.checkpoint_bandwidth for method in self.methods)


def predict(spec: StudySpec, costs: Costs, slots: int, stopping: bool = False) -> Prediction:
    """The cost of all trials of the methods that were probed, `slots` of them at once.

    stopping: with early stopping only. The elapsed time has limits, at the upper of which the
    driver shares the same cores. Graham 1966: what list scheduling takes lies between work / slots
    and that and the longest trial.
    """
    stopped = None
    if spec.early_stopping is not None and not stopping:
        stopped = predict(spec, costs, slots, stopping=True)
    methods = tuple(_of_method(spec, label, found, stopping) for label, found in costs.items())
    probed = [each for found in costs.values() for each in found]
    start = statistics.fmean(cost.process_start for _, cost in probed)
    first = sum(weight * cost.first for weight, cost in probed)
    trials = sum(one.trials for one in methods)
    epochs = sum(one.trials * one.epochs_share * spec.epochs for one in methods)
    driver = start * (RUN + RUN_TRIAL * trials + RUN_EPOCH * epochs)
    workers = min(slots, trials) * (start * WORKER + first)
    work = sum(one.trials * (one.epochs_share * one.trial_seconds + one.once) for one in methods)
    longest = max(one.trial_seconds + one.once for one in methods)
    begin = start * (RUN + WORKER)
    least = begin + max(work / slots, longest)
    most = begin + (work + driver - start * RUN) / slots + longest
    free = (cost.memory_free for _, cost in probed if cost.memory_free is not None)
    sizes = (cost.device_size for _, cost in probed if cost.device_size is not None)
    return Prediction(
        methods=methods,
        slots=slots,
        workers=workers,
        driver=driver,
        process_seconds=sum(one.process_seconds for one in methods) + workers + driver,
        elapsed=(least, most),
        memory_free=min(free, default=None),
        device_size=min(sizes, default=None),
        with_early_stopping=stopped,
    )


def _of_method(
    spec: StudySpec, label: str, found: Sequence[tuple[float, Cost]], stopping: bool
) -> MethodPrediction:
    def mean(name: str) -> float:
        return sum(weight * float(getattr(cost, name)) for weight, cost in found)

    def of_trial(share: float) -> float:
        checkpoints = int(share * seconds / interval)
        return once + share * spec.epochs * mean("epoch") + checkpoints * mean("checkpoint")

    between = epochs_between(spec, label) if stopping else (1.0, 1.0)
    # Recorded trainings lie in the middle: benchmarks/results/stopping.md.
    share = statistics.fmean(between)
    resources = spec.resources_of(label)
    seconds = spec.epochs * mean("epoch_wall")
    interval = max(spec.checkpoint_seconds, mean("epoch_wall"))
    once = mean("build") + mean("result")
    costs = [cost for _, cost in found]
    devices = [cost.device_memory for cost in costs if cost.device_memory is not None]
    hours = spec.trials * share * seconds / 3600
    size = max(cost.checkpoint_size for cost in costs)
    return MethodPrediction(
        label=label,
        trials=spec.trials,
        epochs_share=share,
        epochs_between=between,
        trial_seconds=seconds,
        trial_process_seconds=of_trial(1.0),
        once=once,
        process_seconds=spec.trials * of_trial(share),
        cpu_hours=hours * resources.cpu,
        gpu_hours=hours * resources.gpu,
        disk=spec.trials * (mean("files") + share * spec.epochs * mean("rows")),
        checkpoint_size=size,
        checkpoint_bandwidth=size / interval if seconds > interval else 0.0,
        memory=max(cost.memory for cost in costs),
        device_memory=max(devices, default=None),
        diverged=next((cost.diverged for cost in costs if cost.diverged), None),
        undefined=next((cost.undefined for cost in costs if cost.undefined), None),
    )


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
