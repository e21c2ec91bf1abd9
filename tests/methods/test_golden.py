"""Losses against the rows of golden.json: what public implementations returned on inputs A and
B."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from pytest import approx
from torch import Tensor

from tests.golden import GOLDEN, INPUTS
from trainables.methods.brier import brier_loss
from trainables.methods.confidence_penalty import confidence_penalty_loss, entropy
from trainables.methods.cross_entropy import cross_entropy_loss
from trainables.methods.dca import confidence_difference
from trainables.methods.dece import differentiable_ece
from trainables.methods.focal import focal_loss
from trainables.methods.focal_sample_dependent import sample_gamma
from trainables.methods.label_smoothing import label_smoothing_loss
from trainables.methods.mbls import mbls_loss
from trainables.methods.mdca import multiclass_difference
from trainables.methods.mmce import mmce_penalty
from trainables.methods.sece import smooth_ece

Loss = Callable[[Tensor, Tensor], Tensor]
# (bins, tau_a, tau_b). Their peer computes in float32 and adds 1e-6 to every soft
# bin: together up to 2e-5.
DECE_TOLERANCE = 2e-5
DECE: dict[str, Loss] = {
    f"DECE bins={bins} ta={tau_a} tb={tau_b} (metacal) value,gradL2": partial(
        differentiable_ece, bins=bins, tau_a=tau_a, tau_b=tau_b
    )
    for bins, tau_a, tau_b in ((15, 100.0, 0.01), (10, 100.0, 0.01), (15, 10.0, 0.1))
}
GAMMAS, EPSILONS, MARGINS = (0.5, 1.0, 2.0, 3.0, 5.0), (0.05, 0.1), (0.0, 5.0, 6.0, 8.0, 10.0)
BANDWIDTHS = (0.01, 0.05, 0.1, 0.5)


def _summed(loss: Loss) -> Loss:
    return lambda logits, labels: len(logits) * loss(logits, labels)


def _margin_sum(margin: float) -> Loss:
    """The paper's sum over K = 10 classes: our mean at ten times the weight."""
    return lambda logits, labels: (
        mbls_loss(logits, labels, margin, 10.0) - mbls_loss(logits, labels, margin, 0.0)
    )


def _gradient_norm(loss: Loss, logits: Tensor, labels: Tensor) -> Tensor:
    leaf = logits.clone().requires_grad_()
    norm: Tensor = torch.autograd.grad(loss(leaf, labels), leaf)[0].norm()
    return norm


def _sample_dependent(schedule: str) -> Loss:
    return lambda logits, labels: focal_loss(logits, labels, sample_gamma(logits, labels, schedule))


def _log_k_less_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """torch-uncertainty's penalty log K - H has ours' gradient and another offset."""
    return confidence_penalty_loss(logits, labels, 0.1) + 0.1 * math.log(logits.shape[1])


def _mean_over_classes(logits: Tensor, labels: Tensor) -> Tensor:
    """netcal's `mean`, of the penalty alone."""
    return 0.1 * entropy(logits).mean() / logits.shape[1]


ROWS: dict[str, Loss] = {  # where a row holds several numbers, its first is meant
    "ce_mean": cross_entropy_loss,
    "ce_sum": _summed(cross_entropy_loss),
    **{f"focal_sum_gamma{g} (torrvision)": _summed(partial(focal_loss, gamma=g)) for g in GAMMAS},
    **{f"focal_mean_gamma{g} (torch-uncertainty)": partial(focal_loss, gamma=g) for g in GAMMAS},
    **{f"LS_K a={e} (MbLS)": partial(label_smoothing_loss, epsilon=e) for e in EPSILONS},
    **{f"LS_K a={e} (torch)": partial(label_smoothing_loss, epsilon=e) for e in EPSILONS},
    # That convention spreads epsilon over the K - 1 wrong classes: ours at epsilon K / (K - 1).
    **{f"LS_Km1 a={e} (MDCA)": partial(label_smoothing_loss, epsilon=e * 10 / 9) for e in EPSILONS},
    **{
        f"MbLS m={m} a=0.1 (total,ce,margin_mean_NK)": partial(mbls_loss, margin=m, weight=0.1)
        for m in MARGINS
    },
    "brier_sumK_meanN": brier_loss,
    "brier_mean_NK": lambda logits, labels: brier_loss(logits, labels) / logits.shape[1],
    "FLSD-53_sum (torrvision)": _summed(_sample_dependent("flsd_53")),
    "FLSD-53_mean": _sample_dependent("flsd_53"),
    "FLSD-532_sum (torrvision)": _summed(_sample_dependent("flsd_532")),
    "FLSD-532_mean": _sample_dependent("flsd_532"),
    # Over the 10 classes too, in MbLS's code: a tenth of our weight.
    "ECP a=0.1 (MbLS total, ce, entropy_mean_over_NK)": partial(
        confidence_penalty_loss, weight=0.01
    ),
    "ECP w=0.1 (torch-uncertainty: CE+w*(logK-H))": _log_k_less_entropy,
    "ECP netcal mean/batchmean": _mean_over_classes,
    "entropy_mean_nats": lambda logits, labels: entropy(logits).mean(),
    "MMCE_w (netcal penalty, single-normalised)": partial(mmce_penalty, kernel_width=0.4),
    "MMCE_w (torrvision, double-normalised)": partial(
        mmce_penalty, kernel_width=0.4, normalization="released_code"
    ),
    **{f"MbLS m={m} margin sum_K mean_N": _margin_sum(m) for m in MARGINS},
    "MDCA": multiclass_difference,
    "DCA (netcal)": confidence_difference,
}
ELSEWHERE = {
    "flsd_counts lt0.2/0.2-0.5/ge0.5": "three numbers: test_focal_sample_dependent.py",
    "MMCE_m (torrvision: sum/N^2, no sqrt)": "a metric, the top-label kernel error: test_kernel.py",
}

SECE_ROWS: dict[str, Loss] = {
    "mean|a-c|": partial(smooth_ece, bandwidth=1e-9),
    "mean|abar-c|": partial(smooth_ece, bandwidth=1e6),
    "NW h=0.1 gradL2": partial(_gradient_norm, partial(smooth_ece, bandwidth=0.1)),
    **{f"h={h} NW_selfincluded": partial(smooth_ece, bandwidth=h) for h in BANDWIDTHS},
    **{
        f"h={h} NW_leave1out": partial(smooth_ece, bandwidth=h, self_weight=False)
        for h in BANDWIDTHS
    },
    **{
        f"h={h} literal_sum": partial(smooth_ece, bandwidth=h, kernel="as_printed")
        for h in BANDWIDTHS
    },
}
SECE_DIFFERENT = {
    "ece15": "the binned error, a metric: test_metrics.py",
    **{
        f"h={h} kde_1/(Mh)": "a density, not a weighted mean: above 1 on B at h = .1"
        for h in BANDWIDTHS
    },
}


def _first(row: Any) -> float:
    return float(row[0] if isinstance(row, list) else row)


@pytest.mark.parametrize("name", ["A", "B"])
@pytest.mark.parametrize("row", ROWS)
def test_loss_row(name: str, row: str) -> None:
    logits, labels, tolerance = INPUTS[name]
    expected = _first(GOLDEN["losses"][name][row])
    assert ROWS[row](logits, labels).item() == approx(expected, rel=tolerance, abs=tolerance)


@pytest.mark.parametrize("name", ["A", "B"])
@pytest.mark.parametrize("row", DECE)
def test_dece_row(name: str, row: str) -> None:
    logits, labels, _ = INPUTS[name]
    value, norm = DECE[row](logits, labels).item(), _gradient_norm(DECE[row], logits, labels).item()
    assert [value, norm] == approx(GOLDEN["losses"][name][row], rel=DECE_TOLERANCE)


@pytest.mark.parametrize("name", ["A", "B"])
@pytest.mark.parametrize("row", SECE_ROWS)
def test_sece_row(name: str, row: str) -> None:
    logits, labels, tolerance = INPUTS[name]
    expected = GOLDEN["sece"][f"{name} {row}"]
    assert SECE_ROWS[row](logits, labels).item() == approx(expected, rel=tolerance)


@pytest.mark.parametrize("name", ["A", "B"])
def test_every_row_is_tested_or_accounted_for(name: str) -> None:
    assert sorted([*ROWS, *DECE, *ELSEWHERE]) == sorted(GOLDEN["losses"][name])
    ours = [row.removeprefix(f"{name} ") for row in GOLDEN["sece"] if row.startswith(f"{name} ")]
    assert sorted([*SECE_ROWS, *SECE_DIFFERENT]) == sorted(ours)
