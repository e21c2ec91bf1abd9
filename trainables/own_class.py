"""The class of an extension's file: there, of its kind, declared as it must be, its hooks callable.

Mistakes that Python notices late, or never, are said where the class is found.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import Field
from types import ModuleType
from typing import Any

from trainables.problems import FieldError

LOADED = "calstudy_extensions."  # what the modules of an extensions folder are called
MODULE = "torch.nn.modules.module.Module"
BASES = {"method": "Method", "model": "Model", "dataset": "Dataset"}


def file_in(module: str) -> str:
    """The file of a module of an extensions folder."""
    return f"{module.removeprefix(LOADED).replace('.', '/')}.py"


def place_of(function: Any) -> str | None:
    """Where a function of an extensions folder begins: `methods/mine.py, line 12, in loss`."""
    code = getattr(function, "__code__", None)
    module = str(getattr(function, "__module__", None))
    # Python itself writes a dataclass's methods.
    if code is None or code.co_filename == "<string>" or not module.startswith(LOADED):
        return None
    return f"{file_in(module)}, line {code.co_firstlineno}, in {code.co_name}"


def own_class(module: ModuleType, where: str, kind: str, name: str) -> type:
    """The class `name` of a file at `where`. Raises FieldError at `extensions`."""
    base = BASES[kind]
    example = f"@dataclass(frozen=True) class {name}({base}): ..."
    found = getattr(module, name, None)
    if not isinstance(found, type):
        has = "".join(f"; it has {_shown(one)}" for one in _defined(module))
        mend = f"Write {example}{_with_build(kind, _defined(module))}"
        raise FieldError("extensions", f"{where}: it must define the class {name}{has}", mend)
    if is_module(found) and base not in (one.__name__ for one in found.__mro__[1:]):
        problem = f"{where}: {_shown(found)} is no {base}"
        mend = f"Write {example}{_with_build(kind, [found])}"
        raise FieldError("extensions", problem, mend)
    init = place_of(vars(found).get("__init__"))
    if init is not None:
        mend = f"Write {example}, with a field for each value, such as `width: int = 64`."
        raise FieldError("extensions", f"{init}: {name} has an __init__ of its own", mend)
    if declared := _undecorated(found):
        problem = f"{where}: {name} declares {', '.join(declared)}, but is no dataclass"
        raise FieldError("extensions", problem, f"Write {example}")
    for hook, function in vars(found).items():
        if inspect.isfunction(function) and not hook.startswith("_"):
            _check_hook(found, hook, function)
    return found


def _defined(module: ModuleType) -> list[type]:
    """The classes that the file itself defines."""
    values = vars(module).values()
    return [one for one in values if isinstance(one, type) and one.__module__ == module.__name__]


def _shown(cls: type) -> str:
    return f"the nn.Module {cls.__name__}" if is_module(cls) else f"the class {cls.__name__}"


def is_module(cls: type) -> bool:
    """Whether it is an nn.Module, without importing torch."""
    return any(f"{one.__module__}.{one.__name__}" == MODULE for one in cls.__mro__)


def _with_build(kind: str, classes: list[type]) -> str:
    """What returns a network, if the file has one."""
    if kind == "model" and any(map(is_module, classes)):
        return " with a build(self, input_shape, num_classes) that returns the nn.Module."
    return ""


def _undecorated(cls: type) -> list[str]:
    """The fields that a class declares without being a dataclass itself."""
    if "__dataclass_params__" in vars(cls):
        return []
    made = [name for name, value in vars(cls).items() if isinstance(value, Field)]
    return list(dict.fromkeys([*made, *_annotated(cls)]))


def _annotated(cls: type) -> Iterator[str]:
    """The names with a type, but for those that a base has."""
    for name, annotation in vars(cls).get("__annotations__", {}).items():
        inherited = any(hasattr(base, name) for base in cls.__bases__)
        if "ClassVar" not in str(annotation) and not inherited:
            yield name


def _check_hook(cls: type, hook: str, function: Callable[..., Any]) -> None:
    """Raise FieldError if a hook does not take what calstudy passes to it."""
    ours = next((vars(one)[hook] for one in cls.__mro__[1:] if hook in vars(one)), None)
    if not inspect.isfunction(ours) or not ours.__module__.startswith("trainables."):
        return
    passed = [
        one.name
        for one in inspect.signature(ours).parameters.values()
        if one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD
    ]
    signature = inspect.signature(function)
    try:
        signature.bind(*passed)
    except TypeError:
        names = ", ".join(signature.parameters)
        found = f"takes ({names}), but calstudy passes ({', '.join(passed[1:])})"
        mend = f"Write def {hook}({', '.join(passed)})."
        place = place_of(function) or cls.__name__
        raise FieldError("extensions", f"{place}: {found}", mend) from None
