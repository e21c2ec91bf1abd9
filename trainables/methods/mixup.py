"""Mixup: mixtures of two samples. Zhang et al. 2018; Thulasidasan et al. 2019 (calibration)."""

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from trainables.fields import number
from trainables.method import Batch, Method, Mixed, Wrapper
from trainables.methods.cross_entropy import CrossEntropy
from trainables.problems import FieldError


def mixed_batch(batch: Batch, share: float | Tensor, partner: Tensor) -> Batch:
    """Each image times `share` plus its partner's times 1 - share. partner: [N] batch indices."""
    assert isinstance(batch.targets, Tensor)
    images = torch.lerp(batch.images[partner], batch.images, share)
    targets = Mixed(batch.targets, batch.targets[partner], share)
    return batch._replace(images=images, targets=targets)


def draw_mixing(
    alpha: float, steps: int, size: int, generator: torch.Generator
) -> dict[str, Tensor]:
    """Of each step a share, Beta(alpha, alpha), and the partners [steps, size]."""
    # torch draws Beta only from its global generator.
    seed = int(torch.randint(2**62, (), generator=generator))
    share = np.random.default_rng(seed).beta(alpha, alpha, steps)
    partner = torch.rand(steps, size, generator=generator, dtype=torch.float64).argsort(dim=-1)
    return {"partner": partner, "share": torch.from_numpy(share).float()}


@dataclass(frozen=True)
class Mixup(Wrapper):
    """share * L(z, y) + (1 - share) * L(z, y of the partner), L of `base`, one share per batch.

    For cross-entropy this equals the loss of the mixed label, for focal loss it does not: like the
    paper's code, we add two losses. The usual failure is under-confidence: temperatures below 1.
    """

    alpha: float = number(
        0.2, low=0, doc="parameter of the Beta distribution of mixing weights; 0: no mixing"
    )
    base: Method = field(
        default_factory=CrossEntropy, metadata={"doc": "the loss of the mixed samples"}
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self._refuse_base("step", "overrides the training step; its batches cannot be mixed")
        if any(isinstance(inner, Mixup) for inner in self._bases()):
            raise FieldError("base", "already contains a Mixup", "Remove one.")

    @property
    def mixes(self) -> bool:
        return True

    @property
    def elementwise(self) -> bool:
        return self.base.elementwise

    def draw(self, steps: int, size: int, generator: torch.Generator) -> dict[str, Tensor]:
        drawn = super().draw(steps, size, generator)
        if self.alpha == 0:
            return drawn
        return {**drawn, **draw_mixing(self.alpha, steps, size, generator)}

    def prepare(self, batch: Batch, generator: torch.Generator) -> Batch:
        drawn = batch.drawn
        batch = self.base.prepare(batch, generator)
        if "share" not in drawn:
            return batch
        return mixed_batch(batch, drawn["share"], drawn["partner"])
