"""Training curves: what was recorded after each epoch becomes a Figure of a paper's column width.

lines: by method, the histories of its repeats, or of one trial.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from study.analysis.progression import Course, History, by_epoch, course, recorded
from study.report.figures import LINE, OTHERS, PANEL, line_entries, log_ticks
from study.report.style import (
    COLOURS,
    TEXT,
    LegendEntry,
    Style,
    displayed,
    finish,
    linear_ticks,
    new_figure,
    wrapped,
)
from trainables.metrics import ESSENTIAL

Lines = Mapping[str, Sequence[History]]
NORMS = ("head_norm", "feature_norm")
# Per-epoch values on a linear axis; the others are on a logarithmic one.
LINEAR = ("accuracy", *NORMS)


def draw_learning(lines: Lines, styles: Mapping[str, Style], title: str, chosen: str) -> Figure:
    """Validation metrics by epoch. chosen: which trial is shown of a method with a search."""
    panels = [(name, displayed(name)) for name in ESSENTIAL]
    return _draw_epochs(lines, styles, title, panels, _notes(lines, chosen))


def learning_note(lines: Lines, chosen: str) -> str:
    """The sentence on the trials that are shown."""
    counts = sorted({len(seeds) for seeds in lines.values()})
    several = [count for count in counts if count > 1]
    if not several:
        return f"Validation split; for each method, {chosen}."
    seeds = f"{several[0]}" if len(several) == 1 else f"{several[0]} to {several[-1]}"
    mean = f"Validation split; for each method, the mean over {seeds} seeds"
    if several == counts:
        return f"{mean}."
    return f"{mean}, or {chosen} if it has a search or one seed."


def draw_entropy(lines: Lines, styles: Mapping[str, Style], title: str, chosen: str) -> Figure:
    """NLL and entropy of correct and wrong samples. Mukhoti et al. 2020, Figure 2."""
    panels = []
    for name, what in (("nll", displayed("nll")), ("entropy", "entropy in nats")):
        panels += [(f"{name}_right", f"{what}, correct"), (f"{name}_wrong", f"{what}, wrong")]
    what = "Means over the correctly and wrongly classified validation samples."
    return _draw_epochs(lines, styles, title, panels, [what, *_notes(lines, chosen)])


def draw_norms(lines: Lines, styles: Mapping[str, Style], title: str, chosen: str) -> Figure:
    """Norms of the last layer and, where they were recorded, of its inputs."""
    panels = [("head_norm", "norm of the last layer")]
    what = "L2 norm of the last layer's weights and biases together"
    if any(recorded(history, "feature_norm") for seeds in lines.values() for history in seeds):
        panels.append(("feature_norm", "norm of the features"))
        what += "; of what that layer receives, the mean over the validation samples"
    return _draw_epochs(lines, styles, title, panels, [f"{what}.", *_notes(lines, chosen)])


def _notes(lines: Lines, chosen: str) -> list[str]:
    notes = [learning_note(lines, chosen)]
    if any(len(seeds) > 1 for seeds in lines.values()):
        notes.append("Bands: from the lowest to the highest seed.")
    return notes


def draw_gamma(
    histories: Mapping[str, History], styles: Mapping[str, Style], title: str, chosen: str
) -> Figure:
    """The learned gamma of the train samples: median and middle 90%, one panel per method."""
    figure = new_figure()
    columns = min(len(histories), 2)
    rows = -(-len(histories) // columns)
    grid = figure.subplots(rows, columns, sharex=True, squeeze=False)
    for axes, (label, history) in zip(grid.flat, histories.items(), strict=False):
        colour, _ = styles.get(label, (COLOURS[0], ""))
        epochs, low = by_epoch(history, "gamma_q05")
        axes.fill_between(
            epochs, low, by_epoch(history, "gamma_q95")[1], color=colour, alpha=0.25, linewidth=0
        )
        axes.plot(epochs, by_epoch(history, "gamma_q50")[1], color=colour, linewidth=1.1)
        if capped := max((row.get("gamma_capped", 0.0) for row in history), default=0.0):
            label += f" (up to {capped:.0%} of samples at gamma_max)"
        axes.set_title(label, fontsize=TEXT)
        linear_ticks(axes.xaxis, integer=True)
        linear_ticks(axes.yaxis)
        axes.set_ylim(bottom=0)
    for axes in grid.flat[len(histories) :]:
        axes.set_axis_off()
    for axes in grid[-1]:
        axes.set_xlabel("epoch", fontsize=TEXT)
    for axes in grid[:, 0]:
        axes.set_ylabel("gamma", fontsize=TEXT)
    entries: list[LegendEntry] = [
        (Line2D([], [], color="0.3", linewidth=1.1), "median"),
        (Patch(color="0.3", alpha=0.25), "5% to 95%"),
    ]
    note = wrapped([f"Latest gamma of each training sample; for each method, {chosen}."])
    finish(figure, list(grid.flat)[: len(histories)], title, entries, note, PANEL * rows + 0.3)
    return figure


def _draw_epochs(
    lines: Lines,
    styles: Mapping[str, Style],
    title: str,
    panels: Sequence[tuple[str, str]],
    notes: Sequence[str],
) -> Figure:
    """Panels in up to two columns, one line per method, with a band where it has several seeds.
    What no epoch has a value of has no panel."""
    figure = new_figure()
    found = {}
    for name, heading in panels:
        courses = {label: course(seeds, name) for label, seeds in lines.items()}
        if (shown := limits(courses, name)) is not None:
            found[name] = (heading, courses, shown)
    columns = min(len(found), 2)
    rows = -(-len(found) // columns)
    grid = figure.subplots(rows, columns, sharex=True, squeeze=False)
    for axes in grid.flat[len(found) :]:
        axes.set_axis_off()
    for axes, (name, (heading, courses, shown)) in zip(grid.flat, found.items(), strict=False):
        _draw_courses(axes, courses, styles)
        axes.set_title(heading, fontsize=TEXT)
        linear_ticks(axes.xaxis, integer=True)
        logarithmic = name not in LINEAR
        axes.set_yscale("log" if logarithmic else "linear")
        axes.set_ylim(shown)
        if logarithmic:
            log_ticks(axes.yaxis)
        else:
            linear_ticks(axes.yaxis)
    for axes in grid[-1]:
        axes.set_xlabel("epoch", fontsize=TEXT)
    entries = line_entries(lines, styles)
    finish(figure, list(grid.flat[: len(found)]), title, entries, wrapped(notes), PANEL * rows)
    return figure


def _draw_courses(axes: Axes, courses: Mapping[str, Course], styles: Mapping[str, Style]) -> None:
    """Lines with markers at different epochs; grey ones below."""
    for place, label in enumerate(sorted(courses, key=lambda label: label in styles)):
        colour, marker = styles.get(label, OTHERS)
        found = courses[label]
        every = max(1, len(found.epochs) // 4)
        axes.plot(
            found.epochs,
            found.mean,
            color=colour,
            marker=marker,
            markevery=(place % every, every),
            **LINE,
        )
        axes.fill_between(found.epochs, found.low, found.high, color=colour, alpha=0.2, linewidth=0)


def limits(courses: Mapping[str, Course], name: str) -> tuple[float, float] | None:
    """Limits from values after the first sixth: the steep start may leave the axes. None: empty.

    Norms are shown from the start.
    """
    kept = []
    for found in courses.values():
        start = 0 if name in NORMS else len(found.epochs) // 6
        kept += [line[start:] for line in (found.mean, found.low, found.high)]
    values = np.concatenate(kept)
    logarithmic = name not in LINEAR
    values = values[np.isfinite(values) & ((values > 0) | (not logarithmic))]
    if not len(values):
        return None
    low, high = float(values.min()), float(values.max())
    if logarithmic:
        return low / (high / low) ** 0.06 / 1.01, high * (high / low) ** 0.06 * 1.01
    margin = 0.06 * (high - low) or 0.01
    return low - margin, high + margin
