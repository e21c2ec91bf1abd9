"""What the metrics cost: all of them on 10,000 x 100 logits, beside the public
packages on the same arrays.

    make compare                                               # in its environment; a few minutes
    python -m benchmarks.metrics --samples 50000 --classes 10  # in any that has the packages

Each figure is the best of several calls in one process, ours and a package's in turn; read
the ratios. Both start from float64 logits, softmax included; ours stays in float64, some
packages go on in float32.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial

import torch

from benchmarks.compare import conventions, peers
from benchmarks.compare.inputs import random
from trainables import metrics
from trainables.metrics.shared import post_hoc
from trainables.metrics.shared.temperature_of_ece import fit_temperature_by_ece
from trainables.outputs.predictions import Predictions

# Our metrics, and what of a package measures the same.
RIVALS: dict[str, dict[str, Callable[..., object]]] = {
    "accuracy": {"torchmetrics": peers.torchmetrics_accuracy},
    "top5_accuracy": {"torchmetrics": partial(peers.torchmetrics_accuracy, top_k=5)},
    "nll": {"torch-uncertainty": peers.torch_uncertainty_nll},
    "brier": {"torch-uncertainty": peers.torch_uncertainty_brier},
    "ece": {"torchmetrics": peers.torchmetrics_calibration, "netcal": peers.netcal_ece},
    "mce": {
        "torchmetrics": partial(peers.torchmetrics_calibration, norm="max"),
        "netcal": peers.netcal_mce,
    },
    "rmsce": {"torchmetrics": partial(peers.torchmetrics_calibration, norm="l2")},
    "ace_unweighted": {"netcal": peers.netcal_ace},
    "adaptive_ece": {
        "torch-uncertainty": peers.torch_uncertainty_adaptive,
        "netcal": peers.netcal_adaptive,
    },
    "classwise_ece": {"torch-uncertainty": peers.torch_uncertainty_classwise},
    "smooth_ece": {
        "torch-uncertainty": peers.torch_uncertainty_smooth,
        "relplot": peers.relplot_smooth,
    },
    "mmce": {"netcal": peers.netcal_mmce},
    "debiased_l2": {"uncertainty-calibration": partial(peers.kumar, power=2, debias=True)},
    "debiased_l2_marginal": {
        "uncertainty-calibration": partial(peers.kumar, power=2, debias=True, mode="marginal")
    },
}
LEAST_SECONDS = 1.0


def seconds(call: Callable[[], object], device: torch.device) -> float:
    """The best of three calls, or of as many as fit in a second; one call where that
    takes longer than ten."""
    best, spent, calls = float("inf"), 0.0, 0
    while spent < LEAST_SECONDS or (calls < 3 and spent < 10 * LEAST_SECONDS):
        started = time.perf_counter()
        call()
        if device.type == "cuda":
            torch.cuda.synchronize()
        took = time.perf_counter() - started
        best, spent, calls = min(best, took), spent + took, calls + 1
    return best


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("--samples", type=int, default=10_000)
    words.add_argument("--classes", type=int, default=100)
    words.add_argument("--threads", type=int, default=1)
    given = words.parse_args()
    torch.set_num_threads(given.threads)
    logits, labels = random(given.samples, given.classes, 2.0)
    devices = [torch.device("cpu")] + [torch.device("cuda")] * torch.cuda.is_available()
    for device in devices:
        on_device = logits.to(device), labels.to(device)
        print(f"\n{given.samples} x {given.classes}, {device.type}, {given.threads} threads\n")
        print("| metric | ours ms | a package's ms, and times ours |\n|---|---|---|")
        spent = {name: _row(name, on_device, device) for name in metrics.described()}
        _sums(spent, on_device, device)


def _row(name: str, case: tuple[torch.Tensor, torch.Tensor], device: torch.device) -> float:
    ours = seconds(lambda: metrics.find(name)(*case).item(), device)
    rivals = []
    if device.type == "cpu":  # netcal, relplot and uncertainty-calibration know no other
        for package, measure in RIVALS.get(name, {}).items():
            theirs = seconds(lambda measure=measure: measure(*case), device)
            rivals.append(f"{package} {1e3 * theirs:.1f} ({theirs / ours:.1f}x)")
    print(f"| {name} | {1e3 * ours:.1f} | {', '.join(rivals)} |", flush=True)
    return ours


def _sums(
    spent: dict[str, float], case: tuple[torch.Tensor, torch.Tensor], device: torch.device
) -> None:
    predictions = Predictions(*case)
    rows = {
        "what a trial stores, before temperature scaling": sum(
            spent[name] for name in metrics.stored()
        ),
        "every metric": sum(spent.values()),
        "every convention": seconds(lambda: conventions.by_convention(*case), device),
        "the temperature, by NLL": seconds(lambda: post_hoc.fit_temperature(*case), device),
        "the temperature, by ECE": seconds(lambda: fit_temperature_by_ece(*case), device),
        "vector scaling": seconds(lambda: post_hoc.fit_vector_scaling(*case), device),
        "Predictions.evaluate (a trial's end)": seconds(predictions.evaluate, device),
    }
    for name, value in rows.items():
        print(f"| {name} | {1e3 * value:.1f} | |")


if __name__ == "__main__":
    main()
