"""Whether training in bfloat16 changes what is measured: the same trials in both
precisions, seed by seed.

    python benchmarks/experiments/precision.py cifar10.parquet  # a quarter of an hour on two cores

A cnn on a part of the images, half of them for validation; trial k of both precisions starts
from the same weights and sees the same batches. Results are predicted in float32. Intervals are
of the mean difference over seeds (Student's t).
"""

from __future__ import annotations

import argparse
import statistics
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

METRICS = ("accuracy", "nll", "ece", "ts_ece")


def trained(
    file: Path, model: str, epochs: int, limit: int, case: tuple[str, int]
) -> dict[str, float]:
    """The validation values of trial `number` trained in a precision."""
    import torch

    from trainables.config import TrialConfig
    from trainables.loading.trial_data import trial_data
    from trainables.training.learner import Learner

    torch.set_num_threads(1)
    precision, number = case
    data = {
        "name": "parquet",
        "path": str(file.absolute()),
        "limit": limit,
        "validation": 0.5,
        "augment": "crop_flip",
    }
    plain = {
        "data": data,
        "model": model,
        "method": "cross_entropy",
        "batch_size": 128,
        "epochs": epochs,
    }
    config = TrialConfig.from_mapping({**plain, "precision": precision, "number": number})
    device = torch.device("cpu")
    made = Learner(config, trial_data(config, device), device)
    while not made.finished:
        made.train_epoch()
    return made.predictions().evaluate()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parquet", type=Path)
    parser.add_argument("--model", default="cnn")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument(
        "--limit", type=int, default=30_000, help="images of the file's train split"
    )
    options = parser.parse_args()
    from scipy.stats import t

    cases = [
        (precision, number)
        for number in range(options.seeds)
        for precision in ("float32", "bfloat16")
    ]
    with ProcessPoolExecutor(2) as pool:
        call = partial(trained, options.parquet, options.model, options.epochs, options.limit)
        found = dict(zip(cases, pool.map(call, cases), strict=True))
    quantile = float(t.ppf(0.975, options.seeds - 1))
    print(
        f"{options.model}, {options.epochs} epochs, {options.limit // 2} images, {options.seeds}"
        " seeds\n"
    )
    print("| metric | float32 | bfloat16 | difference | 95% interval |\n|---|---|---|---|---|")
    for metric in METRICS:
        exact, rounded = (
            [found[precision, number][metric] for number in range(options.seeds)]
            for precision in ("float32", "bfloat16")
        )
        differences = [one - other for one, other in zip(rounded, exact, strict=True)]
        mean = statistics.fmean(differences)
        half = quantile * statistics.stdev(differences) / options.seeds**0.5
        means = f"{statistics.fmean(exact):.4f} | {statistics.fmean(rounded):.4f}"
        print(f"| {metric} | {means} | {mean:+.4f} | [{mean - half:+.4f}, {mean + half:+.4f}] |")


if __name__ == "__main__":
    main()
