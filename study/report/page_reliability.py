"""Reliability diagrams for a study's report page: the bins of every complete trial as plain numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from study.analysis.reliability import Reliability, diagram
from study.store.files import PREDICTIONS, stored_predictions
from study.store.study import Study
from study.store.trials import TrialRecord
from trainables.fields import FieldError
from trainables.threads import in_threads

Plain = dict[str, Any]
MOST_NAMED = 5  # trials that one note names


def diagrams(study: Study, finished: Sequence[TrialRecord]) -> tuple[dict[str, Plain], list[str]]:
    """{trial: its diagram} of complete trials, and notes on trials whose predictions are missing or altered.

    A diagram: `raw` and `scaled`, as from `_bins`; `temperature`, the median over the folds.
    """
    drawn = in_threads(lambda record: _diagram_or_why(study, record), finished)
    found: dict[str, Plain] = {}
    lacking: dict[str, list[str]] = {}  # trials by what is wrong
    for record, one in zip(finished, drawn, strict=True):
        if isinstance(one, str):
            lacking.setdefault(one, []).append(record.name)
        else:
            found[record.name] = one
    return found, [
        f"No reliability diagram for {_some(names)}: {PREDICTIONS} {why}"
        for why, names in lacking.items()
    ]


def _diagram_or_why(study: Study, record: TrialRecord) -> Plain | str:
    """The diagram, or the reason there is none."""
    try:
        found = diagram(stored_predictions(study, record))
    except FieldError as error:
        return error.problem.removeprefix(f"{study.files(record) / PREDICTIONS} ")
    return {
        "raw": _bins(found.raw),
        "scaled": _bins(found.scaled),
        "temperature": round(found.temperature, 4),
    }


def _bins(found: Reliability) -> Plain:
    """`ece`, and for every non-empty bin [number, samples, mean confidence, hits, low, high].

    The band's ends are counts of hits too: whole numbers are short, and a page has hundreds of trials.
    """
    hits = (
        (found.counts * each).round().astype(int)
        for each in (found.accuracy, found.low, found.high)
    )
    columns = (found.numbers, found.counts.astype(int), found.confidence.round(5), *hits)
    bins = list(zip(*(column.tolist() for column in columns), strict=True))
    return {"ece": float(f"{found.ece:.6g}"), "bins": bins}


def _some(names: Sequence[str]) -> str:
    rest = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {rest:,} more" if rest > 0 else "")
