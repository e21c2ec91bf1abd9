"""What holds for every source of data, written once and run over all of them."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from study.schema.errors import SpecError
from tests.data.contract import ROWS, SIZES, SOURCES, Named, OnSide, Rows, Source, changed, pixel
from trainables.data import find
from trainables.dataset import Dataset, RawData, RawSplit
from trainables.inputs import NODE
from trainables.problems import FieldError

# ---- sources, and errors -------------------------------------------------------------------------


def over(*has: str, but: str = "") -> pytest.MarkDecorator:
    """Every source in which none of these is None. but: the name of one that is left out."""
    there = {
        name: source
        for name, source in SOURCES.items()
        if name != but and all(getattr(source, one) is not None for one in has)
    }
    return pytest.mark.parametrize("source", there.values(), ids=list(there))


def refused(
    source: Source, named: Named | None, folder: Path, rows: Rows = ROWS, **given: Any
) -> None:
    """One line names the field, and the place or value."""
    assert named is not None
    with pytest.raises((FieldError, SpecError)) as caught:
        source.made(folder, rows, **given).read()
    assert caught.value.path == named.field
    assert named.what.format(path=folder / source.file) in caught.value.problem
    assert "\n" not in caught.value.problem


def splits(raw: RawData) -> dict[str, RawSplit]:
    """All three."""
    assert raw.validation is not None and raw.test is not None
    return {"train": raw.train, "validation": raw.validation, "test": raw.test}


def counts(labels: list[int]) -> list[int]:
    return np.bincount(labels).tolist()


# ---- what is read --------------------------------------------------------------------------------


@over()
def test_its_name_finds_it_and_it_holds_the_samples(source: Source, tmp_path: Path) -> None:
    data = source.made(tmp_path)
    assert type(data) is find(source.kind)
    raw = data.read()
    assert len(raw.classes) == 2
    for name, split in splits(raw).items():
        there = [row for row in ROWS if row.split == name]
        assert source.values(raw, split) == [row.value for row in there]
        assert source.labels(split) == [row.label for row in there]
        assert split.labels.dtype == np.int64 and split.groups is None


@over("missing_group")
def test_groups_are_those_of_the_samples_and_no_part_of_them(
    source: Source, tmp_path: Path
) -> None:
    data = source.made(tmp_path / "grouped", grouped=True)
    raw = data.read()
    assert data.unit == ("patients" if source.group == "patient" else "groups")
    for name, split in splits(raw).items():
        assert split.groups is not None
        found = [raw.group_names[number] for number in split.groups.tolist()]
        assert found == [row.group for row in ROWS if row.split == name]
    plain = source.made(tmp_path / "plain").read()
    assert np.array_equal(raw.train.images, plain.train.images)
    assert raw.notes == plain.notes and raw.columns == plain.columns


@over()
def test_a_limit_is_of_each_split_and_takes_as_much_of_each_class(
    source: Source, tmp_path: Path
) -> None:
    """Those of one class are drawn, not the first. A mask has classes of its own."""
    rows = [replace(row, label=n % 2) for n, row in enumerate(ROWS)] if source.marked else ROWS
    raw = source.made(tmp_path / "few", rows, limit=3).read()
    for split in splits(raw).values():
        values = source.values(raw, split)
        assert values == sorted(values) and len(values) == 3
        assert source.labels(split) == [rows[value].label for value in values]
        assert source.marked or counts(source.labels(split)) == [2, 1]
    assert source.values(raw, raw.train)[:2] != [0, 1]
    whole = splits(source.made(tmp_path / "all", limit=1000).read())
    assert {name: counts(source.labels(split)) for name, split in whole.items()} == SIZES
    if not source.marked:
        refused(source, Named("limit", "1 is too few for 2 classes"), tmp_path / "one", limit=1)


@over("missing_group")
def test_a_limit_keeps_groups_whole_and_says_so(source: Source, tmp_path: Path) -> None:
    raw = source.made(tmp_path, grouped=True, limit=9).read()
    assert raw.train.groups is not None
    assert np.unique(raw.train.groups, return_counts=True)[1].tolist() == [2] * 4
    assert raw.notes[0].startswith("train has 8 samples, 9 were asked for")


# ---- the digest, and the header ------------------------------------------------------------------


@over()
def test_the_digest_is_of_the_content_and_the_options_that_select(
    source: Source, tmp_path: Path
) -> None:
    number = iter(range(100))

    def digest(rows: Rows = ROWS, grouped: bool = False, **given: Any) -> str:
        return source.made(tmp_path / f"{next(number)}", rows, grouped, **given).source_digest()

    found = digest()
    assert digest() == digest(validation=0.4) == digest(augment="flip") == found  # elsewhere
    others = [digest(changed(value=20)), digest(changed(label=1)), digest(limit=4)]
    if source.missing_group is not None:
        others += [digest(grouped=True), digest(changed(group="g7"), grouped=True)]
        if source.group is not None:
            assert digest(grouped=True, group=None) not in others
    if source.splits is not None:
        only = {"train": source.splits.format("train")}
        others.append(digest(splits=only))
    assert len({found, *others}) == 1 + len(others)


MADE: dict[str, Callable[[Path], Dataset]] = {
    name: lambda folder, name=name: find(name)()
    for name in ("digits", "noisy_digits", "gaussian_clusters")
}
ALL = {**{name: source.made for name, source in SOURCES.items()}, **MADE}


@pytest.mark.parametrize("made", ALL.values(), ids=list(ALL))
def test_the_header_says_the_same_as_the_samples(
    made: Callable[[Path], Dataset], tmp_path: Path
) -> None:
    data = made(tmp_path)
    header, samples = data.samples_header(), data.samples()
    shape = samples.images.shape[1:]
    if samples.marked:
        shape = (shape[0] - 1, *shape[1:])
    assert header.shape == ((1, NODE) if header.kind == "trees" else shape)
    assert header.columns == samples.columns and header.marked == samples.marked
    assert header.names == samples.names
    if header.labels is not None:  # of all, or one of each class
        assert set(header.labels.tolist()) == set(samples.labels.tolist())
        if len(header.labels) == len(samples.labels):
            assert header.labels.tolist() == samples.labels.tolist()
    assert {*header.rows} <= {*data.source_rows()}
    assert data.source_digest() == replace(data, validation=0.4).source_digest()


@over()
def test_the_rows_of_a_header_are_of_test_alone(source: Source, tmp_path: Path) -> None:
    """Counted in their file; a file of a sample is a row, and those of objects are by split."""
    data = source.made(tmp_path)
    rows, whole = data.samples_header().rows, data.source_rows()
    if source.file.startswith("a."):
        assert [found.tolist() for found in rows.values()] == [list(range(18, 24))]
    elif source is not SOURCES["tree_bank"]:  # which looks at none
        assert {*rows} < {*whole}


@over(but="objects")  # they are written whole or not at all
def test_the_header_and_the_digest_read_no_sample_but_the_first_of_test(
    source: Source, tmp_path: Path
) -> None:
    unread = [row if row.value == 18 else replace(row, value=None) for row in ROWS]
    good, bad = source.made(tmp_path / "good"), source.made(tmp_path / "bad", unread)
    found = bad.samples_header()
    assert found._replace(rows={}, labels=None) == good.samples_header()._replace(
        rows={}, labels=None
    )
    assert re.fullmatch("[0-9a-f]{64}", bad.source_digest())


@pytest.mark.parametrize("name", [name for name, one in SOURCES.items() if one.value is pixel])
def test_an_image_stored_on_its_side_is_the_same_upright(name: str, tmp_path: Path) -> None:
    """Only the digest tells, which without the orientation is that of the files alone."""
    source = SOURCES[name]
    rows = [*ROWS[:-1], OnSide(**vars(ROWS[-1]))]  # of test, whose header is read
    upright, on_side = source.made(tmp_path / "a"), source.made(tmp_path / "b", rows)
    there = splits(on_side.read())
    for split, wanted in splits(upright.read()).items():
        assert np.array_equal(there[split].images, wanted.images)
    last = source.made(tmp_path / "c", [OnSide(**vars(row)) for row in ROWS])
    assert last.samples_header().shape == upright.samples_header().shape
    assert upright.source_digest() == upright.unturned_digest()
    assert on_side.source_digest() != on_side.unturned_digest() != upright.source_digest()


# ---- what is wrong -------------------------------------------------------------------------------


@over("gap_in_labels")
def test_a_gap_in_the_labels_is_named_by_its_place(source: Source, tmp_path: Path) -> None:
    refused(source, source.gap_in_labels, tmp_path, changed(label=None))


@over()
def test_a_gap_in_the_classes_is_named(source: Source, tmp_path: Path) -> None:
    """Train has the classes 0 and 2."""
    rows = [replace(row, label=2) if row.split == "train" and row.label else row for row in ROWS]
    refused(source, source.gap_in_classes, tmp_path, rows)


@over("new_class")
def test_a_class_that_train_has_not_is_named(source: Source, tmp_path: Path) -> None:
    """The last sample of test is of it."""
    refused(source, source.new_class, tmp_path, [*ROWS[:-1], replace(ROWS[-1], label=2)])


@over("missing_group")
def test_a_missing_group_is_named_by_its_place(source: Source, tmp_path: Path) -> None:
    refused(source, source.missing_group, tmp_path, changed(group=None), grouped=True)


@over("missing_split")
def test_a_missing_split_is_named_by_its_place(source: Source, tmp_path: Path) -> None:
    refused(source, source.missing_split, tmp_path, changed(split=None))


@over()
def test_a_source_without_train_says_which_it_has(source: Source, tmp_path: Path) -> None:
    rows = [replace(row, split="trian") if row.split == "train" else row for row in ROWS]
    refused(source, source.no_train, tmp_path, rows)


@over("splits")
def test_a_split_that_is_not_there_is_named_with_the_nearest(
    source: Source, tmp_path: Path
) -> None:
    assert source.splits is not None
    there, not_there = source.splits.format("train"), source.splits.format("trian")
    wrong = {"splits": {"train": not_there}}
    refused(source, Named("splits", not_there), tmp_path / "a", **wrong)
    refused(source, Named("splits", f"Did you mean '{there}'?"), tmp_path / "b", **wrong)
    refused(source, Named("splits", "'tset'"), tmp_path / "c", splits={"train": there, "tset": "x"})
    refused(source, Named("splits", "train"), tmp_path / "d", splits={"test": there})


@over()
def test_a_sample_that_cannot_be_read_is_named_by_its_place(source: Source, tmp_path: Path) -> None:
    refused(source, source.bad_row, tmp_path, changed(value=None))


@over("memory")
def test_what_memory_does_not_hold_is_refused(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A byte less than the samples take."""
    assert source.memory is not None
    raw = source.made(tmp_path / "a").read()
    needed = sum(split.images.nbytes for split in splits(raw).values())
    monkeypatch.setattr(source.memory, lambda: needed)
    again = source.made(tmp_path / "b").read()
    assert np.array_equal(again.train.images, raw.train.images)
    monkeypatch.setattr(source.memory, lambda: needed - 1)
    refused(source, Named(source.too_large, "this machine's memory has"), tmp_path / "c")
