"""How much better a result looks on the split that chose its epoch than on a fresh one.

    python -m benchmarks.experiments.optimism [SEEDS]        # 200; three minutes on one core

Digits, the network and the optimizer of study/specs/digits.yaml, 40 epochs. A part of train
as large as the validation split is held out: no training sees it and nothing is chosen on it.
Each seed draws its own splits and weights. Each training is judged by every rule of `result`,
at the same network: its value on the validation split less that on the held-out part, with
the sign by which positive looks too good; mean over seeds and 95% t interval.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile

import torch

from benchmarks.answer import interval
from trainables import metrics
from trainables.config import TrialConfig
from trainables.loading.trial_data import trial_data
from trainables.training.learner import Learner

MEASURED = ("accuracy", "nll", "ece")
RULES = ("last", *(f"best_{name}" for name in MEASURED))
# Values on the validation split, and on the held-out part.
Epoch = tuple[dict[str, float], dict[str, float]]


def epochs(method: str, seed: int) -> list[Epoch]:
    """The values after each epoch of one training."""
    config = TrialConfig.from_mapping(
        {
            "data": {"name": "digits", "meta": 0.25},
            "model": "mlp",
            "method": method,
            "equal_train": True,
        }
        | {"epochs": 40, "seed": seed}
    )
    learner = Learner(config, trial_data(config, torch.device("cpu")), torch.device("cpu"))
    held = learner._meta
    assert held is not None
    found: list[Epoch] = []
    while not learner.finished:
        row = learner.train_epoch()
        logits = learner._logits(held)
        found.append(
            (row, {name: float(metrics.find(name)(logits, held.labels)) for name in MEASURED})
        )
    return found


def chosen(history: list[Epoch], rule: str) -> int:
    """The index of the epoch that the rule takes by the validation split, the first of equals."""
    if rule == "last":
        return len(history) - 1
    name = rule.removeprefix("best_")
    return min(
        range(len(history)), key=lambda epoch: metrics.describe(name).sign * history[epoch][0][name]
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("seeds", type=int, nargs="?", default=200)
    seeds = parser.parse_args().seeds
    torch.set_num_threads(1)
    columns = [
        "method",
        "result",
        "median epoch",
        *(f"{name} looks better by" for name in MEASURED),
    ]
    print(f"| {' | '.join(columns)} | accuracy, held out |\n|{'---|' * (len(columns) + 1)}")
    with tempfile.TemporaryDirectory() as cache:
        os.environ["CALSTUDY_CACHE"] = cache
        for method in ("cross_entropy", "focal"):
            trainings = [epochs(method, seed) for seed in range(seeds)]
            for rule in RULES:
                at = [chosen(history, rule) for history in trainings]
                taken = [history[epoch] for history, epoch in zip(trainings, at, strict=True)]
                cells = [
                    interval(
                        [
                            metrics.describe(name).sign * (held[name] - seen[name])
                            for seen, held in taken
                        ]
                    )
                    for name in MEASURED
                ]
                accuracy = statistics.fmean(held["accuracy"] for _, held in taken)
                print(
                    f"| {method} | {rule} | {statistics.median(at) + 1:g} | {' | '.join(cells)} |"
                    f" {accuracy:.4f} |"
                )


if __name__ == "__main__":
    main()
