"""Random inputs that the product and its slow definitions are compared on, and one damage."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from trainables.files.digest import sampled_digest

# (samples, classes, scale): one sample; fewer samples than bins; no multiple
# of the bins; saturated; flat.
SHAPES = [(1, 2, 1.0), (7, 3, 1.0), (40, 10, 5.0), (33, 12, 30.0), (64, 4, 0.1)]
every_shape = pytest.mark.parametrize("shape", SHAPES, ids=lambda s: f"{s[0]}x{s[1]}x{s[2]}")


def random_case(shape: tuple[int, int, float], seed: int = 0) -> tuple[Tensor, Tensor]:
    """logits [N, K] float64 of that scale, labels [N], half of them the top class."""
    samples, classes, scale = shape
    generator = np.random.default_rng([seed, samples, classes])
    logits = generator.normal(scale=scale, size=(samples, classes))
    random_labels = generator.integers(classes, size=samples)
    labels = np.where(generator.random(samples) < 0.5, logits.argmax(1), random_labels)
    return torch.from_numpy(logits), torch.from_numpy(labels)


def logits_of(*rows: list[float]) -> Tensor:
    """Logits [N, K] float64 whose softmax is `rows`."""
    return torch.log(torch.tensor(rows, dtype=torch.float64))


def damage_unsampled(file: Path) -> None:
    """Change one bit, where only the digest of the whole file tells."""
    content, sampled = file.read_bytes(), sampled_digest(file)
    for place in range(len(content)):
        file.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        if sampled_digest(file) == sampled:
            return
    raise AssertionError("every byte is sampled")
