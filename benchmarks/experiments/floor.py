"""The floor of ECE and its bias, by the number of samples: the figure and the
table of docs/why/how-certain.md.

    python -m benchmarks.experiments.floor  # a minute on one core; draws docs/why/floor.png
    python -m benchmarks.experiments.floor --draw  # draws what was written, prints Markdown

Populations of coverage.py, whose true ECE is known; those of one kind have the same confidences,
and so the same floor. Samples are drawn from each again and again. Bias: the mean
measured ECE less the true one.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.experiments.populations import LIFTS, Population, population
from study.report.style import COLOURS, new_figure, our_settings
from study.uncertainty.consistency import calibrated_sums
from study.uncertainty.intervals import Floor, floor_of, mean_floor
from study.uncertainty.resampling import SampleTerms

SIZES = (100, 200, 500, 1000, 2000, 5000, 10_000)
ERRORS = (0.0, 0.01, 0.03, 0.08)
SETS, DRAWS = 200, 100
RESULTS = Path(__file__).parent / "results" / "floor.json"
FIGURE = Path(__file__).parents[2] / "docs" / "why" / "floor.png"


class Bias(NamedTuple):
    """Of ECE on samples of one size, with its standard error."""

    mean: float
    error: float


class Panel(NamedTuple):
    """A kind of confidences: floors by size, means over samples; the bias by true ECE and size."""

    floors: list[Floor]
    biases: dict[float, list[Bias]]


def floor_at(found: Population, size: int, sets: int) -> Floor:
    source, floors = np.random.default_rng([size, 0]), []
    for _ in range(sets):
        table = SampleTerms.of(*found.sample(size, source), classwise=False)
        drawn = calibrated_sums(table, source.random((size, DRAWS), np.float32))
        floors.append(floor_of(drawn.calibration(["ece"])["ece"]))
    return mean_floor(floors)


def bias_at(found: Population, size: int, sets: int) -> Bias:
    source = np.random.default_rng([size, 1])
    tables = (SampleTerms.of(*found.sample(size, source), classwise=False) for _ in range(sets))
    values = [float(table.total().calibration(["ece"])["ece"][0]) for table in tables]
    return Bias(
        float(np.mean(values)) - found.metrics()["ece"], float(np.std(values, ddof=1)) / sets**0.5
    )


def simulated(lift: float, sets: int) -> Panel:
    populations = {error: population(lift, error) for error in ERRORS}
    biases = {
        error: [bias_at(found, size, sets) for size in SIZES]
        for error, found in populations.items()
    }
    return Panel([floor_at(populations[0.0], size, sets) for size in SIZES], biases)


def draw(panels: dict[str, Panel], file: Path) -> None:
    with our_settings():
        figure = new_figure()
        figure.set_size_inches(7.2, 3.6)
        for axes, (name, panel) in zip(
            figure.subplots(1, len(panels), sharey=True), panels.items(), strict=True
        ):
            low, high = ([getattr(floor, end) for floor in panel.floors] for end in ("low", "high"))
            axes.fill_between(SIZES, low, high, color="0.88", label="floor: 95% range")
            axes.plot(
                SIZES,
                [floor.mean for floor in panel.floors],
                color="black",
                lw=2.2,
                label="floor: mean",
            )
            for colour, (error, biases) in zip(COLOURS, panel.biases.items(), strict=False):
                means = [max(bias.mean, 1e-5) for bias in biases]  # the scale has no place for less
                axes.plot(
                    SIZES,
                    means,
                    color=colour,
                    marker="o",
                    ms=3,
                    lw=1,
                    label=f"bias where the truth is {error:g}",
                )
            axes.set(
                xscale="log",
                yscale="log",
                ylim=(4e-4, 0.2),
                xlabel="samples",
                title=f"{name} confidences",
            )
            axes.grid(alpha=0.3)
        figure.axes[0].set_ylabel("ECE, 15 bins")
        handles, labels = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, fontsize=8, loc="outside lower center", ncols=3)
        figure.savefig(file, dpi=100)


def print_table(panels: dict[str, Panel]) -> None:
    print(
        f"| confidences | | {' | '.join(f'{size:,}' for size in SIZES)}"
        f" |\n{'|---' * (2 + len(SIZES))}|"
    )
    for name, panel in panels.items():
        print(f"| {name} | floor | {' | '.join(f'{floor.mean:.4f}' for floor in panel.floors)} |")
        for error, biases in panel.biases.items():
            print(
                f"| {name} | bias, true ECE {error:g} |"
                f" {' | '.join(f'{bias.mean:+.4f}' for bias in biases)} |"
            )
    for place, size in enumerate(SIZES):
        largest = max(
            biases[place].error for panel in panels.values() for biases in panel.biases.values()
        )
        print(f"standard error of a bias at {size:,} samples: at most {largest:.4f}")


def to_plain(panel: Panel) -> dict[str, object]:
    return {
        "floors": panel.floors,
        "biases": {f"{error:g}": biases for error, biases in panel.biases.items()},
    }


def read(file: Path) -> dict[str, Panel]:
    return {
        name: Panel(
            [Floor(*floor) for floor in plain["floors"]],
            {
                float(error): [Bias(*bias) for bias in biases]
                for error, biases in plain["biases"].items()
            },
        )
        for name, plain in json.loads(file.read_text()).items()
    }


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument(
        "--sets", type=int, default=SETS, help="samples drawn of each population and size"
    )
    words.add_argument("--draw", action="store_true", help="simulate nothing")
    words.add_argument("--results", type=Path, default=RESULTS)
    words.add_argument("--figure", type=Path, default=FIGURE)
    given = words.parse_args()
    if not given.draw:
        made = {name: to_plain(simulated(lift, given.sets)) for name, lift in LIFTS.items()}
        given.results.write_text(json.dumps(made, indent=1))
    panels = read(given.results)
    print_table(panels)
    draw(panels, given.figure)


if __name__ == "__main__":
    main()
