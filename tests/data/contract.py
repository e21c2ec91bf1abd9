"""The sources of data that are written by their users, each as the same 24 samples, and what each
names when one of them is wrong."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from string import ascii_lowercase
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from study.notebook.objects import given_in, keep
from study.notebook.places import OnPipe
from tests.data.pngs import encoded, photo
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


Rows = Sequence[Row]
# Sorted by class, and twice as many of the first as of the second, in each split.
ROWS = [
    Row(place, int(12 <= place < 18 or place >= 22), split, f"g{place // 2}")
    for place, split in enumerate(["train"] * 18 + ["test"] * 6)
]
SIZES = {"train": [12, 6], "test": [4, 2]}  # samples of each class
BAD = 3  # the row that `changed` changes


def changed(**values: Any) -> list[Row]:
    """Row 3, of train, has these values."""
    return [replace(row, **values) if place == BAD else row for place, row in enumerate(ROWS)]


class Named(NamedTuple):
    """What an error names: the field, and a place or a value; {path} is that of the data."""

    field: str
    what: str


Write = Callable[[Path, Rows, bool], None]  # to a path; with groups or without


@dataclass(frozen=True)
class Source:
    """A kind of data, and how its files are written. What is None cannot be wrong in it."""

    kind: str
    file: str  # that `path` names, in a folder
    write: Write
    value: Callable[[RawData, np.ndarray], int]  # of a sample
    gap_in_labels: Named | None
    gap_in_classes: Named
    new_class: Named | None
    missing_group: Named | None
    missing_split: Named | None
    no_train: Named
    bad_row: Named
    memory: str | None  # the function that says how much there is
    too_large: str = "path"  # the field that an error of memory names
    options: Mapping[str, Any] = field(default_factory=dict)
    group: str | None = None  # the column of groups, or a csv beside the data
    splits: str | None = "{}"  # a split's name in the option `splits`; None: there is none
    marked: bool = False

    def made(self, folder: Path, rows: Rows = ROWS, grouped: bool = False, **given: Any) -> Dataset:
        """The data set of these samples."""
        folder.mkdir(exist_ok=True)
        self.write(folder / self.file, rows, grouped)
        options = {"path": str(folder / self.file), **self.options, **given}
        if grouped and self.group is not None:
            in_file = self.group.endswith(".csv")
            options["group"] = str(folder / self.group) if in_file else self.group
        dataset: Dataset = find(self.kind)(**options)
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
    table = {"file": files, "group": [row.group for row in rows]}
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
        write_file(path / f"{split}.txt", "".join(lines).encode())


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
    keep(given, path.parent, OnPipe(), lambda inputs: None)


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
ROW_3, ROW_23 = "{path}, row 3", "{path}, row 23: "
OF_ROWS: dict[str, Any] = {
    "gap_in_labels": Named("label", f"{ROW_3}: "),
    "gap_in_classes": Named("label", "label 1"),
    "new_class": Named("label", ROW_23),
    "missing_group": Named("group", f"{ROW_3}: "),
    "missing_split": Named("split_column", f"{ROW_3}: "),
    "no_train": Named("splits", "train"),
    "group": "patient",
}
# NumPy's whole numbers and texts have no gaps; an array of objects is refused as such.
OF_ARRAYS = {**OF_ROWS, "gap_in_labels": None, "missing_split": None}
OF_WORDS = {**OF_ROWS, "memory": TEXTS, "too_large": "length", "value": letter, "write": words}
OF_MASKS = {"new_class": Named("mask", ROW_23), "gap_in_classes": Named("mask", "class 1")}
OF_FOLDERS: dict[str, Any] = {
    "file": "set",
    "gap_in_classes": Named("path", "'1'"),
    "new_class": Named("path", "'2'"),
    "missing_group": Named("group", "groups.csv, row 3: "),
    "missing_split": None,
    "no_train": Named("splits", "train"),
    "group": "groups.csv",
}
# The class of a file is its folder, so that no label is missing.
OF_CLASSES = {**OF_FOLDERS, "gap_in_labels": None}

SOURCES = {
    "parquet": Source(
        kind="parquet",
        file="a.parquet",
        write=images,
        value=pixel,
        bad_row=Named("image", ROW_3),
        memory=PIXELS,
        options={"label": "y"},
        **OF_ROWS,
    ),
    "parquet of masks": Source(
        kind="parquet",
        file="a.parquet",
        write=masks,
        value=pixel,
        bad_row=Named("image", ROW_3),
        memory=PIXELS,
        options={"mask": "mask"},
        marked=True,
        **{**OF_ROWS, **OF_MASKS, "gap_in_labels": Named("mask", ROW_3)},
    ),
    **{
        f"table of {ending}": Source(
            kind="table",
            file=f"a.{ending}",
            write=numbers,
            value=first,
            bad_row=Named("features", ROW_3),
            memory=NUMBERS,
            options={"label": "y"},
            **(OF_ARRAYS if ending == "npz" else OF_ROWS),
        )
        for ending in ("parquet", "csv", "npz")
    },
    **{
        f"text of {ending}": Source(
            kind="text",
            file=f"a.{ending}",
            bad_row=Named("text", ROW_3),
            options={"label": "y", "length": 4},
            **OF_WORDS,
        )
        for ending in ("parquet", "csv")
    },
    "text in folders": Source(
        kind="text",
        bad_row=Named("text", "{path}/train/0/03.txt"),
        options={"length": 4},
        **{
            **OF_WORDS,
            **OF_CLASSES,
            "write": class_folders("txt"),
            "missing_group": None,
            "no_train": Named("path", "{path}"),
            "group": None,
        },
    ),
    "image_folder": Source(
        kind="image_folder",
        write=class_folders("png"),
        value=pixel,
        bad_row=Named("path", "{path}/train/0/03.png"),
        memory=PIXELS,
        **OF_CLASSES,
    ),
    "mask_folder": Source(
        kind="mask_folder",
        write=mask_folder,
        value=pixel,
        gap_in_labels=Named("path", "03.png"),
        bad_row=Named("path", "{path}/images/03.png"),
        memory=PIXELS,
        splits="{}.txt",
        marked=True,
        **{
            **OF_FOLDERS,
            "gap_in_classes": Named("path", "class 1"),
            "new_class": Named("path", "{path}/masks/23.png"),
        },
    ),
    "tree_bank": Source(
        kind="tree_bank",
        file="set",
        write=trees,
        value=letter,
        gap_in_labels=Named("path", "{path}/train.txt, line 4: "),
        gap_in_classes=Named("classes", "{path}/train.txt is positive"),
        new_class=None,
        missing_group=None,
        missing_split=None,
        no_train=Named("path", "train.txt"),
        bad_row=Named("path", "{path}/train.txt, line 4: "),
        memory=None,
        splits=None,
    ),
    "objects": Source(
        kind="arrays",
        file="data",
        write=objects,
        value=first,
        gap_in_labels=Named("data.train", "item 3"),
        gap_in_classes=Named("data.train", "label 1"),
        new_class=Named("data.test", "item 5"),
        missing_group=Named("data.groups.train", "item 3"),
        missing_split=None,
        no_train=Named("trian", "'train'"),
        bad_row=Named("data.train", "row 3"),
        memory="trainables.data.arrays.memory",
        splits=None,
    ),
}
