"""Splits of whole groups, against an exhaustive search over small layouts and counts by pandas."""

from itertools import product

import numpy as np
import pandas as pd
import pytest

from trainables.data.shared.splits import TOLERANCE, limited, size_note, whole_groups
from trainables.problems import FieldError
from trainables.seeding import stream

Members = list[set[int]]  # the classes of each group


def can_be_split(members: Members, classes: int, parts: int) -> bool:
    """Some way to give groups to parts has each class in each part: all ways are tried."""
    for given in product(range(parts), repeat=len(members)):
        there = [set() for _ in range(parts)]
        for found, part in zip(members, given, strict=True):
            there[part] |= found
        if all(len(found) == classes for found in there):
            return True
    return False


def samples_of(members: Members, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Labels and groups: one to five samples of each class in each group, shuffled."""
    pairs = [(one, group) for group, found in enumerate(members) for one in sorted(found)]
    rows = np.repeat(pairs, random.integers(1, 6, len(pairs)), axis=0)
    labels, groups = random.permutation(rows).T
    return labels, groups


def carved(
    labels: np.ndarray, groups: np.ndarray, parts: int, seed: int, share: float = 0.2
) -> list[np.ndarray] | None:
    """The rows of each part, the last what is left; None if there is no way."""
    rest = np.arange(len(labels))
    found = []
    for beside in range(parts - 1, 0, -1):
        generator = stream(seed, "split", beside)
        size = share * len(rest)
        taken = whole_groups(labels[rest], groups[rest], size, generator, beside=beside)
        if taken is None:
            return None
        found.append(rest[taken])
        rest = rest[~taken]
    return [*found, rest]


def layout(seed: int) -> tuple[Members, int, int, np.random.Generator]:
    """Random groups of few classes each, where every class has groups enough."""
    random = np.random.default_rng(seed)
    while True:
        classes, parts = (int(random.integers(2, end)) for end in (5, 4))
        groups = int(random.integers(parts, 8 if parts == 3 else 10))
        members = [
            set(random.permutation(classes)[: random.integers(1, 4)].tolist())
            for _ in range(groups)
        ]
        counts = [sum(one in found for found in members) for one in range(classes)]
        if min(counts) >= parts:
            return members, classes, parts, random


def test_each_class_is_in_each_split_wherever_there_is_a_way() -> None:
    possible = 0
    for seed in range(100):
        members, classes, parts, random = layout(seed)
        labels, groups = samples_of(members, random)
        found = carved(labels, groups, parts, seed)
        assert (found is not None) == can_be_split(members, classes, parts)
        if found is not None:
            possible += 1
            assert sorted(np.concatenate(found)) == list(range(len(labels)))
            for rows in found:
                assert set(labels[rows]) == set(range(classes))
            frame = pd.DataFrame({"group": groups, "part": 0})
            for part, rows in enumerate(found):
                frame.loc[rows, "part"] = part
            assert (frame.groupby("group")["part"].nunique() == 1).all()
    assert possible > 80


def test_a_triangle_of_classes_has_no_split() -> None:
    """Each class is in two of three groups: one of two parts always lacks one."""
    labels, groups = samples_of([{0, 1}, {1, 2}, {0, 2}], np.random.default_rng(0))
    assert carved(labels, groups, 2, 0) is None


@pytest.mark.parametrize("kind", ["40", "100", "300", "1000", "1 to 40"])
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("of_group", [True, False])
def test_sizes_are_as_asked_for(kind: str, classes: int, of_group: bool) -> None:
    """As near as whole groups allow: of equal ones half a group, or 2% where that is more."""
    for seed in range(3):
        random = np.random.default_rng(seed)
        sizes = random.integers(1, 41, 60) if kind == "1 to 40" else np.full(int(kind), 20)
        groups = np.repeat(np.arange(len(sizes)), sizes)
        if of_group:
            labels = np.repeat(random.permutation(np.arange(len(sizes)) % classes), sizes)
        else:
            labels = random.integers(0, classes, len(groups))
        found = carved(labels, groups, 3, seed)
        assert found is not None
        left = len(labels)
        for rows in found[:2]:
            half = 0 if kind == "1 to 40" else 10
            assert abs(len(rows) - 0.2 * left) <= max(TOLERANCE * 0.2 * left, half)
            left -= len(rows)
            shares = np.bincount(labels[rows]) / len(rows)
            wanted = np.bincount(labels) / len(labels)
            # A class is off by at most two groups.
            assert np.abs(shares - wanted).max() <= 2 * sizes.max() / len(rows)


def test_no_split_gets_larger_groups_than_another() -> None:
    """The mean size of groups over many seeds, which is that of all within three deviations."""
    sizes = np.random.default_rng(0).integers(1, 41, 60)
    groups = np.repeat(np.arange(60), sizes)
    labels = groups % 2
    means = []
    for seed in range(150):
        found = carved(labels, groups, 2, seed)
        assert found is not None
        means.append(sizes[np.unique(groups[found[0]])].mean())
    deviation = np.std(means) / np.sqrt(len(means))
    assert abs(np.mean(means) - sizes.mean()) < 3 * deviation + 0.5


def test_a_split_is_drawn_by_seed_from_any_numbers_of_groups() -> None:
    labels, groups = samples_of([{0, 1}] * 30, np.random.default_rng(0))
    renamed = np.random.default_rng(1).permutation(10**6)[groups]
    one, same, other = (carved(labels, groups, 3, seed) for seed in (0, 0, 1))
    assert one is not None and same is not None and other is not None
    assert all(map(np.array_equal, one, same)) and not np.array_equal(one[0], other[0])
    again = carved(labels, renamed, 3, 0)
    assert again is not None and all(map(np.array_equal, one, again))
    # Another fraction of validation leaves test as it is.
    fewer = whole_groups(labels, groups, 0.2 * len(labels), stream(0, "split", 2), beside=2)
    assert fewer is not None and np.array_equal(np.flatnonzero(fewer), one[0])


def test_a_giant_group_goes_to_the_larger_part() -> None:
    groups = np.concatenate([np.zeros(300, dtype=int), np.repeat(np.arange(1, 61), 5)])
    labels = np.arange(600) % 2
    for seed in range(20):
        found = carved(labels, groups, 3, seed)
        assert found is not None and 0 not in groups[np.concatenate(found[:2])]


# ---- limit ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [30, 100, 250, 900])
def test_a_limit_takes_whole_groups_and_stays_below(limit: int) -> None:
    random = np.random.default_rng(0)
    groups = np.repeat(np.arange(100), random.integers(1, 21, 100))
    labels = random.permutation(100)[groups] % 3
    taken = limited(labels, limit, "train", 3, groups)
    assert 0.98 * limit <= len(taken) <= limit
    assert set(labels[taken]) == {0, 1, 2}
    assert sorted(np.flatnonzero(np.isin(groups, groups[taken]))) == taken.tolist()


def test_a_limit_without_room_for_a_group_of_each_class_is_refused() -> None:
    groups = np.repeat(np.arange(6), 10)
    labels = groups % 3
    with pytest.raises(FieldError, match="limit: 29 is too few for whole groups of all 3 classes"):
        limited(labels, 29, "train", 3, groups)
    assert len(limited(labels, 30, "train", 3, groups)) == 30


def test_what_is_said_of_a_size() -> None:
    groups = np.repeat(np.arange(4), [7, 3, 5, 2])
    assert size_note("test", 98, 100, groups, "patients") == ()
    (said,) = size_note("test", 1230, 1000.4, groups, "patients")
    assert said == (
        "test has 1,230 samples, 1,000 were asked for: patients are kept whole, the largest has 7"
    )
