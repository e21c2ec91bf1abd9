"""Every metric against its slow definition, on ordinary and on adversarial predictions;
names and `measure_stored`."""

import inspect
import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from pytest import approx
from torch import Tensor

from tests import references
from tests.cases import every_shape, random_case
from trainables import metrics
from trainables.metrics import scores
from trainables.problems import FieldError


def of_pairs(
    pairs: Callable[..., list[list[float]]], mean: Callable[[list[list[float]]], float]
) -> Callable:
    return lambda logits, labels: mean(pairs(logits, labels))


FULL, TOP = (
    {f"{name}{form}": of_pairs(pairs, mean) for form, mean in means.items()}
    for means in [
        {"": references.biased, "_unbiased": references.unbiased, "_linear": references.linear}
    ]
    for name, pairs in (
        ("skce", references.skce_pairs),
        ("skce_top_label", references.top_label_pairs),
    )
)
DEFINITIONS: dict[str, Callable[..., float]] = {
    **{
        name: getattr(references, name)
        for name in metrics.names()
        if not name.startswith(("ts_", "skce", "mmce", "smooth_ece", "calibration_"))
    },
    **FULL,
    **TOP,
    "mmce": lambda logits, labels: math.sqrt(
        references.biased(references.top_label_pairs(logits, labels))
    ),
}
NAMES = [*DEFINITIONS, "smooth_ece"]  # whose definition is in test_smooth.py
BINNED = [
    name for name in DEFINITIONS if "bins" in inspect.signature(metrics.find(name)).parameters
]
nothing = -math.inf


def saturated() -> tuple[Tensor, Tensor]:
    """Confidences of exactly 1, right and wrong, beside ties at 1/2, 1/4 and a softer one."""
    logits = (
        [[900.0, 0.0, 0.0, 0.0]] * 4
        + [[0.0, 0.0, -900.0, -900.0]] * 3
        + [[0.0] * 4] * 2
        + [[1.0, 2.0, 0.0, 0.0]]
    )
    return torch.tensor(logits, dtype=torch.float64), torch.tensor([0, 0, 0, 1, 0, 1, 0, 0, 3, 1])


def impossible() -> tuple[Tensor, Tensor]:
    """Logarithms of stored probabilities with zeros, one of them the label's."""
    logits = [
        [0.0, nothing, nothing],
        [math.log(0.5), math.log(0.5), nothing],
        [nothing, 0.0, nothing],
    ]
    return torch.tensor(logits, dtype=torch.float64), torch.tensor([0, 1, 2])


def one_class_of_labels() -> tuple[Tensor, Tensor]:
    logits, _ = random_case((30, 4, 2.0))
    return logits, torch.full((30,), 2)


def all_right() -> tuple[Tensor, Tensor]:
    logits, _ = random_case((30, 6, 2.0))
    return logits, logits.argmax(1)


def all_wrong() -> tuple[Tensor, Tensor]:
    logits, _ = random_case((30, 6, 2.0))
    return logits, logits.argmin(1)


CASES = [
    *[
        partial(random_case, shape)
        for shape in [(1, 2, 1.0), (2, 2, 3.0), (2, 7, 1.0), (3, 2, 1.0)]
    ],
    saturated,
    one_class_of_labels,
    all_right,
    all_wrong,
]


def test_every_metric_has_a_definition() -> None:
    removed = ["calibration_nll", "calibration_brier"]  # tests/metrics/test_removable.py
    assert sorted([*NAMES, *removed]) == sorted(metrics.described())


@every_shape
@pytest.mark.parametrize("name", DEFINITIONS)
def test_matches_its_definition(name: str, shape: tuple[int, int, float]) -> None:
    logits, labels = random_case(shape, seed=1)
    expected = DEFINITIONS[name](logits, labels)
    assert metrics.find(name)(logits, labels).item() == approx(
        expected, rel=1e-9, abs=1e-10, nan_ok=True
    )


@pytest.mark.parametrize("name", DEFINITIONS)
def test_matches_its_definition_at_the_edges(name: str) -> None:
    for case in CASES:
        logits, labels = case()
        expected = DEFINITIONS[name](logits, labels)
        # Pairs of equal predictions: a distance of 1e-8 instead of 0.
        assert metrics.find(name)(logits, labels).item() == approx(
            expected, rel=1e-7, abs=1e-10, nan_ok=True
        ), case


@every_shape
@pytest.mark.parametrize("name", BINNED)
def test_matches_its_definition_for_any_bins(name: str, shape: tuple[int, int, float]) -> None:
    logits, labels = random_case(shape)
    for bins in (1, 10, 100):
        expected = DEFINITIONS[name](logits, labels, bins)
        assert metrics.find(name)(logits, labels, bins=bins).item() == approx(
            expected, rel=1e-9, abs=1e-10, nan_ok=True
        ), bins


def test_a_stored_probability_of_zero() -> None:
    """Finite wherever the value is; the NLL is infinite, for one label was called impossible."""
    logits, labels = impossible()
    values = metrics.measure_stored(logits, labels, also=metrics.names())
    assert values.pop("nll") == math.inf
    assert all(math.isfinite(value) for value in values.values())
    assert values["brier"] == approx((0 + 0.5 + 2) / 3)
    # Two of confidence 1 in one bin: |1 - 2|; the tie: |0 - .5|.
    assert values["ece"] == approx((1 + 0.5) / 3)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_value_is_that_of_the_logits_in_float64(name: str, dtype: torch.dtype) -> None:
    function = metrics.find(name)
    logits, labels = random_case((40, 10, 5.0))
    value = function(logits.to(dtype), labels)
    assert value.dtype == torch.float64 and value.shape == ()
    assert value.item() == approx(function(logits.to(dtype).double(), labels).item(), rel=1e-12)


@pytest.mark.parametrize("name", [name for name in NAMES if "linear" not in name])
def test_the_order_of_the_samples_does_not_matter(name: str) -> None:
    logits, labels = saturated()
    shuffle = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    expected = metrics.find(name)(logits, labels).item()
    assert metrics.find(name)(logits[shuffle], labels[shuffle]).item() == approx(
        expected, rel=1e-9, abs=1e-12, nan_ok=True
    )


def test_top5_matches_its_definition_where_it_is_not_one() -> None:
    logits, labels = random_case((200, 12, 1.0))
    assert 0.5 < references.top5_accuracy(logits, labels) < 1.0
    assert scores.top5_accuracy(logits, labels).item() == approx(
        references.top5_accuracy(logits, labels)
    )


def test_evaluate_holds_what_is_stored_and_what_is_named() -> None:
    logits, labels = random_case((40, 10, 5.0))
    values = metrics.measure_stored(logits, labels, bins=10)
    assert list(values) == metrics.stored()
    assert all(type(value) is float for value in values.values())
    assert values["ece"] == approx(references.ece(logits, labels, 10), rel=1e-9)
    more = metrics.measure_stored(logits, labels, bins=10, also=["skce", "l2", "ece", "ts_mmce"])
    assert set(more) - set(values) == {"skce", "l2"} and more.items() >= values.items()
    assert more["l2"] == approx(references.l2(logits, labels, 10), rel=1e-9)


def test_what_is_not_defined_is_absent() -> None:
    values = metrics.measure_stored(torch.zeros(1, 3), torch.tensor([0]), also=metrics.names())
    absent = {
        "top5_accuracy",
        "debiased_l2",
        "debiased_l2_marginal",
        "mce_of_ten",
        "accuracy_above_99",
        "miou_without_0",
    }
    absent |= {
        f"skce{part}_{form}" for part in ("", "_top_label") for form in ("unbiased", "linear")
    }
    assert set(NAMES) - set(values) == absent


@pytest.mark.parametrize(("classes", "present"), [(2, False), (5, False), (6, True)])
def test_top5_is_absent_for_five_classes_or_fewer(classes: int, present: bool) -> None:
    assert ("top5_accuracy" in metrics.measure_stored(*random_case((20, classes, 1.0)))) == present


def test_a_name_that_is_none() -> None:
    with pytest.raises(FieldError, match="Did you mean 'ts_skce'"):
        metrics.find("ts_skc")
