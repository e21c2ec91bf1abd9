"""The means of a study's seeds on test, as lines of `published`: plain NumPy and SciPy."""

import sys
from pathlib import Path

import numpy as np
from scipy.optimize import minimize_scalar

ROWS = {
    "CE": "cross_entropy",
    "FL-3": "focal_3",
    "LS-0.2": "ls",
    "Brier": "brier",
    "Mixup": "mixup",
    "CP": "confidence_penalty",
}
DECIMALS = {"brier": 4, "ece": 2, "nll": 4, "temperature": 2}  # as printed


def probs_of(logits: np.ndarray, temperature: float = 1.0) -> np.ndarray:
    odds = np.exp((logits - logits.max(axis=1, keepdims=True)) / temperature)
    return odds / odds.sum(axis=1, keepdims=True)


def nll_of(logits: np.ndarray, labels: np.ndarray, temperature: float = 1.0) -> float:
    return -np.log(probs_of(logits, temperature)[np.arange(len(labels)), labels]).mean()


def ece_of(probs: np.ndarray, labels: np.ndarray) -> float:
    bins = np.ceil(probs.max(axis=1) * 15)
    gaps = (probs.argmax(axis=1) == labels) - probs.max(axis=1)
    return sum(abs(gaps[bins == place].sum()) for place in range(1, 16)) / len(labels)


def values_of(test: tuple, validation: tuple) -> dict[str, float]:
    """One network's, from the logits and labels of both splits."""
    logits, labels = test
    probs = probs_of(logits)
    fit = minimize_scalar(lambda at: nll_of(*validation, np.exp(at)), bounds=(-4, 4))
    return {
        "brier": ((probs - np.eye(10)[labels]) ** 2).sum(axis=1).mean(),
        "ece": 100 * ece_of(probs, labels),
        "nll": nll_of(logits, labels),
        "temperature": np.exp(fit.x),
    }


def seeds_of(study: Path, label: str) -> dict[str, np.ndarray]:
    """Each column's values, by seed."""
    found = []
    for test in sorted(study.glob(f"trials/{label}/*/*/test.npz")):
        splits = [np.load(file) for file in (test, test.with_name("predictions.npz"))]
        found.append(values_of(*((one["logits"].astype(float), one["labels"]) for one in splits)))
    return {name: np.array([one[name] for one in found]) for name in found[0]}


if __name__ == "__main__":
    for row, label in ROWS.items():
        seeds = seeds_of(Path(sys.argv[1]), label)
        cells = [f"{name}: {seeds[name].mean():.{n}f}" for name, n in DECIMALS.items()]
        print(f"    {row}: {{{', '.join(cells)}}}")
