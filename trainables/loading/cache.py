"""Decode a data set once per machine, into a cache that every process memory-maps.

CACHE/DIGEST/{train,validation,test}.npy      uint8 [N, C, H, W], or float32 [N, D]
CACHE/DIGEST/{...}_labels.npy                 int64 [N]
CACHE/DIGEST/{...}_groups.npy                 int64 [N], numbered by first appearance, if there are
CACHE/DIGEST/meta.json                        classes, statistics of train; sizes and digests

The test split is written but never loaded here: `load_split` only loads train and validation.
"""

import hashlib
import inspect
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from filelock import FileLock
from torch import Tensor

from trainables.data.shared.splits import SPLITS, ranks_in_class
from trainables.dataset import Dataset, Progress, RawData, RawSplit, nothing
from trainables.files.atomic import replacing_folder
from trainables.files.digest import damaged_files, file_digest, sampled_digest, sidecar_digest
from trainables.files.home import default_cache
from trainables.files.regular import read_text
from trainables.inputs import Inputs
from trainables.plain import Plain
from trainables.plugins import name_of
from trainables.problems import FieldError
from trainables.seeding import stream

FORMAT = 1  # of the files and the split; increment on any change
TEST_SHARE = 0.2  # fraction sealed by seed if the source has no test split


@dataclass(frozen=True)
class Prepared:
    """A cache entry. mean, std: of the train split, per channel in raw pixel units (0 to 255), or
    per column."""

    directory: Path
    digest: str
    classes: tuple[str, ...]
    input_shape: Inputs
    mean: tuple[float, ...]
    std: tuple[float, ...]
    sizes: dict[str, int]  # samples of train, validation, test
    notes: tuple[str, ...] = ()  # what `plan` warns of
    features: str | None = None  # sha256, of a frozen network's outputs
    groups: Mapping[str, int] = field(default_factory=dict)  # of each split, if there are any
    shared: tuple[str, ...] = ()  # a sentence for each two splits of the source that share groups

    @property
    def num_classes(self) -> int:
        return len(self.classes)

    def majority(self, split: str) -> float:
        """The fraction of the most frequent class in train or validation."""
        labels = load_split(self, split).labels
        return float(labels.bincount().max() / len(labels))


class Split(NamedTuple):
    """images: uint8 [N, C, H, W], or float32 [N, D]. labels: int64 [N]. groups: int64 [N], numbered
    by first appearance; None if there are none. Memory-mapped, shared by all processes."""

    images: Tensor
    labels: Tensor
    groups: Tensor | None = None


def data_digest(dataset: Dataset, seed: int) -> str:
    """sha256 of what the cached arrays depend on: source, options, seed, format. Decodes nothing.

    `augment` and `padding` are not included: they change batches, not the arrays.
    """
    parts = [FORMAT, name_of(type(dataset)), dataset.source_digest(), dataset.validation, seed]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def prepare(
    dataset: Dataset,
    seed: int,
    cache: Path | None = None,
    digest: str | None = None,
    progress: Progress = nothing,
) -> Prepared:
    """The prepared data set, decoded first if it is missing or damaged in the cache.

    progress: is told how many images are decoded, if the data set tells. Concurrent processes wait
    for the one that decodes. Raises FieldError if the source cannot be used or does not have the
    given `digest`; if that is in the cache, the source is not read at all.
    """
    # Absolute: workers have another working directory.
    cache = cache.expanduser().absolute() if cache else default_cache()
    if digest is not None:
        with suppress(ValueError):
            return open_prepared(cache / digest)
    found = data_digest(dataset, seed)
    if digest not in (None, found):
        raise FieldError(
            "data",
            f"its digest is {found[:12]}, but the study started with {digest[:12]}",
            "Restore it.",
        )
    directory = cache / found
    return open_or_make(directory, lambda: _build(dataset, seed, directory, progress))


def open_or_make(directory: Path, make: Callable[[], None]) -> Prepared:
    """What is prepared in a directory, made first if it is missing or damaged. Concurrent processes
    wait for the one that makes it."""
    try:
        return open_prepared(directory)
    except ValueError:
        directory.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(directory.with_name(f"{directory.name}.lock")):
        try:
            return open_prepared(directory)
        except ValueError as error:
            if directory.exists():
                told = str(error).replace("prepare it again", "it is prepared again")
                print(told, file=sys.stderr)
            make()
    return open_prepared(directory)


def open_prepared(directory: Path) -> Prepared:
    """The prepared data set in a directory. Raises ValueError if it is missing or damaged."""
    try:
        damaged = damaged_files(directory)
        meta = json.loads(read_text(directory / "meta.json"))
    except (OSError, ValueError, KeyError) as error:
        problem = f"{directory}: no prepared data set here ({error})"
        raise ValueError(f"{problem}; prepare it again.") from None
    if damaged:
        raise ValueError(f"{directory}: {', '.join(damaged)} is damaged; prepare it again.")
    return Prepared(
        directory=directory,
        digest=meta["digest"],
        classes=tuple(meta["classes"]),
        input_shape=Inputs(meta["input_shape"], meta.get("kind", "image"), meta.get("columns", ())),
        mean=tuple(meta["mean"]),
        std=tuple(meta["std"]),
        sizes=meta["sizes"],
        notes=tuple(meta.get("notes", ())),
        features=meta.get("features"),
        groups=meta.get("groups", {}),
        shared=tuple(meta.get("shared", ())),
    )


def load_split(prepared: Prepared, name: str) -> Split:
    """The memory-mapped train or validation split. Raises ValueError otherwise: test is sealed."""
    if name not in ("train", "validation"):
        raise ValueError(
            f"split '{name}' cannot be loaded: trials use train and validation, test is sealed."
        )
    return mapped_split(prepared.directory, name)


def mapped_split(directory: Path, name: str) -> Split:
    """The memory-mapped arrays of a split in a cache."""
    groups = directory / f"{name}_groups.npy"
    return Split(
        mapped(directory / f"{name}.npy"),
        mapped(directory / f"{name}_labels.npy"),
        mapped(groups) if groups.exists() else None,
    )


def mapped(file: Path) -> Tensor:
    # Copy on write: torch needs writable memory, the file must not change.
    return torch.from_numpy(np.load(file, mmap_mode="c", allow_pickle=False))


def split_rows(
    raw: RawData, validation: float, seed: int
) -> dict[str, tuple[RawSplit, np.ndarray]]:
    """For train, validation, test: the source split and its rows, shuffled.

    A split missing in the source is carved from train, stratified: the rounded fraction of each
    class, at least one. Test is carved first, so that `validation` does not change it.
    """
    splits = {"test": raw.test, "validation": raw.validation}
    carved = [name for name, split in splits.items() if split is None]
    _check_counts(raw, carved)
    rest = np.arange(len(raw.train.labels))
    rows: dict[str, tuple[RawSplit, np.ndarray]] = {}
    for name in carved:
        labels = raw.train.labels[rest]
        share = TEST_SHARE if name == "test" else validation
        counts = np.bincount(labels)
        # At least one per class and split; _check_counts guarantees that there are enough.
        spare = counts - (len(carved) - len(rows))
        quota = np.clip(np.rint(share * counts).astype(np.int64), 1, np.maximum(spare, 1))
        taken = ranks_in_class(labels, stream(seed, "split", name)) < quota[labels]
        rows[name] = (raw.train, rest[taken])
        rest = rest[~taken]
    rows["train"] = (raw.train, rest)
    for name, split in splits.items():
        if split is not None:
            rows[name] = (split, np.arange(len(split.labels)))
    return {name: (rows[name][0], _shuffled(rows[name][1], seed, name)) for name in SPLITS}


def _check_counts(raw: RawData, carved: list[str]) -> None:
    needed = 1 + len(carved)
    counts = np.bincount(raw.train.labels, minlength=len(raw.classes))
    rarest = int(counts.argmin())
    if counts[rarest] < needed:
        found = f"class '{raw.classes[rarest]}' has too few samples to split"
        needs = f"{', '.join(['train', *carved])} need one each"
        raise FieldError(
            "",
            f"{found}: train has {counts[rarest]}, but {needs}",
            "Add samples, or remove the class.",
        )


def _shuffled(rows: np.ndarray, seed: int, name: str) -> np.ndarray:
    order = torch.randperm(len(rows), generator=stream(seed, "split", name, "order"))
    shuffled: np.ndarray = rows[order.numpy()]
    return shuffled


def _build(dataset: Dataset, seed: int, directory: Path, progress: Progress) -> None:
    """Write the set atomically (temporary folder, then rename). The caller holds the lock."""
    read: Callable[..., RawData] = dataset.read
    tells = "progress" in inspect.signature(read).parameters
    with unchanged(dataset, lambda: data_digest(dataset, seed), directory.name):
        raw = read(progress=progress) if tells else read()
    inputs = _inputs(raw)
    rows = split_rows(raw, dataset.validation, seed)
    with replacing_folder(directory) as partial:
        meta: dict[str, Plain] = {
            "digest": directory.name,
            "classes": raw.classes,
            "input_shape": inputs,
            "sizes": {name: len(taken) for name, (_, taken) in rows.items()},
            **inputs.statistics(raw.train.images, rows["train"][1]),
        }
        for name, (split, taken) in rows.items():
            np.save(partial / f"{name}.npy", split.images[taken], allow_pickle=False)
            np.save(partial / f"{name}_labels.npy", split.labels[taken], allow_pickle=False)
        if inputs.kind != "image":
            meta |= {"kind": inputs.kind, "columns": inputs.columns}
        if raw.notes:
            meta["notes"] = raw.notes
        write_meta(partial, meta)


def write_meta(directory: Path, meta: Mapping[str, Plain]) -> None:
    """Write what a cache says of itself, with the digests of its files."""
    sizes: dict[str, Plain] = {}
    digests: dict[str, Plain] = {}
    sampled: dict[str, Plain] = {}
    for file in sorted(directory.glob("*.npy")):
        sizes[file.name] = file.stat().st_size
        digests[file.name] = file_digest(file)
        if not file.name.startswith("test"):  # read when it is opened, and not before
            sampled[file.name] = sampled_digest(file)
    whole: dict[str, Plain] = {**meta, "bytes": sizes, "sha256": digests, "sampled": sampled}
    whole["sidecar"] = sidecar_digest(whole)
    (directory / "meta.json").write_text(json.dumps(whole, indent=1))


def _inputs(raw: RawData) -> Inputs:
    """Those of all splits. Raises FieldError if they differ, or no kind has such samples."""
    inputs = Inputs.of(raw.train.images, raw.columns)
    for name, split in (("validation", raw.validation), ("test", raw.test)):
        if split is None:
            continue
        found = Inputs.of(split.images)
        if (found, found.kind) != (inputs, inputs.kind):
            raise FieldError("", f"{name} has {found.shown}, train {inputs.shown}")
    return inputs


@contextmanager
def unchanged(dataset: Dataset, digest: Callable[[], str], before: str) -> Iterator[None]:
    """Raise FieldError if the source changed while it was read: then it has no digest."""
    try:
        yield
    finally:  # also if reading failed: that may be why
        if digest() != before:
            source = getattr(dataset, "path", None) or name_of(type(dataset))
            fix = "Nothing is kept of it; run again once it is complete."
            where = "path" if hasattr(dataset, "path") else ""
            raise FieldError(where, f"{source} was changed while it was read", fix)
