"""Text for a person: tables of a study, of its front, of what there is to choose from."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from search_spaces.space import to_plain as entry_to_plain
from study.schema.objective import LARGER_IS_BETTER, plain_name
from study.store.study import Study
from study.store.trials import TrialRecord
from trainables import data, methods, metrics, models
from trainables.fields import Settings

if TYPE_CHECKING:
    from study.uncertainty.bootstrap import Difference


def table(*columns: str, title: str | None = None) -> Table:
    """A table without lines; a column whose name starts with `>` is set to the right."""
    made = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, header_style="bold")
    for column in columns:
        made.add_column(column.lstrip(">"), justify="right" if column.startswith(">") else "left")
    return made


# ---- a study -------------------------------------------------------------------------------------------------------


def status_counts(study: Study, records: dict[str, list[TrialRecord]], alive: bool) -> dict[str, dict[str, int]]:
    """{label: {planned, complete, pruned, failed, running}}; without a driver nothing runs."""
    counts = {}
    for label, found in records.items():
        states = {state: sum(record.state == state for record in found) for state in ("complete", "pruned", "failed")}
        running = sum(record.state == "running" for record in found) if alive else 0
        counts[label] = {"planned": max(study.planned, len(found)), **states, "running": running}
    return counts


def status_table(counts: dict[str, dict[str, int]]) -> Table:
    """One row a method."""
    made = table("method", ">planned", ">complete", ">pruned", ">failed", ">running")
    for label, row in counts.items():
        made.add_row(label, *(str(value) for value in row.values()))
    return made


def failures_table(records: dict[str, list[TrialRecord]]) -> Table | None:
    """The trials that did not complete, with their reasons."""
    made = table("trial", "state", "reason")
    for record in (record for found in records.values() for record in found if record.reason):
        made.add_row(record.name, record.state, record.reason or "")
    return made if made.row_count else None


# ---- an evaluation -------------------------------------------------------------------------------------------------


def metrics_table(found: dict[str, float], title: str | None = None) -> Table:
    """One row a metric, before and after temperature scaling (`ts_`); a dash where it says nothing."""
    made = table("metric", ">value", ">after temperature", title=title)
    prefix = metrics.AFTER_TEMPERATURE
    for name in dict.fromkeys(name.removeprefix(prefix) for name in found):
        made.add_row(name, _number(found.get(name)), _number(found.get(prefix + name)))
    return made


def post_hoc_table(rows: dict[str, dict[str, float]]) -> Table:
    """One row a kind of calibration after training; `fitted` is the temperature of the whole file."""
    columns = [name for name in rows["none"] if name != "fitted"]
    made = table("post-hoc, cross-fitted", *(f">{name}" for name in columns), ">temperature")
    for name, row in rows.items():
        made.add_row(name, *(_number(row[column]) for column in columns), _number(row.get("fitted")))
    return made


def differences_table(found: dict[str, Difference], one: str, other: str) -> Table:
    """One row a metric: two trials, their difference with its interval, and who is better where that excludes 0."""
    made = table("metric", f">{one}", f">{other}", ">difference", ">95% interval", "better")
    for name, difference in found.items():
        first, second, estimate, low, high = difference
        larger = plain_name(name) in LARGER_IS_BETTER
        better = "" if low <= 0 <= high else one if (low > 0) == larger else other
        made.add_row(name, f"{first:.4f}", f"{second:.4f}", f"{estimate:+.4f}", f"[{low:+.4f}, {high:+.4f}]", better)
    return made


def conventions_table(values: dict[str, float]) -> Table:
    """One row a public implementation's rule; what it loses marks the lossy ones."""
    from trainables.metrics import conventions

    made = table("as others compute it", ">value", "bins", "loses")
    for column in made.columns[:2]:
        column.no_wrap = True
    for name, value in values.items():
        convention = conventions.CONVENTIONS[name]
        loses = f"LOSSY: {convention.loses}" if convention.loses else ""
        made.add_row(name, _number(value), convention.rule, loses)
    return made


def ood_table(found: dict[str, float], file: str) -> Table:
    """One row a score and measure of how well it tells the samples of `file`."""
    return metrics_table(found, title=f"out of distribution: {file}")


def _number(value: float | None) -> str:
    return "-" if value is None or math.isnan(value) else f"{value:.6f}"


# ---- what there is -------------------------------------------------------------------------------------------------


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
            "defaults": found.defaults,
        }


def print_catalogue(console: Console, kind: str, rows: list[dict[str, Any]]) -> None:
    """`calstudy list KIND` for a person."""
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
            console.print(Text.assemble("    ", ("tried first: ", "dim"), str(default or "the settings of the study")))


def finite(values: dict[str, float]) -> dict[str, float | None]:
    """Numbers as JSON has them: null for what is not finite."""
    return {name: value if math.isfinite(value) else None for name, value in values.items()}
