"""Metrics against their slow definitions, values by hand, and the rows of golden.json."""

import math
from collections.abc import Callable

import pytest
import torch
from pytest import approx
from torch import Tensor

from tests import references
from tests.cases import every_shape, logits_of, random_case
from tests.golden import GOLDEN, INPUTS, edge_vector
from trainables import metrics

Metric = Callable[[Tensor, Tensor], Tensor]
BINNED = {
    "ece": (metrics.expected_calibration_error, references.ece),
    "mce": (metrics.maximum_calibration_error, references.mce),
    "adaptive_ece": (metrics.adaptive_calibration_error, references.adaptive_ece),
    "classwise_ece": (metrics.classwise_calibration_error, references.classwise_ece),
}
PLAIN = {
    "accuracy": (metrics.accuracy, references.accuracy),
    "error": (metrics.error, references.error),
    "nll": (metrics.negative_log_likelihood, references.nll),
    "brier": (metrics.brier_score, references.brier),
}
NAMES = [*PLAIN, *BINNED, "top5_accuracy"]

# Rows of golden.json under metrics, by the function of ours that must give them. Rows of peers whose bins are
# [lo, hi), or that drop what lies on an edge, stand here too: no confidence of A or B lies on an edge.
ECE, MCE = metrics.expected_calibration_error, metrics.maximum_calibration_error
ADAPTIVE, CLASSWISE = metrics.adaptive_calibration_error, metrics.classwise_calibration_error
ROWS: dict[str, Metric] = {
    "n,K,acc,mean_conf,n_conf_eq_1": lambda z, y: torch.tensor([*z.shape, metrics.accuracy(z, y)]),
    "ECE15 torrvision/gpleiss (lo,hi] torch": ECE,
    "ECE15 torrvision numpy ceil-bin": ECE,
    "ECE15 Jonathan-Pearce": ECE,
    "ECE15 netcal": ECE,
    "ECE15 torchmetrics l1": ECE,
    "ECE15 torchmetrics l1 float64": ECE,
    "ECE15 pycalib conf_ECE": ECE,
    "ECE15 verified_calibration get_ece": ECE,
    "ECE15 google gce even": ECE,
    "ECE15 sample-prioritization [lo,hi)": ECE,
    "ECE10 netcal": lambda z, y: ECE(z, y, bins=10),
    "MCE15 torrvision": MCE,
    "MCE15 netcal": MCE,
    "MCE15 torchmetrics max": MCE,
    "MCE15 Jonathan-Pearce": MCE,
    "AdaECE15 torch-uncertainty": ADAPTIVE,
    "AdaECE15 verified get_ece_em": ADAPTIVE,
    "cwECE15 torrvision": CLASSWISE,
    "SCE15 google": CLASSWISE,
    "cwECE15 verified p=1 marginal equal-width": CLASSWISE,
    "NLL mean": metrics.negative_log_likelihood,
    "Brier sum_K mean_N": metrics.brier_score,
    "Brier mean_NK (pycalib)": lambda z, y: metrics.brier_score(z, y) / z.shape[1],
    "error": metrics.error,
    "top5 acc": metrics.top5_accuracy,
}
# Rows that mean the same as a metric of ours and differ from it by choice: our function, and why.
DIFFERENT: dict[str, tuple[Metric, str]] = {
    "AdaECE15 torrvision": (ADAPTIVE, "edges by interpolation: the least confident sample is in no bin"),
    "AdaECE15 netcal equal_intervals=False": (
        ADAPTIVE,
        "edges at quantiles: no answer where confidences tie",
    ),
    "AdaECE15 google gce adaptive top-label": (ADAPTIVE, "bins of other sizes than array_split's"),
    "cwECE15 (SCE) Jonathan-Pearce": (CLASSWISE, "one-hot against one-hot: true negatives count as hits"),
    "TACE15 t=0.01 Jonathan-Pearce": (CLASSWISE, "zeroes probabilities up to .01, and counts true negatives"),
    "TACE15 t=0.01 google": (CLASSWISE, "drops probabilities up to .01 from N"),
    "ACEavg15 torrvision average_calibration_error": (ECE, "bins of any size weigh the same"),
    "ACEavg15 netcal ACE": (ECE, "bins of any size weigh the same"),
    "RMSCE15 equal-width torchmetrics l2": (ECE, "root of mean squared gaps"),
    "RMSCE15 torrvision l2_error": (ECE, "root of mean squared gaps"),
}
NOT_BUILT = {
    "L2 plugin top-label equal-mass15 (Kumar)": "debiased L2",
    "L2 debiased top-label equal-mass15 (Kumar)": "debiased L2",
    "L2 debiased marginal equal-mass15 (Kumar)": "debiased L2",
    "L1 normal-debiased top-label equal-mass15 (np.random.seed(0))": "debiased L1",
    "ECE-sweep _em_monotonic_sweep (l1, bins)": "sweep",
    "ECE-sweep _ew_monotonic_sweep (l1, bins)": "sweep",
    "smECE relplot (value,width)": "smECE",
    "smECE_sigma 0.05 / 0.1 relplot": "smECE",
    "MMCE metric netcal sqrt": "kernel calibration error",
}


@pytest.mark.parametrize("name", ["A", "B"])
@pytest.mark.parametrize("row", ROWS)
def test_golden_row(name: str, row: str) -> None:
    logits, labels, tolerance = INPUTS[name]
    expected = GOLDEN["metrics"][name][row]
    expected = expected[:3] if isinstance(expected, list) else expected
    assert ROWS[row](logits, labels).tolist() == approx(expected, abs=tolerance)


@pytest.mark.parametrize("row", DIFFERENT)
def test_rows_said_to_differ_do(row: str) -> None:
    function, reason = DIFFERENT[row]
    gaps = [abs(function(z, y).item() - GOLDEN["metrics"][name][row]) for name, (z, y, _) in INPUTS.items()]
    assert max(gaps) > 1e-3, reason


@pytest.mark.parametrize("name", ["A", "B"])
def test_every_golden_row_is_tested_or_accounted_for(name: str) -> None:
    assert sorted([*ROWS, *DIFFERENT, *NOT_BUILT]) == sorted(GOLDEN["metrics"][name])


@every_shape
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", PLAIN)
def test_matches_its_definition(name: str, seed: int, shape: tuple[int, int, float]) -> None:
    logits, labels = random_case(shape, seed)
    ours, definition = PLAIN[name]
    assert ours(logits, labels).item() == approx(definition(logits, labels), rel=1e-9, abs=1e-12)


@every_shape
@pytest.mark.parametrize("bins", [1, 2, 10, 15, 100])
@pytest.mark.parametrize("name", BINNED)
def test_binned_matches_its_definition(name: str, bins: int, shape: tuple[int, int, float]) -> None:
    logits, labels = random_case(shape)
    ours, definition = BINNED[name]
    expected = definition(logits, labels, bins)
    assert ours(logits, labels, bins=bins).item() == approx(expected, rel=1e-9, abs=1e-12)


def test_top5_matches_its_definition() -> None:
    logits, labels = random_case((200, 12, 1.0))
    assert 0.5 < references.top5_accuracy(logits, labels) < 1.0
    assert metrics.top5_accuracy(logits, labels).item() == approx(references.top5_accuracy(logits, labels))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_value_is_that_of_the_logits_in_float64(name: str, dtype: torch.dtype) -> None:
    function = metrics.top5_accuracy if name == "top5_accuracy" else {**PLAIN, **BINNED}[name][0]
    logits, labels = random_case((40, 10, 5.0))
    value = function(logits.to(dtype), labels)
    assert value.dtype == torch.float64 and value.shape == ()
    assert value.item() == approx(function(logits.to(dtype).double(), labels).item(), rel=1e-12)


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
    """Two bins: .5 (wrong) in (0, .5], .75 (right) in (.5, 1]. In [.5, 1] both would share |.5 - .625|."""
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
    assert metrics.accuracy(logits, right).item() == 1.0 and metrics.error(logits, right).item() == 0.0
    assert metrics.accuracy(logits, wrong).item() == 0.0 and metrics.error(logits, wrong).item() == 1.0


def test_two_classes_by_hand() -> None:
    logits, label = logits_of([0.75, 0.25]), torch.tensor([0])
    assert metrics.negative_log_likelihood(logits, label).item() == approx(math.log(4 / 3), rel=1e-12)
    assert metrics.brier_score(logits, label).item() == approx(0.25**2 + 0.25**2, rel=1e-12)
    assert CLASSWISE(logits, label).item() == approx(0.25, rel=1e-12)


def test_nll_and_brier_where_the_probability_underflows() -> None:
    logits, labels = torch.tensor([[0.0, 2000.0]]), torch.tensor([0])
    assert metrics.negative_log_likelihood(logits, labels).item() == approx(2000.0)
    assert metrics.brier_score(logits, labels).item() == approx(2.0)


def test_classwise_counts_a_class_no_label_shows() -> None:
    """Three classes, labels 0 and 1 only: gaps .4, .2 and .2 over three classes, not two."""
    logits, labels = logits_of([0.6, 0.2, 0.2], [0.2, 0.6, 0.2]), torch.tensor([0, 1])
    # Classes 0 and 1 each: .2 against 0 and .6 against 1, halved; class 2: .2 against 0 twice.
    assert CLASSWISE(logits, labels).item() == approx((0.3 + 0.3 + 0.2) / 3, rel=1e-12)


def test_equal_logits_go_to_the_lower_class() -> None:
    logits, labels = torch.zeros(6, 6), torch.arange(6)
    assert metrics.accuracy(logits, labels).item() == approx(1 / 6)
    assert metrics.accuracy(logits, torch.zeros(6, dtype=torch.int64)).item() == 1.0
    assert metrics.top5_accuracy(logits, labels).item() == approx(5 / 6)
    assert metrics.top5_accuracy(logits, torch.full((6,), 5)).item() == 0.0


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
    """Sixty samples at confidence .5, half of them right: perfectly calibrated, whatever their order."""
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


def test_evaluate_holds_every_metric() -> None:
    logits, labels = random_case((40, 10, 5.0))
    values = metrics.evaluate(logits, labels, bins=10)
    expected = {name: definition(logits, labels) for name, (_, definition) in PLAIN.items()}
    expected |= {name: definition(logits, labels, 10) for name, (_, definition) in BINNED.items()}
    expected["top5_accuracy"] = references.top5_accuracy(logits, labels)
    assert all(type(value) is float for value in values.values())
    assert values == approx(expected, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(("classes", "present"), [(2, False), (5, False), (6, True)])
def test_top5_is_absent_for_five_classes_or_fewer(classes: int, present: bool) -> None:
    values = metrics.evaluate(*random_case((20, classes, 1.0)))
    assert ("top5_accuracy" in values) == present


def test_names() -> None:
    assert sorted(metrics.names()) == sorted([*NAMES, *(f"ts_{name}" for name in NAMES)])
