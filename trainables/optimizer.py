"""The learning rate as a pure function of progress in [0, 1], and the update of all weights as one vector."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from trainables.fields import Settings, choice, number, numbers, text

# PyTorch's one-cycle schedule: the fraction of training in which it rises, from lr / 25, then down to lr / 250,000.
RISE, FIRST, LAST = 0.3, 1 / 25, 1 / 25e4
# The triangular schedule of airbench94: the fraction of training in which it rises, and where it begins and ends.
PEAK, FOOT, END = 0.23, 0.2, 0.07
# The fraction of training in which a schedule rises.
RISES = {"one_cycle": RISE, "triangular": PEAK}
# Of a convolution's dimensions.
CHANNELS_LAST = [0, 2, 3, 1]
# Adam's, as published.
BETAS, EPSILON = (0.9, 0.999), 1e-8


@dataclass(frozen=True)
class Optimizer(Settings):
    """Update rule and learning rate schedule, as PyTorch defines them. Adam uses its published betas."""

    name: str = choice("sgd", "adam", "adamw", doc="update rule")
    lr: float = number(0.1, above=0, doc="learning rate, the schedule's maximum")
    momentum: float = number(0.9, low=0, below=1, doc="SGD only")
    weight_decay: float = number(5.0e-4, low=0, doc="L2 penalty; decoupled in adamw")
    schedule: str = choice(
        *("cosine", "constant", "steps", "one_cycle", "triangular"), doc="learning rate schedule"
    )
    steps: tuple[float, ...] = numbers(
        (0.5, 0.75), above=0, below=1, doc="for `steps`: fractions of training at drops"
    )
    factor: float = number(0.1, above=0, below=1, doc="for `steps`: factor applied at each drop")
    warmup: float = number(
        0.0, low=0, below=1, doc="fraction of training with a linear rise from 0"
    )
    clip: float | None = number(
        None, above=0, doc="maximum norm of the gradient; null: no clipping"
    )
    nesterov: bool = text(False, doc="SGD only: Nesterov momentum")
    bias_lr_factor: float = number(
        1.0,
        above=0,
        doc="SGD only: factor on lr for biases, but not on what weight decay takes of them in an update",
    )

    def learning_rate(self, progress: float) -> float:
        """lr at a fraction of training done. `warmup` rises linearly from 0 to the schedule's value at its end."""
        if progress < self.warmup:
            return self._scheduled(self.warmup) * progress / self.warmup
        return self._scheduled(progress)

    def _scheduled(self, progress: float) -> float:
        """Cosine: Loshchilov & Hutter 2017, one period, to 0. One cycle: Smith & Topin 2018 as in PyTorch, two half
        cosines, constant momentum. Triangular: airbench94 (Jordan 2024), a line up and a line down.
        """
        if self.schedule == "constant":
            return self.lr
        if self.schedule == "steps":
            return self.lr * self.factor ** sum(progress >= step for step in self.steps)
        if self.schedule == "one_cycle":
            if progress < RISE:
                return self.lr * _half_cosine(FIRST, 1.0, progress / RISE)
            return self.lr * _half_cosine(1.0, LAST, (progress - RISE) / (1.0 - RISE))
        if self.schedule == "triangular":
            share = progress / PEAK if progress < PEAK else (1.0 - progress) / (1.0 - PEAK)
            return self.lr * ((FOOT if progress < PEAK else END) * (1.0 - share) + share)
        return self.lr * _half_cosine(1.0, 0.0, progress)


def _half_cosine(first: float, last: float, share: float) -> float:
    return last + (first - last) * 0.5 * (1.0 + math.cos(math.pi * share))


def is_bias(name: str, parameter: nn.Parameter) -> bool:
    """Of a layer, as torch names it; a normalisation's scale is none."""
    return parameter.dim() == 1 and name.rpartition(".")[2] == "bias"


class Weights:
    """A network's weights as one vector, of which its parameters become views; its gradient and moments likewise.

    `update` changes them in place and reads nothing on the host: the settings' numbers are tensors on the device.
    """

    def __init__(
        self, named_parameters: Iterable[tuple[str, nn.Parameter]], settings: Optimizer
    ) -> None:
        trained = [
            (place, name, each)
            for place, (name, each) in enumerate(named_parameters)
            if each.requires_grad
        ]
        self._places, self._parameters = (
            [place for place, _, _ in trained],
            [each for _, _, each in trained],
        )
        self._rule, self._is_clipped, self._is_nesterov = (
            settings.name,
            settings.clip is not None,
            settings.nesterov,
        )
        # Of each parameter its dimensions as they lie in the vector: a convolution's channels last.
        self._orders = [
            CHANNELS_LAST if p.dim() == 4 else list(range(p.dim())) for p in self._parameters
        ]
        lengths = [parameter.numel() for parameter in self._parameters]
        self.vector = self._parameters[0].new_empty(sum(lengths))
        self.gradient = torch.empty_like(self.vector)
        self.moments = [
            torch.empty_like(self.vector) for _ in range(1 if self._rule == "sgd" else 2)
        ]
        parts = torch.split(self.vector, lengths)
        for parameter, part, order in zip(self._parameters, parts, self._orders, strict=True):
            back = [order.index(dimension) for dimension in range(len(order))]
            place = part.view([parameter.shape[dimension] for dimension in order]).permute(back)
            parameter.data = place.copy_(parameter.data)
        self._factors: Tensor | None = (
            None  # of the gradient's elements, where biases have a rate of their own
        )
        if self._rule == "sgd" and settings.bias_lr_factor != 1.0:
            factors = [
                settings.bias_lr_factor if is_bias(name, each) else 1.0 for _, name, each in trained
            ]
            self._factors = (
                torch.tensor(factors).repeat_interleave(torch.tensor(lengths)).to(self.vector)
            )
        self._numbers = {
            name: self.vector.new_zeros(()) for name in ("momentum", "weight_decay", "clip")
        }
        self.count = self.vector.new_zeros((), dtype=torch.float64)
        # Where backward passes start. Given to PyTorch, it saves an operation, and imports SymPy.
        self._one = None if self.vector.device.type == "cpu" else self.vector.new_ones(())
        self.restart(settings)

    def restart(self, settings: Optimizer) -> None:
        """For another training by the same rule: its numbers, no moments."""
        for name, value in self._numbers.items():
            value.fill_(getattr(settings, name) or 0.0)
        for moment in (*self.moments, self.count):
            moment.zero_()

    def _parts(self, tensors: list[Tensor]) -> list[Tensor]:
        """Tensors like the parameters, each as it lies in the vector."""
        return [
            tensor.permute(order).flatten()
            for tensor, order in zip(tensors, self._orders, strict=True)
        ]

    def backward(self, loss: Tensor) -> None:
        """The gradient of the loss; 0 for weights that it does not depend on."""
        one = None if self._one is None else self._one.to(loss.dtype)
        slopes = torch.autograd.grad(loss, self._parameters, one, allow_unused=True)
        found = [
            torch.zeros_like(at) if slope is None else slope
            for at, slope in zip(self._parameters, slopes, strict=True)
        ]
        torch.cat(self._parts(found), out=self.gradient)

    @torch.no_grad()
    def update(self, lr: Tensor) -> None:
        """One step along the gradient: SGD with momentum, Adam or AdamW as in `torch.optim`. lr: 0-dimensional."""
        weights, gradient, decay = self.vector, self.gradient, self._numbers["weight_decay"]
        if self._is_clipped:
            gradient.mul_((self._numbers["clip"] / (gradient.norm() + 1e-6)).clamp(max=1.0))
        if self._factors is not None:
            gradient.mul_(self._factors)
        if self._rule == "adamw":
            weights.mul_(1 - lr * decay)
        else:
            gradient.addcmul_(weights, decay)
        if self._rule == "sgd":
            (momentum,) = self.moments
            torch.addcmul(gradient, momentum, self._numbers["momentum"], out=momentum)
            direction = (
                gradient.addcmul_(momentum, self._numbers["momentum"])
                if self._is_nesterov
                else momentum
            )
            weights.addcmul_(direction, lr, value=-1)
            return
        first, second = self.moments
        self.count += 1
        first.lerp_(gradient, 1 - BETAS[0])
        second.mul_(BETAS[1]).addcmul_(gradient, gradient, value=1 - BETAS[1])
        unbiased = (second / (1 - BETAS[1] ** self.count)).sqrt_().add_(EPSILON)
        weights.sub_(first / unbiased * (lr / (1 - BETAS[0] ** self.count)))

    def state(self) -> dict[str, Any]:
        """What `load` restores: the optimizer's, without the weights."""
        return {"moments": self.moments, "count": self.count}

    def load(self, state: dict[str, Any]) -> bool:
        """Restore what `state` gave, or torch's optimizers, which kept it for each parameter: True if it was theirs."""
        if is_torchs := "param_groups" in state:
            state = self._of_torch(state["state"])
        for moment, stored in zip(
            [*self.moments, self.count], [*state["moments"], state["count"]], strict=True
        ):
            moment.copy_(stored)
        return is_torchs

    def _of_torch(self, found: dict[int, dict[str, Tensor]]) -> dict[str, Any]:
        if not found:  # without momentum there is none
            return self.state()
        names = ("momentum_buffer",) if self._rule == "sgd" else ("exp_avg", "exp_avg_sq")
        each = [found[place] for place in self._places]
        vectors = [torch.cat(self._parts([state[name] for state in each])) for name in names]
        return {"moments": vectors, "count": each[0].get("step", self.count)}
