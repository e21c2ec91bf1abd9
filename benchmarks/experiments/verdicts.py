"""Verdicts on tables whose truth is known: how often an interval covers, and what it can tell.

    python -m benchmarks.experiments.verdicts [--draws 10000]

A world is the tables of meta-regularisation (arXiv 2303.15057) as published, with a mean and a
standard deviation for each of 34 methods and 6 columns. Every run of ours and of the paper is a
normal draw from them, the paper's mean is printed with three digits, and the protocols are equal:
each `differs` is wrong. Then the paper's means are moved by three and by five standard deviations,
and each `differs` is right. Cells with a published standard deviation of 0 are drawn, not counted.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from study.reproduction.verdict import half_width, rounding_of, typical_sd
from study.uncertainty.resampling import Floats

COLUMNS = ("error", "nll", "ece", "mce", "ace", "cwece")
DIGITS = 3
SHIFTS = (3.0, 5.0)  # in standard deviations
# Mean and standard deviation of each column.
PUBLISHED = {
    "CIFAR-10": """
        CE         4.812 0.122 0.335 0.010 4.056 0.092 33.932 5.433 4.022 0.136 0.848 0.023
        CE_TS      4.812 0.122 0.211 0.005 3.083 0.140 26.695 2.959 3.046 0.157 0.656 0.022
        Focal      4.874 0.100 0.207 0.005 3.193 0.104 28.034 5.702 3.174 0.098 0.690 0.018
        FLSD       4.916 0.074 0.211 0.005 6.904 0.462 19.246 11.071 6.805 0.446 1.465 0.088
        LS_0.05    4.744 0.126 0.232 0.003 2.900 0.085 24.860 8.599 3.985 0.154 0.727 0.009
        LS_0.1     4.918 0.085 0.266 0.004 7.566 0.410 16.033 3.783 7.611 0.161 1.637 0.056
        Mixup_1.0  4.126 0.068 0.273 0.033 12.863 3.200 20.739 4.205 12.833 3.161 2.678 0.615
        MMCE       4.808 0.082 0.333 0.012 4.027 0.082 41.647 10.275 4.013 0.091 0.845 0.014
        CE-DECE    5.194 0.161 0.301 0.038 4.106 0.402 41.346 13.325 4.088 0.395 0.868 0.074
        CE-SECE    5.222 0.168 0.289 0.027 4.062 0.241 50.810 21.705 4.049 0.251 0.852 0.040
        FLg-DECE   5.424 0.095 0.193 0.010 2.257 0.787 56.622 22.856 2.206 0.669 0.557 0.165
        FLg-SECE   5.428 0.144 0.193 0.010 2.138 0.819 22.725 5.756 2.357 0.541 0.556 0.165
    """,
    "CIFAR-100": """
        CE         22.570 0.438 0.997 0.014 8.380 0.336 23.250 2.436 8.347 0.344 0.233 0.006
        CE_TS      22.570 0.438 0.959 0.008 5.388 0.393 13.454 2.377 5.360 0.315 0.208 0.003
        Focal      22.498 0.214 0.900 0.007 5.044 0.203 12.454 0.893 5.015 0.207 0.203 0.004
        FLSD       22.656 0.113 0.876 0.005 5.956 0.804 14.716 1.387 5.958 0.802 0.241 0.008
        LS_0.05    21.810 0.172 1.070 0.011 8.108 0.346 20.268 1.536 8.106 0.346 0.272 0.006
        LS_0.1     22.244 0.155 1.052 0.011 4.754 0.709 17.228 0.923 4.777 0.647 0.239 0.004
        Mixup_1.0  21.210 0.227 0.917 0.017 9.716 0.754 16.010 1.335 9.722 0.740 0.315 0.011
        MMCE       22.490 0.143 1.021 0.007 8.713 0.245 23.565 1.141 8.670 0.305 0.238 0.004
        CE-DECE    23.406 0.323 1.148 0.006 7.309 0.245 22.565 1.446 7.253 0.315 0.241 0.002
        CE-SECE    23.448 0.302 1.153 0.015 7.668 0.330 24.261 1.614 7.609 0.295 0.244 0.002
        FLg-DECE   23.712 0.204 0.888 0.009 1.879 0.440 8.271 2.651 1.838 0.371 0.195 0.005
        FLg-SECE   23.686 0.377 0.877 0.004 1.940 0.365 7.480 1.867 1.939 0.379 0.192 0.006
    """,
    "Tiny-ImageNet": """
        CE         40.110 0.110 1.838 0.171 8.059 1.296 15.730 1.905 8.006 1.282 0.154 0.001
        Focal      39.415 0.625 1.896 0.009 7.600 0.309 13.771 0.897 7.469 0.301 0.152 0.002
        FLSD       39.705 0.075 1.904 0.025 14.501 1.078 21.528 2.116 14.501 1.078 0.202 0.006
        LS_0.1     39.395 0.305 2.185 0.001 16.777 0.476 29.088 1.835 16.901 0.460 0.199 0.001
        Mixup_1.0  39.890 0.271 1.932 0.054 12.133 2.069 31.440 0.968 12.028 2.079 0.193 0.009
        MMCE       40.310 0.100 1.826 0.177 8.206 1.219 16.802 2.339 8.165 1.269 0.149 0.001
        CE-DECE    41.350 0.000 2.228 0.033 10.694 0.503 20.888 0.430 10.553 0.553 0.160 0.000
        CE-SECE    41.005 0.145 2.213 0.058 10.928 1.125 21.362 2.526 10.912 1.069 0.157 0.003
        FLg-DECE   40.625 0.095 1.826 0.007 5.944 1.000 11.542 1.000 6.077 1.005 0.155 0.007
        FLg-SECE   40.850 0.140 1.829 0.005 5.794 0.756 11.477 1.563 5.848 0.751 0.156 0.005
    """,
}


class Judged(NamedTuple):
    """The cells of one column in each draw, [rows, draws]: inside their interval, and judged."""

    inside: Floats
    judged: Floats


class Shares(NamedTuple):
    """What a simulation found, of all cells and of the judged ones.

    covered: inside their interval where nothing is moved. lowest: that of the worst column.
    differs: outside it where the paper's mean is moved by each of SHIFTS.
    """

    judged: float
    covered: float
    lowest: float
    covered_judged: float
    lowest_judged: float
    differs: tuple[float, ...]
    differs_judged: tuple[float, ...]


def columns() -> Iterator[tuple[Floats, Floats]]:
    """The means and standard deviations [rows] of each column of each table."""
    for text in PUBLISHED.values():
        rows = [line.split()[1:] for line in text.strip().splitlines()]
        pairs = np.array(rows, float).reshape(len(rows), len(COLUMNS), 2)
        yield from np.moveaxis(pairs, 0, -1)


def judged(
    mean: Floats,
    sd: Floats,
    seeds: int,
    runs: int,
    draws: int,
    shift: float,
    random: np.random.Generator,
) -> Judged:
    """A column drawn again and again. mean, sd: [rows]; shift: of the paper's mean, in sds."""
    rows = len(mean)
    ours = mean[:, None, None] + sd[:, None, None] * random.normal(size=(rows, seeds, draws))
    theirs = sd[:, None] * random.normal(size=(rows, runs, draws)).mean(axis=1)
    published = np.round(mean[:, None] + theirs, DIGITS)
    moved = published + shift * sd[:, None]
    own = ours.std(axis=1, ddof=1)
    rounding = rounding_of(DIGITS)
    inside = np.abs(moved - ours.mean(axis=1)) <= half_width(own, seeds, runs, 0.0, rounding)
    wide = half_width(typical_sd(own), seeds, runs, 0.0, rounding)
    counted = sd > 0
    return Judged(inside[counted], (wide <= published.std(axis=0, ddof=1))[counted])


def simulated(seeds: int, runs: int, draws: int) -> Shares:
    random = np.random.default_rng([seeds, runs])
    still: list[Judged] = []
    moved: dict[float, list[Judged]] = {shift: [] for shift in SHIFTS}
    for mean, sd in columns():
        still.append(judged(mean, sd, seeds, runs, draws, 0.0, random))
        for shift, found in moved.items():
            found.append(judged(mean, sd, seeds, runs, draws, shift, random))
    return Shares(
        judged=float(np.concatenate([one.judged for one in still]).mean()),
        covered=_covered(still),
        lowest=min(_covered([one]) for one in still),
        covered_judged=_covered_judged(still),
        lowest_judged=min(_covered_judged([one]) for one in still),
        differs=tuple(1 - _covered(found) for found in moved.values()),
        differs_judged=tuple(1 - _covered_judged(found) for found in moved.values()),
    )


def _covered(found: list[Judged]) -> float:
    return float(np.concatenate([one.inside for one in found]).mean())


def _covered_judged(found: list[Judged]) -> float:
    return float(np.concatenate([one.inside[one.judged] for one in found]).mean())


def main() -> None:
    words = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    words.add_argument("--draws", type=int, default=10_000)
    draws = words.parse_args().draws
    print(
        "| seeds | runs of the paper | covered (worst column) | judged | covered of judged (worst"
        " column) | differs: 3 sds | 5 sds | of judged: 3 sds | 5 sds |"
    )
    print("|" + "---|" * 9)
    for seeds in (3, 5):
        for runs in (1, 5):
            found = simulated(seeds, runs, draws)
            cells = [
                f"{found.covered:.3f} ({found.lowest:.3f})",
                f"{found.judged:.3f}",
                f"{found.covered_judged:.3f} ({found.lowest_judged:.3f})",
                *(f"{share:.3f}" for share in (*found.differs, *found.differs_judged)),
            ]
            print(f"| {seeds} | {runs} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
