"""A model's predictions, measured: what decides, how sure that is, and the temperature to use.

`evaluate` is the one call; `calstudy evaluate` prints the same. Nothing here knows a study.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

from study.evaluation.measure import BINS, Advice, Numbers, Say, measure
from study.evaluation.user_predictions import UserPredictions, given
from study.uncertainty.forms import finite, floor_text, value_text
from study.uncertainty.intervals import LEVEL, Floor, percent
from study.uncertainty.resampling import known_groups
from trainables import metrics as ours
from trainables.kinds import count_of
from trainables.machine import one_torch_thread
from trainables.problems import FieldError

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

    from study.evaluation.comparison import Comparison
    from study.uncertainty.calibrators import Rows

TS = ours.AFTER_TEMPERATURE
HIGHEST = 0.999  # level of intervals, which takes 5,000 resamples


class Value(NamedTuple):
    """A metric; its interval and its floor (mean, low, high), None where it has none."""

    value: float
    interval: tuple[float, float] | None = None
    floor: Floor | None = None


@dataclass(frozen=True, repr=False)
class Evaluation:
    """Metrics of predictions, each with its interval and floor; a temperature, and its use.

    `print` it, show it in a notebook, or read `metrics`, `temperature` and `sentence`.
    """

    given: UserPredictions
    names: tuple[str, ...]  # of the metrics asked for, without `ts_`
    numbers: Numbers
    level: float | None  # of the intervals; None: none were asked for

    @property
    def metrics(self) -> dict[str, Value]:
        """By name, before and (`ts_`) after a cross-fitted temperature, as far as defined."""
        found = {}
        for name, value in self.numbers.values.items():
            one = self.numbers.intervals.get(name)
            ends = None if one is None else (one.low, one.high)
            found[name] = Value(value, ends, None if one is None else one.floor)
        return found

    @property
    def advice(self) -> Advice | None:
        """What a temperature would change; None: there are weights, and it has no weighted form."""
        return self.numbers.advice

    @property
    def temperature(self) -> float | None:
        """T > 0, fitted on all samples; logits / T is calibrated best. None as for `advice`."""
        return None if self.advice is None else self.advice.temperature

    @property
    def sentence(self) -> str:
        """What to do with a temperature."""
        return "" if self.advice is None else self.advice.sentence

    def difference(self, other: Evaluation, id: tuple[Any, Any] | None = None) -> Comparison:
        """Each metric less that of another model on the same samples, paired by row.

        id: the ids of the samples, this model's and the other's, to pair by. Raises FieldError
        unless samples, labels and classes are the same.
        """
        from study.evaluation.comparison import compare

        if not isinstance(other, Evaluation):
            found = f"is {type(other).__name__}, no evaluation"
            raise FieldError("other", found, "Give what calstudy.evaluate returns.")
        shared = [name for name in self.names if name in other.names]
        numbers = (self.numbers, other.numbers)
        return compare(self.given, other.given, numbers, shared, self.level or LEVEL, id)

    def reliability(self) -> Figure:
        """A reliability diagram, before and after the temperature; a notebook shows it."""
        from study.report.figures import draw_reliability
        from study.report.style import our_settings
        from study.uncertainty.reliability import diagram

        if self.given.weights is not None:
            found = "a reliability diagram has no weighted form"
            raise FieldError("weights", found, "Leave them out.")
        predictions = self.given.predictions
        found_in = diagram(predictions)
        panels = {"as given": found_in.raw, "after temperature": found_in.scaled}
        groups = None if known_groups(predictions.groups) is None else "groups"
        samples = len(predictions.labels)
        with our_settings():
            title = f"before and after a temperature of {self.temperature:.3g}"
            return draw_reliability(panels, title, samples, self.counted, groups)

    def by_class(self) -> pandas.DataFrame:
        """One row a class: see `study.evaluation.by_class`. Raises FieldError with weights."""
        from study.evaluation.by_class import table

        return table(self.given, self.level, self.numbers.resamples)

    def post_hoc(self) -> pandas.DataFrame:
        """One row a post-hoc calibrator, cross-fitted, with the columns of
        `study.uncertainty.calibrators.compared`. Raises FieldError with weights."""
        import pandas

        return pandas.DataFrame.from_dict(self.calibrators(), orient="index")

    def calibrators(self, bins: int = BINS, say: Say = lambda doing: None) -> Rows:
        """{calibrator: its numbers}. Raises FieldError with weights."""
        from study.uncertainty.calibrators import calibrators

        if self.given.weights is not None:
            raise FieldError("weights", "a calibrator has no weighted form", "Leave them out.")
        level = self.level or LEVEL
        resamples = self.numbers.resamples
        with one_torch_thread():
            return calibrators(self.given.predictions, (), bins, resamples, level=level, say=say)

    @property
    def counted(self) -> str:
        """`500 samples in 40 groups`."""
        predictions = self.given.predictions
        found = count_of(len(predictions.labels), "samples")
        if predictions.groups is None:
            return found
        return f"{found} in {count_of(int(predictions.groups.max()) + 1, 'groups')}"

    @property
    def lines(self) -> tuple[str, ...]:
        """What is printed: the metrics as they are, and the sentence."""
        shown = [f"{self.counted}, {self.given.ends}"]
        width = max(map(len, self.names))
        for name in self.names:
            if (one := self.numbers.intervals.get(name)) is not None:
                floor = f"; floor {floor_text(one.floor)}" if one.floor else ""
                shown.append(f"{name:{width}}  {value_text(one)}{floor}")
            else:
                value = self.numbers.values.get(name)
                shown.append(f"{name:{width}}  {'-' if value is None else value_text(value)}")
        return tuple(filter(None, [*shown, self.sentence, *self.given.notes, self.how]))

    @property
    def how(self) -> str:
        """The sentence about the intervals."""
        if self.numbers.why_none:
            return f"No intervals: {self.numbers.why_none}."
        if not self.numbers.resamples:
            return ""
        level = percent(self.level or LEVEL)
        _, in_groups, groups = self.counted.partition(" in ")
        of_groups = f" of {groups}" if in_groups else ""
        resamples = f"{self.numbers.resamples:,} resamples{of_groups}"
        said = f"In brackets: {level} intervals from {resamples}"
        lacking = [name for name in self.numbers.values if name not in self.numbers.intervals]
        if lacking := [name for name in lacking if name in self.names]:
            said = f"{said}; these samples give none for {', '.join(lacking)}"
        return f"{said}. floor: what a calibrated model would show."

    def to_dict(self) -> dict[str, object]:
        """Every number, for JSON."""
        plain: dict[str, object] = {
            "num_samples": len(self.given.predictions.labels),
            "num_classes": len(self.given.classes),
            "classes": list(self.given.classes),
        }
        groups = self.given.predictions.groups
        if groups is not None:
            plain["num_groups"] = int(groups.max()) + 1
        plain["metrics"] = finite(self.numbers.values)
        if self.numbers.resamples:
            ends = {name: one.ends() for name, one in self.numbers.intervals.items()}
            plain |= {"intervals": ends, "resamples": self.numbers.resamples, "level": self.level}
        if self.advice is not None:
            plain |= {"temperature": self.advice.to_plain(), "sentence": self.sentence}
        return plain | ({"notes": list(self.given.notes)} if self.given.notes else {})

    def __str__(self) -> str:
        return "\n".join(self.lines)

    def __repr__(self) -> str:
        return f"Evaluation({self.lines[0]!r})"

    def _repr_html_(self) -> str:
        first, *rest = self.lines
        rows = []
        for name, line in zip(self.names, rest, strict=False):
            rows.append(f"<tr><td>{name}</td><td>{escape(line[len(name) :].strip())}</td></tr>")
        said = "".join(f"<p>{escape(line)}</p>" for line in rest[len(self.names) :])
        return f"<p><b>{escape(first)}</b></p><table>{''.join(rows)}</table>{said}"


def evaluate(
    labels: Any,
    *,
    probs: Any = None,
    logits: Any = None,
    metrics: str | Collection[str] | None = None,
    intervals: bool | float = True,
    groups: Any = None,
    classes: Sequence[Any] | None = None,
    weights: Any = None,
) -> Evaluation:
    """Measure a model's predictions, of NumPy, pandas, torch or lists.

    labels: [N], numbers from 0, or names of classes. probs or logits: [N, K], or the probability of
    the second of two classes, [N]; of maps [N, K, H, W], with labels [N, H, W]. metrics: names, by
    default accuracy, nll, brier and ece; `calstudy list metrics` has all. intervals: at 95%, or at
    another level such as 0.9; False: none. groups: [N], which samples belong together. classes: the
    names of the K classes, by default those of a DataFrame's columns. weights: [N], how much each
    sample counts. Raises FieldError, a ValueError, that names the argument, the row and the mend.
    """
    level = _level(intervals)
    brought = given(
        labels, probs=probs, logits=logits, groups=groups, classes=classes, weights=weights
    )
    return evaluated(brought, checked_names(metrics), level)


def evaluated(
    brought: UserPredictions,
    names: Sequence[str],
    level: float | None,
    bins: int = BINS,
    say: Say = lambda doing: None,
) -> Evaluation:
    """The evaluation of what was checked. names: without `ts_`. Raises as `measure`."""
    return Evaluation(brought, tuple(names), measure(brought, names, level, bins, say), level)


def _level(intervals: Any) -> float | None:
    if isinstance(intervals, bool):
        return LEVEL if intervals else None
    if not isinstance(intervals, float) or not 0.5 < intervals <= HIGHEST:
        mend = f"Give True, False or a level from 0.5 to {HIGHEST}, like 0.9."
        raise FieldError("intervals", f"got {intervals!r}", mend)
    return float(intervals)


def checked_names(named: str | Collection[str] | None) -> list[str]:
    """Names of metrics, without `ts_`: by default the essential ones. Raises FieldError."""
    if named is None:
        return list(ours.ESSENTIAL)
    given_names = named.split(",") if isinstance(named, str) else named
    if not isinstance(given_names, Collection) or any(
        not isinstance(name, str) for name in given_names
    ):
        raise FieldError("metrics", f"got {named!r}", "Give names: 'ece,nll', or a list of them.")
    listed = [name.strip() for name in given_names]
    try:
        for name in listed:
            ours.check(name)
    except FieldError as error:
        raise error.under("metrics") from None
    if not listed:
        raise FieldError("metrics", "there is none", "Name one, or leave it out.")
    return list(dict.fromkeys(name.removeprefix(TS) for name in listed))
