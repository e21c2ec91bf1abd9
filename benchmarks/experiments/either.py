"""Serving the network as trained or with its temperature: what `serve: either` is better by.

    python -m benchmarks.experiments.pools record DATA POOLS
    python -m benchmarks.experiments.either POOLS

A study searched accuracy + ECE as trained, and takes the lowest sum: of the networks as trained
(`serve: raw`), of all with their temperatures, or of both forms of each (`serve: either`). Two more
rules ask in addition whether the two forms of a network are told apart in NLL on validation: of the
network that was taken, or of each before. Each is measured on the rest of the pool; regret is the
distance from the best of the study's trials in either form, by the same sum. No rule was tuned on
these pools.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import log_softmax

from benchmarks.experiments.objectives import (
    BOUND,
    CALIBRATION_UNIT,
    DRAWN,
    DRAWS,
    GROUPS,
    MEASURED,
    SPLITS,
    UNITS,
    _scores,
    counted,
    interval,
)
from benchmarks.experiments.pools import FRESH, POOLS, Pool, read
from study.analysis.rule import SHARE_OF_NLL
from trainables import metrics
from trainables.metrics.shared.post_hoc import cross_fitted, fit_temperature

WIDTH = 1.96  # of a 95% interval, in standard errors
COSTS = np.array([1 / UNITS["accuracy"], SHARE_OF_NLL / UNITS["nll"], 1 / CALIBRATION_UNIT])
AS_TRAINED, SCALED = 0, 1
Taken = tuple[int, int]  # a trial and its form


class Split(NamedTuple):
    """Each trial's MEASURED on a validation split and on the rest, [trials, forms, MEASURED], as
    costs; and the gain in NLL by its temperature on validation with its standard error, [trials,
    2]."""

    seen: NDArray[np.float64]
    truth: NDArray[np.float64]
    gain: NDArray[np.float64]


def split_of(pool: Pool, size: int, seed: int) -> Split:
    order = np.random.default_rng([seed, size]).permutation(len(pool.labels))
    rows, rest = np.sort(order[:size]), np.sort(order[size:])
    labels, fresh_labels = torch.from_numpy(pool.labels[rows]), torch.from_numpy(pool.labels[rest])
    seen, truth, gains = [], [], []
    for logits in pool.logits:
        own = torch.from_numpy(logits[rows]).double()
        fresh = torch.from_numpy(logits[rest]).double()
        scaled = cross_fitted(own, labels)
        seen.append([_scores(form, labels) for form in (own, scaled)])
        forms = (fresh, fresh / fit_temperature(own, labels))
        truth.append([_scores(form, fresh_labels) for form in forms])
        each = [
            log_softmax(form.numpy(), 1)[np.arange(size), pool.labels[rows]]
            for form in (scaled, own)
        ]
        gain = each[0] - each[1]
        gains.append([gain.mean(), gain.std(ddof=1) / size**0.5])
    signs = np.array([metrics.describe(name).sign for name in MEASURED])
    return Split(np.array(seen) * signs, np.array(truth) * signs, np.array(gains))


# ---- the rules -----------------------------------------------------------------------------------


def sums(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """[trials, forms]: the answer's sum, where the accuracy is within the bound."""
    accuracy = -values[..., 0]
    counts = accuracy >= accuracy.max() - BOUND - 1e-12
    return np.where(counts, values @ COSTS, np.inf)


def one_form(form: int) -> Callable[[Split], Taken]:
    return lambda split: (int(sums(split.seen)[:, form].argmin()), form)


def lowest_of_both(split: Split) -> Taken:
    trial, form = np.unravel_index(sums(split.seen).argmin(), split.seen.shape[:2])
    return int(trial), int(form)


def told_apart_after(split: Split) -> Taken:
    trial, form = lowest_of_both(split)
    gain, error = split.gain[trial]
    return trial, form if gain > WIDTH * error else AS_TRAINED


def told_apart_first(split: Split) -> Taken:
    """A network's temperature joins only where it is told apart from the network as trained."""
    total = sums(split.seen)
    gain, error = split.gain.T
    total[:, SCALED] = np.where(gain > WIDTH * error, total[:, SCALED], np.inf)
    trial, form = np.unravel_index(total.argmin(), total.shape)
    return int(trial), int(form)


RULES: dict[str, Callable[[Split], Taken]] = {
    "as trained": one_form(AS_TRAINED),
    "with its temperature": one_form(SCALED),
    "the lower sum of both forms": lowest_of_both,
    "that, as trained where undecided": told_apart_after,
    "told apart first": told_apart_first,
}


# ---- regret --------------------------------------------------------------------------------------


def regrets(splits: Sequence[Split], drawn: int = DRAWN) -> NDArray[np.float64]:
    """[splits, draws, rules, 1 + MEASURED]: of the sum in units, and of each measure less the best
    form's of the trial with the lowest sum."""
    source = np.random.default_rng(0)
    trials = len(splits[0].truth)
    parts = np.array_split(source.permutation(trials), GROUPS)
    found = np.empty((len(splits), DRAWS, len(RULES), 1 + len(MEASURED)))
    for number, split in enumerate(splits):
        for draw in range(DRAWS):
            rows = source.choice(parts[draw % GROUPS], drawn, replace=False)
            study = Split(split.seen[rows], split.truth[rows], split.gain[rows])
            total = study.truth @ COSTS
            best = np.unravel_index(total.argmin(), total.shape)
            for place, rule in enumerate(RULES.values()):
                taken = rule(study)
                lost = study.truth[taken] - study.truth[best]
                found[number, draw, place] = [total[taken] - total[best], *lost]
    return found


def print_regret(name: str, pool: Pool) -> None:
    kept = counted(pool)
    splits = [split_of(kept, POOLS[name].validation, seed) for seed in range(SPLITS)]
    found = regrets(splits, min(DRAWN, len(kept.logits) // GROUPS))
    print(f"\n{name}: {len(kept.logits)} trials, {POOLS[name].validation} validation samples\n")
    print(f"| rule | sum, units | {' | '.join(f'{each}, thousandths' for each in MEASURED)} |")
    print("|---" * (2 + len(MEASURED)) + "|")
    for place, rule in enumerate(RULES):
        moved = found[:, :, place] - (found[:, :, 0] if place else 0)
        cells = [interval(moved[..., k] * (1000 if k else 1)) for k in range(1 + len(MEASURED))]
        shown = ["{:+.2f} ±{:.2f} ±{:.2f}".format(*cells[0])]
        shown += ["{:+.1f} ±{:.1f} ±{:.1f}".format(*cell) for cell in cells[1:]]
        print(f"| {rule} | {' | '.join(shown)} |")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.experiments.either",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("pools", type=Path)
    parser.add_argument("--only", choices=POOLS, action="append")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    print("The first row's regret, and paired differences from it of the others: mean, half-width")
    print("over splits, half-width over parts of the pool.")
    for name in asked.only or FRESH:
        print_regret(name, read(name, asked.pools))


if __name__ == "__main__":
    main()
