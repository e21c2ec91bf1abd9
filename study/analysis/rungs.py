"""Early stopping: whether a trial goes on after its rung, by those of its method before it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from study.analysis.pareto import Costs
from study.schema.variant import Variant
from study.store.trials import TrialRecord
from trainables.methods.cross_entropy import CrossEntropy

FIRST = 3  # trials of a method that always go on: there is nothing yet to compare them with


@dataclass(frozen=True)
class RungEntry:
    """A trial at a rung. place: how many of its method came before it; costs: smaller is better."""

    place: int
    number: int  # of the trial
    costs: Costs


def goes_on(entry: RungEntry, before: Sequence[RungEntry], keep: float) -> bool:
    """Whether a trial is among the best `keep` of itself and those recorded before it.

    before: the entries with a smaller place, in any order.
    """
    return entry.place < FIRST or rank(entry, before) <= going_on(entry.place + 1, keep)


def going_on(count: int, keep: float) -> int:
    """How many of so many trials go on: the fraction `keep`, rounded up."""
    return math.ceil(round(keep * count, 9))


def rank(entry: RungEntry, before: Sequence[RungEntry]) -> int:
    """The trial's place, from 1, among itself and those recorded before it.

    They are ordered by non-dominated sorting (Deb et al. 2002); within a front by crowding
    distance, largest first, then by number. For crowding, equal values are ordered by place.
    """
    entries = [*sorted(before, key=lambda one: one.place), entry]
    costs = np.array([one.costs for one in entries], np.float64)
    ahead = 0  # entries of better fronts
    for front in _fronts(costs):
        if len(before) in front:
            distances = dict(zip(front, _crowding(costs[front]), strict=True))
            front.sort(key=lambda row: (-distances[row], entries[row].number))
            return ahead + front.index(len(before)) + 1
        ahead += len(front)
    raise AssertionError("each entry is in a front")


def is_protected(variant: Variant, number: int) -> bool:
    """Whether the trial is never stopped.

    Of cross-entropy, with which the others are compared; of a method with nothing to search, whose
    trials measure noise; with settings to try first.
    """
    is_baseline = isinstance(variant.method, CrossEntropy)
    return is_baseline or not variant.space.distributions or number < len(variant.space.first)


def entries_of(records: Iterable[TrialRecord], epoch: int) -> list[RungEntry]:
    """The entries of a method's trials at a rung, by place."""
    entries = []
    for record in records:
        if rung := record.rungs.get(str(epoch)):
            entries.append(RungEntry(rung.place, record.number, tuple(rung.costs)))
    return sorted(entries, key=lambda entry: entry.place)


def _fronts(costs: NDArray[np.float64]) -> Iterator[list[int]]:
    """The rows [n, objectives] that no other dominates, then those of the rest, and so on."""
    no_worse: NDArray[np.bool_] = np.all(costs[:, None] <= costs[None], axis=-1)
    dominates = no_worse & ~no_worse.T  # [n, n]
    left = np.ones(len(costs), bool)
    while left.any():
        front = left & ~dominates[left].any(0)
        yield np.flatnonzero(front).tolist()
        left &= ~front


def _crowding(costs: NDArray[np.float64]) -> NDArray[np.float64]:
    """The span between a point's neighbours, as a share of the front's, [n]; its ends infinite."""
    distances = np.zeros(len(costs))
    for column in costs.T:
        order = np.argsort(column, kind="stable")
        span = column[order[-1]] - column[order[0]]
        distances[order[[0, -1]]] = math.inf
        if span > 0:
            distances[order[1:-1]] += (column[order[2:]] - column[order[:-2]]) / span
    return distances
