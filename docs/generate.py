"""Writes docs/reference and the schema of study files anew, from the types, the docstrings and
`--help`: `make reference`.

A test compares what is there. python.md is written by hand: mkdocstrings fills it in.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import yaml

from study.cli import GROUPS, calstudy
from study.schema.json_schema import json_schema
from trainables import metrics

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "docs" / "reference"
MADE = "<!-- `make reference` writes this page from the code. Edit the code instead. -->"

Schema = dict[str, Any]


def pages() -> dict[str, str]:
    """Each generated page by file name."""
    schema = json_schema()
    bodies = {
        "commands.md": _commands(),
        "keys.md": _keys(schema),
        "methods.md": _methods(schema),
        "metrics.md": _metrics(),
        "data.md": _entries(schema, "dataset", "trainables.data", "Look up a data set"),
        "networks.md": _entries(schema, "model", "trainables.models", "Look up a network"),
    }
    return {name: f"{MADE}\n\n{text.strip()}\n" for name, text in bodies.items()}


def _commands() -> str:
    """Every command: what it does, and its options."""
    settings = {**calstudy.context_settings, "info_name": "calstudy", "terminal_width": 100}
    with click.Context(calstudy, **settings) as group:
        parts = ["# Look up a command", f"```\n$ calstudy --help\n{_help(group)}\n```"]
        for title, names in GROUPS.items():
            parts.append(f"## {title}")
            for name in names:
                command = calstudy.get_command(group, name)
                assert command is not None
                with click.Context(command, group, name, terminal_width=100) as context:
                    parts.append(f"### calstudy {name}\n\n```\n{_help(context)}\n```")
    return "\n\n".join(parts)


def _help(context: click.Context) -> str:
    return "\n".join(line.rstrip() for line in context.get_help().splitlines())


def _keys(schema: Schema) -> str:
    """Every key of a study file; those inside a mapping as `optimizer.lr`."""
    rows = [*_rows(schema, "", set(schema["required"]))]
    return (
        "# Look up a key of a study\n\n`calstudy plan --schema` prints the JSON schema, with which"
        " an editor completes and checks them.\n\n"
        + _table(("key", "type", "default", "meaning"), rows)
    )


def _rows(schema: Schema, prefix: str, needed: set[str]) -> Iterator[tuple[str, ...]]:
    for name, found in schema.get("properties", {}).items():
        if name == "name" and "const" in found:
            continue
        default = "required" if name in needed else _default(found)
        meaning = _plain(found.get("description", ""))
        yield f"`{prefix}{name}`", _type(found), default, meaning
        yield from _rows(found, f"{prefix}{name}.", set())


def _type(found: Schema) -> str:
    if "$ref" in found:
        return "name or mapping"
    if choices := found.get("enum"):
        return " or ".join(f"`{json.dumps(one).strip(chr(34))}`" for one in choices)
    if several := found.get("anyOf") or found.get("oneOf"):
        return " or ".join(dict.fromkeys(_type(one) for one in several))
    kinds = found.get("type", "any")
    return " or ".join([kinds] if isinstance(kinds, str) else kinds)


def _default(found: Schema) -> str:
    return f"`{json.dumps(found['default']).strip(chr(34))}`" if "default" in found else ""


def _methods(schema: Schema) -> str:
    """Every method: its docstrings, its settings, and what a study searches of it."""
    found = _entries(schema, "method", "trainables.methods", "Look up a method")
    parts = re.split(r"(?=^## )", found, flags=re.MULTILINE)
    for place, part in enumerate(parts[1:], 1):
        name = part.splitlines()[0].removeprefix("## ").strip()
        space = yaml.safe_load((ROOT / "search_spaces" / f"{name}.yaml").read_text())
        parts[place] = f"{part.strip()}\n\n{_space(space)}\n\n"
    return "".join(parts)


def _space(space: dict[str, Any]) -> str:
    """What is searched, and the settings that are tried first."""
    ranges = space.get("space") or {}
    searched = [(f"`{key}`", f"`{_flow(each)}`") for key, each in ranges.items()]
    lines = []
    for setting in space.get("defaults") or ():
        by = f", {setting['by']}" if "by" in setting else ""
        values = {key: each for key, each in setting.items() if key not in ("status", "by")}
        if values:
            lines.append(f"- `{_flow(values)}`: {setting['status']}{by}")
    parts = [
        _table(("searched", "over"), searched) if searched else "Nothing is searched.",
        "\n".join(lines),
        f"Source: {_plain(space['source'])}.",
    ]
    return "\n\n".join(filter(None, parts))


def _flow(values: object) -> str:
    return yaml.safe_dump(values, default_flow_style=True, width=1000).strip().removesuffix("...")


def _entries(schema: Schema, kind: str, package: str, title: str) -> str:
    """Every name of a kind: its docstrings, and its settings but for those that all share."""
    entries = [
        each
        for each in schema["definitions"][kind]["anyOf"]
        if "name" in each.get("properties", {})
    ]
    entries = [each for each in entries if "const" in each["properties"]["name"]]
    shared = set.intersection(*(set(each["properties"]) for each in entries))
    common = {key: each for key, each in entries[0]["properties"].items() if key in shared}
    rows = [*_rows({"properties": common}, "", set())]
    parts = [f"# {title}"]
    if rows:
        parts += [
            "Each has these settings:",
            _table(("setting", "type", "default", "meaning"), rows),
        ]
    for entry in entries:
        name = entry["properties"]["name"]["const"]
        own = {key: each for key, each in entry["properties"].items() if key not in shared}
        parts += [f"## {name}", *_docstrings(ROOT / package.replace(".", "/") / f"{name}.py")]
        needed = set(entry.get("required", ()))
        if rows := [*_rows({"properties": own}, "", needed)]:
            parts.append(_table(("setting", "type", "default", "meaning"), rows))
    return "\n\n".join(parts) + "\n\n"


def _docstrings(file: Path) -> Iterator[str]:
    """Of the file, and of the class that it is named after."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    name = file.stem.replace("_", "")
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    for node in (tree, *(each for each in classes if each.name.lower() == name)):
        if text := ast.get_docstring(node):
            yield _paragraphs(text)


def _metrics() -> str:
    """Every metric: what it is, which direction is better, and what of it matters."""
    found = metrics.ours()
    rows = [
        (
            f"[`{each.name}`](#{each.name})",
            {"lower": "lower", "higher": "higher"}.get(each.better or "", "neither"),
            "every trial" if each.stored else "on request",
            "" if each.matters is None else str(each.matters),
        )
        for each in found.values()
    ]
    parts = [
        "# Look up a metric",
        _paragraphs(inspect.getdoc(metrics) or "").partition("\n\nEach file starts")[0],
        _table(("metric", "better", "stored", "smallest difference that matters"), rows),
    ]
    for each in found.values():
        file = ROOT / "trainables" / "metrics" / f"{each.family}.py"
        parts.append(f"## {each.name}")
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            named = isinstance(node, ast.FunctionDef) and node.name == (each.function or each.name)
            if named and (text := ast.get_docstring(node)):
                parts.append(_paragraphs(text))
    return "\n\n".join(parts)


def _paragraphs(text: str) -> str:
    """A docstring as Markdown: what is indented in it stays a block."""
    return _plain(textwrap.dedent(text).strip())


def _plain(text: str) -> str:
    """Text whose stars and angles are no Markdown outside its code."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(
        part if place % 2 else re.sub(r"([*<])", r"\\\1", part) for place, part in enumerate(parts)
    )


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    cells = [[cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows]
    lines = [heads, ["---"] * len(heads), *cells]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    REFERENCE.mkdir(exist_ok=True)
    for name, text in pages().items():
        (REFERENCE / name).write_text(text, encoding="utf-8")
    schema = json.dumps(json_schema(), indent=1)
    (ROOT / "study" / "specs" / "study.schema.json").write_text(f"{schema}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
