"""The papers' comparison table from a study: methods by metrics, mean and std over seeds, best and tied marked.

Rows come from a confirmation (test split, fresh seeds), else from the search itself (validation split). paper_table.py
writes them.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from study.analysis import pareto
from study.analysis.ranking import Ranking, set_aside_line
from study.schema.objective import Objective, epoch_note
from study.store.files import stored_predictions
from study.store.study import Study
from study.store.trials import TrialRecord
from study.uncertainty.intervals import LEVEL
from study.uncertainty.methods import Measured, Methods, compare_methods
from trainables.fields import FieldError
from trainables.metrics import AFTER_TEMPERATURE, described

METRICS = [
    name for name, metric in described().items() if metric.heading
]  # smaller is better in all
Records = Mapping[str, Sequence[TrialRecord]]  # by label
COLUMNS = tuple(prefix + metric for metric in METRICS for prefix in ("", AFTER_TEMPERATURE))


@dataclass(frozen=True)
class TableRow:
    """One method's metrics by name, a mapping per seed; `chosen_from`: number of trials a best one was selected from.

    role: candidate, default or baseline of a confirmation; best or repeats of a search.
    """

    label: str
    role: str
    seeds: tuple[Mapping[str, float], ...]
    chosen_from: int = 1

    def values(self, metric: str) -> list[float]:
        """One per seed; empty if any seed lacks it: a mean over fewer seeds would pass for one over all."""
        found = [seed[metric] for seed in self.seeds if math.isfinite(seed.get(metric, math.nan))]
        return found if len(found) == len(self.seeds) else []


@dataclass(frozen=True)
class Cell:
    """Mean over seeds; std with n - 1, None for one seed; `tied`: not the best, but not distinguishable from it."""

    mean: float
    std: float | None
    best: bool = False
    tied: bool = False


@dataclass(frozen=True)
class Block:
    """The rows of one study. temperature: which samples fitted it; objectives: those that selected the best trials."""

    study: str
    split: Literal["test", "validation"]
    samples: int
    classes: int
    temperature: str
    objectives: tuple[Objective, ...]
    rows: tuple[TableRow, ...]
    notes: tuple[str, ...] = ()
    methods: Mapping[str, Methods] = field(
        default_factory=dict
    )  # by metric, of rows with at least two seeds

    def cells(self, metric: str) -> list[Cell | None]:
        """One per row; None if not measured."""
        labels = [row.label for row in self.rows]

        def tied(place: int) -> list[int]:
            methods = self.methods.get(metric)
            if methods is None or labels[place] not in methods.rows:
                return []
            return [labels.index(label) for label in methods.tied(labels[place])]

        return compared([row.values(metric) for row in self.rows], tied)


@dataclass(frozen=True)
class Table:
    """Blocks below each other, over the same columns."""

    blocks: tuple[Block, ...]
    notes: tuple[str, ...] = field(default=())  # what was left out and why

    @property
    def columns(self) -> list[str]:
        """Metrics measured in any row, without temperature-scaled ones that never differ from the unscaled: scaling
        changes no prediction, so the error has one column.
        """
        rows = [row for block in self.blocks for row in block.rows]
        return [
            name
            for name in COLUMNS
            if any(row.values(name) for row in rows) and not _repeated(name, rows)
        ]


def _repeated(name: str, rows: Sequence[TableRow]) -> bool:
    before = name.removeprefix(AFTER_TEMPERATURE)
    return before != name and all(row.values(name) == row.values(before) for row in rows)


# ---- rows ----------------------------------------------------------------------------------------------------------


def block_of_search(study: Study, records: Records) -> Block:
    """Validation values: for a label with a search its best trial by the objectives in order, for one without all its
    trials, which differ by seed. Raises FieldError if no trial is complete.
    """
    finished = {label: pareto.complete(found) for label, found in records.items()}
    if not any(finished.values()):
        raise FieldError(
            study.name, "no trial is complete yet; run the study with `calstudy run` first."
        )
    ranking = Ranking(study, [record for found in records.values() for record in found])
    # Repeats stay whole: to leave out some by their results would flatter the mean.
    searched = {
        label for label, found in finished.items() if any(record.params for record in found)
    }
    counted = {
        label: [
            record
            for record in found
            if label not in searched or record.name not in ranking.set_aside
        ]
        for label, found in finished.items()
    }
    rows = tuple(_row(label, found, ranking) for label, found in counted.items() if found)
    absent = [label for label, found in finished.items() if not found]
    aside = [label for label, found in finished.items() if found and not counted[label]]
    notes = (
        f"no complete trial: {', '.join(absent)}" if absent else "",
        f"every trial is set aside: {', '.join(aside)}" if aside else "",
        epoch_note(study.plain.get("result", "last")),
    )
    if not rows:
        raise FieldError(study.name, f"no trial counts. {set_aside_line(ranking.set_aside)}")
    sizes, classes = study.recorded["sizes"], study.recorded["classes"]
    return Block(
        study.name,
        "validation",
        sizes["validation"],
        len(classes),
        "cross-fitted on it",
        study.objectives,
        rows,
        tuple(filter(None, notes)),
    )


def _row(label: str, finished: Sequence[TrialRecord], ranking: Ranking) -> TableRow:
    if not any(record.params for record in finished):
        return TableRow(label, "repeats", tuple(record.metrics for record in finished))
    best = pareto.front(finished, ranking.study.objectives)[0]
    return TableRow(label, "best", (best.metrics,), len(finished))


def block_of_tests(
    study: Study, rows: Sequence[TableRow], temperature: str, said: Sequence[str] = ()
) -> Block:
    """Test values of a confirmation's rows; rows not opened yet are named in a note, after those of `said`.

    study: the study that was confirmed. Raises FieldError if no row has test values.
    """
    opened, waiting = (
        [row for row in rows if row.seeds],
        [row.label for row in rows if not row.seeds],
    )
    if not opened:
        raise FieldError(
            study.name, "nothing is confirmed on the test split yet; let `calstudy confirm` finish."
        )
    notes = (
        *said,
        *([f"not yet measured on the test split: {', '.join(waiting)}"] if waiting else []),
    )
    sizes, classes = study.recorded["sizes"], study.recorded["classes"]
    return Block(
        study.name,
        "test",
        sizes["test"],
        len(classes),
        temperature,
        study.objectives,
        tuple(opened),
        notes,
    )


def with_ties(
    block: Block, networks: Mapping[str, Sequence[Measured]], resamples: int, level: float = LEVEL
) -> Block:
    """The block with what is needed to mark ties. networks: of each row, on the block's samples. Raises FieldError."""
    return replace(block, methods=compare_methods(networks, COLUMNS, resamples, level))


def networks_on_validation(
    study: Study, rows: Sequence[TableRow], records: Records
) -> dict[str, list[Measured]]:
    """The networks of the rows that are repeats. Raises FieldError if stored predictions are missing or altered."""
    repeats = [row.label for row in rows if row.role == "repeats"]
    return {
        label: [
            Measured(stored_predictions(study, record))
            for record in pareto.complete(records[label])
        ]
        for label in repeats
    }


def combine(blocks: Sequence[Block], notes: Sequence[str] = ()) -> Table:
    """One table of several studies, with notes on what cannot be compared across them.

    Raises FieldError if there is nothing to show, or a study is given twice.
    """
    if not blocks:
        raise FieldError("table", f"nothing to show; {'; '.join(notes)}.")
    names = [block.study for block in blocks]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise FieldError("table", f"{', '.join(twice)} is given twice; name each study once.")
    across = []
    if len({block.split for block in blocks}) > 1:
        across.append("this table mixes test and validation values: compare within a block only")
    if len({block.classes for block in blocks}) > 1:
        across.append("the studies have different numbers of classes: compare within a block only")
    searched = [block for block in blocks if any(row.chosen_from > 1 for row in block.rows)]
    if len({block.objectives for block in searched}) > 1:
        across.append("the studies selected their best trials by different objectives")
    return Table(tuple(blocks), (*across, *notes))


# ---- cells ---------------------------------------------------------------------------------------------------------


def compared(
    values: Sequence[Sequence[float]], tied: Callable[[int], Collection[int]]
) -> list[Cell | None]:
    """Mean and std of each row's values, with the best means and the rows tied with them marked.

    values: one sequence per row, one number per seed, smaller is better; an empty sequence gives None. tied: from a
    row to those not significantly different from it.
    """
    means = [statistics.fmean(row) if row else math.inf for row in values]
    bests = {place for place, row in enumerate(values) if row and means[place] == min(means)}
    like = {other for place in bests for other in tied(place)} - bests
    return [
        Cell(
            means[place],
            statistics.stdev(row) if len(row) > 1 else None,
            place in bests,
            place in like,
        )
        if row
        else None
        for place, row in enumerate(values)
    ]
