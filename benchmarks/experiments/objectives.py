"""What objectives are worth, from recorded pools of trials whose truth is
known (benchmarks/experiments/pools.py).

    python -m benchmarks.experiments.objectives reproduced POOLS  # 15 minutes on one core
    python -m benchmarks.experiments.objectives resolution POOLS  # a minute
    python -m benchmarks.experiments.objectives regret POOLS  # 15 minutes

reproduced: Spearman's correlation, over a pool's trials, of a metric on one half of a validation
split with that on the other half; mean over splits. Trials of chance level are left out, as no
study ranks them; `close` are the trials within .02 of the best accuracy.

resolution: what validation samples tell of two networks of similar accuracy. `disagree`: share of
samples on which one is right and the other is wrong. Of each metric: half the 95% interval of
their difference, times the root of the number of samples.

regret: a study is DRAWN trials of a pool and a validation split; a rule takes a trial by the
objectives on that split, as deployed. What it takes is measured on the rest of the data; the regret
is the distance from the best of the study's trials, served in either way. All objectives choose in
the same studies: differences are paired. Each study draws from one of GROUPS disjoint parts of the
pool. Two half-widths of 95% t intervals: over splits, for the trials that the pool has, and over
parts, for other trials of the same methods and ranges.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import binomtest, rankdata
from scipy.stats import t as student

from benchmarks.experiments.pools import POOLS, Pool, read
from study.analysis.rule import SHARE_OF_NLL
from study.schema.objective import RAW, TEMPERATURE, as_served
from study.uncertainty.bootstrap import RESAMPLES, side_of
from study.uncertainty.resampling import Draws
from trainables import metrics
from trainables.metrics import AFTER_TEMPERATURE
from trainables.metrics.binned import equal_width_index
from trainables.metrics.shared.post_hoc import cross_fitted, fit_temperature
from trainables.outputs.predictions import Predictions

Values = dict[str, NDArray[np.float64]]  # of a study's trials, by metric
SPLITS, DRAWS, DRAWN = 20, 50, 40
GROUPS = 5  # a study of draw k is of part k % GROUPS
HALVES = 5
CLOSE = 0.02
MEASURED = ("accuracy", "nll", "ece")


def counted(pool: Pool) -> Pool:
    """Without the trials that are no better than the largest class, by a test on all samples."""
    largest = int(np.bincount(pool.labels).max())
    right = (pool.logits.argmax(axis=2) == pool.labels).sum(axis=1)
    chance = largest / len(pool.labels)
    kept = [
        binomtest(int(hits), len(pool.labels), chance, "greater").pvalue < 0.01 for hits in right
    ]
    return Pool(pool.logits[kept], pool.labels)


def values_on(pool: Pool, rows: NDArray[np.int64], also: Sequence[str]) -> Values:
    """Each trial's metrics on these samples."""
    labels = torch.from_numpy(pool.labels[rows])
    each = [
        Predictions(torch.from_numpy(logits[rows]), labels).evaluate(also=also)
        for logits in pool.logits
    ]
    return {name: np.array([values.get(name, np.nan) for values in each]) for name in each[0]}


# ---- reproduced ----------------------------------------------------------------------------------


def reproduced(pool: Pool, size: int, seed: int = 0) -> Iterator[tuple[str, float, float]]:
    """Each metric's rank correlation between halves of splits of that size: over all
    trials, and over the close."""
    pool, source = counted(pool), np.random.default_rng(seed)
    accuracy = (pool.logits.argmax(axis=2) == pool.labels).mean(axis=1)
    groups = np.ones(len(accuracy), bool), accuracy >= accuracy.max() - CLOSE
    halves = []
    for _ in range(HALVES):
        rows = source.permutation(len(pool.labels))[:size]
        halves.append(
            [values_on(pool, np.sort(part), metrics.names()) for part in np.array_split(rows, 2)]
        )
    for name in metrics.names():
        pairs = [
            [half[name] for half in both] for both in halves if all(name in half for half in both)
        ]
        if pairs:
            all_trials, close = (
                np.mean([_ranks_agree(*pair, group) for pair in pairs]) for group in groups
            )
            yield name, float(all_trials), float(close)


def _ranks_agree(
    one: NDArray[np.float64], other: NDArray[np.float64], group: NDArray[np.bool_]
) -> float:
    """Spearman's, over the trials that have both."""
    both = group & np.isfinite(one) & np.isfinite(other)
    if both.sum() < 3 or np.ptp(one[both]) == 0 or np.ptp(other[both]) == 0:
        return 0.0
    return float(np.corrcoef(rankdata(one[both]), rankdata(other[both]))[0, 1])


def print_reproduced(pools: Mapping[str, Pool]) -> None:
    found = {
        name: {key: row for key, *row in reproduced(pool, POOLS[name].validation)}
        for name, pool in pools.items()
    }
    columns = [f"{name}, {which}" for name in pools for which in ("all", "close")]
    print(f"| metric | {' | '.join(columns)} | mean of all |\n|{'---|' * (len(columns) + 2)}")
    for metric in metrics.names():
        rows = [found[name].get(metric) for name in pools]
        cells = [
            cell
            for row in rows
            for cell in ([f"{value:.2f}" for value in row] if row else ["-", "-"])
        ]
        print(
            f"| {metric} | {' | '.join(cells)} | {np.mean([row[0] for row in rows if row]):.2f} |"
        )


# ---- resolution ----------------------------------------------------------------------------------

SIMILAR = 0.01
PAIRS = 40
RESOLVED = ("accuracy", "nll", "brier", "ece", "adaptive_ece", "smooth_ece", "debiased_l2")


def print_resolution(pools: Mapping[str, Pool]) -> None:
    print(f"| pool | accuracy of the pairs | disagree | {' | '.join(RESOLVED)} |")
    print("|---" * (3 + len(RESOLVED)) + "|")
    for name, pool in pools.items():
        print(f"| {name} | {' | '.join(resolution(counted(pool), POOLS[name].validation))} |")


def resolution(pool: Pool, samples: int, pairs: int = PAIRS, seed: int = 0) -> list[str]:
    """Medians and quartiles over pairs among the better half of the trials."""
    source = np.random.default_rng(seed)
    right = pool.logits.argmax(axis=2) == pool.labels
    accuracy = right.mean(axis=1)
    better = np.flatnonzero(accuracy >= np.median(accuracy))
    close = [
        pair
        for pair in itertools.combinations(better, 2)
        if abs(np.subtract(*accuracy[list(pair)])) <= SIMILAR
    ]
    draws = Draws.of(samples, RESAMPLES, 0)
    found = []
    for pair in (close[k] for k in source.permutation(len(close))[:pairs]):
        rows = source.permutation(len(pool.labels))[:samples]
        labels = torch.from_numpy(pool.labels[rows])
        one, other = (
            side_of(RESOLVED, Predictions(torch.from_numpy(logits[rows]), labels), draws)
            for logits in pool.logits[list(pair)]
        )
        widths = [np.subtract(*one.less(other, name, 0.95)[:0:-1]) for name in RESOLVED]
        halves = np.array(widths) / 2 * samples**0.5
        found.append(
            [accuracy[list(pair)].mean(), np.not_equal(*right[list(pair)]).mean(), *halves]
        )
    return [
        "{:.3f} ({:.3f} to {:.3f})".format(*np.quantile(column, [0.5, 0.25, 0.75]))
        for column in np.array(found).T
    ]


# ---- regret --------------------------------------------------------------------------------------

UNITS = {"accuracy": 0.01, "error": 0.01, "nll": 0.02, "brier": 0.005, "calibration_nll": 0.02}
CALIBRATION_UNIT = 0.01
BOUND = 0.02


class Asked(NamedTuple):
    """What a study asks for. objectives: names without `ts_`; serve: RAW or TEMPERATURE."""

    objectives: tuple[str, ...]
    serve: str
    bound: bool  # accuracy >= best - BOUND

    @property
    def label(self) -> str:
        named = " + ".join(as_served(name, self.serve) for name in self.objectives)
        return f"{named}, {self.serve}{'' if self.bound else ', no constraint'}"


Rule = Callable[[Values, Asked], int]  # the trial to take, by validation


def lowest_sum(values: Values, asked: Asked) -> int:
    """The answer's rule: the lowest sum of objectives and half of NLL, as deployed, in
    units of what matters."""
    accuracy = values["accuracy"]
    counts = (
        accuracy >= accuracy.max() - BOUND - 1e-12 if asked.bound else np.ones(len(accuracy), bool)
    )
    total = np.zeros(len(accuracy))
    for name in asked.objectives:
        served = as_served(name, asked.serve)
        total += metrics.describe(served).sign * values[served] / UNITS.get(name, CALIBRATION_UNIT)
    total = np.where(counts, total, np.inf)
    if "nll" not in asked.objectives:
        total += SHARE_OF_NLL * values[as_served("nll", asked.serve)] / UNITS["nll"]
    return int(total.argmin())


BASELINE = Asked(("accuracy", "ece"), RAW, True)
ALTERNATIVES = [
    Asked((*first, *second), serve, bound)
    for first, second in [
        *(
            (("accuracy",), (name,))
            for name in ("ece", "nll", "brier", "smooth_ece", "calibration_nll", "adaptive_ece")
        ),
        (("nll",), ("ece",)),
        (("accuracy", "nll"), ("ece",)),
        (("nll",), ()),
    ]
    for serve in (RAW, TEMPERATURE)
    for bound in (True, False)
    if not (serve == TEMPERATURE and "calibration_nll" in second)
]
WAYS = (RAW, TEMPERATURE)
SHOWN = ("accuracy", "nll", "brier", "ece", "adaptive_ece", "smooth_ece")
NEEDED = (*SHOWN, "calibration_nll", *(AFTER_TEMPERATURE + name for name in SHOWN))


class Split(NamedTuple):
    """A validation split of a pool: every trial's values there, and the truth on the rest,
    [trials, ways, MEASURED]."""

    validation: Values
    truth: NDArray[np.float64]


def split_of(pool: Pool, size: int, seed: int) -> Split:
    order = np.random.default_rng([seed, size]).permutation(len(pool.labels))
    rows, rest = np.sort(order[:size]), np.sort(order[size:])
    labels, fresh_labels = torch.from_numpy(pool.labels[rows]), torch.from_numpy(pool.labels[rest])
    seen: list[list[float]] = []
    truth = []
    for logits in pool.logits:
        own, fresh = (
            torch.from_numpy(logits[rows]).double(),
            torch.from_numpy(logits[rest]).double(),
        )
        calibrated = cross_fitted(own, labels)
        seen.append([metrics.value(name, own, labels, calibrated) for name in NEEDED])
        truth.append(
            [
                _scores(scores, fresh_labels)
                for scores in (fresh, fresh / fit_temperature(own, labels))
            ]
        )
    columns = np.array(seen).T
    return Split(dict(zip(NEEDED, columns, strict=True)), np.array(truth))


def _scores(logits: torch.Tensor, labels: torch.Tensor) -> list[float]:
    """MEASURED, from one softmax."""
    log_probs = logits.log_softmax(dim=-1)
    top, predicted = log_probs.max(dim=-1)
    confidence, hits = top.exp(), (predicted == labels).double()
    inside = equal_width_index(confidence, 15)
    gaps = torch.zeros(15, dtype=torch.float64).index_add_(0, inside, hits - confidence)
    nll = -log_probs.gather(-1, labels[:, None]).mean()
    return [float(hits.mean()), float(nll), float(gaps.abs().sum() / len(labels))]


def splits_of(name: str, pool: Pool, pools: Path) -> list[Split]:
    """Of the pool, kept beside it: another rule needs no other."""
    size, file = POOLS[name].validation, pools / f"{name}_splits_{len(pool.logits)}.npz"
    if not file.exists():
        made = [split_of(pool, size, seed) for seed in range(SPLITS)]
        seen = {metric: np.stack([split.validation[metric] for split in made]) for metric in NEEDED}
        np.savez(file, truth=np.stack([split.truth for split in made]), **seen)
    with np.load(file, allow_pickle=False) as stored:
        arrays = dict(stored)
    return [
        Split({metric: arrays[metric][k] for metric in NEEDED}, arrays["truth"][k])
        for k in range(SPLITS)
    ]


def regrets(
    splits: Sequence[Split], rule: Rule, asked: Sequence[Asked], seed: int = 0
) -> NDArray[np.float64]:
    """[splits, draws, asked, MEASURED]: what the rule takes, less the best of the same study."""
    source = np.random.default_rng(seed)
    signs = np.array([metrics.describe(name).sign for name in MEASURED])
    found = np.empty((len(splits), DRAWS, len(asked), len(MEASURED)))
    parts = np.array_split(source.permutation(len(splits[0].truth)), GROUPS)
    for number, split in enumerate(splits):
        for draw in range(DRAWS):
            drawn = source.choice(parts[draw % GROUPS], DRAWN, replace=False)
            seen = {name: values[drawn] for name, values in split.validation.items()}
            costs = signs * split.truth[drawn]
            taken = [costs[rule(seen, one), WAYS.index(one.serve)] for one in asked]
            found[number, draw] = np.array(taken) - costs.min(axis=(0, 1))
    return found


def interval(values: NDArray[np.float64]) -> tuple[float, float, float]:
    """The mean of values [splits, draws], and its two half-widths."""
    of_parts = np.array([values[:, part::GROUPS].mean() for part in range(GROUPS)])
    over_splits, over_parts = (
        float(student.ppf(0.975, len(means) - 1)) * float(means.std(ddof=1)) / np.sqrt(len(means))
        for means in (values.mean(axis=1), of_parts)
    )
    return float(values.mean()), over_splits, over_parts


def print_regret(pools: Mapping[str, Pool], folder: Path, rule: Rule = lowest_sum) -> None:
    print(
        "Regret of the first row, and paired differences from it of the others, in thousandths:"
        " mean, half-width over"
    )
    print("splits, half-width over parts of the pool.")
    every = [BASELINE, *(one for one in ALTERNATIVES if one != BASELINE)]
    # For each pool and measure, by how much each is below the first row, less each half-width.
    better = []
    for name, pool in pools.items():
        kept = counted(pool)
        found = regrets(splits_of(name, kept, folder), rule, every)
        print(
            f"\n{name}, {len(kept.logits)} trials, {POOLS[name].validation} validation samples:\n"
        )
        print(f"| objectives, served | {' | '.join(MEASURED)} |\n|{'---|' * (len(MEASURED) + 1)}")
        cells = []
        for index in range(len(every)):
            moved = found[:, :, index] - (found[:, :, 0] if index else 0)
            cells.append([interval(moved[..., k] * 1000) for k in range(len(MEASURED))])
        for one, row in zip(every, cells, strict=True):
            print(
                f"| {one.label} |"
                f" {' | '.join('{:+.1f} ±{:.1f} ±{:.1f}'.format(*cell) for cell in row)} |"
            )
        print("\nThe same objectives, both as deployed; with the temperature less as trained:\n")
        print(f"| objectives | {' | '.join(MEASURED)} |\n|{'---|' * (len(MEASURED) + 1)}")
        for one in (
            one
            for one in every
            if one.bound and one.serve == RAW and one._replace(serve=TEMPERATURE) in every
        ):
            moved = (
                found[:, :, every.index(one._replace(serve=TEMPERATURE))]
                - found[:, :, every.index(one)]
            )
            row = [interval(moved[..., k] * 1000) for k in range(len(MEASURED))]
            named = " + ".join(one.objectives)
            print(
                f"| {named} |"
                f" {' | '.join('{:+.1f} ±{:.1f} ±{:.1f}'.format(*cell) for cell in row)} |"
            )
        middle, *reaches = np.moveaxis(np.array(cells), -1, 0)
        better.append(
            [(middle + reach < 0).all(axis=1) for reach in (reaches[0], np.maximum(*reaches))]
        )
    for number, which in enumerate(("over splits", "over splits and over parts")):
        all_pools = np.all([pool[number] for pool in better], axis=0)
        names = "; ".join(
            one.label for one, is_better in zip(every[1:], all_pools[1:], strict=True) if is_better
        )
        print(
            f"\nBelow the first row in all measures, in every pool, beyond the interval {which}:"
            f" {names or 'none'}."
        )


PARTS = {"reproduced": print_reproduced, "resolution": print_resolution}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.experiments.objectives", description=__doc__.splitlines()[0]
    )
    parser.add_argument("part", choices=[*PARTS, "regret"])
    parser.add_argument("pools", type=Path)
    parser.add_argument("--only", choices=POOLS, action="append")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    pools = {name: read(name, asked.pools) for name in asked.only or POOLS}
    if asked.part == "regret":
        print_regret(pools, asked.pools)
    else:
        PARTS[asked.part](pools)


if __name__ == "__main__":
    main()
