"""Train each epoch on the samples of most uncertain predictions. Tata et al. 2022, Section 3."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from trainables.fields import choice, number, setting
from trainables.method import Batch, Method, State, Step, Task, Trainer, Wrapper
from trainables.methods.cross_entropy import CrossEntropy
from trainables.methods.shared.entropy import entropy
from trainables.outputs.train_entropy import TrainEntropy
from trainables.problems import FieldError


def priorities(logits: Tensor, criterion: str) -> Tensor:
    """[N] scores of logits [N, K], highest first.

    `entropy` in nats; `least_confidence`, 1 - the largest probability; `margin`, the second largest
    probability minus the largest.
    """
    if criterion == "entropy":
        return entropy(logits)
    top = logits.softmax(dim=-1).topk(2, dim=-1).values
    if criterion == "least_confidence":
        return 1 - top[:, 0]
    return top[:, 1] - top[:, 0]


def highest(scores: Tensor, count: int) -> Tensor:
    """Indices [count] of the highest scores [N]; among ties the lower index comes first."""
    return scores.argsort(descending=True, stable=True)[:count]


@dataclass(frozen=True)
class SamplePrioritization(Wrapper):
    """After the warm-up, an epoch uses only `fraction` of the train samples, in fewer updates.

    `scores: train_passes`, as in the released code: a sample's score is from the last time it was
    trained on (augmented, mid-epoch, possibly mixed by mixup), stale until selected again; samples
    never trained on come first. `fresh_pass` scores all of train before each epoch. `target` uses
    the scores recorded by another trial at the same fraction of training; `random` needs none.
    """

    fraction: float = number(
        0.3, above=0, high=1, doc="fraction of the training samples per epoch after the warm-up"
    )
    warmup: float = number(0.05, low=0, high=1, doc="fraction of training with all samples")
    criterion: str = choice(
        "entropy", "least_confidence", "margin", "random", doc="score by which samples are selected"
    )
    scores: str = choice("train_passes", "fresh_pass", doc="when scores are computed")
    target: str | None = setting(
        None, doc="a trial with `record: train_entropy`: STUDY/LABEL/NUMBER, or its file"
    )
    base: Method = field(
        default_factory=CrossEntropy,
        metadata={"doc": "the method that trains on the selected samples"},
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self._refuse_base("order", "selects its own samples")
        if self.target is not None and self.criterion != "entropy":
            raise FieldError(
                "target", f"records entropies, not '{self.criterion}'", "Remove one of the two."
            )

    def start(self, task: Task) -> State:
        state = {"base": self.base.start(task)}
        if self.target is not None:
            recorded = TrainEntropy.load(Path(self.target)).of(task.data_digest, task.rows.cpu())
            return {**state, "target": recorded.to(task.device)}
        return {**state, "scores": torch.full((task.num_samples,), torch.inf, device=task.device)}

    def order(self, learner: Trainer, state: State, generator: torch.Generator) -> Tensor:
        whole = self.base.order(learner, state["base"], generator)
        if learner.epoch / learner.epochs < self.warmup:
            return whole
        count = max(1, round(self.fraction * learner.num_samples))
        if self.criterion == "random":
            return whole[:count]
        chosen = highest(self._current_scores(learner, state), count).cpu()
        return chosen[torch.randperm(count, generator=generator)]

    def _current_scores(self, learner: Trainer, state: State) -> Tensor:
        if self.target is not None:
            recorded: Tensor = state["target"]  # [epochs of the target, num_samples]
            return recorded[learner.epoch * len(recorded) // learner.epochs]
        if self.scores == "fresh_pass":
            return priorities(learner.train_logits(), self.criterion)
        kept: Tensor = state["scores"]
        return kept

    def step(self, learner: Trainer, state: State, batch: Batch) -> Step:
        done = self.base.step(learner, state["base"], batch)
        return done._replace(state={**state, "base": done.state})

    def observe(self, state: State, batch: Batch, logits: Tensor) -> State:
        state = {**state, "base": self.base.observe(state["base"], batch, logits)}
        if self.target is None and self.criterion != "random":
            scores = priorities(logits, self.criterion).float()
            state["scores"] = state["scores"].index_copy(0, batch.indices, scores)
        return state

    def measured(self, state: State) -> Mapping[str, float | Tensor]:
        return self.base.measured(state["base"])
