"""A comparison table as text: LaTeX and Markdown in the papers' units, CSV in fractions for programs."""

from __future__ import annotations

import csv
import io
import textwrap
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

from study.report.comparison import Block, Cell, Table, TableRow
from study.schema.printable import csv_cell
from study.uncertainty.intervals import percent
from trainables.metrics import AFTER_TEMPERATURE, describe


class Marks(NamedTuple):
    """How a format marks cells, in the words of its caption."""

    best: str
    tied: str
    spread: str
    errors_in: str = "%"


LATEX = Marks("Bold", "Underlined", "Mean over seeds, with the standard deviation as a subscript.")
MARKDOWN = Marks("Bold", "Italic", "Mean ± standard deviation over seeds.")
CSV = Marks("Mark best", "Mark tied", "Mean and standard deviation over seeds.", "fractions")


def caption(table: Table, marks: Marks) -> str:
    """What the numbers are and how far they can be trusted."""
    of = " ".join(f"{_of(block)}." for block in table.blocks)
    units = f"Error and calibration errors (15 bins) in {marks.errors_in}, NLL in nats; lower is better."
    scaled = "TS: after temperature scaling"
    scaled += (
        "."
        if AFTER_TEMPERATURE + "error" in table.columns
        else ", which does not change the error."
    )
    rows = [row for block in table.blocks for row in block.rows]
    sentences = [of, units, scaled, *_of_seeds(table, rows, marks)]
    if any(row.chosen_from > 1 for row in rows):
        sentences.append(
            "'best of n': the best of n trials, selected on these validation samples; it looks better than it is, more"
            " so for larger n. Confirm it on the test split before quoting it."
        )
    sentences += [f"{note[0].upper()}{note[1:]}." for note in table.notes]
    return " ".join(sentences)


def _of(block: Block) -> str:
    """`digits: test split, 360 samples, 10 classes, 3 seeds`."""
    counts = sorted({len(row.seeds) for row in block.rows})
    seeds = (
        f"{counts[0]} seed{'s' * (counts[0] != 1)}"
        if len(counts) == 1
        else f"{counts[0]} to {counts[-1]} seeds"
    )
    chosen = [row.chosen_from for row in block.rows if row.chosen_from > 1]
    by = f", best trial by {block.objectives[0].metric} for methods with a search" if chosen else ""
    parts = [
        f"{block.study}: {block.split} split",
        f"{block.samples:,} samples",
        f"{block.classes} classes",
        seeds,
    ]
    return "; ".join([", ".join(parts) + by, f"temperature {block.temperature}", *block.notes])


def _of_seeds(table: Table, rows: Sequence[TableRow], marks: Marks) -> list[str]:
    counts = [len(row.seeds) for row in rows]
    best = f"{marks.best}: best mean in its block."
    if max(counts) == 1:
        return [
            best,
            "One seed each: there is no standard deviation, and nothing is marked as tied.",
        ]
    levels = {methods.level for block in table.blocks for methods in block.methods.values()}
    if not levels:
        return [marks.spread, best, "Nothing is marked as tied: the predictions were not compared."]
    tied = (
        f"{marks.tied}: not significantly different from the best; the {percent(max(levels))} interval of the"
        " difference contains 0, allowing for the seeds, the samples and the selection of the best among all rows."
    )
    some = (
        ["A row with one seed has no standard deviation and is never marked as tied."]
        if min(counts) == 1
        else []
    )
    return [marks.spread, best, tied, *some]


def _runs(row: TableRow) -> str:
    if row.chosen_from > 1:
        return f"best of {row.chosen_from}"
    return f"{len(row.seeds)} seed{'s' * (len(row.seeds) != 1)}"


def _heading(name: str) -> tuple[str, bool]:
    """The column heading with its unit, and whether it is after temperature scaling."""
    metric = describe(name)
    return f"{metric.heading} ({metric.unit or '%'})", metric.name != name


def _numbers(cell: Cell, name: str) -> tuple[str, str | None]:
    """Mean and std in the column's unit, rounded."""
    metric = describe(name)
    factor = 1 if metric.unit else 100
    std = None if cell.std is None else f"{cell.std * factor:.{metric.decimals}f}"
    return f"{cell.mean * factor:.{metric.decimals}f}", std


def _lines(
    block: Block, columns: list[str], written: Callable[[Cell | None, str], str]
) -> Iterable[list[str]]:
    """The cells of each row as text, in column order."""
    by_column = [block.cells(name) for name in columns]
    for cells in zip(*by_column, strict=True):
        yield [written(cell, name) for cell, name in zip(cells, columns, strict=True)]


# ---- LaTeX ---------------------------------------------------------------------------------------------------------

_SPECIAL = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
_SPECIAL |= {character: f"\\{character}" for character in "&%$#_{}"}


def to_latex(table: Table) -> str:
    """A `table*` across both columns of a page, scaled down if too wide; needs booktabs and graphicx."""
    columns = table.columns
    groups = [
        (title, len(list(found))) for title, found in groupby(_heading(name)[0] for name in columns)
    ]
    first = " & ".join(
        ["", ""] + [rf"\multicolumn{{{size}}}{{c}}{{{_escaped(title)}}}" for title, size in groups]
    )
    starts = [3 + sum(size for _, size in groups[:place]) for place in range(len(groups))]
    rules = [
        rf"\cmidrule(lr){{{start}-{start + size - 1}}}"
        for start, (_, size) in zip(starts, groups, strict=True)
    ]
    second = " & ".join(
        ["Method", "Runs", *("TS" if _heading(name)[1] else "" for name in columns)]
    )
    lines = [
        r"\begin{table*}[t]",
        r"\centering\scriptsize\setlength{\tabcolsep}{2.5pt}",
        rf"\caption{{{_escaped(caption(table, LATEX))}}}",
        r"\resizebox{\ifdim\width>\textwidth\textwidth\else\width\fi}{!}{%",
        rf"\begin{{tabular}}{{ll{'r' * len(columns)}}}",
        r"\toprule",
        rf"{first} \\",
        " ".join(rules),
        rf"{second} \\",
    ]
    for block in table.blocks:
        lines.append(r"\midrule")
        if len(table.blocks) > 1:
            name = _escaped(f"{block.study} ({block.split}, {block.samples:,} samples)")
            lines.append(rf"\multicolumn{{{len(columns) + 2}}}{{l}}{{\textit{{{name}}}}} \\")
        for row, cells in zip(block.rows, _lines(block, columns, _latex_cell), strict=True):
            lines.append(" & ".join([_escaped(row.label), _runs(row), *cells]) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}}", r"\end{table*}", ""])


def _latex_cell(cell: Cell | None, name: str) -> str:
    if cell is None:
        return "--"
    mean, std = _numbers(cell, name)
    mean = rf"\mathbf{{{mean}}}" if cell.best else rf"\underline{{{mean}}}" if cell.tied else mean
    return f"${mean}$" if std is None else rf"${mean}{{}}_{{{std}}}$"


def _escaped(text: str) -> str:
    return "".join(_SPECIAL.get(character, character) for character in text)


# ---- Markdown ------------------------------------------------------------------------------------------------------


def to_markdown(table: Table) -> str:
    """A table per study, and the caption below them."""
    columns = table.columns
    titles = [
        f"{title.split(' (')[0]}, TS ({title.split(' (')[1]}" if after else title
        for title, after in map(_heading, columns)
    ]
    lines = []
    for block in table.blocks:
        lines += [f"**{block.study}**, {block.split} split", ""]
        lines += [
            _markdown_line(["Method", "Runs", *titles]),
            _markdown_line(["---", "---", *("---:" for _ in columns)]),
        ]
        for row, cells in zip(block.rows, _lines(block, columns, _markdown_cell), strict=True):
            lines.append(_markdown_line([row.label, _runs(row), *cells]))
        lines.append("")
    return "\n".join([*lines, textwrap.fill(caption(table, MARKDOWN), 120), ""])


def _markdown_line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _markdown_cell(cell: Cell | None, name: str) -> str:
    if cell is None:
        return "-"
    mean, std = _numbers(cell, name)
    marked = f"**{mean}**" if cell.best else f"*{mean}*" if cell.tied else mean
    return marked if std is None else f"{marked} ± {std}"


# ---- CSV -----------------------------------------------------------------------------------------------------------


def to_csv(table: Table) -> str:
    """A line per row: fractions and nats, unrounded; `_mark` is best, tied or empty. Unmeasured cells are empty."""
    columns = table.columns
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    parts = [f"{name}_{part}" for name in columns for part in ("mean", "std", "mark")]
    writer.writerow(
        ["study", "split", "samples", "classes", "method", "role", "seeds", "chosen_from", *parts]
    )
    for block in table.blocks:
        by_column = [block.cells(name) for name in columns]
        for place, row in enumerate(block.rows):
            of = [block.study, block.split, block.samples, block.classes]
            cells = [value for cells in by_column for value in _csv_cell(cells[place])]
            writer.writerow(
                map(csv_cell, [*of, row.label, row.role, len(row.seeds), row.chosen_from, *cells])
            )
    return file.getvalue()


def _csv_cell(cell: Cell | None) -> tuple[float | None, float | None, str]:
    if cell is None:
        return None, None, ""
    return cell.mean, cell.std, "best" if cell.best else "tied" if cell.tied else ""
