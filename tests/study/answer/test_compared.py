"""What samples and seeds resolve, against the laws of both by hand."""

import numpy as np
from pytest import approx

from study.answer.compared import resolution_of
from study.uncertainty.methods import Methods, Seeds
from tests.study.made import unwritten_study


def methods_of(of_seeds: float, of_samples: float) -> Methods:
    """Two rows of three seeds with these standard deviations: of a seed, and of the rows'
    difference by samples."""
    values = of_seeds * np.array([-1.0, 0.0, 1.0])
    moved = np.random.default_rng(0).normal(size=4000)
    moved *= of_samples / moved.std()
    return Methods(
        {"a": Seeds(values, np.repeat(moved[None], 3, 0)), "b": Seeds(values, np.zeros((3, 4000)))}
    )


def test_with_many_seeds_it_says_how_many_samples_would_tell() -> None:
    """Without noise of seeds the half-width falls with the square root of the samples."""
    found = resolution_of(unwritten_study(["focal"]), {"accuracy": methods_of(0.0, 0.02)}, 500, 10)
    assert found is not None and found.half_width == approx(1.96 * 0.02, rel=1e-3)
    assert found.needed == approx(500 * (1.96 * 0.02 / 0.01) ** 2, rel=1e-3)


def test_the_spread_of_few_seeds_is_not_known_well_enough() -> None:
    three = resolution_of(unwritten_study(["focal"]), {"accuracy": methods_of(0.0, 0.02)}, 500, 3)
    assert (
        three is not None
        and three.needed is None
        and three.half_width == approx(1.96 * 0.02, rel=1e-3)
    )


def test_where_the_seeds_alone_hide_it_no_number_of_images_helps() -> None:
    found = resolution_of(unwritten_study(["focal"]), {"accuracy": methods_of(0.02, 0.01)}, 500, 10)
    assert found is not None and found.needed is None and found.half_width > 0.01


def test_where_accuracy_is_no_objective_nothing_is_said() -> None:
    assert resolution_of(unwritten_study(["focal"]), {"nll": methods_of(0.0, 0.02)}, 500, 3) is None
