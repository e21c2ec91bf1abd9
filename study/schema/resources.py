"""Resources: what Ray sets aside for a trial, and how many trials that lets run at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from trainables.fields import FieldError, Settings, number


@dataclass(frozen=True)
class Resources(Settings):
    """What Ray sets aside for a trial."""

    cpu: float = number(1.0, low=0, doc="cores a trial takes")
    gpu: float = number(0.0, low=0, doc="GPUs a trial takes: whole ones, or a part of one and of its memory")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.gpu > 1 and not self.gpu.is_integer():
            raise FieldError("gpu", f"must be a whole number above 1, got {self.gpu:g}.")
        if self.cpu == self.gpu == 0:
            raise FieldError("cpu", "must be > 0 where gpu is 0: a trial that takes nothing has no limit.")

    def on_a_whole_gpu(self) -> Resources:
        """The same where a part of a GPU's memory has not been enough."""
        return Resources(cpu=self.cpu, gpu=max(1.0, self.gpu))

    def to_ray(self) -> dict[str, float]:
        """As Ray names them."""
        return {kind: need for kind, need in (("CPU", self.cpu), ("GPU", self.gpu)) if need > 0}


def slots(nodes: Iterable[Mapping[str, Any]], resources: Resources) -> int:
    """How many trials run at once on Ray's nodes (`ray.nodes()`): each needs one node that has it all."""
    return sum(
        min(int(node["Resources"].get(kind, 0.0) / need + 1e-9) for kind, need in resources.to_ray().items())
        for node in nodes
        if node["Alive"]
    )
