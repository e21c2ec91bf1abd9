"""Decode a data set once per machine, into a cache that every process memory-maps.

CACHE/DIGEST/{train,validation,test}.npy      uint8 [N, C, H, W], or float32 [N, D]; with a mask
                                              uint8 [N, C + 1, H, W]: class + 1, or 0; of texts
                                              int32 [N, L], numbers of words; of trees
                                              int32 [N, M, 5], with each node's label + 1, or 0
CACHE/DIGEST/{...}_labels.npy                 int64 [N]; with masks [R], of rows of predictions
CACHE/DIGEST/{...}_positions.npy              int64 [R, 2], with masks: a row's image and place
CACHE/DIGEST/{...}_groups.npy                 int64 [N], numbered by first appearance, if there are
CACHE/DIGEST/{train,validation}_group_keys.npy  int64 [G], what identifies them in other data
CACHE/DIGEST/train_copies.npy                 int64 [N], a number for samples of identical bytes
CACHE/DIGEST/vocabulary.txt                   of texts: the words of train, by number - 2
CACHE/DIGEST/vectors.npy                      float32 [words, D], by number, if there are any
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
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from filelock import FileLock
from torch import Tensor

from trainables.data.shared.splits import SPLITS
from trainables.dataset import Dataset, Progress, RawData, nothing
from trainables.files.atomic import replacing_folder
from trainables.files.digest import damaged_files, file_digest, sampled_digest, sidecar_digest
from trainables.files.home import default_cache
from trainables.files.regular import read_text
from trainables.groups import renumbered
from trainables.inputs import Inputs
from trainables.loading.marks import check_classes, classes_in, labelled_shares, rows_of
from trainables.loading.splitting import (
    Rows,
    check_groups,
    copies_note,
    divided,
    identical,
    keys_of,
    shared_groups,
)
from trainables.loading.vocabulary import VOCABULARY, check_words, write_words
from trainables.metrics import WITH_MASKS
from trainables.plain import Plain
from trainables.plugins import name_of
from trainables.positions import Positions
from trainables.problems import FieldError

FORMAT = 1  # of the files and the split; increment on any change
COPIES = "train_copies.npy"
SAME = "identical samples"  # what they are called, as groups are
TURNED_SINCE = "images with an EXIF orientation are turned upright now, and were not when"


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
    identical: int | None = None  # samples of train that others are the same as; None: not known
    rows: Mapping[str, int] = field(default_factory=dict)  # of predictions, of images with masks
    labelled: tuple[float, float] | None = None  # the least and most of a train image that is
    texts: Mapping[str, float] = field(default_factory=dict)  # as of `write_words`
    vocabulary: str | None = None  # sha256, of texts

    @property
    def num_classes(self) -> int:
        return len(self.classes)

    @property
    def also(self) -> tuple[str, ...]:
        """The metrics measured on such data beside those that every trial stores."""
        return WITH_MASKS if self.input_shape.marked else ()

    def majority(self, split: str) -> float:
        """The fraction of the most frequent class in train or validation."""
        labels = load_split(self, split).labels
        return float(labels.bincount().max() / len(labels))


class Split(NamedTuple):
    """images: uint8 [N, C, H, W], or float32 [N, D]. labels: int64 [N]. groups: int64 [N], numbered
    by first appearance; None if there are none. Memory-mapped, shared by all processes.

    With masks, labels and groups are those of the rows of predictions, [R], at `positions`; the
    group of a row is its image, or the image's own. marked: uint8 [N, C + 1, H, W]; of trees, whose
    labels are the roots', int32 [N, M, 5].
    """

    images: Tensor
    labels: Tensor
    groups: Tensor | None = None
    positions: Positions | None = None
    marked: Tensor | None = None


class NotPreparedError(ValueError):
    """There is no prepared data set, or none as new studies train on."""


class DataDigests(NamedTuple):
    """The two digests that a data set may have, by where its identical samples may lie."""

    apart: str  # in several splits, or there are none
    together: str  # in one


def data_digests(dataset: Dataset, seed: int) -> DataDigests:
    """Those of a data set, of which the samples decide. Decodes nothing."""
    return _both(_digest_parts(dataset, seed, dataset.source_digest()))


def unturned_digests(dataset: Dataset, seed: int) -> DataDigests:
    """`data_digests` as they were when no image was turned by its EXIF orientation."""
    return _both(_digest_parts(dataset, seed, dataset.unturned_digest()))


def why_other(dataset: Dataset, seed: int, digest: str, found: str, mend: str) -> tuple[str, str]:
    """What to say of data that have another digest than a study's: found and mend, unless its
    images are what calstudy turns now and did not turn then."""
    if digest in unturned_digests(dataset, seed) and digest not in data_digests(dataset, seed):
        return f"{TURNED_SINCE} the study was made", "Run the study again under a new name."
    return found, mend


def data_digest(dataset: Dataset, seed: int) -> str:
    """sha256 of what the cached arrays depend on: source, options, seed, format. Decodes nothing.

    Of a data set without identical samples, or prepared before they were kept together. `augment`
    and `padding` are not included: they change batches, not the arrays.
    """
    return data_digests(dataset, seed).apart


def _digest_parts(dataset: Dataset, seed: int, source: str) -> list[Plain]:
    return [FORMAT, name_of(type(dataset)), source, dataset.validation, seed]


def _both(parts: list[Plain]) -> DataDigests:
    return DataDigests(_digest_of(parts), _digest_of([*parts, "identical samples together"]))


def _digest_of(parts: list[Plain]) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def prepare(
    dataset: Dataset,
    seed: int,
    cache: Path | None = None,
    digest: str | None = None,
    progress: Progress = nothing,
    begun: str | None = None,
) -> Prepared:
    """The prepared data set, decoded first if it is missing or damaged in the cache.

    progress: is told how many images are decoded, if the data set tells. begun: the digest of a
    study that goes on; if the source still has it, it stays. Concurrent processes wait for the one
    that decodes. Raises FieldError if the source cannot be used or does not have the given
    `digest`; if that is in the cache, the source is not read at all.
    """
    # Absolute: workers have another working directory.
    cache = cache.expanduser().absolute() if cache else default_cache()
    if digest is not None:
        with suppress(ValueError):
            return open_prepared(cache / digest)
    found = data_digests(dataset, seed)
    if digest is not None and digest not in found:
        said = f"its digest is {found.apart[:12]}, but the study started with {digest[:12]}"
        raise FieldError("data", *why_other(dataset, seed, digest, said, "Restore it."))
    wanted = digest or (begun if begun in found else None)
    return open_or_make(
        cache / found.apart,
        lambda: _build(dataset, seed, cache, found, wanted, progress),
        lambda: _opened(cache, found, wanted),
    )


def _opened(cache: Path, digests: DataDigests, wanted: str | None) -> Prepared:
    """The prepared data set with the digest wanted, or that of new studies. Raises ValueError."""
    if wanted is not None:
        return open_prepared(cache / wanted)
    if (cache / digests.together).exists():
        return open_prepared(cache / digests.together)
    prepared = open_prepared(cache / digests.apart)
    if prepared.identical != 0:  # nobody looked yet, or they are apart
        raise NotPreparedError(f"{prepared.directory}: its splits may share identical samples.")
    return prepared


def open_or_make(
    directory: Path, make: Callable[[], None], opened: Callable[[], Prepared] | None = None
) -> Prepared:
    """What is prepared in a directory, made first if it is missing or damaged. Concurrent processes
    wait for the one that makes it. opened: opens it, if that is not all."""
    opened = opened or partial(open_prepared, directory)
    try:
        return opened()
    except ValueError:
        directory.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(directory.with_name(f"{directory.name}.lock")):
        try:
            return opened()
        except NotPreparedError:
            make()
        except ValueError as error:
            print(str(error).replace("prepare it again", "it is prepared again"), file=sys.stderr)
            make()
    return opened()


def open_prepared(directory: Path) -> Prepared:
    """The prepared data set in a directory. Raises ValueError if it is missing or damaged."""
    if not directory.exists():
        raise NotPreparedError(f"{directory}: no prepared data set here; prepare it again.")
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
        input_shape=Inputs(
            meta["input_shape"],
            meta.get("kind", "image"),
            meta.get("columns", ()),
            meta.get("marked", False),
            meta.get("words", 0),
            meta.get("vectors", 0),
        ),
        mean=tuple(meta["mean"]),
        std=tuple(meta["std"]),
        sizes=meta["sizes"],
        notes=tuple(meta.get("notes", ())),
        features=meta.get("features"),
        groups=meta.get("groups", {}),
        shared=tuple(meta.get("shared", ())),
        identical=meta.get("identical"),
        rows=meta.get("rows", {}),
        labelled=tuple(meta["labelled"]) if "labelled" in meta else None,
        texts=meta.get("texts", {}),
        vocabulary=meta["sha256"].get(VOCABULARY),
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
    file = directory / f"{name}_groups.npy"
    groups = mapped(file) if file.exists() else None
    images = mapped(directory / f"{name}.npy")
    labels = mapped(directory / f"{name}_labels.npy")
    positions = directory / f"{name}_positions.npy"
    if not positions.exists():
        return split_of_samples(images, labels, groups)
    return split_of_rows(images, labels, groups, Positions(*mapped(positions).T.contiguous()))


def split_of_samples(samples: Tensor, labels: Tensor, groups: Tensor | None) -> Split:
    """Samples as stored, with their labels. Trees [N, M, 5] have those of nodes in them."""
    if Inputs.of_samples(samples).carry_labels:
        return Split(samples[..., :-1], labels, groups, marked=samples)
    return Split(samples, labels, groups)


def split_of_rows(
    marked: Tensor, labels: Tensor, groups: Tensor | None, positions: Positions
) -> Split:
    """Images with masks [N, C + 1, H, W], with the labels of the rows. groups: of the images."""
    of_rows = positions.images if groups is None else groups[positions.images]
    numbered = torch.from_numpy(renumbered(of_rows.numpy()))
    return Split(marked[:, :-1], labels, numbered, positions, marked)


def mapped(file: Path) -> Tensor:
    # Copy on write: torch needs writable memory, the file must not change.
    return torch.from_numpy(np.load(file, mmap_mode="c", allow_pickle=False))


def _build(
    dataset: Dataset,
    seed: int,
    cache: Path,
    digests: DataDigests,
    wanted: str | None,
    progress: Progress,
) -> None:
    """Write the set atomically (temporary folder, then rename). The caller holds the lock.

    wanted: the digest whose rule for identical samples it follows; None: that of new studies.
    """
    read: Callable[..., RawData] = dataset.read
    tells = "progress" in inspect.signature(read).parameters
    with unchanged(dataset, lambda: data_digest(dataset, seed), digests.apart):
        raw = read(progress=progress) if tells else read()
    inputs = _inputs(raw)
    check_words(raw, inputs)
    check_groups(raw)
    same = identical(raw, inputs.noun)
    unit = SAME if raw.train.groups is None else dataset.unit or "groups"
    if wanted is None:
        wanted = digests.apart if same.copies is None else digests.together
    copies = same.copies if wanted == digests.together else None
    groups = copies if raw.train.groups is None else raw.train.groups
    notes = (*raw.notes, *same.notes)
    if copies is not None:
        notes = (*notes, *copies_note(same, inputs.noun))
    rows, sizes = divided(raw, dataset.validation, seed, groups, unit)
    if raw.marked:
        notes = (*notes, *_check_masks(rows, raw.classes))
    with replacing_folder(cache / wanted) as folder:
        meta: dict[str, Plain] = {
            "digest": wanted,
            "classes": raw.classes,
            "input_shape": inputs,
            "sizes": {name: len(taken) for name, (_, taken) in rows.items()},
            "identical": same.repeated,
            **inputs.statistics(raw.train.images, rows["train"][1]),
        }
        meta |= _write_samples(folder, rows, raw, inputs, seed)
        if raw.train.groups is not None:
            meta |= _write_groups(folder, rows)
            meta["shared"] = shared_groups(rows, raw.group_names, unit)
        elif copies is not None:
            np.save(folder / COPIES, renumbered(copies[rows["train"][1]]), allow_pickle=False)
        if inputs.kind != "image":
            meta |= {"kind": inputs.kind, "columns": inputs.columns}
        if notes := (*notes, *sizes):
            meta["notes"] = notes
        write_meta(folder, meta)


def _write_samples(
    folder: Path, rows: Rows, raw: RawData, inputs: Inputs, seed: int
) -> dict[str, Plain]:
    """Write the samples and labels of each split; returns what meta.json says of them."""
    meta: dict[str, Plain] = {}
    if raw.words is not None:
        meta = write_words(folder, rows, inputs.kind, raw.words)
    for name, (split, taken) in rows.items():
        if raw.words is None:
            np.save(folder / f"{name}.npy", split.images[taken], allow_pickle=False)
        if not raw.marked:
            np.save(folder / f"{name}_labels.npy", split.labels[taken], allow_pickle=False)
    return {**meta, **_write_rows(folder, seed)} if raw.marked else meta


def _check_masks(rows: Rows, classes: tuple[str, ...]) -> tuple[str, ...]:
    """What `plan` says of the classes of each split. Raises FieldError."""
    present = {
        name: classes_in(split.images, len(classes))[taken] for name, (split, taken) in rows.items()
    }
    return check_classes(present, classes)


def _write_rows(folder: Path, seed: int) -> dict[str, Plain]:
    """Write which labelled pixels are the rows of predictions, and their labels."""
    counts: dict[str, Plain] = {}
    for name in SPLITS:
        images = np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)
        positions, labels = rows_of(images, seed, name)
        np.save(folder / f"{name}_positions.npy", positions, allow_pickle=False)
        np.save(folder / f"{name}_labels.npy", labels, allow_pickle=False)
        counts[name] = len(labels)
    train = np.load(folder / "train.npy", mmap_mode="r", allow_pickle=False)
    return {"marked": True, "rows": counts, "labelled": labelled_shares(train)}


def _write_groups(folder: Path, rows: Rows) -> dict[str, Plain]:
    """Write the groups of each split, and what identifies those of train and validation."""
    counts: dict[str, Plain] = {}
    for name, (split, taken) in rows.items():
        assert split.groups is not None
        found = split.groups[taken]
        keys = keys_of(found)
        counts[name] = len(keys)
        np.save(folder / f"{name}_groups.npy", renumbered(found), allow_pickle=False)
        if name != "test":
            np.save(folder / f"{name}_group_keys.npy", keys, allow_pickle=False)
    return {"groups": counts}


def write_meta(directory: Path, meta: Mapping[str, Plain]) -> None:
    """Write what a cache says of itself, with the digests of its files."""
    sizes: dict[str, Plain] = {}
    digests: dict[str, Plain] = {}
    sampled: dict[str, Plain] = {}
    for file in sorted([*directory.glob("*.npy"), *directory.glob(VOCABULARY)]):
        sizes[file.name] = file.stat().st_size
        digests[file.name] = file_digest(file)
        if not file.name.startswith("test"):  # read when it is opened, and not before
            sampled[file.name] = sampled_digest(file)
    whole: dict[str, Plain] = {**meta, "bytes": sizes, "sha256": digests, "sampled": sampled}
    whole["sidecar"] = sidecar_digest(whole)
    (directory / "meta.json").write_text(json.dumps(whole, indent=1))


def _inputs(raw: RawData) -> Inputs:
    """Those of all splits. Raises FieldError if they differ, or no kind has such samples."""
    inputs = Inputs.of(raw.train.images, raw.columns, raw.marked)
    for name, split in (("validation", raw.validation), ("test", raw.test)):
        if split is None:
            continue
        found = Inputs.of(split.images, marked=raw.marked)
        if (found, found.kind) != (inputs, inputs.kind):
            raise FieldError("", f"{name} has {found.shown}, train {inputs.shown}")
    return inputs


@contextmanager
def unchanged(dataset: Dataset, digest: Callable[[], str], before: str) -> Iterator[None]:
    """Raise FieldError if the source changed while it was read: then it has no digest."""
    try:
        yield
    finally:  # also if reading failed: that may be why
        after = None
        with suppress(FieldError):  # what is left of it may be nothing to read
            after = digest()
        if after != before:
            source = getattr(dataset, "path", None) or name_of(type(dataset))
            fix = "Nothing is kept of it; run again once it is complete."
            where = "path" if hasattr(dataset, "path") else ""
            raise FieldError(where, f"{source} was changed while it was read", fix)
