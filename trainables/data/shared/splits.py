"""Which of a source's splits are ours, and how many samples of each: what all readers of files share."""

from collections.abc import Mapping

import numpy as np
import torch

from trainables.fields import FieldError, nearest
from trainables.seeding import stream

SPLITS = ("train", "validation", "test")
# What sources call our splits, where `splits` does not say.
KNOWN_NAMES = {"train": ("train", "training"), "validation": ("validation", "valid", "val", "dev"), "test": ("test",)}


def check_splits(splits: Mapping[str, str] | None) -> None:
    """Raise FieldError unless `splits` ({ours: theirs}; None: not given) can be meant."""
    for ours, theirs in (splits or {}).items():
        if ours not in SPLITS:
            raise FieldError("splits", f"there is no split '{ours}'.{nearest(ours, list(SPLITS))}")
        if not isinstance(theirs, str):
            raise FieldError("splits", f"'{ours}' must be a split's name in the file, got {theirs!r}.")
    if splits is not None and "train" not in splits:
        raise FieldError("splits", "must say which split is train, as {train: NAME}.")
    if splits is not None and len(set(splits.values())) < len(splits):
        raise FieldError("splits", f"takes one split of the file twice: {splits}.")


def split_names(splits: Mapping[str, str] | None, there: list[str], path: str) -> dict[str, str]:
    """Our names -> the source's, of the splits to take. there: the names in the source at `path`.

    With `splits` as written; else by KNOWN_NAMES, and with only train and validation the latter is sealed as test.
    """
    if splits is not None:
        for theirs in splits.values():
            if theirs not in there:
                raise FieldError("splits", f"{path} has no split '{theirs}'.{nearest(theirs, there)}")
        return dict(splits)
    found = {}
    for ours, words in KNOWN_NAMES.items():
        matches = [name for name in there if name.lower() in words]
        if len(matches) > 1:
            raise FieldError("splits", f"{' and '.join(matches)} in {path} could all be {ours}; say which.")
        if matches:
            found[ours] = matches[0]
    if "train" not in found:
        raise FieldError(
            "splits",
            f"no split of {path} is called train, there is {', '.join(there)}. "
            f"Say which is which, as `splits: {{train: {there[0]}}}`.",
        )
    if "test" not in found and "validation" in found:
        found["test"] = found.pop("validation")
    return found


def limited(labels: np.ndarray, limit: int | None, name: str, num_classes: int) -> np.ndarray:
    """Which samples of the split `name` to take: at most `limit`, in order, each class in its share and at least once.

    labels: [N] int64, every class among them. Raises FieldError where the limit is below the classes.
    """
    if limit is None or limit >= len(labels):
        return np.arange(len(labels))
    if limit < num_classes:
        raise FieldError("limit", f"{limit} is too few for {num_classes} classes.")
    # Taken by depth into one's class, as a share of the class: any prefix is stratified.
    depth = ranks_in_class(labels, stream(0, "limit", name)) / np.bincount(labels)[labels]
    taken: np.ndarray = np.sort(np.argsort(depth, kind="stable")[:limit])
    return taken


def ranks_in_class(labels: np.ndarray, generator: torch.Generator) -> np.ndarray:
    """[N]: place of each sample among those of its class, in random order. labels: [N] int64."""
    shuffled = torch.randperm(len(labels), generator=generator).numpy()
    by_class = shuffled[np.argsort(labels[shuffled], kind="stable")]
    counts = np.bincount(labels)
    ranks = np.empty(len(labels), dtype=np.int64)
    ranks[by_class] = np.arange(len(labels)) - np.repeat(np.cumsum(counts) - counts, counts)
    return ranks
