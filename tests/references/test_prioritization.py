"""The slow definitions of sample prioritization against golden.json and by hand."""

import math

import numpy as np
import pytest
import torch
from pytest import approx

from tests import references as ref
from tests.cases import every_shape, logits_of, random_case
from tests.golden import GOLDEN, input_a

OTHER = GOLDEN["other"]


def test_golden_entropies() -> None:
    logits, _, tolerance = input_a()
    exact, normalized = ref.entropies(logits), ref.normalized_entropies(logits)
    assert exact[:5] == approx(OTHER["exact entropy nats A first5"], rel=tolerance)
    assert normalized[:5] == approx(OTHER["csp normalized entropy A first5"], rel=tolerance)
    gaps = [abs(math.log(10) * n - e) for n, e in zip(normalized, exact, strict=True)]
    assert max(gaps) == approx(OTHER["max |csp*logK - exact|"], abs=2e-7)


def test_golden_choice() -> None:
    logits, _, _ = input_a()
    assert ref.top(ref.entropies(logits), 10) == OTHER["exact top10 A"]
    assert ref.top(ref.normalized_entropies(logits), 10) == OTHER["csp top10 A"]


@every_shape
def test_entropy_is_what_the_confidence_penalty_takes_off(shape: tuple[int, int, float]) -> None:
    logits, labels = random_case(shape)
    taken = ref.cross_entropy(logits, labels) - ref.confidence_penalty(logits, labels, 1.0)
    assert np.mean(ref.entropies(logits)) == approx(taken, rel=1e-9, abs=1e-12)


def test_scores_by_hand() -> None:
    logits = logits_of([0.5, 0.3, 0.2], [0.45, 0.45, 0.1])
    entropy = -0.5 * math.log(0.5) - 0.3 * math.log(0.3) - 0.2 * math.log(0.2)
    assert ref.entropies(logits)[0] == approx(entropy)
    assert ref.least_confidences(logits) == approx([0.5, 0.55])
    assert ref.margins(logits) == approx([0.8, 1.0])


def test_limits_of_the_scores() -> None:
    flat, certain = torch.zeros(1, 4), torch.tensor([[1000.0, 0.0, 0.0, 0.0]])
    for scores, highest in (
        (ref.entropies, math.log(4)),
        (ref.normalized_entropies, 1.0),
        (ref.least_confidences, 0.75),
        (ref.margins, 1.0),
    ):
        assert scores(flat) == approx([highest], abs=5e-6)
        assert scores(certain) == approx([0.0], abs=1e-6)


def test_equal_scores_go_by_index() -> None:
    assert ref.top([1.0, 3.0, 2.0, 3.0, 2.0, 2.0], 4) == [1, 3, 2, 4]
    assert ref.top([0.0] * 5, 3) == [0, 1, 2]


def test_random_choice_takes_every_sample_as_often() -> None:
    generator, times = np.random.default_rng(0), np.zeros(8)
    for _ in range(2000):
        chosen = ref.random_choice(8, 2, generator)
        assert len(set(chosen)) == 2
        times[chosen] += 1
    assert times == approx(np.full(8, 500.0), abs=5 * math.sqrt(2000 * 0.25 * 0.75))


# What the pass of each epoch says of three samples: after the first, 0 falls, 2 rises by and by.
TABLE = [[0.9, 0.5, 0.1], [0.2, 0.6, 0.7], [0.2, 0.3, 0.8], [0.1, 0.1, 0.1]]


@pytest.mark.parametrize(
    ("refresh_all", "expected"),
    [
        # 0 is trained and drops to .2; then 1 by its score of epoch 0; then .2 (0), .3 (1)
        # and the stale .1 of 2.
        (False, [[0, 1, 2], [0], [1], [1]]),
        (True, [[0, 1, 2], [0], [2], [2]]),
    ],
)
def test_scores_of_unselected_samples_are_stale(
    refresh_all: bool, expected: list[list[int]]
) -> None:
    chosen = ref.selections(lambda epoch, i: TABLE[epoch][i], 3, 1, 1, 4, refresh_all)
    assert chosen == expected


def test_warmup_takes_all_and_counts_as_trained() -> None:
    chosen = ref.selections(lambda epoch, i: TABLE[epoch][i], 3, 2, 2, 3)
    assert chosen == [[0, 1, 2], [0, 1, 2], [2, 1]]
