"""Focal loss with gamma by the true class's probability (FLSD). Mukhoti et al. 2020."""

import functools
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from trainables.fields import choice, number
from trainables.method import Method, Task, require_labels
from trainables.methods.focal import focal_loss

# gamma below each bound of p_y, and from the last bound on; a bound belongs to the band above it.
BANDS = {"flsd_53": ((0.2,), (5.0, 3.0)), "flsd_532": ((0.2, 0.5), (5.0, 3.0, 2.0))}
# The table used for `lambert_w` in training, over p_y in [0, 1/2], at most HIGHEST: within 1e-6 up
# to gamma 20, 4e-5 to 100.
POINTS = 20_000
HIGHEST = 1000.0


def gamma_of_p0(p0: Tensor, highest: float) -> Tensor:
    """The gamma in (0, highest] where focal loss has cross-entropy's gradient at p_y = p0, float64.

    Below p0 focal loss then has a larger gradient than cross-entropy, above it a smaller one.
    Proposition 1 gives it by Lambert's W_-1; it is the positive root of (gamma - 1) log(1 - p0) +
    log(1 - p0 - gamma p0 log p0), which is concave in gamma: Newton's method converges from above.
    0 from p0 = 1/2 on, where no such root exists.
    """
    p0 = p0.double().clamp(min=torch.finfo(torch.float64).tiny, max=0.5)
    log_rest = torch.log1p(-p0)
    slope = -p0 * p0.log()

    def excess(gamma: Tensor) -> Tensor:
        return (gamma - 1) * log_rest + torch.log1p(gamma * slope - p0)

    gamma = torch.full_like(p0, highest)
    beyond = excess(gamma) >= 0  # the root is above `highest`
    # Six suffice except for p0 near 1/2, where the root approaches the one at 0.
    for _ in range(60):
        gamma = gamma - excess(gamma) / (log_rest + slope / (1 - p0 + gamma * slope))
    return torch.where(beyond, highest, torch.where(p0 < 0.5, gamma, 0.0).clamp(min=0.0))


@functools.lru_cache(maxsize=8)
def _table(device: torch.device) -> Tensor:
    p0 = torch.linspace(0.0, 0.5, POINTS + 1, dtype=torch.float64)
    return gamma_of_p0(p0, HIGHEST).to(device)


def sample_gamma(
    logits: Tensor, labels: Tensor, schedule: str, highest: float | Tensor = 5.0
) -> Tensor:
    """[N] gammas, constant in the gradient, of logits [N, K]. highest: only for `lambert_w`."""
    p_y = logits.detach().softmax(dim=-1).gather(-1, labels[..., None]).squeeze(-1)
    if schedule == "lambert_w":
        place = p_y.double().clamp(max=0.5) * (2 * POINTS)
        below = place.long().clamp(max=POINTS - 1)
        table = _table(logits.device)
        gamma = torch.lerp(table[below], table[below + 1], place - below).to(logits.dtype)
        return torch.minimum(gamma, torch.as_tensor(highest, dtype=gamma.dtype))
    bounds, gammas = BANDS[schedule]
    gamma = torch.full_like(p_y, gammas[0])
    for bound, (before, after) in zip(bounds, pairwise(gammas), strict=True):
        gamma = gamma + (p_y >= bound) * (after - before)
    return gamma


@dataclass(frozen=True)
class FocalSampleDependent(Method):
    """`flsd_53`: 5 if p_y < 0.2, else 3; `flsd_532`: 2 from 0.5; both approximate `lambert_w`."""

    schedule: str = choice(
        "flsd_53", "flsd_532", "lambert_w", doc="gamma by the probability of the true class"
    )
    gamma_max: float = number(
        5.0, above=0, doc="cap on lambert_w's gamma, which grows without bound as p_y falls"
    )
    elementwise = True

    @property
    def inert(self) -> dict[str, str]:
        if self.schedule == "lambert_w":
            return {}
        return {"gamma_max": f"schedule: {self.schedule}"}

    def start(self, task: Task) -> None:
        if self.schedule == "lambert_w":
            _table(task.device)

    def loss(self, logits: Tensor, targets: Tensor, progress: float | Tensor) -> Tensor:
        labels = require_labels(self, targets)
        gamma = sample_gamma(logits, labels, self.schedule, self.gamma_max)
        return focal_loss(logits, labels, gamma)
