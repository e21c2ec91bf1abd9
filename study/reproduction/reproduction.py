"""A table with our results beside the published ones, by column and row, and its claims."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from study.answer.confirmation import Confirmation, Confirmed, results_of
from study.reproduction.cells import Cell, cell_of
from study.reproduction.claims import CANNOT, Finding, Pair, judge_claims
from study.reproduction.measured import Measure, Model, measured, resampled_means, variance
from study.reproduction.studies import Asked
from study.reproduction.table import Column, PaperTable, Row
from study.store.files import checked_file, stored_predictions
from study.store.openings import TEST_FILE, came_to_nothing
from study.store.study import StudyFolder
from study.store.trials import TrialRecord
from study.uncertainty.resampling import Floats
from trainables.outputs.predictions import Predictions
from trainables.problems import FieldError

SHORT = "short form"


@dataclass(frozen=True)
class Seeds:
    """A row's models, measured. values: of each seed, by measure. failed: why one has none.

    resampled: their means over resamples of the validation split, where a temperature is fitted.
    """

    values: Mapping[int, Mapping[Measure, float]]
    resampled: Mapping[Measure, Floats]
    failed: str = ""


@dataclass(frozen=True)
class Reproduction:
    """cells: by column, then row. findings: of the table's claims, in order. studies: with rows."""

    asked: Asked
    cells: Mapping[str, Mapping[str, Cell]]
    findings: Sequence[Finding]
    studies: Sequence[StudyFolder]
    seeds: Mapping[str, int]  # by row
    cautions: Sequence[str]
    in_vain: int  # openings of the test split without a result

    @property
    def table(self) -> PaperTable:
        return self.asked.table

    @property
    def samples(self) -> int:
        """The size of the test split."""
        return self.studies[0].recorded.sizes["test"]


def reproduction_of(asked: Asked, studies: Mapping[str, StudyFolder]) -> Reproduction:
    """The table as its studies stand. studies: those with rows, by their names in the table.

    Raises FieldError for one that is not measured on test yet.
    """
    table = asked.table
    confirmed = {name: _confirmation(study) for name, study in studies.items()}
    rows = {}
    for row in table.rows:
        confirmation = confirmed[row.study]
        of_label = {one.label: one for one in confirmation.rows}
        rows[row.name] = _seeds(confirmation, of_label[row.label], _measures(table.columns, row))
    cells = {
        column.name: {row.name: _cell(asked, column, row, rows[row.name]) for row in table.rows}
        for column in table.columns
    }
    return Reproduction(
        asked,
        cells,
        _findings(asked, rows),
        tuple(studies.values()),
        {name: len(found.values) for name, found in rows.items()},
        tuple(chain(*(one.cautions for one in confirmed.values()))),
        sum(came_to_nothing(one.study) for one in confirmed.values()),
    )


def _confirmation(study: StudyFolder) -> Confirmation:
    found = results_of(study).confirmation
    if found is None or not found.finished:
        raise FieldError(
            study.name,
            "is not measured on the test split as a whole",
            f"Run `{study.command('confirm')}`.",
        )
    return found


def _measures(columns: Iterable[Column], row: Row) -> dict[str, Measure]:
    """What a row shows in each column."""
    return {column.name: Measure(column.metric, column.after or row.after) for column in columns}


def _seeds(confirmation: Confirmation, row: Confirmed, measures: Mapping[str, Measure]) -> Seeds:
    """The row's models in these measures; of a trial that failed, or whose files are lost, why."""
    records = confirmation.records.by_label[row.label]
    wanted = list(dict.fromkeys(measures.values()))
    ended = [record for record in records if record.state != "complete"]
    failed = [f"{record.name}: {record.reason or record.state}" for record in ended]
    models: dict[int, Model] = {}
    for record in row.records:
        try:
            models[record.number] = _model(confirmation, record)
        except FieldError as error:
            failed.append(f"{record.name}: {error.found}")
    if not models:
        return Seeds({}, {}, "; ".join(failed))
    values = dict(zip(models, measured(list(models.values()), wanted), strict=True))
    return Seeds(values, resampled_means(list(models.values()), wanted), "; ".join(failed))


def _model(confirmation: Confirmation, record: TrialRecord) -> Model:
    study = confirmation.study
    tested = confirmation.tested[record.label][record.number]
    file = checked_file(study, record, TEST_FILE, tested.digests)
    return Model(stored_predictions(study, record), Predictions.stored(file))


def _cell(asked: Asked, column: Column, row: Row, seeds: Seeds) -> Cell:
    """In the column's unit."""
    measure = _measures([column], row)[column.name]
    scale = 100.0 if column.percent else 1.0
    return cell_of(
        [scale * values[measure] for values in seeds.values.values()],
        asked.table.published_at(asked.published_network, row.name, column.name),
        scale**2 * variance(seeds.resampled.get(measure)),
        seeds.failed,
    )


def _findings(asked: Asked, rows: Mapping[str, Seeds]) -> list[Finding]:
    claims = asked.table.claims
    if asked.short:
        return [Finding(CANNOT, 0, SHORT) for _ in claims]
    return judge_claims([_pair(asked.table, place, rows) for place in range(len(claims))])


def _pair(table: PaperTable, place: int, rows: Mapping[str, Seeds]) -> Pair:
    """A claim's two sides, in the column's unit."""
    claim = table.claims[place]
    column = table.column(claim.column)
    scale = 100.0 if column.percent else 1.0

    def side(name: str) -> dict[int, float]:
        measure = _measures([column], table.row(name))[column.name]
        if rows[name].failed:
            return {}
        return {number: scale * of[measure] for number, of in rows[name].values.items()}

    def resampled(name: str) -> Floats | None:
        return rows[name].resampled.get(_measures([column], table.row(name))[column.name])

    than: Mapping[int, float] | float
    spread = resampled(claim.row)
    if isinstance(claim.than, str):
        than = side(claim.than)
        other = resampled(claim.than)
        if spread is not None and other is not None:
            spread = spread - other
    else:
        than = scale * claim.than
    return Pair(side(claim.row), than, claim.higher is not None, scale**2 * variance(spread))
