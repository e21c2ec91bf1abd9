"""The numbers of settings, and tensors in their place: a step reads them on the device."""

import copy
from collections.abc import Iterator
from dataclasses import fields
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from trainables.fields import Settings


def with_tensors(settings: Settings, device: torch.device) -> Any:
    """The settings with each float, also of a base, a 0-dimensional tensor on the device."""
    found = (torch.tensor(value, dtype=torch.float32, device=device) for value in numbers(settings))
    return with_numbers(settings, found)


def numbers(settings: Settings) -> Iterator[Any]:
    """Each float of the settings, also of a base, or the tensor that is in its place."""
    for spec in fields(settings):
        value = getattr(settings, spec.name)
        if isinstance(value, Settings):
            yield from numbers(value)
        elif isinstance(value, float | Tensor):
            yield value


def with_numbers(settings: Settings, tensors: Iterator[Tensor]) -> Any:
    """The settings with these in place of their floats."""
    made = copy.copy(settings)
    for name in list(vars(made)):
        if isinstance(getattr(type(made), name, None), cached_property):
            del vars(made)[name]  # computed from the numbers
    for spec in fields(settings):
        value = getattr(settings, spec.name)
        if isinstance(value, Settings):
            value = with_numbers(value, tensors)
        elif isinstance(value, float):
            value = next(tensors)
        object.__setattr__(made, spec.name, value)
    return made
