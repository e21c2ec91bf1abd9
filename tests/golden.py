"""The inputs of golden.json, rebuilt, and the values that public
implementations returned on them."""

import json
import math
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

GOLDEN: dict[str, Any] = json.loads(Path(__file__).with_name("golden.json").read_text())


class Case(NamedTuple):
    """logits [N, K], labels [N], and the tolerance the peers' precision allows."""

    logits: Tensor
    labels: Tensor
    tolerance: float


def input_a() -> Case:
    """64 random samples of 10 classes, float32: labels know nothing of the logits."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        logits = torch.randn(64, 10) * 3
        return Case(logits, torch.randint(0, 10, (64,)), 1e-5)


def input_b() -> Case:
    """200 samples of 10 classes by formula, float64: seven of ten labels are the top class."""
    i = torch.arange(1, 201, dtype=torch.float64)[:, None]
    j = torch.arange(1, 11, dtype=torch.float64)[None, :]
    logits = 4 * torch.sin(0.37 * i * j) + 0.5 * torch.cos(0.11 * i + 1.3 * (j - 1))
    index, top = torch.arange(200), logits.argmax(1)
    return Case(logits, torch.where(index % 10 < 7, top, (top + 1 + index % 3) % 10), 1e-6)


def edge_vector() -> Case:
    """E5: confidences .6, .6, .8, 1, 1 with hits 1, 0, 1, 1, 0, for 5 bins.

    No logit gives exactly .6 by every route through exp; 1e-12 below, (lo, hi]
    bins hold what they held.
    """
    confidences = [0.6 - 1e-12, 0.6 - 1e-12, 0.8 - 1e-12]
    rows = [[math.log(c), math.log1p(-c)] for c in confidences] + [[1000.0, 0.0]] * 2
    return Case(torch.tensor(rows, dtype=torch.float64), torch.tensor([0, 1, 0, 0, 1]), 1e-6)


def lookahead_validation() -> Case:
    """The validation batch of the gamma_net rows: 12 samples of 3 classes, float64, by formula."""
    i, j = (
        torch.arange(1, 13, dtype=torch.float64)[:, None],
        torch.arange(1, 7, dtype=torch.float64),
    )
    return Case(torch.cos(0.21 * i * j) @ _lookahead_head(), 2 * torch.arange(12) % 3, 1e-9)


def lookahead_training() -> Case:
    """The training batch of the gamma_net rows: 8 samples of 3 classes, float64, by formula."""
    i, j = torch.arange(1, 9, dtype=torch.float64)[:, None], torch.arange(1, 7, dtype=torch.float64)
    return Case(torch.sin(0.3 * i * j) @ _lookahead_head(), torch.arange(8) % 3, 1e-9)


def _lookahead_head() -> Tensor:
    j, c = torch.arange(1, 7, dtype=torch.float64)[:, None], torch.arange(1, 4, dtype=torch.float64)
    return 0.5 * torch.sin(1.1 * j + 0.7 * c)


INPUTS = {"A": input_a(), "B": input_b()}
