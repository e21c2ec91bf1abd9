"""What a study searches for, and which way is better."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from trainables import metrics
from trainables.fields import FieldError, Settings

DIRECTIONS = {"higher": "maximize", "lower": "minimize"}


@dataclass(frozen=True)
class Objective(Settings):
    """A metric of the validation split, and where it should go."""

    metric: str = field(metadata={"doc": "what is measured on the validation split"})
    direction: str = field(metadata={"choices": tuple(DIRECTIONS.values()), "doc": "maximize or minimize"})

    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            found = metrics.describe(self.metric)
        except FieldError as error:
            raise error.under("metric") from None
        if found.better is None:
            raise FieldError("metric", f"{self.metric} is neither good nor bad; take {found.instead or 'another'}.")
        if self.direction != DIRECTIONS[found.better]:
            raise FieldError("direction", f"{self.metric} is better the other way; write {DIRECTIONS[found.better]}.")

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
