"""The page's first screen: which model to take, how sure that is, where it lies, and what is next.

HTML without scripts or style attributes: the page's policy admits neither. The answer's object and
the study's trials have every value.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from study.analysis import pareto
from study.answer.phrases import counted, first_upper, how_sure, served, values_text
from study.answer.said import NOT_COMPARED, VERDICTS, Answer, Model, Values
from study.answer.settings import shown_settings
from study.answer.verdict import PLAIN
from study.report.front_figure import in_reach
from study.report.style import displayed
from study.schema.objective import TEMPERATURE, Objective, plain_name
from study.store.trials import TrialRecord
from study.uncertainty.forms import bounds, digits_for, number
from study.uncertainty.intervals import Interval, percent
from study.uncertainty.words import UNDECIDED
from trainables.metrics import describe

if TYPE_CHECKING:
    from study.analysis.ranking import Ranking
    from study.uncertainty.bootstrap import Analysis

THIS = "this model"
UNSURE = (VERDICTS[UNDECIDED], NOT_COMPARED)
WIDTH, HEIGHT = 420, 300  # of the front, in its own units
LEFT, RIGHT, TOP, BOTTOM = 62, 8, 8, 46  # margins, for the axes
_NO_SIZE = 'width="1" height="1" overflow="visible"'  # of what is drawn around a point


def first_screen(
    said: Answer, ranking: Ranking, analysis: Analysis | None, level: float
) -> str | None:
    """The screen of a study whose answer names a model; None of another.

    ranking: of the study's trials. analysis: their intervals, if there are any.
    """
    if said.model is None:
        return None
    parts = [
        f'<div class="verdict">{_taken(said, ranking)}{_sure(said)}'
        f"{_measured(said, ranking, level)}</div>",
        _front(said, ranking, analysis),
    ]
    if said.next:
        command, does = said.next[0]
        # A line is broken between words, never after the hyphens of an option.
        words = " ".join(f"<span>{_text(word)}</span>" for word in command.split(" "))
        parts.append(
            f'<div class="next"><b>Next</b><code>{words}</code><span>{_text(does)}</span></div>'
        )
    parts.append(_why(said))
    return f'<div class="screen">{"".join(filter(None, parts))}</div>'


def _text(text: str) -> str:
    return html.escape(text)


def _with_code(text: str) -> str:
    """Text in which commands stand between backquotes."""
    return "".join(
        f"<code>{_text(part)}</code>" if place % 2 else _text(part)
        for place, part in enumerate(text.split("`"))
    )


# ---- the model -----------------------------------------------------------------------------------


def _taken(said: Answer, ranking: Ranking) -> str:
    assert said.model is not None
    searched = next((one for one in ranking.records if one.name == said.trial), None)
    settings = shown_settings(searched, said.model.settings).strip(" ()")
    how = filter(None, [f"<b>{_text(said.model.method)}</b>", _text(settings)])
    for_now = "" if said.model.test else ", for now"
    return (
        '<p class="label">Take</p><p class="name"><svg viewBox="0 0 10 10" aria-hidden="true">'
        f'<rect width="10" height="10" rx="1"/></svg>{_text(said.model.name)}</p>'
        f'<p class="how">{", ".join(how)}, <b>{served(ranking.deployed)}</b>{for_now}</p>'
    )


def _sure(said: Answer) -> str:
    """The verdict in one sentence, and what limits it."""
    strong, _, rest = said.about.partition(": ")
    more = [first_upper(rest)] if rest else []
    if said.model is not None and not said.model.test:
        more.append("Measured where it was selected: the best of many looks better than it is.")
    elif said.verdict == VERDICTS[UNDECIDED]:
        more.append("Validation ranks it first; the default may be as good.")
    more += [each for each in said.sentences[2:] if each != said.about]
    if not (strong or more):
        return ""
    kind = " unsure" if said.verdict in UNSURE else ""
    bold = f"<strong>{_text(strong.rstrip('.'))}.</strong>" if strong else ""
    return f'<div class="sure{kind}">{bold}<p>{_with_code(" ".join(more))}</p></div>'


# ---- its values beside the default's -------------------------------------------------------------


def _measured(said: Answer, ranking: Ranking, level: float) -> str:
    """Each objective as a strip: the model and the default, with intervals over the floors."""
    assert said.model is not None
    where = said.sentences[1].removeprefix(first_upper(values_text(said.values)))
    sure = how_sure(ranking.deployed, said.split, level)
    rows = [(THIS, "taken", said.values)]
    if said.default is not None:
        rows.append((PLAIN, "default", _values(said.default, said.split)))
    objectives = ranking.deployed.served
    strips = [_strip(one, rows) for one in objectives]
    key = ""
    if any(_floor(values.get(one.metric)) for _, _, values in rows for one in objectives):
        key = (
            '<p class="key"><i></i>floor: what a perfectly calibrated model would show on as many'
            f" {ranking.study.recorded.noun}</p>"
        )
    heading = f"Measured{where.split(' (')[0].rstrip('.')}; {sure}"
    forest = f'<div class="forest">{"".join(strips)}</div>'
    return f'<div class="measured"><p class="label">{_text(heading)}</p>{forest}{key}</div>'


def _values(model: Model, split: str) -> Values:
    return model.test if split == "test" else model.validation


def _floor(value: Interval | float | None) -> tuple[float, float] | None:
    """The range of a floor."""
    found = getattr(value, "floor", None)
    return None if found is None else (found.low, found.high)


def _ends(value: Interval | float) -> tuple[float, float]:
    return (value, value) if isinstance(value, float) else (value.low, value.high)


def _strip(objective: Objective, rows: Sequence[tuple[str, str, Values]]) -> str:
    """One metric: a heading, a row for each model, and the scale that they share."""
    name = objective.metric
    shown = [(who, kind, values[name]) for who, kind, values in rows if name in values]
    if not shown:
        return ""
    numbers = [end for _, _, value in shown for end in (*_ends(value), *(_floor(value) or ()))]
    numbers += [value if isinstance(value, float) else value.estimate for _, _, value in shown]
    numbers = [each for each in numbers if math.isfinite(each)]
    ticks = _ticks(min(numbers), max(numbers), 6)
    low, high = min(ticks[0], *numbers), max(ticks[-1], *numbers)

    def at(value: float) -> str:
        value = min(max(value, low), high)  # an end may be unbounded
        return f"{100 * (value - low) / (high - low or 1):.1f}%"

    made = [f"<h4>{_text(displayed(name))}<small>{describe(name).better} is better</small></h4>"]
    for who, kind, value in shown:
        estimate = value if isinstance(value, float) else value.estimate
        first, last = _ends(value)
        floor = _floor(value)
        band = ""
        if floor is not None:
            width = f"{100 * (floor[1] - floor[0]) / (high - low or 1):.1f}%"
            band = f'<rect class="floor" x="{at(floor[0])}" y="3" width="{width}" height="16"/>'
        made.append(
            f'<div class="who {kind}">{who}</div><svg class="strip {kind}" aria-hidden="true">'
            f'<line class="base" x1="0" x2="100%" y1="11" y2="11"/>{band}'
            f'<line class="reach" x1="{at(first)}" x2="{at(last)}" y1="11" y2="11"/>'
            f'<svg x="{at(estimate)}" y="11" {_NO_SIZE}>{_mark(kind)}</svg></svg>'
            f'<div class="value">{_value(value)}</div>'
        )
    digits = _digits(ticks)
    texts = "".join(
        f'<text x="{at(tick)}" y="11" text-anchor="middle">{tick:.{digits}f}</text>'
        for tick in ticks
    )
    return f'{"".join(made)}<svg class="scale" aria-hidden="true">{texts}</svg>'


def _mark(kind: str) -> str:
    """A square for the model taken, a circle for the default: the same wherever they are drawn."""
    if kind == "taken":
        return '<rect class="dot" x="-5.5" y="-5.5" width="11" height="11" rx="1"/>'
    return '<circle class="dot" r="5"/>'


def _value(value: Interval | float) -> str:
    if isinstance(value, float):
        return number(value)
    estimate = number(value.estimate, digits_for(value.low, value.high))
    return f"{estimate}<small>{_text(bounds(value))}</small>"


def _ticks(low: float, high: float, most: int) -> list[float]:
    """At least two round numbers, within one step of both ends."""
    span = high - low or abs(high) or 1.0
    rough = span / most
    power = 10 ** np.floor(np.log10(rough))
    step = power * next(each for each in (1, 2, 5, 10) if each * power >= 0.999 * rough)
    first, last = int(np.ceil(low / step - 1e-9)), int(np.floor(high / step + 1e-9))
    return [step * place for place in range(first, max(last, first + 1) + 1)]


def _digits(ticks: Sequence[float]) -> int:
    return max(0, int(-np.floor(np.log10(ticks[1] - ticks[0]) + 1e-9)))


# ---- the front -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Axis:
    """One objective along the front: where a value lies, in the figure's units."""

    objective: Objective
    low: float
    high: float
    first: float  # of the figure's units, at `low`
    last: float

    def at(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return self.first + share * (self.last - self.first)

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high

    @classmethod
    def of(
        cls,
        objective: Objective,
        found: Sequence[TrialRecord],
        front: Sequence[TrialRecord],
        marked: Sequence[float],
        ends: tuple[float, float],
    ) -> _Axis:
        """Shows what is in reach of the front, and the marked trials."""
        name, sign = objective.metric, objective.sign
        values = np.array([one.metrics[name] for one in found])
        near = values[
            in_reach(sign * values, sign * np.array([one.metrics[name] for one in front]))
        ]
        low, high = min([near.min(), *marked]), max([near.max(), *marked])
        margin = 0.06 * (high - low) or 0.01
        return cls(objective, float(low - margin), float(high + margin), *ends)


def _front(said: Answer, ranking: Ranking, analysis: Analysis | None) -> str:
    """Every trial on validation as deployed, their front, and both models where the search had
    them."""
    objectives = ranking.deployed.served
    found = [one for one in ranking.counted if pareto.measured_in([one], objectives)]
    if len(objectives) < 2 or not found:
        return ""
    first, second = objectives[:2]
    front = pareto.front(found, objectives)
    marks = _marks(said, ranking)
    x, y = (
        _Axis.of(one, found, front, [mark.metrics[one.metric] for mark in marks.values()], ends)
        for one, ends in ((first, (LEFT, WIDTH - RIGHT)), (second, (HEIGHT - BOTTOM, TOP)))
    )

    def place(record: TrialRecord) -> tuple[float, float]:
        return x.at(record.metrics[first.metric]), y.at(record.metrics[second.metric])

    def shown(record: TrialRecord) -> bool:
        return x.holds(record.metrics[first.metric]) and y.holds(record.metrics[second.metric])

    aside = [
        one
        for one in ranking.records.complete
        if one.name in ranking.excluded and pareto.measured_in([one], objectives)
    ]
    faint = [*filter(shown, aside)]
    area = f"plot-{_text(ranking.study.id)}"  # a page may have several studies
    clip = f'clip-path="url(#{area})"'
    parts = [
        _axes(x, y),
        _dots(faint, place, "aside"),
        _dots([*filter(shown, found)], place, "tried"),
    ]
    if len(objectives) == 2:
        corners = [place(one) for one in front]
        steps = "".join(f"H{right:.1f}V{up:.1f}" for right, up in corners[1:])
        start = "M{:.1f},{:.1f}".format(*corners[0])
        parts.append(f'<path class="line" {clip} d="{start}{steps}"/>')
    highest = min(marks.values(), key=lambda mark: place(mark)[1], default=None)
    for who, record in marks.items():
        parts.append(_marked(who, record, (x, y), analysis, clip, above=record is highest))
    beyond = sum(not shown(one) for one in (*found, *aside))
    lost = [one.name for one in front if not shown(one)]
    caption = _caption(len(faint), beyond, lost, marks, analysis, len(objectives))
    samples = ", ".join(ranking.study.recorded.sizes_of("validation"))
    label = f"The search: {counted(len(found) + len(aside), 'trial')} on validation ({samples})"
    if ranking.deployed.serves == TEMPERATURE:
        label += ", with their temperatures"
    return (
        f'<figure class="calm"><p class="label">{_text(label)}</p>'
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{_text(label)}">'
        f'<clipPath id="{area}"><rect x="{LEFT}" y="{TOP}" width="{WIDTH - LEFT - RIGHT}"'
        f' height="{HEIGHT - TOP - BOTTOM}"/></clipPath>{"".join(parts)}</svg>'
        f"<figcaption>{_text(caption)}</figcaption></figure>"
    )


def _marks(said: Answer, ranking: Ranking) -> dict[str, TrialRecord]:
    """The trials of the search that the model and the default were, by what they are called."""
    by_name = {one.name: one for one in ranking.records.complete}

    def trial_of(name: str | None, label: str) -> TrialRecord | None:
        return by_name.get(name or "") or ranking.default_of(label.removesuffix("_default"))

    found = {}
    if said.default is not None:
        name = said.default.name
        found[PLAIN] = trial_of(name, name.partition("/")[0])
    assert said.model is not None
    found[THIS] = trial_of(said.trial, said.taken or said.model.name.partition("/")[0])
    wanted = ranking.deployed.served
    return {
        who: one
        for who, one in found.items()
        if one is not None and pareto.measured_in([one], wanted)
    }


def _axes(x: _Axis, y: _Axis) -> str:
    parts = []
    for axis in (x, y):
        ticks = [each for each in _ticks(axis.low, axis.high, 5) if axis.holds(each)]
        digits = _digits(ticks) if len(ticks) > 1 else 2
        for tick in ticks:
            at = axis.at(tick)
            if axis is x:
                line = f'x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"'
                text = f'x="{at:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle"'
            else:
                line = f'x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"'
                text = f'x="{LEFT - 8}" y="{at + 4:.1f}" text-anchor="end"'
            parts.append(f'<line class="tick" {line}/><text {text}>{tick:.{digits}f}</text>')
    metrics = [axis.objective.metric for axis in (x, y)]
    names = [f"{displayed(plain_name(one))}, {describe(one).better} is better" for one in metrics]
    middle = (TOP + HEIGHT - BOTTOM) / 2
    parts.append(
        f'<text class="axis" x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 8}"'
        f' text-anchor="middle">{_text(names[0])}</text><text class="axis" text-anchor="middle"'
        f' transform="translate(12 {middle}) rotate(-90)">{_text(names[1])}</text>'
    )
    return "".join(parts)


def _dots(
    records: Sequence[TrialRecord], place: Callable[[TrialRecord], tuple[float, float]], kind: str
) -> str:
    """One path of round dots; those at one place are drawn once."""
    places = dict.fromkeys("M{:.1f},{:.1f}h0".format(*place(one)) for one in records)
    return f'<path class="{kind}" d="{"".join(places)}"/>' if places else ""


def _marked(
    who: str,
    record: TrialRecord,
    axes: tuple[_Axis, _Axis],
    analysis: Analysis | None,
    clip: str,
    above: bool,
) -> str:
    """A model's mark with its name above or below it, and its intervals as bars."""
    kind = "taken" if who == THIS else "default"
    x, y = (axis.at(record.metrics[axis.objective.metric]) for axis in axes)
    bars = ""
    known = {} if analysis is None else analysis.intervals.get(record.name, {})
    for along, axis in enumerate(axes):
        interval = known.get(axis.objective.metric)
        if interval is None:
            continue
        low, high = (axis.at(min(max(end, axis.low), axis.high)) for end in interval[1:3])
        ends = (low, high, y, y) if along == 0 else (x, x, low, high)
        bars += '<line class="reach" x1="{:.1f}" x2="{:.1f}" y1="{:.1f}" y2="{:.1f}"/>'.format(
            *ends
        )
    side = "end" if x > WIDTH / 2 else "start"
    off = -9 if side == "end" else 9
    up = -9 if above else 18
    return (
        f'<g class="{kind}"><g {clip}>{bars}</g>'
        f'<svg x="{x:.1f}" y="{y:.1f}" {_NO_SIZE}>{_mark(kind)}'
        f'<text x="{off}" y="{up}" text-anchor="{side}">{who}</text></svg></g>'
    )


def _caption(
    aside: int,
    beyond: int,
    lost: Sequence[str],
    marks: dict[str, TrialRecord],
    analysis: Analysis | None,
    objectives: int,
) -> str:
    said = ["Line: Pareto front."] if objectives == 2 else []
    if analysis is not None and any(one.name in analysis.intervals for one in marks.values()):
        said.append(f"Bars: {percent(analysis.level)} intervals.")
    if aside:
        said.append(f"Faint: {counted(aside, 'trial')} excluded.")
    if beyond:
        front = f", {len(lost)} of them on the front" if lost else ""
        said.append(f"{counted(beyond, 'trial')} beyond the axes{front}.")
    if objectives > 2:
        said.append("The front is of all objectives.")
    return " ".join(said)


# ---- why -----------------------------------------------------------------------------------------


def _why(said: Answer) -> str:
    if not said.why:
        return ""
    parts = "".join(
        f"<h4>{_text(part.heading)}</h4><p>{_with_code(part.text)}</p>" for part in said.why
    )
    headings = ", ".join(part.heading[0].lower() + part.heading[1:] for part in said.why)
    return (
        f'<details class="fold why printed"><summary><h3>Why this one</h3><span>{_text(headings)}'
        f"</span></summary><div>{parts}</div></details>"
    )
