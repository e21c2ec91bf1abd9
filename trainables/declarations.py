"""Settings and summaries of a file's classes, without importing it: torch takes seconds.

Fields are evaluated as Python evaluates them; a name they use is looked up where it is defined.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
from dataclasses import Field, field
from functools import cache
from pathlib import Path
from typing import Any


class Declarations:
    """The classes, functions and constants of a module: one of ours, or a file of one's own."""

    def __init__(self, module: str, file: Path | None = None) -> None:
        if file is None:
            spec = importlib.util.find_spec(module)  # imports its package alone, which is light
            assert spec is not None and spec.origin is not None
            file = Path(spec.origin)
        self.module = module
        self._tree = ast.parse(file.read_text(encoding="utf-8"), str(file))
        self._imported: dict[str, tuple[str, str]] = {}
        self._defined: dict[str, ast.AST] = {}
        for node in self._tree.body:
            match node:
                case ast.ImportFrom(module=str(source), names=names):
                    self._imported |= {
                        alias.asname or alias.name: (source, alias.name) for alias in names
                    }
                case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                    self._defined[name] = node
                case ast.Assign([ast.Name(name)], value) | ast.AnnAssign(
                    ast.Name(name), _, ast.expr() as value
                ):
                    self._defined[name] = value

    def summary(self, name: str | None = None) -> str:
        """The first line of the docstring of the module, or of what is defined under that name."""
        node = self._tree if name is None else self._defined.get(name)
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            return ""
        return (ast.get_docstring(node) or "").partition("\n")[0]

    def fields(self, name: str) -> dict[str, Field[Any]]:
        """A class's dataclass fields, inherited first; a nested method's default is its name."""
        if name in self._imported:
            source, original = self._imported[name]
            if not _is_read(source):
                return {}
            return declarations(source).fields(original)
        node = self._defined.get(name)
        if not isinstance(node, ast.ClassDef):
            return {}
        found: dict[str, Field[Any]] = {}
        for base in reversed(node.bases):
            if isinstance(base, ast.Name):
                found |= self.fields(base.id)
        for line in node.body:
            match line:
                case ast.AnnAssign(ast.Name(name), annotation, value) if (
                    "ClassVar" not in ast.unparse(annotation)
                ):
                    found[name] = self._field(name, value)
        return found

    def _field(self, name: str, value: ast.expr | None) -> Field[Any]:
        made = field() if value is None else self._value(value)
        if not isinstance(made, Field):
            made = field(default=made)
        made.name = name
        return made

    def _value(self, expression: ast.expr) -> Any:
        used = {node.id for node in ast.walk(expression) if isinstance(node, ast.Name)}
        known = {name: self._named(name) for name in used & {*self._imported, *self._defined}}
        # A file of ours.
        return eval(compile(ast.Expression(expression), self.module, "eval"), known)

    def _named(self, name: str) -> Any:
        """The value of a name in the module; a class is a function that returns its file's name."""
        if name in self._imported:
            source, original = self._imported[name]
            if _is_read(source):
                return declarations(source)._named(original)
            return getattr(importlib.import_module(source), original)
        node = self._defined[name]
        if isinstance(node, ast.expr):
            return self._value(node)
        return lambda: self.module.rpartition(".")[2]


def _is_read(module: str) -> bool:
    """The module is ours and may import torch; trainables.fields, which makes fields, is light."""
    return module.startswith("trainables.") and module != "trainables.fields"


@cache
def declarations(module: str) -> Declarations:
    """The declarations of a module by its name: `trainables.methods.focal`."""
    return Declarations(module)
