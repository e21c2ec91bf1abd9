"""Other data to evaluate a study's models on: the same classes under shift, or unseen classes.

Checked by its header before a study trains. Decoded by `confirm` once per machine, into the cache:
CACHE/shift-DIGEST/{images,labels}.npy, and groups.npy or vocabulary.txt if there are any. Never
used for training. Rows of numbers are matched with the study's by the names of their columns;
texts are numbered by the study's vocabulary.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from filelock import FileLock
from torch import Tensor

from trainables.config import build, to_plain
from trainables.dataset import Dataset, Rows, Samples
from trainables.fields import Settings, setting
from trainables.files.atomic import replacing_folder
from trainables.files.digest import damaged_files, sampled_digest
from trainables.files.home import default_cache
from trainables.files.regular import read_text
from trainables.inputs import Inputs
from trainables.loading.cache import Prepared, load_split, mapped, unchanged
from trainables.loading.marks import rows_of
from trainables.loading.splitting import check_numbers, common_groups
from trainables.loading.vocabulary import (
    VOCABULARY,
    numbering_by,
    read_vocabulary,
    renumbered,
    unknown_share,
    words_in,
    write_vocabulary,
)
from trainables.plain import Plain, Value
from trainables.plugins import name_of
from trainables.positions import Positions
from trainables.problems import FieldError, nearest

FORMAT = 1  # of the files; increment on any change
SHARED = 0.001  # fraction of a set that may be the study's data without refusing it
CHUNK = 4096  # images compared at a time


@dataclass(frozen=True)
class ShiftSet(Settings):
    """A set under `shift:`: any data set by name and options, and a selection of its samples."""

    data: Dataset = field()
    where: dict[str, Value] | None = setting(
        None, doc="of a table or parquet: use only rows with these column values"
    )
    ood: bool | None = setting(
        None, doc="whether it is out of distribution; null: decided by class names or numbers"
    )

    @classmethod
    def read(cls, plain: Any) -> ShiftSet:
        """The set of plain values, as `to_mapping` gives them. Raises FieldError."""
        if isinstance(plain, str):
            plain = {"name": plain}
        if not isinstance(plain, Mapping):
            problem = "must be a data set's name, or a mapping with `name`"
            raise FieldError("", f"{problem}, got {plain!r}")
        options = dict(plain)
        own = {key: options.pop(key) for key in ("where", "ood") if key in plain}
        return cls(build(Dataset, options), **own)

    def to_mapping(self) -> dict[str, Plain]:
        own = {"where": self.where, "ood": self.ood}
        given = {key: value for key, value in own.items() if value is not None}
        return {**to_plain(self.data), **given}

    def digest(self) -> str:
        """sha256 of the source and of the options that select from it."""
        return self._digest_of(self.data.source_digest())

    def unturned_digest(self) -> str:
        """`digest` as it was when no image was turned by its EXIF orientation."""
        return self._digest_of(self.data.unturned_digest())

    def _digest_of(self, source: str) -> str:
        parts = [FORMAT, name_of(type(self.data)), source, self.where]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


class Shift(NamedTuple):
    """A set prepared for a study's models."""

    # uint8 [N, C, H, W], with the study's C; float32 [N, D], its columns; or int32, of its words
    images: Tensor
    labels: Tensor  # int64 [N], with the study's numbering; the source's if out of distribution
    ood: bool
    kept: Tensor  # bool [N]: False for samples that train or validation has too
    groups: Tensor | None = None  # int64 [N], as in the source
    shared: str | None = None  # a sentence if train or validation has some of the groups
    # Of images with masks: where the rows are, of which labels and groups are.
    positions: Positions | None = None

    @property
    def kept_rows(self) -> Tensor:
        """[R] bool: the rows of samples that are kept."""
        return self.kept if self.positions is None else self.kept[self.positions.images]

    @property
    def dropped(self) -> int:
        return int((~self.kept).sum())


def check_header(shift_set: ShiftSet, used: Rows, classes: tuple[str, ...], inputs: Inputs) -> bool:
    """The set comes from the study's own source, whose rows `used` the splits use.

    Decodes nothing. Raises FieldError if it contains such rows, does not exist or does not fit.
    """
    header = shift_set.data.samples_header(shift_set.where)
    common = {file: rows for file, rows in header.rows.items() if file in used}
    total, of_source = (sum(map(len, found.values())) for found in (header.rows, common))
    own = of_source > SHARED * total
    if own and shift_set.where is None:
        mend = "Name other data; of a table, rows of no split can be selected with `where`."
        raise FieldError("", "is the study's own data, with its sealed test split", mend)
    shared = sum(int(np.isin(rows, used[file]).sum()) for file, rows in common.items())
    if own and shared:
        there = "the study's train, meta, validation or sealed test split"
        problem = f"{shared} of the {total} rows are in {there}"
        raise FieldError("where", problem, "Select rows of no split.")
    if header.shape is not None:
        kind = header.kind or ("image" if len(header.shape) == 3 else "features")
        _check_fit(Inputs(header.shape, kind, header.columns, header.marked), inputs)
    if header.labels is not None and header.names is not None and not shift_set.ood:
        _labels(header.labels, header.names, classes, shift_set.ood)
    return own


def unseen_shift(shift_set: ShiftSet, used: Rows, prepared: Prepared) -> Shift:
    """The set, decoded and compared with train (of which meta is a part) and validation.

    Raises FieldError if it does not fit or shares more than 0.1% of its samples; fewer are not
    kept.
    """
    own = check_header(shift_set, used, prepared.classes, prepared.input_shape)
    samples = _samples(shift_set)
    vocabulary = _vocabulary(prepared)
    shift = _shift_of(shift_set, samples, prepared.classes, prepared.input_shape, vocabulary)
    if not own:  # else of other rows
        shift = _without_seen(shift, prepared)
    return shift._replace(shared=_shared(shift_set, samples, shift.kept, prepared))


def unknown_words(shift_set: ShiftSet, prepared: Prepared) -> float:
    """The share of the words of a set of texts that the study's vocabulary lacks. Decodes it."""
    samples = _samples(shift_set)
    numbering = numbering_by(samples.words, _vocabulary(prepared))
    return unknown_share(numbering[words_in(samples.images, prepared.input_shape.kind)])


def _vocabulary(prepared: Prepared) -> list[str]:
    """The words of the study's texts; none of other samples."""
    if not prepared.input_shape.words:
        return []
    return read_vocabulary(prepared.directory / VOCABULARY)


def _without_seen(shift: Shift, prepared: Prepared) -> Shift:
    """Samples that train or validation has are not kept. Raises FieldError if they are many."""
    found = list(_digests(shift.images))
    wanted = set(found)
    shared: set[bytes] = set()
    for name in ("train", "validation"):
        shared |= wanted.intersection(_digests(load_split(prepared, name).images))
    shift = shift._replace(kept=torch.tensor([digest not in shared for digest in found]))
    if shift.dropped > SHARED * len(found):
        there = "the study's train, meta or validation split"
        noun = prepared.input_shape.noun
        problem = f"{shift.dropped} of its {len(found)} {noun} are also in {there}"
        raise FieldError(
            "", f"{problem}, more than {SHARED:.1%}", "Remove them, or name other data."
        )
    return shift


def _shared(shift_set: ShiftSet, samples: Samples, kept: Tensor, prepared: Prepared) -> str | None:
    """A sentence if the kept samples are of groups of train or validation."""
    if samples.groups is None or not prepared.groups:
        return None
    files = (prepared.directory / f"{name}_group_keys.npy" for name in ("train", "validation"))
    keys = np.concatenate([mapped(file).numpy() for file in files])
    what = f"{shift_set.data.unit or 'groups'} of it"
    there = "the study's train or validation split"
    groups = samples.groups[kept.numpy()]
    found = common_groups(groups, keys, samples.group_names, what, there)
    return None if found is None else f"{found}: numbers on it are optimistic"


def _digests(images: Tensor) -> Iterator[bytes]:
    """A digest of each sample's values, of a tree without those that pad. images: [N, ...]."""
    are_trees = Inputs.of_samples(images).kind == "trees"
    for start in range(0, len(images), CHUNK):
        for values in images[start : start + CHUNK].flatten(1).numpy():
            content = values.tobytes().rstrip(b"\0") if are_trees else values
            yield hashlib.blake2b(content, digest_size=16).digest()


def shift_of(shift_set: ShiftSet, classes: tuple[str, ...], inputs: Inputs) -> Shift:
    """The set for a study of these classes and samples. Raises FieldError."""
    return _shift_of(shift_set, _samples(shift_set), classes, inputs)


def _shift_of(
    shift_set: ShiftSet,
    samples: Samples,
    classes: tuple[str, ...],
    inputs: Inputs,
    vocabulary: Sequence[str] = (),
) -> Shift:
    _check_fit(Inputs.of(samples.images, samples.columns, samples.marked), inputs)
    if inputs.words:
        numbering = numbering_by(samples.words, vocabulary)
        samples = samples._replace(images=renumbered(samples.images, inputs.kind, numbering))
    found = None
    positions = None
    if samples.marked:
        samples, positions = _rows_of(samples)
    if not shift_set.ood:
        found = _labels(samples.labels, samples.names, classes, shift_set.ood)
    images = torch.from_numpy(samples.images)
    if inputs.kind == "trees":
        images = images[..., :-1]  # without labels
    elif inputs.kind == "image":
        images = images.expand(-1, inputs[0], -1, -1)
    elif inputs.are_named and len(samples.columns) == images.shape[1]:
        images = images[:, [samples.columns.index(name) for name in inputs.columns]]
    labels = torch.from_numpy(samples.labels if found is None else found)
    groups = None if samples.groups is None else torch.from_numpy(samples.groups)
    kept = torch.ones(len(images), dtype=torch.bool)
    return Shift(images, labels, found is None, kept, groups, positions=positions)


def _rows_of(samples: Samples) -> tuple[Samples, Positions]:
    """Images with masks as images without, whose labels and groups are those of rows."""
    positions, labels = rows_of(samples.images, 0, "shift")
    if not len(labels):
        raise FieldError("", "none of its images has a labelled pixel")
    images = positions[:, 0]
    groups = images if samples.groups is None else samples.groups[images]
    where = Positions(*torch.from_numpy(positions).T.contiguous())
    return samples._replace(images=samples.images[:, :-1], labels=labels, groups=groups), where


def _check_fit(found: Inputs, wanted: Inputs) -> None:
    """Raise FieldError unless such samples fit the study's."""
    columns = found.columns
    if found.kind != wanted.kind:
        raise FieldError("", f"has {found.noun}, the study {wanted.noun}")
    if found.marked != wanted.marked:
        has, study = ("masks", "none") if found.marked else ("no masks", "some")
        raise FieldError("", f"its images have {has}, the study's have {study}")
    if wanted.are_named and found.are_named:  # others beside them are left out
        for name in wanted.columns:
            if name not in columns:
                problem = f"has no column '{name}', which the study has"
                raise FieldError("", problem, nearest(name, list(columns)))
    elif wanted.kind == "features" and found != wanted:
        problem = f"its rows have {found[0]:,} numbers, the study's {wanted[0]:,}"
        raise FieldError("", problem)
    elif wanted.kind == "words" and found != wanted:
        problem = f"its texts are of {found[0]:,} words, the study's of {wanted[0]:,}"
        raise FieldError("length", problem, f"Write length: {wanted[0]}.")
    elif wanted.kind == "trees":  # of any number of nodes
        return
    # Grayscale broadcasts.
    elif found != wanted and not (found[0] == 1 and found[1:] == wanted[1:]):
        own, ours = (" x ".join(map(str, sizes)) for sizes in (found, wanted))
        problem = f"its images are {own}, the study's {ours}"
        raise FieldError("", f"{problem} (channels, height, width)")


def _labels(
    labels: np.ndarray, names: Mapping[int, str], classes: tuple[str, ...], ood: bool | None
) -> np.ndarray | None:
    """[N] int64 labels as the study numbers them, by name if both have names; None: others."""
    absent = int((labels < 0).sum())
    if 0 < absent < len(labels):
        problem = f"{absent} of {len(labels)} samples have no label (-1)"
        raise FieldError("", problem, "Select rows with `where`, or set ood: true.")
    # A source without names numbers its classes in order.
    numbered = tuple(map(str, range(len(classes))))
    present = [int(label) for label in np.unique(labels)]
    named = [names.get(label) for label in present]
    if absent:
        other = "they have no labels"
    elif classes != numbered and None not in named:
        numbers = {name: number for number, name in enumerate(classes)}
        unknown = [name for name in named if name is not None and name not in numbers]
        if not unknown:
            of_source = np.full(present[-1] + 1, -1, dtype=np.int64)
            of_source[present] = [numbers[name] for name in named if name is not None]
            relabelled: np.ndarray = of_source[labels]
            return relabelled
        near = nearest(unknown[0], classes).removesuffix(".")
        other = f"the study has no class '{unknown[0]}'. {near}"
    elif present[-1] < len(classes):
        return labels
    else:
        other = f"their labels go up to {present[-1]}, the study's to {len(classes) - 1}"
    if ood is False:
        problem = "is false, but the samples are not of the study's classes"
        raise FieldError("ood", f"{problem}: {other}")
    return None


# ---- the cache -----------------------------------------------------------------------------------


def _samples(shift_set: ShiftSet) -> Samples:
    """The samples, memory-mapped from the cache; decoded first if missing."""
    cache = default_cache()
    directory = cache / f"shift-{shift_set.digest()}"
    cache.mkdir(parents=True, exist_ok=True)
    with FileLock(cache / f"{directory.name}.lock"):
        if not _is_whole(directory):
            with unchanged(shift_set.data, lambda: f"shift-{shift_set.digest()}", directory.name):
                samples = shift_set.data.samples(shift_set.where)
            _write(samples, directory)
    images, labels = (mapped(directory / f"{name}.npy").numpy() for name in ("images", "labels"))
    names = json.loads(read_text(directory / "names.json"))
    meta = json.loads(read_text(directory / "meta.json"))
    groups = directory / "groups.npy"
    return Samples(
        images,
        labels,
        {int(label): name for label, name in names.items()},
        tuple(meta.get("columns", ())),
        mapped(groups).numpy() if groups.exists() else None,
        {int(group): name for group, name in meta.get("group_names", {}).items()},
        meta.get("marked", False),
        tuple(read_vocabulary(words)) if (words := directory / VOCABULARY).exists() else (),
    )


def _is_whole(directory: Path) -> bool:
    if not (directory / "meta.json").is_file():
        return False
    try:
        damaged = damaged_files(directory)
    except (OSError, ValueError, KeyError):
        damaged = ["meta.json"]
    if damaged:
        problem = f"{directory}: {', '.join(damaged)} is damaged"
        print(f"{problem}; it is prepared again.", file=sys.stderr)
    return not damaged


def _write(samples: Samples, directory: Path) -> None:
    with replacing_folder(directory) as partial:
        np.save(partial / "images.npy", samples.images, allow_pickle=False)
        np.save(partial / "labels.npy", samples.labels, allow_pickle=False)
        (partial / "names.json").write_text(json.dumps(samples.names))
        files = [partial / name for name in ("images.npy", "labels.npy", "names.json")]
        meta: dict[str, Plain] = {"columns": samples.columns}
        if samples.marked:
            meta["marked"] = True
        if samples.words:
            write_vocabulary(partial / VOCABULARY, samples.words)
            files.append(partial / VOCABULARY)
        if samples.groups is not None:
            check_numbers(samples.groups, len(samples.labels), "groups")
            np.save(partial / "groups.npy", samples.groups, allow_pickle=False)
            files.append(partial / "groups.npy")
            meta["group_names"] = {str(key): name for key, name in samples.group_names.items()}
        sizes = {file.name: file.stat().st_size for file in files}
        sampled = {file.name: sampled_digest(file) for file in files}
        meta |= {"bytes": sizes, "sampled": sampled}
        (partial / "meta.json").write_text(json.dumps(meta))
