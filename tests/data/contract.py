"""The sources of data that users write, each of the same 24 samples, and what each names when one
of these is wrong."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from study.notebook.objects import given_in, keep
from study.notebook.places import Place
from tests.data.pngs import encoded, photo
from tests.data.turned import tagged
from trainables.data import find
from trainables.dataset import Dataset, RawData, RawSplit


@dataclass(frozen=True)
class Row:
    """A sample. value: what it holds, as a pixel, a number or a word; None: it cannot be read."""

    value: int | None
    label: int | None
    split: str | None
    group: str | None

    @property
    def word(self) -> str:
        return "" if self.value is None else ascii_lowercase[self.value]

    @property
    def png(self) -> bytes:
        return b"no image" if self.value is None else photo(self.value, (2, 3))

    @property
    def mask(self) -> bytes | None:
        return None if self.label is None else encoded(np.full((2, 3), self.label))


class OnSide(Row):
    """Its image is stored on its side, with the EXIF orientation that makes it upright."""

    @property
    def png(self) -> bytes:
        return tagged(np.full((3, 2, 3), self.value), 6)


Rows = Sequence[Row]
# Sorted by class, and twice as many of the first as of the second, in each split.
SIZES = {"train": [8, 4], "validation": [4, 2], "test": [4, 2]}
KINDS = [(n, label) for n, sizes in SIZES.items() for label in (0, 1) for _ in range(sizes[label])]
ROWS = [Row(place, label, split, f"g{place // 2}") for place, (split, label) in enumerate(KINDS)]
BAD = 3  # the row that `changed` changes


def changed(**values: Any) -> list[Row]:
    """Row 3, of train, has these values."""
    return [replace(row, **values) if place == BAD else row for place, row in enumerate(ROWS)]


@dataclass(frozen=True)
class Named:
    """What an error names: the field, and a place or a value; {path} is that of the data."""

    field: str
    what: str


Write = Callable[[Path, Rows, bool], None]  # to a path; with groups or without


ROW_3, ROW_23 = "{path}, row 3", "{path}, row 23: "


@dataclass(frozen=True)
class Source:
    """A kind of data, how its files are written, and what its errors name: unless said otherwise
    as of rows with columns. None: it cannot be wrong in this."""

    kind: str
    file: str  # that `path` names, in a folder
    write: Write
    value: Callable[[RawData, np.ndarray], int]  # of a sample
    bad_row: Named
    memory: str | None  # the function that says how much there is
    options: Mapping[str, Any] = field(default_factory=dict)
    gap_in_labels: Named | None = Named("label", f"{ROW_3}: ")
    gap_in_classes: Named = Named("label", "label 1")
    new_class: Named | None = Named("label", ROW_23)
    missing_group: Named | None = Named("group", f"{ROW_3}: ")
    missing_split: Named | None = Named("split_column", f"{ROW_3}: ")
    no_train: Named = Named("splits", "train")
    too_large: str = "path"  # the field that an error of memory names
    group: str | None = "patient"  # the column of groups, or a csv beside the data
    splits: str | None = "{}"  # a split's name in the option `splits`; None: there is none
    marked: bool = False

    def made(self, folder: Path, rows: Rows = ROWS, grouped: bool = False, **given: Any) -> Dataset:
        """The data set of these samples."""
        folder.mkdir(exist_ok=True)
        self.write(folder / self.file, rows, grouped)
        options = {"path": str(folder / self.file), **self.options}
        if grouped and self.group is not None:
            in_file = self.group.endswith(".csv")
            options["group"] = str(folder / self.group) if in_file else self.group
        dataset: Dataset = find(self.kind)(**{**options, **given})
        return dataset

    def labels(self, split: RawSplit) -> list[int]:
        """The class of each sample; of the first pixel of its mask."""
        found = split.images[:, -1, 0, 0].astype(int) - 1 if self.marked else split.labels
        return found.tolist()

    def values(self, raw: RawData, split: RawSplit) -> list[int]:
        return [self.value(raw, sample) for sample in split.images]


# ---- files of rows -------------------------------------------------------------------------------


def columns(rows: Rows, grouped: bool, **own: list[Any]) -> dict[str, list[Any]]:
    found = {**own, "y": [row.label for row in rows], "split": [row.split for row in rows]}
    return {**found, "patient": [row.group for row in rows]} if grouped else found


def saved(found: dict[str, list[Any]], path: Path) -> None:
    if path.suffix == ".parquet":
        pq.write_table(pa.table(found), path)
    else:
        pd.DataFrame(found).astype({"y": "Int64"}).to_csv(path, index=False)


def images(path: Path, rows: Rows, grouped: bool) -> None:
    saved(columns(rows, grouped, image=[row.png for row in rows]), path)


def masks(path: Path, rows: Rows, grouped: bool) -> None:
    own = {"image": [row.png for row in rows], "mask": [row.mask for row in rows]}
    saved(columns(rows, grouped, **own), path)


def numbers(path: Path, rows: Rows, grouped: bool) -> None:
    values = [np.nan if row.value is None else float(row.value) for row in rows]
    found = columns(rows, grouped, a=values, b=[0.5] * len(rows))
    if path.suffix != ".npz":
        saved(found, path)
        return
    features = np.stack([found.pop("a"), found.pop("b")], axis=1)
    groups = {"patient": [row.group or "" for row in rows]} if grouped else {}
    np.savez(path, features=features, y=found["y"], splits=found["split"], **groups)


def words(path: Path, rows: Rows, grouped: bool) -> None:
    saved(columns(rows, grouped, text=[row.word or None for row in rows]), path)


# ---- folders -------------------------------------------------------------------------------------


def write_file(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def write_groups(path: Path, files: list[str], rows: Rows) -> None:
    """From the last file to the first."""
    table = {"file": files[::-1], "group": [row.group for row in rows[::-1]]}
    pd.DataFrame(table).to_csv(path.parent / "groups.csv", index=False)


def class_folders(ending: str) -> Write:
    """SPLIT/CLASS/00.png, or .txt."""

    def write(path: Path, rows: Rows, grouped: bool) -> None:
        files = [f"{row.split}/{row.label}/{n:02}.{ending}" for n, row in enumerate(rows)]
        for file, row in zip(files, rows, strict=True):
            text = row.word.encode() or b"d\xe9j\xe0"
            write_file(path / file, row.png if ending == "png" else text)
        if grouped:
            write_groups(path, files, rows)

    return write


def mask_folder(path: Path, rows: Rows, grouped: bool) -> None:
    for number, row in enumerate(rows):
        write_file(path / f"images/{number:02}.png", row.png)
        if row.mask is not None:
            write_file(path / f"masks/{number:02}.png", row.mask)
    for split in {row.split for row in rows}:
        there = [f"{number:02}\n" for number, row in enumerate(rows) if row.split == split]
        (path / f"{split}.txt").write_text("".join(there))
    if grouped:
        write_groups(path, [f"images/{number:02}.png" for number in range(len(rows))], rows)


def trees(path: Path, rows: Rows, grouped: bool) -> None:
    """A tree a line. The classes 0 and 1 are the labels 0 and 4; 2 is neutral, and left out."""
    said = {0: "0", 1: "4", 2: "2", None: ""}
    for split in {row.split for row in rows}:
        lines = [f"({said[row.label]} {row.word})\n" for row in rows if row.split == split]
        name = "dev" if split == "validation" else split
        write_file(path / f"{name}.txt", "".join(lines).encode())


def objects(path: Path, rows: Rows, grouped: bool) -> None:
    """Pairs of arrays in a dict, as `Study.create(data=...)` takes them."""
    data: dict[str, Any] = {}
    groups = {}
    for split in dict.fromkeys(row.split for row in rows):
        there = [row for row in rows if row.split == split]
        values = [(np.nan if row.value is None else row.value, 0.5) for row in there]
        labels = [np.nan if row.label is None else row.label for row in there]
        data[str(split)] = (np.array(values, dtype=np.float32), np.array(labels))
        groups[split] = [row.group for row in there]
    given = given_in({**data, "groups": groups} if grouped else data)
    assert given is not None
    keep(given, path.parent, Place(), lambda inputs: None)


# ---- all -----------------------------------------------------------------------------------------


def pixel(raw: RawData, sample: np.ndarray) -> int:
    return int(sample[0, 0, 0])


def first(raw: RawData, sample: np.ndarray) -> int:
    return int(sample[0])


def letter(raw: RawData, sample: np.ndarray) -> int:
    assert raw.words is not None
    return ascii_lowercase.index(raw.words.all[int(sample.flat[0]) - 2])


PIXELS = "trainables.data.shared.images.memory"
NUMBERS = "trainables.data.table.memory"
TEXTS = "trainables.data.text.memory"
OBJECTS = "trainables.data.arrays.memory"
Y, Y_4 = {"label": "y"}, {"label": "y", "length": 4}

PARQUET = Source("parquet", "a.parquet", images, pixel, Named("image", ROW_3), PIXELS, Y)
TABLE = Source("table", "a.parquet", numbers, first, Named("features", ROW_3), NUMBERS, Y)
TEXT = Source(
    "text", "a.parquet", words, letter, Named("text", ROW_3), TEXTS, Y_4, too_large="length"
)
IMAGE = Named("path", "{path}/train/0/03.png")
IMAGE_FOLDER = Source(
    *("image_folder", "set", class_folders("png"), pixel, IMAGE, PIXELS),
    gap_in_labels=None,  # the class of a file is its folder
    gap_in_classes=Named("path", "'1'"),
    new_class=Named("path", "'2'"),
    missing_group=Named("group", "groups.csv, row 20: "),
    missing_split=None,
    group="groups.csv",
)
LINE = Named("path", "{path}/train.txt, line 4: ")
TREES = Source(
    *("tree_bank", "set", trees, letter, LINE, None),
    gap_in_labels=LINE,
    gap_in_classes=Named("classes", "{path}/train.txt is positive"),
    new_class=None,
    missing_group=None,
    missing_split=None,
    no_train=Named("path", "train.txt"),
    splits=None,
)
SOURCES = {
    "parquet": PARQUET,
    "parquet of masks": replace(
        PARQUET,
        write=masks,
        options={"mask": "mask"},
        gap_in_labels=Named("mask", ROW_3),
        gap_in_classes=Named("mask", "class 1"),
        new_class=Named("mask", ROW_23),
        marked=True,
    ),
    "table of parquet": TABLE,
    "table of csv": replace(TABLE, file="a.csv"),
    # NumPy's whole numbers and texts have no gaps; an array of objects is refused as such.
    "table of npz": replace(TABLE, file="a.npz", gap_in_labels=None, missing_split=None),
    "text of parquet": TEXT,
    "text of csv": replace(TEXT, file="a.csv"),
    "text in folders": replace(
        IMAGE_FOLDER,
        kind="text",
        write=class_folders("txt"),
        value=letter,
        bad_row=Named("text", "{path}/train/0/03.txt"),
        memory=TEXTS,
        too_large="length",
        options={"length": 4},
        missing_group=None,
    ),
    "image_folder": IMAGE_FOLDER,
    "mask_folder": replace(
        IMAGE_FOLDER,
        kind="mask_folder",
        write=mask_folder,
        gap_in_labels=Named("path", "03.png"),
        gap_in_classes=Named("path", "class 1"),
        new_class=Named("path", "{path}/masks/23.png"),
        bad_row=Named("path", "{path}/images/03.png"),
        splits="{}.txt",
        marked=True,
    ),
    "tree_bank": TREES,
    "objects": Source(
        *("arrays", "data", objects, first, Named("data.train", "row 3"), OBJECTS),
        gap_in_labels=Named("data.train", "item 3"),
        gap_in_classes=Named("data.train", "label 1"),
        new_class=Named("data.test", "item 5"),
        missing_group=Named("data.groups.train", "item 3"),
        missing_split=None,
        no_train=Named("trian", "'train'"),
        group=None,  # in the data
        splits=None,
    ),
}
