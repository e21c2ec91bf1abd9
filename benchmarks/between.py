"""What an actor does between two trials: from the last epoch of one to the first step
of the next, without Ray.

    python benchmarks/between.py --model resnet18 --precision bfloat16

Trains digits for one epoch a trial, on one thread of a CPU, and prints medians and the least in
seconds: of all, of the pass in float32 that predicts the result (a part of the trial's work), and
of the rest: metrics, files, new weights.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import torch

from trainables.config import TrialConfig
from trainables.loading.trial_data import trial_data
from trainables.training.attempt import Assignment, Attempt
from trainables.training.learner import Learner


@contextmanager
def timed(name: str, found: list[tuple[float, float]]) -> Iterator[None]:
    """Record when each call of a method of the learner begins and ends."""
    known = getattr(Learner, name)

    def method(self: Learner, *words: object) -> object:
        began = time.perf_counter()
        try:
            return known(self, *words)
        finally:
            found.append((began, time.perf_counter()))

    with mock.patch.object(Learner, name, method):
        yield


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--precision", default="bfloat16")
    parser.add_argument("--trials", type=int, default=14)
    options = parser.parse_args()
    torch.set_num_threads(1)
    plain = {
        "data": "digits",
        "model": options.model,
        "method": "cross_entropy",
        "precision": options.precision,
    }
    epochs: list[tuple[float, float]] = []
    passes: list[tuple[float, float]] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        timed("advance", epochs),
        timed("predictions", passes),
    ):

        def assigned(number: int) -> Assignment:
            config = TrialConfig.from_mapping(
                {**plain, "epochs": 1, "batch_size": 1024, "number": number}
            )
            place, digest = (
                str(Path(folder) / str(number)),
                trial_data(config, torch.device("cpu")).prepared.digest,
            )
            return Assignment(
                "a", place, 1, config.to_mapping(), digest, 1e9, {"cpu": 1.0, "gpu": 0.0}
            )

        for number in range(options.trials):
            attempt = Attempt(assigned(number))
            while attempt.step().outcome is None:
                pass
    between = [after[0] - before[1] for before, after in itertools.pairwise(epochs[1:])]
    # In float32 a CPU needs none.
    predicted = [end - start for start, end in passes[1:-1]] or [0.0] * len(between)
    rest = [whole - part for whole, part in zip(between, predicted, strict=True)]
    for name, values in (("in all", between), ("float32 pass", predicted), ("the rest", rest)):
        print(f"{name:12} {statistics.median(values):.3f} (least {min(values):.3f})")


if __name__ == "__main__":
    main()
