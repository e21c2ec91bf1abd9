"""The folder of `arrays`: plain npy files, and a json that says what they are.

FOLDER/{train,validation,test}.npy     uint8 [N, C, H, W], or float32 [N, D]
FOLDER/{...}_labels.npy                int64 [N], in [0, K)
FOLDER/{...}_groups.npy                int64 [N], if samples belong together
FOLDER/arrays.json                     names of classes, columns and groups; each file's sha256
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from trainables.data.shared.splits import SPLITS
from trainables.dataset import RawSplit
from trainables.files.atomic import Hashing, write_stream
from trainables.files.digest import file_digest
from trainables.files.regular import open_regular, read_text
from trainables.problems import FieldError

SIDECAR = "arrays.json"
FORMAT = 1  # of the files; increment on any change
AGAIN = "Restore it from a backup, or create the study again, under another name."


@dataclass(frozen=True)
class Contents:
    """What arrays.json says: names of classes and of a row's columns, and digests by file.

    group_names: of the groups' numbers, as text, where they are not the numbers.
    """

    classes: tuple[str, ...]
    columns: tuple[str, ...]
    digests: dict[str, str]
    group_names: dict[str, str] = field(default_factory=dict)

    @property
    def splits(self) -> list[str]:
        return [name for name in SPLITS if file_of(name) in self.digests]

    @property
    def has_groups(self) -> bool:
        return groups_of("train") in self.digests

    def files_of(self, split: str) -> list[str]:
        files = [file_of(split), labels_of(split)]
        return [*files, groups_of(split)] if self.has_groups else files


def file_of(split: str) -> str:
    return f"{split}.npy"


def labels_of(split: str) -> str:
    return f"{split}_labels.npy"


def groups_of(split: str) -> str:
    return f"{split}_groups.npy"


# ---- written -------------------------------------------------------------------------------------


class _Nowhere(Hashing):
    """A file whose digest alone is wanted."""

    def __init__(self) -> None:
        super().__init__(None)  # type: ignore[arg-type]

    def write(self, data: bytes | memoryview) -> int:
        self.sha256.update(data)
        return len(data)


Parts = Callable[[], Iterable[np.ndarray]]  # of an array, in order; asked again on a full disk


def _write_npy(target: Hashing, dtype: str, shape: tuple[int, ...], parts: Parts) -> None:
    """Write an array of which one part at a time is in memory."""
    header: dict[str, Any] = {"descr": dtype, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(target, header)
    for part in parts():
        target.write(np.ascontiguousarray(part, dtype=dtype).data.cast("B"))


def written(
    folder: Path | None, name: str, dtype: str, shape: tuple[int, ...], parts: Parts
) -> str:
    """The sha256 of an npy, which is written into the folder if there is one."""
    if folder is not None:
        return write_stream(folder / name, lambda file: _write_npy(file, dtype, shape, parts))
    nowhere = _Nowhere()
    _write_npy(nowhere, dtype, shape, parts)
    return nowhere.sha256.hexdigest()


def write_contents(folder: Path, contents: Contents) -> None:
    plain = {
        "format": FORMAT,
        "classes": contents.classes,
        "columns": contents.columns,
        "groups": contents.group_names,
        "sha256": contents.digests,
    }
    (folder / SIDECAR).write_text(json.dumps(plain, indent=1), encoding="utf-8")


# ---- read ----------------------------------------------------------------------------------------


def read_contents(path: str) -> Contents:
    """What arrays.json in a folder says. Raises FieldError without one."""
    file = Path(path) / SIDECAR
    try:
        plain = json.loads(read_text(file))
        known = plain["format"]
        classes, columns = (tuple(plain[key]) for key in ("classes", "columns"))
        group_names = {str(int(number)): name for number, name in plain["groups"].items()}
        contents = Contents(classes, columns, plain["sha256"], group_names)
        is_whole = _are_texts(classes, columns, contents.digests.values(), group_names.values())
    except FileNotFoundError:
        mend = "Give the folder `data` of a study whose data were given as objects in Python."
        raise FieldError("path", f"there is no {file}", mend) from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise FieldError("path", f"{file} cannot be read ({error})", AGAIN) from None
    if known != FORMAT:
        found = f"{file} has format {known}, this version reads {FORMAT}"
        raise FieldError("path", found, "Use the version of calstudy that wrote it.")
    if not is_whole or "train" not in contents.splits or len(contents.classes) < 2:
        raise FieldError("path", f"{file} is not as calstudy writes it", AGAIN)
    return contents


def check_digests(path: str, contents: Contents) -> None:
    """Raise FieldError unless each file is as it was written."""
    for name in contents.splits:
        for file in contents.files_of(name):
            place = Path(path) / file
            try:
                found = file_digest(place)
            except OSError as error:
                problem = f"{place} cannot be read ({error.strerror or error})"
                raise FieldError("path", problem, AGAIN) from None
            if found != contents.digests.get(file):
                raise FieldError("path", f"{place} is not as it was written", AGAIN)


def read_split(path: str, contents: Contents, name: str) -> RawSplit:
    """A split's samples, memory-mapped, and its labels. Raises FieldError."""
    samples = _mapped(Path(path) / file_of(name))
    labels = np.array(_mapped(Path(path) / labels_of(name)))
    count = len(contents.classes)
    fits = samples.ndim and labels.dtype == np.int64 and labels.shape == samples.shape[:1]
    if not fits or not len(labels) or labels.min() < 0 or labels.max() >= count:
        found = f"the labels of {name} in {path} are not {count} classes' of its samples"
        raise FieldError("path", found, AGAIN)
    if not contents.has_groups:
        return RawSplit(samples, labels)
    return RawSplit(samples, labels, np.array(_mapped(Path(path) / groups_of(name))))


def _mapped(file: Path) -> np.ndarray:
    try:
        open_regular(file).close()
        found: np.ndarray = np.load(file, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise FieldError("path", f"{file} cannot be read ({error})", AGAIN) from None
    return found


def _are_texts(*several: Iterable[object]) -> bool:
    return all(isinstance(text, str) for texts in several for text in texts)
