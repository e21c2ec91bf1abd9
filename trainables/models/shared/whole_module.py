"""A network of one's own that is one module: features are what comes before its last linear layer.

A small batch shows which layer that is, and that nothing comes after it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from trainables.model import Model, Network
from trainables.plugins import file_of, in_a_line, raised_at
from trainables.problems import FieldError, UserError

SAMPLES = 3  # batch norm trains on two or more
PARTED = "Return Network(features, head) from build()"
MEND = f"{PARTED}, or a module that ends in its last nn.Linear."
TAKES = "Return a module that takes such a batch and gives logits [N, K]."

# By model, its input shape and number of classes: the path of the layer that a batch has shown.
_known: dict[tuple[Model, tuple[int, ...], int], str] = {}


def network_of(model: Model, input_shape: Any, num_classes: int) -> Network:
    """The network that a model builds. A whole module is parted at its last linear layer.

    It draws the weights that `build` draws, and nothing else. Raises FieldError at `extensions`
    where a module cannot be parted.
    """
    where = file_of(type(model))
    try:
        built = model.build(input_shape, num_classes)
    except (Exception, SystemExit) as error:
        if isinstance(error, UserError | MemoryError) or (place := raised_at(error)) is None:
            raise
        raise FieldError("extensions", f"{place}: {in_a_line(error)}") from error
    if isinstance(built, Network):
        return built
    if not isinstance(built, nn.Module):
        found = f"{where}: build() gives {_kind(built)}, not an nn.Module"
        raise FieldError("extensions", found, f"{PARTED}, or an nn.Module.")
    key = (model, tuple(input_shape), num_classes)
    has_lazy = any(map(is_lazy, (*built.parameters(), *built.buffers())))
    known = None
    with suppress(TypeError):  # a setting that has no hash
        known = _known.get(key)
    if known is not None and not has_lazy:
        return _parted(built, known)
    try:
        path, network = _watched(built, _batch(input_shape), num_classes)
    except FieldError as error:
        found = error.found if error.path else f"{where}: {error.found}"
        raise FieldError("extensions", found, error.mend) from error.__cause__
    with suppress(TypeError):
        _known[key] = path
    return network


class Call(NamedTuple):
    """One call of a linear layer."""

    layer: nn.Linear
    output: Any


def _batch(input_shape: Any) -> Tensor:
    """Samples of this shape; of texts, numbers of words."""
    generator = torch.Generator().manual_seed(0)
    shape = (SAMPLES, *input_shape)
    if words := getattr(input_shape, "words", 0):
        return torch.randint(words, shape, generator=generator, dtype=torch.int32)
    return torch.randn(shape, generator=generator)


def _watched(module: nn.Module, batch: Tensor, classes: int) -> tuple[str, Network]:
    """The path of the last linear layer, and the parted network. Raises FieldError."""
    calls: list[Call] = []
    expected = {}
    hooks = [
        layer.register_forward_hook(lambda layer, _, output: calls.append(Call(layer, output)))
        for layer in module.modules()
        if isinstance(layer, nn.Linear)
    ]
    try:
        expected[False] = _output(module, batch, training=False)
        first = calls.copy()
        expected[True] = _output(module, batch, training=True)
    finally:
        for hook in hooks:
            hook.remove()
    _check_output(expected[False], classes, first)
    layer = first[-1].layer
    path = next(path for path, found in module.named_modules() if found is layer)
    _check_layer(module, layer, path, first)
    network = _parted(module, path)
    for training, output in expected.items():
        try:
            features = _output(network.features, batch, training)
        except FieldError as error:
            if _is_beside(layer, first, classes):
                found = f"more than its last linear layer, `{path}`, gives the logits"
                raise FieldError("", found, f"{PARTED}.") from error.__cause__
            why = in_a_line(error.__cause__ or error)
            found = f"fails without its last linear layer, `{path}`: {why}"
            raise FieldError("", found, MEND) from error.__cause__
        if not (isinstance(features, Tensor) and features.ndim == 2):
            found = f"gives features {_kind(features)}, not [N, D]{_when(training)}"
            raise FieldError("", found, MEND)
        with torch.no_grad():
            logits = network.head(features)
        if not _same(logits, output):
            found = f"does more than its last linear layer, `{path}`{_when(training)}"
            raise FieldError("", found, MEND)
    return path, network


def _is_beside(layer: nn.Linear, calls: list[Call], classes: int) -> bool:
    """Whether another linear layer gives [N, K] too, as of two heads that are added."""
    beside = (call.output for call in calls if call.layer is not layer)
    return any(isinstance(one, Tensor) and one.shape == (SAMPLES, classes) for one in beside)


def _parted(module: nn.Module, path: str) -> Network:
    """The module without the linear layer at the path, and that layer."""
    head = module.get_submodule(path)
    if head is module:
        return Network(nn.Identity(), head)
    paths = [path for path, found in module.named_modules(remove_duplicate=False) if found is head]
    for each in paths:
        module.set_submodule(each, nn.Identity())
    return Network(module, head)


def _output(module: nn.Module, batch: Tensor, training: bool) -> Any:
    """What the module gives, with nothing changed but parameters that were lazy."""
    with _undisturbed(module), torch.no_grad():
        module.train(training)
        if training:  # the same dropout, whole and parted
            torch.default_generator.manual_seed(0)
        try:
            return module(batch)
        except (Exception, SystemExit) as error:
            place = raised_at(error)
            if isinstance(error, SystemExit) and place is None:
                raise
            failed = f"its forward fails on a batch {list(batch.shape)}{_when(training)}"
            found = f"{failed}: {in_a_line(error)}"
            if place is not None:
                raise FieldError("extensions", f"{place}: {found}", TAKES) from error
            raise FieldError("", found, TAKES) from error


@contextmanager
def _undisturbed(module: nn.Module) -> Iterator[None]:
    """The random state, the modes and the buffers are afterwards as before."""
    state = torch.get_rng_state()
    modes = {each: each.training for each in module.modules()}
    buffers = {each: each.clone() for each in module.buffers() if not is_lazy(each)}
    try:
        yield
    finally:
        torch.set_rng_state(state)
        for each, training in modes.items():
            each.training = training
        with torch.no_grad():
            for buffer, before in buffers.items():
                buffer.copy_(before)


def _check_output(output: Any, classes: int, calls: list[Call]) -> None:
    """Raise FieldError unless it is the logits [N, K] of a linear layer."""
    if not isinstance(output, Tensor):
        found = f"its forward gives {_kind(output)}, not logits [N, {classes}]"
        raise FieldError("", found, f"{PARTED}, or a module whose forward gives the logits alone.")
    if output.shape != (SAMPLES, classes):
        found = f"its forward gives {_kind(output)} of {SAMPLES} samples, not [N, {classes}]"
        raise FieldError("", found, "Give its last layer num_classes outputs.")
    if not calls:
        raise FieldError("", "its forward calls no nn.Linear, so no head is found", f"{PARTED}.")
    last = calls[-1].output
    for name in ("softmax", "log_softmax"):
        if _same(getattr(torch, name)(last, -1), output):
            found = f"its forward gives the {name} of the logits"
            raise FieldError("", found, f"Leave the {name} out: losses and metrics take logits.")


def _check_layer(module: nn.Module, layer: nn.Linear, path: str, calls: list[Call]) -> None:
    """Raise FieldError if the last linear layer is called again, or shares its weights."""
    count = sum(call.layer is layer for call in calls)
    if count > 1:
        raise FieldError("", f"calls its last linear layer, `{path}`, {count} times", f"{PARTED}.")
    own = set(layer.parameters())
    for name, other in module.named_modules():
        if other is not layer and own & set(other.parameters(recurse=False)):
            found = f"shares the weights of its last linear layer, `{path}`, with `{name}`"
            raise FieldError("", found, f"{PARTED}, without shared weights.")


def _same(one: Any, other: Any) -> bool:
    """Whether two outputs are equal, but for the order of sums."""
    if not (isinstance(one, Tensor) and isinstance(other, Tensor)) or one.shape != other.shape:
        return False
    return torch.allclose(one, other, rtol=1e-5, atol=1e-6, equal_nan=True)


def _kind(found: Any) -> str:
    """The name of its type, or a tensor's shape."""
    return str(list(found.shape)) if isinstance(found, Tensor) else type(found).__name__


def _when(training: bool) -> str:
    return ", in training mode" if training else ""
