"""What a sample is: told of an array, kept with its shape, and its statistics against NumPy."""

import copy
import json
import pickle

import numpy as np
import pytest
import torch

from trainables.inputs import ROWS, Inputs, across
from trainables.problems import FieldError


def table(rows: int = 3 * ROWS + 17) -> np.ndarray:
    """float32 [rows, 4]: usual; of another scale; far from 0; skewed."""
    random = np.random.default_rng(5)
    columns = [
        random.normal(size=rows),
        random.normal(3.0, 1e-4, rows),
        random.normal(1e6, 1.0, rows),
        random.lognormal(0, 2, rows),
    ]
    return np.stack(columns, axis=1).astype(np.float32)


def test_a_kind_is_told_by_type_and_dimensions() -> None:
    image = Inputs.of(np.zeros((5, 3, 8, 6), np.uint8))
    row = Inputs.of(np.zeros((5, 7), np.float32))
    assert (image, image.kind, row, row.kind) == ((3, 8, 6), "image", (7,), "features")
    channels, height, width = image  # as networks take it
    assert (channels, height, width) == (3, 8, 6)
    assert (image.noun, image.size, image.shown) == ("images", 3 * 8 * 6, "3x8x6 images")
    assert (row.noun, row.size, row.shown) == ("rows", 4 * 7, "rows of 7 numbers")
    assert Inputs((1,), "features").shown == "rows of 1 number"
    for made in (image, row):
        stored = torch.zeros(5, *made)
        assert Inputs.of_samples(stored).kind == made.kind


@pytest.mark.parametrize(
    ("samples", "found"),
    [
        (np.zeros((5, 7)), "float64 [5, 7]"),
        (np.zeros((5, 7), np.uint8), "uint8 [5, 7]"),
        (np.zeros((5, 3, 8, 6), np.float32), "float32 [5, 3, 8, 6]"),
        (np.zeros(5, np.float32), "float32 [5]"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_no_kind_has_such_samples(samples: np.ndarray, found: str) -> None:
    with pytest.raises(FieldError) as refused:
        Inputs.of(samples)
    wanted = "a data set gives uint8 [N, C, H, W], float32 [N, D], int32 [N, L] or int32 [N, M, 5]"
    assert str(refused.value).endswith(f"samples are {found}; {wanted}.")


def test_kind_and_columns_go_where_the_shape_goes() -> None:
    """To other processes, and into copies."""
    made = Inputs((2,), "features", ["x", "y"])
    copies = [pickle.loads(pickle.dumps(made)), copy.copy(made), copy.deepcopy(made)]
    for found in copies:
        assert isinstance(found, Inputs) and found == (2,)
        assert (found.kind, found.columns, found.are_named) == ("features", ("x", "y"), True)
    assert json.loads(json.dumps(made)) == [2]
    assert not Inputs((768,), "features", ["emb[768]"]).are_named  # one column of lists
    assert not Inputs((2,), "features").are_named


def test_statistics_of_columns_are_those_of_numpy() -> None:
    """In float64, over more rows than are read at a time; a sum of squares would lose the third."""
    samples = table()
    rows = np.arange(3, len(samples))
    found = Inputs.of(samples).statistics(samples, rows)
    exact = samples[rows].astype(np.float64)
    assert found["mean"] == pytest.approx(exact.mean(axis=0), rel=1e-12)
    assert found["std"] == pytest.approx(exact.std(axis=0), rel=1e-9)


def test_the_order_of_rows_changes_no_bit_of_their_statistics() -> None:
    samples = table()
    rows = np.arange(0, len(samples), 2)
    shuffled = np.random.default_rng(0).permutation(rows)
    inputs = Inputs.of(samples)
    assert inputs.statistics(samples, shuffled) == inputs.statistics(samples, rows)


@pytest.mark.parametrize("value", [0.0, 0.1, -3e38, 1e-42])
def test_a_constant_column_becomes_0_whatever_it_is_elsewhere(value: float) -> None:
    """Its mean is its value to the last bit: the mean of many of 0.1 would not be 0.1."""
    samples = table()[:, :2]
    samples[:, 1] = value
    elsewhere = np.array([[1.0, value], [1.0, 7.0], [1.0, -3e38]], np.float32)
    found = Inputs.of(samples).statistics(samples, np.arange(len(samples)))
    assert found["mean"][1] == np.float32(value) and found["std"][1] == float("inf")
    assert json.loads(json.dumps(found)) == found  # as a cache keeps it
    mean = across(found["mean"], "features")
    std = across(found["std"], "features")
    for part in (samples, elsewhere):
        standard = (torch.from_numpy(part) - mean) / std
        assert standard.isfinite().all() and (standard[:, 1] == 0).all()


def test_values_per_channel_and_per_column_meet_their_samples() -> None:
    """Against NumPy, one channel and one column at a time."""
    random = np.random.default_rng(1)
    images = random.normal(size=(4, 3, 5, 6)).astype(np.float32)
    rows = random.normal(size=(4, 3)).astype(np.float32)
    values = [1.0, 20.0, 300.0]
    moved = torch.from_numpy(images) - across(values, "image")
    shifted = torch.from_numpy(rows) - across(values, "features")
    for place, value in enumerate(values):
        assert np.array_equal(moved[:, place], images[:, place] - np.float32(value))
        assert np.array_equal(shifted[:, place], rows[:, place] - np.float32(value))


def test_a_tree_has_a_fifth_number_beside_what_a_network_sees() -> None:
    found = Inputs.of(np.zeros((3, 9, 5), np.int32))
    assert (found, found.kind, found.stored, found.size) == ((9, 4), "trees", (9, 5), 180)
    assert found.carry_labels and not found.marked and found.shown == "trees of up to 9 nodes"
    again = pickle.loads(pickle.dumps(Inputs(found, "trees", words=7)))
    assert (again, again.kind, again.words) == ((9, 4), "trees", 7)
