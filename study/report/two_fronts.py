"""The figure of two studies' fronts on the same axes."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from study.answer.two_studies import Pair
from study.report.front_figure import LINE, axis_label, in_reach
from study.report.style import (
    PLOT_HEIGHT,
    STRIP_HEIGHT,
    TEXT,
    TRIANGLE,
    TRIANGLES,
    LegendEntry,
    dot,
    draw_beyond,
    finish,
    linear_ticks,
    new_figure,
    styles_of,
    wrapped,
)
from study.schema.objective import Objective
from study.store.trials import TrialRecord

Values = NDArray[np.float64]
STRIPS = 2  # of a single objective, one a study


def draw_two_fronts(pair: Pair) -> Figure:
    """Every trial that counts by the first two objectives; each study's front is joined.

    One objective gives a strip per study. With more than two, fronts are marked but not joined.
    """
    objectives = pair.objectives[:2]
    names = [side.name for side in pair.sides]
    styles = styles_of(names)
    figure = new_figure()
    axes = figure.add_subplot()
    _set_limits(axes, pair, objectives)
    height = PLOT_HEIGHT
    if len(objectives) == 1:
        axes.set_yticks(range(STRIPS), names)
        axes.set_ylim(STRIPS - 0.5, -0.5)
        height = STRIP_HEIGHT * STRIPS + 0.5
    entries: list[LegendEntry] = []
    for place, side in enumerate(pair.sides):
        colour, marker = styles[side.name]
        every = _places(side.results.ranking.eligible, objectives, place)
        members = _places(side.front, objectives, place)
        axes.scatter(
            every[:, 0],
            every[:, 1],
            s=11,
            c=colour,
            marker=marker,
            alpha=0.45,
            linewidths=0,
            zorder=2,
        )
        if len(pair.objectives) == 2:
            axes.plot(
                members[:, 0],
                members[:, 1],
                drawstyle="steps-post",
                color=colour,
                linewidth=1.3 * LINE,
                zorder=3,
            )
        axes.scatter(
            members[:, 0],
            members[:, 1],
            s=18,
            c=colour,
            marker=marker,
            edgecolors="black",
            linewidths=0.7,
            zorder=4,
        )
        entries.append((dot((colour, marker)), f"{side.name}: front of {len(side.front)}"))
        taken = [record for record in side.results.ranking.eligible if record.name == side.taken]
        if taken:
            ringed = _places(taken, objectives, place)
            axes.add_line(_ring(9.0, ringed))
            entries.append((_ring(7.0), f"its answer: {side.taken}"))
    outside = 0
    for place, side in enumerate(pair.sides):
        on_front = {record.name for record in side.front}
        counted = side.results.ranking.eligible
        for record, (x, y) in zip(counted, _places(counted, objectives, place), strict=True):
            if _is_outside(axes, x, y):
                edge = "black" if record.name in on_front else styles[side.name][0]
                draw_beyond(axes, (x, y), edge)
                outside += 1
    title = "\n".join([*pair.afterwards, " and ".join(names)])
    finish(figure, [axes], title, entries, _caption(pair, outside), height)
    return figure


def _places(records: Sequence[TrialRecord], objectives: Sequence[Objective], strip: int) -> Values:
    """Where trials lie, [N, 2]: by two objectives, or by the only one in their study's strip."""
    found = []
    for record in records:
        values = [record.metrics[one.metric] for one in objectives]
        spread = 0.6 * (record.number * 0.618 % 1.0) - 0.3  # so that equal values lie apart
        found.append([*values, strip + spread][:2])
    return np.array(found, np.float64)


def _is_outside(axes: Axes, x: float, y: float) -> bool:
    left, right = axes.get_xlim()
    ends = sorted(axes.get_ylim())  # of strips the first is on top
    return not (left <= x <= right and ends[0] <= y <= ends[1])


def _set_limits(axes: Axes, pair: Pair, objectives: Sequence[Objective]) -> None:
    """Set limits, ticks and labels."""
    every = np.vstack([_column(side.results.ranking.eligible, objectives) for side in pair.sides])
    best = np.vstack([_column(side.front, objectives) for side in pair.sides])
    shown = np.full(len(every), True)
    for place, one in enumerate(objectives):
        shown &= in_reach(one.sign * every[:, place], one.sign * best[:, place])
    for place, one in enumerate(objectives):
        column = every[:, place]
        low = column[shown].min()
        high = column[shown].max()
        margin = 0.06 * (high - low) or 0.01
        axis = axes.yaxis if place else axes.xaxis
        set_limits = axes.set_ylim if place else axes.set_xlim
        set_limits(low - margin, high + margin)
        axis.set_label_text(textwrap.fill(axis_label(one), 44), fontsize=TEXT)
        linear_ticks(axis, 6)


def _column(records: Sequence[TrialRecord], objectives: Sequence[Objective]) -> Values:
    values = [[record.metrics[one.metric] for one in objectives] for record in records]
    return np.array(values, np.float64)


def _ring(size: float, places: Values | None = None) -> Line2D:
    places = np.empty((0, 2)) if places is None else places
    return Line2D(
        places[:, 0],
        places[:, 1],
        marker="o",
        markersize=size,
        markerfacecolor="none",
        markeredgecolor="black",
        linestyle="none",
        zorder=5,
    )


def _caption(pair: Pair, outside: int) -> str:
    shown = pair.one.study.recorded.shown("validation")
    counts = " and ".join(f"{len(side.results.ranking.eligible):,}" for side in pair.sides)
    sentences = [
        f"The same {shown}; {counts} trials that count; no intervals.",
        "Each front was selected on these samples, so that of more trials looks better.",
    ]
    if len(pair.objectives) > 2:
        undrawn = " and ".join(one.metric for one in pair.objectives[2:])
        sentences.append(f"Fronts of all {len(pair.objectives)} objectives; {undrawn} not drawn.")
    if outside:
        lie = "trials lie" if outside > 1 else "trial lies"
        drawn = TRIANGLES if outside > 1 else TRIANGLE
        sentences.append(f"{outside:,} {lie} outside the axes: {drawn} at the edge.")
    return wrapped(sentences)
