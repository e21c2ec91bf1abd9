"""What reading a study costs: the paired bootstrap, beside a loop over resamples; the front
of many trials; the page.

    python -m benchmarks.experiments.analysis  # some minutes; prints a table

The loop does what one writes first: for each resample take its rows and call the metrics on them.
It is timed on a few resamples of a few trials and multiplied up. Both start from logits [N, K] in
memory; ours shares the trials out among the cores. The page is of a study on disk whose trials were
never trained: `calstudy report` as a command.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from optuna.samplers import RandomSampler

from benchmarks.experiments.populations import drawn_labels, evidence, softmax
from search_spaces import strict_yaml
from study.analysis.pareto import front
from study.engine.proposing import propose
from study.schema.objective import Objective, plain_name
from study.schema.reading import spec_from_mapping
from study.store.ledger import Ledger, open_storage
from study.store.trials import TrialRecord, trial_directory
from study.uncertainty.bootstrap import measured
from study.uncertainty.intervals import intervals
from study.uncertainty.resampling import Draws
from trainables import metrics
from trainables.files.digest import file_digest
from trainables.machine import in_threads
from trainables.outputs.attempts import attempt_directory
from trainables.outputs.outcome import Outcome
from trainables.outputs.predictions import Predictions

METRICS = ("accuracy", "nll", "ece", "classwise_ece")
AFTER = tuple(f"ts_{name}" for name in METRICS)
LOOPED_TRIALS, LOOPED_RESAMPLES = 2, 20


def seconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def trials(count: int, samples: int) -> list[Predictions]:
    """Of one evidence, each through noise of its own; accuracy about .85, over-confident."""
    source = np.random.default_rng(0)
    base = evidence(14.0, samples, source)
    labels = torch.from_numpy(drawn_labels(softmax(base / 1.5), source))
    noisy = (base + source.normal(size=base.shape) for _ in range(count))
    return [Predictions(torch.from_numpy(logits.astype(np.float32)), labels) for logits in noisy]


def bootstrap(found: list[Predictions], resamples: int, wanted: tuple[str, ...]) -> None:
    draws = Draws.of(len(found[0].labels), resamples, 0)
    plain = {plain_name(name) for name in wanted}
    in_threads(
        lambda one: [
            intervals(part, wanted=plain) for part in measured(one, draws, wanted).values()
        ],
        found,
    )


def loop(found: list[Predictions], resamples: int) -> None:
    source = np.random.default_rng(0)
    for _ in range(resamples):
        rows = torch.from_numpy(source.integers(len(found[0].labels), size=len(found[0].labels)))
        for predictions in found:
            logits, labels = predictions.logits[rows], predictions.labels[rows]
            for name in METRICS:
                float(metrics.find(name)(logits, labels))


def front_seconds(count: int) -> float:
    source = random.Random(0)
    objectives = Objective("accuracy", "maximize"), Objective("ece", "minimize")
    records = [
        TrialRecord(
            "focal", number, "complete", {}, {"accuracy": source.random(), "ece": source.random()}
        )
        for number in range(count)
    ]
    return seconds(lambda: front(records, objectives))


def stored_study(root: Path, found: list[Predictions]) -> None:
    """ROOT/page: the predictions as trials of five methods, with a learning curve each."""
    methods = ["cross_entropy", "focal", "label_smoothing", "mbls", "mixup"]
    plain = {
        "name": "page",
        "data": "digits",
        "model": "mlp",
        "methods": methods,
        "trials": len(found) // len(methods),
    }
    spec, directory = spec_from_mapping(plain, "page.yaml"), root / "page"
    directory.mkdir()
    sizes = {"train": 9000, "validation": len(found[0].labels), "test": 0}
    recorded = {
        "id": "page",
        "created": "2026-11-25T00:00:00+00:00",
        "data_digest": "none",
        "classes": [str(k) for k in range(10)],
        "sizes": sizes,
        "serves": "raw",
        "temperature_fit": "temperature",
        "majority": 0.1,
        "versions": {},
    }
    strict = {**spec.to_mapping(), "recorded": {**recorded, "meaning": spec.meaning()}}
    (directory / "study.yaml").write_text(strict_yaml.dump(strict))
    ledger = Ledger(open_storage(directory, None), "page", "page")
    curve = [
        {"epoch": epoch, "accuracy": 0.8, "ece": 0.1, "seconds": 1.0} for epoch in range(1, 21)
    ]
    for place, predictions in enumerate(found):
        variant = spec.variants[place % len(spec.variants)]
        if place < len(spec.variants):
            ledger.open(variant.label, spec.objectives)
        space, draw = variant.space.distributions, RandomSampler(seed=place)
        number = ledger.add(variant.label, propose([], spec.objectives, space, draw), space).number
        attempt = ledger.begin_attempt(variant.label, number)
        files = attempt_directory(trial_directory(directory, variant.label, number), attempt)
        files.mkdir(parents=True)
        predictions.save(files / "predictions.npz")
        (files / "history.json").write_text(json.dumps(curve))
        digests = {file.name: file_digest(file) for file in files.iterdir()}
        told = Outcome(
            state="complete",
            attempt=attempt,
            epoch=20,
            samples=180_000,
            seconds=20.0,
            digests=digests,
            metrics=predictions.evaluate(),
        )
        ledger.tell(variant.label, number, told, spec.objectives)


def page(count: int, samples: int) -> str:
    """A row of the table: what `calstudy report` of so many trials takes, and what it writes."""
    with tempfile.TemporaryDirectory() as root:
        stored_study(Path(root), trials(count, samples))
        calstudy = str(Path(sys.executable).with_name("calstudy"))
        words = [calstudy, "report", "page", "--storage", root]
        took = seconds(lambda: subprocess.run(words, check=True, stdout=subprocess.DEVNULL))
        megabytes = (Path(root) / "page" / "report.html").stat().st_size / 1e6
    return f"| `report` of {count} trials x {samples:,} x 10, {megabytes:.1f} MB | {took:.1f} | | |"


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("--trials", type=int, default=60)
    words.add_argument("--samples", type=int, default=5000)
    words.add_argument("--resamples", type=int, default=1000)
    words.add_argument("--page-trials", type=int, default=300)
    given = words.parse_args()
    found = trials(given.trials, given.samples)
    short = found[:LOOPED_TRIALS]
    loop(short, 1)  # imports
    scale = given.trials * given.resamples / (len(short) * LOOPED_RESAMPLES)
    looped = seconds(lambda: loop(short, LOOPED_RESAMPLES)) * scale
    work = f"{given.resamples:,} resamples, {given.trials} trials x {given.samples:,} x 10"
    print("| what | s | the loop, s | ratio |\n|---|---|---|---|")
    ours = seconds(lambda: bootstrap(found, given.resamples, METRICS))
    print(
        f"| {', '.join(METRICS)}: {work} | {ours:.1f} | {looped:.0f} | {looped / ours:.0f}x |",
        flush=True,
    )
    after = seconds(lambda: bootstrap(found, given.resamples, AFTER))
    print(
        f"| the same after temperatures refitted in each resample | {after:.1f} | | |", flush=True
    )
    print(f"| front of 10,000 trials | {front_seconds(10_000):.2f} | | |", flush=True)
    for samples in (1000, given.samples):
        print(page(given.page_trials, samples), flush=True)


if __name__ == "__main__":
    main()
