"""What a study searches for, and which way is better."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from trainables import metrics
from trainables.fields import FieldError, Settings

LARGER_IS_BETTER = ("accuracy", "top5_accuracy", "accuracy_above_99")
DIRECTIONS = ("maximize", "minimize")


@dataclass(frozen=True)
class Objective(Settings):
    """A metric of the validation split, and where it should go."""

    metric: str = field(metadata={"doc": "what is measured on the validation split"})
    direction: str = field(metadata={"choices": DIRECTIONS, "doc": "maximize or minimize"})

    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            metrics.check(self.metric)
        except FieldError as error:
            raise error.under("metric") from None
        if plain_name(self.metric) == "share_above_99":
            raise FieldError("metric", f"{self.metric} is neither good nor bad; take accuracy_above_99.")
        better = DIRECTIONS[plain_name(self.metric) not in LARGER_IS_BETTER]
        if self.direction != better:
            raise FieldError("direction", f"{self.metric} is better the other way; write {better}.")

    @property
    def sign(self) -> float:
        """Times this, smaller is better."""
        return -1.0 if self.direction == "maximize" else 1.0


def plain_name(metric: str) -> str:
    """The metric without `ts_`: what is measured, before or after temperature scaling."""
    return metric.removeprefix(metrics.AFTER_TEMPERATURE)


def costs(values: Sequence[float], objectives: Sequence[Objective]) -> tuple[float, ...]:
    """The values with their sign turned where needed, so that smaller is better in each."""
    return tuple(objective.sign * value for value, objective in zip(values, objectives, strict=True))


def worst(metric: str, num_classes: int) -> float:
    """The metric's coordinate of the hypervolume's reference point.

    A classifier that answers 1/K for every class has this NLL; the others cannot be worse.
    """
    name = plain_name(metric)
    if name in LARGER_IS_BETTER:
        return 0.0
    if name.startswith("brier") or name in ("skce", "skce_unbiased", "skce_linear"):
        return 2.0
    return math.log(num_classes) if name == "nll" else 1.0
