"""Samples that belong together: all images of a patient, all frames of a drive."""

import re

import numpy as np
import torch
from torch import Tensor


def renumbered(groups: np.ndarray) -> np.ndarray:
    """[N] int64: the groups [N], of any numbers or texts, numbered by first appearance."""
    _, firsts, numbers = np.unique(groups, return_index=True, return_inverse=True)
    place = np.empty(len(firsts), dtype=np.int64)
    place[np.argsort(firsts)] = np.arange(len(firsts))
    found: np.ndarray = place[numbers]
    return found


def together(groups: Tensor | None) -> Tensor | None:
    """The groups; None where each has one sample, as all statistics are those without groups."""
    if groups is None or len(groups) == int(groups.max()) + 1:
        return None
    return groups


def folds_of(samples: int, groups: Tensor | None, folds: int) -> Tensor:
    """[N] int64: the fold of each sample for cross-fitting, that of its group.

    groups: [N] int64, numbered by first appearance; None: each sample by itself.
    """
    return (torch.arange(samples) if groups is None else groups) % folds


def unit_of(column: str) -> str:
    """What the groups of a column are called: `patients` of `patient` and of `patient_id`."""
    word = column.removesuffix("_id").lower()
    if not re.fullmatch("[a-z]+", word) or word == "group":
        return "groups"
    if word.endswith("y") and word[-2:-1] not in "aeiou":
        return f"{word[:-1]}ies"
    return f"{word}es" if word.endswith(("s", "x", "ch", "sh")) else f"{word}s"


def singular(unit: str) -> str:
    """One of a unit: `patient` of `patients`."""
    if unit.endswith("ies"):
        return f"{unit[:-3]}y"
    if unit.endswith(("sses", "xes", "ches", "shes")):
        return unit[:-2]
    return unit.removesuffix("s")


def count_of(number: int, unit: str) -> str:
    """`1 patient`, `1,214 patients`."""
    return f"{number:,} {singular(unit) if number == 1 else unit}"
