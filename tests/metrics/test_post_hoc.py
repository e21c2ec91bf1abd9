"""Temperature scaling against the definition, published fits and closed forms."""

import math
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from pytest import approx
from torch import Tensor
from torch.testing import assert_close

from benchmarks.experiments.temperature import population, right_samples
from tests import references
from tests.cases import random_case
from tests.golden import GOLDEN, input_b
from trainables.metrics import binned, scores
from trainables.metrics.shared import post_hoc
from trainables.metrics.shared.temperature_of_ece import fit_temperature_by_ece

# The NLL is flat at its least: a search by value, as some peers do, finds T to the root
# of float64's precision.
PRECISION = 1e-6


def half_right(gap: float, right: int, of: int) -> tuple[Tensor, Tensor]:
    """Two classes, `right` of `of` labels being the one ahead by `gap`: T = gap
    / log(right / wrong)."""
    logits = torch.tensor([[gap, 0.0]] * of, dtype=torch.float64)
    return logits, (torch.arange(of) >= right).long()


def test_a_label_of_probability_zero_says_nothing_about_the_temperature() -> None:
    logits, labels, _ = input_b()
    expected = post_hoc.fit_temperature_by_nll(logits, labels)
    impossible = torch.tensor([[0.0, -torch.inf] + [0.0] * 8], dtype=torch.float64)
    found = post_hoc.fit_temperature_by_nll(
        torch.cat([logits, impossible]), torch.cat([labels, torch.tensor([1])])
    )
    assert found == pytest.approx(expected, rel=1e-9)
    assert post_hoc.fit_temperature_by_nll(impossible, torch.tensor([1])) == 1.0


def test_published_fit() -> None:
    """B by halves: fitted on the first, scored on the second."""
    logits, labels, _ = input_b()
    values = GOLDEN["temperature"]["B"]
    temperature = post_hoc.fit_temperature_by_nll(logits[:100], labels[:100])
    assert temperature == approx(values["T exact NLL"], rel=PRECISION)
    assert temperature == approx(1 / values["probmetrics temp-scaling"][1], rel=1e-6)
    by_ece = fit_temperature_by_ece(logits[:100], labels[:100])
    expected, least = values["T grid ECE15"]
    assert by_ece == expected
    assert binned.expected_calibration_error(logits[:100] / by_ece, labels[:100]).item() == approx(
        least, abs=1e-6
    )
    for name, divisor in (("none", 1.0), ("nll", temperature), ("ece", by_ece)):
        scaled = logits[100:] / divisor
        found = [
            binned.expected_calibration_error(scaled, labels[100:]),
            scores.negative_log_likelihood(scaled, labels[100:]),
        ]
        assert [each.item() for each in found] == approx(
            values[f"test ece15/nll @ {name}"], abs=1e-6
        )


# Rows of the published fits that ours is not: least NLL lies below all of them.
NOT_OURS = {
    "T grid NLL (0.1 step)": "a grid's nearest step",
    "T gpleiss LBFGS lr.01 it200 init1.5": "has not converged at its own settings",
    "T gpleiss lr.01 it50": "has not converged at its own settings",
    "T torch-uncertainty LBFGS lr.1 it100 init1": "stops some 1e-4 short",
}


@pytest.mark.parametrize("row", NOT_OURS)
def test_other_fits_are_no_better(row: str) -> None:
    logits, labels, _ = input_b()
    logits, labels = logits[:100], labels[:100]
    value = GOLDEN["temperature"]["B"][row]
    theirs, ours = (
        (value[0] if isinstance(value, list) else value),
        post_hoc.fit_temperature_by_nll(logits, labels),
    )
    assert abs(theirs - ours) > 1e-4, NOT_OURS[row]
    assert references.nll(logits / ours, labels) < references.nll(logits / theirs, labels)


@pytest.mark.parametrize(("gap", "right", "of"), [(4.0, 3, 4), (0.1, 9, 10), (20.0, 11, 20)])
def test_two_classes_by_hand(gap: float, right: int, of: int) -> None:
    temperature = post_hoc.fit_temperature_by_nll(*half_right(gap, right, of))
    assert temperature == approx(gap / math.log(right / (of - right)), rel=PRECISION)


def test_a_class_of_probability_zero_changes_nothing() -> None:
    logits, labels = half_right(4.0, 3, 4)
    never = torch.full((4, 1), -math.inf, dtype=torch.float64)  # log of a stored probability of 0
    temperature = post_hoc.fit_temperature_by_nll(torch.cat([logits, never], dim=1), labels)
    assert temperature == approx(4 / math.log(3), rel=PRECISION)


@pytest.mark.parametrize(
    "shape", [(40, 10, 5.0), (33, 12, 30.0), (64, 4, 0.1), (300, 10, 3.0), (60, 3, 0.03)]
)
@pytest.mark.parametrize("seed", range(3))
def test_matches_its_definition(shape: tuple[int, int, float], seed: int) -> None:
    logits, labels = random_case(shape, seed)
    expected = references.fit_temperature(logits, labels)
    assert post_hoc.fit_temperature_by_nll(logits, labels) == approx(expected, rel=PRECISION)


def test_scales_with_the_logits() -> None:
    logits, labels = random_case((40, 10, 5.0))
    temperature = post_hoc.fit_temperature_by_nll(logits, labels)
    assert post_hoc.fit_temperature_by_nll(3 * logits, labels) == approx(
        3 * temperature, rel=PRECISION
    )


@pytest.mark.parametrize("right", [0, 4], ids=["all wrong", "all right"])
def test_is_positive_and_finite_where_nll_has_no_least(right: int) -> None:
    logits, labels = half_right(2.0, right, 4)
    temperature = post_hoc.fit_temperature_by_nll(logits, labels)
    assert 0 < temperature < math.inf
    assert (temperature > 10) if right == 0 else (temperature < 1)
    before, after = (references.nll(z, labels) for z in (logits, logits / temperature))
    assert after < before


def test_cross_fitted_scales_each_fold_by_the_fit_of_the_others() -> None:
    logits, labels = random_case((43, 10, 5.0))
    fold = torch.arange(43) % 5
    result = post_hoc.cross_fitted(logits, labels, fit=post_hoc.temperature_by_nll)
    for k in range(5):
        temperature = references.fit_temperature(logits[fold != k], labels[fold != k])
        assert_close(result[fold == k], logits[fold == k] / temperature, rtol=PRECISION, atol=0.0)


# ---- with a prior --------------------------------------------------------------------------------


def of_gaps(gaps: list[float], wrong: int = 0) -> tuple[Tensor, Tensor]:
    """Two classes, one sample for each gap of the label that is ahead; the first `wrong`
    have the other label."""
    logits = torch.tensor([[gap, 0.0] for gap in gaps], dtype=torch.float64)
    return logits, (torch.arange(len(gaps)) < wrong).long()


def hard_for_a_prior() -> Iterator[tuple[str, Tensor, Tensor]]:
    """Where the cost may have two minima below T = 1, by name, and everything that is
    hard without a prior."""
    near = np.exp(np.random.default_rng(0).normal(size=40))
    yield "barely right: the far minimum", *of_gaps([0.06] * 10)
    yield "barely right: the near minimum", *of_gaps([0.02] * 10)
    yield "barely right, at the end of the range", *of_gaps([0.005] * 100)
    yield "two clusters", *of_gaps([0.02] * 20 + [3.0] * 5)
    yield "two clusters, an error", *of_gaps([0.02] * 30 + [3.0] * 5, wrong=1)
    yield "spread", *of_gaps((0.015 * near).tolist())
    yield "all right", *half_right(2.0, 4, 4)
    yield "all wrong", *half_right(2.0, 0, 4)
    yield "one sample", *half_right(1.0, 1, 1)
    yield "says nothing", torch.zeros(5, 3, dtype=torch.float64), torch.arange(5) % 3
    for shape in ((40, 10, 5.0), (33, 12, 30.0), (64, 4, 0.1), (60, 3, 0.03)):
        yield f"random {shape}", *random_case(shape)


@pytest.mark.parametrize(
    ("logits", "labels"), [pytest.param(*case, id=name) for name, *case in hard_for_a_prior()]
)
def test_the_prior_takes_the_lowest_point_of_a_dense_grid(logits: Tensor, labels: Tensor) -> None:
    temperature, least = references.fit_temperature_with_prior(logits, labels)
    found = post_hoc.fit_temperature(logits, labels)
    assert math.log(found) == approx(math.log(temperature), abs=1e-3)  # the grid's step
    assert references.cost_of_temperature(logits, labels, found) <= least + 1e-9


def test_some_of_them_have_two_minima() -> None:
    """Else the test above would pass a search that stops at the first."""
    count = 0
    for _, logits, labels in hard_for_a_prior():
        costs = references.costs_of_temperatures(logits, labels)
        falls = np.diff(costs) < 0
        count += (falls[:-1] & ~falls[1:]).sum() + (not falls[0]) > 1
        if count == 3:
            break
    assert count == 3


def test_sixty_right_samples_keep_their_doubt() -> None:
    """A network that is right more often than it says: by NLL alone its few errors
    on new data cost most."""
    random = np.random.default_rng(0)
    logits, labels = right_samples(60, random)
    new, truth = population(2000, random)
    bare, fitted = (
        fit(logits, labels) for fit in (post_hoc.fit_temperature_by_nll, post_hoc.fit_temperature)
    )
    assert bare == post_hoc.LOWEST and 0.15 < fitted < 0.4
    after, as_trained, certain = (references.nll(new / by, truth) for by in (fitted, 1.0, bare))
    assert after < as_trained / 3 and as_trained < certain


def test_a_prior_worth_one_sample_hardly_moves_a_thousand() -> None:
    """By Newton's method from the bare fit: log T / (1 + curvature) of the sum, here about .2%."""
    logits, labels = random_case((1000, 10, 3.0))
    bare, fitted = (
        fit(logits, labels) for fit in (post_hoc.fit_temperature_by_nll, post_hoc.fit_temperature)
    )
    curvature = (
        references.cost_of_temperature(logits, labels, bare * math.exp(0.01))
        + references.cost_of_temperature(logits, labels, bare * math.exp(-0.01))
        - 2 * references.cost_of_temperature(logits, labels, bare)
    ) / 0.01**2
    assert math.log(fitted / bare) == approx(-math.log(bare) / curvature, rel=0.05)
    assert abs(fitted / bare - 1) < 0.01


def test_folds_at_once_are_the_fits_of_the_others() -> None:
    for _, logits, labels in hard_for_a_prior():
        if len(labels) < 6:
            continue
        found = post_hoc.fold_temperatures(logits, labels, 5)
        for k, temperature in enumerate(found):
            others = torch.arange(len(labels)) % 5 != k
            assert temperature == approx(
                post_hoc.fit_temperature(logits[others], labels[others]), rel=1e-9
            )


def test_vector_scaling_with_priors_is_where_the_cost_has_no_slope() -> None:
    """Sum of NLL, plus half the squares of the biases and of scale * T - 1. Convex:
    without slope, it is least."""
    for logits, labels in (
        random_case((200, 4, 2.0)),
        half_right(2.0, 4, 4),
        random_case((30, 3, 0.1)),
    ):
        found, classes = post_hoc.fit_vector_scaling(logits, labels), logits.shape[1]
        temperature = post_hoc.fit_temperature(logits, labels)
        parameters = torch.cat([found.scale, found.bias]).numpy()

        def cost(values: np.ndarray) -> float:
            scale, bias = values[:classes], values[classes:]  # noqa: B023
            nll = references.nll(torch.from_numpy(logits.numpy() * scale + bias), labels)  # noqa: B023
            squares = ((scale * temperature - 1) ** 2).sum() + (bias**2).sum()  # noqa: B023
            return len(labels) * nll + float(squares) / 2  # noqa: B023

        assert np.abs(references.central_differences(cost, parameters)).max() < 1e-4


# ---- by ECE, and vectors -------------------------------------------------------------------------


def test_grid_matches_its_definition() -> None:
    for shape in ((40, 10, 5.0), (33, 12, 30.0), (64, 4, 0.1)):
        logits, labels = random_case(shape)
        expected = references.fit_temperature_by_ece(logits, labels, 10)
        assert fit_temperature_by_ece(logits, labels, 10) == approx(expected, rel=1e-12)


def test_grid_takes_the_lowest_of_equals() -> None:
    """Saturated and right at every T of the grid: an ECE of 0 throughout."""
    logits = torch.tensor([[1e5, 0.0]] * 3, dtype=torch.float64)
    assert fit_temperature_by_ece(logits, torch.zeros(3, dtype=torch.int64)) == 0.1


def test_vector_scaling_is_where_the_nll_has_no_slope() -> None:
    """Convex: a point without slope is its least."""
    logits, labels = random_case((200, 4, 2.0))
    found = post_hoc.fit_vector_scaling(logits, labels, prior=0)
    parameters = torch.cat([found.scale, found.bias]).numpy()

    def nll(values: np.ndarray) -> float:
        return references.nll(torch.from_numpy(logits.numpy() * values[:4] + values[4:]), labels)

    assert np.abs(references.central_differences(nll, parameters)).max() < 1e-6
    temperature = post_hoc.fit_temperature_by_nll(logits, labels)
    assert (
        nll(parameters)
        < references.nll(logits / temperature, labels)
        < references.nll(logits, labels)
    )


def test_vector_scaling_of_no_information_gives_the_frequencies() -> None:
    labels = torch.tensor([0] * 5 + [1] * 3 + [2] * 2)
    calibrated = post_hoc.fit_vector_scaling(torch.zeros(10, 3), labels, prior=0)(torch.zeros(1, 3))
    assert calibrated.softmax(-1).squeeze(0).tolist() == approx([0.5, 0.3, 0.2], abs=1e-6)


def test_vector_scaling_is_the_identity_where_nothing_is_to_be_gained() -> None:
    """Half and half at equal logits; a label that is impossible; both leave it as it is."""
    for logits, labels in (
        (torch.zeros(4, 2), torch.tensor([0, 1, 0, 1])),
        (torch.tensor([[0.0, -math.inf]]), torch.tensor([1])),
    ):
        found = post_hoc.fit_vector_scaling(logits, labels)
        assert found.scale.tolist() == [1.0, 1.0] and found.bias.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("right", [0, 4], ids=["all wrong", "all right"])
def test_vector_scaling_is_finite_where_nll_has_no_least(right: int) -> None:
    logits, labels = half_right(2.0, right, 4)
    found = post_hoc.fit_vector_scaling(logits, labels)
    assert found.scale.isfinite().all() and found.bias.isfinite().all()
    assert references.nll(found(logits), labels) < references.nll(logits, labels)


def test_vector_scaling_keeps_a_class_of_probability_zero() -> None:
    logits, labels = random_case((60, 3, 2.0))
    never = torch.full((60, 1), -math.inf, dtype=torch.float64)
    with_class = torch.cat([logits, never], dim=1)
    found = post_hoc.fit_vector_scaling(with_class, labels)(with_class)
    assert (found[:, 3] == -math.inf).all()
    assert_close(
        found.softmax(-1)[:, :3],
        post_hoc.fit_vector_scaling(logits, labels)(logits).softmax(-1),
        rtol=0,
        atol=1e-5,
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", post_hoc.FITS)
def test_cross_fitted_by_any_fit(name: str) -> None:
    logits, labels = random_case((43, 6, 5.0))
    fold = torch.arange(43) % 5
    result = post_hoc.cross_fitted(logits, labels, fit=post_hoc.FITS[name])
    for k in range(5):
        calibrate = post_hoc.FITS[name](logits[fold != k], labels[fold != k])
        assert_close(result[fold == k], calibrate(logits[fold == k]), rtol=0.0, atol=0.0)


def test_cross_fitted_takes_the_folds_asked_for() -> None:
    logits, labels = random_case((40, 10, 5.0))
    result = post_hoc.cross_fitted(logits, labels, folds=2, fit=post_hoc.temperature_by_nll)
    for one, other in (
        (slice(0, None, 2), slice(1, None, 2)),
        (slice(1, None, 2), slice(0, None, 2)),
    ):
        temperature = references.fit_temperature(logits[other], labels[other])
        assert_close(result[one], logits[one] / temperature, rtol=PRECISION, atol=0.0)


def test_fewer_samples_than_folds_leave_one_out() -> None:
    logits, labels = half_right(2.0, 2, 3)
    result = post_hoc.cross_fitted(logits, labels, fit=post_hoc.temperature_by_nll)
    # Without the wrong one both others are right, and T falls to its floor; without
    # a right one, one of two is.
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
    assert scores.accuracy(fitted, labels).item() == approx(0.7)
