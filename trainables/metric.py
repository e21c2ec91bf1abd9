"""What every metric says of itself, once: whoever sorts, draws, prints or bounds its values reads it here.

A file in metrics/ opens with its metrics as plain values, `METRICS = {"ece": {"label": "ECE", ...}}`: the fields below
by their names, those left out as they are by default. Adding the file adds the metrics.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from trainables.fields import FieldError, Settings, choice, number, text


@dataclass(frozen=True)
class Metric(Settings):
    """A function of logits [N, K] and labels [N], and how its values are to be read."""

    name: str
    family: str  # the file in metrics/
    function: str = text(doc="its name in the file; without, that of the metric")
    label: str = text(doc="in figures and on pages; without, the name in words")
    place: int = number(1000, low=1, doc="among all, in every table; stored ones come first")
    stored: bool = text(False, doc="whether every trial stores it; the others are measured where they are named")
    kind: str = choice("calibration", "score", "fraction", doc="calibration error, mean score, share of the samples")
    better: str | None = choice("lower", "higher", doc="null: neither good nor bad")
    instead: str = text("", doc="of one neither good nor bad: what to search for")
    unit: str = text("", doc="without one, fractions")
    largest: float | None = number(1.0, above=0, doc="its values lie in [0, largest]; null: without bound")
    reference: float | str | None = text(None, doc="hypervolume's reference: a number or 'log K'; else the worse end")
    fewest_classes: int = number(2, low=2, doc="of fewer it says nothing")
    heading: str = text("", doc="in the papers' table; without, it is not in it")
    decimals: int = number(2, low=0, doc="there, in % or in its unit")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.better == "lower" and self.largest is None and self.reference is None:
            raise FieldError("reference", "is needed where nothing bounds the values: a number, or 'log K'.")
        if isinstance(self.reference, str) and self.reference != "log K":
            raise FieldError("reference", f"must be a number or 'log K', got '{self.reference}'.")
        if self.heading and self.better != "lower":
            raise FieldError("heading", "the papers' table marks the smallest; it takes metrics that are better lower.")

    @property
    def sign(self) -> float:
        """Times this, smaller is better."""
        return -1.0 if self.better == "higher" else 1.0

    def worst(self, num_classes: int) -> float:
        """Its coordinate of the hypervolume's reference point.

        'log K' is the NLL of a classifier that answers 1/K for every class; the others cannot be worse than theirs.
        """
        if self.reference is not None:
            return math.log(num_classes) if isinstance(self.reference, str) else self.reference
        return 0.0 if self.better == "higher" or self.largest is None else self.largest
