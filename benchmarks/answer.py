"""How far the model that a study ships is from the best that it trained, by
the former rule and by today's.

    python -m benchmarks.answer fashion-mnist.parquet DIRECTORY  # 20 minutes on two cores

Twenty searches of 40 trials on Fashion-MNIST, each with its own images, weights and
proposals: 3,000 images to train on, 500 to validate. A rule sees validation alone. What it
ships is measured on 20,000 images outside the study. The regret is its distance there from
the best of the search's trials, in each metric on its own and with a temperature or as
trained. All rules select from the same stored trials, so their differences are paired: mean
over searches and 95% t interval. Finished searches are not repeated.
"""

from __future__ import annotations

import argparse
import io
import math
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
import yaml
from PIL import Image
from scipy.special import stdtrit

from study.analysis.pareto import front, knee
from study.answer.choice import choose
from study.answer.confirmation import Results
from study.schema.objective import RAW, TEMPERATURE
from study.store.files import stored_classifier
from study.store.study import StudyFolder, open_directory
from study.store.trials import TrialRecord
from trainables import metrics
from trainables.loading.cache import prepare
from trainables.outputs.classifier import batches

SEARCHES, FRESH = 20, 20_000
# A data set needs a test split; this one stays sealed.
PER_CLASS = {"train": 300, "validation": 50, "test": 1}
MEASURED = ("accuracy", "nll", "ece")
SERVED = (RAW, TEMPERATURE)

# Methods, network and ranges of study/specs/digits.yaml when this was measured;
# a third of its trials.
SPEC = """
data: {name: parquet, augment: none}
model: mlp
methods:
  - cross_entropy
  - focal
  - label_smoothing
  - mbls
  - {label: sece_on_focal, name: sece, base: {name: focal, gamma: 3.0}}
optimizer: {name: sgd, lr: 0.1, momentum: 0.9, weight_decay: 5.0e-4, schedule: cosine}
batch_size: 64
epochs: 20
objectives:
  - {metric: accuracy, direction: maximize}
  - {metric: ece, direction: minimize}
search_space:
  optimizer.lr: {low: 0.01, high: 0.5, log: true}
sampler: {name: tpe}
trials: 8
resources: {cpu: 1, gpu: 0}
keep_models: all
"""


# ---- the searches --------------------------------------------------------------------------------


def drawn(labels: np.ndarray, seed: int) -> dict[str, np.ndarray]:
    """Row numbers of each split, stratified, and of the fresh sample: FRESH of the others."""
    source = np.random.default_rng(seed)
    order = source.permutation(len(labels))
    ends = np.cumsum(list(PER_CLASS.values()))
    of_class = [order[labels[order] == label] for label in np.unique(labels)]
    parts = zip(*(np.split(rows[: ends[-1]], ends[:-1]) for rows in of_class), strict=True)
    found = {
        name: np.sort(np.concatenate(rows)) for name, rows in zip(PER_CLASS, parts, strict=True)
    }
    rest = source.permutation(np.setdiff1d(order, np.concatenate(list(found.values()))))
    return found | {"fresh": np.sort(rest[:FRESH])}


def searched(table: pa.Table, seed: int, directory: Path) -> StudyFolder:
    """The search with that seed, run or resumed if it is not finished."""
    name = f"answer_{seed:02}"
    if not (directory / name / "study.yaml").exists():
        rows, data = (
            drawn(table["label"].to_numpy(), seed),
            (directory / f"{name}.parquet").absolute(),
        )
        part = table.select(["label", "image"]).take(
            np.concatenate([rows[split] for split in PER_CLASS])
        )
        splits = pa.array([split for split in PER_CLASS for _ in rows[split]])
        pq.write_table(part.append_column("split", splits), data)
        spec = {"name": name, "seed": seed} | yaml.safe_load(SPEC)
        spec["data"]["path"], spec["sampler"]["seed"] = str(data), seed
        (directory / f"{name}.yaml").write_text(yaml.safe_dump(spec, sort_keys=False))
    study = (
        open_directory(directory / name, name)
        if (directory / name / "study.yaml").exists()
        else None
    )
    if study is None or study.lacking(study.records()):
        run = [
            sys.executable,
            "-m",
            "study.cli",
            "run",
            str(directory / f"{name}.yaml"),
            "--storage",
            str(directory),
        ]
        subprocess.run(run, check=True, stdout=sys.stderr)
    return open_directory(directory / name, name)


# ---- the rules -----------------------------------------------------------------------------------


class Shipped(NamedTuple):
    """What a rule takes: a trial, and whether its model is served as trained
    or with a temperature."""

    record: TrialRecord
    served: str


def former(study: StudyFolder) -> Shipped:
    """The knee of accuracy and ECE before the temperature, of all complete trials; then
    the temperature was added."""
    found = knee(front(study.records(), study.objectives), study.objectives)
    assert found is not None
    return Shipped(found, TEMPERATURE)


def todays(study: StudyFolder, serve: str, rule: str | None = None) -> Shipped:
    """What `choose` takes before a confirmation, under a constraint on accuracy. rule: None
    is that of the answer."""
    plain = study.plain | {"serve": serve, "constraints": ["accuracy >= best - 0.02"]}
    found = Results(replace(study, plain=plain), study.records())
    return Shipped(choose(found, rule).record, serve)


FORMER = "former: the knee of all trials, with a temperature"
RULES: dict[str, Callable[[StudyFolder], Shipped]] = {
    FORMER: former,
    "the same trials as trained": lambda study: former(study)._replace(served=RAW),
    "today's knee, `serve: raw`": lambda study: todays(study, RAW, "knee"),
    "today's knee, `serve: temperature`": lambda study: todays(study, TEMPERATURE, "knee"),
    "the answer, `serve: raw`": lambda study: todays(study, RAW),
    "the answer, `serve: temperature`": lambda study: todays(study, TEMPERATURE),
}


# ---- the regret ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fresh:
    """Every complete trial of a search, measured on its fresh sample."""

    names: list[str]
    values: np.ndarray  # [trials, SERVED, MEASURED]

    def values_of(self, name: str, served: str) -> np.ndarray:
        """[MEASURED]"""
        found: np.ndarray = self.values[self.names.index(name), SERVED.index(served)]
        return found

    def regret(self, name: str, served: str) -> np.ndarray:
        """[MEASURED]: the distance from the best of all trials, served in either way."""
        signs = np.array([metrics.describe(metric).sign for metric in MEASURED])
        found: np.ndarray = signs * self.values_of(name, served) - (signs * self.values).min(
            axis=(0, 1)
        )
        return found


def measured(logits: torch.Tensor, labels: torch.Tensor, temperature: float) -> list[list[float]]:
    """[SERVED, MEASURED]"""
    ways = (logits, logits.double() / temperature)
    return [[float(metrics.find(name)(scores, labels)) for name in MEASURED] for scores in ways]


def fresh(study: StudyFolder, table: pa.Table, cache: Path) -> Fresh:
    """The stored models on the fresh sample, with the temperature that `export` gives
    them; logits are cached."""
    records = study.records().complete
    names = [record.name for record in records]
    if not cache.exists():
        part = table.take(drawn(table["label"].to_numpy(), study.spec.seed)["fresh"])
        images = np.stack(
            [np.asarray(Image.open(io.BytesIO(png))) for png in part["image"].to_pylist()]
        )
        prepared = prepare(study.spec.data, study.spec.seed)
        found = [stored_classifier(study, record, prepared) for record in records]
        with torch.inference_mode():
            pixels = torch.from_numpy(images)[:, None]
            logits = [
                torch.cat([model.logits(batch) for batch in batches(pixels)]).numpy()
                for model, _ in found
            ]
        temperatures = [temperature for _, temperature in found]
        np.savez(
            cache,
            names=names,
            logits=np.stack(logits),
            temperatures=temperatures,
            labels=part["label"].to_numpy(),
        )
    with np.load(cache, allow_pickle=False) as stored:
        assert names == stored["names"].tolist(), f"{cache} is of other trials; remove it"
        labels = torch.from_numpy(stored["labels"].astype(np.int64))
        each = zip(torch.from_numpy(stored["logits"]), stored["temperatures"], strict=True)
        return Fresh(
            names, np.array([measured(logits, labels, temperature) for logits, temperature in each])
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "parquet", type=Path, help="Fashion-MNIST: columns label and image (encoded)"
    )
    parser.add_argument("directory", type=Path, help="of the studies")
    parser.add_argument("--searches", type=int, default=SEARCHES)
    parser.add_argument("--first", type=int, default=0, help="the seed of the first search")
    asked = parser.parse_args()
    asked.directory.mkdir(parents=True, exist_ok=True)
    table = pq.read_table(asked.parquet)
    found: dict[str, list[np.ndarray]] = {name: [] for name in RULES}
    for seed in range(asked.first, asked.first + asked.searches):
        study = searched(table, seed, asked.directory)
        sample = fresh(study, table, asked.directory / f"{study.name}_fresh.npz")
        for name, rule in RULES.items():
            record, served = rule(study)
            found[name].append(
                np.stack(
                    [sample.values_of(record.name, served), sample.regret(record.name, served)]
                )
            )
    print(
        f"| rule | {' | '.join(f'{name} (regret) | regret less the former' for name in MEASURED)} |"
    )
    print("|" + "---|" * (1 + 2 * len(MEASURED)))
    former_one = np.array(found[FORMER])
    for name, values in found.items():
        print(
            f"| {name} |"
            f" {' | '.join(cells(np.array(values), None if name == FORMER else former_one))} |"
        )


def interval(values: list[float]) -> str:
    reach = (
        float(stdtrit(len(values) - 1, 0.975)) * statistics.stdev(values) / math.sqrt(len(values))
    )
    mean = statistics.fmean(values)
    return f"{mean:+.4f} ({mean - reach:+.4f} to {mean + reach:+.4f})"


def cells(own: np.ndarray, before: np.ndarray | None) -> list[str]:
    """own, before: [searches, (value, regret), MEASURED]; the mean of each, and the paired
    difference of regrets."""
    texts = []
    for k in range(len(MEASURED)):
        value, regret = own[:, :, k].mean(axis=0)
        moved = "" if before is None else interval((own - before)[:, 1, k].tolist())
        texts += [f"{value:.4f} ({regret:.4f})", moved]
    return texts


if __name__ == "__main__":
    main()
