"""The papers' comparison table: methods by metrics, mean and std over seeds, the best marked.

Rows come from a confirmation (test split, fresh seeds), else from the search itself (validation
split). paper_table.py writes them.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Literal

from study.analysis import pareto
from study.analysis.ranking import Ranking, excluded_line
from study.report.table_columns import (
    COLUMNS,
    further,
    names_shown,
    resampled_with,
    with_scaled,
)
from study.schema.matters import matters_in
from study.schema.objective import Objective, epoch_note, plain_name
from study.store.files import stored_predictions
from study.store.study import StudyFolder
from study.store.trials import TrialRecord, Trials
from study.uncertainty.intervals import LEVEL, Floor, Interval
from study.uncertainty.methods import (
    Methods,
    NetworkPredictions,
    compare_methods,
    floors_over_seeds,
)
from study.uncertainty.words import AS_GOOD, UNDECIDED, word_for
from trainables.metrics import AFTER_TEMPERATURE
from trainables.problems import FieldError


@dataclass(frozen=True)
class TableRow:
    """One method's metrics by name, a mapping per seed; the best of `chosen_from` trials.

    role: candidate, default or baseline of a confirmation; best or repeats of a search.
    """

    label: str
    role: str
    seeds: tuple[Mapping[str, float], ...]
    chosen_from: int = 1

    def values(self, metric: str) -> list[float]:
        """One per seed; empty if a seed lacks it: a mean over fewer would pass for one over all."""
        found = [seed[metric] for seed in self.seeds if math.isfinite(seed.get(metric, math.nan))]
        if len(found) < len(self.seeds):
            return []
        return found


@dataclass(frozen=True)
class Cell:
    """Mean over seeds; std with n - 1, None for one. word: AS_GOOD or UNDECIDED, less the best.

    difference: from the row that the table is against, of which `word` then is.
    """

    mean: float
    std: float | None
    best: bool = False
    word: str = ""
    difference: Interval | None = None


@dataclass(frozen=True)
class Block:
    """A study's rows. temperature: the samples that fitted it; objectives: selected the best."""

    study: str
    split: Literal["test", "validation"]
    samples: int
    classes: int
    temperature: str
    objectives: tuple[Objective, ...]
    rows: tuple[TableRow, ...]
    notes: tuple[str, ...] = ()
    in_groups: str = ""  # ` (36 patients)`, of the samples, if they belong together
    # By metric, of rows with at least two seeds.
    methods: Mapping[str, Methods] = field(default_factory=dict)
    matters: Mapping[str, float] = field(default_factory=dict)  # by metric, where the study says it
    floors: Mapping[str, Mapping[str, Floor]] = field(default_factory=dict)  # by row and metric
    afterwards: str = ""  # what is said of objectives given afterwards
    called: str = "samples"  # what its samples are called
    against: str = ""  # the row whose means are subtracted from the others'; "": none is

    def cells(self, metric: str) -> list[Cell | None]:
        """One per row; None if not measured."""
        if self.against:
            return [self._against(metric, row) for row in self.rows]
        labels = [row.label for row in self.rows]

        def words(place: int) -> dict[int, str]:
            methods = self.methods.get(metric)
            if methods is None or labels[place] not in methods.rows:
                return {}
            matters = matters_in(metric, self.matters, self.classes)
            others = [label for label in methods.rows if label != labels[place]]
            differences = {label: methods.difference(label, labels[place]) for label in others}
            return {
                labels.index(label): word_for(one, metric, matters)
                for label, one in differences.items()
            }

        return compared([row.values(metric) for row in self.rows], words)

    def _against(self, metric: str, row: TableRow) -> Cell | None:
        """A row's cell; None also where the row is not compared."""
        (cell,) = compared([row.values(metric)], lambda place: {})
        if cell is None:
            return None
        own = replace(cell, best=False)
        if row.label == self.against:
            return own
        methods = self.methods.get(metric)
        if methods is None or not {row.label, self.against} <= methods.rows.keys():
            return None
        difference = methods.difference(row.label, self.against)
        word = word_for(difference, metric, matters_in(metric, self.matters, self.classes))
        return replace(own, word=word, difference=difference)


@dataclass(frozen=True)
class ComparisonTable:
    """Blocks below each other, over the same columns."""

    blocks: tuple[Block, ...]
    notes: tuple[str, ...] = field(default=())  # what was left out and why
    asked: tuple[str, ...] | None = None  # without `ts_`; None: SHOWN and the objectives

    @property
    def rows(self) -> list[TableRow]:
        return list(chain(*(block.rows for block in self.blocks)))

    @property
    def columns(self) -> list[str]:
        """Metrics measured in any row, without temperature-scaled ones that never differ from the
        unscaled: scaling changes no prediction, so the error has one column."""
        rows = self.rows
        names = self.asked
        if names is None:
            names = names_shown(chain(*(block.objectives for block in self.blocks)))
        known = [*COLUMNS, *with_scaled(further(names))]
        wanted = [name for name in known if plain_name(name) in names]
        measured = [name for name in wanted if any(row.values(name) for row in rows)]
        return [name for name in measured if not _repeated(name, rows)]

    @property
    def with_floors(self) -> list[str]:
        """The columns that have floors."""
        known: set[str] = set()
        for block in self.blocks:
            known.update(*block.floors.values())
        return [name for name in self.columns if name in known]


def _repeated(name: str, rows: Sequence[TableRow]) -> bool:
    before = name.removeprefix(AFTER_TEMPERATURE)
    return before != name and all(row.values(name) == row.values(before) for row in rows)


# ---- rows ----------------------------------------------------------------------------------------


def block_of_search(study: StudyFolder, records: Trials) -> Block:
    """Validation values: for a label with a search its best trial by the objectives in order, for
    one without all its trials, which differ by seed. Raises FieldError if no trial is complete."""
    finished = records.complete.by_label
    if not records.complete:
        raise FieldError(study.name, "no trial is complete yet", f"Run `{study.goes_on}` first.")
    ranking = Ranking(study, records)
    # Repeats stay whole: to leave out some by their results would flatter the mean.
    searched = {
        label for label, found in finished.items() if any(record.params for record in found)
    }
    counted = {
        label: [
            record
            for record in found
            if label not in searched or record.name not in ranking.excluded
        ]
        for label, found in finished.items()
    }
    rows = tuple(_row(label, found, ranking) for label, found in counted.items() if found)
    absent = [label for label, found in finished.items() if not found]
    aside = [label for label, found in finished.items() if found and not counted[label]]
    notes = []
    if absent:
        notes.append(f"no complete trial: {', '.join(absent)}")
    if aside:
        notes.append(f"every trial is excluded: {', '.join(aside)}")
    if note := epoch_note(study.plain.get("result", "last")):
        notes.append(note)
    notes += study.recorded.shared or ()
    if not rows:
        raise FieldError(study.name, "no trial counts", f"{excluded_line(ranking.excluded)}")
    return Block(
        study.name,
        "validation",
        study.recorded.sizes["validation"],
        len(study.recorded.classes),
        "cross-fitted on it",
        study.objectives,
        rows,
        tuple(notes),
        study.recorded.in_groups("validation"),
        afterwards=study.afterwards,
        called=study.recorded.called,
    )


def _row(label: str, finished: Sequence[TrialRecord], ranking: Ranking) -> TableRow:
    if not any(record.params for record in finished):
        return TableRow(label, "repeats", tuple(record.metrics for record in finished))
    best = pareto.front(finished, ranking.study.objectives)[0]
    return TableRow(label, "best", (best.metrics,), len(finished))


def block_of_tests(
    study: StudyFolder, rows: Sequence[TableRow], temperature: str, said: Sequence[str] = ()
) -> Block:
    """Test values of a confirmation's rows; rows not opened yet are named after the notes `said`.

    study: the study that was confirmed. Raises FieldError if no row has test values.
    """
    opened = [row for row in rows if row.seeds]
    waiting = [row.label for row in rows if not row.seeds]
    if not opened:
        raise FieldError(
            study.name,
            "nothing is confirmed on the test split yet",
            "Let `calstudy confirm` finish.",
        )
    notes = list(said)
    if waiting:
        notes.append(f"not yet measured on the test split: {', '.join(waiting)}")
    return Block(
        study.name,
        "test",
        study.recorded.sizes["test"],
        len(study.recorded.classes),
        temperature,
        study.objectives,
        tuple(opened),
        tuple(notes),
        study.recorded.in_groups("test"),
        matters=study.matters,
        afterwards=study.afterwards,
        called=study.recorded.called,
    )


def with_ties(
    block: Block,
    networks: Mapping[str, Sequence[NetworkPredictions]],
    resamples: int,
    level: float = LEVEL,
    names: Sequence[str] | None = None,
) -> Block:
    """The block with floors and rows compared. networks: each row's, on the block's samples.

    names: of the metrics, without `ts_`; None: all. Raises FieldError.
    """
    wanted = resampled_with(block.objectives, bool(block.in_groups))
    if names is not None:
        wanted = [name for name in wanted if plain_name(name) in names]
    floors = {
        label: floors_over_seeds(of, wanted, resamples, level) for label, of in networks.items()
    }
    return replace(
        block, methods=compare_methods(networks, wanted, resamples, level), floors=floors
    )


def networks_on_validation(
    study: StudyFolder, rows: Sequence[TableRow], records: Trials
) -> dict[str, list[NetworkPredictions]]:
    """The networks of rows that repeat. Raises FieldError if predictions are missing or altered."""
    repeats = [row.label for row in rows if row.role == "repeats"]
    return {
        label: [
            NetworkPredictions(stored_predictions(study, record))
            for record in records.complete.of(label)
        ]
        for label in repeats
    }


def combine(
    blocks: Sequence[Block], notes: Sequence[str] = (), asked: Sequence[str] | None = None
) -> ComparisonTable:
    """One table of several studies, with notes on what cannot be compared across them.

    asked: the metrics to show. Raises FieldError if there is nothing to show, or a
    study is given twice.
    """
    if not blocks:
        raise FieldError("table", f"nothing to show; {'; '.join(notes)}")
    names = [block.study for block in blocks]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise FieldError("table", f"{', '.join(twice)} is given twice", "Name each study once.")
    across = []
    if len({block.split for block in blocks}) > 1:
        across.append("this table mixes test and validation values: compare within a block only")
    if len({block.classes for block in blocks}) > 1:
        across.append("the studies have different numbers of classes: compare within a block only")
    searched = [block for block in blocks if any(row.chosen_from > 1 for row in block.rows)]
    if len({block.objectives for block in searched}) > 1:
        across.append("the studies selected their best trials by different objectives")
    columns = None if asked is None else tuple(asked)
    return ComparisonTable(tuple(blocks), (*across, *notes), columns)


def against(block: Block, named: str) -> Block:
    """The block less one row, named as the table does, or by its method where that has one row.

    Raises FieldError if there is no such row, or it has one seed.
    """
    found = [row for row in block.rows if row.label == named]
    found = found or [row for row in block.rows if row.label.startswith(f"{named}/")]
    if len(found) != 1:
        rows = ", ".join(row.label for row in found or block.rows)
        what = f"has the rows {rows}" if found else "is no row"
        raise FieldError("--against", f"{named} {what} of {block.study}", f"Name one row: {rows}.")
    (row,) = found
    if len(row.seeds) == 1:
        what = f"{row.label} of {block.study} is not compared: it needs at least two seeds"
        mend = f"Run `calstudy confirm {block.study} --seeds 3` first."
        raise FieldError("--against", what, mend)
    return replace(block, against=row.label)


# ---- cells ---------------------------------------------------------------------------------------


def compared(
    values: Sequence[Sequence[float]], words: Callable[[int], Mapping[int, str]]
) -> list[Cell | None]:
    """Mean and std of each row's values; the best means, and what may be like them, are marked.

    values: one sequence per row, one number per seed, smaller is better; an empty sequence gives
    None. words: from a row to the others' words beside it.
    """
    means = [statistics.fmean(row) if row else math.inf for row in values]
    bests = {place for place, row in enumerate(values) if row and means[place] == min(means)}
    beside: dict[int, str] = {}
    for place in bests:
        beside |= words(place)
    found: list[Cell | None] = []
    for place, row in enumerate(values):
        if not row:
            found.append(None)
            continue
        std = statistics.stdev(row) if len(row) > 1 else None
        cell = Cell(means[place], std, place in bests)
        if not cell.best and (word := beside.get(place)) in (AS_GOOD, UNDECIDED):
            cell = replace(cell, word=word)
        found.append(cell)
    return found
