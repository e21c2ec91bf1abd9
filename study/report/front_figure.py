"""The Pareto front figure, at a paper's column width, of values that are computed elsewhere."""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from study.analysis import pareto
from study.analysis.ranking import Reasons, excluded_line
from study.report.style import (
    PLOT_HEIGHT,
    STRIP_HEIGHT,
    TAKE,
    TEXT,
    TRIANGLE,
    TRIANGLES,
    LegendEntry,
    Place,
    Style,
    check_suffix,
    displayed,
    dot,
    draw_beyond,
    finish,
    linear_ticks,
    new_figure,
    our_settings,
    ring,
    save,
    styles_of,
    wrapped,
)
from study.schema.objective import Objective
from study.store.trials import TrialRecord
from study.uncertainty.without_intervals import no_intervals_of
from trainables.files.output import write_output
from trainables.metrics import describe
from trainables.problems import FieldError

if TYPE_CHECKING:
    from study.uncertainty.bootstrap import Analysis
    from study.uncertainty.intervals import Interval

NONE: Reasons = {}
# An axis extends this multiple of the range of half of the front or a quarter of all trials.
REACH = 6.0
LINE = 0.9  # points, the width of the front's line


@our_settings()
def write_figure(path: Path, draw: Callable[[], Figure]) -> None:
    """Write what is drawn as PNG, PDF or SVG, by the suffix. Raises FieldError at `figure`."""
    check_suffix(path)
    save(draw(), path, write_output)


def draw_front(
    records: Sequence[TrialRecord],
    objectives: Sequence[Objective],
    title: str,
    split: str = "Validation split",
    analysis: Analysis | None = None,
    ringed: TrialRecord | None = None,
    aside: Reasons = NONE,
    few: str = "",
    equal: Collection[str] = (),
    word: str = TAKE,
) -> Figure:
    """Every complete trial by its first two objectives; the front and one trial are marked.

    One objective gives one strip per method. With more than two the front is marked but not joined:
    its projection is no staircase. split: its size, in words, for the caption. With an
    analysis, trials on the front get interval bars, and markers whose area grows with their share.
    ringed: the trial that the answer takes, if it takes one; or another, called by its `word`.
    aside: trials excluded, which are not drawn but counted. few: why there are no intervals, for
    the caption. equal: trials that another with equal predictions stands for, which are not drawn.
    Raises FieldError at `figure` if no trial is left.
    """
    finished = [record for record in _to_draw(records, aside) if record.name not in equal]
    front = pareto.front(finished, objectives)
    styles = _styles(records, finished)
    places = _places(finished, objectives, list(styles))

    figure = new_figure()
    axes = figure.add_subplot()
    outside = _set_axes(axes, finished, front, objectives[:2], ringed)
    height = PLOT_HEIGHT
    if len(objectives) == 1:
        axes.set_yticks(range(len(styles)), list(styles))
        axes.set_ylim(len(styles) - 0.5, -0.5)  # the first method on top
        height = STRIP_HEIGHT * len(styles) + 0.5
    for label, (colour, marker) in styles.items():
        x, y = np.array([places[one.name] for one in finished if one.label == label]).T
        axes.scatter(x, y, s=11, c=colour, marker=marker, alpha=0.55, linewidths=0, zorder=2)
    if len(objectives) == 2:
        # Neighbours meet in the corner as bad as either: points behind the line are dominated.
        x, y = np.array([places[record.name] for record in front]).T
        axes.plot(x, y, drawstyle="steps-post", zorder=3, color="black", linewidth=LINE)
    if analysis is not None:
        inside = [record for record in front if record.name not in outside]
        _draw_intervals(axes, inside, places, objectives[:2], analysis)
    shares = {} if analysis is None else analysis.shares
    bare = [one for one in front if analysis is not None and one.name not in analysis.intervals]
    for record in front:
        share = 0.0 if record in bare else shares.get(record.name, 0.5)
        _draw_member(axes, places[record.name], styles[record.label], share)
    entries = _entries(styles, len(front), len(objectives))
    if ringed is not None and ringed.name in places:
        axes.add_line(ring(9.0, [places[ringed.name]]))
        entries.append((ring(7.0), f"{word}: {ringed.name}"))
    members = {record.name for record in front}
    for record in finished:
        if record.name in outside:
            edge = "black" if record.name in members else styles[record.label][0]
            draw_beyond(axes, places[record.name], edge)

    lying = (len(outside), sum(record.name in outside for record in front))
    sure = f"no intervals ({few})" if few else "no intervals"
    if analysis is not None:
        without = no_intervals_of(one.metric for one in objectives)
        sure = "; ".join(filter(None, (f"bars: {analysis.named}", without)))
    caption = _caption(len(finished), lying, split, objectives, analysis, aside, len(bare), sure)
    finish(figure, [axes], title, entries, caption, height)
    return figure


def _to_draw(records: Sequence[TrialRecord], aside: Reasons) -> list[TrialRecord]:
    """The complete trials that are not excluded. Raises FieldError at `figure` for none."""
    finished = [record for record in pareto.complete(records) if record.name not in aside]
    if finished:
        return finished
    if aside:
        raise FieldError("figure", "no trial to draw", excluded_line(aside))
    states = Counter(record.state for record in records)
    words = {"not done" if state == "running" else state: states[state] for state in states}
    found = ", ".join(f"{count} {word}" for word, count in sorted(words.items()))
    raise FieldError("figure", f"no complete trial to draw: {found or 'the study has no trials'}")


def _styles(records: Sequence[TrialRecord], finished: Sequence[TrialRecord]) -> dict[str, Style]:
    """Colour and marker of each method that has a trial to draw, by its position in the study."""
    measured = {record.label for record in finished}
    styles = styles_of(list(dict.fromkeys(record.label for record in records)))
    return {label: style for label, style in styles.items() if label in measured}


def _places(
    finished: Sequence[TrialRecord], objectives: Sequence[Objective], methods: Sequence[str]
) -> dict[str, Place]:
    """Where each trial lies: by two objectives, or by the only one in its method's strip."""
    first, *others = (objective.metric for objective in objectives)
    places = {}
    for record in finished:
        y = record.metrics[others[0]] if others else _strip_place(record, methods)
        places[record.name] = (record.metrics[first], y)
    return places


def axis_label(objective: Objective) -> str:
    """`ECE, validation (lower is better)`."""
    return (
        f"{displayed(objective.metric)}, validation ({describe(objective.metric).better} is better)"
    )


def in_reach(values: NDArray[np.float64], front: NDArray[np.float64]) -> NDArray[np.bool_]:
    """The trials an axis shows, [N]: none so much worse than most of the front as to squash it.

    (A trial at chance accuracy is often perfectly calibrated, and so on the front.)
    values: [N], of every complete trial, smaller is better; front: the values of those on the
    front.
    """
    gaps = values - values.min()
    worse = gaps[gaps > 0]
    if not len(worse):
        return np.full(len(gaps), True)
    half = np.quantile(front - values.min(), 0.5, method="lower")
    shown: NDArray[np.bool_] = gaps <= REACH * max(half, np.quantile(worse, 0.25))
    return shown


def _set_axes(
    axes: Axes,
    finished: Sequence[TrialRecord],
    front: Sequence[TrialRecord],
    objectives: Sequence[Objective],
    ringed: TrialRecord | None,
) -> set[str]:
    """Set limits, ticks and labels of one or two axes; returns the trials that lie outside, which
    the ringed one never does."""
    values = np.array(
        [[record.metrics[objective.metric] for objective in objectives] for record in finished]
    )
    best = np.array(
        [[record.metrics[objective.metric] for objective in objectives] for record in front]
    )
    signs = [objective.sign for objective in objectives]
    shown = np.all(
        [in_reach(s * v, s * f) for s, v, f in zip(signs, values.T, best.T, strict=True)], axis=0
    )
    if ringed is not None:
        shown |= [record.name == ringed.name for record in finished]
    outside = np.full(len(values), False)
    sides: list[tuple[Axis, Callable[[float, float], object]]]
    sides = [(axes.xaxis, axes.set_xlim), (axes.yaxis, axes.set_ylim)]
    for objective, column, (axis, set_limits) in zip(objectives, values.T, sides, strict=False):
        low, high = column[shown].min(), column[shown].max()
        margin = 0.06 * (high - low) or 0.01
        set_limits(low - margin, high + margin)
        outside |= (column < low - margin) | (column > high + margin)
        axis.set_label_text(textwrap.fill(axis_label(objective), 44), fontsize=TEXT)
        linear_ticks(axis, 6)
    return {record.name for record, one in zip(finished, outside, strict=True) if one}


def _strip_place(record: TrialRecord, methods: Sequence[str]) -> float:
    """Height within its method's strip: spread by the golden ratio, so equal values lie apart."""
    return methods.index(record.label) + 0.6 * (record.number * (math.sqrt(5) - 1) / 2 % 1.0) - 0.3


def _draw_intervals(
    axes: Axes,
    records: Sequence[TrialRecord],
    places: Mapping[str, Place],
    objectives: Sequence[Objective],
    analysis: Analysis,
) -> None:
    """A bar along each axis whose objective has an interval; the axes grow to fit it."""
    for record in records:
        for along, objective in enumerate(objectives):
            interval = analysis.intervals.get(record.name, {}).get(objective.metric)
            if interval is not None:
                _draw_bar(axes, along, places[record.name], interval)


def _draw_bar(axes: Axes, along: int, place: Place, interval: Interval) -> None:
    ends = np.array([place, place])
    ends[:, along] = interval.low, interval.high
    axes.plot(*ends.T, zorder=3.5, color="black", linewidth=0.6, alpha=0.6, solid_capstyle="butt")
    margin = 0.02 * (interval.high - interval.low)
    lowest, highest = axes.get_ylim() if along else axes.get_xlim()
    set_limits = axes.set_ylim if along else axes.set_xlim
    set_limits(min(lowest, interval.low - margin), max(highest, interval.high + margin))


def _draw_member(axes: Axes, place: Place, style: Style, share: float) -> None:
    x, y = place
    colour, marker = style
    axes.scatter(
        x,
        y,
        s=6 + 28 * share,
        c=colour,
        marker=marker,
        edgecolors="black",
        linewidths=0.7,
        zorder=4,
    )


def _entries(styles: Mapping[str, Style], size: int, objectives: int) -> list[LegendEntry]:
    """The legend; one objective's strips have the methods' names beside them."""
    if objectives == 1:
        return []
    entries: list[LegendEntry] = [(dot(style), label) for label, style in styles.items()]
    member = Line2D(
        [],
        [],
        marker="o",
        markersize=4,
        markerfacecolor="white",
        markeredgecolor="black",
        color="black" if objectives == 2 else "none",  # of more, the front is not joined
        linewidth=LINE,
    )
    return [*entries, (member, f"Pareto front ({size})")]


def _caption(
    trials: int,
    lying: tuple[int, int],
    split: str,
    objectives: Sequence[Objective],
    analysis: Analysis | None,
    aside: Reasons,
    bare: int,
    sure: str,
) -> str:
    """The figure's content and limits.

    lying: trials outside the axes; those on the front. bare: those on the front that the analysis
    leaves out. sure: whether there are intervals.
    """
    sentences = [f"{split}; {trials:,} complete trial{'s' * (trials != 1)}; {sure}."]
    if aside:
        sentences.append(f"Not drawn: {excluded_line(aside)}")
    if bare:
        trials_are = "1 trial is" if bare == 1 else f"{bare:,} trials are"
        sentences.append(
            f"{trials_are} on the front without bars and share: the predictions are lost. The"
            " shares of the others are too large."
        )
    if analysis is not None and analysis.shares:
        sentences.append(
            "Marker area: share of bootstrap resamples with the trial on the Pareto front."
        )
    if len(objectives) > 2:
        undrawn = " and ".join(objective.metric for objective in objectives[2:])
        sentences.append(f"Pareto front of all {len(objectives)} objectives; {undrawn} not drawn.")
    outside, of_front = lying
    if outside:
        which = f", {of_front:,} of them on the Pareto front" if of_front else ""
        sentences.append(
            f"{outside:,} {'trials lie' if outside > 1 else 'trial lies'} outside the axes{which}:"
            f" {TRIANGLES if outside > 1 else TRIANGLE} at the edge."
        )
    return wrapped(sentences)
