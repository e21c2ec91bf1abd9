"""Learnable L2 on the last layer, by meta-gradients. Bohdal et al. 2023, Section 3.3.

The second reading of CE-DECE and CE-SECE in Wang & Golebiowski 2024, who define neither; the first
is cross_entropy with the error as an auxiliary term (`dece`, `sece`).
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from trainables.method import State, Task
from trainables.methods.shared.lookahead import Forward, LookaheadMethod, Parameters
from trainables.vectorized import cross_entropy


@dataclass(frozen=True)
class MetaL2(LookaheadMethod):
    """(sum over N samples of cross-entropy + sum_j phi_j theta_j^2) / N, theta the last layer's.

    The released code does not divide by N; each phi_j starts at 0 and may have either sign.
    """

    def initial(self, task: Task) -> Parameters:
        weights = task.network.head.named_parameters()
        return {name: torch.zeros_like(weight).detach() for name, weight in weights}

    def training_loss(
        self, head: nn.Module, forward: Forward, labels: Tensor, phi: Parameters
    ) -> Tensor:
        penalties = [
            (phi[name] * weight.square()).sum() for name, weight in head.named_parameters()
        ]
        mean = self._weighed(lambda y, z: cross_entropy(z, y), labels, forward.logits)
        return mean + torch.stack(penalties).sum() / len(labels)

    def measured(self, state: State) -> dict[str, Tensor]:
        """Mean of the learned coefficients."""
        return {"l2_mean": torch.cat([value.flatten() for value in state["phi"].values()]).mean()}
