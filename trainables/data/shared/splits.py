"""Map a source's splits to ours and limit their samples; shared by all file readers."""

from collections.abc import Mapping

import numpy as np
import torch

from trainables.problems import FieldError, nearest
from trainables.seeding import stream

SPLITS = ("train", "validation", "test")
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


def limited(labels: np.ndarray, limit: int | None, name: str, num_classes: int) -> np.ndarray:
    """Indices of at most `limit` samples of a split, in order, stratified, one or more per class.

    labels: [N] int64, with every class. Raises FieldError if the limit is below the number of
    classes.
    """
    if limit is None or limit >= len(labels):
        return np.arange(len(labels))
    if limit < num_classes:
        raise FieldError("limit", f"{limit} is too few for {num_classes} classes")
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
