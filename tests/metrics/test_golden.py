"""Metrics against the rows of golden.json: what public implementations
returned on inputs A and B."""

from collections.abc import Callable

import pytest
import torch
from pytest import approx
from torch import Tensor

from benchmarks.compare import conventions
from tests.golden import GOLDEN, INPUTS
from trainables.metrics import (
    binned,
    classwise,
    kernel,
    out_of_distribution,
    scores,
    smooth,
    sweep,
)

Metric = Callable[[Tensor, Tensor], Tensor]

# Rows of golden.json under metrics, by the function of ours that must give them. Rows
# of peers whose bins are
# [lo, hi), or that drop what lies on an edge, stand here too: no confidence of
# A or B lies on an edge.
ECE, MCE = binned.expected_calibration_error, binned.maximum_calibration_error
ADAPTIVE, CLASSWISE = binned.adaptive_calibration_error, classwise.classwise_calibration_error


def _as(convention: str) -> Metric:
    return lambda logits, labels: conventions.CONVENTIONS[convention].value(logits, labels, 15)


def _swept(sweeping: Callable[[Tensor, Tensor], tuple[Tensor, int]]) -> Metric:
    return lambda logits, labels: torch.tensor([float(found) for found in sweeping(logits, labels)])


ROWS: dict[str, Metric] = {
    "n,K,acc,mean_conf,n_conf_eq_1": lambda z, y: torch.tensor([*z.shape, scores.accuracy(z, y)]),
    "ECE15 torrvision/gpleiss (lo,hi] torch": _as("torrvision"),
    "ECE15 torrvision numpy ceil-bin": _as("torrvision_numpy"),
    "ECE15 Jonathan-Pearce": ECE,
    "ECE15 netcal": _as("netcal"),
    "ECE15 torchmetrics l1": _as("torchmetrics"),
    "ECE15 torchmetrics l1 float64": ECE,
    "ECE15 pycalib conf_ECE": ECE,
    "ECE15 verified_calibration get_ece": ECE,
    "ECE15 google gce even": _as("google"),
    "ECE15 sample-prioritization [lo,hi)": _as("sample_prioritization"),
    "ECE10 netcal": lambda z, y: ECE(z, y, bins=10),
    "MCE15 torrvision": MCE,
    "MCE15 netcal": MCE,
    "MCE15 torchmetrics max": MCE,
    "MCE15 Jonathan-Pearce": MCE,
    "ACEavg15 torrvision average_calibration_error": binned.average_calibration_error,
    "ACEavg15 netcal ACE": binned.average_calibration_error,
    "AdaECE15 torrvision": _as("torrvision_adaptive"),
    "AdaECE15 torch-uncertainty": ADAPTIVE,
    "AdaECE15 verified get_ece_em": ADAPTIVE,
    "AdaECE15 netcal equal_intervals=False": _as("netcal_adaptive"),
    "AdaECE15 google gce adaptive top-label": _as("google_adaptive"),
    "cwECE15 torrvision": _as("torrvision_classwise"),
    "SCE15 google": CLASSWISE,
    "cwECE15 verified p=1 marginal equal-width": CLASSWISE,
    "TACE15 t=0.01 google": _as("google_tace"),
    "RMSCE15 equal-width torchmetrics l2": binned.root_mean_square_calibration_error,
    "RMSCE15 torrvision l2_error": binned.root_mean_square_calibration_error,
    "L2 plugin top-label equal-mass15 (Kumar)": binned.l2_calibration_error,
    "L2 debiased top-label equal-mass15 (Kumar)": binned.debiased_l2_calibration_error,
    "L2 debiased marginal equal-mass15 (Kumar)": classwise.debiased_l2_marginal_error,
    "ECE-sweep _em_monotonic_sweep (l1, bins)": _swept(sweep.equal_mass_sweep),
    "ECE-sweep _ew_monotonic_sweep (l1, bins)": _swept(sweep.equal_width_sweep),
    "MMCE metric netcal sqrt": kernel.maximum_mean_calibration_error,
    "NLL mean": scores.negative_log_likelihood,
    "Brier sum_K mean_N": scores.brier_score,
    "Brier mean_NK (pycalib)": lambda z, y: scores.brier_score(z, y) / z.shape[1],
    "error": scores.error,
    "top5 acc": scores.top5_accuracy,
}
# Rows that mean the same as a metric of ours and differ from it by choice: our function, by how
# much on A or B at least, and why.
DIFFERENT: dict[str, tuple[Metric, float, str]] = {
    "cwECE15 (SCE) Jonathan-Pearce": (
        CLASSWISE,
        0.1,
        "one-hot against one-hot: true negatives count as hits",
    ),
    "TACE15 t=0.01 Jonathan-Pearce": (
        _as("google_tace"),
        0.01,
        "zeroes the rest, and counts true negatives",
    ),
    "L1 normal-debiased top-label equal-mass15 (np.random.seed(0))": (
        ADAPTIVE,
        1e-3,
        "a bias drawn at random; see L2",
    ),
    "smECE relplot (value,width)": (
        smooth.smooth_calibration_error,
        1e-3,
        "cells that count the boundary once",
    ),
    "smECE_sigma 0.05 / 0.1 relplot": (
        lambda z, y: smooth.smooth_calibration_error_at(z, y, 0.05),
        1e-4,
        "cells that count the boundary once",
    ),
}
# Rows under other.
OTHER: dict[str, Callable[[], list[float]]] = {
    "smECE exact fixed point A": lambda: _values("A", smooth.smooth_calibration_error),
    "smECE exact fixed point B": lambda: _values("B", smooth.smooth_calibration_error),
    "smECE exact sigma .05/.1 A": lambda: _values("A", *_at_sigmas),
    "smECE exact sigma .05/.1 B": lambda: _values("B", *_at_sigmas),
    "SKCE A laplacian L2 nu=0.5 (biased V,unbiased,linear pairs)": lambda: _values("A", *_whole),
    "SKCE B laplacian L2 nu=0.5 (biased V,unbiased,linear pairs)": lambda: _values("B", *_whole),
    "top-label kernel CE A nu=.4 (biased == torrvision MMCE_m, unbiased)": lambda: _values(
        "A", *_top
    ),
    "top-label kernel CE B nu=.4 (biased == torrvision MMCE_m, unbiased)": lambda: _values(
        "B", *_top
    ),
    "AUROC ood=A id=B entropy / 1-msp": lambda: [
        float(out_of_distribution.auroc(score(INPUTS["B"].logits), score(INPUTS["A"].logits)))
        for score in out_of_distribution.SCORES.values()
    ],
    "exact entropy nats A first5": (
        lambda: out_of_distribution.entropy(INPUTS["A"].logits)[:5].tolist()
    ),
}
ELSEWHERE = {
    "csp": "sample_prioritization's scores",
    "exact top10": "sample_prioritization's scores",
    "max |csp": "sample_prioritization's scores",
    "mixup": "a method",
    "MMCE_w": "a loss",
    "ECE-KDE": (
        "no metric of ours: NaN at p = 0, and a bandwidth to choose; smooth ECE and SKCE have"
        " neither"
    ),
    "verified bootstrap": "an interval, not a metric",
}
_at_sigmas = [
    lambda z, y: smooth.smooth_calibration_error_at(z, y, 0.05),
    lambda z, y: smooth.smooth_calibration_error_at(z, y, 0.1),
]
_whole = [
    kernel.kernel_calibration_error,
    kernel.kernel_calibration_error_unbiased,
    kernel.kernel_calibration_error_linear,
]
_top = [kernel.top_label_kernel_error, kernel.top_label_kernel_error_unbiased]


def _values(name: str, *functions: Metric) -> list[float]:
    logits, labels, _ = INPUTS[name]
    return [function(logits, labels).item() for function in functions]


@pytest.mark.parametrize("name", ["A", "B"])
@pytest.mark.parametrize("row", ROWS)
def test_golden_row(name: str, row: str) -> None:
    logits, labels, tolerance = INPUTS[name]
    expected = GOLDEN["metrics"][name][row]
    expected = expected[:3] if isinstance(expected, list) else expected
    assert ROWS[row](logits, labels).tolist() == approx(expected, abs=tolerance)


@pytest.mark.parametrize("row", DIFFERENT)
def test_rows_said_to_differ_do(row: str) -> None:
    function, least, reason = DIFFERENT[row]
    gaps = []
    for name, (logits, labels, _) in INPUTS.items():
        theirs = GOLDEN["metrics"][name][row]
        gaps.append(
            abs(
                function(logits, labels).item()
                - (theirs[0] if isinstance(theirs, list) else theirs)
            )
        )
    assert max(gaps) > least, reason


@pytest.mark.parametrize("row", OTHER)
def test_other_row(row: str) -> None:
    expected = GOLDEN["other"][row]
    assert OTHER[row]() == approx(expected if isinstance(expected, list) else [expected], abs=1e-6)


@pytest.mark.parametrize("name", ["A", "B"])
def test_every_golden_row_is_tested_or_accounted_for(name: str) -> None:
    assert sorted([*ROWS, *DIFFERENT]) == sorted(GOLDEN["metrics"][name])


def test_every_other_row_is_tested_or_accounted_for() -> None:
    assert {row for row in GOLDEN["other"] if not row.startswith(tuple(ELSEWHERE))} == set(OTHER)
