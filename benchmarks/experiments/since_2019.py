"""Does each method since 2019 do on digits what its paper says it does, and what does it cost?

    python -m benchmarks.experiments.since_2019 [--data noisy_digits]
    python -m benchmarks.experiments.since_2019 --times

Claims are of the same network trained by two losses from the same start, in the same order, at
fixed settings, over three seeds; measured on the half of the samples not trained on. Nothing is
searched and no test split is opened. Times are CPU seconds of one thread, each loss in turn with
focal's, the least of 200 rounds of ten.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from trainables import methods
from trainables.config import TrialConfig
from trainables.loading.trial_data import trial_data
from trainables.training.learner import Learner

CPU = torch.device("cpu")
SEEDS = (0, 1, 2)
METRICS = ("accuracy", "ece", "classwise_ece", "nll", "ts_ece", "ts_nll")
METHODS: dict[str, Any] = {
    "cross_entropy": "cross_entropy",
    "focal": {"name": "focal", "gamma": 3.0},
    "focal 1": {"name": "focal", "gamma": 1.0},
    "label_smoothing": {"name": "label_smoothing", "epsilon": 0.1},
    "mixup": {"name": "mixup", "alpha": 1.0},
    "dual_focal": {"name": "dual_focal", "gamma": 3.0},
    "inverse_focal": {"name": "inverse_focal", "gamma": 2.0},
    "mdca on focal 1": {"name": "mdca", "weight": 1.0, "base": {"name": "focal", "gamma": 1.0}},
    "mdca on focal 1, weight 30": {
        "name": "mdca",
        "weight": 30.0,
        "base": {"name": "focal", "gamma": 1.0},
    },
    "dca": {"name": "dca", "weight": 10.0},
    "dca, weight 1": {"name": "dca", "weight": 1.0},
    "esd": {"name": "esd", "weight": 4.0},
    "esd, weight 20": {"name": "esd", "weight": 20.0},
    "logit_norm": {"name": "logit_norm", "temperature": 0.04},
    "logit_norm, temperature 1": {"name": "logit_norm", "temperature": 1.0},
    "acls": {"name": "acls"},
    "acls, margin 6": {"name": "acls", "margin": 6.0},
    "maxsup": {"name": "mbls", "margin": 0.0, "weight": 0.1, "weight_end": 0.2},
    "reg_mixup": {"name": "reg_mixup", "alpha": 10.0},
}


class Claim(NamedTuple):
    """`method` is better than `other` in a metric, as its paper says."""

    method: str
    metric: str
    other: str = "cross_entropy"


CLAIMS = [
    Claim("dual_focal", "ece", "focal"),
    Claim("inverse_focal", "ts_nll"),
    Claim("inverse_focal", "ts_ece"),
    Claim("mdca on focal 1", "classwise_ece", "focal 1"),
    Claim("mdca on focal 1, weight 30", "classwise_ece", "focal 1"),
    Claim("dca", "ece"),
    Claim("dca, weight 1", "ece"),
    Claim("esd", "ece"),
    Claim("esd, weight 20", "ece"),
    Claim("logit_norm", "ts_ece"),
    Claim("logit_norm, temperature 1", "ts_ece"),
    Claim("acls", "ece"),
    Claim("acls, margin 6", "ece"),
    Claim("maxsup", "accuracy", "label_smoothing"),
    Claim("maxsup", "ece"),
    Claim("reg_mixup", "accuracy"),
    Claim("reg_mixup", "ece"),
    Claim("reg_mixup", "ece", "mixup"),
]
HIGHER = ("accuracy",)


def config_of(
    method: Any, seed: int, data: str, model: str = "mlp", validation: float = 0.5
) -> TrialConfig:
    plain = {
        "data": {"name": data, "validation": validation},
        "model": model,
        "method": method,
        "optimizer": {"lr": 0.1, "momentum": 0.9, "weight_decay": 5e-4, "schedule": "cosine"},
        "batch_size": 64,
        "epochs": 20,
        "seed": seed,
    }
    return TrialConfig.from_mapping(plain)


def measured(method: Any, seed: int, data: str) -> dict[str, float]:
    """The metrics of one training."""
    config = config_of(method, seed, data)
    learner = Learner(config, trial_data(config, CPU), CPU)
    while not learner.finished:
        learner.train_epoch()
    found = learner.predict().evaluate()
    return {name: found[name] for name in METRICS}


def claims(data: str) -> None:
    """Print what each method has, and whether its claim holds."""
    found = {
        name: [measured(method, seed, data) for seed in SEEDS] for name, method in METHODS.items()
    }
    print(f"| {data} | " + " | ".join(METRICS) + " |")
    print("|---|" + "---:|" * len(METRICS))
    for name, runs in found.items():
        cells = []
        for metric in METRICS:
            values = [run[metric] for run in runs]
            cells.append(f"{statistics.mean(values):.4f} ± {statistics.stdev(values):.4f}")
        print(f"| {name} | " + " | ".join(cells) + " |")
    print("\n| claim | differences of seeds 0, 1, 2 | better in |\n|---|---|---|")
    for claim in CLAIMS:
        pairs = zip(found[claim.method], found[claim.other], strict=True)
        each = [one[claim.metric] - other[claim.metric] for one, other in pairs]
        better = sum((value > 0) == (claim.metric in HIGHER) and value != 0 for value in each)
        differences = ", ".join(f"{value:+.4f}" for value in each)
        words = f"{claim.method}: {claim.metric} beside {claim.other}"
        print(f"| {words} | {differences} | {better} of 3 |")


def least(call: Callable[[], object], beside: Callable[[], object]) -> tuple[float, float, float]:
    """The least CPU seconds of each of two calls, in turn, and the median of their ratios."""

    def seconds(one: Callable[[], object], times: int = 10) -> float:
        before = time.thread_time()
        for _ in range(times):
            one()
        return (time.thread_time() - before) / times

    seconds(call), seconds(beside)
    pairs = [(seconds(call), seconds(beside)) for _ in range(200)]
    ratio = statistics.median(one / other for one, other in pairs)
    return min(one for one, _ in pairs), min(other for _, other in pairs), ratio


def epochs(one: Learner, other: Learner) -> float:
    """The median ratio of CPU seconds of two trainings' epochs, in turn, without the first."""
    ratios = []
    for _ in range(16):
        seconds = []
        for learner in (one, other):
            before = time.thread_time()
            learner.train_epoch()
            seconds.append(time.thread_time() - before)
        ratios.append(seconds[0] / seconds[1])
    return statistics.median(ratios[1:])


def times() -> None:
    """Print the cost of each loss, of a batch of 128 with 100 classes, and of RegMixup's step."""
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    logits = (3 * torch.randn(128, 100, generator=generator)).requires_grad_()
    labels = torch.randint(100, (128,), generator=generator)

    def loss_of(name: str) -> Callable[[], object]:
        method = methods.find(name)()
        return lambda: torch.autograd.grad(method.loss(logits, labels, 0.5), logits)

    print("| loss and gradient | µs | focal's | over focal | median |\n|---|---:|---:|---:|---:|")
    for name in ("dual_focal", "inverse_focal", "mdca", "dca", "esd", "logit_norm", "acls"):
        own, focal, ratio = least(loss_of(name), loss_of("focal"))
        cells = f"{own * 1e6:.0f} | {focal * 1e6:.0f} | {own / focal:.2f} | {ratio:.2f}"
        print(f"| {name} | {cells} |", flush=True)
    print()
    for model in ("mlp", "cnn"):
        learners = []
        for name in ("reg_mixup", "cross_entropy"):
            config = config_of(name, 0, "digits", model, validation=0.05)
            learners.append(Learner(config, trial_data(config, CPU), CPU))
        print(f"reg_mixup, {model}: {epochs(*learners):.2f} epochs of cross_entropy")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", default="digits", choices=["digits", "noisy_digits"])
    parser.add_argument("--times", action="store_true")
    args = parser.parse_args()
    if args.times:
        times()
    else:
        claims(args.data)


if __name__ == "__main__":
    main()
