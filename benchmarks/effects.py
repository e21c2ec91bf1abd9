"""Whether each method of a study really acted: its trials against those of cross_entropy, the noise floor.

    python benchmarks/effects.py studies/digits-all-methods

Mean and standard deviation over a label's trials, on validation; `*` where the difference from cross_entropy is more
than three standard errors (Welch). Where a label is searched, the deviation holds the search too. The last columns are
of the last epoch (`diagnostics: true`): mean entropy where right and where wrong, and the norm of the last layer.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
from pathlib import Path

from study.store.study import Study, open_directory
from study.store.trials import TrialRecord

METRICS = ("accuracy", "nll", "brier", "ece", "ts_ece")
DIAGNOSTICS = ("entropy_right", "entropy_wrong", "head_norm")
BASELINE = "cross_entropy"


def values(study: Study, record: TrialRecord) -> dict[str, float]:
    """Of one complete trial: its metrics, and the diagnostics of its last epoch."""
    last = json.loads((study.files(record) / "history.json").read_text())[-1]
    told = {name: last[name] for name in DIAGNOSTICS if name in last}
    return {**{name: record.metrics[name] for name in METRICS}, **told, "samples": record.samples or math.nan}


def cell(own: list[float], floor: list[float]) -> str:
    """`0.0123 ± 0.0010 *`"""
    if not own:
        return ""
    mean, deviation = statistics.mean(own), statistics.stdev(own) if len(own) > 1 else 0.0
    text = f"{mean:.4f} ± {deviation:.4f}"
    if len(own) < 2 or len(floor) < 2 or own is floor:
        return text
    error = math.sqrt(deviation**2 / len(own) + statistics.variance(floor) / len(floor))
    return f"{text} *" if abs(mean - statistics.mean(floor)) > 3 * error else text


def main() -> None:
    directory = Path(sys.argv[1])
    study = open_directory(directory, directory.name)
    found = {
        label: [values(study, record) for record in records if record.state == "complete"]
        for label, records in study.records().items()
    }
    columns = [*METRICS, *DIAGNOSTICS]
    print(f"| method | trials | {' | '.join(columns)} | samples |")
    print("|" + "---|" * (len(columns) + 3))
    for label, rows in ((label, rows) for label, rows in found.items() if rows):
        cells = []
        for name in columns:
            own = [row[name] for row in rows if name in row]
            floor = own if label == BASELINE else [row[name] for row in found[BASELINE] if name in row]
            cells.append(cell(own, floor))
        print(
            f"| {label} | {len(rows)} | {' | '.join(cells)} | {statistics.mean(row['samples'] for row in rows):,.0f} |"
        )


if __name__ == "__main__":
    main()
