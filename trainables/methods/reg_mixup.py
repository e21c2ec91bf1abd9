"""RegMixup: mixtures of two samples beside the samples. Pinto et al. 2022."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from trainables.fields import choice, number
from trainables.method import Batch, Method, State, Step, Trainer, Wrapper
from trainables.methods.cross_entropy import CrossEntropy
from trainables.methods.mixup import draw_mixing, mixed_batch
from trainables.problems import FieldError


@dataclass(frozen=True)
class RegMixup(Wrapper):
    """(L(z, y) + share * L(z', y) + (1 - share) * L(z', y of the partner)) / 2, L of `base`.

    z are logits of the batch, z' of its mixed copy, both of one forward pass: batch norm takes its
    statistics of both. Half, as the released code's mean over both parts has it; the paper, as we
    know it, writes their sum, `parts: sum`, whose gradient is twice as long. What follows a step,
    as the train loss's accuracy or scores of samples, sees z alone.
    """

    alpha: float = number(10.0, above=0, doc="parameter of the Beta distribution of mixing weights")
    parts: str = choice("mean", "sum", doc="of the losses of the batch and of its mixed copy")
    base: Method = field(
        default_factory=CrossEntropy, metadata={"doc": "the loss of both kinds of samples"}
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self._refuse_base("step", "overrides the training step; its batches cannot be mixed")
        if self.base.mixes:
            raise FieldError("base", f"{type(self.base).__name__} mixes samples already")

    @property
    def mixes(self) -> bool:
        return True

    def draw(self, steps: int, size: int, generator: torch.Generator) -> dict[str, Tensor]:
        drawn = super().draw(steps, size, generator)
        return {**drawn, **draw_mixing(self.alpha, steps, size, generator)}

    def step(self, learner: Trainer, state: State, batch: Batch) -> Step:
        mixed = mixed_batch(batch, batch.drawn["share"], batch.drawn["partner"])
        both = torch.cat([batch.images, mixed.images])
        logits, of_mixed = learner.apply(learner.network, both).chunk(2)
        loss = self.loss_of(logits, batch.targets, learner.progress)
        loss = loss + self.loss_of(of_mixed, mixed.targets, learner.progress)
        if self.parts == "mean":
            loss = loss / 2
        learner.update(loss)
        return Step(loss.detach(), logits.detach(), state)
