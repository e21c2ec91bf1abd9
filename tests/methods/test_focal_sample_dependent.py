"""gamma by the probability of the true class: bands, and the rule they are rounded
from, by Lambert's W."""

import pytest
import torch
from pytest import approx

from tests import references
from tests.cases import every_shape, logits_of, random_case
from tests.golden import GOLDEN, INPUTS
from trainables.methods.focal_sample_dependent import (
    FocalSampleDependent,
    gamma_of_p0,
    sample_gamma,
)

# methods.md A.5: p0 and gamma*, to 12 digits.
TABLE = {
    0.05: 37.844779351,
    0.1: 14.923992648,
    0.15: 8.03204775491,
    0.2: 4.85055444551,
    0.25: 3.07022710151,
    0.3: 1.95716980664,
    0.35: 1.2092034737,
    0.4: 0.680507623217,
    0.45: 0.292657083466,
    0.49: 0.0524473316,
}


@every_shape
@pytest.mark.parametrize("schedule", ["flsd_53", "flsd_532"])
def test_bands_match_their_definition(shape: tuple[int, int, float], schedule: str) -> None:
    logits, labels = random_case(shape)
    gammas = references.band_gammas(logits, labels, schedule.removeprefix("flsd_"))
    expected = references.focal(logits, labels, gammas)
    assert sample_gamma(logits, labels, schedule).tolist() == gammas
    value = FocalSampleDependent(schedule=schedule).loss(logits, labels, 0.5)
    assert value.item() == approx(expected, rel=1e-9, abs=1e-15)


def test_a_bound_belongs_to_the_band_above() -> None:
    below = logits_of([0.199, 0.801], [0.499, 0.501], [0.5, 0.5])
    assert sample_gamma(below, torch.zeros(3, dtype=torch.int64), "flsd_532").tolist() == [
        5.0,
        3.0,
        2.0,
    ]
    assert sample_gamma(torch.zeros(1, 5), torch.tensor([3]), "flsd_53").tolist() == [3.0]


@pytest.mark.parametrize("name", ["A", "B"])
def test_golden_band_counts(name: str) -> None:
    logits, labels, _ = INPUTS[name]
    gammas = sample_gamma(logits, labels, "flsd_532")
    counts = [int((gammas == gamma).sum()) for gamma in (5.0, 3.0, 2.0)]
    assert counts == GOLDEN["losses"][name]["flsd_counts lt0.2/0.2-0.5/ge0.5"]


@pytest.mark.parametrize("p0", TABLE)
def test_gamma_of_p0_is_the_papers_by_lamberts_w(p0: float) -> None:
    found = gamma_of_p0(torch.tensor([p0], dtype=torch.float64), 100.0).item()
    assert found == approx(TABLE[p0], rel=1e-8) and found == approx(
        references.gamma_star(p0), rel=1e-9
    )
    assert references.gradient_ratio(p0, found) == approx(1.0, abs=1e-9)


def test_gamma_of_p0_at_its_ends() -> None:
    p0 = torch.tensor([0.0, 1e-30, 0.19, 0.499999, 0.5, 0.7, 1.0], dtype=torch.float64)
    expected = [5.0, 5.0, 5.0, references.gamma_star(0.499999), 0.0, 0.0, 0.0]
    assert gamma_of_p0(p0, 5.0).tolist() == approx(expected, abs=1e-9)


def test_the_rule_while_training_is_the_rule() -> None:
    """Read from a table: off by less than 1e-5 where gamma is of order 1."""
    p = torch.linspace(0.0, 1.0, 4001, dtype=torch.float64).clamp(1e-6, 1 - 1e-6)
    logits, labels = (
        torch.stack([p.log(), (1 - p).log()], dim=1),
        torch.zeros(len(p), dtype=torch.int64),
    )
    expected = gamma_of_p0(p, 5.0)
    assert sample_gamma(logits, labels, "lambert_w", 5.0).tolist() == approx(
        expected.tolist(), abs=1e-5
    )


def test_gammas_are_constants_of_the_gradient() -> None:
    logits, labels = random_case((6, 4, 2.0))
    loss = FocalSampleDependent(schedule="lambert_w").loss(logits.requires_grad_(), labels, 0.5)
    (gradient,) = torch.autograd.grad(loss, logits)
    gammas = sample_gamma(logits, labels, "lambert_w").tolist()
    expected = references.central_differences(
        lambda z: references.focal(z, labels, gammas), logits.detach()
    )
    assert gradient.numpy() == approx(expected, abs=1e-8)
