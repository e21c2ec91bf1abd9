"""Reliability diagrams for a report page: every complete trial's bins as plain numbers."""

from __future__ import annotations

from collections.abc import Sequence

from study.analysis.left_out import some
from study.schema.temperature import is_doubtful, temperature_note
from study.store.files import PREDICTIONS, stored_predictions
from study.store.study import StudyFolder
from study.store.trials import TrialRecord
from study.uncertainty.reliability import Reliability, diagram
from trainables.machine import in_threads
from trainables.plain import Plain
from trainables.problems import FieldError

Drawn = dict[str, Plain]


def diagrams(
    study: StudyFolder, finished: Sequence[TrialRecord]
) -> tuple[dict[str, Drawn], list[str]]:
    """{trial: its diagram} of complete trials, and notes on missing or altered predictions.

    A diagram: `raw` and `scaled`, as from `_bins`; `temperature`, the median over the folds; what
    to `doubt` of it.
    """
    drawn = in_threads(lambda record: _diagram_or_why(study, record), finished)
    found: dict[str, Drawn] = {}
    lacking: dict[str, list[str]] = {}  # trials by what is wrong
    for record, one in zip(finished, drawn, strict=True):
        if isinstance(one, str):
            lacking.setdefault(one, []).append(record.name)
        else:
            found[record.name] = one
    return found, [
        f"No reliability diagram for {some(names)}: {PREDICTIONS} {why}"
        for why, names in lacking.items()
    ]


def _diagram_or_why(study: StudyFolder, record: TrialRecord) -> Drawn | str:
    """The diagram, or the reason there is none."""
    try:
        predictions = stored_predictions(study, record)
    except FieldError as error:
        return error.problem.removeprefix(f"{study.files(record) / PREDICTIONS} ")
    found = diagram(predictions)
    shown: Drawn = {
        "raw": _bins(found.raw),
        "scaled": _bins(found.scaled),
        "temperature": round(found.temperature, 4),
    }
    accuracy = record.metrics["accuracy"]
    if not is_doubtful(found.temperature, accuracy):
        return shown
    size = len(predictions.arrays.labels)
    return {**shown, "doubt": temperature_note(predictions.temperature(), accuracy, size)}


def _bins(found: Reliability) -> Drawn:
    """`ece`, and for every non-empty bin [number, samples, mean confidence, hits, low, high].

    The band's ends are counts of hits too: whole numbers are short, and a page has hundreds of
    trials. Those of groups lie between whole numbers.
    """
    hits = (found.counts * each for each in (found.accuracy, found.low, found.high))
    columns = (found.numbers, found.counts.astype(int), found.confidence.round(5))
    values = [column.tolist() for column in columns] + [list(map(_short, each)) for each in hits]
    bins = list(zip(*values, strict=True))
    return {"ece": float(f"{found.ece:.6g}"), "bins": bins}


def _short(count: float) -> float:
    """A count of hits to four decimals; a whole number where it is one."""
    whole = round(count)
    return whole if abs(count - whole) < 1e-4 else round(float(count), 4)
