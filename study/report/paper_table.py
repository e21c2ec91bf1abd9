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
from study.report.table_columns import heading, not_shown, shown
from study.schema.printable import csv_cell
from study.uncertainty.intervals import percent
from study.uncertainty.words import AS_GOOD
from trainables.metrics import AFTER_TEMPERATURE
from trainables.plain import Value


class Marks(NamedTuple):
    """A format's marks of cells, in the words of its caption."""

    best: str
    as_good: str
    undecided: str
    spread: str
    errors_in: str = "%"


LATEX = Marks(
    "Bold", "bold too", "Underlined", "Mean over seeds, with the standard deviation as a subscript."
)
MARKDOWN = Marks("Bold", "bold too", "Italic", "Mean ± standard deviation over seeds.")
CSV = Marks(
    "Mark best",
    "mark as good",
    "Mark undecided",
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
        *_of_columns(table),
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
        f"{block.samples:,} {block.called}{block.in_groups}",
        f"{block.classes} classes",
        seeds,
    ]
    return "; ".join([", ".join(parts), f"temperature {block.temperature}", *block.notes])


def _floors_of(table: ComparisonTable, block: Block, marks: Marks) -> str:
    """`Floor (...): ECE 1.65 to 3.79, ECE TS 1.62 to 2.20.`: a row's lowest mean to the highest."""
    parts = []
    for name in table.with_floors:
        means = [floors[name].mean for floors in block.floors.values() if name in floors]
        if means:
            ends = [
                shown(mean, name) if marks.errors_in == "%" else f"{mean:.4f}"
                for mean in (min(means), max(means))
            ]
            parts.append(f"{_in_words(name)} {' to '.join(ends)}")
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
    if levels and (rows := dict.fromkeys(filter(None, (one.against for one in table.blocks)))):
        return [
            f"Each value is a row's mean less that of {' and '.join(rows)}, whose own row has mean"
            f" and standard deviation over seeds. In brackets: the {percent(max(levels))} interval,"
            " for the seeds, the samples and all pairs of rows; the word is of the row. A row of"
            " one seed, or a metric without an interval, is not compared."
        ]
    if not levels:
        return [
            marks.spread,
            best,
            "Only the best is marked: the predictions were not compared.",
        ]
    words = (
        f"As good as it, {marks.as_good}: the {percent(max(levels))} interval of the difference"
        " lies within the smallest difference that matters."
        f" {marks.undecided}: undecided, the interval contains 0 and reaches farther, which does"
        " not make the two equal. Intervals allow for the seeds, the samples and the selection of"
        " the best among all rows."
    )
    sentences = [marks.spread, best, words]
    if min(counts) == 1:
        sentences.append("A row with one seed has no standard deviation and is not compared.")
    return sentences


def _of_columns(table: ComparisonTable) -> list[str]:
    """The columns that are not compared beside others that are, and what has no column."""
    compared = set(chain(*(block.methods for block in table.blocks)))
    names = [_in_words(name) for name in table.columns if compared and name not in compared]
    sentences = [f"Not compared: {', '.join(names)}."] if names else []
    objectives = chain(*(block.objectives for block in table.blocks))
    if absent := not_shown(objectives):
        sentences.append(f"Without a column, as higher is better: {', '.join(absent)}.")
    return sentences


def _runs(row: TableRow) -> str:
    if row.chosen_from > 1:
        return f"best of {row.chosen_from}"
    return _seeds(len(row.seeds))


def _seeds(count: int) -> str:
    return f"{count} seed{'s' * (count != 1)}"


def _in_words(name: str) -> str:
    title, _, after = heading(name)
    return f"{title}{' TS' * after}"


def _numbers(cell: Cell, name: str) -> tuple[str, str | None]:
    """Mean and std in the column's unit, rounded."""
    return shown(cell.mean, name), None if cell.std is None else shown(cell.std, name)


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
        (title, len(list(found)))
        for title, found in groupby(heading(name).with_unit for name in columns)
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
        ["Method", "Runs", *("TS" if heading(name).after else "" for name in columns)]
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
            name = escaped(f"{block.study} ({block.split}, {block.samples:,} {block.called})")
            lines.append(rf"\multicolumn{{{len(columns) + 2}}}{{l}}{{\textit{{{name}}}}} \\")
        for row, cells in zip(block.rows, _lines(block, columns, _latex_cell), strict=True):
            lines.append(" & ".join([escaped(row.label), _runs(row), *cells]) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}}", r"\end{table*}", ""])


def _latex_cell(cell: Cell | None, name: str) -> str:
    if cell is None:
        return "--"
    if less := _less(cell, name):
        return less.replace("-", "$-$").replace("+", "$+$")
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


def _less(cell: Cell, name: str) -> str:
    """`-1.86 [-2.95, -0.80] better`, in the column's unit; "" where nothing is subtracted."""
    if cell.difference is None:
        return ""
    less, low, high = (f"{'+' * (value >= 0)}{shown(value, name)}" for value in cell.difference[:3])
    return f"{less} [{low}, {high}] {cell.word}"


def escaped(text: str) -> str:
    return "".join(_SPECIAL.get(character, character) for character in text)


# ---- Markdown ------------------------------------------------------------------------------------


def to_markdown(table: ComparisonTable) -> str:
    """A table per study, and the caption below them."""
    columns = table.columns
    headings = map(heading, columns)
    titles = [one._replace(title=f"{one.title}{', TS' * one.after}").with_unit for one in headings]
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
    if less := _less(cell, name):
        return less
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

    `_mark` is best, as good, undecided or empty. Against a row, it is the word, and `_less`, `_low`
    and `_high` are the difference and its interval.
    """
    columns = table.columns
    against = any(block.against for block in table.blocks)
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    parts = []
    for name in columns:
        parts += [f"{name}_mean", f"{name}_std", f"{name}_mark"]
        if against:
            parts += [f"{name}_less", f"{name}_low", f"{name}_high"]
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
            cells = chain(*(_csv_cell(column[place], against) for column in by_column), *floors)
            writer.writerow(map(csv_cell, [*of, *method, *cells]))
    return file.getvalue()


def _csv_cell(cell: Cell | None, against: bool) -> list[Value]:
    if cell is None:
        return [None, None, "", *[None] * 3 * against]
    less = list(cell.difference or (None,) * 3)[:3] if against else []
    return [cell.mean, cell.std, "best" if cell.best else cell.word, *less]
