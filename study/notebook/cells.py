"""Networks, losses and metrics that are defined in a cell: their source becomes an extension.

A study trains in other processes, which have no notebook: what it uses must stand in a file. The
file has the definition, and what it uses of the notebook: imports, other definitions, plain values.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import linecache
import re
import symtable
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

from study.schema.errors import SpecError
from study.store.study import EXTENSIONS
from trainables.files.atomic import write_whole
from trainables.own_class import is_module
from trainables.plugins import class_name
from trainables.problems import FieldError

GIVEN = {"num_classes": "num_classes", "classes": "num_classes", "input_shape": "input_shape"}
GIVEN |= dict.fromkeys(("channels", "in_channels"), "input_shape[0]")
OURS = "from dataclasses import dataclass as _dataclass\n"
LOSS = OURS + "from trainables import Method as _Method, require_labels as _labels\n"
NETWORK = OURS + "from trainables import Model as _Model\n"


class Cells(NamedTuple):
    """keys: a study's, with names in place of definitions. files: the text of each, by its path in
    an extensions folder: `models/net.py`."""

    keys: dict[str, Any]
    files: dict[str, str]


def is_definition(value: Any) -> bool:
    return isinstance(value, type | FunctionType)


def cells_of(keys: Mapping[str, Any]) -> Cells:
    """Raises FieldError for a definition that no file can hold."""
    files: dict[str, str] = {}

    def named(value: Any, path: str, folder: str, **more: Any) -> str:
        name = snake_case(value.__name__)
        try:
            files[f"{folder}/{name}.py"] = WRITERS[folder](value, name, **more)
        except FieldError as error:
            raise error.at(path) from None
        return name

    def entry(value: Any, path: str, key: str, folder: str) -> Any:
        if is_definition(value):
            return named(value, path, folder)
        if isinstance(value, Mapping) and is_definition(value.get(key)):
            more = {"better": value.get("direction")} if folder == "metrics" else {}
            return {**value, key: named(value[key], f"{path}.{key}", folder, **more)}
        return value

    found = dict(keys)
    if "model" in found:
        found["model"] = entry(found["model"], "model", "name", "models")
    for where, key, folder in (("methods", "name", "methods"), ("objectives", "metric", "metrics")):
        if isinstance(found.get(where), list | tuple):
            found[where] = [
                entry(value, f"{where}[{place}]", key, folder)
                for place, value in enumerate(found[where])
            ]
    matters = found.get("matters")
    for name in (Path(file).stem for file in files if file.startswith("metrics/")):
        if not isinstance(matters, Mapping) or name not in matters:
            what = f"is missing: {name} does not say which difference matters"
            mend = f"Write matters={{'{name}': 0.01}}: the smallest difference you would act on."
            raise FieldError(f"matters.{name}", what, mend)
    return Cells(found, files)


def keep(files: Mapping[str, str], directory: Path) -> list[str]:
    """Write the files into the study's extensions; the lines that say so. Raises SpecError for one
    that a study that has begun has with another text."""
    folder = directory / EXTENSIONS
    was = {
        name: (folder / name).read_text(encoding="utf-8")
        for name in files
        if (folder / name).is_file()
    }
    changed = [name for name, text in files.items() if was.get(name) != text]
    if (directory / "study.yaml").exists():
        for name in (name for name in changed if name in was):
            raise SpecError(
                "",
                "extensions",
                f"{name} is not what the study '{directory.name}' has begun with",
                "Restore the definition, give it another name, or give the study another name.",
            )
    write({name: files[name] for name in changed}, folder)
    return [f"the source of {name} is kept in {folder}" for name in changed]


def write(files: Mapping[str, str], folder: Path) -> None:
    """Write the files into an extensions folder."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write_whole(folder / name, text.encode())


def snake_case(name: str) -> str:
    """The name of a class's file: `MyNet` is of `my_net`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


# ---- the files -----------------------------------------------------------------------------------


def _network(value: Any, name: str) -> str:
    wanted = class_name(name)
    if not isinstance(value, type):
        raise FieldError("", f"is the function {value.__name__}", "Give the network's class.")
    if not is_module(value):
        _check_is("Model", value, "Give a Model, or an nn.Module.")
        return _called(source_of(value), value.__name__, wanted)
    text = source_of(value)
    if value.__name__ in _globals_in(_text_of(value)):
        raise FieldError("", f"{value.__name__} uses its own name", "Write super(), type(self).")
    return (
        f"{text}\n\n_net = {value.__name__}\n{NETWORK}\n\n@_dataclass(frozen=True)\n"
        f"class {wanted}(_Model):\n    def build(self, input_shape, num_classes):\n"
        f"        return _net({_arguments(value)})\n"
    )


def _arguments(network: type) -> str:
    """What its __init__ is called with. Raises FieldError for what a study does not know."""
    passed = []
    for one in list(inspect.signature(network).parameters.values()):
        if one.name in GIVEN:
            passed.append(f"{one.name}={GIVEN[one.name]}")
        elif one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD):
            known = ", ".join(GIVEN)
            mend = f"Give it a default. A study knows {known}."
            raise FieldError("", f"{network.__name__} asks for '{one.name}'", mend)
    return ", ".join(passed)


def _method(value: Any, name: str) -> str:
    wanted = class_name(name)
    if isinstance(value, type):
        _check_is("Method", value, "Give a Method, or a function of logits and labels.")
        return _called(source_of(value), value.__name__, wanted)
    return (
        f"{source_of(value)}\n\n_loss = {value.__name__}\n{LOSS}\n\n@_dataclass(frozen=True)\n"
        f"class {wanted}(_Method):\n    def loss(self, logits, targets, progress):\n"
        f"        return _loss(logits, _labels(self, targets))\n"
    )


def _metric(value: Any, name: str, better: str | None = None) -> str:
    if isinstance(value, type):
        raise FieldError("", f"is the class {value.__name__}", "Give a function of logits, labels.")
    side = "higher" if better == "maximize" else "lower"
    row = {"function": value.__name__, "better": side}
    return f"{source_of(value)}\n\nMETRICS = {{{name!r}: {row!r}}}\n"


WRITERS = {"models": _network, "methods": _method, "metrics": _metric}


def _check_is(base: str, value: type, mend: str) -> None:
    if base not in [each.__name__ for each in value.__mro__[1:]]:
        raise FieldError("", f"{value.__name__} is no {base}", mend)


def _called(text: str, name: str, wanted: str) -> str:
    """With the class under the name that its file asks for."""
    return text if name == wanted else f"{text}\n\n{wanted} = {name}\n"


# ---- the source ----------------------------------------------------------------------------------


def source_of(value: Any) -> str:
    """A definition with what it uses, so that a file can hold it. Raises FieldError."""
    imports: dict[str, None] = {}
    parts: dict[str, str] = {}
    _collect(value, value.__name__, imports, parts)
    return "\n\n\n".join(filter(None, ["\n".join(imports), *parts.values()])) + "\n"


def _collect(value: Any, name: str, imports: dict[str, None], parts: dict[str, str]) -> None:
    """Add a definition, below what it uses."""
    text = _text_of(value)
    names = vars(sys.modules[value.__module__])
    parts[name] = ""  # begun: it may name itself
    for used in _globals_in(text):
        if used in parts or hasattr(builtins, used):
            continue
        if used not in names:
            raise FieldError("", f"{name} uses '{used}', which is not defined", "Define it.")
        found = names[used]
        if is_definition(found) and found.__module__ == value.__module__:
            _collect(found, used, imports, parts)
        elif line := _import_of(found, used):
            imports[line] = None
        elif _is_plain(found):
            parts[used] = f"{used} = {found!r}"
        else:
            raise FieldError(
                "",
                f"{name} uses '{used}', a {type(found).__name__}, which its source does not have",
                f"Define {used} inside {name}.",
            )
    del parts[name]
    parts[name] = text


def _text_of(value: Any) -> str:
    """Its own source, decorators included: of a class by one of its functions, since Python finds
    that of no class in a notebook."""
    functions = [value] if isinstance(value, FunctionType) else _functions_of(value)
    for code in (function.__code__ for function in functions):
        lines = linecache.getlines(code.co_filename)
        for node in ast.walk(ast.parse("".join(lines))) if lines else ():
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == value.__name__:
                first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
                if first <= code.co_firstlineno <= (node.end_lineno or 0):
                    return inspect.cleandoc("\n" + "".join(lines[first - 1 : node.end_lineno]))
    mend = "Define it in a cell or a file, not at a prompt."
    if value.__name__ == "<lambda>":
        mend = "Define it with `def`: its name is that of the method or metric."
    raise FieldError("", f"the source of {value.__name__} cannot be found", mend)


def _functions_of(value: type) -> list[FunctionType]:
    own = [each for each in vars(value).values() if isinstance(each, FunctionType)]
    return [each for each in own if each.__code__.co_filename != "<string>"]  # a dataclass's


def _globals_in(text: str) -> list[str]:
    """The names that a definition takes from around it, in order."""

    def within(table: symtable.SymbolTable) -> Iterator[str]:
        for symbol in table.get_symbols():
            at_top = table.get_type() == "module" and not symbol.is_assigned()
            if symbol.is_referenced() and (at_top or symbol.is_global()):
                yield symbol.get_name()
        for child in table.get_children():
            yield from within(child)

    return list(dict.fromkeys(within(symtable.symtable(text, "cell", "exec"))))


def _import_of(found: Any, used: str) -> str:
    """The line that imports it; empty if no module has it."""
    if isinstance(found, ModuleType):
        return f"import {found.__name__}" + _renamed(found.__name__, used)
    module = str(getattr(found, "__module__", None))
    name = str(getattr(found, "__name__", None))
    owner = sys.modules.get(module)
    if module == "__main__" or owner is None or getattr(owner, name, None) is not found:
        return ""
    return f"from {module} import {name}" + _renamed(name, used)


def _renamed(name: str, used: str) -> str:
    return "" if name == used else f" as {used}"


def _is_plain(found: Any) -> bool:
    """Whether its text in Python is itself."""
    try:
        return bool(ast.literal_eval(repr(found)) == found)
    except (ValueError, SyntaxError):
        return False
