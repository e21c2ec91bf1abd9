"""What every reference starts from: float64 arrays and one sample's probabilities."""

import math

import numpy as np
import torch
from numpy.typing import NDArray

Array = NDArray[np.float64] | torch.Tensor
Labels = NDArray[np.int64] | torch.Tensor
Targets = Labels | Array  # labels [N], or rows [N, K] of class probabilities


def rows(logits: Array) -> list[list[float]]:
    """logits [N, K] as float64, one list per sample."""
    return [[float(z) for z in row] for row in np.asarray(logits, dtype=np.float64)]


def classes(labels: Labels) -> list[int]:
    """labels [N] as plain numbers."""
    return [int(y) for y in np.asarray(labels)]


def target_rows(targets: Targets, num_classes: int) -> list[list[float]]:
    """targets [N, K] as float64; labels [N] become one-hot rows."""
    if np.asarray(targets).ndim == 2:
        return rows(targets)
    return [[float(k == y) for k in range(num_classes)] for y in classes(targets)]


def log_sum_exp(row: list[float]) -> float:
    top = max(row)
    return top + math.log(sum(math.exp(z - top) for z in row))


def probabilities(row: list[float]) -> list[float]:
    top = max(row)
    weights = [math.exp(z - top) for z in row]
    return [w / sum(weights) for w in weights]


def top_class(row: list[float]) -> int:
    """The largest entry; of equal ones the lowest class number."""
    return max(range(len(row)), key=lambda k: (row[k], -k))


def minus_log_p(row: list[float], k: int) -> float:
    """-log softmax(row)_k, exact where p_k is 1 to the last digit."""
    return softplus(log_sum_exp(others(row, k)) - row[k])


def others(row: list[float], label: int) -> list[float]:
    return [z for k, z in enumerate(row) if k != label]


def softplus(x: float) -> float:
    """log(1 + e^x) without overflow, and exact where e^x is far below 1."""
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


def sigmoid(x: float) -> float:
    return math.exp(-softplus(-x))


def mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)
