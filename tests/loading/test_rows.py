"""Rows of numbers through the cache, batches and shift sets, against NumPy; the data set is as
an extension would write one."""

import hashlib
import json
import pickle
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from tests.loading.test_cache import Counted
from trainables.dataset import Dataset, Header, RawData, RawSplit
from trainables.inputs import Inputs
from trainables.loading import batches
from trainables.loading.batches import DeviceSplit
from trainables.loading.cache import Prepared, Split, load_split, prepare
from trainables.loading.shift import Shift, ShiftSet, check_header, shift_of, unseen_shift
from trainables.loading.trial_data import TrialData, sample_bytes
from trainables.problems import FieldError

CPU = torch.device("cpu")
NAMES = ("mass", "age", "height")


def rows_of(count: int, first: int = 0, width: int = 3) -> RawSplit:
    """Row i of all splits together begins with i; its label is i % 3."""
    place = np.arange(first, first + count)
    values = np.random.default_rng(first).normal(50, 9, (count, width)).astype(np.float32)
    values[:, 0] = place
    return RawSplit(values, place % 3)


@dataclass(frozen=True)
class Measured(Dataset):
    """What `given` says, beside 100 rows of train."""

    given: dict[str, Any] = field(default_factory=dict)

    def source_digest(self) -> str:
        return hashlib.sha256(pickle.dumps(self.given)).hexdigest()

    def read(self) -> RawData:
        plain: dict[str, Any] = {
            "classes": ("a", "b", "c"),
            "train": rows_of(100),
            "columns": NAMES,
        }
        return RawData(**plain | self.given)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALSTUDY_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def prepared() -> Prepared:
    return prepare(Measured(), 0)


# ---- the cache -----------------------------------------------------------------------------------


def test_rows_are_kept_as_they_are_with_their_kind_columns_and_notes() -> None:
    found = prepare(Measured(given={"notes": ("column 'age' is odd",)}), 0)
    inputs = found.input_shape
    assert (inputs, inputs.kind, inputs.columns) == ((3,), "features", NAMES)
    assert found.notes == ("column 'age' is odd",)
    original = rows_of(100)
    stored = [np.load(found.directory / f"{name}.npy") for name in ("train", "validation", "test")]
    places = [part[:, 0].astype(int) for part in stored]
    assert sorted(np.concatenate(places)) == list(range(100))
    for name, part, place in zip(("train", "validation", "test"), stored, places, strict=True):
        assert part.dtype == np.float32 and np.array_equal(part, original.images[place])
        labels = np.load(found.directory / f"{name}_labels.npy")
        assert np.array_equal(labels, original.labels[place])
    exact = original.images[places[0]].astype(np.float64)
    assert found.mean == pytest.approx(exact.mean(axis=0))
    assert found.std == pytest.approx(exact.std(axis=0))


def test_a_cache_that_names_no_kind_holds_images() -> None:
    """As it was written before there were kinds; and is still, but for other kinds."""
    found = prepare(Counted(), 0)
    meta = json.loads((found.directory / "meta.json").read_text())
    assert not {"kind", "columns", "notes"} & set(meta)
    assert (found.input_shape.kind, found.input_shape.columns, found.notes) == ("image", (), ())


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"test": rows_of(9, 100, width=2)},
            "test has rows of 2 numbers, train rows of 3 numbers.",
        ),
        (
            {"validation": RawSplit(np.zeros((3, 3, 1, 1), np.uint8), np.arange(3))},
            "validation has 3x1x1 images, train rows of 3 numbers.",
        ),
        (
            {"train": RawSplit(np.zeros((9, 3)), np.arange(9) % 3)},
            "samples are float64 [9, 3]; a data set gives",
        ),
    ],
)
def test_splits_of_another_width_or_kind_are_refused(
    given: dict[str, RawSplit], said: str, tmp_path: Path
) -> None:
    with pytest.raises(FieldError) as refused:
        prepare(Measured(given=given), 0)
    assert said in str(refused.value)
    assert not [path for path in (tmp_path / "cache").iterdir() if path.is_dir()]


def test_a_column_that_is_constant_in_train_is_0_in_every_split() -> None:
    train, validation = rows_of(60), rows_of(9, 100)
    train.images[:, 1] = 0.1
    assert len(np.unique(validation.images[:, 1])) == 9
    data = TrialData(
        prepare(Measured(given={"train": train, "validation": validation}), 0), CPU, "none", None
    )
    for split in (data.train, data.validation):
        rows = split.images(0, len(split))
        assert rows.isfinite().all() and (rows[:, 1] == 0).all() and rows[:, 2].std() > 0.1


# ---- batches -------------------------------------------------------------------------------------


def definition(prepared: Prepared, rows: torch.Tensor) -> torch.Tensor:
    """Standardised in NumPy, float64."""
    exact = load_split(prepared, "train").images[rows].numpy().astype(np.float64)
    return torch.from_numpy((exact - np.array(prepared.mean)) / np.array(prepared.std))


def device_split(prepared: Prepared) -> DeviceSplit:
    return DeviceSplit(load_split(prepared, "train"), prepared.mean, prepared.std, "cpu")


@pytest.mark.parametrize("place", ["mapped", "mapped, as it is", "resident", "streamed"])
def test_a_batch_of_rows_is_standardised_wherever_they_lie(
    place: str, prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a GPU does, on the CPU."""
    monkeypatch.setattr(batches, "place_of", lambda size, device: place.partition(",")[0])
    if "as it is" in place:
        monkeypatch.setattr(batches, "NORMALISED_BYTES", 1)
    whole = device_split(prepared)
    part = torch.arange(0, len(whole), 2)
    before = load_split(prepared, "train").images.clone()
    for data, rows in ((whole, torch.arange(len(whole))), (whole.subset(part, "none"), part)):
        order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))[:20]
        decided = data.decide(order, torch.Generator())
        assert set(decided) == {"indices", "labels", "rows"}
        if place == "streamed":
            gathered = data.gather(decided["rows"])
            assert (gathered.dtype, gathered.shape) == (torch.float32, (20, 3))
            decided["images"] = gathered
        batch = data.batch(decided)
        assert batch.images.dtype == torch.float32
        wanted = definition(prepared, rows[order])
        assert_close(batch.images.double(), wanted, atol=1e-5, rtol=1e-5)
        labels = load_split(prepared, "train").labels[rows[order]]
        assert torch.equal(batch.targets, labels) and torch.equal(batch.indices, order)
        in_order = definition(prepared, rows[3:11])
        assert_close(data.images(3, 11).double(), in_order, atol=1e-5, rtol=1e-5)
    assert torch.equal(load_split(prepared, "train").images, before)


def test_the_same_bits_wherever_they_lie(
    prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [device_split(prepared).images(0, 50)]
    monkeypatch.setattr(batches, "NORMALISED_BYTES", 1)
    found.append(device_split(prepared).images(0, 50))
    for place in ("resident", "streamed"):
        monkeypatch.setattr(batches, "place_of", lambda size, device, place=place: place)
        found.append(device_split(prepared).images(0, 50))
    assert all(torch.equal(other, found[0]) for other in found[1:])


def test_rows_with_mean_0_and_deviation_1_by_decree_are_not_copied() -> None:
    split = Split(torch.randn(20, 3), torch.arange(20) % 2)
    data = DeviceSplit(split, (0.0,) * 3, (1.0,) * 3, "cpu")
    assert data._images.data_ptr() == split.images.data_ptr()
    assert torch.equal(
        data.batch(data.decide(torch.tensor([4, 2]), torch.Generator())).images,
        split.images[[4, 2]],
    )


def test_a_row_takes_four_bytes_a_number(prepared: Prepared) -> None:
    train, validation = sample_bytes(prepared, "none", None)
    files = [prepared.directory / f"{name}.npy" for name in ("train", "validation")]
    assert [train, validation] == [np.load(file).nbytes for file in files]


# ---- shift sets ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Told(Measured):
    """One whose header tells what its samples are."""

    def samples_header(self, where: Any = None) -> Header:
        raw = self.read()
        return Header(self.source_rows(), raw.train.images.shape[1:], columns=raw.columns)


def against(inputs: Inputs, **given: Any) -> Shift:
    return shift_of(ShiftSet(Measured(given=given)), ("a", "b", "c"), inputs)


def wider(split: RawSplit, extra: int) -> RawSplit:
    more = np.full((len(split.labels), extra), 7, np.float32)
    return split._replace(images=np.concatenate([more, split.images], axis=1))


def test_columns_are_found_by_name_and_others_left_out(prepared: Prepared) -> None:
    other = wider(rows_of(30, 500), 2)
    columns = ("site", "day", *NAMES)
    order = [4, 0, 2, 3, 1]
    turned = other._replace(images=other.images[:, order])
    found = against(
        prepared.input_shape, train=turned, columns=tuple(columns[place] for place in order)
    )
    assert np.array_equal(found.images.numpy(), other.images[:, 2:]) and not found.ood
    assert found.labels.tolist() == other.labels.tolist()


def test_without_names_columns_are_taken_in_order(prepared: Prepared) -> None:
    other = rows_of(30, 500)
    found = against(prepared.input_shape, train=other, columns=())
    assert np.array_equal(found.images.numpy(), other.images)
    of_lists = Inputs((3,), "features", ("emb[3]",))
    again = against(of_lists, train=other, columns=("vector[3]",))
    assert np.array_equal(again.images.numpy(), other.images)


@pytest.mark.parametrize(
    ("given", "inputs", "said"),
    [
        (
            {"columns": ("mass", "ages", "height")},
            Inputs((3,), "features", NAMES),
            "has no column 'age', which the study has. Did you mean 'ages'?",
        ),
        (
            {"train": rows_of(9, width=4), "columns": ()},
            Inputs((3,), "features", NAMES),
            "its rows have 4 numbers, the study's 3.",
        ),
        ({}, Inputs((3, 8, 8)), "has rows, the study images."),
        (
            {"train": RawSplit(np.zeros((9, 3, 8, 8), np.uint8), np.arange(9) % 3), "columns": ()},
            Inputs((3,), "features", NAMES),
            "has images, the study rows.",
        ),
    ],
)
def test_what_does_not_fit_is_said(given: dict[str, Any], inputs: Inputs, said: str) -> None:
    """As soon as a header tells it, and after decoding otherwise."""
    with pytest.raises(FieldError) as refused:
        against(inputs, **given)
    assert said in str(refused.value) and "\n" not in str(refused.value)
    with pytest.raises(FieldError) as earlier:
        check_header(ShiftSet(Told(given=given)), {}, ("a", "b", "c"), inputs)
    assert str(earlier.value) == str(refused.value)


def test_rows_that_train_has_too_are_told_by_their_numbers(prepared: Prepared) -> None:
    """Also where their columns come in another order."""
    train = load_split(prepared, "train")
    shared = RawSplit(train.images[:1].numpy(), train.labels[:1].numpy())
    new = rows_of(2000, 1000)
    both = RawSplit(*(np.concatenate(pair) for pair in zip(new[:2], shared[:2], strict=True)))
    turned = both._replace(images=both.images[:, ::-1].copy())
    found = unseen_shift(
        ShiftSet(Measured(given={"train": turned, "columns": NAMES[::-1]})), {}, prepared
    )
    assert (found.dropped, len(found.labels)) == (1, 2001) and not found.kept[-1]
    with pytest.raises(FieldError, match="1 of its 501 rows are also in the study's train"):
        few = {"train": RawSplit(*(part[-501:] for part in both[:2]))}
        unseen_shift(ShiftSet(Measured(given=few)), {}, prepared)
