"""How often the interval of a difference in accuracy contains the true one where few samples are
discordant, right by one of two models alone: a paragraph of docs/why/how-certain.md.

    python -m benchmarks.experiments.discordant  # seconds; Markdown

Each simulated pair has 500 samples. Percentiles of resamples alone, as in former versions, and with
the interval of the discordant samples, which there is for fewer than five.
"""

from __future__ import annotations

import argparse

import numpy as np

from study.uncertainty.intervals import FEWEST_WRONG, LEVEL, percentile
from study.uncertainty.side import of_discordant

SAMPLES, RESAMPLES = 500, 1000
EXPECTED = ((0.3, 0.0), (1.0, 0.0), (2.0, 0.0), (3.0, 0.0), (2.0, 1.0), (4.0, 0.0))


def contains(
    ahead: float, behind: float, pairs: int, source: np.random.Generator
) -> tuple[float, float]:
    """The shares of intervals that contain the truth: percentiles, and as it is now.

    ahead, behind: how many samples are expected that count for one model alone.
    """
    shares = np.array([ahead, behind, SAMPLES - ahead - behind]) / SAMPLES
    truth = shares[0] - shares[1]
    found = np.zeros(2)
    for one, other, _ in source.multinomial(SAMPLES, shares, pairs):
        seen = np.array([one, other, SAMPLES - one - other]) / SAMPLES
        resampled = source.multinomial(SAMPLES, seen, RESAMPLES)
        low, high = percentile((resampled[:, 0] - resampled[:, 1]) / SAMPLES, LEVEL)
        found[0] += low <= truth <= high
        if one + other < FEWEST_WRONG:
            least, most = of_discordant(int(one), int(other), SAMPLES, LEVEL)
            low = min(low, least)
            high = max(high, most)
        found[1] += low <= truth <= high
    before, now = found / pairs
    return float(before), float(now)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=4000)
    pairs = parser.parse_args().pairs
    source = np.random.default_rng(0)
    print("| expected for one alone | for the other alone | percentiles | now |")
    print("|---|---|---|---|")
    for ahead, behind in EXPECTED:
        before, now = contains(ahead, behind, pairs, source)
        print(f"| {ahead:g} | {behind:g} | {before:.3f} | {now:.3f} |")


if __name__ == "__main__":
    main()
