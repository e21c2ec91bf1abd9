"""Objectives of a study."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from trainables import metrics
from trainables.fields import FieldError, Settings

DIRECTIONS = {"higher": "maximize", "lower": "minimize"}


@dataclass(frozen=True)
class Objective(Settings):
    """A metric on the validation split and its direction."""

    metric: str = field(metadata={"doc": "metric on the validation split"})
    direction: str = field(metadata={"choices": tuple(DIRECTIONS.values()), "doc": "maximize or minimize"})

    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            found = metrics.describe(self.metric)
        except FieldError as error:
            raise error.under("metric") from None
        if found.better is None:
            raise FieldError("metric", f"{self.metric} has no better direction; use {found.instead or 'another'}.")
        if self.direction != DIRECTIONS[found.better]:
            raise FieldError("direction", f"{found.better} {self.metric} is better; write {DIRECTIONS[found.better]}.")

    @property
    def sign(self) -> float:
        """Multiplied by this, smaller is better."""
        return -1.0 if self.direction == "maximize" else 1.0


def plain_name(metric: str) -> str:
    """The metric without `ts_` (after temperature scaling)."""
    return metric.removeprefix(metrics.AFTER_TEMPERATURE)


def epoch_note(result: str) -> str:
    """What to say beside validation values of how the epoch of each result was chosen; empty for `last`."""
    if result == "last":
        return ""
    return (
        f"each result is the epoch with the best {result.removeprefix('best_')} on the validation split, which also"
        " gives the objectives: that metric looks better than it is; calstudy confirm measures on the test split"
    )


def costs(values: Sequence[float], objectives: Sequence[Objective]) -> tuple[float, ...]:
    """The values, with signs flipped where needed so that smaller is better."""
    return tuple(objective.sign * value for value, objective in zip(values, objectives, strict=True))
