"""What a reproduction says: headings, cells, the lines around the table; and all of it as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict

from study.answer.phrases import counted, data_of
from study.reproduction.cells import Cell
from study.reproduction.claims import Finding
from study.reproduction.reproduction import Reproduction
from study.reproduction.table import EVERY_NETWORK, Claim, Column
from trainables.metrics import describe, described
from trainables.plain import Plain

AFTER = {"ece_grid": "after T by ECE", "nll": "after T by NLL"}
NAMES = {
    "accuracy": "accuracy",
    "temperature": "T",
    "temperature_distance": "abs(log T)",
    "nll_wrong": "NLL of wrong samples",
    "nll_right": "NLL of right samples",
}


def heading(column: Column) -> str:
    """`ECE after T by ECE (%)`."""
    name = NAMES.get(column.metric)
    if name is None and column.metric in described():
        name = describe(column.metric).label
    if name is None:
        name = f"ECE by the rule of {column.metric}"
    after = AFTER[column.after] if column.after is not None else ""
    if column.metric.startswith("temperature"):
        after = after.removeprefix("after T ")
    unit = "(%)" if column.percent else ""
    return " ".join(filter(None, (name, after, unit)))


def figure(column: Column, value: float | None) -> str:
    """A value as the column prints it; `-` for none."""
    return "-" if value is None else f"{value:.{column.digits}f}"


def ours(column: Column, cell: Cell) -> str:
    """`4.21 ± 0.30`: the mean over seeds, and the half-width of its interval."""
    mean = figure(column, cell.mean)
    return mean if cell.half is None else f"{mean} ± {_half(column, cell.half)}"


def _half(column: Column, half: float) -> str:
    """With a digit more than the column where it would be 0."""
    digits = column.digits
    while half and round(half, digits) == 0 and digits < column.digits + 2:
        digits += 1
    return f"{half:.{digits}f}"


def claim_text(claim: Claim, finding: Finding, column: Column) -> list[str]:
    """The cells of a claim: the sentence, our difference, its interval, p, the word."""
    if finding.difference is None or finding.low is None or finding.high is None:
        return [claim.says, "-", "-", "-", f"{finding.word}: {finding.reason}"]
    digits = column.digits + (column.step is not None)
    values = [f"{value:+.{digits}f}" for value in (finding.difference, finding.low, finding.high)]
    p = "" if finding.p is None else f"{finding.p:.2g}"
    return [claim.says, values[0], f"[{values[1]}, {values[2]}]", p, finding.word]


CLAIM_HEADINGS = ("claim", "difference", "95% interval", "p", "verdict")
CLAIMS_CAPTION = (
    "difference: of the two sides, mean over paired seeds (trial k starts equal in every method),"
    " in the column's unit. 95% interval: of this claim alone, over seeds and, after a temperature,"
    " over validation splits. p: after Holm, over the claims of the table. not separable at this"
    " budget: p is above .05."
)


def lines_above(found: Reproduction) -> Iterator[str]:
    """What was measured, and how far it can be compared."""
    table = found.table
    if _published(found):
        yield f"Published: {table.source}. {_runs(table.runs)}"
    else:
        yield f"Source: {table.source}."
    yield _measured(found)
    if found.asked.short:
        yield "Short form: it shows that everything runs. Its results are meaningless."
    if found.asked.other_data is not None:
        yield f"The data are not the paper's: {found.asked.other_data}."
    if found.asked.option is not None:
        yield f"--option {found.asked.option}: {table.options[found.asked.option].what}."
    for line in found.cautions:
        yield f"{line}."
    if found.in_vain:
        yield f"{counted(found.in_vain, 'opening')} of the test split without a result."
    yield from (note if note.endswith(".") else f"{note}." for note in table.notes)
    if not _published(found):
        yield "No numbers of the paper are on file: ours alone."
    if max(found.seeds.values()) > 1:
        also = " and, after a temperature, over validation splits" * _has_temperatures(found)
        yield f"±: half the 95% interval of our mean, over seeds{also}."


def _published(found: Reproduction) -> bool:
    """Whether the paper printed anything of this network."""
    return bool(found.table.published.get(found.asked.published_network or EVERY_NETWORK))


def _runs(runs: int | None) -> str:
    if runs is None:
        return "The number of runs behind a number is unknown: it is taken as 1."
    return "Each number is one run." if runs == 1 else f"Each number is the mean of {runs} runs."


def _measured(found: Reproduction) -> str:
    names = ", ".join(study.name for study in found.studies)
    counts = sorted(set(found.seeds.values()))
    seeds = counted(counts[-1], "seed")
    if len(counts) > 1:
        seeds = f"{counts[0]} to {seeds}"
    study = found.studies[0]
    fitted = ""
    if _has_temperatures(found):
        fitted = " Temperatures: fitted on the whole validation split, without a prior."
    return (
        f"Ours: {names}; {seeds} a method, each measured once on {found.samples:,} sealed test"
        f" {study.recorded.noun} of {data_of(study)}.{fitted}"
    )


def _has_temperatures(found: Reproduction) -> bool:
    columns = [column.after for column in found.table.columns]
    rows = [row.after for row in found.table.rows]
    return any(after is not None for after in (*columns, *rows))


def parts(found: Reproduction) -> tuple[Sequence[Column], Sequence[Column]]:
    """The columns with published numbers, and those of ours alone."""
    compared: list[Column] = []
    own: list[Column] = []
    for column in found.table.columns:
        cells = found.cells[column.name].values()
        (own if all(cell.published is None for cell in cells) else compared).append(column)
    return compared, own


def lines_below(found: Reproduction) -> Iterator[str]:
    """Why cells have no value of ours, each reason once."""
    reasons = {
        f"{row}: {cell.why}": None
        for cells in found.cells.values()
        for row, cell in cells.items()
        if cell.why
    }
    yield from reasons


def to_plain(found: Reproduction) -> dict[str, Plain]:
    """Everything as JSON has it, in the columns' units."""
    asked = found.asked
    cells: list[Plain] = []
    for column, of_rows in found.cells.items():
        for row, cell in of_rows.items():
            seeds = found.seeds[row]
            cells.append({"row": row, "column": column, "seeds": seeds, **asdict(cell)})
    claims: list[Plain] = []
    for claim, finding in zip(found.table.claims, found.findings, strict=True):
        claims.append({"says": claim.says, "column": claim.column, **asdict(finding)})
    return {
        "table": found.table.name,
        "title": found.table.title,
        "source": found.table.source,
        "network": asked.network,
        "short": asked.short,
        "option": asked.option,
        "other_data": asked.other_data,
        "runs": found.table.runs,
        "studies": [study.name for study in found.studies],
        "test_samples": found.samples,
        "columns": {column.name: heading(column) for column in found.table.columns},
        "cells": cells,
        "claims": claims,
        "said": list(lines_above(found)),
    }
