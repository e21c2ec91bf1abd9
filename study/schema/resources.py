"""The resources Ray reserves for a trial, how many trials fit at once, and a study's budget."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from trainables.fields import Settings, number
from trainables.problems import FieldError

# What Ray's quantities are rounded to (src/ray/common/scheduling/fixed_point.h).
RAY_UNIT = 1e-4


@dataclass(frozen=True)
class Resources(Settings):
    """The resources Ray reserves for a trial."""

    cpu: float = number(1.0, low=0, doc="CPU cores per trial")
    gpu: float = number(
        0.0,
        low=0,
        high=1,
        doc="GPU of a trial: 0, 1, or the fraction of one GPU and of its memory",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, need in (("cpu", self.cpu), ("gpu", self.gpu)):
            if 0 < need < RAY_UNIT:
                raise FieldError(name, f"must be 0 or at least {RAY_UNIT:g}, got {need:g}")
        if self.cpu == self.gpu == 0:
            raise FieldError(
                "cpu",
                "must be > 0 if gpu is 0: otherwise nothing limits how many trials run at once",
            )

    def on_a_whole_gpu(self) -> Resources:
        """The resources for a trial that ran out of a fraction of a GPU's memory."""
        return Resources(cpu=self.cpu, gpu=1.0)

    @property
    def device(self) -> str:
        """The unit of its hours: GPU if it has one."""
        return "GPU" if self.gpu else "CPU"

    def hours(self, seconds: float) -> float:
        """CPU-hours or GPU-hours (`device`) that are reserved for as long."""
        return seconds / 3600 * (self.gpu or self.cpu)

    def to_ray(self) -> dict[str, float]:
        """The resources above 0, in Ray's names."""
        return {kind: need for kind, need in (("CPU", self.cpu), ("GPU", self.gpu)) if need > 0}

    def together(self, count: int) -> dict[str, float]:
        """What Ray reserves for as many trials in one place, in its names."""
        return {kind: count * _units(need) * RAY_UNIT for kind, need in self.to_ray().items()}


@dataclass(frozen=True)
class Budget(Settings):
    """The hours of CPUs, or of GPUs, that the trials of a study may take."""

    cpu_hours: float | None = number(
        None, above=0, doc="training hours x resources.cpu, of all trials"
    )
    gpu_hours: float | None = number(
        None, above=0, doc="training hours x resources.gpu, of all trials"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.cpu_hours is None) == (self.gpu_hours is None):
            raise FieldError(
                "", "must have exactly one of cpu_hours and gpu_hours, such as {cpu_hours: 5}"
            )

    @property
    def kind(self) -> str:
        """cpu or gpu."""
        return "cpu" if self.gpu_hours is None else "gpu"

    @property
    def unit(self) -> str:
        """cpu_hours or gpu_hours."""
        return f"{self.kind}_hours"

    @property
    def hours(self) -> float:
        return float(getattr(self, self.unit))


def check_budget(budget: Budget | None, needs: Mapping[str, Resources]) -> None:
    """Raise FieldError if trials of a label would cost nothing. needs: by label."""
    if budget is None:
        return
    kind = budget.kind
    other = "gpu_hours" if kind == "cpu" else "cpu_hours"
    for label, resources in needs.items():
        if getattr(resources, kind) == 0:
            found = f"trials of {label} have resources.{kind}: 0"
            mend = f"Write {other}, or give them a {kind.upper()}."
            raise FieldError(f"budget.{budget.unit}", found, mend)


def slots(nodes: Iterable[Any], resources: Resources) -> int:
    """How many trials fit on Ray's nodes (`ray.nodes()`) at once; each must fit on one node."""
    return sum(fitting(node["Resources"], resources) for node in nodes if node["Alive"])


def most_slots(nodes: Collection[Any], needs: Iterable[Resources]) -> int:
    """How many trials fit at once, of those that need least."""
    return max(slots(nodes, each) for each in needs)


def fitting(offered: Mapping[str, float], resources: Resources) -> int:
    """How many trials fit on what one node offers, in Ray's names. A trial's part of a GPU lies on
    one GPU."""
    counts = []
    for kind, need in resources.to_ray().items():
        there = offered.get(kind, 0.0)
        if kind == "GPU":
            counts.append(int(there) * _times(1.0, need))
        else:
            counts.append(_times(there, need))
    return min(counts)


def sharing(offered: Mapping[str, float], resources: Resources) -> int:
    """How many trials share one GPU of a node that offers so much; 1 if they need none."""
    if resources.gpu == 0:
        return 1
    return fitting({**offered, "GPU": min(1.0, offered.get("GPU", 0.0))}, resources)


def _times(offered: float, need: float) -> int:
    """How often a need is met by what is offered, both rounded to RAY_UNIT as Ray does."""
    return _units(offered) // _units(need)


def _units(quantity: float) -> int:
    return int(quantity / RAY_UNIT + 0.5)
