"""The race that knows of folds, on values worked out by hand."""

from benchmarks.experiments.racing_networks import _likeliest_in_folds


def test_hard_folds_are_no_fault_of_the_rows_that_have_them() -> None:
    """Row and fold add up without noise: b is lower by 1, though its mean is higher by 1.2."""
    hard = [0.0, 0.0, 3.0, 4.0, 4.0]
    counted = {"a": [5 + hard[k] for k in (0, 1)], "b": [4 + hard[k] for k in range(5)]}
    assert sum(counted["b"]) / 5 > sum(counted["a"]) / 2
    assert _likeliest_in_folds(counted, {}, 0.25) == ("b", ())
    assert _likeliest_in_folds(counted, {"a": 3}, 2.0) == ("b", ())


def test_as_many_seeds_of_each_are_compared_as_they_are() -> None:
    """Without noise but for one value of c, whose mean is the lowest."""
    counted = {"a": [3.0, 4.0, 5.0], "b": [2.0, 3.0, 4.0], "c": [2.0, 3.0, 3.7]}
    leader, rivals = _likeliest_in_folds(counted, {}, 0.0)
    assert leader == "c" and rivals == ("b",)
