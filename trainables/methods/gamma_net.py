"""gamma-net: focal loss's gamma per sample, learned by meta-gradients. Wang & Golebiowski 2024."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from trainables.fields import choice, number, setting, words_or_number
from trainables.method import Batch, State, Task
from trainables.methods.focal import focal_loss
from trainables.methods.shared.lookahead import (
    META_BATCH_DOC,
    Forward,
    LookaheadMethod,
    Parameters,
)
from trainables.problems import FieldError

HIGH = 8.0  # a median of gammas that no training comes back from
QUANTILES = {"gamma_q05": 0.05, "gamma_q50": 0.5, "gamma_q95": 0.95}


def learned_gamma(features: Tensor, bases: Tensor, weights: Tensor, tau: float | Tensor) -> Tensor:
    """[N] gammas |x' W| / tau, x' = softmax(x A) A^T: mixtures of k learned bases. Section 4.1.

    features x: [N, D]. bases A: [D, k]. weights W: [D, 1]. tau > 0. |.| has no gradient at 0.
    """
    drawn = (features @ bases).softmax(dim=-1) @ bases.T
    return (drawn @ weights).abs().squeeze(-1) / tau


@dataclass(frozen=True)
class GammaNet(LookaheadMethod):
    """FL_gamma-SECE; with `outer: dece`, FL_gamma-DECE.

    The paper does not give k, tau, the initial values or Adam's learning rate. Ours: A and W are
    initialized like `nn.Linear` weights; with tau 0.01, gamma then starts at order 1. A step of
    Adam moves gamma by about meta_lr / tau times a constant of the network's width, and the network
    answers over epochs: where meta_lr / tau is large, gamma runs away. `length: constant` is ours.
    """

    length: str = choice(
        "constant",
        "free",
        doc="constant: phi's gradient is of the look-ahead's direction alone",
        before="free",
    )
    meta_batch: int | str = words_or_number(
        "auto", "batch_size", low=1, doc=META_BATCH_DOC, before="batch_size"
    )
    meta_lr: float = number(1e-4, above=0, doc="Adam's learning rate for the learned parameters")
    k: int = number(10, low=1, doc="number of learned bases of the feature space")
    tau: float = number(0.01, above=0, doc="temperature: gamma is |x' W| / tau")
    gamma_max: float = number(10.0, above=0, doc="maximum of gamma")
    detach_features: bool = setting(True, doc="stop gamma-net's gradient at the features")

    def initial(self, task: Task) -> Parameters:
        linear = [layer for layer in task.network.head.modules() if isinstance(layer, nn.Linear)]
        if not linear:
            need = "GammaNet needs the features before the last layer"
            raise FieldError("model", f"{need}: the head must be linear")
        width = linear[0].in_features
        bound = width**-0.5
        shapes = {"A": (width, self.k), "W": (width, 1)}
        drawn = {
            name: torch.rand(shape, generator=task.generator) for name, shape in shapes.items()
        }
        return {name: ((2 * value - 1) * bound).to(task.device) for name, value in drawn.items()}

    def gamma(self, features: Tensor, phi: Parameters) -> Tensor:
        """[N] gammas of features [N, D]."""
        if self.detach_features:
            features = features.detach()
        return learned_gamma(features, phi["A"], phi["W"], self.tau).clamp(max=self.gamma_max)

    def training_loss(
        self, head: nn.Module, forward: Forward, labels: Tensor, phi: Parameters
    ) -> Tensor:
        gamma = self.gamma(forward.features, phi)
        return self._weighed(lambda y, z, g: focal_loss(z, y, g), labels, forward.logits, gamma)

    def start(self, task: Task) -> State:
        unseen = torch.full((task.num_samples,), torch.nan, device=task.device)
        return {**super().start(task), "gamma": unseen}

    def noted(self, state: State, batch: Batch, features: Tensor) -> State:
        gamma = self.gamma(features, state["phi"])
        return {**state, "gamma": state["gamma"].index_copy(0, batch.indices, gamma)}

    def measured(self, state: Any) -> dict[str, Tensor]:
        """Of the train samples' latest gammas: quantiles, and the share at `gamma_max`."""
        gamma = state["gamma"]
        found = {name: gamma.nanquantile(share) for name, share in QUANTILES.items()}
        capped = (gamma >= self.gamma_max).sum() / gamma.isfinite().sum()
        return {**found, "gamma_capped": capped}

    def remark(self, row: Mapping[str, float]) -> str | None:
        # A trial that an earlier version began has rows without the share.
        median, capped = row["gamma_q50"], row.get("gamma_capped", 0.0)
        if median <= HIGH and capped <= 0.5:
            return None
        return f"gamma ran away (median {median:.3g}, {capped:.0%} at gamma_max): lower meta_lr"
