"""The smallest accuracy that shows that a trial does not guess: always predict one class."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trainables.kinds import FEWEST

GUESSES = 0.05  # significance of the test against the most frequent class
RESAMPLES = 10_000
ROUNDING = 1e-6  # of a sample


def no_test(majority: float) -> str:
    """The sentence for where no accuracy is large enough."""
    return (
        f"No trial is excluded as guessing: with {majority:.4f} of validation in one class, it is"
        " too small for any accuracy to show that."
    )


def above_majority(majority: float, samples: int) -> float | None:
    """The smallest accuracy significantly above the majority's: a one-sided binomial test at 5%.

    None where no accuracy is: even one without an error could be luck.
    """
    if majority >= 1:
        return None
    right = np.arange(1, samples + 1)
    # Without SciPy, whose import takes `calstudy status` half as long as all the rest.
    log_factorial = np.concatenate([[0.0], np.log(right).cumsum()])
    with np.errstate(divide="ignore"):  # a majority of 0
        log_chance = right * np.log(majority) + (samples - right) * np.log1p(-majority)
    log_ways = log_factorial[-1] - log_factorial[right] - log_factorial[samples - right]
    at_least = np.exp(log_ways + log_chance)[::-1].cumsum()[::-1]
    significant = at_least <= GUESSES
    return float(right[significant.argmax()] / samples) if significant.any() else None


def above_majority_of_groups(labels: NDArray[np.int64], groups: NDArray[np.int64]) -> float | None:
    """The same where samples belong together. labels, groups: [N] int64, groups from 0.

    Of the majority's accuracy in resamples of the groups, 95% lie below it. Of fewer than
    FEWEST groups, the smallest accuracy above the majority's.
    """
    samples = len(labels)
    most_frequent = labels == np.bincount(labels).argmax()
    sizes = np.bincount(groups)
    right = np.bincount(groups, most_frequent)
    beyond = most_frequent.mean()
    if len(sizes) >= FEWEST:
        drawn = np.random.default_rng(0).integers(len(sizes), size=(RESAMPLES, len(sizes)))
        beyond = np.quantile(right[drawn].sum(axis=1) / sizes[drawn].sum(axis=1), 1 - GUESSES)
    least = (np.floor(beyond * samples + ROUNDING) + 1) / samples
    return float(least) if least <= 1 else None
