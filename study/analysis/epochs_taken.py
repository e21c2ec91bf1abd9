"""The epoch that each `result` would have taken, and its values, from stored histories.

Mukhoti et al. 2020, Appendix J.1. All is of validation, by which the epoch is chosen: the metric it
was chosen by looks better than it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean, stdev

from study.analysis.progression import History
from study.analysis.ranking import Ranking
from study.analysis.repeats import typical
from study.store.files import stored_history
from study.store.study import StudyFolder
from trainables import metrics
from trainables.plain import Value
from trainables.problems import FieldError

RESULTS = ("last", "best_accuracy", "best_nll", "best_ece")  # as the key `result` has them
SHOWN = ("epoch", "error", "nll", "ece")


def epoch_taken(history: History, result: str) -> Mapping[str, float]:
    """The row of the epoch, the first of equals."""
    if result == "last":
        return history[-1]
    metric = result.removeprefix("best_")
    sign = metrics.describe(metric).sign
    return min(history, key=lambda row: sign * row[metric])


def epochs_taken(study: StudyFolder) -> list[dict[str, Value]]:
    """A row for each method and `result`, all with the same keys.

    method, result; trial: its name, None of several; seeds; epoch, error, nll, ece: means over the
    seeds, and their standard deviations (n - 1) as `epoch_sd` and so on, None of one seed. Of a
    method with a search: its best trial. Raises FieldError if no trial is complete, or if a history
    is missing or altered.
    """
    shown = typical(Ranking(study, study.records()))
    if not shown:
        raise FieldError(study.name, "no complete trial", f"Run `{study.goes_on}` first.")
    rows: list[dict[str, Value]] = []
    for label, records in shown.items():
        histories = [stored_history(study, record) for record in records]
        for result in RESULTS:
            head: dict[str, Value] = {"method": label, "result": result}
            head["trial"] = records[0].name if len(records) == 1 else None
            head["seeds"] = len(records)
            rows.append(head | _values([epoch_taken(each, result) for each in histories]))
    return rows


def _values(taken: Sequence[Mapping[str, float]]) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for name in SHOWN:
        values = [1 - row["accuracy"] if name == "error" else row[name] for row in taken]
        found[name] = mean(values)
        found[f"{name}_sd"] = stdev(values) if len(values) > 1 else None
    return found
