"""Data given as objects: told from a spec's keys, and written once into the study's folder.

From then on only these files are read: by trials on any node, `confirm`, `verify` and `export`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from filelock import FileLock

from study.notebook.frames import check_order, is_frame, without_column
from study.notebook.named import Columns
from study.notebook.places import Place
from study.notebook.samples import numbered, numbered_groups
from study.notebook.sources import Coloured, Shape, Source, source_of
from study.schema.errors import SpecError, located, under
from study.store.own_data import ARRAYS, DATA
from study.store.place import check_place
from study.store.study import StudyFolder, open_directory
from trainables.data.arrays import Arrays
from trainables.data.shared.array_files import (
    Contents,
    file_of,
    groups_of,
    labels_of,
    read_contents,
    write_contents,
    written,
)
from trainables.data.shared.splits import KNOWN_NAMES, SPLITS
from trainables.files.atomic import replacing_folder
from trainables.inputs import Inputs
from trainables.loading.cache import data_digests
from trainables.problems import FieldError, nearest

OWN = ("classes", "image", "label", "groups")  # keys that are no options of a data set
TRAIN = "Give {'train': ...}, or a pair (samples, labels)."
PAUSE = 1.0  # seconds between two lines of progress
PAUSE_ON_A_PIPE = 30.0


class Given(NamedTuple):
    """Data as a user gives them. options: of the data set that is made of them.

    groups: of each split, or of train; of data frames also the name of their column.
    """

    splits: dict[str, Any]
    classes: tuple[str, ...] | None
    columns: Columns
    options: dict[str, Any]
    groups: Any = None


def given_in(data: Any) -> Given | None:
    """The objects under a spec's `data`; None if these are plain values. Raises FieldError."""
    if data is None or isinstance(data, str | int | float | os.PathLike):
        return None
    if not isinstance(data, Mapping):
        return Given({"train": data}, None, Columns(), {})
    if {"data", "target"} <= data.keys():  # scikit-learn's, which is refused
        return Given({"train": data}, None, Columns(), {})
    splits = {name: data[name] for name in SPLITS if name in data and not _is_plain(data[name])}
    if "name" not in data and "train" in data:
        splits["train"] = data["train"]
    if not splits and ("name" in data or all(_is_of_yaml(value) for value in data.values())):
        return None
    options = {key: value for key, value in data.items() if key not in splits}
    own = {key: options.pop(key) for key in OWN if key in options}
    _check_keys(data, splits, options)
    options.pop("name", None)
    columns = Columns(own.get("image"), own.get("label"))
    classes = _checked_classes(own.get("classes"))
    groups = own.get("groups")
    if isinstance(groups, str):
        splits, groups = _without_groups(splits, groups)
    return Given(splits, classes, columns, options, groups)


def _without_groups(
    splits: Mapping[str, Any], column: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The splits without the column of their groups, and the groups of each."""
    without, groups = {}, {}
    for name, split in splits.items():
        frame = _samples_of(split)
        if not is_frame(frame):
            found = f"'{column}' is the name of a column, and {name} is no data frame"
            raise FieldError("groups", found, "Give an array [N] in place of the name.")
        with under(name):
            rest, groups[name] = without_column(frame, column)
        without[name] = rest if split is frame else (rest, *split[1:])
    return without, groups


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float)


def _is_of_yaml(value: Any) -> bool:
    return _is_plain(value) or isinstance(value, os.PathLike | list | Mapping)


def _check_keys(
    data: Mapping[str, Any], splits: Mapping[str, Any], options: Mapping[str, Any]
) -> None:
    known = {spec.name for spec in fields(Arrays)} - {"path"}
    if options.get("name", ARRAYS) != ARRAYS:
        found = f"'{options['name']}' reads files, not objects"
        raise FieldError("name", found, f"Write {ARRAYS}, or leave it out.")
    if "path" in options:
        raise FieldError("path", "is where calstudy writes the objects", "Leave it out.")
    for key in (key for key in options if key not in {*known, "name"}):
        meant = [ours for ours, theirs in KNOWN_NAMES.items() if str(key).lower() in theirs]
        mend = nearest(str(key), sorted({*known, *SPLITS, *OWN}))
        if meant:
            mend = f"Did you mean '{meant[0]}'?"
        elif not splits and not mend.startswith("Did"):
            mend = TRAIN
        raise FieldError(str(key), f"there is no key '{key}'", mend)
    if "train" not in splits:
        raise FieldError("train", f"is missing in a {type(data).__name__}", TRAIN)


def _checked_classes(classes: Any) -> tuple[str, ...] | None:
    if classes is None:
        return None
    names = tuple(map(str, classes)) if isinstance(classes, list | tuple | np.ndarray) else ()
    if not names or len(set(names)) < len(names):
        found = "must be a list of names that differ"
        raise FieldError("classes", f"{found}, got {classes!r:.80}")
    return names


# ---- kept ----------------------------------------------------------------------------------------


def keep(given: Given, directory: Path, place: Place, check: Callable[[Inputs], None]) -> None:
    """Write the data into the study's folder, unless they are there already.

    check: raises SpecError for samples that the study cannot use. Raises SpecError if the data
    cannot be used, or a study that has begun has others.
    """
    with located("", "data"):
        sources = _sources(given)
    with located("", "data.train"):
        shape = sources["train"].shape()
    if not (directory / "study.yaml").exists():
        check(Inputs(shape.size, shape.kind))
    check_place("", directory)
    directory.mkdir(parents=True, exist_ok=True)
    lock = directory / f"{DATA}.lock"
    try:
        with FileLock(lock), located("", "data"), _Told(place) as told:
            _keep(given, sources, directory, told)
    except BaseException:
        if not any((directory / name).exists() for name in ("study.yaml", DATA)):
            lock.unlink(missing_ok=True)
            with suppress(OSError):  # it has something else
                directory.rmdir()
        raise


def _keep(given: Given, sources: Mapping[str, Source], directory: Path, told: _Told) -> None:
    study = None
    if (directory / "study.yaml").exists():
        study = open_directory(directory, directory.name)
        _refuse_other_kind(study)
    folder = directory / DATA
    if folder.exists():
        try:
            there = read_contents(str(folder))
        except FieldError:
            if study is not None:
                raise
        else:
            found = _contents(given, sources, None, told)
            if found == there:
                return
            if study is not None:
                raise _others(directory.name, found, there)
    with replacing_folder(folder) as new:
        write_contents(new, _contents(given, sources, new, told))
        if study is not None and not _are_of(study, new):
            raise _others(directory.name)
    told.stays(f"data written to {folder}: {_sizes(sources)}")


def _sources(given: Given) -> dict[str, Source]:
    sources = {}
    for name, found in given.splits.items():
        with under(name):
            source = source_of(found, given.columns)
            if not len(source):
                raise FieldError("", "has no samples", "Give some, or leave the split out.")
            source.check()
            sources[name] = source
    return sources


def _contents(
    given: Given, sources: Mapping[str, Source], folder: Path | None, told: _Told
) -> Contents:
    """What the objects are as files, which are written into the folder if there is one."""
    with under("train"):
        shape = sources["train"].shape()
    try:
        digests = _samples(sources, shape, folder, told)
    except Coloured:
        shape = Shape(shape.kind, (3, *shape.size[1:]))
        digests = _samples(sources, shape, folder, told)
    labels = {}
    for name, source in sources.items():
        with under(name):
            labels[name] = source.labels()
    classes, numbers = numbered(labels, given.classes, sources["train"].classes)
    for name, found in numbers.items():
        file = labels_of(name)
        digests[file] = written(folder, file, "<i8", found.shape, partial(_alone, found))
    sizes = {name: len(source) for name, source in sources.items()}
    with under("groups"):
        groups, names = numbered_groups(given.groups, sizes)
    for name, found in groups.items():
        with under(f"groups.{name}"):
            check_order(_samples_of(given.splits[name]), _of_split(given.groups, name), "groups")
        file = groups_of(name)
        digests[file] = written(folder, file, "<i8", found.shape, partial(_alone, found))
    return Contents(classes, sources["train"].columns, digests, names)


def _samples(
    sources: Mapping[str, Source], shape: Shape, folder: Path | None, told: _Told
) -> dict[str, str]:
    """The digest of each split's samples, by file."""
    digests = {}
    for name, source in sources.items():

        def parts(name: str = name, source: Source = source) -> Iterator[np.ndarray]:
            done = 0
            for part in source.parts(shape):
                yield part
                done += len(part)
                told(name, done, len(source))

        with under(name):
            whole = (len(source), *shape.size)
            digests[file_of(name)] = written(folder, file_of(name), shape.dtype, whole, parts)
    return digests


def _samples_of(split: Any) -> Any:
    """Of a pair its samples."""
    return split[0] if isinstance(split, tuple | list) else split


def _of_split(groups: Any, name: str) -> Any:
    return groups[name] if isinstance(groups, Mapping) else groups


def _alone(found: np.ndarray) -> list[np.ndarray]:
    return [found]


def _refuse_other_kind(study: StudyFolder) -> None:
    data = study.plain["data"]
    name = data["name"] if isinstance(data, Mapping) else data
    if name != ARRAYS:
        raise FieldError("", f"'{study.name}' has begun with {name}", "Write another name.")


def _are_of(study: StudyFolder, folder: Path) -> bool:
    """Whether a study that has begun had these data."""
    data: Any = study.spec.data
    found = data_digests(replace(data, path=str(folder)), study.spec.seed)
    return study.recorded.data_digest in found


def _others(name: str, found: Contents | None = None, there: Contents | None = None) -> SpecError:
    """The error of data that are not those of a study."""
    path = "data"
    what = f"'{name}' has begun with other data"
    if found is not None and there is not None:
        path, detail = _difference(found, there)
        what = f"{what}: {detail}"
    mend = f"Give the same, or write another name. Without data: Study.open({name!r})."
    return SpecError("", path, what, mend)


def _difference(found: Contents, there: Contents) -> tuple[str, str]:
    """The first difference: its path, and what it is."""
    for split in SPLITS:
        for file in (file_of(split), labels_of(split), groups_of(split)):
            now = found.digests.get(file, "absent")
            was = there.digests.get(file, "absent")
            if now != was:
                return f"data.{split}", f"sha256 {now[:12]}, was {was[:12]}"
    if found.classes != there.classes:
        return "data.classes", f"{', '.join(found.classes)}; was {', '.join(there.classes)}"
    return "data.train", "its columns or groups have other names"


def _sizes(sources: Mapping[str, Source]) -> str:
    return ", ".join(f"{name} {len(source):,}" for name, source in sources.items())


class _Told:
    """Says now and then how much is read. A context manager, after which nothing of it is shown."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._spoke = time.monotonic()
        self._pause = PAUSE if place.in_place else PAUSE_ON_A_PIPE

    def __enter__(self) -> _Told:
        return self

    def __exit__(self, *failure: Any) -> None:
        self._place.end()

    def __call__(self, split: str, done: int, total: int) -> None:
        now = time.monotonic()
        if now - self._spoke >= self._pause:
            self._spoke = now
            self._place.passes(f"reading data: {split}, {done:,} of {total:,}")

    def stays(self, line: str) -> None:
        self._place.stays(line)
