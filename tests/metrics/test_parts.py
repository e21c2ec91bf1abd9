"""Many classes: samples are taken in parts, which changes no bit and takes little memory."""

import tracemalloc
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from study.uncertainty.resampling import SampleTerms
from trainables.machine import one_torch_thread
from trainables.metrics import scores
from trainables.metrics.shared import parts
from trainables.metrics.shared.post_hoc import ahead_of_label, nlls, slope_and_curvature

SAMPLES, CLASSES = 333, 500


def case() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(SAMPLES, CLASSES, generator=generator)
    logits[torch.rand(logits.shape, generator=generator) < 0.01] = -torch.inf
    labels = torch.randint(CLASSES, (SAMPLES,), generator=generator)
    logits[torch.arange(SAMPLES), labels] = 1.0  # it can occur
    return logits, labels


def terms(logits: torch.Tensor, labels: torch.Tensor) -> list[Any]:
    groups = labels.numpy() % 7
    table = SampleTerms.of(logits.double().numpy(), labels.numpy(), groups=groups, overlaps=True)
    return [getattr(table, each.name) for each in fields(table) if each.name != "smoothing"]


COMPUTED: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "nll": scores.negative_log_likelihood,
    "brier": scores.brier_score,
    "confidence": scores.top_label,
    "slopes": lambda logits, labels: slope_and_curvature(ahead_of_label(logits, labels), 1.7),
    "nll at a temperature": lambda logits, labels: nlls(ahead_of_label(logits, labels), 0.3),
    "terms": terms,
}


@pytest.mark.parametrize("computed", COMPUTED.values(), ids=COMPUTED)
def test_parts_give_the_bits_of_the_whole(
    computed: Callable[[torch.Tensor, torch.Tensor], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with one_torch_thread():
        whole = computed(*case())
        monkeypatch.setattr(parts, "PART", 100 * CLASSES)
        assert len(parts.in_parts(case()[0])) > 2
        in_parts = computed(*case())
    if isinstance(whole, torch.Tensor):
        whole, in_parts = [whole], [in_parts]
    for one, other in zip(whole, in_parts, strict=True):
        assert np.array_equal(np.asarray(one), np.asarray(other))


def test_in_parts_the_nll_is_pytorchs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "PART", 40 * CLASSES)
    logits, labels = case()
    expected = F.cross_entropy(logits.double(), labels)
    assert torch.equal(scores.negative_log_likelihood(logits, labels), expected)


class Largest(TorchFunctionMode):
    """The most values that an operation gave."""

    def __init__(self) -> None:
        super().__init__()
        self.values = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if isinstance(found, torch.Tensor) and found._base is None:  # no view
            self.values = max(self.values, found.numel())
        return found


@pytest.mark.parametrize("name", ["nll", "brier", "confidence"])
def test_no_operation_gives_more_than_a_part(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "PART", 40 * CLASSES)
    given = case()
    with Largest() as largest:
        COMPUTED[name](*given)
    assert largest.values <= 64 * CLASSES


def test_a_fit_makes_one_copy_of_the_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "PART", 40 * CLASSES)
    ahead = ahead_of_label(*case())
    with Largest() as largest:
        slope_and_curvature(ahead, 2.0)
        nlls(ahead, 2.0)
    assert largest.values <= 64 * CLASSES


def test_terms_keep_no_probabilities_unless_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "PART", 40 * CLASSES)
    logits, labels = (each.numpy() for each in case())
    logits = logits.astype(np.float64)
    tracemalloc.start()
    SampleTerms.of(logits, labels, classwise=False)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < logits.nbytes  # one array of all probabilities would be as large
