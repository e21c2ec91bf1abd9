"""Pools of recorded trials whose truth is known.

    python -m benchmarks.experiments.pools record DATA POOLS  # 25 CPU minutes

A pool is 300 trials of one data set: six methods, their published defaults and random settings
of their search spaces, all trained on the same fifth of the data or less. Each trial keeps its
logits on the rest. A study is then a draw: some of the trials, and some of the rest as their
validation split; what is left, two thirds of the data or more, is the truth.
"""

from __future__ import annotations

import argparse
import contextlib
import io
from pathlib import Path
from typing import NamedTuple

import numpy as np
import optuna
import pyarrow as pa
import pyarrow.parquet as pq
import torch
import yaml
from PIL import Image

from benchmarks.search.curves import settings
from study.schema.reading import spec_from_mapping
from study.schema.spec import StudySpec
from trainables.config import TrialConfig
from trainables.data.digits import Digits
from trainables.loading.trial_data import trial_data
from trainables.training.learner import Diverged, Learner

SETTINGS = 50  # of each method
LOOKED_AT = 100  # images that the Learner measures after each epoch


class Pool(NamedTuple):
    """model, epochs: as in a spec. total: samples used; trained: those of them to train on."""

    model: str | dict[str, object]
    total: int
    trained: int
    epochs: int
    validation: int  # size of a study's validation split
    file: str = ""
    data: str = "parquet"  # the data source, by its name in a spec


# Of those that no rule was tuned on: FRESH.
POOLS = {
    "digits": Pool("mlp", 1797, 299, 20, 300),
    "fashion": Pool("mlp", 15_000, 3000, 15, 500, "fashion-mnist.parquet"),
    "cifar10": Pool({"name": "cnn", "width": 8}, 15_000, 3000, 10, 500, "cifar10-images.parquet"),
    "newsgroups": Pool(
        {"name": "mlp", "width": 256}, 9_000, 3000, 15, 500, "newsgroups.npz", "table"
    ),
    "trec": Pool("bag_of_words", 5_952, 1500, 15, 300, "text-small.parquet", "text"),
    "sst2": Pool("bag_of_words", 9_613, 2000, 15, 500, "text-small.parquet", "text"),
}
FRESH = ("newsgroups", "trec", "sst2")

# Methods and ranges of study/specs/digits.yaml, and mixup.
SPEC = """
methods:
  - cross_entropy
  - focal
  - label_smoothing
  - mbls
  - {label: sece_on_focal, name: sece, base: {name: focal, gamma: 3.0}}
  - mixup
optimizer: {name: sgd, lr: 0.1, momentum: 0.9, weight_decay: 5.0e-4, schedule: cosine}
batch_size: 64
search_space:
  optimizer.lr: {low: 0.01, high: 0.5, log: true}
"""


# ---- recording -----------------------------------------------------------------------------------


def source(name: str, data: Path) -> tuple[np.ndarray, list[bytes] | list[str] | np.ndarray]:
    """Labels and samples: encoded images, texts, or rows of numbers. All of the source."""
    if name == "digits":
        raw = Digits().read().train
        return raw.labels, [_png(image[0] * 15) for image in raw.images]
    if name == "newsgroups":  # made as study/specs/race/newsgroups.yaml says
        stored = np.load(data / POOLS[name].file, allow_pickle=False)
        return stored["labels"], stored["features"]
    if name in ("trec", "sst2"):
        rows = pq.read_table(data / POOLS[name].file).to_pylist()
        texts = [(int(row["label"]), row["text"]) for row in rows if row["dataset"] == name]
        return np.array([label for label, _ in texts]), [text for _, text in texts]
    table = pq.read_table(data / POOLS[name].file, columns=["label", "image"])
    return table["label"].to_numpy().astype(np.int64), table["image"].to_pylist()


def _png(pixels: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def rows_of(labels: np.ndarray, pool: Pool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows to train on, the others of the pool, and one a class that no one uses; at random."""
    order = np.random.default_rng(0).permutation(len(labels))[: pool.total]
    sealed = np.array([order[labels[order] == label][-1] for label in np.unique(labels)])
    return order[: pool.trained], order[pool.trained :], sealed


def spec_of(name: str, data: Path, pools: Path) -> StudySpec:
    """The study whose validation split is all that is not trained on; its data are written
    first."""
    pool = POOLS[name]
    file = pools / f"{name}.{'npz' if pool.data == 'table' else 'parquet'}"
    if not file.exists():
        labels, samples = source(name, data)
        parts = dict(zip(("train", "validation", "test"), rows_of(labels, pool), strict=True))
        rows = np.concatenate(list(parts.values()))
        splits = [split for split, of in parts.items() for _ in of]
        kept = [samples[row] for row in rows]
        if pool.data == "table":
            np.savez(file, features=np.stack(kept), labels=labels[rows], splits=np.array(splits))
        else:
            column = {"text": "text", "parquet": "image"}[pool.data]
            columns = {"split": splits, "label": labels[rows], column: kept}
            pq.write_table(pa.table(columns), file)
    plain = {
        "name": f"pool_{name}",
        "data": {"name": pool.data, "path": str(file)},
        "model": pool.model,
    }
    given = yaml.safe_load(SPEC)
    if pool.data == "text":
        given["methods"].remove("mixup")  # it mixes pixels, not words
    return spec_from_mapping({**plain, **given, "epochs": pool.epochs}, name)


def record(name: str, data: Path, pools: Path) -> None:
    """Train what the pool lacks: a file for each trial, with its setting and
    its logits on the rest."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    spec = spec_of(name, data, pools)
    (pools / name).mkdir(exist_ok=True)
    chosen = {variant.label: settings(spec, variant.label, SETTINGS) for variant in spec.variants}
    for number in range(SETTINGS):
        for label, params in chosen.items():
            if not (file := pools / name / f"{label}_{number:02}.npz").exists():
                np.savez(
                    file,
                    **trained(spec, label, number, params[number]),
                    settings=str(params[number]),
                )


def trained(
    spec: StudySpec, label: str, number: int, params: dict[str, float]
) -> dict[str, np.ndarray]:
    """Logits and labels on the rest, empty if training diverged."""
    config = TrialConfig.from_mapping({**spec.trial_mapping(label), "number": number}, params)
    device = torch.device("cpu")
    data = trial_data(config, device)
    whole = data.validation
    try:
        data.validation = whole.subset(torch.arange(LOOKED_AT), "none")
        learner = Learner(config, data, device)
        with contextlib.suppress(Diverged):
            while not learner.finished:
                learner.train_epoch()
    finally:
        data.validation = whole
    if not learner.finished:
        return {"logits": np.empty((0, 0), np.float32), "labels": np.empty(0, np.int64)}
    found = learner.predict()
    return {"logits": found.logits.numpy(), "labels": found.labels.numpy()}


# ---- reading -------------------------------------------------------------------------------------


class Pool(NamedTuple):
    """logits: [trials, N, K] float32, of the trials that did not diverge; labels: [N]."""

    logits: np.ndarray
    labels: np.ndarray


def read(name: str, pools: Path) -> Pool:
    """The pool as far as it is recorded."""
    logits, labels = [], np.empty(0, np.int64)
    for file in sorted((pools / name).glob("*.npz")):
        with np.load(file, allow_pickle=False) as stored:
            if len(stored["labels"]):
                logits.append(stored["logits"])
                labels = stored["labels"]
    return Pool(np.stack(logits), labels)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.experiments.pools", description=__doc__
    )
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record", help="train what the pools lack")
    recording.add_argument("data", type=Path)
    recording.add_argument("pools", type=Path)
    recording.add_argument("--only", choices=POOLS, action="append")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    asked.pools.mkdir(parents=True, exist_ok=True)
    for name in asked.only or POOLS:
        record(name, asked.data, asked.pools.absolute())


if __name__ == "__main__":
    main()
