"""What reads has NumPy's definitions, training has torch's: the two agree."""

from pathlib import Path

import numpy as np
import pytest
import torch
from pytest import approx

from study.uncertainty import temperature
from study.uncertainty.resampling import BINS, SampleTerms
from tests.cases import random_case
from trainables.metrics.binned import equal_width_index
from trainables.metrics.scores import softmax_of_ties
from trainables.metrics.shared import post_hoc
from trainables.outputs.predictions import Predictions

CASES = [(500, 3, 1.0), (400, 10, 6.0), (60, 40, 0.3)]


def given(case: tuple[int, int, float], grouped: bool = False) -> Predictions:
    logits, labels = random_case(case)
    logits[::7, 0] = -torch.inf  # also of some labels
    groups = torch.arange(len(labels)) // 3 if grouped else None
    return Predictions(logits, labels, groups, by_network=True)


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_temperatures_agree(case: tuple[int, int, float], grouped: bool) -> None:
    found = given(case, grouped)
    assert temperature.temperature_of(found.arrays) == approx(found.temperature(), abs=1e-9)
    np.testing.assert_allclose(
        temperature.cross_fitted(found.arrays), found.cross_fitted().numpy(), rtol=1e-9
    )


@pytest.mark.parametrize("samples", [1, 3])
def test_few_samples_have_fewer_folds(samples: int) -> None:
    found = Predictions(torch.randn(samples, 2), torch.arange(samples) % 2)
    np.testing.assert_allclose(
        temperature.cross_fitted(found.arrays), found.cross_fitted().numpy(), rtol=1e-9
    )


@pytest.mark.parametrize("case", CASES)
def test_slopes_and_nlls_agree(case: tuple[int, int, float]) -> None:
    found = given(case)
    ahead = temperature.ahead_of_label(found.arrays.logits, found.arrays.labels)
    of_torch = post_hoc.ahead_of_label(found.logits, found.labels)
    np.testing.assert_array_equal(ahead, of_torch.numpy())
    pairs = [
        *zip(
            temperature.slope_and_curvature(ahead, 0.4),
            post_hoc.slope_and_curvature(of_torch, 0.4),
            strict=True,
        ),
        (temperature.nlls(ahead, 0.4), post_hoc.nlls(of_torch, 0.4)),
    ]
    for one, other in pairs:
        np.testing.assert_allclose(one, other.numpy(), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16], ids=str
)
def test_bins_of_probabilities_have_the_edges_of_their_type(dtype: torch.dtype) -> None:
    edges = (torch.arange(1, BINS, dtype=torch.float64) / BINS).to(dtype)
    tops = torch.cat([edges[edges > 0.5], torch.linspace(0.5, 1, 50).to(dtype)])
    probs = torch.stack([tops, (1 - tops.double()).to(dtype)], dim=1)
    labels = torch.zeros(len(probs), dtype=torch.int64)
    arrays = Predictions(probs=probs, labels=labels).arrays
    table = SampleTerms.of(arrays.logits, arrays.labels, given=arrays.given)
    expected = equal_width_index(probs.amax(dim=1), BINS)
    np.testing.assert_array_equal(table.width, expected.numpy())


def test_ties_stay_ties() -> None:
    """A class more to the left or right changes no bit of a sum in order of size."""
    logits = torch.tensor([[0.1, 0.7, 0.3, 0.9], [0.9, 0.3, 0.1, 0.7]], dtype=torch.float64)
    table = SampleTerms.of(logits.numpy(), np.array([0, 1]), ties=True)
    assert table.confidence[0] == table.confidence[1]
    assert table.confidence == approx(softmax_of_ties(logits).amax(dim=1).numpy(), abs=1e-15)


def test_arrays_and_tensors_have_one_memory(tmp_path: Path) -> None:
    made = Predictions(*random_case(CASES[0]), torch.arange(CASES[0][0]) // 3)
    made.save(tmp_path / "p.npz")
    read = Predictions.stored(tmp_path / "p.npz")
    assert "logits" not in vars(read)
    assert torch.equal(read.logits, made.logits) and torch.equal(read.labels, made.labels)
    assert read.groups is not None and read.probs is None
    assert np.shares_memory(read.arrays.logits, read.logits.numpy())
    with pytest.raises(AttributeError, match="'scores'"):
        read.scores  # noqa: B018
