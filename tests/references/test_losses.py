"""The slow definitions of the losses against golden.json, closed forms and limits: nothing
here is our own code."""

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from pytest import approx
from torch import Tensor

from tests import references as ref
from tests.cases import every_shape, logits_of, random_case
from tests.golden import GOLDEN, INPUTS, input_a, input_b
from tests.references.arrays import mean, rows
from tests.references.calibration_terms import soft_gaps
from tests.references.gammas import true_probabilities

Values = Callable[[Tensor, Tensor], list[float]]
GAMMAS, EPSILONS, MARGINS = (0.5, 1.0, 2.0, 3.0, 5.0), (0.05, 0.1), (0.0, 5.0, 6.0, 8.0, 10.0)
DECE = [(15, 100.0, 0.01), (10, 100.0, 0.01), (15, 10.0, 0.1)]  # bins, tau_a, tau_b
BANDWIDTHS = (0.01, 0.05, 0.1, 0.5)


def entropy(logits: Tensor, labels: Tensor) -> float:
    return ref.confidence_penalty(logits, labels, -1.0) - ref.cross_entropy(logits, labels)


def band_focal(logits: Tensor, labels: Tensor, schedule: str) -> float:
    return ref.focal(logits, labels, ref.band_gammas(logits, labels, schedule))


def band_counts(logits: Tensor, labels: Tensor) -> list[float]:
    p = true_probabilities(logits, labels)
    return [sum(q < 0.2 for q in p), sum(0.2 <= q < 0.5 for q in p), sum(q >= 0.5 for q in p)]


def mbls_row(logits: Tensor, labels: Tensor, margin: float) -> list[float]:
    ce, total = ref.cross_entropy(logits, labels), ref.mbls(logits, labels, margin, 0.1)
    return [total, ce, 10 * (total - ce)]


def dece_gradient_norm(
    logits: Tensor, labels: Tensor, bins: int, tau_a: float, tau_b: float
) -> float:
    """Bins keep their sign under a small step, so each sample moves sum_b sign_b
    q_b (a - c) / N alone."""
    samples = list(zip(rows(logits), labels.tolist(), strict=True))
    signs = np.sign(sum(np.array(soft_gaps(row, y, bins, tau_a, tau_b)) for row, y in samples))

    def share(row: np.ndarray, y: int) -> float:
        return float(signs @ np.array(soft_gaps(list(row), y, bins, tau_a, tau_b))) / len(samples)

    gradient = [ref.richardson_differences(partial(share, y=y), row, 1e-5) for row, y in samples]
    return float(np.linalg.norm(gradient))


def rooted(squared: Callable[[Tensor, Tensor], float]) -> Values:
    """The public implementations return the root of MMCE_w^2 + 1e-10."""
    return lambda z, y: [math.sqrt(squared(z, y) + 1e-10)]


def one(loss: Callable[..., float], factor: float = 1.0, **settings: object) -> Values:
    return lambda z, y: [factor * loss(z, y, **settings)]


def summed(loss: Callable[..., float], **settings: object) -> Values:
    return lambda z, y: [len(y) * loss(z, y, **settings)]


ROWS: dict[str, Values] = {
    "ce_mean": one(ref.cross_entropy),
    "ce_sum": summed(ref.cross_entropy),
    **{f"focal_sum_gamma{g} (torrvision)": summed(ref.focal, gamma=g) for g in GAMMAS},
    **{f"focal_mean_gamma{g} (torch-uncertainty)": one(ref.focal, gamma=g) for g in GAMMAS},
    **{f"FLSD-{s}_sum (torrvision)": summed(band_focal, schedule=s) for s in ("53", "532")},
    **{f"FLSD-{s}_mean": one(band_focal, schedule=s) for s in ("53", "532")},
    "flsd_counts lt0.2/0.2-0.5/ge0.5": band_counts,
    **{f"LS_K a={e} (MbLS)": one(ref.label_smoothing, epsilon=e) for e in EPSILONS},
    **{f"LS_K a={e} (torch)": one(ref.label_smoothing, epsilon=e) for e in EPSILONS},
    # That convention spreads epsilon over the K - 1 wrong classes: this one at epsilon K / (K - 1).
    **{f"LS_Km1 a={e} (MDCA)": one(ref.label_smoothing, epsilon=e * 10 / 9) for e in EPSILONS},
    "brier_sumK_meanN": one(ref.brier_loss),
    "brier_mean_NK": one(ref.brier_loss, 0.1),
    # Their entropy is a mean over classes too: a tenth of the weight.
    "ECP a=0.1 (MbLS total, ce, entropy_mean_over_NK)": lambda z, y: [
        ref.confidence_penalty(z, y, 0.01),
        ref.cross_entropy(z, y),
        entropy(z, y) / 10,
    ],
    # They take log(p + 1e-6), which makes this loss 1e-6 larger than that of the exact entropy.
    "ECP w=0.1 (torch-uncertainty: CE+w*(logK-H))": lambda z, y: [
        ref.cross_entropy(z, y) + 0.1 * math.log(10) * (1 - mean(ref.normalized_entropies(z)))
    ],
    "ECP netcal mean/batchmean": lambda z, y: [0.01 * entropy(z, y), 0.1 * entropy(z, y)],
    "entropy_mean_nats": one(entropy),
    **{f"MbLS m={m} a=0.1 (total,ce,margin_mean_NK)": partial(mbls_row, margin=m) for m in MARGINS},
    **{
        f"MbLS m={m} margin sum_K mean_N": lambda z, y, m=m: [10 * mbls_row(z, y, m)[2]]
        for m in MARGINS
    },
    "MMCE_m (torrvision: sum/N^2, no sqrt)": one(ref.mmce_squared),
    "MMCE_w (torrvision, double-normalised)": rooted(
        partial(ref.weighted_mmce_squared, normalisation="released")
    ),
    "MMCE_w (netcal penalty, single-normalised)": rooted(ref.weighted_mmce_squared),
    **{
        f"DECE bins={b} ta={a} tb={t} (metacal) value,gradL2": lambda z, y, s=(b, a, t): [
            ref.dece(z, y, *s),
            dece_gradient_norm(z, y, *s),
        ]
        for b, a, t in DECE
    },
}
NO_METHOD = ["MDCA", "DCA (netcal)"]


@pytest.mark.parametrize("name", ["A", "B"])
@pytest.mark.parametrize("row", ROWS)
def test_golden_row(name: str, row: str) -> None:
    logits, labels, tolerance = INPUTS[name]
    expected = GOLDEN["losses"][name][row]
    assert ROWS[row](logits, labels) == approx(
        np.atleast_1d(expected).tolist(), rel=tolerance, abs=1e-12
    )


@pytest.mark.parametrize("name", ["A", "B"])
def test_every_golden_row_is_tested_or_accounted_for(name: str) -> None:
    assert sorted([*ROWS, *NO_METHOD]) == sorted(GOLDEN["losses"][name])


@pytest.mark.parametrize("name", ["A", "B"])
@pytest.mark.parametrize("bandwidth", BANDWIDTHS)
def test_golden_sece_rows(name: str, bandwidth: float) -> None:
    logits, labels, tolerance = INPUTS[name]
    for row, self_weight in (("NW_selfincluded", True), ("NW_leave1out", False)):
        expected = GOLDEN["sece"][f"{name} h={bandwidth} {row}"]
        assert ref.smooth_ece(logits, labels, bandwidth, self_weight=self_weight) == approx(
            expected, rel=tolerance
        )


@pytest.mark.parametrize("name", ["A", "B"])
def test_golden_rows_outside_the_losses(name: str) -> None:
    logits, labels, tolerance = INPUTS[name]
    plain = ref.mmce_squared(logits, labels)
    assert math.sqrt(plain) == approx(
        GOLDEN["metrics"][name]["MMCE metric netcal sqrt"], rel=tolerance
    )
    biased = GOLDEN["other"][
        f"top-label kernel CE {name} nu=.4 (biased == torrvision MMCE_m, unbiased)"
    ][0]
    assert plain == approx(biased, rel=1e-9)


def test_golden_mixup_row() -> None:
    logits, labels, tolerance = input_a()
    reversed_order = list(range(63, -1, -1))
    expected = GOLDEN["other"]["mixup CE A lam=.3 perm=reversed"]
    assert ref.mixup(ref.cross_entropy, logits, labels, 0.3, reversed_order) == approx(
        expected, rel=tolerance
    )
    onehot = torch.eye(10)[labels]
    soft = 0.3 * onehot + 0.7 * onehot.flip(0)
    assert ref.cross_entropy(logits, soft) == approx(expected, rel=tolerance)


@every_shape
def test_nothing_added_is_cross_entropy(shape: tuple[int, int, float]) -> None:
    logits, labels = random_case(shape)
    expected = approx(ref.cross_entropy(logits, labels), rel=1e-12)
    assert ref.cross_entropy(logits, torch.eye(shape[1])[labels]) == expected
    assert ref.focal(logits, labels, 0.0) == expected
    assert ref.label_smoothing(logits, labels, 0.0) == expected
    assert ref.confidence_penalty(logits, labels, 0.0) == expected
    assert ref.mbls(logits, labels, 0.0, 0.0) == expected
    assert ref.mmce_loss(logits, labels, 0.0) == expected
    assert ref.dece_loss(logits, labels, 0.0) == expected
    assert (
        ref.mixup(ref.cross_entropy, logits, labels, 1.0, list(range(shape[0]))[::-1]) == expected
    )
    assert ref.mixup(ref.cross_entropy, logits, labels, 0.3, range(shape[0])) == expected


def test_equal_logits_by_hand() -> None:
    logits, labels = torch.zeros(3, 4), torch.tensor([0, 1, 3])
    log_4 = math.log(4)
    assert ref.cross_entropy(logits, labels) == approx(log_4)
    assert ref.brier_loss(logits, labels) == approx(9 / 16 + 3 / 16)
    assert ref.brier_loss(logits, torch.full((3, 4), 0.25)) == approx(0.0, abs=1e-30)
    assert ref.focal(logits, labels, 2.0) == approx(9 / 16 * log_4)
    assert ref.confidence_penalty(logits, labels, 0.3) == approx(0.7 * log_4)
    assert ref.label_smoothing(logits, labels, 0.3) == approx(log_4)
    # One of three hits (of equal logits the first is the top class): each pair weighs 1.
    assert ref.mmce_squared(logits, labels) == approx((1 / 3 - 1 / 4) ** 2)
    assert ref.weighted_mmce_squared(logits, labels) == approx((3 / 4 - 1 / 4) ** 2)


def test_saturated_logits_by_hand() -> None:
    logits = torch.tensor([[1000.0, 0.0, 0.0]] * 4, dtype=torch.float64)
    right, wrong = torch.zeros(4, dtype=torch.int64), torch.ones(4, dtype=torch.int64)
    for labels, ce, brier, gap in ((right, 0.0, 0.0, 0.0), (wrong, 1000.0, 2.0, 1.0)):
        assert ref.cross_entropy(logits, labels) == approx(ce)
        assert ref.brier_loss(logits, labels) == approx(brier)
        assert ref.focal(logits, labels, 0.5) == approx(ce)
        assert ref.confidence_penalty(logits, labels, 0.1) == approx(ce)
        assert ref.mmce_loss(logits, labels, 2.0) == approx(ce)
        assert ref.mmce_squared(logits, labels) == approx(gap)
        assert ref.dece(logits, labels, released=False) == approx(gap, abs=1e-12)
        assert ref.lambert_gammas(logits, labels, 0.25) == approx([3.07022710151 * gap] * 4)
    assert ref.label_smoothing(logits, right, 0.3) == approx(200.0)


def test_brier_is_exact_close_to_certainty() -> None:
    """p = (1 - q, q) with q = e^-40: 2 q^2, though p_0 rounds to 1."""
    assert ref.brier_loss(torch.tensor([[40.0, 0.0]]), torch.tensor([0])) == approx(
        2 * math.exp(-80), rel=1e-12
    )


@every_shape
def test_brier_is_the_metric(shape: tuple[int, int, float]) -> None:
    logits, labels = random_case(shape)
    assert ref.brier_loss(logits, labels) == approx(ref.brier(logits, labels), rel=1e-12, abs=1e-30)


def test_soft_targets_by_hand() -> None:
    logits, target = (
        logits_of([0.5, 0.3, 0.2]),
        torch.tensor([[0.6, 0.0, 0.4]], dtype=torch.float64),
    )
    ce = -0.6 * math.log(0.5) - 0.4 * math.log(0.2)
    assert ref.cross_entropy(logits, target) == approx(ce)
    assert ref.brier_loss(logits, target) == approx(0.1**2 + 0.3**2 + 0.2**2)
    entropy = -0.5 * math.log(0.5) - 0.3 * math.log(0.3) - 0.2 * math.log(0.2)
    assert ref.confidence_penalty(logits, target, 0.7) == approx(ce - 0.7 * entropy)
    flat = -math.log(0.5 * 0.3 * 0.2) / 3
    assert ref.label_smoothing(logits, target, 0.25) == approx(0.75 * ce + 0.25 * flat)


def test_mixup_mixes_each_input_with_its_partner() -> None:
    inputs = torch.arange(12, dtype=torch.float64).view(3, 2, 2)
    mixed = ref.mixed_inputs(inputs, 0.25, [2, 0, 1])
    assert mixed == approx(
        np.array([0.25 * inputs[i] + 0.75 * inputs[j] for i, j in ((0, 2), (1, 0), (2, 1))])
    )
    assert ref.mixed_inputs(inputs, 1.0, [2, 0, 1]) == approx(inputs.numpy())


@pytest.mark.parametrize("name", ["A", "B"])
def test_mmce_with_a_wide_kernel_is_squared_means(name: str) -> None:
    logits, labels, _ = INPUTS[name]
    confidences, top = torch.softmax(logits.double(), -1).max(-1)
    hit = top == labels
    bias = (hit.double().mean() - confidences.mean()).item()
    assert ref.mmce_squared(logits, labels, 1e9) == approx(bias**2, rel=1e-6)
    difference = ((1 - confidences[hit]).mean() - confidences[~hit].mean()).item()
    assert ref.weighted_mmce_squared(logits, labels, 1e9) == approx(difference**2, rel=1e-6)


def test_mmce_with_a_narrow_kernel_is_each_sample_alone() -> None:
    logits, labels, _ = input_b()
    confidences, top = torch.softmax(logits, -1).max(-1)
    hit = top == labels
    residuals = (hit.double() - confidences).square()
    assert ref.mmce_squared(logits, labels, 1e-9) == approx(residuals.mean().item() / 200, rel=1e-6)
    alone = residuals[hit].mean() / hit.sum() + residuals[~hit].mean() / (~hit).sum()
    assert ref.weighted_mmce_squared(logits, labels, 1e-9) == approx(alone.item(), rel=1e-6)


def test_mmce_of_two_samples_by_hand() -> None:
    """Confidences .9 (right) and .6 (wrong), .3 apart: k = e^-.75 at width .4."""
    logits, labels, k = logits_of([0.9, 0.1], [0.6, 0.4]), torch.tensor([0, 1]), math.exp(-0.75)
    assert ref.mmce_squared(logits, labels) == approx((0.01 + 0.36 - 2 * 0.06 * k) / 4)
    weighted = 0.01 + 0.36 - 2 * 0.06 * k
    assert ref.weighted_mmce_squared(logits, labels) == approx(weighted)
    released = ref.weighted_mmce_squared(logits, labels, normalisation="released")
    assert released == approx(weighted / (1 + 1e-5))
    ce = -(math.log(0.9) + math.log(0.4)) / 2
    assert ref.mmce_loss(logits, labels, 2.0) == approx(ce + 2 * math.sqrt(weighted + 1e-10))


@pytest.mark.parametrize("name", ["A", "B"])
def test_dece_of_sharp_bins_and_hits_is_ece(name: str) -> None:
    """But for the 1e-6 that each of the bins gets of every sample."""
    logits, labels, _ = INPUTS[name]
    sharp = ref.dece(logits, labels, 15, 1e9, 1e-9, released=False)
    assert sharp == approx(ref.ece(logits, labels, 15), abs=2e-5)


def test_dece_normaliser_is_a_factor() -> None:
    logits, labels, _ = input_b()
    ratio = ref.dece(logits, labels) / ref.dece(logits, labels, released=False)
    assert ratio == approx((1 + 15e-6) / (1 + 16e-6), abs=1e-12)


def test_dece_of_one_sample_by_hand() -> None:
    """Confidence .51, true class behind by .02: hit 1 - sigmoid(2), the gap spread
    over bins that sum to 1."""
    gap = 1 - 1 / (1 + math.exp(-2.0)) - 0.51
    value = ref.dece(logits_of([0.51, 0.49]), torch.tensor([1]), released=False)
    assert value == approx(abs(gap), rel=1e-9)
    # Two bins, c = .5: equal shares, and equal halves of the gap.
    assert soft_gaps([0.0, 0.0], 0, 2, 100.0, 0.01, released=False) == approx([0.0, 0.0])
    assert soft_gaps([0.0, 0.0, -1e3], 2, 2, 1e3, 0.01, released=False) == approx([-0.25, -0.25])
