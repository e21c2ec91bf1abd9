"""A network's weights as one vector, and its update."""

from collections.abc import Iterable
from typing import TypedDict

import torch
from torch import Tensor, nn

from trainables.optimizer import Optimizer

# Of a convolution's dimensions.
CHANNELS_LAST = [0, 2, 3, 1]
# Adam's, as published.
BETAS = (0.9, 0.999)
# Each parameter begins at a multiple of so many elements of the vector: kernels for a GPU read 16
# bytes at once, and take slower ways where they may not.
BOUNDARY = 64
EPSILON = 1e-8


def is_bias(name: str, parameter: nn.Parameter) -> bool:
    """Of a layer, as torch names it; a normalisation's scale is none."""
    return parameter.dim() == 1 and name.rpartition(".")[2] == "bias"


class OptimizerState(TypedDict):
    """What an update goes on from, beside the weights."""

    moments: list[Tensor]
    count: Tensor


class Weights:
    """A network's weights as one vector, of which its parameters become views; its
    gradient and moments likewise. The gaps between parameters stay 0.

    `update` changes them in place and reads nothing on the host: the settings' numbers
    are tensors on the device.
    """

    def __init__(
        self, named_parameters: Iterable[tuple[str, nn.Parameter]], settings: Optimizer
    ) -> None:
        trained = [(name, each) for name, each in named_parameters if each.requires_grad]
        self._parameters = [each for _, each in trained]
        self._rule = settings.name
        self._is_clipped = settings.clip is not None
        self._is_nesterov = settings.nesterov
        # Of each parameter its dimensions as they lie in the vector: a convolution's channels last.
        self._orders = [
            CHANNELS_LAST if p.dim() == 4 else list(range(p.dim())) for p in self._parameters
        ]
        self._lengths = [parameter.numel() for parameter in self._parameters]
        self._spaces = [-(-length // BOUNDARY) * BOUNDARY for length in self._lengths]
        self.vector = self._parameters[0].new_zeros(sum(self._spaces))
        self._gap = self.vector.new_zeros(BOUNDARY)
        self.gradient = torch.empty_like(self.vector)
        self.moments = [
            torch.empty_like(self.vector) for _ in range(1 if self._rule == "sgd" else 2)
        ]
        parts = self._parts(self.vector)
        for parameter, part, order in zip(self._parameters, parts, self._orders, strict=True):
            back = [order.index(dimension) for dimension in range(len(order))]
            place = part.view([parameter.shape[dimension] for dimension in order]).permute(back)
            parameter.data = place.copy_(parameter.data)
        # Of the gradient's elements, where biases have a rate of their own.
        self._factors: Tensor | None = None
        if self._rule == "sgd" and settings.bias_lr_factor != 1.0:
            factors = [
                settings.bias_lr_factor if is_bias(name, each) else 1.0 for name, each in trained
            ]
            self._factors = (
                torch.tensor(factors).repeat_interleave(torch.tensor(self._spaces)).to(self.vector)
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
        for space, length in zip(
            torch.split(self.vector, self._spaces), self._lengths, strict=True
        ):
            space[length:].zero_()  # of a training that diverged

    def _parts(self, vector: Tensor) -> list[Tensor]:
        """Of each parameter its elements of a vector that is laid out as the weights are."""
        spaces = torch.split(vector, self._spaces)
        return [space[:length] for space, length in zip(spaces, self._lengths, strict=True)]

    def backward(self, loss: Tensor) -> None:
        """The gradient of the loss; 0 for weights that it does not depend on."""
        one = None if self._one is None else self._one.to(loss.dtype)
        slopes = torch.autograd.grad(loss, self._parameters, one, allow_unused=True)
        parts = []
        for weight, slope, order in zip(self._parameters, slopes, self._orders, strict=True):
            found = torch.zeros_like(weight) if slope is None else slope
            parts.append(found.permute(order).flatten())
            parts.append(self._gap[: -weight.numel() % BOUNDARY])
        torch.cat(parts, out=self.gradient)

    @torch.no_grad()
    def update(self, lr: Tensor) -> None:
        """One step along the gradient: SGD with momentum, Adam or AdamW as in
        `torch.optim`. lr: 0-dimensional."""
        weights = self.vector
        gradient = self.gradient
        decay = self._numbers["weight_decay"]
        if self._is_clipped:
            norm = torch.cat(self._parts(gradient)).norm()
            gradient.mul_((self._numbers["clip"] / (norm + 1e-6)).clamp(max=1.0))
        if self._factors is not None:
            gradient.mul_(self._factors)
        if self._rule == "adamw":
            weights.mul_(1 - lr * decay)
        else:
            gradient.addcmul_(weights, decay)
        if self._rule == "sgd":
            (momentum,) = self.moments
            torch.addcmul(gradient, momentum, self._numbers["momentum"], out=momentum)
            direction = momentum
            if self._is_nesterov:
                direction = gradient.addcmul_(momentum, self._numbers["momentum"])
            weights.addcmul_(direction, lr, value=-1)
            return
        first, second = self.moments
        self.count += 1
        first.lerp_(gradient, 1 - BETAS[0])
        second.mul_(BETAS[1]).addcmul_(gradient, gradient, value=1 - BETAS[1])
        unbiased = (second / (1 - BETAS[1] ** self.count)).sqrt_().add_(EPSILON)
        weights.sub_(first / unbiased * (lr / (1 - BETAS[0] ** self.count)))

    def state(self) -> OptimizerState:
        """What `load` restores: the optimizer's, without the weights and without gaps."""
        moments = [torch.cat(self._parts(moment)) for moment in self.moments]
        return {"moments": moments, "count": self.count}

    def load(self, state: OptimizerState) -> None:
        """Restore what `state` gave."""
        self.count.copy_(state["count"])
        for moment, stored in zip(self.moments, state["moments"], strict=True):
            values = torch.split(stored, self._lengths)
            for part, value in zip(self._parts(moment), values, strict=True):
                part.copy_(value)
