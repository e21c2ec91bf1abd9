"""Predictions to compare on: random ones, and those on which implementations part."""

from __future__ import annotations

import math

import torch
from torch import Tensor

Case = tuple[Tensor, Tensor]  # logits [N, K] float64, labels [N]


def random(samples: int, classes: int, scale: float, seed: int = 0) -> Case:
    """Labels drawn from a softer model than the logits': overconfident, as networks are."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(samples, classes, generator=generator, dtype=torch.float64) * scale
    return logits, torch.multinomial((logits / 2).softmax(-1), 1, generator=generator).squeeze(-1)


def certain() -> Case:
    """A quarter of the confidences is exactly 1.0, one in ten of those wrong; the others
    lie between .5 and 1."""
    logits, labels = random(400, 5, 2.0)
    labels[:100] = (torch.arange(100) % 10 == 0).long()
    logits[:100] = torch.tensor([900.0, 0.0, 0.0, 0.0, 0.0], dtype=torch.float64)
    return logits, labels


def a_few_certain() -> Case:
    """Five of 300 confidences are exactly 1.0, fewer than an equal-mass bin holds;
    three of them are wrong."""
    logits, _ = random(300, 5, 2.0)
    logits[:5] = 900.0 * torch.eye(5, dtype=torch.float64)
    labels = logits.argmax(-1)
    labels[:5:2] = (labels[:5:2] + 1) % 5
    return logits, labels


def edges() -> Case:
    """Two classes with confidences of 2/3, 4/5 and 14/15, edges of 15 bins as near as
    floats go; others between."""
    odds = torch.tensor([2.0] * 8 + [2.5] * 8 + [4.0] * 8 + [14.0] * 8, dtype=torch.float64)
    return torch.stack([odds.log(), torch.zeros(32, dtype=torch.float64)], dim=1), (
        torch.arange(32) % 3 == 0
    ).long()


def ties() -> Case:
    """Sixty equal confidences, the right ones first."""
    logits = torch.zeros(60, 3, dtype=torch.float64)
    logits[:, 0] = 1.0
    return logits, (torch.arange(60) // 30).long()


def absent_class() -> Case:
    """The last of four classes is nobody's label."""
    logits, labels = random(200, 4, 2.0)
    return logits, labels.clamp(max=2)


def all_right() -> Case:
    logits, _ = random(100, 6, 2.0)
    return logits, logits.argmax(-1)


def all_wrong() -> Case:
    logits, _ = random(100, 6, 2.0)
    return logits, logits.argmin(-1)


def underflow() -> Case:
    """The true class 200 logits behind: its probability is 0 in float32, its log is not."""
    logits, labels = random(50, 3, 1.0)
    logits[0] = torch.tensor([200.0, 0.0, -50.0])
    labels[0] = 1
    return logits, labels


INPUTS: dict[str, Case] = {
    "random 64x10": random(64, 10, 3.0),
    "random 500x2": random(500, 2, 1.0),
    "random 2000x100": random(2000, 100, 2.0),
    "certain": certain(),
    "a few certain": a_few_certain(),
    "edges": edges(),
    "ties": ties(),
    "absent class": absent_class(),
    "all right": all_right(),
    "all wrong": all_wrong(),
    "underflow": underflow(),
    "two samples": (
        torch.tensor([[math.log(3.0), 0.0], [math.log(4.0), 0.0]], dtype=torch.float64),
        torch.arange(2),
    ),
}
