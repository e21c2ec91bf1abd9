"""Resamples whose temperatures differ are measured together, and each as alone."""

import numpy as np
import pytest

from study.uncertainty import temperature
from study.uncertainty.resampling import Draws, SampleTerms, mass_starts
from study.uncertainty.smoothing import Smoothing
from study.uncertainty.temperature import sums_after


@pytest.mark.parametrize("groups", [None, 23])
def test_parts_at_once_have_the_sums_of_each_alone(
    groups: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the bit: a sum adds the same terms in the same order. Some parts have a resample more."""
    generator = np.random.default_rng(3)
    logits = 3 * generator.normal(size=(157, 4))
    labels = generator.integers(4, size=157)
    of = None if groups is None else generator.integers(groups, size=157)
    draws = Draws.of(157, 70, 0, of)
    table = SampleTerms.of(logits, labels, groups=draws.groups)
    smoothing = Smoothing.of(table.confidence, table.hits)
    starts = mass_starts(table.confidence)
    found = {}
    for values in (1, 4000, 2**18):  # a part at a time, some, and all of a fold
        monkeypatch.setattr(temperature, "VALUES", values)
        sums = sums_after(logits, labels, draws, starts, True, smoothing, True)
        found[values] = sums.arrays()
    assert groups or all(map(len, found[1].values()))
    for name, rows in found[1].items():
        assert np.array_equal(found[4000][name], rows), name
        assert np.array_equal(found[2**18][name], rows), name
