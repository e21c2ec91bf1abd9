"""Parquet files, written here with pyarrow and pillow, and what is said of bad ones."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from tests.data.bombs import png_of
from trainables.data import parquet
from trainables.data.parquet import Parquet
from trainables.data.shared.images import SMALL_BYTES, decode
from trainables.loading.cache import prepare
from trainables.problems import FieldError


def png(value: int | tuple[int, ...], size: tuple[int, int] = (4, 3), mode: str = "RGB") -> bytes:
    """An image of one colour, 4 wide and 3 high."""
    buffer = io.BytesIO()
    Image.new(mode, size, value).save(buffer, "png")
    return buffer.getvalue()


def rgb(*values: int) -> list[bytes]:
    return [png((value, value + 1, value + 2)) for value in values]


def write(path: Path, metadata: dict[str, Any] | None = None, **columns: Any) -> Path:
    table = pa.table(columns)
    if metadata is not None:
        table = table.replace_schema_metadata({"huggingface": json.dumps(metadata)})
    pq.write_table(table, path)
    return path


def good(path: Path, **changes: Any) -> Path:
    """Twelve training and four test images of two classes, sorted by class; row i has
    the colour (i, i + 1, i + 2)."""
    columns = {
        "image": rgb(*range(16)),
        "label": [0] * 6 + [1] * 6 + [0, 0, 1, 1],
        "split": ["train"] * 12 + ["test"] * 4,
    }
    return write(
        path,
        **{name: values for name, values in {**columns, **changes}.items() if values is not None},
    )


def error_of(**options: Any) -> FieldError:
    with pytest.raises(FieldError) as caught:
        Parquet(**options).read()
    return caught.value


def first_pixels(split: Any) -> list[list[int]]:
    return split.images[:, :, 0, 0].tolist()


def test_reads_the_rows_of_each_split(tmp_path):
    data = Parquet(path=str(good(tmp_path / "set.parquet"))).read()
    assert data.train.images.shape == (12, 3, 3, 4)  # height 3, width 4
    assert data.train.images.dtype == np.uint8
    assert first_pixels(data.train) == [[i, i + 1, i + 2] for i in range(12)]
    assert data.train.labels.tolist() == [0] * 6 + [1] * 6
    assert data.train.labels.dtype == np.int64
    assert first_pixels(data.test) == [[i, i + 1, i + 2] for i in range(12, 16)]
    assert data.test.labels.tolist() == [0, 0, 1, 1]
    assert data.validation is None
    assert data.classes == ("0", "1")


def test_splits_that_lie_among_each_other_keep_their_rows(tmp_path):
    split = ["test", "train"] * 8
    data = Parquet(
        path=str(good(tmp_path / "set.parquet", split=split, label=[0, 0, 1, 1] * 4))
    ).read()
    assert [pixel[0] for pixel in first_pixels(data.train)] == list(range(1, 16, 2))
    assert [pixel[0] for pixel in first_pixels(data.test)] == list(range(0, 16, 2))
    assert data.test.labels.tolist() == [0, 1] * 4


def test_more_rows_than_one_slice_stay_in_order(tmp_path):
    images, n = rgb(0, 100), 700
    path = write(
        tmp_path / "set.parquet",
        image=[images[i % 2] for i in range(n)],
        label=[i % 2 for i in range(n)],
    )
    told: list[tuple[int, int]] = []
    data = Parquet(path=str(path)).read(progress=lambda done, total: told.append((done, total)))
    assert data.train.images[:, 0, 0, 0].tolist() == [0, 100] * (n // 2)
    assert told == [(256, 700), (512, 700), (700, 700)]


def test_grey_stays_one_channel(tmp_path):
    path = good(tmp_path / "set.parquet", image=[png(i, mode="L") for i in range(16)])
    data = Parquet(path=str(path)).read()
    assert data.train.images.shape == (12, 1, 3, 4)
    assert data.train.images[:, 0, 0, 0].tolist() == list(range(12))


def test_grey_among_colours_becomes_rgb(tmp_path):
    path = good(tmp_path / "set.parquet", image=[*rgb(*range(15)), png(7, mode="L")])
    data = Parquet(path=str(path)).read()
    assert first_pixels(data.test)[-1] == [7, 7, 7]


def test_other_modes_become_rgb(tmp_path):
    see_through = png((9, 8, 7, 100), mode="RGBA")
    data = Parquet(path=str(good(tmp_path / "set.parquet", image=[see_through] * 16))).read()
    assert first_pixels(data.train)[0] == [9, 8, 7]


def test_images_may_be_structs_of_bytes(tmp_path):
    structs = [{"bytes": image, "path": None} for image in rgb(*range(16))]
    data = Parquet(path=str(good(tmp_path / "set.parquet", image=structs))).read()
    assert first_pixels(data.test) == [[i, i + 1, i + 2] for i in range(12, 16)]


def test_other_column_names(tmp_path):
    path = write(
        tmp_path / "a.parquet",
        img=rgb(0, 1, 2),
        fine_label=[0, 1, 1],
        part=["train", "train", "test"],
    )
    data = Parquet(path=str(path), image="img", label="fine_label", split_column="part").read()
    assert data.train.labels.tolist() == [0, 1]
    assert data.test.labels.tolist() == [1]


def test_a_folder_of_shards(tmp_path):
    write(tmp_path / "train-00000-of-00002.parquet", image=rgb(0, 1), label=[0, 0])
    write(tmp_path / "train-00001-of-00002.parquet", image=rgb(2, 3), label=[1, 1])
    write(tmp_path / "validation-00000-of-00001.parquet", image=rgb(4, 5), label=[0, 1])
    write(tmp_path / "test.parquet", image=rgb(6), label=[1])
    data = Parquet(path=str(tmp_path)).read()
    assert [pixel[0] for pixel in first_pixels(data.train)] == [0, 1, 2, 3]
    assert [pixel[0] for pixel in first_pixels(data.validation)] == [4, 5]
    assert [pixel[0] for pixel in first_pixels(data.test)] == [6]
    assert data.train.labels.tolist() == [0, 0, 1, 1]


def test_a_file_without_a_split_column_is_train(tmp_path):
    data = Parquet(path=str(good(tmp_path / "anything.parquet", split=None))).read()
    assert len(data.train.labels) == 16
    assert data.test is None


@pytest.mark.parametrize("name", ["validation", "valid", "val", "dev"])
def test_with_only_train_and_val_the_latter_is_sealed(tmp_path, name):
    path = good(tmp_path / "set.parquet", split=["train"] * 12 + [name] * 4)
    data = Parquet(path=str(path)).read()
    assert data.validation is None
    assert len(data.test.labels) == 4


def test_splits_are_taken_as_the_mapping_says(tmp_path):
    split = ["fit"] * 6 + ["fit2"] * 6 + ["hold"] * 4
    path = good(tmp_path / "set.parquet", split=split, label=[0, 1] * 8)
    data = Parquet(path=str(path), splits={"train": "fit2", "validation": "hold"}).read()
    assert [pixel[0] for pixel in first_pixels(data.train)] == list(range(6, 12))
    assert [pixel[0] for pixel in first_pixels(data.validation)] == list(range(12, 16))
    assert data.test is None


def test_class_names_of_hugging_face_metadata(tmp_path):
    features = {"label": {"names": ["cat", "dog"], "_type": "ClassLabel"}}
    path = good(tmp_path / "set.parquet", metadata={"info": {"features": features}})
    assert Parquet(path=str(path)).read().classes == ("cat", "dog")


def test_class_names_of_a_class_column(tmp_path):
    path = good(
        tmp_path / "set.parquet", **{"class": ["cat"] * 6 + ["dog"] * 6 + ["cat"] * 2 + ["dog"] * 2}
    )
    assert Parquet(path=str(path)).read().classes == ("cat", "dog")


def test_class_column_that_disagrees_with_the_labels_is_not_believed(tmp_path):
    two_for_one_label = good(tmp_path / "a.parquet", **{"class": ["cat"] * 5 + ["dog"] * 11})
    one_for_two_labels = good(tmp_path / "b.parquet", **{"class": ["cat"] * 16})
    for path in (two_for_one_label, one_for_two_labels):
        assert Parquet(path=str(path)).read().classes == ("0", "1")


def test_relative_path_is_the_same_file_from_everywhere(tmp_path, monkeypatch):
    path = good(tmp_path / "set.parquet")
    monkeypatch.chdir(tmp_path)
    assert Parquet(path="set.parquet").path == str(path)


def test_missing_file(tmp_path):
    good(tmp_path / "cifar10.parquet")
    error = error_of(path=str(tmp_path / "cifar01.parquet"))
    assert error.path == "path"
    assert (
        f"there is no {tmp_path / 'cifar01.parquet'}. Did you mean 'cifar10.parquet'?"
        in error.problem
    )
    with pytest.raises(FieldError, match="there is no"):
        Parquet(path=str(tmp_path / "nowhere" / "x.parquet")).source_digest()


def test_folder_without_parquet_names_the_one_that_has_some(tmp_path):
    (tmp_path / "data").mkdir()
    good(tmp_path / "data" / "train.parquet")
    error = error_of(path=str(tmp_path))
    assert error.path == "path"
    assert str(tmp_path / "data") in error.problem


@pytest.mark.parametrize("content", [b"", b"not parquet", b"PAR1 cut off in the middle PAR1"])
def test_not_a_parquet_file(tmp_path, content):
    path = tmp_path / "set.parquet"
    path.write_bytes(content)
    error = error_of(path=str(path))
    assert error.path == "path"
    assert f"{path} cannot be read as parquet" in error.problem


def test_damaged_parquet_file(tmp_path):
    path = good(tmp_path / "set.parquet")
    content = bytearray(path.read_bytes())
    content[4:400] = bytes(396)  # the first pages, the footer is whole
    path.write_bytes(content)
    assert error_of(path=str(path)).path == "path"


@pytest.mark.parametrize(
    ("options", "path", "said"),
    [
        ({"image": "imag"}, "image", "has no column 'imag'. Did you mean 'image'?"),
        ({"label": "lable"}, "label", "has no column 'lable'. Did you mean 'label'?"),
        ({"split_column": "splt"}, "split_column", "has no column 'splt'. Did you mean 'split'?"),
        ({"image": "split"}, "image", "has type string, not encoded images"),
        ({"label": "split"}, "label", "has type string, not integers. Integer columns: label"),
        (
            {"splits": {"train": "train", "test": "train"}},
            "splits",
            "uses one split of the source twice",
        ),
        ({"splits": {"train": "train", "test": 1}}, "splits", "'test' must be the name of a split"),
        ({"splits": "train"}, "splits", "must be a mapping"),
        ({"limit": 0}, "limit", "must be >= 1, got 0"),
        ({"path": 3}, "path", "must be text"),
    ],
)
def test_bad_option(tmp_path, options, path, said):
    error = error_of(**{"path": str(good(tmp_path / "set.parquet")), **options})
    assert error.path == path
    assert said in error.problem


@pytest.mark.parametrize(
    ("changes", "path", "said"),
    [
        (
            {"image": [*rgb(*range(13)), png(3)[:45], *rgb(1, 2)]},
            "image",
            "row 13: the image cannot be decoded",
        ),
        ({"image": [*rgb(*range(13)), None, *rgb(1, 2)]}, "image", "row 13: the image is missing"),
        (
            {"image": [*rgb(*range(15)), png(1, mode="I;16")]},
            "image",
            "row 15: the image has more than 8 bits per channel (mode I;16). Save",
        ),
        ({"image": [*rgb(*range(15)), png(1, (5, 3))]}, "image", "row 15: the image is 5x3 pixels"),
        ({"label": [0.0] * 8 + [1.0] * 8}, "label", "has type double, not integers"),
        ({"label": [0, 1] * 7 + [0, -1]}, "label", "row 15: the label is -1"),
        ({"label": [1, 2] * 8}, "label", "no training sample has label 0, but the highest is 2"),
        (
            {"label": [0, 10**12] * 8},
            "label",
            "no training sample has label 1, but the highest is 1000000000000",
        ),
        ({"label": [0] * 16}, "label", "at least two classes are needed"),
        ({"split": ["a"] * 12 + ["b"] * 4}, "splits", "is called train. Its splits: a, b."),
        ({"split": ["train"] * 12 + ["val", "dev"] * 2}, "splits", "dev and val in"),
    ],
)
def test_bad_content(tmp_path, changes, path, said):
    error = error_of(path=str(good(tmp_path / "set.parquet", **changes)))
    assert error.path == path
    assert said in error.problem
    assert str(tmp_path / "set.parquet") in error.problem or path == "label"


def test_images_of_two_sizes_far_from_each_other(tmp_path):
    images = rgb(1) * 512 + [png((1, 1, 1), (4, 4))] * 88
    path = write(tmp_path / "set.parquet", image=images, label=[0, 1] * 300)
    error = error_of(path=str(path))
    assert "row 512: the image is 4x4 pixels, the one in" in error.problem
    assert "row 0 is 4x3" in error.problem


def test_row_is_counted_in_its_own_file(tmp_path):
    write(tmp_path / "test.parquet", image=rgb(0, 1), label=[0, 1])
    write(tmp_path / "train.parquet", image=[*rgb(0, 1), b"x"], label=[0, 1, 1])
    assert (
        f"{tmp_path / 'train.parquet'}, row 2: the image cannot"
        in error_of(path=str(tmp_path)).problem
    )


def test_no_rows(tmp_path):
    empty = {"image": pa.array([], pa.binary()), "label": pa.array([], pa.int64())}
    path = write(tmp_path / "set.parquet", **empty)
    error = error_of(path=str(path))
    assert error.path == "path"
    assert "its train split is empty" in error.problem


def test_empty_train_split_beside_a_full_test(tmp_path):
    write(
        tmp_path / "train.parquet", image=pa.array([], pa.binary()), label=pa.array([], pa.int64())
    )
    write(tmp_path / "test.parquet", image=rgb(0, 1), label=[0, 1])
    error = error_of(path=str(tmp_path))
    assert error.path == "path"
    assert "the train split of" in error.problem


def test_too_few_samples_of_a_class_to_split(tmp_path):
    labels, names = [0] * 14 + [1] * 2, ["cat"] * 14 + ["dog"] * 2
    path = good(tmp_path / "set.parquet", label=labels, split=None, **{"class": names})
    with pytest.raises(
        FieldError,
        match="class 'dog' has too few samples to split: train has 2, but train, test, val",
    ):
        prepare(Parquet(path=str(path)), 0, tmp_path / "cache")


def test_large_images_are_decoded_by_many_threads_to_the_same(tmp_path):
    noise = np.random.default_rng(0).integers(0, 256, (600, 40, 40, 3), dtype=np.uint8)
    images = []
    for pixels in noise:
        buffer = io.BytesIO()
        Image.fromarray(pixels).save(buffer, "png", compress_level=0)
        images.append(buffer.getvalue())
    path = write(tmp_path / "set.parquet", image=images, label=[0, 1] * 300)
    assert path.stat().st_size > 600 * SMALL_BYTES
    assert np.array_equal(Parquet(path=str(path)).read().train.images, noise.transpose(0, 3, 1, 2))


# Below, above Pillow's limits.
@pytest.mark.parametrize("size", [(10_000, 8_001), (9_459, 10_000), (100_000, 100_000)])
def test_an_image_with_too_many_pixels_is_refused_before_it_is_decoded(size, tmp_path):
    path = good(tmp_path / "set.parquet", image=[*rgb(*range(15)), png_of(*size)])
    pixels = f"{size[0] * size[1]:,}"
    problem = (
        f"the image cannot be decoded (it has {pixels} pixels, the limit is 80,000,000). Fix or"
        " remove the row."
    )
    assert error_of(path=str(path)).problem == f"{path}, row 15: {problem}"


def test_images_that_do_not_fit_into_memory_are_refused_by_the_header_of_the_first(tmp_path):
    """A dictionary holds one small image for all rows."""
    path = write(
        tmp_path / "set.parquet", image=[png_of(8_000, 8_000)] * 100_000, label=[0, 1] * 50_000
    )
    assert path.stat().st_size < 1_000_000
    said = (
        "100,000 images of 8000x8000 pixels take 6,400 GB once decoded, this machine's memory has"
    )
    assert error_of(path=str(path)).problem.startswith(said)


@pytest.mark.parametrize(
    ("changes", "limit", "said"),
    [
        ({}, 16 * 128 - 1, "16 rows of {path} would take 0.0 GB"),
        (
            {"image": [*rgb(*range(15)), bytes(100_000)]},
            100_000,
            "a row group of {path} would take 0.0 GB",
        ),
    ],
)
def test_more_than_memory_holds_is_refused_by_the_footer(
    changes, limit, said, tmp_path, monkeypatch
):
    path = good(tmp_path / "set.parquet", **changes)
    monkeypatch.setattr(parquet, "memory", lambda: limit)
    monkeypatch.setattr(pq.ParquetFile, "read", None)  # it is not called
    assert error_of(path=str(path)).problem.startswith(
        f"{said.format(path=path)}, this machine's memory has 0.0 GB. "
    )


@pytest.mark.parametrize("content", ["the same rows", "fewer rows", "nothing"])
def test_a_file_replaced_while_it_is_decoded_is_not_cached(content, tmp_path, monkeypatch):
    path, rows = good(tmp_path / "set.parquet"), []

    def replacing(encoded, size):
        if not rows:
            if content == "the same rows":
                good(tmp_path / "new", image=rgb(*range(100, 116)))
            elif content == "fewer rows":
                good(tmp_path / "new", image=rgb(1, 2), label=[0, 1], split=["train", "test"])
            else:
                (tmp_path / "new").write_bytes(b"")
            (tmp_path / "new").rename(path)
        rows.append(encoded)
        return decode(encoded, size)

    monkeypatch.setattr(parquet, "decode", replacing)
    with pytest.raises(FieldError) as error:
        prepare(Parquet(path=str(path)), 0, tmp_path / "cache")
    assert rows and error.value.problem.startswith(
        f"{path} was changed while it was read. Nothing is kept of it"
    )
    assert not [found for found in (tmp_path / "cache").iterdir() if found.is_dir()]
