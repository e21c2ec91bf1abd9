"""Figures of a study at the width of a paper's column. What is drawn is computed elsewhere, from trial records."""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, ScalarFormatter
from numpy.typing import NDArray

from study import pareto
from study.objective import Objective, plain_name
from study.records import TrialRecord
from trainables.fields import FieldError

SUFFIXES = (".png", ".pdf", ".svg")
DPI = 300
WIDTH, PLOT_HEIGHT, STRIP_HEIGHT, LINE_HEIGHT = 3.5, 2.6, 0.24, 0.13  # inches
TEXT, SMALL = 7.0, 6.0  # points

# Okabe and Ito 2008: told apart by colour-blind readers. Black is the front's; yellow is too faint on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")  # seven to six colours: 42 methods before a pair comes again

# From its best value an axis reaches this many times the extent of the front, or of the best quarter of the others.
REACH = 6.0

_DISPLAYED = {
    "top5_accuracy": "top-5 accuracy",
    "nll": "NLL in nats",
    "brier": "Brier score",
    "ece": "ECE",
    "mce": "MCE",
    "adaptive_ece": "adaptive ECE",
    "classwise_ece": "classwise ECE",
    "smooth_ece": "smooth ECE",
    "debiased_l2": "debiased L2 error",
}
_FRONT: dict[str, Any] = {"color": "black", "linewidth": 0.9}
_RING: dict[str, Any] = {
    "marker": "o",
    "markersize": 9.0,
    "markerfacecolor": "none",
    "markeredgecolor": "black",
    "linestyle": "none",
}


def front_figure(
    records: Sequence[TrialRecord],
    objectives: Sequence[Objective],
    title: str,
    path: Path,
    samples: int | None = None,
) -> None:
    """Write `draw_front` as PNG, PDF or SVG, by the suffix. Raises FieldError at `figure`."""
    if path.suffix.lower() not in SUFFIXES:
        raise FieldError("figure", f"'{path.name}' should end in one of {', '.join(SUFFIXES)}.")
    figure = draw_front(records, objectives, title, samples)
    path.parent.mkdir(parents=True, exist_ok=True)
    # TrueType in a PDF: publishers refuse matplotlib's usual Type 3.
    with matplotlib.rc_context({"pdf.fonttype": 42}):
        figure.savefig(path, dpi=DPI)


def draw_front(
    records: Sequence[TrialRecord], objectives: Sequence[Objective], title: str, samples: int | None = None
) -> Figure:
    """Every complete trial by its first two objectives; the front of all objectives and its knee stand out.

    One objective gives a strip for each method. With more than two the front is marked but not joined: its projection
    is no staircase. samples: size of the validation split, for the caption.

    Raises FieldError at `figure` where no trial is complete.
    """
    finished = pareto.complete(records)
    if not finished:
        states = Counter(record.state for record in records)
        found = ", ".join(f"{count} {state}" for state, count in sorted(states.items())) or "there is none at all"
        raise FieldError("figure", f"no complete trial to draw: {found}.")
    labels = list(dict.fromkeys(record.label for record in records))
    styles = {label: (COLOURS[i % len(COLOURS)], MARKERS[i % len(MARKERS)]) for i, label in enumerate(labels)}
    measured = {record.label for record in finished}
    methods = [label for label in labels if label in measured]
    front = pareto.front(finished, objectives)
    knee = pareto.knee(front, objectives)
    assert knee is not None

    figure = Figure(layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    outside = _set_axes(axes, finished, front, objectives[:2])
    height, entries = PLOT_HEIGHT, [_method_entry(label, *styles[label]) for label in methods]
    places = {record.name: tuple(record.metrics[objective.metric] for objective in objectives) for record in finished}
    if len(objectives) == 1:
        height, entries = STRIP_HEIGHT * len(methods) + 0.5, []
        places = {record.name: (*places[record.name], _strip_place(record, methods)) for record in finished}
        axes.set_yticks(range(len(methods)), methods)
        axes.set_ylim(len(methods) - 0.5, -0.5)  # the first method on top
    for label in methods:
        _draw_trials(axes, [places[record.name] for record in finished if record.label == label], *styles[label])
    if len(objectives) == 2:
        # Two neighbours meet in the corner that is as bad as either: what lies behind the line is dominated.
        axes.plot(*np.array([places[record.name] for record in front]).T, drawstyle="steps-post", zorder=3, **_FRONT)
    for record in front:
        _draw_member(axes, places[record.name], *styles[record.label])
    axes.plot(*places[knee.name][:2], **_RING, zorder=5)
    entries += _front_entries(knee, len(front), len(objectives))
    _finish(figure, axes, title, entries, _caption(len(finished), outside, samples, objectives), height)
    return figure


def axis_label(objective: Objective) -> str:
    """`ECE, validation (lower is better)`."""
    better = "higher" if objective.direction == "maximize" else "lower"
    return f"{metric_label(objective.metric)}, validation ({better} is better)"


def metric_label(metric: str) -> str:
    """`ECE after temperature scaling` of `ts_ece`."""
    name = plain_name(metric)
    scaled = " after temperature scaling" if name != metric else ""
    return _DISPLAYED.get(name, name.replace("_", " ")) + scaled


def in_reach(values: NDArray[np.float64], front: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which trials an axis shows, [N]: those not so much worse than the front that they would squash it.

    values: [N], of every complete trial, smaller is better; front: the values of those on the front, all of them shown.
    """
    gaps = values - values.min()
    worse = gaps[gaps > 0]
    if not len(worse):
        return np.full(len(gaps), True)
    shown: NDArray[np.bool_] = gaps <= REACH * max(front.max() - values.min(), np.quantile(worse, 0.25))
    return shown


def _set_axes(
    axes: Axes, finished: Sequence[TrialRecord], front: Sequence[TrialRecord], objectives: Sequence[Objective]
) -> int:
    """Limits, ticks and labels of one or two axes. Returns how many trials lie outside."""
    values = np.array([[record.metrics[objective.metric] for objective in objectives] for record in finished])
    best = np.array([[record.metrics[objective.metric] for objective in objectives] for record in front])
    signs = [objective.sign for objective in objectives]
    shown = np.all([in_reach(s * v, s * f) for s, v, f in zip(signs, values.T, best.T, strict=True)], axis=0)
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
    return int(outside.sum())


def _strip_place(record: TrialRecord, methods: Sequence[str]) -> float:
    """Height within the strip of its method: spread by the golden ratio, so that equals do not hide each other."""
    return methods.index(record.label) + 0.6 * (record.number * (math.sqrt(5) - 1) / 2 % 1.0) - 0.3


def _draw_trials(axes: Axes, places: Sequence[tuple[float, ...]], colour: str, marker: str) -> None:
    x, y, *_ = np.array(places).T
    axes.scatter(x, y, s=11, c=colour, marker=marker, alpha=0.55, linewidths=0, zorder=2)


def _draw_member(axes: Axes, place: tuple[float, ...], colour: str, marker: str) -> None:
    x, y, *_ = place
    axes.scatter(x, y, s=20, c=colour, marker=marker, edgecolors="black", linewidths=0.7, zorder=4)


def _method_entry(label: str, colour: str, marker: str) -> tuple[Line2D, str]:
    return Line2D([], [], color=colour, marker=marker, markersize=4, linestyle="none"), label


def _front_entries(knee: TrialRecord, size: int, objectives: int) -> list[tuple[Line2D, str]]:
    ring = Line2D([], [], **{**_RING, "markersize": 7.0})
    if objectives == 1:
        return [(ring, f"best: {knee.name}")]
    line = _FRONT if objectives == 2 else {"color": "none"}
    member = Line2D([], [], marker="o", markersize=4, markerfacecolor="white", markeredgecolor="black", **line)
    return [(member, f"front ({size})"), (ring, f"knee: {knee.name}")]


def _caption(trials: int, outside: int, samples: int | None, objectives: Sequence[Objective]) -> str:
    """What a reader must know to trust the figure no further than it goes."""
    split = f"{samples:,} validation samples" if samples is not None else "Validation split"
    sentences = [f"{split}; {trials:,} complete trial{'s' * (trials != 1)}; values without intervals."]
    if len(objectives) > 2:
        undrawn = " and ".join(objective.metric for objective in objectives[2:])
        sentences.append(f"Front of all {len(objectives)} objectives; {undrawn} not drawn.")
    if outside:
        sentences.append(f"{outside:,} {'trials lie' if outside > 1 else 'trial lies'} outside the axes.")
    return "\n".join(textwrap.fill(sentence, 76) for sentence in sentences)


def _columns(names: Sequence[str]) -> int:
    """The most legend columns, at most three, that fit the width: some 72 letters, 6 of them for each handle."""
    for columns in (3, 2):
        widths = [max(map(len, column)) + 6 for column in np.array_split(names, columns) if len(column)]
        if sum(widths) <= 72:
            return columns
    return 1


def _finish(
    figure: Figure, axes: Axes, title: str, entries: Sequence[tuple[Line2D, str]], note: str, plot_height: float
) -> None:
    """Title and legend above the axes, the caption below, and a height that leaves the axes theirs."""
    handles, names = zip(*entries, strict=True)
    columns = _columns(names)
    heading = textwrap.fill(title, 60)
    lines = math.ceil(len(names) / columns) + heading.count("\n") + note.count("\n") + 4
    figure.set_size_inches(WIDTH, plot_height + LINE_HEIGHT * lines)
    figure.legend(
        handles,
        names,
        title=heading,
        title_fontsize=TEXT + 1,
        fontsize=SMALL,
        loc="outside upper center",
        ncols=columns,
        frameon=False,
        handletextpad=0.4,
    )
    figure.supxlabel(note, fontsize=SMALL, color="0.3")
    axes.tick_params(labelsize=SMALL, width=0.6, length=2.5)
    axes.grid(linewidth=0.4, color="0.9")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_linewidth(0.6)
