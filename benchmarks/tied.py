"""How often methods without a true difference are told apart, and methods with one: a table of docs/uncertainty.md.

    python -m benchmarks.tied --tables 5000        # prints Markdown

Each simulated table has k methods of three seeds, measured on the same samples. A network is the truth seen through
noise of its method and noise and a temperature of its own. Power is that of a second set of tables in which the first
method has less noise; the rule of former versions, Welch's pairwise intervals over seeds, is given the same level by
stretching them.
"""

from __future__ import annotations

import argparse
from typing import NamedTuple

import numpy as np
from scipy.stats import t as student

from benchmarks.coverage import LIFTS, drawn_labels, evidence, softmax
from study.uncertainty.methods import Methods, Seeds
from study.uncertainty.resampling import Draws, Table

METRICS = ("error", "nll", "ece")
SEEDS, RESAMPLES = 3, 200
METHODS = (2, 6, 16)
# Noise in the logits and a temperature; then those of the method with a true advantage.
USUAL, BETTER = (1.5, 0.7), (0.5, 1.0)


class Kind(NamedTuple):
    """How much networks vary: `method`: noise that a method's seeds share, as a part of all; `seed`: of the log of a
    seed's noise and temperature."""

    samples: int
    method: float
    seed: float


KINDS = {
    "few samples, equal seeds": Kind(360, 0.5, 0.02),
    "few samples": Kind(360, 0.5, 0.1),
    "few samples, unequal seeds": Kind(360, 0.3, 0.3),
    "many samples": Kind(5000, 0.5, 0.1),
    "many samples, unequal seeds": Kind(5000, 0.3, 0.3),
}


def table(
    kind: Kind, methods: int, advantage: bool, draws: Draws, source: np.random.Generator
) -> list[dict[str, Seeds]]:
    base = evidence(LIFTS["sure"], kind.samples, source)
    labels = drawn_labels(softmax(base), source)
    rows = []
    for method in range(methods):
        noise, sharpness = BETTER if advantage and method == 0 else USUAL
        shared = source.normal(size=base.shape) * np.sqrt(kind.method)
        networks = []
        for _ in range(SEEDS):
            own = source.normal(size=base.shape) * np.sqrt(1 - kind.method)
            scale, temperature = np.exp(kind.seed * source.normal(size=2))
            logits = (base + noise * scale * (shared + own)) / (sharpness * temperature)
            networks.append(Table.of(logits, labels, classwise=False))
        samples = [network.sums(np.ones((kind.samples, 1))).metrics(METRICS) for network in networks]
        again = [network.sums(draws.counts).metrics(METRICS) for network in networks]
        rows.append(
            {
                name: Seeds(np.array([found[name][0] for found in samples]), np.stack([found[name] for found in again]))
                for name in METRICS
            }
        )
    return rows


def worse(rows: list[Seeds]) -> list[bool]:
    """For each method, whether the rule tells it from the best."""
    named = {str(number): row for number, row in enumerate(rows)}
    tied = Methods(named).tied(best := min(named, key=lambda name: named[name].values.mean()))
    return [name not in {best, *tied} for name in named]


def welch(rows: list[Seeds]) -> list[float]:
    """For each method, its difference from the best in half-widths of Welch's interval: the former rule is `> 1`."""
    best = min(range(len(rows)), key=lambda row: rows[row].values.mean())
    ratios = []
    for row in rows:
        if row is rows[best]:
            ratios.append(0.0)
            continue
        one, other = row.values, rows[best].values
        parts = [values.var(ddof=1) / len(values) for values in (one, other)]
        freedom = sum(parts) ** 2 / sum(part**2 / (SEEDS - 1) for part in parts) if sum(parts) else SEEDS
        reach = student.ppf(0.975, freedom) * np.sqrt(sum(parts))
        ratios.append((one.mean() - other.mean()) / max(reach, 1e-12))
    return ratios


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tables", type=int, default=5000)
    parser.add_argument("--kinds", nargs="*", default=list(KINDS))
    tables = parser.parse_args().tables
    print("| tables | methods | metric | false, Welch | false | power, Welch at the same level | power |")
    print("|---|---|---|---|---|---|---|", flush=True)
    for name in parser.parse_args().kinds:
        kind = KINDS[name]
        draws = Draws.of(kind.samples, RESAMPLES, 0)
        for methods in METHODS:
            source = np.random.default_rng(methods)
            same = [table(kind, methods, False, draws, source) for _ in range(tables)]
            better = [table(kind, methods, True, draws, source) for _ in range(tables // 5)]
            for metric in METRICS:
                former = [max(welch([row[metric] for row in rows])) for rows in same]
                false = np.mean([any(worse([row[metric] for row in rows])) for rows in same])
                stretched = np.quantile(former, 1 - max(false, 1 / tables))
                told = np.mean([worse([row[metric] for row in rows])[1:] for rows in better])
                told_before = np.mean(
                    [np.array(welch([row[metric] for row in rows]))[1:] > stretched for rows in better]
                )
                cells = [np.mean(np.array(former) > 1), false, told_before, told]
                print(f"| {name} | {methods} | {metric} | {' | '.join(f'{cell:.3f}' for cell in cells)} |", flush=True)


if __name__ == "__main__":
    main()
