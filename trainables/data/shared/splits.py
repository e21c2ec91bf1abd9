"""Map a source's splits to ours and limit their samples; shared by all file readers."""

from collections.abc import Mapping, Sized
from math import fsum
from typing import NamedTuple

import numpy as np
import torch

from trainables.groups import renumbered
from trainables.problems import FieldError, nearest
from trainables.seeding import stream

SPLITS = ("train", "validation", "test")
TOLERANCE = 0.02  # of the size of a split of whole groups
TRIES = 200  # orders in which groups are given to splits until each class is in each
EXCHANGES = 20  # of groups, to bring a split's size nearer
CANDIDATES = 500  # for one exchange
# Names of our splits in sources, without `splits`.
KNOWN_NAMES = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "val", "dev"),
    "test": ("test",),
}


def check_splits(splits: Mapping[str, str] | None) -> None:
    """Raise FieldError unless `splits` ({ours: theirs}; None: not given) is valid."""
    for ours, theirs in (splits or {}).items():
        if ours not in SPLITS:
            raise FieldError("splits", f"there is no split '{ours}'", nearest(ours, list(SPLITS)))
        if not isinstance(theirs, str):
            problem = f"'{ours}' must be the name of a split in the source"
            raise FieldError("splits", f"{problem}, got {theirs!r}")
    if splits is not None and "train" not in splits:
        raise FieldError("splits", "must name the train split, e.g. {train: NAME}")
    if splits is not None and len(set(splits.values())) < len(splits):
        raise FieldError("splits", f"uses one split of the source twice: {splits}")


def split_names(splits: Mapping[str, str] | None, there: list[str], path: str) -> dict[str, str]:
    """{our name: the source's name} of the splits to use. there: the names in the source at `path`.

    As in `splits` if given; else by KNOWN_NAMES, and with only train and validation the latter
    becomes test.
    """
    if splits is not None:
        for theirs in splits.values():
            if theirs not in there:
                near = nearest(theirs, there)
                raise FieldError("splits", f"{path} has no split '{theirs}'", near)
        return dict(splits)
    found = {}
    for ours, words in KNOWN_NAMES.items():
        matches = [name for name in there if name.lower() in words]
        if len(matches) > 1:
            raise FieldError(
                "splits", f"{' and '.join(matches)} in {path} could all be {ours}", "Select one."
            )
        if matches:
            found[ours] = matches[0]
    if "train" not in found:
        raise FieldError(
            "splits",
            f"no split of {path} is called train",
            f"Its splits: {', '.join(there)}. Name them, e.g. `splits: {{train: {there[0]}}}`.",
        )
    if "test" not in found and "validation" in found:
        found["test"] = found.pop("validation")
    return found


def limited(
    labels: np.ndarray,
    limit: int | None,
    name: str,
    num_classes: int,
    groups: np.ndarray | None = None,
) -> np.ndarray:
    """Indices of at most `limit` samples of a split, in order, stratified, one or more per class.

    labels: [N] int64, with every class. groups: [N], kept whole, or None. Raises FieldError if the
    limit is below the number of classes, or does not hold a whole group of each.
    """
    if limit is None or limit >= len(labels):
        return np.arange(len(labels))
    if limit < num_classes:
        raise FieldError("limit", f"{limit} is too few for {num_classes} classes")
    if groups is not None:
        generator = stream(0, "limit", name)
        whole = whole_groups(labels, groups, limit, generator, beside=0, most=limit)
        if whole is None:
            found = f"{limit} is too few for whole groups of all {num_classes} classes in {name}"
            raise FieldError("limit", found, "Raise it.")
        return np.flatnonzero(whole)
    # Ordered by rank within the class, as a fraction of its size: any prefix is stratified.
    depth = ranks_in_class(labels, stream(0, "limit", name)) / np.bincount(labels)[labels]
    taken: np.ndarray = np.sort(np.argsort(depth, kind="stable")[:limit])
    return taken


def ranks_in_class(labels: np.ndarray, generator: torch.Generator) -> np.ndarray:
    """[N]: rank of each sample within its class, in random order. labels: [N] int64."""
    shuffled = torch.randperm(len(labels), generator=generator).numpy()
    by_class = shuffled[np.argsort(labels[shuffled], kind="stable")]
    counts = np.bincount(labels)
    ranks = np.empty(len(labels), dtype=np.int64)
    ranks[by_class] = np.arange(len(labels)) - np.repeat(np.cumsum(counts) - counts, counts)
    return ranks


# ---- whole groups --------------------------------------------------------------------------------


def whole_groups(
    labels: np.ndarray,
    groups: np.ndarray,
    wanted: float,
    generator: torch.Generator,
    *,
    beside: int = 1,
    most: int | None = None,
    strict: bool = True,
) -> np.ndarray | None:
    """[N] bool: the samples of a split that keeps groups whole, stratified, in random order.

    labels: [N] int64. groups: [N], any numbers or texts. wanted: samples. beside: the splits that
    the rest is for; each class has a group in this split and in each of them. most: samples at
    most. strict: else a class with too few groups is in the rest alone. None: no such split found.
    """
    layout = _Layout.of(labels, groups, wanted)
    found = layout.covered(generator, beside, most, strict)
    if found is None:
        return None
    order, place = found
    free = [group for group in order if place[group] < 0]
    layout.give(free, place, most)
    layout.bring_nearer(free, place, most)
    return np.array(place)[layout.numbers] == 0


class _Layout(NamedTuple):
    """Groups by number, and the split that takes some of them: its place is 0, the rest's 1."""

    numbers: np.ndarray  # [N] the group of each sample
    sizes: list[int]  # samples of each group
    members: list[list[tuple[int, int]]]  # of each group, by class
    counts: list[int]  # samples of each class
    frequency: list[int]  # groups of each class
    share: float  # of the samples that the split takes

    @classmethod
    def of(cls, labels: np.ndarray, groups: np.ndarray, wanted: float) -> "_Layout":
        numbers = renumbered(groups)
        classes = int(labels.max()) + 1
        pairs, counts = np.unique(numbers * classes + labels, return_counts=True)
        members: list[list[tuple[int, int]]] = [[] for _ in range(int(numbers.max()) + 1)]
        for pair, count in zip(pairs.tolist(), counts.tolist(), strict=True):
            members[pair // classes].append((pair % classes, count))
        return cls(
            numbers,
            np.bincount(numbers).tolist(),
            members,
            np.bincount(labels).tolist(),
            np.bincount(pairs % classes, minlength=classes).tolist(),
            wanted / len(labels),
        )

    @property
    def wanted(self) -> float:
        return self.share * len(self.numbers)

    def covered(
        self, generator: torch.Generator, beside: int, most: int | None, strict: bool
    ) -> tuple[list[int], list[int]] | None:
        """The groups in random order, and the place of those that put each class in each split; -1
        of the others. Other orders are tried where one leaves a class out."""
        stuck = [0] * len(self.counts)
        for attempt in range(TRIES):
            order = torch.randperm(len(self.sizes), generator=generator).tolist()
            if most is not None and attempt == TRIES - 1:
                order.sort(key=self.sizes.__getitem__)
            # Rare classes first, and before them those that were left out.
            ranked = sorted(
                filter(self.frequency.__getitem__, range(len(self.counts))),
                key=lambda one: (-stuck[one], self.frequency[one]),
            )
            place, left_out = self._seeded(order, ranked, beside, strict)
            if left_out is not None:
                stuck[left_out] += 1
            elif most is None or self._size(place) <= most:
                return order, [min(one, 1) for one in place]
        return None

    def _seeded(
        self, order: list[int], ranked: list[int], beside: int, strict: bool
    ) -> tuple[list[int], int | None]:
        """The places of covering groups, and the class for which none was left. From 1 on they are
        those of the splits beside."""
        of_class: list[list[int]] = [[] for _ in self.counts]
        for group in order:
            for one, _ in self.members[group]:
                of_class[one].append(group)
        place = [-1] * len(self.sizes)
        present: set[tuple[int, int]] = set()  # a class in a split
        for one in ranked:
            for split in range(beside, -1, -1):
                free = [] if (one, split) in present else of_class[one]
                free = [group for group in free if place[group] < 0]
                if (one, split) in present or not (free or strict or split == beside):
                    continue
                if not free:
                    return place, one
                small = (group for group in free if split or self.sizes[group] <= self.wanted)
                taken = next(small, free[0])
                place[taken] = split
                present.update((other, split) for other, _ in self.members[taken])
        return place, None

    def _size(self, place: list[int]) -> int:
        return sum(size for size, one in zip(self.sizes, place, strict=True) if one == 0)

    def give(self, free: list[int], place: list[int], most: int | None) -> None:
        """Give each group to the split that most lacks its classes, relative to what it wants of
        them, whatever the size: else one would get the small groups."""
        shares = (self.share, 1 - self.share)
        lacks = [[share * count for count in self.counts] for share in shares]
        for group, split in enumerate(place):
            for one, count in self.members[group] if split >= 0 else ():
                lacks[split][one] -= count
        room = None if most is None else most - self._size(place)
        for group in free:
            # fsum: the last bit is the same on every machine, and so is the split.
            deficits = [
                fsum(
                    count * lacks[split][one] / (shares[split] * self.counts[one])
                    for one, count in self.members[group]
                )
                for split in (0, 1)
            ]
            size = self.sizes[group]
            is_large = size > (self.wanted if room is None else room)
            split = int(deficits[1] >= deficits[0] or is_large)
            place[group] = split
            if room is not None and split == 0:
                room -= size
            for one, count in self.members[group]:
                lacks[split][one] -= count

    def bring_nearer(self, free: list[int], place: list[int], most: int | None) -> None:
        """Exchange groups while the size is off by more than the tolerance, at the least cost in
        strata."""
        margin = TOLERANCE * self.wanted
        sizes = np.array([*self.sizes, 0])  # the last is no group: one is moved, not exchanged
        for _ in range(EXCHANGES):
            size = self._size(place)
            if abs(size - self.wanted) <= margin:
                return
            inside, outside = (
                np.array([-1, *(group for group in free if place[group] == split)][:CANDIDATES])
                for split in (0, 1)
            )
            then = size - sizes[inside][:, None] + sizes[outside]
            off = np.abs(then - self.wanted)
            if most is not None:
                off[then > most] = np.inf
            if off.min() >= abs(size - self.wanted):
                return
            near = np.argwhere(off <= max(margin, off.min()))[:CANDIDATES]
            changes = [(int(inside[row]), int(outside[column])) for row, column in near]
            costs = self._costs(place, changes)
            leaves, enters = changes[int(np.argmin(costs))]
            for group, split in ((leaves, 1), (enters, 0)):
                if group >= 0:
                    place[group] = split

    def _costs(self, place: list[int], changes: list[tuple[int, int]]) -> np.ndarray:
        """[changes]: how far the classes would be from what is wanted, in samples."""
        have = np.zeros(len(self.counts))
        for group, split in enumerate(place):
            for one, count in self.members[group] if split == 0 else ():
                have[one] += count
        then = np.tile(have - self.share * np.array(self.counts), (len(changes), 1))
        for row, (leaves, enters) in enumerate(changes):
            for group, sign in ((leaves, -1), (enters, 1)):
                for one, count in self.members[group] if group >= 0 else ():
                    then[row, one] += sign * count
        return np.array([fsum(row) for row in np.abs(then).tolist()])


def size_note(
    name: str, size: int, wanted: float, groups: np.ndarray, unit: str
) -> tuple[str, ...]:
    """What `plan` says of a split whose size is not as asked for. groups: [N], those of which it
    was taken."""
    wanted = round(wanted)
    if abs(size - wanted) <= TOLERANCE * wanted:
        return ()
    largest = int(np.unique(groups, return_counts=True)[1].max())
    found = f"{name} has {size:,} samples, {wanted:,} were asked for"
    return (f"{found}: {unit} are kept whole, the largest has {largest:,}",)


def limit_notes(
    limit: int,
    before: Mapping[str, np.ndarray | None],
    rows: Mapping[str, Sized],
    unit: str,
) -> tuple[str, ...]:
    """What `plan` says of splits that are smaller than the limit. before: the groups of all samples
    of each split. rows: those within the limit."""
    notes: list[str] = []
    for name, groups in before.items():
        if groups is not None:
            wanted = min(limit, len(groups))
            notes += size_note(name, len(rows[name]), wanted, groups, unit)
    return tuple(notes)
