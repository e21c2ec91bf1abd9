"""The hooks a calibration method can override; override the smallest that suffices.

Each epoch the learner calls `order` and `draw`; for each batch `prepare`, `step` (which calls
`loss`) and `observe`; after the epoch `measured`. State is passed in and returned, never kept on
the method. A method that wraps another forwards every hook to it.

What happens for each batch is tensors only: nothing is read back from the device or copied to it.
So the fields that are floats, `progress` and `learning_rate` are 0-dimensional tensors there, and
random choices come from `draw`. An extension gets numbers, unless it sets `tensors_only = True`. On
a GPU what happens for a batch is captured once and replayed, for later trials too: it must depend
on nothing else that changes, such as `epoch`.
"""

from __future__ import annotations

import copy
from abc import ABC
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from trainables.checked_loss import check_loss as check_loss
from trainables.fields import Settings, word_or_numbers
from trainables.model import Network
from trainables.problems import FieldError


class Mixed(NamedTuple):
    """Labels [N] int64 of both samples mixed into one, by share and 1 - share, share in [0, 1]."""

    first: Tensor
    second: Tensor
    share: float | Tensor


class Batch(NamedTuple):
    """images: [N, C, H, W] float32, normalised. indices: [N], into train; mixed: the first one's.

    targets: labels [N] int64, or soft [N, K], or as returned by a method's `prepare`; of images
    with masks labels [N, H, W], -1 where there is none. drawn: what the method's `draw` chose for
    this batch.
    """

    images: Tensor
    targets: Tensor | Mixed
    indices: Tensor
    drawn: Mapping[str, Tensor] = {}


class Step(NamedTuple):
    """A training step's loss and logits [N, K], both detached, and the method's state."""

    loss: Tensor
    logits: Tensor
    state: Any


class Task(NamedTuple):
    """The facts a method knows before training starts."""

    num_classes: int
    rows: Tensor  # [N] int64: the samples of the prepared train split to train on
    device: torch.device
    generator: torch.Generator  # on the CPU
    network: Network
    data_digest: str

    @property
    def num_samples(self) -> int:
        return len(self.rows)


class Trainer(Protocol):
    """The part of the learner that a method's hooks may use."""

    network: Network
    epoch: int  # the number of epochs finished

    @property
    def epochs(self) -> int:
        """The epochs of the whole training."""

    @property
    def progress(self) -> float | Tensor:
        """Fraction of training done, in [0, 1)."""

    @property
    def learning_rate(self) -> float | Tensor:
        """The current learning rate."""

    @property
    def num_samples(self) -> int:
        """Size of train, without the meta split."""

    def apply(
        self, module: nn.Module, inputs: Tensor, weights: dict[str, Tensor] | None = None
    ) -> Tensor:
        """A module's output in the precision of training, as float32. weights: or its own."""

    def update(self, loss: Tensor) -> None:
        """Backward pass and one optimizer step."""

    def meta_batch(self) -> Batch:
        """This step's batch of the meta split, never augmented; for methods with `needs_meta`."""

    def train_logits(self) -> Tensor:
        """[num_samples, K]: the network's logits on train, evaluating, not augmented."""


# Hooks that a stack of trials does not call.
ALONE = ("step", "order", "observe", "measured")


# Tensors, numbers, text and containers of them: it is saved in `last.pt`, which is loaded without
# unpickling code.
State = Any


@dataclass(frozen=True)
class Method(Settings, ABC):
    """Fields are hyperparameters, named as in the paper, with their valid range."""

    class_weights: str | tuple[float, ...] | None = field(
        default=None,
        kw_only=True,
        metadata=word_or_numbers(
            "balanced", above=0, doc="weight of each class in the loss; balanced: 1 / its frequency"
        ),
    )
    _by_class: ClassVar[Tensor | None] = None  # [K], of the innermost method of a training

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.class_weights is not None and not self.weighable:
            found = f"{type(self).__name__} does not give the loss of each sample"
            raise FieldError("class_weights", found, "Leave it out, or set `elementwise = True`.")

    @property
    def weighable(self) -> bool:
        """Its loss can be weighted by the classes of labels."""
        return self.elementwise

    def weights_of(self, counts: Tensor) -> Tensor | None:
        """[K] float32: the weights of classes that are labels this often, with a mean over these
        labels of 1; None: none are wanted."""
        wanted = self.class_weights
        if wanted is None:
            return None
        own = 1 / counts.clamp(min=1) if wanted == "balanced" else torch.tensor(wanted)
        return own * (counts.sum() / (counts * own).sum())

    @property
    def needs_meta(self) -> bool:
        """The method needs a meta split, carved from train."""
        return False

    def meta_size(self, batch_size: int) -> int:
        """Samples of the meta split in a step; of a smaller split, all."""
        return batch_size

    @property
    def tensors_only(self) -> bool:
        """The hooks of a batch keep to tensors. Of this package's methods that is tested."""
        return type(self).__module__.startswith("trainables.")

    @property
    def stackable(self) -> bool:
        """Its trials can train beside others as one program: the method has nothing of its own but
        a loss and the preparation of a batch. An extension has to say so: `stackable = True`."""
        own = type(self).__module__.startswith("trainables.")
        return own and self.tensors_only and not self.needs_meta and not self.alone_by

    @property
    def elementwise(self) -> bool:
        """`loss` is a mean over samples of what each of them gives, and so takes several trials at
        once: logits [R, B, C], labels [R, B] and its numbers as [R, 1], for losses [R, 1]."""
        return False

    @property
    def alone_by(self) -> str | None:
        """The first hook that a stack cannot call for all of its trials at once; None: it has
        none."""
        return next((hook for hook in ALONE if self.overrides(hook)), None)

    @property
    def per_position(self) -> bool:
        """It can train on a label for each pixel, whose logits and labels are rows of `loss`: true
        unless it needs one row for each image, as hooks beside a loss do."""
        return self.alone_by is None

    @property
    def mixes(self) -> bool:
        """It mixes samples, as numbers of words cannot be."""
        return False

    @property
    def fixes_scale(self) -> bool:
        """The loss changes with the scale of the logits; if not, calibration as trained means
        nothing."""
        return True

    @property
    def differentiates_twice(self) -> bool:
        """A step differentiates a gradient of the features; compiled code cannot."""
        return False

    def overrides(self, hook: str) -> bool:
        """The method, or one that it wraps, overrides the hook."""
        return getattr(type(self), hook) is not getattr(Method, hook)

    def start(self, task: Task) -> State:
        """State before the first epoch. Raises FieldError if the task is not supported."""
        return None

    def order(self, learner: Trainer, state: State, generator: torch.Generator) -> Tensor:
        """Indices [M] of the next epoch's train samples, in order; default: all, shuffled."""
        return torch.randperm(learner.num_samples, generator=generator)

    def draw(self, steps: int, size: int, generator: torch.Generator) -> dict[str, Tensor]:
        """The epoch's random choices for batches of `size` samples, [steps, ...], on the CPU."""
        return {}

    def prepare(self, batch: Batch, generator: torch.Generator) -> Batch:
        """The batch for the network. generator: on the CPU; not for `tensors_only`."""
        return batch

    def loss(self, logits: Tensor, targets: Tensor, progress: float | Tensor) -> Tensor:
        """Mean over samples. logits: [N, K] float32. progress: in [0, 1)."""
        raise TypeError(f"{type(self).__name__} must override loss (or step).")

    def mean_loss(self, logits: Tensor, targets: Tensor, progress: float | Tensor) -> Tensor:
        """`loss`, weighted by the classes of its labels where there are class weights."""
        return self._weighed(lambda y, z: self.loss(z, y, progress), targets, logits)

    def _weighed(self, loss: Callable[..., Tensor], targets: Tensor, *rows: Tensor) -> Tensor:
        """The mean over samples of loss(targets, *rows), times the weights of their classes."""
        if self._by_class is None:
            return loss(targets, *rows)
        labels = require_labels(self, targets)
        # Each sample as a trial of its own.
        each = loss(labels[:, None], *(row[:, None] for row in rows)).flatten()
        return (self._by_class[labels] * each).mean()

    def loss_of(self, logits: Tensor, targets: Tensor | Mixed, progress: float | Tensor) -> Tensor:
        """`mean_loss`; of mixed samples the sum of two by their shares. Of a label for each pixel
        it is over those that are labelled, and 0 without any."""
        if not isinstance(targets, Mixed):
            return self._loss_of_labelled(logits, targets, progress)
        loss = targets.share * self._loss_of_labelled(logits, targets.first, progress)
        second = self._loss_of_labelled(logits, targets.second, progress)
        return loss + (1 - targets.share) * second

    def _loss_of_labelled(
        self, logits: Tensor, targets: Tensor, progress: float | Tensor
    ) -> Tensor:
        rows, labels = labelled(logits, targets)
        if logits.dim() > 2 and not len(labels):
            return 0.0 * logits.sum()
        return self.mean_loss(rows, labels, progress)

    def step(self, learner: Trainer, state: State, batch: Batch) -> Step:
        """Forward, backward, update; no update for images without a labelled pixel."""
        logits = learner.apply(learner.network, batch.images)
        if logits.dim() > 2 and not has_labels(batch.targets):
            return Step(logits.new_zeros(()), logits.detach(), state)
        loss = self.loss_of(logits, batch.targets, learner.progress)
        learner.update(loss)
        return Step(loss.detach(), logits.detach(), state)

    def observe(self, state: State, batch: Batch, logits: Tensor) -> State:
        """Called after the update; returns the new state."""
        return state

    def measured(self, state: State) -> Mapping[str, float | Tensor]:
        """Values of the method's own for an epoch's row: numbers or 0-dimensional tensors."""
        return {}

    def remark(self, row: Mapping[str, float]) -> str | None:
        """What to tell a user, once in a trial, of an epoch's row; None: nothing."""
        return None


@dataclass(frozen=True)
class Wrapper(Method, ABC):
    """A method around another, `base`: hooks that are not overridden are the base's."""

    if TYPE_CHECKING:  # subclasses declare the field, last
        base: Method

    def _bases(self) -> Iterator[Method]:
        """The wrapped methods, outermost first."""
        base: Method = self
        while isinstance(base, Wrapper):
            base = base.base
            yield base

    @property
    def needs_meta(self) -> bool:
        return self.base.needs_meta

    def meta_size(self, batch_size: int) -> int:
        return self.base.meta_size(batch_size)

    @property
    def tensors_only(self) -> bool:
        return super().tensors_only and self.base.tensors_only

    @property
    def stackable(self) -> bool:
        return super().stackable and self.base.stackable

    @property
    def per_position(self) -> bool:
        return super().per_position and self.base.per_position

    @property
    def mixes(self) -> bool:
        return self.base.mixes

    @property
    def fixes_scale(self) -> bool:
        return self.base.fixes_scale

    @property
    def differentiates_twice(self) -> bool:
        return self.base.differentiates_twice

    def start(self, task: Task) -> State:
        return self.base.start(task)

    def order(self, learner: Trainer, state: State, generator: torch.Generator) -> Tensor:
        return self.base.order(learner, state, generator)

    def draw(self, steps: int, size: int, generator: torch.Generator) -> dict[str, Tensor]:
        return self.base.draw(steps, size, generator)

    def prepare(self, batch: Batch, generator: torch.Generator) -> Batch:
        return self.base.prepare(batch, generator)

    def loss(self, logits: Tensor, targets: Tensor, progress: float | Tensor) -> Tensor:
        return self.base.mean_loss(logits, targets, progress)

    @property
    def weighable(self) -> bool:
        """The base's loss is weighted; a term added to it is not."""
        return type(self).loss in (Wrapper.loss, AuxiliaryMethod.loss) and self.base.weighable

    def weights_of(self, counts: Tensor) -> Tensor | None:
        found, inner = super().weights_of(counts), self.base.weights_of(counts)
        return inner if found is None else found

    def observe(self, state: State, batch: Batch, logits: Tensor) -> State:
        return self.base.observe(state, batch, logits)

    def measured(self, state: State) -> Mapping[str, float | Tensor]:
        return self.base.measured(state)

    def remark(self, row: Mapping[str, float]) -> str | None:
        return self.base.remark(row)

    def overrides(self, hook: str) -> bool:
        if getattr(type(self), hook) is getattr(Wrapper, hook):  # forwarded
            return self.base.overrides(hook)
        return super().overrides(hook)

    def _refuse_base(self, hook: str, because: str) -> None:
        """Raise FieldError if the base, or a method it wraps, overrides `hook`."""
        base = self.base
        if base.overrides(hook):
            theirs = type(base).__name__
            mend = ""
            if isinstance(base, Wrapper):
                mend = f"Wrap {type(self).__name__} in {theirs} instead."
            raise FieldError("base", f"{theirs} {because}", mend)


@dataclass(frozen=True)
class AuxiliaryMethod(Wrapper, ABC):
    """Adds `weight` times a term to the loss of `base`; every other hook is the base's."""

    @property
    def fixes_scale(self) -> bool:
        """Its term is of probabilities."""
        return True

    def term(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The batch's unweighted term. logits: [N, K]. labels: [N] int64."""
        raise TypeError(f"{type(self).__name__} must override term (or loss).")

    def loss(self, logits: Tensor, targets: Tensor, progress: float | Tensor) -> Tensor:
        base = super().loss(logits, targets, progress)
        # A subclass that overrides loss calls this for the base's loss.
        if type(self).term is AuxiliaryMethod.term:
            return base
        if not isinstance(base, Tensor):
            check_loss(self.base, base)
        weight: float = self.weight  # type: ignore[attr-defined]  # subclasses declare the field
        term = self.term(logits, require_labels(self, targets))
        if not isinstance(term, Tensor):
            check_loss(self, term, ("term",))
        return base + weight * term

    def __post_init__(self) -> None:
        super().__post_init__()
        self._refuse_base("step", "overrides the training step; no term can be added to its loss")


def with_class_weights(method: Any, weights: Tensor) -> Any:
    """The method with these weights [K] of classes in its loss; a graph's tensor is filled."""
    made = copy.copy(method)
    if isinstance(made, Wrapper):
        object.__setattr__(made, "base", with_class_weights(made.base, weights))
    elif made._by_class is None:
        object.__setattr__(made, "_by_class", weights)
    else:
        made._by_class.copy_(weights)
    return made


def labelled(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """The rows [R, K] and labels [R] of the positions that have a label, which is not negative.

    logits: [N, K, ...]. targets: [N, ...] int64. Logits [N, K] and their targets are given back.
    """
    if logits.dim() == 2:
        return logits, targets
    there = targets >= 0
    return logits.movedim(1, -1)[there], targets[there]


def has_labels(targets: Tensor | Mixed) -> bool:
    """Whether any position of a batch has a label."""
    parts = (targets.first, targets.second) if isinstance(targets, Mixed) else (targets,)
    return any(bool((part >= 0).any()) for part in parts)


def require_labels(method: Method, targets: Tensor) -> Tensor:
    """The targets as labels [N]. Raises TypeError for soft ones, which the method lacks."""
    if targets.is_floating_point():
        raise TypeError(
            f"{type(method).__name__} needs labels [N], got soft targets {list(targets.shape)}."
        )
    return targets
