"""Focal loss with gamma decreasing in steps over training (FLSc). Mukhoti et al. 2020, Section 5 and Appendix."""

from dataclasses import dataclass

from torch import Tensor

from trainables.fields import choice
from trainables.method import Method, require_labels
from trainables.methods.focal import focal_loss

# gamma before each of the steps, and after the last.
GAMMAS = {"flsc_531": (5.0, 3.0, 1.0), "flsc_532": (5.0, 3.0, 2.0)}
# The paper steps at epochs 100 and 250 of 350: as fractions of training, the same for shorter trials.
STEPS = (100 / 350, 250 / 350)


def scheduled_gamma(schedule: str, progress: float) -> float:
    """gamma at a fraction of training done, in [0, 1); a step belongs to the later interval."""
    return GAMMAS[schedule][sum(progress >= step for step in STEPS)]


@dataclass(frozen=True)
class FocalScheduled(Method):
    """Training losses are not comparable across a step: never select an epoch by them."""

    schedule: str = choice("flsc_531", "flsc_532", doc="gamma 5, then 3, then 1 or 2")

    def loss(self, logits: Tensor, targets: Tensor, progress: float) -> Tensor:
        return focal_loss(logits, require_labels(self, targets), scheduled_gamma(self.schedule, progress))
