"""Errors at a smaller size against a loop that selects the rows and measures
them, and a closed form."""

import math
from itertools import pairwise

import numpy as np
import pytest
from pytest import approx

from study.uncertainty.equal_sizes import DRAWS, RESIZED, means_of_rows, rows_drawn
from tests.study.uncertainty.test_bootstrap import case


def top_labels(logits, labels):
    """Confidence and whether it is right, one sample at a time."""
    found = []
    for row, label in zip(logits, labels, strict=True):
        odds = [math.exp(value - max(row)) for value in row]
        found.append((max(odds) / sum(odds), float(row.argmax() == label)))
    return found


def gaps_of(members):
    """The sum of hits minus confidence, and how many there are, of a bin."""
    return math.fsum(hit - confidence for confidence, hit in members), len(members)


def width_bins(samples):
    return [
        gaps_of(
            [one for one in samples if k / 15 < one[0] <= (k + 1) / 15 or (k == 0 and one[0] == 0)]
        )
        for k in range(15)
    ]


def mass_bins(samples):
    """Of `numpy.array_split`; these confidences are all different."""
    parts = np.array_split(np.array(sorted(samples)), 15)
    return [
        (float((part[:, 1] - part[:, 0]).sum()), len(part), float(part[:, 1].mean()))
        for part in parts
    ]


def slow(name, logits, labels):
    samples, n = top_labels(logits, labels), len(labels)
    if name == "ece":
        return sum(abs(gap) for gap, _ in width_bins(samples)) / n
    if name == "mce":
        return max(abs(gap) / count for gap, count in width_bins(samples) if count)
    if name == "adaptive_ece":
        return sum(abs(gap) for gap, *_ in mass_bins(samples)) / n
    if name == "debiased_l2":
        squares = [
            (c, (gap / c) ** 2 - hit * (1 - hit) / (c - 1)) for gap, c, hit in mass_bins(samples)
        ]
        return math.sqrt(max(0.0, sum(c * square for c, square in squares) / n))
    total = 0.0
    for k in range(logits.shape[1]):
        probs = [(np.exp(row - row.max()) / np.exp(row - row.max()).sum())[k] for row in logits]
        total += sum(
            abs(gap)
            for gap, _ in width_bins(
                [(p, float(y == k)) for p, y in zip(probs, labels, strict=True)]
            )
        )
    return total / n / logits.shape[1]


@pytest.mark.parametrize("name", RESIZED)
def test_each_draw_is_measured_as_its_rows_would_be(name):
    """The mean over draws of the error of the rows alone: their bins too."""
    predictions = case(120, 4)
    logits, labels = predictions.logits.numpy(), predictions.labels.numpy()
    rows = rows_drawn(120, 75)[:8]
    expected = np.mean([slow(name, logits[row], labels[row]) for row in rows])
    assert means_of_rows(logits, labels, rows, [name]) == {name: approx(expected, abs=1e-9)}


def test_a_draw_has_each_row_once_and_is_the_same_again():
    rows = rows_drawn(50, 20)
    assert rows.shape == (DRAWS, 20) == (200, 20)
    assert all(len(set(row)) == 20 for row in rows) and set(rows.ravel()) == set(range(50))
    assert (rows == rows_drawn(50, 20)).all()
    # 200 x 20 / 50, five standard deviations.
    assert np.bincount(rows.ravel()) == approx(80, abs=40)


def test_one_confidence_gives_the_hypergeometric_mean():
    """60 of 100 are right at a confidence of .6: of 10 of them, E|hits / 10 - .6|."""
    logits = np.tile(np.log([0.6, 0.4]), (100, 1))
    labels = (np.arange(100) >= 60).astype(np.int64)
    ways = [math.comb(60, hits) * math.comb(40, 10 - hits) for hits in range(11)]
    expected = sum(way * abs(hits / 10 - 0.6) for hits, way in enumerate(ways)) / math.comb(100, 10)
    rows = np.random.default_rng(0).random((20_000, 100)).argsort(axis=1)[:, :10]
    found = means_of_rows(logits, labels, rows, ["ece", "adaptive_ece"])
    assert list(found.values()) == approx([expected] * 2, abs=0.003)  # five standard errors
    assert means_of_rows(logits, labels, rows_drawn(100, 100), ["ece"])["ece"] == approx(
        0, abs=1e-12
    )


def test_the_error_of_fewer_samples_is_larger():
    predictions = case(2000)
    logits, labels = predictions.logits.numpy(), predictions.labels.numpy()
    sizes = (2000, 500, 100)
    found = [
        means_of_rows(logits, labels, rows_drawn(2000, size), ["ece"])["ece"] for size in sizes
    ]
    assert all(fewer > more + 0.005 for more, fewer in pairwise(found))
    assert found[0] == approx(predictions.evaluate()["ece"], abs=1e-9)
