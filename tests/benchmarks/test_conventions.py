"""The bins of public implementations: E5 and its exact edges, and NumPy's own functions
where they are used there."""

import math
from collections.abc import Callable
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
import torch
from pytest import approx
from torch import Tensor

from benchmarks.compare import conventions
from tests import references
from tests.cases import logits_of, random_case
from tests.golden import GOLDEN
from trainables.metrics import binned, classwise
from trainables.metrics.scores import top_label

TOP_LABEL = [
    name for name, one in conventions.CONVENTIONS.items() if one.measures in ("ece", "adaptive_ece")
]


def value(name: str, confidence: Tensor, hits: Tensor, bins: int) -> float:
    """A top-label convention of confidences that no logits give exactly."""
    others = ((1 - confidence) / 50)[:, None].expand(-1, 50)
    probs = torch.cat([confidence[:, None], others], dim=1)
    labels = 1 - hits.long()  # class 0 has the confidence
    return conventions.CONVENTIONS[name].value(probs.log(), labels, bins, probs).item()


E5 = {
    "torrvision": ("float64", "torrvision torch (via log-probs)"),
    "torrvision_numpy": ("float32", "torrvision ceil-bin"),
    "netcal": ("float64", "netcal"),
    "torchmetrics": ("float64", "torchmetrics"),
    "google": ("float64", "google gce"),
    "sample_prioritization": ("float64", "sample-prioritization"),
    "torrvision_adaptive": ("float64", "AdaECE torrvision"),
    "torch_uncertainty_adaptive": ("float64", "AdaECE torch-uncertainty"),
}


@pytest.mark.parametrize("name", E5)
def test_edge_vector(name: str) -> None:
    """.6 and .8 lie exactly on edges, 1.0 on the last."""
    confidence = torch.tensor([0.6, 0.6, 0.8, 1.0, 1.0], dtype=torch.float64)
    hits = torch.tensor([1.0, 0.0, 1.0, 1.0, 0.0], dtype=torch.float64)
    dtype, row = E5[name]
    assert value(name, confidence, hits, 5) == approx(
        GOLDEN["edge_vector_E5"][dtype][row], abs=1e-6
    )


def by_numpy(name: str, c: np.ndarray, a: np.ndarray, bins: int) -> float:
    """The rule by the NumPy functions that the implementation calls."""
    n = len(c)
    if name == "torrvision_adaptive":
        edges = np.interp(np.linspace(0, n, bins + 1), np.arange(n), np.sort(c))
        groups = [(c > low) & (c <= high) for low, high in pairwise(edges)]
    elif name == "netcal_adaptive":
        edges = np.quantile(c, np.linspace(0, 1, bins + 1))
        edges[0], edges[-1] = 0.0, 1.0
        sums = [np.histogram(c, edges, weights=a - c)[0]]
        return float(np.abs(sums).sum() / n)
    elif name == "netcal":
        return float(
            np.abs(np.histogram(c, np.linspace(0, 1, bins + 1), weights=a - c)[0]).sum() / n
        )
    else:
        index = np.digitize(c, np.histogram_bin_edges([], bins, (0.0, 1.0))[1:])
        groups = [index == b for b in range(bins + 1)]
    return float(sum(abs((a - c)[group].sum()) for group in groups) / n)


@pytest.mark.parametrize("bins", [1, 2, 5, 15, 100])
@pytest.mark.parametrize("name", ["torrvision_adaptive", "netcal_adaptive", "netcal", "google"])
def test_matches_numpy(name: str, bins: int) -> None:
    for shape in ((7, 3, 1.0), (40, 10, 5.0), (64, 4, 0.1)):
        logits, labels = random_case(shape)
        confidence, hits = (each.numpy() for each in top_label(logits, labels))
        found = conventions.CONVENTIONS[name].value(logits, labels, bins).item()
        assert found == approx(by_numpy(name, confidence, hits, bins), rel=1e-9, abs=1e-12)


ADAPTIVE: dict[str, Callable[[Tensor, Tensor, int], float]] = {
    "google_adaptive": references.google_adaptive,
    "google_tace": references.google_tace,
    "robustness_metrics_adaptive": partial(references.google_adaptive, edge_at_one=True),
    "robustness_metrics_tace": partial(references.google_tace, edge_at_one=True),
}


@pytest.mark.parametrize("name", ADAPTIVE)
@pytest.mark.parametrize("ones", [0, 1, 6, 30, 120])
def test_samples_as_edges_with_exact_ones(name: str, ones: int) -> None:
    """120 samples; `ones` have a probability of exactly 1.0, in each class in turn, half
    of them wrong; the rest is
    right, so that it matters whether the two share a bin.
    """
    logits, _ = random_case((120, 5, 2.0))
    logits[:ones] = 900.0 * torch.eye(5, dtype=torch.float64)[torch.arange(ones) % 5]
    labels = logits.argmax(dim=-1)
    labels[:ones:2] = (labels[:ones:2] + 1) % 5
    assert (logits.softmax(dim=-1) == 1.0).sum() == ones
    for bins in (1, 10, 15, 130):
        found = conventions.CONVENTIONS[name].value(logits, labels, bins).item()
        assert found == approx(ADAPTIVE[name](logits, labels, bins), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("name", ["adaptive", "tace"])
def test_an_edge_at_one_separates_a_few_ones(name: str) -> None:
    """Hit at .9 and miss at 1.0: in one bin (.9 + 1 - 1) / 2, in two (.1 + 1) / 2. Many ones
    are an edge themselves."""
    logits, labels = (
        torch.tensor([[math.log(9.0), 0.0], [900.0, 0.0]], dtype=torch.float64),
        torch.tensor([0, 1]),
    )
    google, separate = (
        conventions.CONVENTIONS[f"{code}_{name}"].value(logits, labels, 1)
        for code in ("google", "robustness_metrics")
    )
    # tace: the mean with class 1, where .1 is a miss.
    assert google.item() == approx(0.45 if name == "adaptive" else (0.45 + 0.1) / 2)
    assert separate.item() == approx(0.55 if name == "adaptive" else (0.55 + 0.1) / 2)


@pytest.mark.parametrize("name", TOP_LABEL)
def test_only_the_lossy_ones_lose_a_sample(name: str) -> None:
    """Ten samples, all off by their own confidence: the error is the mean confidence
    unless one is in no bin."""
    confidence = torch.tensor(
        [0.3, 0.35, 0.41, 0.5, 0.55, 0.62, 0.7, 0.83, 0.9, 1.0], dtype=torch.float64
    )
    found = value(name, confidence, torch.zeros(10, dtype=torch.float64), 4)
    lossless = not conventions.CONVENTIONS[name].loses
    assert (found == approx(confidence.mean().item())) == lossless


def test_a_confidence_of_one() -> None:
    """.95 right and 1.0 wrong: in one bin |.975 - .5|; apart (.05 + 1) / 2;
    without the 1.0, .05."""
    logits, labels = (
        torch.tensor([[np.log(19.0), 0.0], [1000.0, 0.0]], dtype=torch.float64),
        torch.tensor([0, 1]),
    )
    found = conventions.by_convention(logits, labels)
    together = [found[name] for name in ("torrvision", "torrvision_numpy", "netcal")]
    assert together == approx([0.475] * 3) and binned.expected_calibration_error(
        logits, labels
    ) == approx(0.475)
    assert [found["torchmetrics"], found["google"]] == approx([0.525] * 2)
    assert found["sample_prioritization"] == approx(0.05)


def test_a_confidence_that_is_one_in_float32_alone() -> None:
    """20 nats ahead: lost by the code that loses confidences of 1.0, for it
    computes them in float32."""
    logits, labels = torch.tensor([[20.0, 0.0], [1.0, 0.0]]), torch.tensor([1, 0])
    found = conventions.by_convention(logits, labels)
    assert found["sample_prioritization"] == approx(1 - 1 / (1 + np.exp(-1.0)))
    assert found["torrvision"] == approx((1 + 1 - 1 / (1 + np.exp(-1.0))) / 2)


def test_classes_after_the_largest_label_are_lost() -> None:
    """The three rows of methods.md's note: class 2 has no label, and torrvision no error for it."""
    logits, labels = logits_of([0.6, 0.2, 0.2], [0.2, 0.6, 0.2]), torch.tensor([0, 1])
    assert classwise.classwise_calibration_error(logits, labels).item() == approx(
        (0.3 + 0.3 + 0.2) / 3
    )
    assert conventions.by_convention(logits, labels)["torrvision_classwise"] == approx(
        (0.3 + 0.3) / 2
    )


def test_the_mean_of_groups_is_of_each_ones_own_error() -> None:
    """Groups of 1 to 30 rows, which lie among each other; with 15 bins, and with 4."""
    logits, labels = random_case((200, 4, 2.0))
    source = np.random.default_rng(0)
    groups = torch.from_numpy(np.append(np.arange(12), source.integers(11, size=188)))
    for bins in (15, 4):
        of_each = [
            references.ece(logits[groups == group], labels[groups == group], bins)
            for group in range(12)
        ]
        found = conventions.by_convention(logits, labels, bins, groups)
        assert found.pop("mean_of_groups") == approx(np.mean(of_each), rel=1e-9)
        assert found == approx(conventions.by_convention(logits, labels, bins), nan_ok=True)


def test_the_mean_of_groups_is_biased_upward() -> None:
    """Of a calibrated model: noise in the few rows of a bin does not cancel over groups."""
    source = np.random.default_rng(1)
    probs = source.dirichlet([1.0, 1.0, 1.0], size=4000)
    labels = [source.choice(3, p=row) for row in probs]
    groups = torch.arange(4000) // 40
    found = conventions.by_convention(
        torch.from_numpy(np.log(probs)), torch.tensor(labels), groups=groups
    )
    assert found["mean_of_groups"] > 5 * found["google"]


def test_no_answer_where_quantiles_tie() -> None:
    found = conventions.by_convention(torch.zeros(60, 2), torch.arange(60) % 2)
    assert np.isnan(found["netcal_adaptive"])


def test_the_order_of_ties_matters_to_some() -> None:
    """Sixty samples at .5, half right, hits first: calibrated, or off by a half in every bin."""
    found = conventions.by_convention(torch.zeros(60, 2), torch.arange(60) // 30, bins=2)
    assert found["torch_uncertainty_adaptive"] == approx(0.5)
    assert binned.adaptive_calibration_error(
        torch.zeros(60, 2), torch.arange(60) // 30, 2
    ).item() == approx(0.0)
