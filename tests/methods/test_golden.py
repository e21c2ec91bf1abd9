"""Losses against the rows of golden.json: what public implementations returned on inputs A and B."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from pytest import approx
from torch import Tensor

from tests.golden import GOLDEN, INPUTS
from trainables.methods.cross_entropy import cross_entropy_loss
from trainables.methods.focal import focal_loss
from trainables.methods.label_smoothing import label_smoothing_loss
from trainables.methods.mbls import mbls_loss
from trainables.methods.sece import smooth_ece

Loss = Callable[[Tensor, Tensor], Tensor]
GAMMAS, EPSILONS, MARGINS = (0.5, 1.0, 2.0, 3.0, 5.0), (0.05, 0.1), (0.0, 5.0, 6.0, 8.0, 10.0)
BANDWIDTHS = (0.01, 0.05, 0.1, 0.5)


def _summed(loss: Loss) -> Loss:
    return lambda logits, labels: len(logits) * loss(logits, labels)


def _margin_sum(margin: float) -> Loss:
    """The paper's sum over K = 10 classes: our mean at ten times the weight."""
    return lambda logits, labels: mbls_loss(logits, labels, margin, 10.0) - mbls_loss(logits, labels, margin, 0.0)


def _gradient_norm(logits: Tensor, labels: Tensor) -> Tensor:
    leaf = logits.clone().requires_grad_()
    norm: Tensor = torch.autograd.grad(smooth_ece(leaf, labels, 0.1), leaf)[0].norm()
    return norm


ROWS: dict[str, Loss] = {  # where a row holds several numbers, its first is meant
    "ce_mean": cross_entropy_loss,
    "ce_sum": _summed(cross_entropy_loss),
    **{f"focal_sum_gamma{g} (torrvision)": _summed(partial(focal_loss, gamma=g)) for g in GAMMAS},
    **{f"focal_mean_gamma{g} (torch-uncertainty)": partial(focal_loss, gamma=g) for g in GAMMAS},
    **{f"LS_K a={e} (MbLS)": partial(label_smoothing_loss, epsilon=e) for e in EPSILONS},
    **{f"LS_K a={e} (torch)": partial(label_smoothing_loss, epsilon=e) for e in EPSILONS},
    # That convention spreads epsilon over the K - 1 wrong classes: ours at epsilon K / (K - 1).
    **{f"LS_Km1 a={e} (MDCA)": partial(label_smoothing_loss, epsilon=e * 10 / 9) for e in EPSILONS},
    **{f"MbLS m={m} a=0.1 (total,ce,margin_mean_NK)": partial(mbls_loss, margin=m, weight=0.1) for m in MARGINS},
    **{f"MbLS m={m} margin sum_K mean_N": _margin_sum(m) for m in MARGINS},
}
NOT_BUILT = {
    "brier_sumK_meanN": "brier",
    "brier_mean_NK": "brier",
    "FLSD-53_sum (torrvision)": "focal_sample_dependent",
    "FLSD-53_mean": "focal_sample_dependent",
    "FLSD-532_sum (torrvision)": "focal_sample_dependent",
    "FLSD-532_mean": "focal_sample_dependent",
    "flsd_counts lt0.2/0.2-0.5/ge0.5": "focal_sample_dependent",
    "ECP a=0.1 (MbLS total, ce, entropy_mean_over_NK)": "confidence_penalty",
    "ECP w=0.1 (torch-uncertainty: CE+w*(logK-H))": "confidence_penalty",
    "ECP netcal mean/batchmean": "confidence_penalty",
    "entropy_mean_nats": "confidence_penalty",
    "MMCE_m (torrvision: sum/N^2, no sqrt)": "mmce",
    "MMCE_w (torrvision, double-normalised)": "mmce",
    "MMCE_w (netcal penalty, single-normalised)": "mmce",
    "MDCA": "no method of ours",
    "DCA (netcal)": "no method of ours",
    "DECE bins=15 ta=100.0 tb=0.01 (metacal) value,gradL2": "dece",
    "DECE bins=10 ta=100.0 tb=0.01 (metacal) value,gradL2": "dece",
    "DECE bins=15 ta=10.0 tb=0.1 (metacal) value,gradL2": "dece",
}

SECE_ROWS: dict[str, Loss] = {
    "mean|a-c|": partial(smooth_ece, bandwidth=1e-9),
    "mean|abar-c|": partial(smooth_ece, bandwidth=1e6),
    "NW h=0.1 gradL2": _gradient_norm,
    **{f"h={h} NW_selfincluded": partial(smooth_ece, bandwidth=h) for h in BANDWIDTHS},
    **{f"h={h} NW_leave1out": partial(smooth_ece, bandwidth=h, self_weight=False) for h in BANDWIDTHS},
}
SECE_DIFFERENT = {
    "ece15": "the binned error, a metric: test_metrics.py",
    **{f"h={h} literal_sum": "weights not normalised: it grows with N" for h in BANDWIDTHS},
    **{f"h={h} kde_1/(Mh)": "a density, not a weighted mean: above 1 on B at h = .1" for h in BANDWIDTHS},
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
@pytest.mark.parametrize("row", SECE_ROWS)
def test_sece_row(name: str, row: str) -> None:
    logits, labels, tolerance = INPUTS[name]
    expected = GOLDEN["sece"][f"{name} {row}"]
    assert SECE_ROWS[row](logits, labels).item() == approx(expected, rel=tolerance)


@pytest.mark.parametrize("name", ["A", "B"])
def test_every_row_is_tested_or_accounted_for(name: str) -> None:
    assert sorted([*ROWS, *NOT_BUILT]) == sorted(GOLDEN["losses"][name])
    ours = [row.removeprefix(f"{name} ") for row in GOLDEN["sece"] if row.startswith(f"{name} ")]
    assert sorted([*SECE_ROWS, *SECE_DIFFERENT]) == sorted(ours)
