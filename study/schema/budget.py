"""The budget of a study: hours of CPUs or of GPUs that its trials may take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from study.schema.resources import Resources
from trainables.fields import FieldError, Settings, number


@dataclass(frozen=True)
class Budget(Settings):
    """Exactly one of the two."""

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
                "", "must have exactly one of cpu_hours and gpu_hours, such as {cpu_hours: 5}."
            )

    @property
    def unit(self) -> str:
        """cpu_hours or gpu_hours."""
        return "cpu_hours" if self.gpu_hours is None else "gpu_hours"

    @property
    def hours(self) -> float:
        return float(getattr(self, self.unit))


def check_budget(budget: Budget | None, needs: Mapping[str, Resources]) -> None:
    """Raise FieldError if trials of a label would cost nothing. needs: by label."""
    if budget is None:
        return
    kind, other = ("cpu", "gpu_hours") if budget.gpu_hours is None else ("gpu", "cpu_hours")
    for label, resources in needs.items():
        if getattr(resources, kind) == 0:
            problem = f"trials of {label} have resources.{kind}: 0. Write {other}, or give them a {kind.upper()}."
            raise FieldError(f"budget.{budget.unit}", problem)
