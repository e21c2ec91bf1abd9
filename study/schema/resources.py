"""The resources Ray reserves for a trial, and how many trials fit at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from trainables.fields import FieldError, Settings, number


@dataclass(frozen=True)
class Resources(Settings):
    """The resources Ray reserves for a trial."""

    cpu: float = number(1.0, low=0, doc="CPU cores per trial")
    gpu: float = number(
        0.0, low=0, doc="GPUs per trial: a whole number, or a fraction of one GPU and its memory"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.gpu > 1 and not self.gpu.is_integer():
            raise FieldError("gpu", f"must be a whole number if above 1, got {self.gpu:g}.")
        if self.cpu == self.gpu == 0:
            raise FieldError(
                "cpu",
                "must be > 0 if gpu is 0: otherwise nothing limits how many trials run at once.",
            )

    def on_a_whole_gpu(self) -> Resources:
        """The same, for a trial that ran out of a fraction of a GPU's memory."""
        return Resources(cpu=self.cpu, gpu=max(1.0, self.gpu))

    @property
    def device(self) -> str:
        """What its hours are counted in: those of the GPU, if it has one."""
        return "GPU" if self.gpu else "CPU"

    def hours(self, seconds: float) -> float:
        """CPU-hours or GPU-hours (`device`) that are reserved for as long."""
        return seconds / 3600 * (self.gpu or self.cpu)

    def to_ray(self) -> dict[str, float]:
        """In Ray's names."""
        return {kind: need for kind, need in (("CPU", self.cpu), ("GPU", self.gpu)) if need > 0}


def slots(nodes: Iterable[Mapping[str, Any]], resources: Resources) -> int:
    """How many trials fit on Ray's nodes (`ray.nodes()`) at once; each must fit on one node."""
    return sum(
        min(
            int(node["Resources"].get(kind, 0.0) / need + 1e-9)
            for kind, need in resources.to_ray().items()
        )
        for node in nodes
        if node["Alive"]
    )
