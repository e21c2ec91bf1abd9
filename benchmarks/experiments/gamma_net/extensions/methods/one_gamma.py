"""The control of "per sample": gamma-net with one learned gamma for all samples."""

from dataclasses import dataclass

import torch
from torch import Tensor

from trainables.method import Task
from trainables.methods.gamma_net import GammaNet
from trainables.methods.shared.lookahead import Parameters


@dataclass(frozen=True)
class OneGamma(GammaNet):
    """gamma = |w| / tau, w a number: 1 at first, and moved by meta_lr / tau in a step of Adam."""

    @property
    def tensors_only(self) -> bool:
        return True

    def initial(self, task: Task) -> Parameters:
        return {"w": torch.tensor([self.tau], device=task.device)}

    def gamma(self, features: Tensor, phi: Parameters) -> Tensor:
        return (phi["w"].abs() / self.tau).clamp(max=self.gamma_max).expand(len(features))
