"""How often methods without a true difference are told apart, and methods with one:
a table of docs/why/how-certain.md.

    python -m benchmarks.experiments.tied --tables 5000  # half an hour on one core; Markdown

Each simulated table has k methods of three seeds (`--seeds`), measured on the same samples. Normal
values first: methods with equal spreads between seeds, very unequal ones (factors of e to the
power of a standard normal), or one method 3 or 10 times noisier than the others; the samples add
little, or as much as the seeds do. Then, in a fifth as many tables, networks with logits: the
truth seen through noise of their method and noise and a temperature of their own. Power is the
share of truly worse methods told from the best, in a second set of tables in which the first
method is better; the rule of former versions, Welch's pairwise intervals over seeds, is stretched
to the same level.
"""

from __future__ import annotations

import argparse
import itertools
from typing import NamedTuple

import numpy as np
from scipy.stats import t as student

from benchmarks.experiments.populations import LIFTS, drawn_labels, evidence, softmax
from study.uncertainty.methods import Methods, Seeds
from study.uncertainty.resampling import Draws, SampleTerms

METRICS = ("error", "nll", "ece")
RESAMPLES = 200
METHODS = (2, 6, 16)
# Noise in the logits and a temperature; then those of the method with a true advantage.
USUAL, BETTER = (1.5, 0.7), (0.5, 1.0)


class Kind(NamedTuple):
    """How much networks vary. method: noise that a method's seeds share, as a part of all;
    seed: standard deviation of
    the logs of a seed's noise and temperature."""

    samples: int
    method: float
    seed: float


KINDS = {
    "few samples": Kind(360, 0.5, 0.1),
    "few samples, seeds very different": Kind(360, 0.3, 0.3),
    "many samples": Kind(5000, 0.5, 0.1),
}


class Normal(NamedTuple):
    """Normal values. unequal: standard deviation of the logs of the methods' spreads;
    samples: the part of a network's variance that is due to the samples; shared: what they add
    to all networks of a method, relative to that variance; noisier: the last method's spread in
    spreads of the others.
    """

    unequal: float
    samples: float
    shared: float
    noisier: float = 1.0


NORMAL = {
    "normal, equal spreads": Normal(0.0, 0.1, 0.0),
    "normal, equal spreads, samples matter": Normal(0.0, 0.5, 1.0),
    "normal, unequal spreads": Normal(1.0, 0.1, 0.0),
    "normal, unequal spreads, samples matter": Normal(1.0, 0.5, 1.0),
    "normal, one 3 times noisier": Normal(0.0, 0.1, 0.0, 3.0),
    "normal, one 10 times noisier": Normal(0.0, 0.1, 0.0, 10.0),
    "normal, one 10 times noisier, samples matter": Normal(0.0, 0.5, 1.0, 10.0),
}
ADVANTAGE = 3.0  # in root mean square spreads


def normal_table(
    kind: Normal, methods: int, seeds: int, advantage: bool, source: np.random.Generator
) -> list[Seeds]:
    spread = np.exp(kind.unequal * source.normal(size=(methods, 1, 1)) - kind.unequal**2)
    spread[-1] *= kind.noisier
    trained = np.sqrt(1 - kind.samples) * source.normal(size=(methods, seeds, 1))
    own = np.sqrt(kind.samples) * source.normal(size=(methods, seeds, 1 + RESAMPLES))
    shared = np.sqrt(kind.shared / seeds) * source.normal(size=(methods, 1, 1 + RESAMPLES))
    values = spread * (trained + own) + shared
    values[0] -= ADVANTAGE * advantage
    return [Seeds(of[:, 0], of[:, 1:]) for of in values]  # the samples, then resamples


def table(
    kind: Kind,
    methods: int,
    seeds: int,
    advantage: bool,
    draws: Draws,
    source: np.random.Generator,
) -> list[dict[str, Seeds]]:
    base = evidence(LIFTS["sure"], kind.samples, source)
    labels = drawn_labels(softmax(base), source)
    rows = []
    for method in range(methods):
        noise, sharpness = BETTER if advantage and method == 0 else USUAL
        shared = source.normal(size=base.shape) * np.sqrt(kind.method)
        networks = []
        for _ in range(seeds):
            own = source.normal(size=base.shape) * np.sqrt(1 - kind.method)
            scale, temperature = np.exp(kind.seed * source.normal(size=2))
            logits = (base + noise * scale * (shared + own)) / (sharpness * temperature)
            networks.append(SampleTerms.of(logits, labels, classwise=False))
        samples = [
            network.sums(np.ones((kind.samples, 1))).metrics(METRICS) for network in networks
        ]
        again = [network.sums(draws.counts).metrics(METRICS) for network in networks]
        rows.append(
            {
                name: Seeds(
                    np.array([found[name][0] for found in samples]),
                    np.stack([found[name] for found in again]),
                )
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
    """For each method, its difference from the best in half-widths of Welch's interval:
    the former rule is `> 1`."""
    best = min(range(len(rows)), key=lambda row: rows[row].values.mean())
    ratios = []
    for row in rows:
        if row is rows[best]:
            ratios.append(0.0)
            continue
        one, other = row.values, rows[best].values
        parts = [values.var(ddof=1) / len(values) for values in (one, other)]
        freedom = (
            sum(parts) ** 2 / sum(part**2 / (len(one) - 1) for part in parts)
            if sum(parts)
            else len(one)
        )
        reach = student.ppf(0.975, freedom) * np.sqrt(sum(parts))
        ratios.append((one.mean() - other.mean()) / max(reach, 1e-12))
    return ratios


def line(name: str, same: list[list[Seeds]], better: list[list[Seeds]]) -> str:
    """A row of the table: errors of the first kind, and power."""
    former = [max(welch(rows)) for rows in same]
    false = np.mean([any(worse(rows)) for rows in same])
    stretched = np.quantile(former, 1 - max(false, 1 / len(same)))
    told = np.mean([worse(rows)[1:] for rows in better])
    told_before = np.mean([np.array(welch(rows))[1:] > stretched for rows in better])
    cells = (np.mean(np.array(former) > 1), false, told_before, told)
    return f"| {name} | {len(same[0])} | {' | '.join(f'{cell:.3f}' for cell in cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tables", type=int, default=5000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--kinds", nargs="*", default=[*NORMAL, *KINDS])
    asked = parser.parse_args()
    print("| tables | methods | false, Welch | false | power, Welch at the same level | power |")
    print("|---|---|---|---|---|---|", flush=True)
    for name, methods in itertools.product(asked.kinds, METHODS):
        source = np.random.default_rng(methods)
        if name in NORMAL:
            same = [
                normal_table(NORMAL[name], methods, asked.seeds, False, source)
                for _ in range(asked.tables)
            ]
            better = [
                normal_table(NORMAL[name], methods, asked.seeds, True, source)
                for _ in range(asked.tables // 5)
            ]
            print(line(name, same, better), flush=True)
            continue
        kind, fewer = KINDS[name], asked.tables // 5
        draws = Draws.of(kind.samples, RESAMPLES, 0)
        every = [table(kind, methods, asked.seeds, False, draws, source) for _ in range(fewer)]
        every_better = [
            table(kind, methods, asked.seeds, True, draws, source) for _ in range(fewer // 5)
        ]
        for metric in METRICS:
            of_metric = [
                [[row[metric] for row in rows] for rows in tables]
                for tables in (every, every_better)
            ]
            print(line(f"{name}: {metric}", *of_metric), flush=True)


if __name__ == "__main__":
    main()
