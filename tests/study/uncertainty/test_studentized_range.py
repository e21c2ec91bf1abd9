"""The studentized range, against SciPy's."""

import math

import pytest
from pytest import approx
from scipy.stats import studentized_range as of_scipy

from study.uncertainty import studentized_range


@pytest.mark.parametrize("level", [0.95, 0.9967])
@pytest.mark.parametrize("freedom", [1, 2.25, 24.25, 300, math.inf])
@pytest.mark.parametrize("methods", [2, 25])
def test_quantiles_are_scipys(methods: int, freedom: float, level: float) -> None:
    q = studentized_range.quantile(methods, freedom, level)
    assert of_scipy.cdf(q, methods, freedom) == approx(level, abs=1e-10)
    assert studentized_range.share(q, methods, freedom) == approx(level, abs=1e-10)
