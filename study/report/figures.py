"""A study's figures beside its front: each takes what was computed and gives a Figure, at a paper's column width."""

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
from matplotlib.ticker import EngFormatter, FormatStrFormatter, LogLocator, MaxNLocator, NullLocator, ScalarFormatter

from study.analysis.importance import LEAST, Searched
from study.analysis.progression import Growth, History, Values, by_epoch
from study.analysis.reliability import BINS, STATEMENT, Reliability
from study.report.front_figure import in_reach
from study.report.style import COLOURS, SMALL, TEXT, Entry, Style, displayed, finish, new_figure, styles_of, wrapped
from study.schema.objective import Objective
from study.store.trials import TrialRecord
from trainables.metrics import ESSENTIAL

OTHERS: Style = ("0.75", "")  # grey, for the methods that colours do not reach
PANEL = 1.45  # inches, the height of a small panel
_INSIDE, _OUTSIDE = (COLOURS[0], "o"), (COLOURS[1], "D")


# ---- reliability ---------------------------------------------------------------------------------------------------


def draw_reliability(panels: Mapping[str, Reliability], title: str, samples: int) -> Figure:
    """Side by side: accuracy against confidence over the consistency bands, and below how many samples a bin holds.

    panels: what is drawn by its heading (`raw`, `after temperature`).
    """
    figure = new_figure()
    grid = figure.subplots(2, len(panels), sharex=True, sharey="row", squeeze=False, height_ratios=(3, 1))
    for (upper, lower), (heading, found) in zip(grid.T, panels.items(), strict=True):
        upper.set_title(f"{heading}: ECE {found.ece:.4f}", fontsize=TEXT)
        _draw_bins(upper, found)
        lower.bar((found.numbers + 0.5) / BINS, found.counts, width=0.85 / BINS, color="0.55")
        lower.set_yscale("log")
        lower.yaxis.set_minor_locator(NullLocator())
        lower.set_ylim(0.7, samples * 1.5)
        lower.set_xlabel("confidence", fontsize=TEXT)
    grid[0, 0].set_ylabel("accuracy", fontsize=TEXT)
    grid[1, 0].set_ylabel("samples", fontsize=TEXT)
    note = wrapped([f"{samples:,} validation samples, top label, {BINS} bins of equal width.", STATEMENT])
    finish(figure, list(grid.flat), title, _bin_entries(), note, 2.6)
    return figure


def _draw_bins(axes: Axes, found: Reliability) -> None:
    places = (found.numbers + 0.5) / BINS
    axes.bar(places, found.high - found.low, bottom=found.low, width=1 / BINS, color="0.85", zorder=1)
    axes.plot([0, 1], [0, 1], color="0.4", linewidth=0.7, linestyle="--", zorder=2)
    for chosen, (colour, marker) in ((~found.outside, _INSIDE), (found.outside, _OUTSIDE)):
        axes.scatter(found.confidence[chosen], found.accuracy[chosen], s=12, c=colour, marker=marker, zorder=3)
    axes.set_xlim(0, 1.02)
    axes.set_xticks([0, 0.5, 1])
    axes.set_ylim(0, 1.03)


def _bin_entries() -> list[Entry]:
    dots = [
        Line2D([], [], color=colour, marker=marker, markersize=4, linestyle="none")
        for colour, marker in (_INSIDE, _OUTSIDE)
    ]
    line = Line2D([], [], color="0.4", linewidth=0.7, linestyle="--")
    return [
        (dots[0], "as chance allows"),
        (dots[1], "outside"),
        (Patch(color="0.85"), "95% band"),
        (line, "calibrated"),
    ]


# ---- how a study grows ---------------------------------------------------------------------------------------------


def draw_growth(
    whole: Growth,
    methods: Mapping[str, Growth],
    styles: Mapping[str, Style],
    title: str,
    objectives: Sequence[Objective],
) -> Figure:
    """Hypervolume over trials and over samples shown to networks: of the whole study, and of each method by itself."""
    figure = new_figure()
    rows: list[Mapping[str, Growth]] = [{"": whole}, methods] if len(methods) > 1 else [{"": whole}]
    grid = figure.subplots(len(rows), 2, sharey="row", squeeze=False)
    for row, curves in zip(grid, rows, strict=True):
        for label in sorted(curves, key=lambda label: label in styles):  # grey ones below
            colour, marker = styles.get(label, OTHERS) if label else ("black", "")
            for axes, x in zip(row, (curves[label].trials, curves[label].samples), strict=True):
                axes.plot(
                    x,
                    curves[label].volume,
                    drawstyle="steps-post",
                    color=colour,
                    marker=marker,
                    markevery=[-1],
                    **_LINE,
                )
        row[0].set_ylabel("hypervolume", fontsize=TEXT)
        _set_volumes(row[0], [curve.volume for curve in curves.values()])
    if len(rows) > 1:
        grid[0, 0].set_title("all methods together", fontsize=TEXT, loc="left")
        grid[1, 0].set_title("each by itself", fontsize=TEXT, loc="left")
    grid[-1, 0].set_xlabel("trials ended", fontsize=TEXT)
    grid[-1, 1].set_xlabel("samples trained on", fontsize=TEXT)
    for axes in grid.flat:
        _ticks(axes.xaxis, integer=True)
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        _ticks(axes.yaxis)
    names = " and ".join(displayed(objective.metric) for objective in objectives)
    note = wrapped(
        [
            f"Of the front of {names} on the validation split, which the search saw: it can only grow. Trials in the"
            " order in which they ended, failed ones counted."
        ]
    )
    finish(
        figure, list(grid.flat), title, line_entries(methods, styles) if len(rows) > 1 else [], note, PANEL * len(rows)
    )
    return figure


def _set_volumes(axes: Axes, volumes: Sequence[Values]) -> None:
    """From the lowest first volume on; a study's first trials must not squash what its last ones add."""
    top = max(float(volume.max()) for volume in volumes)
    low = min(float(np.quantile(volume[volume > 0], 0.02)) for volume in volumes if (volume > 0).any())
    axes.set_ylim(low - 0.06 * (top - low) - 1e-6, top + 0.06 * (top - low) + 1e-6)


# ---- what was searched ---------------------------------------------------------------------------------------------


def draw_searched(
    found: Searched,
    records: Sequence[TrialRecord],
    front: Sequence[TrialRecord],
    objectives: Sequence[Objective],
    style: Style,
    title: str,
) -> Figure:
    """Each searched value against each objective; those on the study's front edged in black.

    records: the complete trials that `found` has, in its order; front: of the whole study.
    """
    figure = new_figure()
    paths = list(found.values)
    grid = figure.subplots(len(objectives), len(paths), sharex="col", sharey="row", squeeze=False)
    numbers = {record.number for record in front if record.label == records[0].label}
    members = np.array([number in numbers for number in found.numbers])
    hidden = np.zeros(len(records), bool)
    for row, objective in zip(grid, objectives, strict=True):
        y = np.array([record.metrics[objective.metric] for record in records])
        shown = in_reach(
            objective.sign * y, objective.sign * (y[members] if members.any() else y[[np.argmin(objective.sign * y)]])
        )
        hidden |= ~shown
        margin = 0.08 * float(np.ptp(y[shown])) or 0.01
        row[0].set_ylim(y[shown].min() - margin, y[shown].max() + margin)
        row[0].set_ylabel(textwrap.fill(displayed(objective.metric), 18), fontsize=TEXT)
        for axes, path in zip(row, paths, strict=True):
            _draw_values(axes, found, path, y, members, style)
            if found.importances is not None:
                share = found.importances[path][objectives.index(objective)]
                axes.set_title(
                    f"importance {share:.2f}" if share == share else "never varies", fontsize=SMALL, loc="right", pad=2
                )
    for axes, path in zip(grid[-1], paths, strict=True):
        axes.set_xlabel(path.removeprefix("method."), fontsize=TEXT)
    entries = [(Line2D([], [], color=style[0], marker=style[1], markersize=4, linestyle="none"), "trial")]
    if members.any():
        edged = Line2D(
            [], [], color=style[0], marker=style[1], markersize=4.5, markeredgecolor="black", linestyle="none"
        )
        entries.append((edged, "on the study's front"))
    note = wrapped(_search_notes(found, len(records), int(hidden.sum())))
    finish(figure, list(grid.flat), title, entries, note, 1.25 * len(objectives))
    return figure


def _draw_values(axes: Axes, found: Searched, path: str, y: Values, members: np.ndarray, style: Style) -> None:
    values = found.values[path]
    x = np.array(
        [found.choices[path].index(str(value)) if path in found.choices else value for value in values], np.float64
    )
    if path in found.choices:
        names = found.choices[path]
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
            _log_ticks(axes.xaxis)
        else:
            _ticks(axes.xaxis)
            axes.set_xlim(low - 0.05 * (high - low), high + 0.05 * (high - low))
    _ticks(axes.yaxis)
    colour, marker = style
    axes.scatter(x[~members], y[~members], s=11, c=colour, marker=marker, alpha=0.6, linewidths=0, zorder=2)
    axes.scatter(x[members], y[members], s=18, c=colour, marker=marker, edgecolors="black", linewidths=0.7, zorder=3)


def _search_notes(found: Searched, trials: int, hidden: int) -> list[str]:
    notes = [f"{trials:,} complete trial{'s' * (trials != 1)}, validation split."]
    if hidden:
        notes.append(f"{hidden} of them {'lie' if hidden > 1 else 'lies'} outside an axis.")
    if found.importances is not None:
        notes.append(
            "Importance: the share of this value alone in what sets the best quarter of the trials apart, by that"
            " objective (PED-ANOVA, Optuna). Shares sum to 1, also where nothing matters."
        )
    elif len(found.values) > 1:
        notes.append(f"No importances: n too small ({trials} trials, {LEAST} are the least).")
    else:
        notes.append("No importance: one value was searched, and would have it all.")
    return [" ".join(notes)]


# ---- how trials train ----------------------------------------------------------------------------------------------


def draw_learning(histories: Mapping[str, History], styles: Mapping[str, Style], title: str, chosen: str) -> Figure:
    """Validation metrics at the end of each epoch, one trial a method. chosen: which, for the caption."""
    panels = [(name, displayed(name)) for name in ESSENTIAL]
    return _draw_epochs(histories, styles, title, panels, [f"Validation split; of each method {chosen}."])


def draw_entropy(histories: Mapping[str, History], styles: Mapping[str, Style], title: str, chosen: str) -> Figure:
    """NLL and entropy of the samples that are right and of those that are wrong. Mukhoti et al. 2020, Figure 2."""
    shown = {"nll": displayed("nll"), "entropy": "entropy in nats"}
    panels = [(f"{name}_{word}", f"{what}, {word}") for name, what in shown.items() for word in ("right", "wrong")]
    note = f"Means over the validation samples that the network has right, and wrong; of each method {chosen}."
    return _draw_epochs(histories, styles, title, panels, [note])


def draw_gamma(histories: Mapping[str, History], styles: Mapping[str, Style], title: str, chosen: str) -> Figure:
    """The learned gamma of the train samples: median and middle 90%, a panel for each method."""
    figure = new_figure()
    columns = min(len(histories), 2)
    rows = -(-len(histories) // columns)
    grid = figure.subplots(rows, columns, sharex=True, squeeze=False)
    for axes, (label, history) in zip(grid.flat, histories.items(), strict=False):
        colour, _ = styles.get(label, (COLOURS[0], ""))
        epochs, low = by_epoch(history, "gamma_q05")
        axes.fill_between(epochs, low, by_epoch(history, "gamma_q95")[1], color=colour, alpha=0.25, linewidth=0)
        axes.plot(epochs, by_epoch(history, "gamma_q50")[1], color=colour, linewidth=1.1)
        axes.set_title(label, fontsize=TEXT)
        _ticks(axes.xaxis, integer=True)
        _ticks(axes.yaxis)
        axes.set_ylim(bottom=0)
    for axes in grid.flat[len(histories) :]:
        axes.set_axis_off()
    for axes in grid[-1]:
        axes.set_xlabel("epoch", fontsize=TEXT)
    for axes in grid[:, 0]:
        axes.set_ylabel("gamma", fontsize=TEXT)
    entries: list[Entry] = [
        (Line2D([], [], color="0.3", linewidth=1.1), "median"),
        (Patch(color="0.3", alpha=0.25), "5% to 95%"),
    ]
    note = wrapped([f"Of all train samples, the gamma each last had; of each method {chosen}."])
    finish(figure, list(grid.flat)[: len(histories)], title, entries, note, PANEL * rows + 0.3)
    return figure


def _draw_epochs(
    histories: Mapping[str, History],
    styles: Mapping[str, Style],
    title: str,
    panels: Sequence[tuple[str, str]],
    notes: Sequence[str],
) -> Figure:
    """Two by two, a line a method."""
    figure = new_figure()
    grid = figure.subplots(2, 2, sharex=True)
    for axes, (name, heading) in zip(grid.flat, panels, strict=True):
        lines = {label: by_epoch(history, name) for label, history in histories.items()}
        for place, label in enumerate(sorted(lines, key=lambda label: label in styles)):
            colour, marker = styles.get(label, OTHERS)
            epochs, values = lines[label]
            every = max(1, len(epochs) // 4)
            axes.plot(epochs, values, color=colour, marker=marker, markevery=(place % every, every), **_LINE)
        axes.set_title(heading, fontsize=TEXT)
        _ticks(axes.xaxis, integer=True)
        axes.set_yscale("linear" if name == "accuracy" else "log")
        _set_settled(axes, [values for _, values in lines.values()])
        (_ticks if name == "accuracy" else _log_ticks)(axes.yaxis)
    for axes in grid[-1]:
        axes.set_xlabel("epoch", fontsize=TEXT)
    finish(figure, list(grid.flat), title, line_entries(histories, styles), wrapped(notes), 2 * PANEL)
    return figure


def _set_settled(axes: Axes, lines: Sequence[Values]) -> None:
    """Limits of what comes after the first sixth of training: the steep beginning may leave the axes."""
    logarithmic = axes.get_yscale() == "log"
    settled = np.concatenate([values[len(values) // 6 :] for values in lines])
    settled = settled[np.isfinite(settled) & ((settled > 0) | (not logarithmic))]
    if not len(settled):
        return
    low, high = float(settled.min()), float(settled.max())
    if logarithmic:
        axes.set_ylim(low / (high / low) ** 0.06 / 1.01, high * (high / low) ** 0.06 * 1.01)
    else:
        margin = 0.06 * (high - low) or 0.01
        axes.set_ylim(low - margin, high + margin)


# ---- ticks ---------------------------------------------------------------------------------------------------------


def _ticks(axis: Axis, integer: bool = False) -> None:
    axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10], integer=integer))
    axis.set_major_formatter(ScalarFormatter(useOffset=False))


def _log_ticks(axis: Axis) -> None:
    """Of the limits as they are: over few decades also between powers of ten."""
    low, high = axis.get_view_interval()
    between = (1, 2, 5) if high < 30 * low else (1, 3) if high < 300 * low else (1,)
    axis.set_major_locator(LogLocator(subs=between))
    axis.set_major_formatter(FormatStrFormatter("%g"))
    axis.set_minor_locator(NullLocator())


# ---- lines ---------------------------------------------------------------------------------------------------------

_LINE: dict[str, Any] = {"linewidth": 0.9, "markersize": 3.0}


def line_styles(labels: Sequence[str], first: Sequence[str]) -> dict[str, Style]:
    """Of as many methods as there are colours; with more, those in `first` have them, and the others stay grey."""
    if len(labels) <= len(COLOURS):
        return styles_of(labels)
    return styles_of(list(dict.fromkeys(first))[: len(COLOURS)])


def line_entries(labels: Mapping[str, object], styles: Mapping[str, Style]) -> list[Entry]:
    """A legend of the methods with a colour, and how many have none."""
    drawn = [label for label in styles if label in labels]
    entries: list[Entry] = [
        (Line2D([], [], color=styles[label][0], marker=styles[label][1], **_LINE), label) for label in drawn
    ]
    grey = len(labels) - len(drawn)
    if grey:
        entries.append((Line2D([], [], color=OTHERS[0], linewidth=0.9), f"{grey} others"))
    return entries
