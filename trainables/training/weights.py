"""The weights of one trial, or of several, as one matrix, and their update."""

from collections.abc import Iterable, Sequence
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
ADAGRAD_EPSILON = 1e-10

Named = Iterable[tuple[str, nn.Parameter]]
Row = tuple[Named, Optimizer]  # a trial's


def is_bias(name: str, parameter: nn.Parameter) -> bool:
    """Of a layer, as torch names it; a normalisation's scale is none."""
    return parameter.dim() == 1 and name.rpartition(".")[2] == "bias"


class OptimizerState(TypedDict):
    """What an update goes on from, beside the weights."""

    moments: list[Tensor]
    count: Tensor


class Weights:
    """The weights of K trials of one network as rows of a matrix [K, P], of which each network's
    parameters become views; their gradient and moments likewise. The gaps between parameters stay
    0. Most often K is 1.

    `update` changes them in place and reads nothing on the host: the settings' numbers
    are tensors on the device. others: of the other trials, whose settings differ in numbers alone.
    """

    def __init__(
        self, named_parameters: Named, settings: Optimizer, others: Sequence[Row] = ()
    ) -> None:
        rows = [_trained(named_parameters), *(_trained(named) for named, _ in others)]
        trained = rows[0]
        self._parameters = [each for _, each in trained]
        self._rule = settings.name
        self._is_clipped = settings.clip is not None
        self._is_nesterov = settings.nesterov
        self._is_stack = len(rows) > 1
        # Of each parameter its dimensions as they lie in the vector: a convolution's channels last.
        orders = [CHANNELS_LAST if p.dim() == 4 else list(range(p.dim())) for p in self._parameters]
        self._lengths = [parameter.numel() for parameter in self._parameters]
        self._spaces = [-(-length // BOUNDARY) * BOUNDARY for length in self._lengths]
        self.vector = self._parameters[0].new_zeros(len(rows), sum(self._spaces))
        self.gradient = torch.empty_like(self.vector)
        self.moments = [torch.empty_like(self.vector) for _ in range(settings.moments)]
        for row, own in zip(self.vector, rows, strict=True):
            for (_, parameter), part, order in zip(own, self._parts(row), orders, strict=True):
                parameter.data = _place(part, parameter, order).copy_(parameter.data)
        # What a loss is differentiated by, and its dimensions as they lie in the vector. Of one
        # trial the network's own parameters, without a dimension for trials.
        self.leaves: dict[str, Tensor] = dict(trained)
        self._orders = orders
        gap = self.vector.new_zeros(len(rows), BOUNDARY)
        self._gap = gap[0]
        if self._is_stack:
            self._gap = gap
            self._orders = [[0, *(1 + dimension for dimension in order)] for order in orders]
            for (name, each), part, order in zip(
                trained, self._parts(self.vector), orders, strict=True
            ):
                self.leaves[name] = _place(part, each, order).detach().requires_grad_()
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
            name: self.vector.new_zeros(len(rows), 1)
            for name in ("momentum", "weight_decay", "clip")
        }
        self.count = self.vector.new_zeros((), dtype=torch.float64)
        # Where backward passes start. Given to PyTorch, it saves an operation, and imports SymPy.
        self._one = None if self.vector.device.type == "cpu" else self.vector.new_ones(())
        self.restart([settings, *(each for _, each in others)])

    def restart(self, settings: Sequence[Optimizer]) -> None:
        """For another training by the same rule: the trials' numbers, no moments."""
        for name, values in self._numbers.items():
            for value, each in zip(values, settings, strict=True):
                value.fill_(getattr(each, name) or 0.0)
        for moment in (*self.moments, self.count):
            moment.zero_()
        spaces = torch.split(self.vector, self._spaces, dim=-1)
        for space, length in zip(spaces, self._lengths, strict=True):
            space[:, length:].zero_()  # of a training that diverged

    def _parts(self, vector: Tensor) -> list[Tensor]:
        """Of each parameter its elements of a tensor that is laid out as the weights are, or of a
        row of it."""
        spaces = torch.split(vector, self._spaces, dim=-1)
        return [space[..., :length] for space, length in zip(spaces, self._lengths, strict=True)]

    def backward(self, loss: Tensor) -> None:
        """The gradient of the loss, of several trials of their sum; 0 for weights that it does not
        depend on."""
        one = None if self._one is None else self._one.to(loss.dtype)
        leaves = list(self.leaves.values())
        slopes = torch.autograd.grad(loss, leaves, one, allow_unused=True)
        start = int(self._is_stack)
        parts = []
        for leaf, length, slope, order in zip(
            leaves, self._lengths, slopes, self._orders, strict=True
        ):
            found = torch.zeros_like(leaf) if slope is None else slope
            parts.append(found.permute(order).flatten(start))
            parts.append(self._gap[..., : -length % BOUNDARY])
        torch.cat(parts, dim=-1, out=self.gradient if self._is_stack else self.gradient[0])

    @torch.no_grad()
    def update(self, lr: Tensor) -> None:
        """One step along the gradient: SGD with momentum, Adam, AdamW or AdaGrad as in
        `torch.optim`. lr: 0-dimensional, or [K, 1]."""
        weights = self.vector
        gradient = self.gradient
        decay = self._numbers["weight_decay"]
        if self._is_clipped:
            norm = torch.cat(self._parts(gradient), dim=-1).norm(dim=-1, keepdim=True)
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
        if self._rule == "adagrad":
            (squares,) = self.moments
            squares.addcmul_(gradient, gradient)
            weights.sub_(gradient / squares.sqrt().add_(ADAGRAD_EPSILON) * lr)
            return
        first, second = self.moments
        self.count += 1
        first.lerp_(gradient, 1 - BETAS[0])
        second.mul_(BETAS[1]).addcmul_(gradient, gradient, value=1 - BETAS[1])
        unbiased = (second / (1 - BETAS[1] ** self.count)).sqrt_().add_(EPSILON)
        weights.sub_(first / unbiased * (lr / (1 - BETAS[0] ** self.count)))

    def state(self) -> OptimizerState:
        """What `load` restores of a trial: the optimizer's, without weights and gaps."""
        moments = [torch.cat(self._parts(moment[0])) for moment in self.moments]
        return {"moments": moments, "count": self.count}

    def load(self, state: OptimizerState) -> None:
        """Restore what `state` gave."""
        self.count.copy_(state["count"])
        for moment, stored in zip(self.moments, state["moments"], strict=True):
            values = torch.split(stored, self._lengths)
            for part, value in zip(self._parts(moment[0]), values, strict=True):
                part.copy_(value)


def _trained(named_parameters: Named) -> list[tuple[str, nn.Parameter]]:
    return [(name, each) for name, each in named_parameters if each.requires_grad]


def _place(part: Tensor, parameter: Tensor, order: list[int]) -> Tensor:
    """A parameter's elements [..., n] as a view of its shape. order: of its dimensions there."""
    lead = part.dim() - 1
    back = [*range(lead), *(lead + order.index(dimension) for dimension in range(len(order)))]
    dimensions = [parameter.shape[dimension] for dimension in order]
    return part.view(*part.shape[:-1], *dimensions).permute(back)
