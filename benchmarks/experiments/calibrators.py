"""Post-hoc calibrators on trained networks, as docs/how-to/which-calibrator.md shows them.

    python -m benchmarks.experiments.calibrators POOLS DATA   # ten minutes

Of each network a random part of the rows fits, as a validation split would, and the others are
what it is scored on; several times. A line for each, less the temperature: the mean over draws,
and in brackets the range of 95% of the draws, each a median over the networks.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from benchmarks.experiments.pools import POOLS, read
from trainables import metrics
from trainables.metrics.shared import post_hoc

DRAWS = 20
NETWORKS = 25  # of a pool, evenly among its trials
NAMES = ("none", "temperature", "vector_scaling", "structured_vector", "structured_matrix")
SHOWN = ("nll", "brier", "ece")
PUBLISHED = {
    "LeNet, CIFAR-10": "lenet-5-cifar10-probs.npz",
    "WRN, CIFAR-10": "wideresnet-16-4-cifar10-probs.npz",
}


def scored(logits: Tensor, labels: Tensor) -> list[float]:
    found = metrics.measure(logits, labels, SHOWN)
    return [found[name] for name in SHOWN]


def scores_of(networks: list[Tensor], labels: Tensor, fitted: int) -> np.ndarray:
    """Each calibrator's scores, [draws, networks, names, 3]."""
    found = np.empty((DRAWS, len(networks), len(NAMES), len(SHOWN)))
    for draw in range(DRAWS):
        order = torch.from_numpy(np.random.default_rng(draw).permutation(len(labels)))
        fit, rest = order[:fitted], order[fitted:]
        for place, logits in enumerate(networks):
            for column, name in enumerate(NAMES):
                after = logits[rest]
                if name != "none":
                    after = post_hoc.FITS[name](logits[fit], labels[fit])(after)
                found[draw, place, column] = scored(after, labels[rest])
    return found


def show(title: str, found: np.ndarray, fitted: int) -> None:
    print(f"\n{title}: {found.shape[1]} networks, {fitted} samples fit", flush=True)
    found = found - found[:, :, [NAMES.index("temperature")]]
    for column, name in enumerate(NAMES):
        cells = []
        for place in range(len(SHOWN)):
            of_draws = np.median(found[:, :, column, place], axis=1)
            low, high = np.quantile(of_draws, [0.025, 0.975])
            cells.append(f"{of_draws.mean():+.4f} [{low:+.4f}, {high:+.4f}]")
        worse = (found[:, :, column, 0] > 0).mean()
        print(f"{name:18} {'  '.join(cells)}  worse in NLL {worse:.0%}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("pools", type=Path)
    parser.add_argument("data", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    begun = time.process_time()
    for title, file in PUBLISHED.items():
        with np.load(given.data / file, allow_pickle=False) as stored:
            probs = torch.from_numpy(stored["probs"].astype(np.float64))
            labels = torch.from_numpy(stored["labels"].astype(np.int64).ravel())
        show(title, scores_of([(probs / probs.sum(1, keepdim=True)).log()], labels, 1000), 1000)
    for name in POOLS:
        if not any((given.pools / name).glob("*.npz")):
            continue
        pool = read(name, given.pools)
        step = max(1, len(pool.logits) // NETWORKS)
        networks = [torch.from_numpy(logits) for logits in pool.logits[::step]]
        labels = torch.from_numpy(pool.labels)
        show(name, scores_of(networks, labels, POOLS[name].validation), POOLS[name].validation)
    print(f"\n{time.process_time() - begun:.0f} CPU seconds")


if __name__ == "__main__":
    main()
