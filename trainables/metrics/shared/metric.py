"""The description of a metric: how its values are sorted, plotted, printed and bounded.

A file in metrics/ starts with plain values, `METRICS = {"ece": {"label": "ECE", ...}}`: the fields
below by name, omitted ones at their defaults. Adding the file adds the metrics.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trainables.fields import Settings, choice, number, setting
from trainables.problems import FieldError


@dataclass(frozen=True)
class Metric(Settings):
    """A function of logits [N, K] and labels [N], and how to interpret its values."""

    name: str
    family: str  # the file in metrics/
    function: str = setting(doc="function name in the file; default: the metric's name")
    label: str = setting(doc="label in figures and pages; default: the name in words")
    place: int = number(1000, low=1, doc="position in every table; stored metrics come first")
    stored: bool = setting(
        False, doc="whether every trial stores it; other metrics are computed on request"
    )
    kind: str = choice(
        "calibration",
        "score",
        "fraction",
        "overlap",
        doc="calibration error, mean score, fraction of the samples, overlap of regions",
    )
    better: str | None = choice("lower", "higher", doc="which direction is better; null: neither")
    instead: str = setting(
        "", doc="for a metric with no better direction: the one to optimize instead"
    )
    unit: str = setting("", doc="unit of the values; default: fractions")
    largest: float | None = number(1.0, above=0, doc="values lie in [0, largest]; null: unbounded")
    reference: float | str | None = setting(
        None, doc="hypervolume reference, a number or 'log K'; default: worst value"
    )
    matters: float | str | None = setting(
        None,
        doc=(
            "smallest difference that matters, a number or 'X / K' for K classes; null: a study"
            " must say it"
        ),
    )
    removed_of: str = setting(
        "", doc="metric of which it is the part that a temperature removes; it has no `ts_` form"
    )
    fewest_classes: int = number(2, low=2, doc="minimum number of classes for which it is defined")
    heading: str = setting("", doc="heading in the papers' table; default: not in the table")
    decimals: int = number(2, low=0, doc="decimals in that table, in % or in its unit")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.better == "lower" and self.largest is None and self.reference is None:
            raise FieldError("reference", "is required for unbounded values: a number, or 'log K'")
        if isinstance(self.reference, str) and self.reference != "log K":
            raise FieldError("reference", f"must be a number or 'log K', got '{self.reference}'")
        self._check_matters()
        if self.heading and self.better != "lower":
            raise FieldError(
                "heading", "the papers' table marks the smallest value", "Lower must be better."
            )

    def _check_matters(self) -> None:
        value = self.matters
        if isinstance(value, str) and (found := re.fullmatch(r"(\d*\.?\d+) / K", value)):
            value = float(found[1])
        if value is not None and not (isinstance(value, float | int) and 0 < value < math.inf):
            valid = "must be a number above 0, or 'X / K' for K classes"
            raise FieldError("matters", f"{valid}, got {self.matters!r}")

    def smallest(self, num_classes: int) -> float | None:
        """The smallest difference that matters; None where a study must say it."""
        if isinstance(self.matters, str):
            return float(self.matters.partition(" ")[0]) / num_classes
        return self.matters

    @property
    def sign(self) -> float:
        """Factor by which smaller is better."""
        return -1.0 if self.better == "higher" else 1.0

    def worst(self, num_classes: int) -> float:
        """The metric's coordinate of the hypervolume's reference point.

        'log K' is the NLL of a classifier that predicts 1/K for every class; other values are never
        worse than theirs.
        """
        if isinstance(self.reference, str):
            return math.log(num_classes)
        if self.reference is not None:
            return self.reference
        if self.better == "higher" or self.largest is None:
            return 0.0
        return self.largest


def metrics_in(tree: ast.Module, family: str, kind: type[Metric] = Metric) -> Iterator[Metric]:
    """The metrics of a file; none if it has no METRICS. Raises FieldError at `metrics/FILE`.

    Parsed, not imported: readers of a study need only descriptions, and importing torch takes
    seconds.
    """
    for node in tree.body:
        match node:
            case ast.Assign([ast.Name("METRICS")], value) | ast.AnnAssign(
                ast.Name("METRICS"), _, ast.expr() as value
            ):
                for name, row in _rows(family, value).items():
                    yield _metric(kind, family, str(name), row)


def refuse_twice(metric: Metric, others: Mapping[str, Metric]) -> None:
    """Raise FieldError for a metric whose name another file has."""
    if metric.name in others:
        found = f"'{metric.name}' is already in {others[metric.name].family}.py"
        raise FieldError(f"metrics/{metric.family}.py", found, "Rename one.")


def _rows(family: str, value: ast.expr) -> dict[str, dict[str, Any]]:
    where = f"metrics/{family}.py"
    try:
        rows = ast.literal_eval(value)
    except ValueError:
        found = f"METRICS (line {value.lineno}) must contain only plain values: no names, no calls"
        raise FieldError(where, found) from None
    if not isinstance(rows, dict) or not all(isinstance(row, dict) for row in rows.values()):
        found = f"METRICS (line {value.lineno}) must map names to mappings"
        raise FieldError(where, found, 'Write METRICS = {"mine": {"better": "lower"}}.')
    return rows


def _metric(kind: type[Metric], family: str, name: str, row: Mapping[str, Any]) -> Metric:
    try:
        for key in row:
            if key in ("name", "family"):
                raise FieldError(key, "is said by the file", "Remove it.")
            Metric.field_named(key)
        usual = {"function": name, "label": name.replace("_", " ")}
        return kind(name=name, family=family, **usual | dict(row))
    except FieldError as error:
        raise error.under(f"metrics/{family}.py: {name}") from None
