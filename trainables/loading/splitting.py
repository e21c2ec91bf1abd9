"""Divide a source into train, validation and test: by seed, stratified, groups whole.

Without groups, samples of identical bytes belong together.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch

from trainables.data.shared.splits import SPLITS, ranks_in_class, size_note, whole_groups
from trainables.dataset import RawData, RawSplit
from trainables.groups import renumbered
from trainables.kinds import count_of
from trainables.loading.marks import classes_in, pairs_of
from trainables.problems import FieldError
from trainables.seeding import stream

PAIRS = (("test", "train"), ("validation", "train"), ("test", "validation"))
TEST_SHARE = 0.2  # fraction sealed by seed if the source has no test split
CHUNK = 4096  # samples at a time
WIDE = 16  # numbers of a sample; rows of fewer, perhaps whole ones, are often equal
OFTEN = 0.01  # fraction of such rows that are the same, above which they are no copies
FEW = 10  # such rows in any case
TOLD = 0.001  # fraction of samples that are copies, up to which nothing is said

Rows = dict[str, tuple[RawSplit, np.ndarray]]  # of each split: that of the source, and its rows


class Divided(NamedTuple):
    """The splits of a source."""

    rows: Rows
    notes: tuple[str, ...] = ()  # on sizes that are not as asked for


class Identical(NamedTuple):
    """What is known of samples of identical bytes."""

    copies: np.ndarray | None  # int64 [N] of train: a number for each set of them; None: none
    notes: tuple[str, ...] = ()

    @property
    def repeated(self) -> int:
        """Samples of train that are the same as one before them."""
        return 0 if self.copies is None else len(self.copies) - int(self.copies.max()) - 1


# ---- splits --------------------------------------------------------------------------------------


def divided(
    raw: RawData, validation: float, seed: int, groups: np.ndarray | None, unit: str
) -> Divided:
    """Train, validation and test, each shuffled.

    A split missing in the source is carved from train, stratified: the rounded fraction of each
    class, at least one. Test is carved first, so that `validation` does not change it. groups: [N]
    of train, kept whole. unit: what they are called. Of images with masks, each has several
    classes.
    """
    splits = {"test": raw.test, "validation": raw.validation}
    carved = [name for name, split in splits.items() if split is None]
    if not raw.marked:
        _check_counts(raw, carved, groups, unit)
    elif carved:
        present = classes_in(raw.train.images, len(raw.classes))
    rest = np.arange(len(raw.train.labels))
    rows: Rows = {}
    notes: list[str] = []
    for name in carved:
        labels = raw.train.labels[rest]
        share = TEST_SHARE if name == "test" else validation
        generator = stream(seed, "split", name)
        beside = len(carved) - len(rows)
        if raw.marked:
            there = rest if groups is None else groups[rest]
            taken = whole_images(present[rest], there, share, generator, beside)
            if groups is not None:
                notes += size_note(name, int(taken.sum()), share * len(rest), there, unit)
        elif groups is None:
            taken = _stratified(labels, share, beside, generator)
        else:
            there = groups[rest]
            wanted = share * len(rest)
            whole = whole_groups(labels, there, wanted, generator, beside=beside)
            if whole is None:
                found = f"no way was found to have each class in {_listed(['train', *carved])}"
                raise FieldError("", f"{found} and keep {unit} whole", "Merge or remove classes.")
            taken = whole
            notes += size_note(name, int(taken.sum()), wanted, there, unit)
        rows[name] = (raw.train, rest[taken])
        rest = rest[~taken]
    rows["train"] = (raw.train, rest)
    for name, split in splits.items():
        if split is not None:
            rows[name] = (split, np.arange(len(split.labels)))
    shuffled = {name: (rows[name][0], _shuffled(rows[name][1], seed, name)) for name in SPLITS}
    return Divided(shuffled, tuple(notes))


def whole_images(
    present: np.ndarray,
    groups: np.ndarray,
    share: float,
    generator: torch.Generator,
    beside: int = 1,
) -> np.ndarray:
    """[N] bool: a share of images with masks, such that each class's images are divided alike.

    present: [N, K] bool, the classes of each. groups: [N], kept whole. A class with too few images
    for all splits is in the rest alone.
    """
    images, classes = pairs_of(present)
    whole = whole_groups(
        classes, groups[images], share * len(images), generator, beside=beside, strict=False
    )
    assert whole is not None  # none is too many
    taken = np.zeros(len(present), dtype=bool)
    taken[images[whole]] = True
    return taken


def _stratified(
    labels: np.ndarray, share: float, beside: int, generator: torch.Generator
) -> np.ndarray:
    """[N] bool: the rounded share of each class."""
    counts = np.bincount(labels)
    # At least one per class and split; _check_counts guarantees that there are enough.
    quota = np.clip(np.rint(share * counts).astype(np.int64), 1, np.maximum(counts - beside, 1))
    taken: np.ndarray = ranks_in_class(labels, generator) < quota[labels]
    return taken


def _check_counts(raw: RawData, carved: list[str], groups: np.ndarray | None, unit: str) -> None:
    labels = raw.train.labels
    if groups is not None:  # one sample of each class in a group
        labels = np.unique(renumbered(groups) * len(raw.classes) + labels) % len(raw.classes)
    counts = np.bincount(labels, minlength=len(raw.classes))
    rarest = int(counts.argmin())
    if counts[rarest] >= 1 + len(carved):
        return
    what = "samples" if groups is None else unit
    found = f"class '{raw.classes[rarest]}' has too few {what} to split"
    needs = f"{', '.join(['train', *carved])} need one each"
    mend = f"Add {'samples' if groups is None else 'some'}, or remove the class."
    raise FieldError("", f"{found}: train has {counts[rarest]}, but {needs}", mend)


def _listed(names: list[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _shuffled(rows: np.ndarray, seed: int, name: str) -> np.ndarray:
    order = torch.randperm(len(rows), generator=stream(seed, "split", name, "order"))
    shuffled: np.ndarray = rows[order.numpy()]
    return shuffled


# ---- groups --------------------------------------------------------------------------------------


def check_groups(raw: RawData) -> None:
    """Raise FieldError unless all splits of a data set have a group for each sample, or none has
    any."""
    splits = {"train": raw.train, "validation": raw.validation, "test": raw.test}
    there = {name: split for name, split in splits.items() if split is not None}
    for name, split in there.items():
        found = split.groups
        if (found is None) != (raw.train.groups is None):
            some, none = ("train", name) if found is None else (name, "train")
            raise FieldError("", f"{some} has groups, {none} has none", "Give all splits some.")
        if found is not None:
            check_numbers(found, len(split.labels), f"groups of {name}")


def check_numbers(groups: np.ndarray, samples: int, what: str) -> None:
    """Raise FieldError unless there is an int64 for each sample."""
    if getattr(groups, "dtype", None) == np.int64 and groups.shape == (samples,):
        return
    kind = type(groups).__name__
    if isinstance(groups, np.ndarray):
        kind = f"{groups.dtype} {list(groups.shape)}"
    raise FieldError("", f"{what} are {kind}, must be int64 [{samples}]")


def keys_of(groups: np.ndarray) -> np.ndarray:
    """[G]: the groups [N], each once, by first appearance."""
    found, firsts = np.unique(groups, return_index=True)
    keys: np.ndarray = found[np.argsort(firsts)]
    return keys


def shared_groups(rows: Rows, names: Mapping[int, str], unit: str) -> tuple[str, ...]:
    """A sentence for each two splits that share groups. names: of groups that have another than
    their number."""
    told = []
    for one, other in PAIRS:
        split, taken = rows[one]
        beside, others = rows[other]
        if split.groups is None or beside.groups is None:
            continue
        keys = split.groups[taken]
        found = common_groups(keys, beside.groups[others], names, f"{unit} of {one}", other)
        if found is not None:
            told.append(f"{found}: numbers on {one} are optimistic")
    return tuple(told)


def common_groups(
    groups: np.ndarray, others: np.ndarray, names: Mapping[int, str], what: str, there: str
) -> str | None:
    """`12 patients of test are also in train, e.g. p17`; None if there are none."""
    keys = keys_of(groups)
    common = keys[np.isin(keys, others)]
    if not len(common):
        return None
    unit, _, place = what.partition(" ")
    example = int(common[0])
    return f"{_are(len(common), unit, place)} also in {there}, e.g. {names.get(example, example)}"


def _are(count: int, unit: str, place: str) -> str:
    """`12 patients of test are`."""
    words = (count_of(count, unit), place, "is" if count == 1 else "are")
    return " ".join(filter(None, words))


# ---- identical samples ---------------------------------------------------------------------------


def identical(raw: RawData, noun: str) -> Identical:
    """What belongs together where a source says nothing of groups, and what its splits share.

    noun: what samples are called.
    """
    splits = {"train": raw.train, "validation": raw.validation, "test": raw.test}
    digests = {name: _digests(split.images) for name, split in splits.items() if split is not None}
    if raw.train.images[0].size < WIDE and _are_often_equal(digests["train"]):
        return Identical(None)
    notes = []
    for one, other in PAIRS:
        if one in digests and other in digests:
            count = int(np.isin(digests[one], digests[other]).sum())
            if count:
                found = f"{_are(count, noun, f'of {one}')} also in {other}, byte for byte"
                notes.append(f"{found}: numbers on {one} are optimistic")
    same = Identical(renumbered(digests["train"]), tuple(notes))
    if raw.train.groups is not None or not same.repeated:
        return same._replace(copies=None)
    return same


def copies_note(same: Identical, noun: str) -> tuple[str, ...]:
    """What `plan` says of samples that are kept together, if they are many."""
    samples = 0 if same.copies is None else len(same.copies)
    if same.repeated <= TOLD * samples:
        return ()
    found = f"{same.repeated:,} of {samples:,} {noun} of train are copies of others"
    return (f"{found}, and stay in one split with them",)


def _are_often_equal(digests: np.ndarray) -> bool:
    most = int(np.unique(digests, return_counts=True)[1].max())
    return most > max(FEW, OFTEN * len(digests))


def _digests(images: np.ndarray) -> np.ndarray:
    """[N] int64: a number of each sample's bytes."""
    found = []
    for start in range(0, len(images), CHUNK):
        for values in images[start : start + CHUNK].reshape(-1, images[0].size):
            found.append(hashlib.blake2b(values.data, digest_size=8).digest())
    return np.frombuffer(b"".join(found), dtype=np.int64)
