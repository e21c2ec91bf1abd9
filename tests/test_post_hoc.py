"""Temperature scaling against the definition, published fits and closed forms."""

import math

import pytest
import torch
from pytest import approx
from torch import Tensor
from torch.testing import assert_close

from tests import references
from tests.cases import random_case
from tests.golden import GOLDEN, input_b
from trainables import metrics, post_hoc

# The NLL is flat at its least: a search by value, as some peers do, finds T to the root of float64's precision.
PRECISION = 1e-6


def half_right(gap: float, right: int, of: int) -> tuple[Tensor, Tensor]:
    """Two classes, `right` of `of` labels being the one ahead by `gap`: T = gap / log(right / wrong)."""
    logits = torch.tensor([[gap, 0.0]] * of, dtype=torch.float64)
    return logits, (torch.arange(of) >= right).long()


def test_a_label_of_probability_zero_says_nothing_about_the_temperature() -> None:
    logits, labels, _ = input_b()
    expected = post_hoc.fit_temperature(logits, labels)
    impossible = torch.tensor([[0.0, -torch.inf] + [0.0] * 8], dtype=torch.float64)
    found = post_hoc.fit_temperature(torch.cat([logits, impossible]), torch.cat([labels, torch.tensor([1])]))
    assert found == pytest.approx(expected, rel=1e-9)
    assert post_hoc.fit_temperature(impossible, torch.tensor([1])) == 1.0


def test_published_fit() -> None:
    logits, labels, _ = input_b()
    values = GOLDEN["temperature"]["B"]
    temperature = post_hoc.fit_temperature(logits[:100], labels[:100])
    assert temperature == approx(values["T exact NLL"], rel=PRECISION)
    assert temperature == approx(1 / values["probmetrics temp-scaling"][1], rel=1e-6)
    _, nll = values["test ece15/nll @ nll"]
    found = metrics.negative_log_likelihood(logits[100:] / temperature, labels[100:])
    assert found.item() == approx(nll, abs=1e-6)


@pytest.mark.parametrize(("gap", "right", "of"), [(4.0, 3, 4), (0.1, 9, 10), (20.0, 11, 20)])
def test_two_classes_by_hand(gap: float, right: int, of: int) -> None:
    temperature = post_hoc.fit_temperature(*half_right(gap, right, of))
    assert temperature == approx(gap / math.log(right / (of - right)), rel=PRECISION)


def test_a_class_of_probability_zero_changes_nothing() -> None:
    logits, labels = half_right(4.0, 3, 4)
    never = torch.full((4, 1), -math.inf, dtype=torch.float64)  # log of a stored probability of 0
    temperature = post_hoc.fit_temperature(torch.cat([logits, never], dim=1), labels)
    assert temperature == approx(4 / math.log(3), rel=PRECISION)


@pytest.mark.parametrize("shape", [(40, 10, 5.0), (33, 12, 30.0), (64, 4, 0.1)])
def test_matches_its_definition(shape: tuple[int, int, float]) -> None:
    logits, labels = random_case(shape)
    expected = references.fit_temperature(logits, labels)
    assert post_hoc.fit_temperature(logits, labels) == approx(expected, rel=PRECISION)


def test_scales_with_the_logits() -> None:
    logits, labels = random_case((40, 10, 5.0))
    temperature = post_hoc.fit_temperature(logits, labels)
    assert post_hoc.fit_temperature(3 * logits, labels) == approx(3 * temperature, rel=PRECISION)


@pytest.mark.parametrize("right", [0, 4], ids=["all wrong", "all right"])
def test_is_positive_and_finite_where_nll_has_no_least(right: int) -> None:
    logits, labels = half_right(2.0, right, 4)
    temperature = post_hoc.fit_temperature(logits, labels)
    assert 0 < temperature < math.inf
    assert (temperature > 10) if right == 0 else (temperature < 1)
    before, after = (references.nll(z, labels) for z in (logits, logits / temperature))
    assert after < before


def test_cross_fitted_scales_each_fold_by_the_fit_of_the_others() -> None:
    logits, labels = random_case((43, 10, 5.0))
    fold = torch.arange(43) % 5
    result = post_hoc.cross_fitted(logits, labels)
    for k in range(5):
        temperature = references.fit_temperature(logits[fold != k], labels[fold != k])
        assert_close(result[fold == k], logits[fold == k] / temperature, rtol=PRECISION, atol=0.0)


def test_cross_fitted_takes_the_folds_asked_for() -> None:
    logits, labels = random_case((40, 10, 5.0))
    result = post_hoc.cross_fitted(logits, labels, folds=2)
    for one, other in ((slice(0, None, 2), slice(1, None, 2)), (slice(1, None, 2), slice(0, None, 2))):
        temperature = references.fit_temperature(logits[other], labels[other])
        assert_close(result[one], logits[one] / temperature, rtol=PRECISION, atol=0.0)


def test_fewer_samples_than_folds_leave_one_out() -> None:
    logits, labels = half_right(2.0, 2, 3)
    result = post_hoc.cross_fitted(logits, labels)
    # Without the wrong one both others are right, and T falls to its floor; without a right one, one of two is.
    assert result[2].max() > 10 * logits[2].max()
    assert result[:2].abs().max() < 0.1


def test_a_samples_label_does_not_touch_its_own_temperature() -> None:
    logits, labels = random_case((40, 10, 5.0))
    changed = labels.clone()
    changed[0::5] = (labels[0::5] + 1) % 10
    before, after = post_hoc.cross_fitted(logits, labels), post_hoc.cross_fitted(logits, changed)
    assert_close(before[0::5], after[0::5], rtol=0.0, atol=0.0)
    assert (before[1::5] != after[1::5]).all()


def test_cross_fitted_leaves_accuracy_alone() -> None:
    logits, labels, _ = input_b()
    fitted = post_hoc.cross_fitted(logits, labels)
    assert fitted.shape == logits.shape
    assert torch.equal(fitted.argmax(1), logits.argmax(1))
    assert metrics.accuracy(fitted, labels).item() == approx(0.7)
