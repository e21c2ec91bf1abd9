"""Objectives of a study."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from trainables import metrics
from trainables.fields import Settings
from trainables.problems import FieldError

DIRECTIONS = {"higher": "maximize", "lower": "minimize"}
# A registered model gives logits scaled by its temperature, or as trained.
TEMPERATURE = "temperature"
RAW = "raw"
EITHER = "either"  # the one of these with which validation takes the better model
IN_WORDS = {RAW: "as trained", TEMPERATURE: "after temperature"}
FORMS = (RAW, TEMPERATURE)
SERVED = (TEMPERATURE, RAW, EITHER)


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
                f"{self.metric} has no better direction",
                f"Use {found.instead or 'another'}.",
            )
        needed = DIRECTIONS[found.better]
        if self.direction != needed:
            raise FieldError(
                "direction", f"{found.better} {self.metric} is better", f"Write {needed}."
            )

    @property
    def sign(self) -> float:
        """The factor that makes smaller better."""
        return -1.0 if self.direction == "maximize" else 1.0


def plain_name(metric: str) -> str:
    """The metric without `ts_` (after temperature scaling)."""
    return metric.removeprefix(metrics.AFTER_TEMPERATURE)


def changes_with_temperature(metric: str) -> bool:
    """Whether it has another value after a temperature.

    The predicted classes stay, and so do fractions of right ones and the overlap of regions. What a
    temperature removes of a score has no value after one.
    """
    found = metrics.describe(metric)
    return found.kind not in ("fraction", "overlap") and not found.removed_of


def in_words(metric: str) -> str:
    """`ECE as trained`, or `ECE after temperature` of ts_ece; `accuracy`, which none changes."""
    label = metrics.describe(metric).label
    if not changes_with_temperature(metric):
        return label
    after = metric.startswith(metrics.AFTER_TEMPERATURE)
    return f"{label} {IN_WORDS[TEMPERATURE if after else RAW]}"


def searched_for(objectives: Sequence[Objective]) -> str:
    """The sentence: the search optimized ECE as trained."""
    return f"the search optimized {', '.join(in_words(one.metric) for one in objectives)}"


def other_than(serves: str) -> str:
    """TEMPERATURE for RAW, else RAW: also the option of `calstudy export` that serves it."""
    return RAW if serves == TEMPERATURE else TEMPERATURE


def served_by_default(objectives: Sequence[Objective]) -> str | None:
    """The form that the objectives are of.

    TEMPERATURE if the objectives are after temperature scaling, RAW if they are before; None if
    there are both.
    """
    named = [one.metric for one in objectives if changes_with_temperature(one.metric)]
    after = [metric.startswith(metrics.AFTER_TEMPERATURE) for metric in named]
    if not any(after):
        return RAW
    return TEMPERATURE if all(after) else None


def as_served(metric: str, serves: str) -> str:
    """`ts_ece` where the temperature is served, `ece` where it is not."""
    plain = plain_name(metric)
    if serves == TEMPERATURE and changes_with_temperature(plain):
        return metrics.AFTER_TEMPERATURE + plain
    return plain


def served_objectives(objectives: Sequence[Objective], serves: str) -> tuple[Objective, ...]:
    """The objectives of the model that is registered, each once."""
    found = {_measured_as(one.metric, serves, objectives): one.direction for one in objectives}
    return tuple(Objective(metric, direction) for metric, direction in found.items())


def _measured_as(metric: str, serves: str, objectives: Sequence[Objective]) -> str:
    """The metric as deployed; itself where trials do not store the other form of it."""
    served = as_served(metric, serves)
    sought = [one.metric for one in objectives]
    known = plain_name(metric) in metrics.stored() or served in sought
    return served if known else metric


def serves_note(
    objectives: Sequence[Objective], serves: str, own: bool = True, decided: bool = False
) -> str:
    """A sentence if registered models have other metrics than the search optimizes; else empty.

    own: whether these are the search's objectives, not given afterwards. decided: whether
    validation did, of EITHER.
    """
    if serves == EITHER:
        either = "models are registered as trained or with their temperatures"
        return f"{either}, as validation decides (serve: either)"
    sought = [one.metric for one in objectives]
    optimized = ", ".join(sought)
    served = [one.metric for one in served_objectives(objectives, serves)]
    wanted = {one: as_served(one, serves) for one in sought}
    lacking = [of for one, of in wanted.items() if of != _measured_as(one, serves, objectives)]
    if lacking:
        models = f"trials do not store the {', '.join(lacking)} of a registered model"
        return f"{models}: choices use {optimized}"
    if set(served) <= set(sought):
        return ""
    said = "either, decided on validation" if decided else serves
    how = "with their temperatures" if serves == TEMPERATURE else "as trained"
    models = f"models are registered {how} (serve: {said}) and have {', '.join(served)}"
    asked = f"the search optimizes {optimized}" if own else f"{optimized} were asked for"
    return f"{models}; {asked}"


def epoch_note(result: str) -> str:
    """A sentence on how the epoch of each validation value was chosen; empty for `last`."""
    if result == "last":
        return ""
    return (
        f"each result is the epoch with the best {result.removeprefix('best_')} on the validation"
        " split, which also gives the objectives: that metric looks better than it is; calstudy"
        " confirm measures on the test split"
    )


def read_objectives(text: str | Sequence[str], where: str) -> tuple[Objective, ...]:
    """The objectives of metrics given by name, `accuracy,nll`, in order. Raises FieldError."""
    given = text.split(",") if isinstance(text, str) else text
    if not isinstance(given, list | tuple) or not all(isinstance(name, str) for name in given):
        problem = f"must be names of metrics, got {given!r}"
        raise FieldError(where, problem, 'Write "accuracy,nll", or a list of names.')
    names = [name.strip() for name in given]
    if not any(names):
        raise FieldError(where, "names no metric", "Write metrics such as accuracy,nll.")
    found: dict[str, Objective] = {}
    for name in filter(None, names):
        if name in found:
            raise FieldError(where, f"'{name}' is listed twice", "Remove one.")
        found[name] = named_objective(name, where)
    return tuple(found.values())


def named_objective(name: str, where: str) -> Objective:
    """The metric in its better direction. Raises FieldError at `where`."""
    on_validation = name.removeprefix("test_").removeprefix("test/")
    if on_validation != name and on_validation in metrics.names():
        raise FieldError(
            where,
            f"{name} is of the sealed test split, on which nothing is selected",
            f"Write {on_validation}, which is of validation.",
        )
    try:
        better = metrics.describe(name).better
        return Objective(name, DIRECTIONS.get(better or "", "minimize"))
    except FieldError as error:
        raise error.at(where) from None


def costs(values: Sequence[float], objectives: Sequence[Objective]) -> tuple[float, ...]:
    """The values, with signs flipped where needed so that smaller is better."""
    return tuple(one.sign * value for value, one in zip(values, objectives, strict=True))
