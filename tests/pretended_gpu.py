"""A GPU that is only pretended: its tensors have shapes and types, and no values.

They are tensors of PyTorch's `meta` device that say they are on a GPU. An operation between the GPU
and the host is refused, as on a real one; what is copied to the host or read there is noted, and
comes as zeros. Tensors of the host are real.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

GPU, META, HOST = torch.device("cuda:0"), torch.device("meta"), torch.device("cpu")
# They read values of the device; what they give instead.
READS: dict[str, Any] = {"_local_scalar_dense": 0.0, "is_nonzero": False, "equal": False}
# They take part in an operation on the GPU from where they are.
COPIES = ("copy_", "_to_copy", "index", "index_put_", "lift_fresh")


class OnGpu(Tensor):
    """A tensor of the pretended GPU."""

    device = property(lambda self: GPU)  # type: ignore[assignment]
    is_cuda = property(lambda self: True)  # type: ignore[assignment]
    is_meta = property(lambda self: False)  # type: ignore[assignment]


class Moved(TorchFunctionMode):
    """Makes what is asked of the GPU on `meta`."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        def there(value: Any) -> Any:
            return META if isinstance(value, torch.device) and value.type == "cuda" else value

        if func is torch.device:
            return func(*args, **(kwargs or {}))
        kwargs = {name: there(value) for name, value in (kwargs or {}).items()}
        kwargs.pop("pin_memory", None)
        result = func(*map(there, args), **kwargs)
        return tree_map(_where_it_is, result)


def _where_it_is(value: Any) -> Any:
    if isinstance(value, OnGpu) and not _is_meta(value):  # a copy
        return _plain(value)
    if type(value) is Tensor and Tensor.is_meta.__get__(value):  # type: ignore[attr-defined]
        return value.as_subclass(OnGpu)
    return value


class Watched(TorchDispatchMode):
    """reads: what the host had to wait for. mixed: operations between the GPU and the host."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[str] = []
        self.mixed: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        given = [each for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)]
        on_gpu = [each for each in given if _is_meta(each)]
        if not on_gpu:
            return func(*args, **kwargs)
        if name in READS:
            self.reads.append(name)
            return READS[name]
        if name == "_to_copy" and kwargs.get("device") == HOST:
            self.reads.append(name)
            return torch.zeros(args[0].shape, dtype=kwargs.get("dtype") or args[0].dtype)
        if name == "copy_" and not _is_meta(args[0]):
            if not kwargs.get("non_blocking") and True not in args[2:]:
                self.reads.append(name)
            return args[0].zero_()
        if name not in COPIES and any(not _is_meta(each) and each.dim() for each in given):
            self.mixed.append(name)
        # PyTorch's own Python code asks them for their device.
        args, kwargs = tree_map(_plain, (args, kwargs))
        return func(*args, **kwargs)


def _plain(value: Any) -> Any:
    return value.as_subclass(Tensor) if isinstance(value, OnGpu) else value


def _is_meta(tensor: Tensor) -> bool:
    return bool(Tensor.is_meta.__get__(tensor))  # type: ignore[attr-defined]


@contextmanager
def pretended_gpu(memory: int = 2**36) -> Iterator[Watched]:
    """A process with one GPU, GPU, of so many bytes; streams and events do nothing."""
    properties = SimpleNamespace(total_memory=memory)
    event = SimpleNamespace(synchronize=lambda: None, record=lambda: None)
    stream = SimpleNamespace(record_event=lambda: event)
    stands_in: dict[str, Callable[..., Any]] = {
        "torch.cuda.get_device_properties": lambda device=None: properties,
        "torch.cuda.get_device_name": lambda device=None: "pretended",
        "torch.cuda.get_per_process_memory_fraction": lambda: 1.0,
        "torch.cuda.current_stream": lambda device=None: stream,
        "torch.cuda.Event": lambda: event,
        "torch.cuda.manual_seed": lambda seed: None,
        "torch.random.fork_rng": lambda devices: nullcontext(),
        "trainables.training.program._beside": lambda device: nullcontext(),
    }
    patches = [patch(name, stand_in) for name, stand_in in stands_in.items()]
    for each in patches:
        each.start()
    try:
        with Moved(), Watched() as watched:
            yield watched
    finally:
        for each in patches:
            each.stop()
