"""Style shared by all figures of a study: colours, sizes, title and legend above, caption below."""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
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

from trainables import metrics
from trainables.files.atomic import write_whole
from trainables.problems import FieldError

SUFFIXES = (".png", ".pdf", ".svg")
DPI = 300
WIDTH = 3.5  # inches, as all sizes of figures
PLOT_HEIGHT = 2.6
STRIP_HEIGHT = 0.24
LINE_HEIGHT = 0.13
TEXT = 7.0  # points
SMALL = 6.0

# Okabe and Ito 2008: safe for colour-blind readers. Black is the front's; yellow is too faint.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
# Seven, with six colours: 42 methods before a pair repeats.
MARKERS = ("o", "s", "^", "D", "v", "P", "X")

# Reliability diagrams, in figures and page alike.
HEADINGS = ("as trained", "after temperature")
# A bin's colour and marker: inside the band, or outside.
INSIDE = (COLOURS[0], "o")
OUTSIDE = (COLOURS[1], "D")
BIN_KEY = ("inside the band", "outside", "95% band", "perfect calibration")

Place = tuple[float, float]  # of a trial on the two axes
Style = tuple[str, str]  # colour and marker
LegendEntry = tuple[Any, str]  # a legend handle and its name


@contextmanager
def our_settings() -> Iterator[None]:
    """Draw with matplotlib's own defaults, whatever a matplotlibrc or the user's program has set.

    A figure is made and saved so: some settings are read at either.
    """
    # Setting a backend, even the same, can load it.
    settings = {
        name: value
        for name, value in matplotlib.rcParamsDefault.items()
        if not name.startswith("backend")
    }
    # TrueType in PDFs: publishers reject matplotlib's default Type 3.
    with matplotlib.rc_context({**settings, "pdf.fonttype": 42}):
        yield


class InlineFigure(Figure):
    """A figure that a notebook shows where it is returned, though pyplot does not know it."""

    def _repr_png_(self) -> bytes:
        return self.png()

    def png(self) -> bytes:
        drawn = io.BytesIO()
        with our_settings():
            self.savefig(drawn, dpi=DPI // 2, format="png")
        return drawn.getvalue()


def new_figure() -> Figure:
    """An empty figure; needs no display and no global state."""
    figure = InlineFigure(layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def styles_of(labels: Sequence[str]) -> dict[str, Style]:
    """Colour and marker of each method, by its position in the study."""
    return {
        label: (COLOURS[i % len(COLOURS)], MARKERS[i % len(MARKERS)])
        for i, label in enumerate(labels)
    }


def dot(style: Style, size: float = 4, **more: Any) -> Line2D:
    """A legend's handle of a marker."""
    colour, marker = style
    return Line2D([], [], color=colour, marker=marker, markersize=size, linestyle="none", **more)


TAKE = "model to take"  # the legend of the ring


def ring(size: float, places: Sequence[Place] = ()) -> Line2D:
    """The mark of the model to take, around its trial and in the legend."""
    return Line2D(
        [x for x, _ in places],
        [y for _, y in places],
        marker="o",
        markersize=size,
        markerfacecolor="none",
        markeredgecolor="black",
        linestyle="none",
        zorder=5,
    )


TRIANGLE = "an open triangle"  # what it draws, in captions
TRIANGLES = "open triangles"


def draw_beyond(axes: Axes, place: Place, edge: str) -> None:
    """Mark a value that lies beyond the axes: an open triangle at their edge, pointing there."""
    limits = [sorted(axes.get_xlim()), sorted(axes.get_ylim())]
    x, y = (min(max(at, low), high) for at, (low, high) in zip(place, limits, strict=True))
    sides = {">": place[0] - x, "<": x - place[0]}
    if place[0] == x:
        sides = {"^": place[1] - y, "v": y - place[1]}
    marker = max(sides, key=lambda side: sides[side])
    axes.scatter(
        x,
        y,
        s=14,
        facecolors="none",
        edgecolors=edge,
        linewidths=0.7,
        marker=marker,
        clip_on=False,
        zorder=4,
    )


def linear_ticks(axis: Axis, most: int = 5, integer: bool = False) -> None:
    axis.set_major_locator(MaxNLocator(most, steps=[1, 2, 2.5, 5, 10], integer=integer))
    axis.set_major_formatter(ScalarFormatter(useOffset=False))


def displayed(metric: str) -> str:
    """`ECE after temperature scaling`."""
    found = metrics.describe(metric)
    unit = f" in {found.unit}" if found.unit else ""
    scaled = " after temperature scaling" if found.name != metric else ""
    return f"{found.label}{unit}{scaled}"


def check_suffix(path: Path) -> None:
    """Raise FieldError at `figure` unless the suffix is a supported format."""
    if path.suffix.lower() not in SUFFIXES:
        raise FieldError("figure", f"'{path.name}' must end in one of {', '.join(SUFFIXES)}")


def save(
    figure: Figure, path: Path, write: Callable[[Path, memoryview], object] = write_whole
) -> None:
    """Write PNG, PDF or SVG, by the suffix. write: `write_output` for a file that a user named."""
    drawn = io.BytesIO()
    with our_settings():
        lay_out(figure)
        figure.savefig(drawn, dpi=DPI, format=path.suffix[1:].lower())
    write(path, drawn.getbuffer())


def lay_out(figure: Figure) -> None:
    """Lay a finished figure out once: else each format would do it anew, and be drawn twice."""
    engine = figure.get_layout_engine()
    if engine is not None:
        figure.set_dpi(DPI)  # at which the widths of words are exact
        engine.execute(figure)
        figure.set_layout_engine(None)


def wrapped(sentences: Sequence[str]) -> str:
    """A caption: each sentence starts a new line."""
    return "\n".join(textwrap.fill(sentence, 76) for sentence in sentences)


def finish(
    figure: Figure,
    panels: Sequence[Axes],
    title: str,
    entries: Sequence[LegendEntry],
    note: str,
    plot_height: float,
) -> None:
    """Put title and legend above the axes and the caption below, and fit the height (inches)."""
    names = [name for _, name in entries]
    columns = _columns(names)
    heading = "\n".join(textwrap.fill(line, 60) for line in title.split("\n"))
    lines = math.ceil(len(names) / columns) + heading.count("\n") + note.count("\n") + 4
    figure.set_size_inches(WIDTH, plot_height + LINE_HEIGHT * lines)
    figure.legend(
        [handle for handle, _ in entries],
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
    for axes in panels:
        tidy(axes)


def tidy(axes: Axes) -> None:
    axes.tick_params(labelsize=SMALL, width=0.6, length=2.5)
    axes.grid(linewidth=0.4, color="0.9")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_linewidth(0.6)


def _columns(names: Sequence[str]) -> int:
    """The most legend columns, up to four, that fit: about 72 letters, 6 of them per handle."""
    for columns in (4, 3, 2):
        widths = [
            max(map(len, column)) + 6 for column in np.array_split(names, columns) if len(column)
        ]
        if sum(widths) <= 72:
            return columns
    return 1
