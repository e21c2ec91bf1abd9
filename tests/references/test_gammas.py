"""Focal loss's gammas against the values of Mukhoti et al. 2020 and of their
rule's root, and by hand."""

import math
from fractions import Fraction
from typing import Literal

import pytest
import torch
from pytest import approx

from tests import references as ref
from tests.cases import every_shape, logits_of, random_case

# The rule's roots, where g(p, gamma) is 1 again, and g itself, as computed with
# the released implementation.
GAMMA_STARS = {
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
CROSSINGS = {1: 1 / math.e, 2: 0.2976365550, 3: 0.2525839887, 4: 0.2207329029, 5: 0.1968027390}
RATIOS = {
    (0.2, 5): 0.98690577,
    (0.2, 3): 1.13002416,
    (0.25, 3): 1.00671793,
    (0.5, 3): 0.38493019,
    (0.5, 2): 0.59657359,
    (0.5, 1): 0.84657359,
}


@pytest.mark.parametrize("schedule", ["531", "532"])
@pytest.mark.parametrize("epochs", [7, 70, 350])
def test_schedule_by_epoch(schedule: Literal["531", "532"], epochs: int) -> None:
    first, last = 2 * epochs // 7, 5 * epochs // 7  # 100 and 250 of 350
    expected = [5.0] * first + [3.0] * (last - first) + [float(schedule[-1])] * (epochs - last)
    assert [ref.gamma_at(schedule, Fraction(e, epochs)) for e in range(epochs)] == expected
    assert [ref.gamma_at(schedule, e / epochs) for e in range(epochs)] == expected
    assert ref.gamma_at(schedule, 1.0) == expected[-1]


def test_bands_by_hand() -> None:
    """p_y = .19, .21, .49, .51; equal logits of five and of two classes lie on
    a bound: the upper band."""
    labels = torch.tensor([0, 0, 0, 0])
    logits = logits_of([0.19, 0.81], [0.21, 0.79], [0.49, 0.51], [0.51, 0.49])
    assert ref.band_gammas(logits, labels, "53") == [5.0, 3.0, 3.0, 3.0]
    assert ref.band_gammas(logits, labels, "532") == [5.0, 3.0, 3.0, 2.0]
    assert ref.band_gammas(torch.zeros(1, 5), torch.tensor([4]), "532") == [3.0]
    assert ref.band_gammas(torch.zeros(1, 2), torch.tensor([1]), "532") == [2.0]


@pytest.mark.parametrize(("p", "gamma"), RATIOS)
def test_gradient_ratio(p: float, gamma: float) -> None:
    assert ref.gradient_ratio(p, gamma) == approx(RATIOS[p, gamma], abs=5e-9)


@every_shape
def test_gradient_ratio_is_that_of_the_gradients(shape: tuple[int, int, float]) -> None:
    logits, labels = random_case(shape)
    gamma, row, y = 2.5, logits[:1], labels[:1]
    focal = ref.central_differences(lambda z: ref.focal(z, y, gamma), row)
    ce = ref.central_differences(lambda z: ref.cross_entropy(z, y), row)
    p = torch.softmax(row, -1)[0, y].item()
    assert focal == approx(ref.gradient_ratio(p, gamma) * ce, abs=1e-8)


@pytest.mark.parametrize("p0", GAMMA_STARS)
def test_gamma_star(p0: float) -> None:
    assert ref.gamma_star(p0) == approx(GAMMA_STARS[p0], rel=1e-9)


@pytest.mark.parametrize("gamma", CROSSINGS)
def test_gamma_star_goes_back_where_the_ratio_crosses_one(gamma: int) -> None:
    assert ref.gamma_star(CROSSINGS[gamma]) == approx(gamma, abs=2e-8)


@pytest.mark.parametrize("p0", [1e-6, 1e-3, 0.1, 0.3, 0.49, 0.4999, 0.5 - 1e-9])
def test_ratio_is_one_at_gamma_star(p0: float) -> None:
    gamma = ref.gamma_star(p0)
    log_ratio = (gamma - 1) * math.log1p(-p0) + math.log1p(-p0 - gamma * p0 * math.log(p0))
    assert gamma > 0 and log_ratio == approx(0.0, abs=1e-9)


def test_no_gamma_from_one_half_on() -> None:
    assert [ref.gamma_star(p0) for p0 in (0.5, 0.7, 1.0)] == [0.0, 0.0, 0.0]
    assert ref.gamma_star(0.5 - 1e-12) == approx(0.0, abs=1e-11)


def test_lambert_rule_by_hand() -> None:
    labels = torch.tensor([0, 0, 0, 0])
    logits = logits_of([0.01, 0.99], [0.1, 0.9], [0.3, 0.7], [0.6, 0.4])
    gammas = [GAMMA_STARS[p] for p in (0.25, 0.25, 0.3)] + [0.0]
    assert ref.lambert_gammas(logits, labels, 0.25) == approx(gammas)
    terms = [
        -((1 - p) ** g) * math.log(p) for p, g in zip((0.01, 0.1, 0.3, 0.6), gammas, strict=True)
    ]
    assert ref.focal(logits, labels, ref.lambert_gammas(logits, labels, 0.25)) == approx(
        sum(terms) / 4
    )
