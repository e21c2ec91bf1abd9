"""`calstudy list`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import MISSING, Field
from typing import Any

from rich.console import Console
from rich.text import Text

from search_spaces import strict_yaml
from search_spaces.space import to_plain as entry_to_plain
from trainables import data, methods, metrics, models
from trainables.declarations import Declarations, declarations
from trainables.plugins import class_name, extension_folder, in_a_line, own_stems
from trainables.problems import FieldError

Row = dict[str, Any]  # of `calstudy list`, as JSON has it


def catalogue(kind: str) -> list[Row]:
    """Rows of `calstudy list KIND`, as plain values, read from the files: torch loads slowly."""
    if kind == "metrics":
        metrics.check_own()
        return [{"name": name, "summary": _summary(name)} for name in metrics.names()]
    if kind == "spaces":
        return list(_spaces())
    package = {"methods": methods, "datasets": data, "models": models}[kind]
    return [_described(package.__name__, name) for name in package.names()]


def _summary(name: str) -> str:
    plain = name.removeprefix(metrics.AFTER_TEMPERATURE)
    if plain != name:
        return f"after cross-fitted temperature scaling: {plain}"
    metric = metrics.describe(name)
    return _declared(metrics.__name__, metric.family).summary(metric.function)


def _declared(package: str, name: str) -> Declarations:
    """What the file of a name declares, ours or of the extensions folder in use."""
    short = package.rpartition(".")[2]
    folder = extension_folder(short)
    if folder is None or name not in own_stems(folder):
        return declarations(f"{package}.{name}")
    try:
        return Declarations(f"{short}.{name}", folder / f"{name}.py")
    except (SyntaxError, ValueError) as error:
        raise FieldError("extensions", f"{short}/{name}.py: {in_a_line(error)}") from None


def _described(package: str, name: str) -> Row:
    found = _declared(package, name)
    own = class_name(name)
    settings = [_setting(spec) for spec in found.fields(own).values()]
    return {"name": name, "summary": found.summary() or found.summary(own), "settings": settings}


def _setting(spec: Field[Any]) -> Row:
    bounds = spec.metadata.get("range")
    choices = spec.metadata.get("choices") or ()
    if words := spec.metadata.get("words"):
        choices = (*words, "FILE")
    if word := spec.metadata.get("word"):
        choices = (word, f"[{spec.metadata['each']}, ..]")
    return {
        "name": spec.name,
        "default": _default(spec),
        "valid": " | ".join(choices) if bounds is None else str(bounds),
        "doc": spec.metadata.get("doc", ""),
    }


def _default(spec: Field[Any]) -> str:
    if spec.default is not MISSING:
        return strict_yaml.one_line(spec.default)
    if spec.default_factory is MISSING:
        return "required"
    return strict_yaml.one_line(spec.default_factory())


def _spaces() -> Iterable[Row]:
    from search_spaces import space

    for name in space.names():
        found = space.find_space(name, [])
        yield {
            "name": name,
            "summary": found.source,
            "space": {path: entry_to_plain(entry) for path, entry in found.space.items()},
            "defaults": [default.to_plain() for default in found.defaults],
        }


def print_catalogue(console: Console, kind: str, rows: list[Row]) -> None:
    """Print `calstudy list KIND`."""
    for row in rows:
        console.print(Text.assemble((row["name"], "bold"), "  ", row["summary"]))
        for setting in row.get("settings", ()):
            valid = f"  ({setting['valid']})" if setting["valid"] else ""
            text = f"    {setting['name']} = {setting['default']}{valid}  "
            console.print(Text.assemble(text, (setting["doc"], "dim")))
        for path, entry in row.get("space", {}).items():
            console.print(f"    {path}: {entry}")
        for default in row.get("defaults", ()):
            whose = ", ".join(default.pop(key) for key in ("status", "by") if key in default)
            text = f"{default}  ({whose})" if default else "the settings of the study"
            console.print(Text.assemble("    ", ("tried first: ", "dim"), text))
