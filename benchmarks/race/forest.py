"""The race in one figure: each method less tuned cross-entropy, in two forms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path

from matplotlib.axes import Axes

from benchmarks.race.found import COMPARED, Cell
from study.report.style import COLOURS, SMALL, TEXT, new_figure, our_settings, save
from study.schema.objective import RAW, TEMPERATURE, plain_name
from study.uncertainty.words import BETTER, WORSE
from trainables.metrics import describe

REACH = 5.0  # units of what matters that an axis shows on either side
HEIGHT = {RAW: -0.17, TEMPERATURE: 0.17}  # of the two intervals of a method
COLOUR = {BETTER: COLOURS[2], WORSE: COLOURS[1]}
UNDECIDED = "#555555"
Cells = Mapping[str, Mapping[str, Cell]]  # by metric and method


@our_settings()
def draw(
    path: Path,
    races: Mapping[str, Cells],
    matters: Mapping[str, Mapping[str, float]],
    metrics: Sequence[str] = COMPARED[RAW],
) -> None:
    """A column for each race, a row for each metric. matters: by race and metric.

    A method that a race did not have leaves its place empty there.
    """
    longest_first = sorted((cells["nll"] for cells in races.values()), key=len, reverse=True)
    methods = list(dict.fromkeys(chain.from_iterable(longest_first)))
    figure = new_figure()
    figure.set_size_inches(1.3 + 1.75 * len(races), len(metrics) * (0.45 + 0.15 * len(methods)))
    grid = figure.subplots(len(metrics), len(races), sharex=True, sharey=True, squeeze=False)
    for column, (race, cells) in enumerate(races.items()):
        grid[0, column].set_title(race.replace("_", " "), fontsize=TEXT)
        for row, metric in enumerate(metrics):
            axes = grid[row, column]
            _draw_cells(axes, metric, methods, cells, matters[race])
            unit = f"{matters[race][metric]:g}"
            axes.set_xlabel(f"{describe(metric).label}, in units of {unit}", fontsize=SMALL)
            axes.tick_params(labelsize=SMALL, labelbottom=True)
    for axes in grid[:, 0]:
        axes.set_yticks(range(len(methods)), [name.replace("_", " ") for name in methods])
        axes.set_ylim(len(methods) - 0.4, -0.6)
    save(figure, path)


def _draw_cells(
    axes: Axes, metric: str, methods: list[str], cells: Cells, matters: Mapping[str, float]
) -> None:
    axes.axvspan(-1, 1, color="#dddddd", linewidth=0, zorder=0)
    axes.axvline(0, color="#888888", linewidth=0.5, zorder=1)
    axes.set_xlim(-REACH - 0.4, REACH + 0.4)
    for form, height in HEIGHT.items():
        name = next(one for one in COMPARED[form] if plain_name(one) == metric)
        for place, method in enumerate(methods):
            if (cell := cells[name].get(method)) is None:
                continue
            values = [value / matters[metric] for value in cell.difference[:3]]
            middle, low, high = (max(-REACH, min(REACH, value)) for value in values)
            colour = COLOUR.get(cell.word, UNDECIDED)
            where = place + height
            axes.plot([low, high], [where, where], color=colour, linewidth=0.8, zorder=2)
            beyond = abs(values[0]) > REACH
            marker = (">" if values[0] > 0 else "<") if beyond else "o"
            face = "white" if form == RAW else colour
            axes.plot(
                [middle],
                [where],
                marker,
                color=colour,
                markersize=3,
                markerfacecolor=face,
                markeredgewidth=0.7,
                zorder=3,
            )
