"""Focal loss with gamma falling in steps (FLSc). Mukhoti et al. 2020, Section 5 and Appendix."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from trainables.fields import choice, numbers
from trainables.method import Method, require_labels
from trainables.methods.focal import focal_loss
from trainables.problems import FieldError

# gamma before each of the steps, and after the last.
GAMMAS = {"flsc_531": (5.0, 3.0, 1.0), "flsc_532": (5.0, 3.0, 2.0)}
# The paper steps at epochs 100 and 250 of 350: as fractions of training, the same for shorter
# trials.
STEPS = (100 / 350, 250 / 350)


def scheduled_gamma(
    gammas: Sequence[float], progress: float | Tensor, steps: Sequence[float] = STEPS
) -> Tensor:
    """0-dimensional gamma at a progress in [0, 1); a step belongs to the later interval.

    gammas: one more than steps.
    """
    progress = torch.as_tensor(progress, dtype=torch.float64)
    changes = []
    for step, (before, after) in zip(steps, pairwise(gammas), strict=True):
        changes.append((progress >= step) * (after - before))
    return gammas[0] + torch.stack(changes).sum()


@dataclass(frozen=True)
class FocalScheduled(Method):
    """Training losses are not comparable across a step: never select an epoch by them."""

    schedule: str = choice(
        "flsc_531", "flsc_532", "custom", doc="gamma 5, then 3, then 1 or 2; custom: `gammas`"
    )
    gammas: tuple[float, ...] | None = numbers(
        None, low=0, doc="for custom: gamma before each step and after the last"
    )
    steps: tuple[float, ...] = numbers(
        STEPS, above=0, below=1, doc="fractions of training at which gamma changes"
    )
    elementwise = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.gammas is not None) != (self.schedule == "custom"):
            fix = "Set both, e.g. `gammas: [5, 3, 1]`, or neither."
            raise FieldError("gammas", "goes with `schedule: custom`", fix)
        if list(self.steps) != sorted(set(self.steps)):
            raise FieldError("steps", f"must increase, got {list(self.steps)}")
        if len(self._gammas) != len(self.steps) + 1:
            given = f"{len(self.steps)} for {len(self._gammas)} gammas"
            raise FieldError("steps", f"must be one fewer than the gammas, got {given}")

    @property
    def _gammas(self) -> Sequence[float]:
        return self.gammas or GAMMAS[self.schedule]

    def loss(self, logits: Tensor, targets: Tensor, progress: float | Tensor) -> Tensor:
        gamma = scheduled_gamma(self._gammas, progress, self.steps)
        return focal_loss(logits, require_labels(self, targets), gamma)
