"""What a reproduction says in words: headings, cells, reasons, and the lines above the table."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from study.answer.phrases import counted, data_of
from study.reproduction.claims import Finding
from study.reproduction.reproduction import Reproduction
from study.reproduction.table import EVERY_NETWORK, Claim, Column
from study.reproduction.verdict import ALONE, DIFFERS, FAILED, Verdict
from trainables.metrics import describe, described

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
    if value is None or not math.isfinite(value):
        return "-"
    return f"{value:.{column.digits}f}"


def ours(column: Column, verdict: Verdict) -> str:
    """`4.21 ± 0.30`: the mean over seeds, and the half-width of its interval."""
    mean = figure(column, verdict.mean)
    if verdict.mean is None or verdict.half is None:
        return mean
    return f"{mean} ± {_half(column, verdict.half)}"


def _half(column: Column, half: float) -> str:
    """With a digit more than the column where it would be 0."""
    digits = column.digits
    while half and round(half, digits) == 0 and digits < column.digits + 2:
        digits += 1
    return f"{half:.{digits}f}"


class Reasons:
    """Why cells are not judged, numbered in the order in which they are met."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def text(self, column: Column, verdict: Verdict) -> str:
        """`agrees`, `differs by +0.42`, `cannot be judged [1, 2]`."""
        if verdict.word == DIFFERS and verdict.distance is not None:
            digits = column.digits + (column.step is not None)
            return f"{DIFFERS} by {verdict.distance:+.{digits}f}"
        if verdict.word == ALONE and not verdict.reasons:
            return ""
        return verdict.word + self.named(*verdict.reasons)

    def named(self, *reasons: str) -> str:
        """` [1, 2]`: the numbers of the reasons; empty for none."""
        numbers = [self._numbers.setdefault(one, len(self._numbers) + 1) for one in reasons]
        return f" [{', '.join(map(str, sorted(numbers)))}]" if numbers else ""

    def lines(self) -> Iterator[str]:
        """Each number with its reason."""
        for reason, number in self._numbers.items():
            yield f"[{number}] {reason}"


def alone(found: Reproduction) -> list[Column]:
    """The columns without a published number."""
    return [
        column
        for column in found.table.columns
        if all(one.word in (ALONE, FAILED) for one in found.verdicts[column.name].values())
    ]


def claim_text(claim: Claim, finding: Finding, column: Column, reasons: Reasons) -> list[str]:
    """The cells of a claim: the sentence, our difference, its interval, p, the word."""
    if finding.difference is None or finding.low is None or finding.high is None:
        return [claim.says, "-", "-", "-", finding.word + reasons.named(finding.reason)]
    digits = column.digits + (column.step is not None)
    values = [f"{value:+.{digits}f}" for value in (finding.difference, finding.low, finding.high)]
    p = "" if finding.p is None else f"{finding.p:.2g}"
    return [claim.says, values[0], f"[{values[1]}, {values[2]}]", p, finding.word]


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
    for doubt in table.unknown:
        yield f"Unknown: {doubt.what}."
    yield _judged(found)
    if max(found.seeds.values()) > 1:
        yield from _half_widths(found)


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


def _judged(found: Reproduction) -> str:
    """How many cells differ, and how many would by chance."""
    if not _published(found):
        return "No numbers of the paper are on file: ours alone."
    judged = len(found.judged)
    if not judged:
        return "No cell can be judged."
    differ = sum(one.word == DIFFERS for one in found.judged)
    verb = "differs" if differ == 1 else "differ"
    return (
        f"{counted(judged, 'cell')} judged, {differ} {verb}; {found.by_chance:.1f} would by chance"
        " alone if every protocol were the paper's. differs by: ours less the paper's."
    )


def _half_widths(found: Reproduction) -> Iterator[str]:
    """What ± is."""
    compared, own = parts(found)
    if compared:
        yield (
            "±, beside published numbers: half the interval around our mean in which the paper's"
            " number would lie in 95 of 100 papers with our protocol."
        )
    if own:
        also = " and, after a temperature, over validation splits" * _has_temperatures(found)
        yield f"±, ours alone: half the 95% interval of our mean, over seeds{also}."


def parts(found: Reproduction) -> tuple[Sequence[Column], Sequence[Column]]:
    """The columns with published numbers, and those of ours alone."""
    own = alone(found)
    return [column for column in found.table.columns if column not in own], own
