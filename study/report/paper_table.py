"""A comparison table as text: LaTeX and Markdown in the papers' units, CSV in fractions."""

from __future__ import annotations

import csv
import io
import textwrap
from collections.abc import Callable, Iterable
from itertools import chain, groupby
from typing import NamedTuple

from study.answer.phrases import first_upper
from study.report.comparison import Block, Cell, ComparisonTable, TableRow
from study.schema.printable import csv_cell
from study.uncertainty.intervals import percent
from study.uncertainty.words import AS_GOOD
from trainables.metrics import AFTER_TEMPERATURE, describe
from trainables.plain import Value


class Marks(NamedTuple):
    """A format's marks of cells, in the words of its caption."""

    best: str
    as_good: str
    not_told: str
    spread: str
    errors_in: str = "%"


LATEX = Marks(
    "Bold", "bold too", "Underlined", "Mean over seeds, with the standard deviation as a subscript."
)
MARKDOWN = Marks("Bold", "bold too", "Italic", "Mean ± standard deviation over seeds.")
CSV = Marks(
    "Mark best",
    "mark as good",
    "Mark not told apart",
    "Mean and standard deviation over seeds.",
    "fractions",
)

FLOOR = ("mean", "low", "high")  # the parts of `Floor`


def caption(table: ComparisonTable, marks: Marks) -> str:
    """The meaning of the numbers, and how far they can be trusted."""
    of = " ".join(f"{_of(block)}." for block in table.blocks)
    afterwards = dict.fromkeys(block.afterwards for block in table.blocks if block.afterwards)
    units = (
        f"Error, Brier score and calibration errors (15 bins) in {marks.errors_in}, NLL in nats;"
        " lower is better."
    )
    scaled = "TS: after temperature scaling"
    if AFTER_TEMPERATURE + "error" not in table.columns:
        scaled += ", which does not change the error"
    sentences = [
        *(f"{first_upper(line)}." for line in afterwards),
        of,
        units,
        f"{scaled}.",
        *_of_seeds(table, marks),
    ]
    if any(row.chosen_from > 1 for row in table.rows):
        sentences.append(
            "'best of n': the best of n trials, selected on these validation samples; it looks"
            " better than it is, more so for larger n. Confirm it on the test split before"
            " quoting it."
        )
    sentences += filter(None, (_floors_of(table, block, marks) for block in table.blocks))
    sentences += [f"{first_upper(note)}." for note in table.notes]
    return " ".join(sentences)


def _of(block: Block) -> str:
    """`digits: test split, 360 samples, 10 classes, 3 seeds`."""
    counts = sorted({len(row.seeds) for row in block.rows})
    seeds = _seeds(counts[0])
    if len(counts) > 1:
        seeds = f"{counts[0]} to {counts[-1]} seeds"
    if any(row.chosen_from > 1 for row in block.rows):
        seeds += f", best trial by {block.objectives[0].metric} for methods with a search"
    parts = [
        f"{block.study}: {block.split} split",
        f"{block.samples:,} samples{block.in_groups}",
        f"{block.classes} classes",
        seeds,
    ]
    return "; ".join([", ".join(parts), f"temperature {block.temperature}", *block.notes])


def _floors_of(table: ComparisonTable, block: Block, marks: Marks) -> str:
    """`Floor (...): ECE 1.65 to 3.79, ECE TS 1.62 to 2.20.`: a row's lowest mean to the highest."""
    parts = []
    for name in table.with_floors:
        title, after = _heading(name)
        factor, decimals = (100, describe(name).decimals) if marks.errors_in == "%" else (1, 4)
        means = [floors[name].mean * factor for floors in block.floors.values() if name in floors]
        if means:
            shown = f"{min(means):.{decimals}f} to {max(means):.{decimals}f}"
            parts.append(f"{title.split(' (')[0]}{' TS' * after} {shown}")
    if not parts:
        return ""
    where = f" in {block.study}" if len(table.blocks) > 1 else ""
    return (
        f"Floor{where} (what perfectly calibrated models with these confidences would measure on as"
        f" many samples; lowest to highest row, not subtracted): {', '.join(parts)}."
    )


def _of_seeds(table: ComparisonTable, marks: Marks) -> list[str]:
    counts = [len(row.seeds) for row in table.rows]
    best = f"{marks.best}: best mean in its block."
    if max(counts) == 1:
        return [best, "One seed each: there is no standard deviation, and nothing is compared."]
    compared = chain(*(block.methods.values() for block in table.blocks))
    levels = {methods.level for methods in compared}
    if not levels:
        return [
            marks.spread,
            best,
            "Nothing is marked beside the best: the predictions were not compared.",
        ]
    words = (
        f"As good as it, {marks.as_good}: the {percent(max(levels))} interval of the difference"
        f" lies within what matters. {marks.not_told}: not told apart from the best; the interval"
        " contains 0 and reaches farther, which does not make the two equal. Intervals allow for"
        " the seeds, the samples and the selection of the best among all rows."
    )
    sentences = [marks.spread, best, words]
    if min(counts) == 1:
        sentences.append("A row with one seed has no standard deviation and is not compared.")
    return sentences


def _runs(row: TableRow) -> str:
    if row.chosen_from > 1:
        return f"best of {row.chosen_from}"
    return _seeds(len(row.seeds))


def _seeds(count: int) -> str:
    return f"{count} seed{'s' * (count != 1)}"


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


# ---- LaTeX ---------------------------------------------------------------------------------------

_SPECIAL = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
_SPECIAL |= {character: f"\\{character}" for character in "&%$#_{}"}


def to_latex(table: ComparisonTable) -> str:
    """A `table*` across both columns, scaled down if too wide; needs booktabs and graphicx."""
    columns = table.columns
    groups = [
        (title, len(list(found))) for title, found in groupby(_heading(name)[0] for name in columns)
    ]
    first = " & ".join(
        ["", ""] + [rf"\multicolumn{{{size}}}{{c}}{{{escaped(title)}}}" for title, size in groups]
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
        rf"\caption{{{escaped(caption(table, LATEX))}}}",
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
            name = escaped(f"{block.study} ({block.split}, {block.samples:,} samples)")
            lines.append(rf"\multicolumn{{{len(columns) + 2}}}{{l}}{{\textit{{{name}}}}} \\")
        for row, cells in zip(block.rows, _lines(block, columns, _latex_cell), strict=True):
            lines.append(" & ".join([escaped(row.label), _runs(row), *cells]) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}}", r"\end{table*}", ""])


def _latex_cell(cell: Cell | None, name: str) -> str:
    if cell is None:
        return "--"
    mean, std = _numbers(cell, name)
    if _is_bold(cell):
        mean = rf"\mathbf{{{mean}}}"
    elif cell.word:
        mean = rf"\underline{{{mean}}}"
    if std is not None:
        mean += rf"{{}}_{{{std}}}"
    return f"${mean}$"


def _is_bold(cell: Cell) -> bool:
    return cell.best or cell.word == AS_GOOD


def escaped(text: str) -> str:
    return "".join(_SPECIAL.get(character, character) for character in text)


# ---- Markdown ------------------------------------------------------------------------------------


def to_markdown(table: ComparisonTable) -> str:
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
            markdown_line(["Method", "Runs", *titles]),
            markdown_line(["---", "---", *("---:" for _ in columns)]),
        ]
        for row, cells in zip(block.rows, _lines(block, columns, _markdown_cell), strict=True):
            lines.append(markdown_line([row.label, _runs(row), *cells]))
        lines.append("")
    return "\n".join([*lines, textwrap.fill(caption(table, MARKDOWN), 120), ""])


def markdown_line(cells: Iterable[str]) -> str:
    escaped_cells = (cell.replace("|", r"\|") for cell in cells)
    return f"| {' | '.join(escaped_cells)} |"


def _markdown_cell(cell: Cell | None, name: str) -> str:
    if cell is None:
        return "-"
    mean, std = _numbers(cell, name)
    if _is_bold(cell):
        mean = f"**{mean}**"
    elif cell.word:
        mean = f"*{mean}*"
    if std is not None:
        mean += f" ± {std}"
    return mean


# ---- CSV -----------------------------------------------------------------------------------------


def to_csv(table: ComparisonTable) -> str:
    """A line per row: fractions and nats, unrounded; unmeasured cells are empty. Floors come last.

    `_mark` is best, as good, not told apart or empty.
    """
    columns = table.columns
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    parts = []
    for name in columns:
        parts += [f"{name}_mean", f"{name}_std", f"{name}_mark"]
    for name in table.with_floors:
        parts += [f"{name}_floor_{part}" for part in FLOOR]
    writer.writerow(
        ["study", "split", "samples", "classes", "method", "role", "seeds", "chosen_from", *parts]
    )
    for block in table.blocks:
        by_column = [block.cells(name) for name in columns]
        for place, row in enumerate(block.rows):
            of: list[Value] = [block.study, block.split, block.samples, block.classes]
            method: list[Value] = [row.label, row.role, len(row.seeds), row.chosen_from]
            known = block.floors.get(row.label, {})
            floors = [known.get(name, (None,) * len(FLOOR)) for name in table.with_floors]
            cells = chain(*(_csv_cell(column[place]) for column in by_column), *floors)
            writer.writerow(map(csv_cell, [*of, *method, *cells]))
    return file.getvalue()


def _csv_cell(cell: Cell | None) -> tuple[float | None, float | None, str]:
    if cell is None:
        return None, None, ""
    return cell.mean, cell.std, "best" if cell.best else cell.word
