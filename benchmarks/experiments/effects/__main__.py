"""What each method changes: its seeds against those of cross_entropy, on the same samples.

    calstudy run benchmarks/experiments/effects/digits.yaml
    python -m benchmarks.experiments.effects studies/effects_digits [COLUMN...]  # prints Markdown

The study's methods have fixed settings, so that the trials of a label differ only by seed. Beside
each value is the 95% interval of its difference from cross_entropy, simultaneous over all pairs
of methods (docs/why/how-certain.md), in bold if it does not contain 0. Values of a confirmed study
are of test and its shift sets, of any other of validation; the diagnostics of the last epoch
(`diagnostics: true`) and AUROC have the uncertainty of the seeds alone.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from study.answer.confirmation import Confirmation, Confirmed, results_of
from study.answer.networks import networks_on_test
from study.store.files import checked_file, stored_predictions
from study.store.openings import read_tested
from study.store.study import StudyFolder, open_directory
from study.uncertainty.methods import Methods, NetworkPredictions, Seeds, compare_methods
from trainables.outputs.predictions import Predictions

METRICS = ("accuracy", "nll", "brier", "ece", "ts_ece")
DIAGNOSTICS = ("entropy_right", "entropy_wrong", "head_norm")
BASELINE = "cross_entropy"


def of_seeds(values: Mapping[str, Sequence[float]]) -> Methods:
    """Methods of whose values nothing is resampled."""
    return Methods(
        {label: Seeds(np.array(own), np.zeros((len(own), 1))) for label, own in values.items()}
    )


def on_validation(study: StudyFolder) -> dict[str, Methods]:
    """Metrics and diagnostics of a study that is not confirmed."""
    records = study.records().complete.by_label
    networks = {
        label: [NetworkPredictions(stored_predictions(study, one)) for one in own]
        for label, own in records.items()
    }
    found = compare_methods(networks, METRICS)
    last = {
        label: [json.loads((study.files(one) / "history.json").read_text())[-1] for one in own]
        for label, own in records.items()
    }
    for name in DIAGNOSTICS:
        if all(name in row for rows in last.values() for row in rows):
            found[name] = of_seeds(
                {label: [row[name] for row in rows] for label, rows in last.items()}
            )
    return found


def on_test(confirmation: Confirmation) -> dict[str, Methods]:
    """Metrics on test and on each shift set; AUROC where a set's classes are others."""
    found = {
        f"test {name}": methods
        for name, methods in compare_methods(networks_on_test(confirmation), METRICS).items()
    }
    for name in dict.fromkeys(name for row in confirmation.rows for name in row.shifts):
        if "accuracy" in confirmation.rows[0].shifts[name][0]:
            networks = {
                row.label: shifted(confirmation.study, row, name) for row in confirmation.rows
            }
            of_set = compare_methods(networks, ("ece", "ts_ece"))
            found |= {f"{name} {metric}": methods for metric, methods in of_set.items()}
        else:
            values = {
                row.label: [seed["auroc_confidence"] for seed in row.shifts[name]]
                for row in confirmation.rows
            }
            found[f"{name} AUROC"] = of_seeds(values)
    return found


def shifted(study: StudyFolder, row: Confirmed, name: str) -> list[NetworkPredictions]:
    """The row's predictions on a shift set, at its test temperatures."""
    tested, file = read_tested(study)[row.label], f"shift_{name}.npz"
    return [
        NetworkPredictions(
            Predictions.load(checked_file(study, one, file, tested[one.number].digests)),
            tested[one.number].temperature,
        )
        for one in row.records
    ]


def cell(methods: Methods, label: str, baseline: str) -> str:
    """`0.0123 ± 0.0010 (+0.0023, +0.0100)`"""
    own = methods.rows[label].values
    text = f"{own.mean():.4f} ± {own.std(ddof=1):.4f}"
    if label == baseline:
        return text
    _, low, high = methods.difference(label, baseline)
    interval = f"({low:+.4f}, {high:+.4f})"
    return f"{text} {interval}" if low <= 0 <= high else f"{text} **{interval}**"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.experiments.effects", description=__doc__
    )
    parser.add_argument("directory", type=Path, help="of the study")
    parser.add_argument("columns", nargs="*", help="metrics to show; default: all")
    options = parser.parse_args()
    study = open_directory(options.directory, options.directory.name)
    confirmation = results_of(study).confirmation
    found = on_validation(study) if confirmation is None else on_test(confirmation)
    found = {name: found[name] for name in options.columns or found}
    labels = list(next(iter(found.values())).rows)
    (baseline,) = (label for label in labels if label.startswith(BASELINE))
    print(f"| method | {' | '.join(found)} |")
    print("|" + "---|" * (len(found) + 1))
    for label in labels:
        print(
            f"| {label} |"
            f" {' | '.join(cell(methods, label, baseline) for methods in found.values())} |"
        )


if __name__ == "__main__":
    main()
