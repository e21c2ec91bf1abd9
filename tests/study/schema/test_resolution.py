"""What a split resolves before there are trials, against a normal
approximation and drawn networks."""

import numpy as np
import pytest
from pytest import approx

from study.schema.reading import spec_from_mapping
from study.schema.resolution import half_width, resolution_line

PLAIN = {"name": "small", "data": {"name": "digits"}, "model": "mlp", "methods": ["focal"]}


def test_by_hand() -> None:
    """1.96 sqrt(.030 / 287) = .0200; and .01 needs (.0200 / .01)^2 times the images."""
    assert half_width(0.03, 287) == approx(1.959964 * (0.03 / 287) ** 0.5, rel=1e-6)
    line = resolution_line(spec_from_mapping(PLAIN, "study.yaml"), 287, "images")
    assert (
        line
        == "287 validation images resolve ±0.020, 0.028 or 0.051 in accuracy between two networks"
        " of accuracy 0.95, 0.83 or 0.49; for your 0.01 about 1,200, 2,300 or 7,500 images"
    )


def test_it_is_the_spread_of_drawn_differences() -> None:
    """Two networks that disagree on 6% of 500 images, each as often right: 95%
    of differences lie within it."""
    drawn = np.random.default_rng(0).multinomial(500, [0.94, 0.03, 0.03], size=20_000)
    differences = (drawn[:, 1] - drawn[:, 2]) / 500
    assert np.mean(np.abs(differences) <= half_width(0.06, 500)) == approx(0.95, abs=0.01)


@pytest.mark.parametrize("metric", ["ece", "nll"])
def test_without_accuracy_nothing_is_said(metric: str) -> None:
    objectives = [{"metric": metric, "direction": "minimize"}]
    spec = spec_from_mapping({**PLAIN, "objectives": objectives}, "study.yaml")
    assert resolution_line(spec, 287, "rows") == ""
