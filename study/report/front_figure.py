"""The Pareto front figure, at a paper's column width. The values are computed elsewhere, from trial records."""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, ScalarFormatter
from numpy.typing import NDArray

from study.analysis import pareto
from study.analysis.ranking import Reasons, set_aside_line
from study.report.style import (
    PLOT_HEIGHT,
    STRIP_HEIGHT,
    TEXT,
    check_suffix,
    displayed,
    finish,
    new_figure,
    our_settings,
    save,
    styles_of,
)
from study.schema.objective import Objective
from study.store.trials import TrialRecord
from trainables.fields import FieldError
from trainables.files.output import write_output
from trainables.metrics import describe

if TYPE_CHECKING:
    from study.uncertainty.bootstrap import Analysis

NONE: Reasons = {}
# An axis extends this multiple of the range covered by half of the front or a quarter of all trials.
REACH = 6.0

_FRONT: dict[str, Any] = {"color": "black", "linewidth": 0.9}
_BAR: dict[str, Any] = {"color": "black", "linewidth": 0.6, "alpha": 0.6, "solid_capstyle": "butt"}
_RING: dict[str, Any] = {
    "marker": "o",
    "markersize": 9.0,
    "markerfacecolor": "none",
    "markeredgecolor": "black",
    "linestyle": "none",
}


@our_settings()
def front_figure(
    records: Sequence[TrialRecord],
    objectives: Sequence[Objective],
    title: str,
    path: Path,
    samples: int | None = None,
    analysis: Analysis | None = None,
    knee: TrialRecord | None = None,
    aside: Reasons = NONE,
) -> None:
    """Write `draw_front` as PNG, PDF or SVG, by the suffix. Raises FieldError at `figure`."""
    check_suffix(path)
    save(draw_front(records, objectives, title, samples, analysis, knee, aside), path, write_output)


def draw_front(
    records: Sequence[TrialRecord],
    objectives: Sequence[Objective],
    title: str,
    samples: int | None = None,
    analysis: Analysis | None = None,
    knee: TrialRecord | None = None,
    aside: Reasons = NONE,
) -> Figure:
    """Every complete trial by its first two objectives, with the front of all objectives and its knee highlighted.

    One objective gives one strip per method. With more than two the front is marked but not joined: its projection is
    no staircase. samples: size of the validation split, for the caption. With an analysis, trials on the front get
    interval bars, and markers whose area grows with their share. knee: by default that of the objectives. aside: trials
    set aside, which are not drawn but counted. Raises FieldError at `figure` if no trial is left.
    """
    finished = [record for record in pareto.complete(records) if record.name not in aside]
    if not finished and aside:
        raise FieldError("figure", f"no trial to draw. {set_aside_line(aside)}")
    if not finished:
        states = Counter(
            "not done" if record.state == "running" else record.state for record in records
        )
        found = (
            ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
            or "the study has no trials"
        )
        raise FieldError("figure", f"no complete trial to draw: {found}.")
    labels = list(dict.fromkeys(record.label for record in records))
    styles = styles_of(labels)
    measured = {record.label for record in finished}
    methods = [label for label in labels if label in measured]
    front = pareto.front(finished, objectives)
    knee = knee or pareto.knee(front, objectives)
    assert knee is not None

    figure = new_figure()
    axes = figure.add_subplot()
    outside = _set_axes(axes, finished, front, objectives[:2])
    height, entries = PLOT_HEIGHT, [_method_entry(label, *styles[label]) for label in methods]
    places = {
        record.name: tuple(record.metrics[objective.metric] for objective in objectives)
        for record in finished
    }
    if len(objectives) == 1:
        height, entries = STRIP_HEIGHT * len(methods) + 0.5, []
        places = {
            record.name: (*places[record.name], _strip_place(record, methods))
            for record in finished
        }
        axes.set_yticks(range(len(methods)), methods)
        axes.set_ylim(len(methods) - 0.5, -0.5)  # the first method on top
    for label in methods:
        _draw_trials(
            axes,
            [places[record.name] for record in finished if record.label == label],
            *styles[label],
        )
    if len(objectives) == 2:
        # Neighbours meet in the corner that is as bad as either: points behind the line are dominated.
        axes.plot(
            *np.array([places[record.name] for record in front]).T,
            drawstyle="steps-post",
            zorder=3,
            **_FRONT,
        )
    for record in front:
        share = 0.5 if analysis is None else analysis.shares.get(record.name, 0.5)
        if analysis is not None and record.name not in outside:
            _draw_intervals(axes, record, places[record.name], objectives[:2], analysis)
        _draw_member(axes, places[record.name], *styles[record.label], share)
    axes.plot(*places[knee.name][:2], **_RING, zorder=5)
    entries += _front_entries(knee, len(front), len(objectives))
    lying = len(outside), sum(record.name in outside for record in front)
    caption = _caption(len(finished), lying, samples, objectives, analysis, aside)
    finish(figure, [axes], title, entries, caption, height)
    return figure


def axis_label(objective: Objective) -> str:
    """`ECE, validation (lower is better)`."""
    return (
        f"{displayed(objective.metric)}, validation ({describe(objective.metric).better} is better)"
    )


def in_reach(values: NDArray[np.float64], front: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which trials an axis shows, [N]: all but those so much worse than most of the front that they would squash it.

    (A trial at chance accuracy is often perfectly calibrated, and so on the front.)
    values: [N], of every complete trial, smaller is better; front: the values of those on the front.
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
) -> set[str]:
    """Set limits, ticks and labels of one or two axes; returns the trials that lie outside."""
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
    outside = np.full(len(values), False)
    sides: list[tuple[Axis, Callable[[float, float], Any]]]
    sides = [(axes.xaxis, axes.set_xlim), (axes.yaxis, axes.set_ylim)]
    for objective, column, (axis, set_limits) in zip(objectives, values.T, sides, strict=False):
        low, high = column[shown].min(), column[shown].max()
        margin = 0.06 * (high - low) or 0.01
        set_limits(low - margin, high + margin)
        outside |= (column < low - margin) | (column > high + margin)
        axis.set_label_text(textwrap.fill(axis_label(objective), 44), fontsize=TEXT)
        axis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
        axis.set_major_formatter(ScalarFormatter(useOffset=False))
    return {record.name for record, one in zip(finished, outside, strict=True) if one}


def _strip_place(record: TrialRecord, methods: Sequence[str]) -> float:
    """Height within its method's strip: spread by the golden ratio, so that equal values do not overlap."""
    return methods.index(record.label) + 0.6 * (record.number * (math.sqrt(5) - 1) / 2 % 1.0) - 0.3


def _draw_trials(axes: Axes, places: Sequence[tuple[float, ...]], colour: str, marker: str) -> None:
    x, y, *_ = np.array(places).T
    axes.scatter(x, y, s=11, c=colour, marker=marker, alpha=0.55, linewidths=0, zorder=2)


def _draw_intervals(
    axes: Axes,
    record: TrialRecord,
    place: tuple[float, ...],
    objectives: Sequence[Objective],
    analysis: Analysis,
) -> None:
    """A bar along each axis whose objective has an interval; the axes grow to fit it."""
    for along, objective in enumerate(objectives):
        interval = analysis.intervals[record.name].get(objective.metric)
        if interval is None:
            continue
        ends = np.array([place[:2], place[:2]])
        ends[:, along] = interval.low, interval.high
        axes.plot(*ends.T, zorder=3.5, **_BAR)
        margin = 0.02 * (interval.high - interval.low)
        lowest, highest = axes.get_ylim() if along else axes.get_xlim()
        limits = min(lowest, interval.low - margin), max(highest, interval.high + margin)
        axes.set(**{"ylim" if along else "xlim": limits})


def _draw_member(
    axes: Axes, place: tuple[float, ...], colour: str, marker: str, share: float
) -> None:
    x, y, *_ = place
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


def _method_entry(label: str, colour: str, marker: str) -> tuple[Line2D, str]:
    return Line2D([], [], color=colour, marker=marker, markersize=4, linestyle="none"), label


def _front_entries(knee: TrialRecord, size: int, objectives: int) -> list[tuple[Line2D, str]]:
    ring = Line2D([], [], **{**_RING, "markersize": 7.0})
    if objectives == 1:
        return [(ring, f"best: {knee.name}")]
    line = _FRONT if objectives == 2 else {"color": "none"}
    member = Line2D(
        [], [], marker="o", markersize=4, markerfacecolor="white", markeredgecolor="black", **line
    )
    return [(member, f"Pareto front ({size})"), (ring, f"knee: {knee.name}")]


def _caption(
    trials: int,
    lying: tuple[int, int],
    samples: int | None,
    objectives: Sequence[Objective],
    analysis: Analysis | None,
    aside: Reasons,
) -> str:
    """What the figure shows and its limits. lying: trials outside the axes, and how many of them are on the front."""
    split = f"{samples:,} validation samples" if samples is not None else "Validation split"
    sure = "no intervals" if analysis is None else f"bars: {analysis.named}"
    sentences = [f"{split}; {trials:,} complete trial{'s' * (trials != 1)}; {sure}."]
    if aside:
        sentences.append(f"Not drawn: {set_aside_line(aside)}")
    if len(objectives) > 1:
        sentences.append(
            "Knee: the compromise, farthest from the line between the front's extremes."
        )
    if analysis is not None:
        sentences.append(
            "Near 0, no bootstrap of a calibration error attains its nominal coverage."
        )
        if analysis.shares:
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
            f"{outside:,} {'trials lie' if outside > 1 else 'trial lies'} outside the axes{which}."
        )
    return "\n".join(textwrap.fill(sentence, 76) for sentence in sentences)
