"""Early stopping: whether a trial goes on after its rung, from the trials of its method that reached it before."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from study.analysis.pareto import Costs

FIRST = 3  # trials of a method that always go on: there is nothing yet to compare them with


@dataclass(frozen=True)
class Entry:
    """A trial at a rung. place: how many of its method were recorded there before it; costs: smaller is better."""

    place: int
    number: int  # of the trial
    costs: Costs


def goes_on(entry: Entry, before: Sequence[Entry], keep: float) -> bool:
    """Whether a trial is among the best `keep` (a fraction, rounded up) of itself and those recorded before it.

    They are ordered by non-dominated sorting (Deb et al. 2002); within a front by crowding distance, largest first,
    then by number. before: the entries with a smaller place, in any order.
    """
    if entry.place < FIRST:
        return True
    entries = [*before, entry]
    costs, kept = np.array([one.costs for one in entries], np.float64), math.ceil(round(keep * len(entries), 9))
    ahead = 0  # entries of better fronts
    for front in _fronts(costs):
        if len(entries) - 1 in front:
            distances = _crowding(costs[front])
            order = sorted(range(len(front)), key=lambda at: (-distances[at], entries[front[at]].number))
            return ahead + [front[at] for at in order].index(len(entries) - 1) < kept
        ahead += len(front)
    raise AssertionError("each entry is in a front")


def _fronts(costs: NDArray[np.float64]) -> Iterator[list[int]]:
    """The rows [n, objectives] that no other dominates, then those that none of the rest does, and so on."""
    no_worse: NDArray[np.bool_] = np.all(costs[:, None] <= costs[None], axis=-1)
    dominates = no_worse & ~no_worse.T  # [n, n]
    left = np.ones(len(costs), bool)
    while left.any():
        front = left & ~dominates[left].any(0)
        yield np.flatnonzero(front).tolist()
        left &= ~front


def _crowding(costs: NDArray[np.float64]) -> NDArray[np.float64]:
    """[n]: the span between a point's neighbours, as a share of the front's, over the objectives; its ends infinite."""
    distances = np.zeros(len(costs))
    for column in costs.T:
        order = np.argsort(column, kind="stable")
        span = column[order[-1]] - column[order[0]]
        distances[order[[0, -1]]] = math.inf
        if span > 0:
            distances[order[1:-1]] += (column[order[2:]] - column[order[:-2]]) / span
    return distances
