"""A reproduction as text: Markdown and LaTeX in the table's units, CSV and JSON in full."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable
from dataclasses import asdict

from study.report.paper_table import escaped, markdown_line
from study.reproduction.reproduction import Reproduction
from study.reproduction.table import Column
from study.reproduction.verdict import AGREES, DIFFERS, FAILED, Verdict
from study.reproduction.words import (
    CLAIMS_CAPTION,
    Reasons,
    claim_text,
    figure,
    heading,
    lines_above,
    ours,
    parts,
)
from study.schema.printable import csv_text
from trainables.plain import Plain, Value

CLAIM_HEADINGS = ("claim", "difference", "95% interval", "p", "verdict")
WIDTH = 120


def cells_of(
    found: Reproduction, column: Column, reasons: Reasons
) -> Iterable[tuple[str, str, str, str]]:
    """A column's rows: method, published, ours, verdict."""
    for row, verdict in found.verdicts[column.name].items():
        published = found.table.published_at(found.asked.published_network, row, column.name)
        text = reasons.text(column, verdict)
        yield row, figure(column, published), ours(column, verdict), text


def alone_of(
    found: Reproduction, columns: Iterable[Column], reasons: Reasons
) -> Iterable[list[str]]:
    """The rows of the columns of ours alone: method, ours in each."""
    columns = list(columns)
    for row in found.table.rows:
        cells = []
        for column in columns:
            verdict = found.verdicts[column.name][row.name]
            is_failed = verdict.word == FAILED
            cells.append(reasons.text(column, verdict) if is_failed else ours(column, verdict))
        yield [row.name, *cells]


def claims_of(found: Reproduction, reasons: Reasons) -> Iterable[list[str]]:
    """The cells of each claim, under CLAIM_HEADINGS."""
    for claim, finding in zip(found.table.claims, found.findings, strict=True):
        yield claim_text(claim, finding, found.table.column(claim.column), reasons)


# ---- Markdown ------------------------------------------------------------------------------------


def to_markdown(found: Reproduction) -> str:
    """A table per column with published numbers, one of ours alone, and one of the claims."""
    reasons = Reasons()
    lines = [f"**{found.table.title}**", ""]
    for line in lines_above(found):
        lines += [_filled(line), ""]
    compared, own = parts(found)
    for column in compared:
        head = [heading(column), "published", "ours", "verdict"]
        lines += _markdown(head, cells_of(found, column, reasons))
    if own:
        lines += _markdown(["ours alone", *map(heading, own)], alone_of(found, own, reasons))
    if found.findings:
        lines += _markdown(list(CLAIM_HEADINGS), claims_of(found, reasons))
        lines += [_filled(CLAIMS_CAPTION), ""]
    for line in reasons.lines():
        lines += [_filled(line), ""]
    return "\n".join(lines).rstrip() + "\n"


def _filled(text: str) -> str:
    return textwrap.fill(text, WIDTH, break_on_hyphens=False)


def _markdown(head: list[str], rows: Iterable[Iterable[str]]) -> list[str]:
    under = ["---", *("---:" for _ in head[1:])]
    if head[-1] == "verdict":
        under[-1] = "---"
    return [markdown_line(head), markdown_line(under), *map(markdown_line, rows), ""]


# ---- LaTeX ---------------------------------------------------------------------------------------

MARKS = {AGREES: "=", DIFFERS: r"\ne"}


def to_latex(found: Reproduction) -> str:
    """A `table*` with published and ours side by side, then one of the claims.

    Needs booktabs and graphicx.
    """
    reasons = Reasons()
    compared, own = parts(found)
    columns = [*compared, *own]
    widths = [2] * len(compared) + [1] * len(own)
    heads = [
        rf"\multicolumn{{{width}}}{{c}}{{{escaped(heading(column))}}}"
        for column, width in zip(columns, widths, strict=True)
    ]
    seconds = ["published", "ours"] * len(compared) + ["ours"] * len(own)
    rows = []
    for row in found.table.rows:
        cells = [escaped(row.name)]
        for column in compared:
            network = found.asked.published_network
            published = found.table.published_at(network, row.name, column.name)
            cells.append(figure(column, published).replace("-", "--"))
            cells.append(_latex(column, found.verdicts[column.name][row.name], reasons))
        cells += [_latex(one, found.verdicts[one.name][row.name], reasons) for one in own]
        rows.append(cells)
    marks = r" $^=$: agrees. $^{\ne}$: differs. Numbers: why a cell is not judged." * bool(compared)
    caption = escaped(f"{found.table.title}. {' '.join(lines_above(found))}") + marks
    lines = _table(caption, f"l{'r' * sum(widths)}", [["", *heads], ["Method", *seconds]], rows)
    claims = [list(map(escaped, cells)) for cells in claims_of(found, reasons)]
    if claims:
        head = [list(map(escaped, CLAIM_HEADINGS))]
        lines += _table(escaped(CLAIMS_CAPTION), "p{.45\\textwidth}rrrl", head, claims)
    lines += [rf"\noindent\footnotesize {escaped(line)}\par" for line in reasons.lines()]
    return "\n".join([*lines, ""])


def _table(
    caption: str, columns: str, heads: Iterable[list[str]], rows: Iterable[list[str]]
) -> list[str]:
    return [
        r"\begin{table*}[t]",
        r"\centering\scriptsize\setlength{\tabcolsep}{2.5pt}",
        rf"\caption{{{caption}}}",
        r"\resizebox{\ifdim\width>\textwidth\textwidth\else\width\fi}{!}{%",
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        *(" & ".join(cells) + r" \\" for cells in heads),
        r"\midrule",
        *(" & ".join(cells) + r" \\" for cells in rows),
        r"\bottomrule",
        r"\end{tabular}}",
        r"\end{table*}",
    ]


def _latex(column: Column, verdict: Verdict, reasons: Reasons) -> str:
    mark = MARKS.get(verdict.word) or reasons.named(*verdict.reasons).strip()
    raised = f"^{{{mark}}}" if mark else ""
    if verdict.word == FAILED:
        return f"failed${raised}$"
    text = ours(column, verdict).replace("±", r"\pm")
    return f"${text}{raised}$" if verdict.mean is not None else "--"


# ---- CSV and JSON --------------------------------------------------------------------------------


def to_csv(found: Reproduction) -> str:
    """A line per cell, in the column's unit, unrounded; then a line per claim.

    difference, low, high and p are of a claim.
    """
    columns = ["kind", "row", "column", "published", "ours", "half", "sd", "seeds", "verdict"]
    columns += ["distance", "difference", "low", "high", "p", "reasons"]
    rows: list[dict[str, Value]] = [{**cell, "kind": "cell"} for cell in _cells(found)]
    for claim, finding in zip(found.table.claims, found.findings, strict=True):
        rows.append(
            {
                "kind": "claim",
                "row": claim.says,
                "column": claim.column,
                "seeds": finding.pairs,
                "verdict": finding.word,
                "difference": finding.difference,
                "low": finding.low,
                "high": finding.high,
                "p": finding.p,
                "reasons": finding.reason,
            }
        )
    return csv_text(columns, rows)


def _cells(found: Reproduction) -> Iterable[dict[str, Value]]:
    for column in found.table.columns:
        for row, verdict in found.verdicts[column.name].items():
            network = found.asked.published_network
            yield {
                "row": row,
                "column": column.name,
                "published": found.table.published_at(network, row, column.name),
                "ours": verdict.mean,
                "half": verdict.half,
                "sd": verdict.sd,
                "seeds": found.seeds[row],
                "verdict": verdict.word,
                "distance": verdict.distance,
                "reasons": "; ".join(verdict.reasons),
            }


def to_json(found: Reproduction) -> str:
    return json.dumps(to_plain(found)) + "\n"


def to_plain(found: Reproduction) -> dict[str, Plain]:
    """Everything as JSON has it, in the columns' units."""
    asked = found.asked
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
        "cells": [dict(cell) for cell in _cells(found)],
        "judged": len(found.judged),
        "differ": sum(one.word == DIFFERS for one in found.judged),
        "differ_by_chance": found.by_chance,
        "claims": claims,
        "said": list(lines_above(found)),
    }
