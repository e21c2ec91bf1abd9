"""Binned metrics by hand: edges, ties, bins of one, what is not defined."""

import math

import pytest
import torch
from pytest import approx

from tests import references
from tests.cases import logits_of, random_case
from tests.golden import GOLDEN, edge_vector
from trainables import metrics
from trainables.metrics import binned, classwise, scores, sweep

ECE, MCE = binned.expected_calibration_error, binned.maximum_calibration_error
ADAPTIVE, CLASSWISE = binned.adaptive_calibration_error, classwise.classwise_calibration_error


def test_edge_vector_by_hand() -> None:
    """Bins of .2: (.6, .6) gap .1, (.8) gap .2, (1, 1) gap .5, by 2/5, 1/5, 2/5."""
    logits, labels, tolerance = edge_vector()
    expected = GOLDEN["edge_vector_E5"]["float64"]["verified get_ece"]
    assert expected == 0.28
    assert ECE(logits, labels, bins=5).item() == approx(expected, abs=tolerance)
    assert MCE(logits, labels, bins=5).item() == approx(0.5, abs=tolerance)
    # Equal mass: one sample a bin, but the second .6 and the second 1 stay with the first.
    assert ADAPTIVE(logits, labels, bins=5).item() == approx(0.28, abs=tolerance)
    # The other class: (0, 0) gap .5, (.2) gap .2, (.4, .4) gap .1.
    assert CLASSWISE(logits, labels, bins=5).item() == approx(0.28, abs=tolerance)


def test_a_confidence_on_an_edge_belongs_below_it() -> None:
    """Two bins: .5 (wrong) in (0, .5], .75 (right) in (.5, 1]. In [.5, 1] both
    would share |.5 - .625|."""
    logits, labels = logits_of([0.5, 0.5], [0.75, 0.25]), torch.tensor([1, 0])
    assert ECE(logits, labels, bins=2).item() == approx((0.5 + 0.25) / 2, rel=1e-12)
    assert MCE(logits, labels, bins=2).item() == approx(0.5, rel=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_confidence_one_counts_in_the_last_bin(dtype: torch.dtype) -> None:
    """.95 and 1.0 share the bin (14/15, 1]: accuracy 1/2 against .975."""
    logits = torch.tensor([[math.log(19.0), 0.0], [1000.0, 0.0]], dtype=dtype)
    labels = torch.tensor([0, 1])
    assert ECE(logits, labels).item() == approx(0.475, abs=1e-6)
    assert MCE(logits, labels).item() == approx(0.475, abs=1e-6)


def test_probability_zero_counts_in_the_first_bin() -> None:
    """Both classes are off by 1 on every sample: p = 0 for the true one, p = 1 for the other."""
    logits = torch.tensor([[2000.0, 0.0]] * 3, dtype=torch.float64)
    assert CLASSWISE(logits, torch.tensor([1, 1, 1])).item() == approx(1.0)


def test_all_right_and_all_wrong() -> None:
    logits = logits_of(*[[0.7, 0.1, 0.1, 0.1]] * 6)
    right, wrong = torch.zeros(6, dtype=torch.int64), torch.full((6,), 2)
    for function in (ECE, MCE, ADAPTIVE):
        assert function(logits, right).item() == approx(0.3, rel=1e-12)
        assert function(logits, wrong).item() == approx(0.7, rel=1e-12)
    assert (
        scores.accuracy(logits, right).item() == 1.0 and scores.error(logits, right).item() == 0.0
    )
    assert (
        scores.accuracy(logits, wrong).item() == 0.0 and scores.error(logits, wrong).item() == 1.0
    )


def test_two_classes_by_hand() -> None:
    logits, label = logits_of([0.75, 0.25]), torch.tensor([0])
    assert scores.negative_log_likelihood(logits, label).item() == approx(
        math.log(4 / 3), rel=1e-12
    )
    assert scores.brier_score(logits, label).item() == approx(0.25**2 + 0.25**2, rel=1e-12)
    assert CLASSWISE(logits, label).item() == approx(0.25, rel=1e-12)


def test_nll_and_brier_where_the_probability_underflows() -> None:
    logits, labels = torch.tensor([[0.0, 2000.0]]), torch.tensor([0])
    assert scores.negative_log_likelihood(logits, labels).item() == approx(2000.0)
    assert scores.brier_score(logits, labels).item() == approx(2.0)


def test_classwise_counts_a_class_no_label_shows() -> None:
    """Three classes, labels 0 and 1 only: gaps .4, .2 and .2 over three classes, not two."""
    logits, labels = logits_of([0.6, 0.2, 0.2], [0.2, 0.6, 0.2]), torch.tensor([0, 1])
    # Classes 0 and 1 each: .2 against 0 and .6 against 1, halved; class 2: .2 against 0 twice.
    assert CLASSWISE(logits, labels).item() == approx((0.3 + 0.3 + 0.2) / 3, rel=1e-12)


def test_equal_logits_go_to_the_lower_class() -> None:
    logits, labels = torch.zeros(6, 6), torch.arange(6)
    assert scores.accuracy(logits, labels).item() == approx(1 / 6)
    assert scores.accuracy(logits, torch.zeros(6, dtype=torch.int64)).item() == 1.0
    assert scores.top5_accuracy(logits, labels).item() == approx(5 / 6)
    assert scores.top5_accuracy(logits, torch.full((6,), 5)).item() == 0.0


def test_adaptive_bin_sizes() -> None:
    """Seven distinct confidences in three bins: 3, 2, 2, the longer bins first."""
    tops = [0.56, 0.60, 0.64, 0.70, 0.76, 0.86, 0.94]
    logits = logits_of(*[[p, 1 - p] for p in reversed(tops)])
    labels = torch.tensor([1, 0, 0, 1, 0, 1, 0])  # of the largest confidence first
    gaps = [
        sum([0.56, 0.60, 0.64]) - 2,
        sum([0.70, 0.76]) - 1,
        sum([0.86, 0.94]) - 1,
    ]
    expected = sum(abs(gap) for gap in gaps) / 7
    assert ADAPTIVE(logits, labels, bins=3).item() == approx(expected, rel=1e-12)


@pytest.mark.parametrize("order", ["hits first", "misses first", 0, 1, 2])
def test_adaptive_does_not_depend_on_the_order_of_ties(order: str | int) -> None:
    """Sixty samples at confidence .5, half of them right: perfectly calibrated,
    whatever their order."""
    labels = torch.arange(60) % 2
    if isinstance(order, int):
        labels = labels[torch.randperm(60, generator=torch.Generator().manual_seed(order))]
    else:
        labels = labels.sort(descending=order == "misses first").values
    assert ADAPTIVE(torch.zeros(60, 2), labels).item() == approx(0.0, abs=1e-12)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_adaptive_with_ties_in_the_middle(seed: int) -> None:
    """Nine distinct confidences, shared by 64 samples in runs that straddle the bins."""
    generator = torch.Generator().manual_seed(seed)
    distinct, _ = random_case((9, 4, 1.0))
    logits = distinct[torch.randint(9, (64,), generator=generator)]
    labels = torch.randint(4, (64,), generator=generator)
    shuffle = torch.randperm(64, generator=generator)
    expected = references.adaptive_ece(logits, labels, 15)
    assert ADAPTIVE(logits, labels).item() == approx(expected, rel=1e-9)
    assert ADAPTIVE(logits[shuffle], labels[shuffle]).item() == approx(expected, rel=1e-9)


def test_mce_passes_over_small_bins() -> None:
    """Nine right at .7 (gap .3) and one wrong at .9: with ten samples at least, no bin is left."""
    logits = logits_of(*[[0.7, 0.3]] * 9, [0.9, 0.1])
    labels = torch.tensor([0] * 9 + [1])
    assert MCE(logits, labels).item() == approx(0.9)
    assert MCE(logits, labels, min_count=2).item() == approx(0.3)
    assert MCE(logits, labels, min_count=9).item() == approx(0.3)
    assert MCE(logits, labels, min_count=10).isnan()
    assert binned.maximum_calibration_error_of_ten(logits, labels).isnan()


def test_unweighted_and_squared_gaps_by_hand() -> None:
    """The same two bins: gaps .3 and .9, shares .9 and .1."""
    logits = logits_of(*[[0.7, 0.3]] * 9, [0.9, 0.1])
    labels = torch.tensor([0] * 9 + [1])
    assert binned.average_calibration_error(logits, labels).item() == approx(0.6)
    assert binned.root_mean_square_calibration_error(logits, labels).item() == approx(
        math.sqrt(0.9 * 0.09 + 0.1 * 0.81)
    )


def test_debiased_l2_by_hand() -> None:
    """One bin of ten at .9, seven right: (.2)^2 - .7 .3 / 9; all right at .9: .1; by chance: 0."""
    logits = logits_of(*[[0.9, 0.1]] * 10)
    right = lambda k: (torch.arange(10) >= k).long()  # noqa: E731
    value = binned.debiased_l2_calibration_error
    assert value(logits, right(7)).item() == approx(math.sqrt(0.04 - 0.21 / 9))
    assert value(logits, right(10)).item() == approx(0.1)
    assert value(logits, right(9)).item() == 0.0


def test_debiased_l2_leaves_out_bins_of_one() -> None:
    """Fifteen bins of seven distinct samples hold one each: nothing to say. With a tie,
    the tie alone is measured."""
    logits, labels = random_case((7, 3, 1.0))
    assert binned.debiased_l2_calibration_error(logits, labels).isnan()
    assert classwise.debiased_l2_marginal_error(logits, labels).isnan()
    assert "debiased_l2" not in metrics.measure_stored(logits, labels)
    tied = logits_of([0.6, 0.4], [0.8, 0.2], [0.8, 0.2])
    assert binned.debiased_l2_calibration_error(tied, torch.tensor([1, 0, 0])).item() == approx(0.2)


def test_debiased_l2_is_unbiased_where_the_plug_in_is_not() -> None:
    """Calibrated by construction: over many draws the debiased square is 0 on average,
    the plug-in's is not."""
    generator = torch.Generator().manual_seed(0)
    confidence = torch.linspace(0.5, 1.0, 60, dtype=torch.float64)
    plug_in, debiased = [], []
    for _ in range(400):
        hits = (torch.rand(60, generator=generator) < confidence).double()
        found = binned.ReliabilityBins.of_equal_mass(confidence, hits, 15)
        plug_in.append(found.share.dot(found.gap.square()).item())
        debiased.append(binned.debiased_square(found).item())
    assert sum(plug_in) / 400 > 0.03
    # Within a bin confidence still rises by a little, whose variance is all that is
    # left: (1/120)^2 5/4 a bin.
    assert abs(sum(debiased) / 400) < 0.002


def test_sure_samples_by_hand() -> None:
    logits, labels = (
        logits_of([0.995, 0.005], [0.99, 0.01], [0.999, 0.001], [0.6, 0.4]),
        torch.tensor([0, 0, 1, 1]),
    )
    assert scores.share_above_99(logits, labels).item() == 0.5
    assert scores.accuracy_above_99(logits, labels).item() == 0.5
    assert scores.accuracy_above_99(logits[3:], labels[3:]).isnan()
    assert "accuracy_above_99" not in metrics.measure_stored(
        logits[3:], labels[3:], also=metrics.names()
    )


@pytest.mark.parametrize("bins", [1, 5, 15])
def test_brier_splits_without_a_rest(bins: int) -> None:
    for shape in ((1, 2, 1.0), (40, 10, 5.0), (200, 70, 2.0)):
        logits, labels = random_case(shape)
        parts = [
            part(logits, labels, bins)
            for part in (classwise.brier_calibration, classwise.brier_refinement)
        ]
        assert min(parts).item() >= 0
        assert sum(parts).item() == approx(scores.brier_score(logits, labels).item(), rel=1e-12)


def test_brier_parts_by_hand() -> None:
    """.8 with three of four right, two classes: calibration 2 (.05)^2; the rest is
    the frequency's own 2 .75 .25."""
    logits, labels = logits_of(*[[0.8, 0.2]] * 4), torch.tensor([0, 0, 0, 1])
    assert classwise.brier_calibration(logits, labels).item() == approx(2 * 0.05**2)
    assert classwise.brier_refinement(logits, labels).item() == approx(2 * 0.75 * 0.25)


def test_a_threshold_leaves_out_classes_without_samples() -> None:
    """Two classes of three above 1%: gaps .1 and .1 over two classes; of the
    third nothing is said."""
    logits, labels = logits_of(*[[0.896, 0.1, 0.004]] * 10), torch.tensor([0] * 8 + [1] * 2)
    expected = ((0.896 - 0.8) + (0.2 - 0.1)) / 2
    assert classwise.thresholded_classwise_calibration_error(logits, labels).item() == approx(
        expected
    )
    assert classwise.classwise_calibration_error(logits, labels, threshold=0.9).isnan()


def test_sweep_stops_before_accuracy_falls() -> None:
    """Hits 0 1 1 0 by rising confidence: two bins rise (1/2, 1/2), three do not (1/2, 1, 0)."""
    tops = [0.6, 0.7, 0.8, 0.9]
    logits, labels = logits_of(*[[p, 1 - p] for p in tops]), torch.tensor([1, 0, 0, 1])
    error, bins = sweep.equal_mass_sweep(logits, labels)
    assert bins == 2 and error.item() == approx((abs(1 - 1.3) + abs(1 - 1.7)) / 4)
    falling = torch.tensor([0, 0, 1, 1])
    assert sweep.equal_mass_sweep(logits, falling)[1] == 1
    # All right: rises for ever.
    assert sweep.equal_mass_sweep(logits, torch.zeros(4, dtype=torch.int64))[1] == 4


def test_sweep_does_not_depend_on_the_order_of_ties() -> None:
    labels = torch.arange(60) % 2
    for seed in range(3):
        mixed = labels[torch.randperm(60, generator=torch.Generator().manual_seed(seed))]
        assert sweep.equal_mass_sweep(torch.zeros(60, 2), mixed)[0].item() == approx(0.0, abs=1e-12)


@pytest.mark.parametrize("classes", [63, 64, 65, 130])
def test_classes_are_binned_in_blocks(classes: int) -> None:
    logits, labels = random_case((20, classes, 2.0))
    for ours, definition in (
        (CLASSWISE, references.classwise_ece),
        (classwise.debiased_l2_marginal_error, references.debiased_l2_marginal),
        (classwise.brier_calibration, references.brier_calibration),
    ):
        assert ours(logits, labels, 5).item() == approx(definition(logits, labels, 5), rel=1e-9)
