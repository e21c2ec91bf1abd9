"""AUROC and FPR95 against their definitions over all pairs, and by hand."""

import math

import pytest
import torch
from pytest import approx

from tests import references
from tests.cases import logits_of, random_case
from trainables.metrics import out_of_distribution as ood


@pytest.mark.parametrize(("inside", "outside"), [(1, 1), (3, 20), (50, 19), (40, 41)])
def test_matches_its_definition(inside: int, outside: int) -> None:
    """Scores in tenths, so that many tie."""
    generator = torch.Generator().manual_seed(inside)
    own = (torch.rand(inside, generator=generator) * 10).round() / 10
    strange = (torch.rand(outside, generator=generator) * 10 + 2).round() / 10
    assert ood.auroc(own, strange).item() == approx(
        references.auroc(own.tolist(), strange.tolist()), rel=1e-12
    )
    expected = references.fpr_at_95(own.tolist(), strange.tolist())
    assert ood.fpr_at_95(own, strange).item() == approx(expected, rel=1e-12)


def test_told_apart_perfectly_and_not_at_all() -> None:
    low, high = torch.arange(10.0), torch.arange(10.0, 30.0)
    assert (ood.auroc(low, high), ood.fpr_at_95(low, high)) == (1.0, 0.0)
    assert (ood.auroc(high, low), ood.fpr_at_95(high, low)) == (0.0, 1.0)
    assert ood.auroc(low, low) == 0.5
    # One of twenty may be missed, two may not.
    assert ood.fpr_at_95(low, torch.cat([torch.zeros(1), high[1:]])) == 0.0
    assert ood.fpr_at_95(low, torch.cat([torch.zeros(2), high[2:]])) == 1.0


def test_scores_by_hand() -> None:
    logits = torch.cat(
        [
            logits_of([0.5, 0.25, 0.25]),
            torch.tensor([[0.0, -math.inf, -math.inf], [0.0, -40.0, -50.0]]),
        ]
    )
    entropies = [0.5 * math.log(2) + 0.5 * math.log(4), 0.0, 40 * math.exp(-40) + math.exp(-40)]
    assert ood.entropy(logits).tolist() == approx(entropies, rel=1e-3)
    # 1 - p in float64 would be 0 for the last.
    assert ood.one_minus_confidence(logits).tolist() == approx(
        [0.5, 0.0, math.exp(-40) + math.exp(-50)], rel=1e-6
    )


def test_evaluate_names_both_scores() -> None:
    own, _ = random_case((40, 5, 5.0))
    strange, _ = random_case((30, 5, 0.5))
    found = ood.separation(own, strange)
    assert set(found) == {"auroc_entropy", "fpr95_entropy", "auroc_confidence", "fpr95_confidence"}
    assert found["auroc_entropy"] > 0.9 > 0.3 > found["fpr95_entropy"]
