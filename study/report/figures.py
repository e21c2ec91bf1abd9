"""Reliability, hypervolume and searched values: they become a Figure of a paper's column width."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import (
    EngFormatter,
    FormatStrFormatter,
    LogLocator,
    NullLocator,
)

from study.analysis.importance import LEAST, Searched
from study.analysis.progression import Growth, Values
from study.answer.phrases import counted
from study.report.front_figure import in_reach
from study.report.style import (
    BIN_KEY,
    COLOURS,
    INSIDE,
    OUTSIDE,
    SMALL,
    TAKE,
    TEXT,
    TRIANGLE,
    TRIANGLES,
    LegendEntry,
    Style,
    displayed,
    dot,
    draw_beyond,
    finish,
    linear_ticks,
    new_figure,
    ring,
    styles_of,
    wrapped,
)
from study.schema.objective import Objective
from study.store.trials import TrialRecord
from study.uncertainty.reliability import BINS, Reliability, statement

OTHERS: Style = ("0.75", "")  # grey, for methods beyond the number of colours
MOST_SHAPES = 400  # points of a panel; more are an image in PDF and SVG, which is smaller
PANEL = 1.45  # inches, the height of a small panel


# ---- reliability ---------------------------------------------------------------------------------


def draw_reliability(
    panels: Mapping[str, Reliability],
    title: str,
    samples: int,
    shown: str = "",
    unit: str | None = None,
    counted: str = "samples",
) -> Figure:
    """Accuracy against confidence over the consistency bands, and below them the samples per bin.

    panels: drawn side by side, by heading (`raw`, `after temperature`). shown: the samples, in
    words; unit, counted: as in `bins_note`.
    """
    figure = new_figure()
    grid = figure.subplots(
        2, len(panels), sharex=True, sharey="row", squeeze=False, height_ratios=(3, 1)
    )
    for (upper, lower), (heading, found) in zip(grid.T, panels.items(), strict=True):
        upper.set_title(f"{heading}: ECE {found.ece:.4f}", fontsize=TEXT)
        _draw_bins(upper, found)
        lower.bar((found.numbers + 0.5) / BINS, found.counts, width=0.85 / BINS, color="0.55")
        lower.set_yscale("log")
        lower.yaxis.set_minor_locator(NullLocator())
        lower.yaxis.set_major_formatter(FormatStrFormatter("%g"))
        lower.set_ylim(0.7, samples * 1.5)
        lower.set_xlabel("confidence", fontsize=TEXT)
    grid[0, 0].set_ylabel("accuracy", fontsize=TEXT)
    grid[1, 0].set_ylabel(counted, fontsize=TEXT)
    note = wrapped(bins_note(shown or f"{samples:,} validation samples", unit, counted))
    finish(figure, list(grid.flat), title, _bin_entries(), note, 2.6)
    return figure


def bins_note(shown: str, unit: str | None = None, counted: str = "samples") -> list[str]:
    """The sentences below a reliability diagram.

    shown: the samples, in words. unit: as in `statement`. counted: what bins hold.
    """
    return [
        (
            f"{shown}, top label, {BINS} bins of equal width: accuracy against mean confidence, and"
            f" the {counted} in each bin."
        ),
        statement(unit),
    ]


def _draw_bins(axes: Axes, found: Reliability) -> None:
    places = (found.numbers + 0.5) / BINS
    axes.bar(
        places, found.high - found.low, bottom=found.low, width=1 / BINS, color="0.85", zorder=1
    )
    axes.plot([0, 1], [0, 1], color="0.4", linewidth=0.7, linestyle="--", zorder=2)
    for chosen, (colour, marker) in ((~found.outside, INSIDE), (found.outside, OUTSIDE)):
        axes.scatter(
            found.confidence[chosen],
            found.accuracy[chosen],
            s=12,
            c=colour,
            marker=marker,
            zorder=3,
        )
    axes.set_xlim(0, 1.02)
    axes.set_xticks([0, 0.5, 1])
    axes.set_ylim(0, 1.03)
    axes.set_yticks([0, 0.5, 1])


def _bin_entries() -> list[LegendEntry]:
    line = Line2D([], [], color="0.4", linewidth=0.7, linestyle="--")
    handles = (dot(INSIDE), dot(OUTSIDE), Patch(color="0.85"), line)
    return list(zip(handles, BIN_KEY, strict=True))


# ---- how a study grows ---------------------------------------------------------------------------


def draw_growth(
    whole: Growth,
    methods: Mapping[str, Growth],
    styles: Mapping[str, Style],
    title: str,
    reference: Mapping[str, float],
) -> Figure:
    """Hypervolume over trials and over training samples seen, for the study and per method."""
    figure = new_figure()
    rows: list[Mapping[str, Growth]] = [{"": whole}]
    if len(methods) > 1:
        rows.append(methods)
    grid = figure.subplots(len(rows), 2, sharey="row", squeeze=False)
    for row, curves in zip(grid, rows, strict=True):
        for label in sorted(curves, key=lambda label: label in styles):  # grey lines below
            colour, marker = styles.get(label, OTHERS) if label else ("black", "")
            for axes, x in zip(row, (curves[label].trials, curves[label].samples), strict=True):
                axes.plot(
                    x,
                    curves[label].volume,
                    drawstyle="steps-post",
                    color=colour,
                    marker=marker,
                    markevery=[-1],
                    **LINE,
                )
        row[0].set_ylabel("hypervolume", fontsize=TEXT)
        row[0].set_ylim(volume_limits([curve.volume for curve in curves.values()]))
    entries: list[LegendEntry] = []
    if len(rows) > 1:
        grid[0, 0].set_title("all methods", fontsize=TEXT, loc="left")
        grid[1, 0].set_title("per method", fontsize=TEXT, loc="left")
        entries = line_entries(methods, styles)
    grid[-1, 0].set_xlabel("finished trials", fontsize=TEXT)
    grid[-1, 1].set_xlabel("training samples seen", fontsize=TEXT)
    for axes in grid.flat:
        linear_ticks(axes.xaxis, integer=True)
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        linear_ticks(axes.yaxis)
    note = wrapped([growth_note(reference)])
    finish(figure, list(grid.flat), title, entries, note, PANEL * len(rows))
    return figure


def growth_note(reference: Mapping[str, float]) -> str:
    """The sentence on the hypervolume. reference: by metric."""
    names = " and ".join(f"{displayed(metric)} {value:.4g}" for metric, value in reference.items())
    return (
        f"Hypervolume: the part of the objective space better than {names} that the Pareto front"
        " dominates, on the validation split, which the search used: it can only grow. Trials in"
        " the order they finished, including failed ones."
    )


def volume_limits(volumes: Sequence[Values]) -> tuple[float, float]:
    """Limits from low first volumes: a study's first trials do not squash what the last add."""
    top = max(float(volume.max()) for volume in volumes)
    lows = [
        float(np.quantile(volume[volume > 0], 0.02)) for volume in volumes if (volume > 0).any()
    ]
    low = min(lows, default=0.0)
    return low - 0.06 * (top - low) - 1e-6, top + 0.06 * (top - low) + 1e-6


# ---- hyperparameters -----------------------------------------------------------------------------


def draw_searched(
    found: Searched,
    records: Sequence[TrialRecord],
    front: Sequence[TrialRecord],
    objectives: Sequence[Objective],
    style: Style,
    title: str,
    taken: TrialRecord | None = None,
) -> Figure:
    """Each searched hyperparameter against each objective; the study's front is edged in black.

    records: the complete trials in `found`, in its order; front: of the whole study; taken: the
    model to take, of any method.
    """
    figure = new_figure()
    paths = list(found.values)
    grid = figure.subplots(len(objectives), len(paths), sharex="col", sharey="row", squeeze=False)
    numbers = {record.number for record in front if record.label == records[0].label}
    members = np.array([number in numbers for number in found.numbers])
    ringed = np.array([record == taken for record in records])
    hidden = np.zeros(len(records), bool)
    for row, objective in zip(grid, objectives, strict=True):
        y = np.array([record.metrics[objective.metric] for record in records])
        costs = objective.sign * y
        shown = in_reach(costs, costs[members] if members.any() else costs.min(keepdims=True))
        margin = 0.08 * float(np.ptp(y[shown])) or 0.01
        low, high = y[shown].min() - margin, y[shown].max() + margin
        beyond = (y < low) | (y > high)
        hidden |= beyond
        row[0].set_ylim(low, high)
        row[0].set_ylabel(textwrap.fill(displayed(objective.metric), 18), fontsize=TEXT)
        for axes, path in zip(row, paths, strict=True):
            x = _draw_values(axes, found, path, y, members, style, beyond)
            for number in np.flatnonzero(ringed & ~beyond):
                axes.add_line(ring(7.0, [(x[number], y[number])]))
            if found.importances is not None:
                share = found.importances[path][objectives.index(objective)]
                axes.set_title(
                    f"importance {share:.2f}" if share == share else "constant",
                    fontsize=SMALL,
                    loc="right",
                    pad=4,
                )
    for axes, path in zip(grid[-1], paths, strict=True):
        axes.set_xlabel(path.removeprefix("method."), fontsize=TEXT)
    entries: list[LegendEntry] = [(dot(style), "trial")]
    if members.any():
        edged = dot(style, 4.5, markeredgecolor="black")
        entries.append((edged, "on the study's Pareto front"))
    if ringed.any():
        entries.append((ring(6.0), TAKE))
    note = wrapped(_search_notes(found, len(records), int(hidden.sum())))
    finish(figure, list(grid.flat), title, entries, note, 1.25 * len(objectives))
    return figure


def _draw_values(
    axes: Axes,
    found: Searched,
    path: str,
    y: Values,
    members: np.ndarray,
    style: Style,
    beyond: np.ndarray,
) -> Values:
    """One hyperparameter against one objective; returns the places of its values, [N]. beyond: [N],
    what the objective's axis leaves out."""
    values = found.values[path]
    if path in found.choices:
        names = found.choices[path]
        known = [str(value) for value in values]
        values = [names.index(one) if one in names else np.nan for one in known]
        axes.set_xticks(
            range(len(names)),
            [textwrap.shorten(name, 14, placeholder="...") for name in names],
            rotation=20,
            ha="right",
        )
        axes.set_xlim(-0.5, len(names) - 0.5)
    else:
        low, high = found.ranges[path]
        if path in found.log:
            axes.set_xscale("log")
            axes.set_xlim(low * (low / high) ** 0.05, high * (high / low) ** 0.05)
            log_ticks(axes.xaxis)
        else:
            linear_ticks(axes.xaxis)
            axes.set_xlim(low - 0.05 * (high - low), high + 0.05 * (high - low))
    x = np.array(values, np.float64)
    linear_ticks(axes.yaxis)
    colour, marker = style
    axes.scatter(
        x[~members],
        y[~members],
        s=11,
        c=colour,
        marker=marker,
        alpha=0.6,
        linewidths=0,
        zorder=2,
        rasterized=len(x) > MOST_SHAPES,
    )
    axes.scatter(
        x[members],
        y[members],
        s=18,
        c=colour,
        marker=marker,
        edgecolors="black",
        linewidths=0.7,
        zorder=3,
    )
    for number in np.flatnonzero(beyond):
        draw_beyond(axes, (x[number], y[number]), "black" if members[number] else colour)
    return x


def _search_notes(found: Searched, trials: int, hidden: int) -> list[str]:
    notes = [f"{counted(trials, 'complete trial')}, validation split."]
    if hidden:
        lies = "lie" if hidden > 1 else "lies"
        drawn = TRIANGLES if hidden > 1 else TRIANGLE
        notes.append(f"{hidden} of them {lies} outside the axes: {drawn} at the edge.")
    return [" ".join([*notes, importance_note(found)])]


def importance_note(found: Searched) -> str:
    """The sentence on importances, or why there are none."""
    if found.importances is not None:
        return (
            "Importance: how much this hyperparameter alone separates the best quarter of the"
            " trials from the rest, by that objective (PED-ANOVA, Optuna). Importances sum to 1"
            " even if nothing matters."
        )
    if len(found.values) > 1:
        return (
            f"No importances: too few trials ({len(found.numbers)}; at least {LEAST} are needed)."
        )
    return "No importance: only one hyperparameter was searched."


# ---- ticks ---------------------------------------------------------------------------------------


def log_ticks(axis: Axis) -> None:
    """Ticks for the current limits; over few decades also between powers of ten."""
    low, high = axis.get_view_interval()
    if high < 5 * low:  # hardly one of 1, 2 and 5 may lie between
        linear_ticks(axis)
        axis.set_minor_locator(NullLocator())
        return
    between: tuple[int, ...] = (1,)
    if high < 30 * low:
        between = (1, 2, 5)
    elif high < 300 * low:
        between = (1, 3)
    axis.set_major_locator(LogLocator(subs=between))
    axis.set_major_formatter(FormatStrFormatter("%g"))
    axis.set_minor_locator(NullLocator())


# ---- lines ---------------------------------------------------------------------------------------

LINE: dict[str, Any] = {"linewidth": 0.9, "markersize": 3.0}


def line_styles(labels: Sequence[str], first: Sequence[str]) -> dict[str, Style]:
    """Styles of the methods; of more methods than colours, `first`, then as they come: the rest is
    grey."""
    if len(labels) <= len(COLOURS):
        return styles_of(labels)
    return styles_of(list(dict.fromkeys([*first, *labels]))[: len(COLOURS)])


def line_entries(labels: Mapping[str, object], styles: Mapping[str, Style]) -> list[LegendEntry]:
    """Legend entries of the coloured methods, and one that counts the grey ones."""
    drawn = [label for label in styles if label in labels]
    entries: list[LegendEntry] = [
        (Line2D([], [], color=styles[label][0], marker=styles[label][1], **LINE), label)
        for label in drawn
    ]
    grey = len(labels) - len(drawn)
    if grey:
        entries.append((Line2D([], [], color=OTHERS[0], linewidth=0.9), f"{grey} others"))
    return entries
