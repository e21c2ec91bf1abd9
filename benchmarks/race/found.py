"""What a race found: each method beside tuned cross-entropy, and what choosing costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from benchmarks.race.choosers import BUDGETS
from benchmarks.race.kept import METRICS, UNTUNED, Kept
from study.analysis.rule import SHARE_OF_NLL
from study.answer.confirmation import BASELINE
from study.schema.objective import RAW, TEMPERATURE, plain_name
from study.uncertainty.intervals import LEVEL, Interval
from study.uncertainty.methods import Methods, Seeds
from study.uncertainty.words import UNDECIDED, level_of_each, word_for

COMPARED = {RAW: ("nll", "brier", "ece"), TEMPERATURE: ("ts_nll", "ts_brier", "ts_ece")}
CELLS = [name for of in METRICS.values() for name in of]
AFTER = "answer after confirming the front, 3 seeds"
EVERYTHING = "answer after confirming all rows, 12 seeds"


@dataclass(frozen=True)
class Cell:
    """A method less cross-entropy in a metric, each at its own best."""

    difference: Interval
    word: str


def cells(kept: Kept) -> dict[str, dict[str, Cell]]:
    """By metric and method. Intervals hold together over all pairs of methods and all metrics."""
    level = level_of_each(LEVEL, CELLS)
    found: dict[str, dict[str, Cell]] = {}
    for place, form in enumerate(METRICS):
        rows = {label: best[place] for label, best in kept.facts["best"].items()}
        for metric, methods in kept.compared(rows, form, level).items():
            matters = kept.facts["matters"][plain_name(metric)]
            found[metric] = {}
            for label in rows:
                if label != BASELINE:
                    difference = methods.difference(label, BASELINE)
                    word = word_for(difference, metric, matters)
                    found[metric][label] = Cell(difference, word)
    return found


def words(of: Mapping[str, Cell]) -> Counter[str]:
    """How many methods have which word, without the untuned cross-entropy."""
    return Counter(cell.word for label, cell in of.items() if label != UNTUNED)


def decided(of: Mapping[str, Cell]) -> float:
    """The share of methods with a word other than `undecided`."""
    found = words(of)
    return 1 - found[UNDECIDED] / found.total()


def inside(
    first: Mapping[str, Mapping[str, Cell]], second: Mapping[str, Mapping[str, Cell]]
) -> list[bool]:
    """Of each cell, whether the second run's difference lies in the first run's interval."""
    return [
        cell.difference.low <= second[metric][label].difference.estimate <= cell.difference.high
        for metric, of in first.items()
        for label, cell in of.items()
    ]


# ---- choosers ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Chosen:
    """A chooser's row, the trainings that it took, and its regret, in units of what matters."""

    row: str
    trainings: int
    regret: Interval


def regrets(kept: Kept) -> dict[str, dict[int, Chosen]]:
    """By chooser and trials of each method.

    Regret: accuracy and ECE as trained, on test, each in units of what matters; the sum less that
    of the row where it is lowest.
    """
    rows = [name for name, about in kept.facts["rows"].items() if RAW in about["kept"]]
    sums = _sums(kept, rows)
    best = min(rows, key=lambda name: float(sums.rows[name].values.mean()))
    methods = len(kept.methods)

    def chosen(row: str, trainings: int) -> Chosen:
        return Chosen(row, trainings, sums.difference(row, best))

    found = {
        name: {int(budget): chosen(row, int(budget) * methods) for budget, row in of.items()}
        for name, of in kept.facts["chosen"].items()
    }
    whole = BUDGETS[-1] * methods
    front = kept.facts["front"]
    found[AFTER] = {BUDGETS[-1]: chosen(_lowest(kept, front, 3), whole + 3 * len(front))}
    seeds = len(kept.row(rows[0])["test"])
    taken = _lowest(kept, rows, seeds)
    found[EVERYTHING] = {BUDGETS[-1]: chosen(taken, whole + seeds * len(rows))}
    return found


def _sums(kept: Kept, rows: list[str]) -> Methods:
    """Accuracy and ECE on test, in units of what matters, added up."""
    matters = kept.facts["matters"]
    compared = kept.compared({name: name for name in rows}, RAW, LEVEL)
    wrong = {
        name: _scaled(one, -1 / matters["accuracy"])
        for name, one in compared["accuracy"].rows.items()
    }
    error = {name: _scaled(one, 1 / matters["ece"]) for name, one in compared["ece"].rows.items()}
    return Methods(
        {
            name: Seeds(
                wrong[name].values + error[name].values,
                wrong[name].resampled + error[name].resampled,
            )
            for name in rows
        }
    )


def _scaled(seeds: Seeds, by: float) -> Seeds:
    return Seeds(seeds.values * by, seeds.resampled * by)


def _lowest(kept: Kept, rows: list[str], seeds: int) -> str:
    """The row that the answer takes: the lowest mean on validation of its first so many seeds."""
    matters = kept.facts["matters"]

    def cost(name: str) -> float:
        return float(
            np.mean(
                [
                    (1 - one["accuracy"]) / matters["accuracy"]
                    + one["ece"] / matters["ece"]
                    + SHARE_OF_NLL * one["nll"] / matters["nll"]
                    for one in kept.row(name)["validation"][:seeds]
                ]
            )
        )

    return min(rows, key=cost)
