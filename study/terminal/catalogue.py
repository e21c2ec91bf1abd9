"""`calstudy list`."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from rich.console import Console
from rich.text import Text

from search_spaces.space import to_plain as entry_to_plain
from trainables import data, methods, metrics, models
from trainables.fields import Settings


def catalogue(kind: str) -> list[dict[str, Any]]:
    """Rows of `calstudy list KIND`, as plain values."""
    if kind == "metrics":
        return [{"name": name, "summary": _summary(metrics.find(name), name)} for name in metrics.names()]
    if kind == "spaces":
        return list(_spaces())
    package = {"methods": methods, "datasets": data, "models": models}[kind]
    return [_described(name, package.find(name)) for name in package.names()]


def _summary(thing: Any, name: str) -> str:
    text = (inspect.getdoc(thing) or "").splitlines()[0]
    after = name.startswith(metrics.AFTER_TEMPERATURE)
    return f"after cross-fitted temperature scaling: {name.removeprefix(metrics.AFTER_TEMPERATURE)}" if after else text


def _described(name: str, cls: type[Settings]) -> dict[str, Any]:
    module = inspect.getmodule(cls)
    return {
        "name": name,
        "summary": (inspect.getdoc(module) or inspect.getdoc(cls) or "").splitlines()[0],
        "settings": [_setting(cls, spec) for spec in fields(cls)],
    }


def _setting(cls: type[Settings], spec: Any) -> dict[str, Any]:
    from study.schema.explain import default_text

    bounds, choices = spec.metadata.get("range"), spec.metadata.get("choices")
    return {
        "name": spec.name,
        "default": default_text(spec),
        "valid": str(bounds) if bounds is not None else " | ".join(choices or ()),
        "doc": spec.metadata.get("doc", ""),
    }


def _spaces() -> Iterable[dict[str, Any]]:
    from search_spaces import space

    for name in space.names():
        found = space.find_space(name, [])
        yield {
            "name": name,
            "summary": found.source,
            "space": {path: entry_to_plain(entry) for path, entry in found.space.items()},
            "defaults": [default.to_plain() for default in found.defaults],
        }


def print_catalogue(console: Console, kind: str, rows: list[dict[str, Any]]) -> None:
    """Print `calstudy list KIND`."""
    for row in rows:
        console.print(Text.assemble((row["name"], "bold"), "  ", row["summary"]))
        for setting in row.get("settings", ()):
            valid = f"  ({setting['valid']})" if setting["valid"] else ""
            console.print(
                Text.assemble(f"    {setting['name']} = {setting['default']}{valid}  ", (setting["doc"], "dim"))
            )
        for path, entry in row.get("space", {}).items():
            console.print(f"    {path}: {entry}")
        for default in row.get("defaults", ()):
            whose = ", ".join(default.pop(key) for key in ("status", "by") if key in default)
            text = f"{default}  ({whose})" if default else "the settings of the study"
            console.print(Text.assemble("    ", ("tried first: ", "dim"), text))
