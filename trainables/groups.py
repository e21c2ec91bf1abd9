"""Samples that belong together: all images of a patient, all frames of a drive."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

FOLDS = 5  # of a cross-fit
Groups = TypeVar("Groups", "Tensor", np.ndarray)


def renumbered(groups: np.ndarray) -> np.ndarray:
    """[N] int64: the groups [N], of any numbers or texts, numbered by first appearance."""
    _, firsts, numbers = np.unique(groups, return_index=True, return_inverse=True)
    place = np.empty(len(firsts), dtype=np.int64)
    place[np.argsort(firsts)] = np.arange(len(firsts))
    found: np.ndarray = place[numbers]
    return found


def together(groups: Groups | None) -> Groups | None:
    """The groups; None where each has one sample, as all statistics are those without groups."""
    if groups is None or len(groups) == int(groups.max()) + 1:
        return None
    return groups


def folds_of(samples: int, groups: Tensor | None, folds: int) -> Tensor:
    """[N] int64: the fold of each sample for cross-fitting, that of its group.

    groups: [N] int64, numbered by first appearance; None: each sample by itself.
    """
    import torch

    return (torch.arange(samples) if groups is None else groups) % folds
