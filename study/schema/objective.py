"""Objectives of a study."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from trainables import metrics
from trainables.fields import FieldError, Settings

DIRECTIONS = {"higher": "maximize", "lower": "minimize"}
TEMPERATURE, RAW = (
    "temperature",
    "raw",
)  # what a registered model gives: scaled by its temperature, or as trained
IN_WORDS = {RAW: "as trained", TEMPERATURE: "after temperature"}


@dataclass(frozen=True)
class Objective(Settings):
    """A metric on the validation split and its direction."""

    metric: str = field(metadata={"doc": "metric on the validation split"})
    direction: str = field(
        metadata={"choices": tuple(DIRECTIONS.values()), "doc": "maximize or minimize"}
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            found = metrics.describe(self.metric)
        except FieldError as error:
            raise error.under("metric") from None
        if found.better is None:
            raise FieldError(
                "metric",
                f"{self.metric} has no better direction; use {found.instead or 'another'}.",
            )
        if self.direction != DIRECTIONS[found.better]:
            raise FieldError(
                "direction",
                f"{found.better} {self.metric} is better; write {DIRECTIONS[found.better]}.",
            )

    @property
    def sign(self) -> float:
        """Multiplied by this, smaller is better."""
        return -1.0 if self.direction == "maximize" else 1.0


def plain_name(metric: str) -> str:
    """The metric without `ts_` (after temperature scaling)."""
    return metric.removeprefix(metrics.AFTER_TEMPERATURE)


def changes_with_temperature(metric: str) -> bool:
    """Whether a temperature changes it. The predicted classes stay as they are, and so fractions of right ones."""
    return metrics.describe(metric).kind != "fraction"


def in_words(metric: str) -> str:
    """`ECE as trained` and, of ts_ece, `ECE after temperature`; `accuracy`, which a temperature does not change."""
    label = metrics.describe(metric).label
    if not changes_with_temperature(metric):
        return label
    return (
        f"{label} {IN_WORDS[TEMPERATURE if metric.startswith(metrics.AFTER_TEMPERATURE) else RAW]}"
    )


def searched_for(objectives: Sequence[Objective]) -> str:
    """What chose the trials."""
    return (
        f"the search optimized {', '.join(in_words(objective.metric) for objective in objectives)}"
    )


def other_than(serves: str) -> str:
    """RAW of TEMPERATURE and the reverse: also the option of `calstudy export` that serves it."""
    return RAW if serves == TEMPERATURE else TEMPERATURE


def served_by_default(objectives: Sequence[Objective]) -> str | None:
    """What the registered model gives if the study does not say: what was selected.

    TEMPERATURE if the objectives are after temperature scaling, RAW if they are before; None if there are both.
    """
    named = [
        objective.metric for objective in objectives if changes_with_temperature(objective.metric)
    ]
    after = [metric.startswith(metrics.AFTER_TEMPERATURE) for metric in named]
    if any(after):
        return TEMPERATURE if all(after) else None
    return RAW


def as_served(metric: str, serves: str) -> str:
    """`ts_ece` where the temperature is served, `ece` where it is not."""
    plain = plain_name(metric)
    return (
        metrics.AFTER_TEMPERATURE + plain
        if serves == TEMPERATURE and changes_with_temperature(plain)
        else plain
    )


def served_objectives(objectives: Sequence[Objective], serves: str) -> tuple[Objective, ...]:
    """The objectives of the model that is registered, each once."""
    found = {
        _measured_as(objective.metric, serves, objectives): objective.direction
        for objective in objectives
    }
    return tuple(Objective(metric, direction) for metric, direction in found.items())


def _measured_as(metric: str, serves: str, objectives: Sequence[Objective]) -> str:
    """The metric as served; itself where trials do not store the other form of it."""
    served = as_served(metric, serves)
    known = plain_name(metric) in metrics.stored() or served in [
        objective.metric for objective in objectives
    ]
    return served if known else metric


def serves_note(objectives: Sequence[Objective], serves: str, is_older: bool = False) -> str:
    """What to say where a registered model has other metrics than the search optimizes; empty where it has these.

    is_older: the study was made before `serve`.
    """
    sought = [objective.metric for objective in objectives]
    wanted = {one: as_served(one, serves) for one in sought}
    if lacking := [
        name for one, name in wanted.items() if name != _measured_as(one, serves, objectives)
    ]:
        return f"trials do not store the {', '.join(lacking)} of a registered model: choices use {', '.join(sought)}"
    served = [objective.metric for objective in served_objectives(objectives, serves)]
    if set(served) <= set(sought):
        return ""
    why = (
        "this study was made before `serve` and keeps the temperature"
        if is_older
        else f"serve: {serves}"
    )
    return f"{why}: its registered models have {', '.join(served)}, while the search optimizes {', '.join(sought)}"


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
    return tuple(
        objective.sign * value for value, objective in zip(values, objectives, strict=True)
    )
