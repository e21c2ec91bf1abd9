"""Training each epoch on the samples the model is least sure of. Tata et al. 2022, Section 3."""

from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from trainables.fields import FieldError, choice, number, text
from trainables.method import Batch, Method, State, Step, Task, Trainer, Wrapper
from trainables.methods.cross_entropy import CrossEntropy
from trainables.methods.shared.entropy import entropy
from trainables.outputs.train_entropy import TrainEntropy


def priorities(logits: Tensor, criterion: str) -> Tensor:
    """[N] scores of logits [N, K], the higher the sooner: `entropy` in nats; `least_confidence`, 1 - the largest
    probability; `margin`, the second largest less the largest."""
    if criterion == "entropy":
        return entropy(logits)
    top = logits.softmax(dim=-1).topk(2, dim=-1).values
    return 1 - top[:, 0] if criterion == "least_confidence" else top[:, 1] - top[:, 0]


def highest(scores: Tensor, count: int) -> Tensor:
    """Indices [count] of the highest scores [N]; of equals the lower index comes first."""
    return scores.argsort(descending=True, stable=True)[:count]


@dataclass(frozen=True)
class SamplePrioritization(Wrapper):
    """After the warm-up an epoch takes `fraction` of the train samples, and so many fewer updates.

    `scores: train_passes` is the released code's: a sample's score is that of the last time it was trained on
    (augmented, mid-epoch, and by mixup mixed with another), stale for as long as it is not chosen; one never trained on
    comes first. `fresh_pass` scores all of train before each epoch. `target` takes the scores that another trial's
    training recorded, at the same share of training; `random` asks for none.
    """

    fraction: float = number(0.3, above=0, high=1, doc="of the train samples, each epoch after the warm-up")
    warmup: float = number(0.05, low=0, high=1, doc="share of training in which all samples are taken")
    criterion: str = choice("entropy", "least_confidence", "margin", "random", doc="what makes a sample come first")
    scores: str = choice("train_passes", "fresh_pass", doc="where the model's scores come from")
    target: str | None = text(None, doc="a trial with `record: train_entropy`: STUDY/LABEL/NUMBER, or its file")
    base: Method = field(default_factory=CrossEntropy, metadata={"doc": "the method that trains on them"})

    def __post_init__(self) -> None:
        super().__post_init__()
        self._refuse_base("order", "chooses its samples itself")
        if self.target is not None and self.criterion != "entropy":
            raise FieldError("target", f"recorded entropies are no '{self.criterion}'; remove one of the two.")

    def start(self, task: Task) -> State:
        state = {"base": self.base.start(task)}
        if self.target is not None:
            recorded = TrainEntropy.load(Path(self.target)).of(task.data_digest, task.rows.cpu())
            return {**state, "target": recorded.to(task.device)}
        return {**state, "scores": torch.full((task.num_samples,), torch.inf, device=task.device)}

    def order(self, learner: Trainer, state: State, generator: torch.Generator) -> Tensor:
        whole = self.base.order(learner, state["base"], generator)
        if learner.progress < self.warmup:
            return whole
        count = max(1, round(self.fraction * learner.num_samples))
        if self.criterion == "random":
            return whole[:count]
        chosen = highest(self._current_scores(learner, state), count).cpu()
        return chosen[torch.randperm(count, generator=generator)]

    def _current_scores(self, learner: Trainer, state: State) -> Tensor:
        if self.target is not None:
            recorded: Tensor = state["target"]  # [epochs of the target, num_samples]
            return recorded[int(learner.progress * len(recorded))]
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
            scores = state["scores"].index_copy(0, batch.indices, priorities(logits, self.criterion).float())
            state["scores"] = scores
        return state

    def measured(self, state: State) -> dict[str, float]:
        return self.base.measured(state["base"])
