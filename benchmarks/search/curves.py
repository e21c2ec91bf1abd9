"""Trainings by our Learner with random settings: made, stored and read. A training is
a line of gzipped JSON."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import optuna
import torch

from search_spaces import strict_yaml
from study.schema.reading import spec_from_mapping
from study.schema.spec import StudySpec
from trainables.config import TrialConfig
from trainables.files.atomic import write_whole
from trainables.loading.trial_data import trial_data
from trainables.training.learner import Diverged, Learner

FOLDER = Path(__file__).resolve().parent
FILE = FOLDER.parent / "results" / "search.jsonl.gz"
SETS, SCHEDULES = ("digits", "fashion", "cifar10"), ("cosine", "steps")
METRICS = ("accuracy", "nll", "brier", "ece")
REPEATS = 3  # trainings of a setting that is repeated, each by a seed of its own
FEW = 12  # settings of cross-entropy, of which only the optimizer's are searched
HEAD_START = 30  # settings of the cheap sets that are trained before the first of images


@dataclass(frozen=True)
class Training:
    """rows: METRICS after each epoch, fewer than the epochs if it diverged."""

    set: str
    schedule: str
    method: str
    setting: int  # its number within set, schedule and method; the published defaults come first
    seed: int
    params: dict[str, float]
    rows: list[list[float]]


def spec_of(name: str, schedule: str, data: Path = FOLDER) -> StudySpec:
    plain = strict_yaml.read(FOLDER / f"{name}.yaml")
    if "path" in plain["data"]:
        plain["data"]["path"] = str(data / plain["data"]["path"])
    return spec_from_mapping(
        {**plain, "optimizer": {**plain["optimizer"], "schedule": schedule}}, f"{name}.yaml"
    )


def settings(spec: StudySpec, label: str, count: int) -> list[dict[str, float]]:
    """The method's defaults, then random settings of its space; equal for both schedules."""
    space = spec.variant(label).space
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    for default in space.defaults:
        study.enqueue_trial(default)
    return [study.ask(space.distributions).params for _ in range(count)]


def plan(numbers: Sequence[int]) -> Iterator[tuple[str, int]]:
    """(set, setting) in the order of recording, in which any cut leaves balanced pools.
    numbers: settings of SETS."""
    for step in range(max(numbers) + HEAD_START):
        for name, count in zip(SETS, numbers, strict=True):
            number = step - HEAD_START if name == "cifar10" else step
            if 0 <= number < count:
                yield name, number


def seeds_of(name: str, label: str, number: int) -> int:
    """How often a setting is trained: the first ones again, for the noise of training."""
    if label == "cross_entropy" and number >= FEW:
        return 0
    return REPEATS if number < 6 and (name == "digits" or number % 3 == 0) else 1


def train(spec: StudySpec, label: str, params: dict[str, float], number: int) -> list[list[float]]:
    config = TrialConfig.from_mapping({**spec.trial_mapping(label), "number": number}, params)
    device = torch.device("cpu")
    learner = Learner(config, trial_data(config, device), device)
    with contextlib.suppress(Diverged):
        while not learner.finished:
            learner.train_epoch()
    return [[round(row[name], 5) for name in METRICS] for row in learner.history]


def record(data: Path, file: Path, numbers: Sequence[int]) -> None:
    """Train what the file lacks; it is rewritten after each setting of a set."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    found = read(file) if file.exists() else []
    done = {(one.set, one.schedule, one.method, one.setting, one.seed) for one in found}
    specs = {
        (name, schedule): spec_of(name, schedule, data) for name in SETS for schedule in SCHEDULES
    }
    chosen = {
        (*key, variant.label): settings(spec, variant.label, max(numbers))
        for key, spec in specs.items()
        for variant in spec.variants
    }
    for name, number in plan(numbers):
        before = len(found)
        for schedule in SCHEDULES:
            for variant in (spec := specs[name, schedule]).variants:
                for seed in range(seeds_of(name, variant.label, number)):
                    key = (name, schedule, variant.label, number, seed)
                    if key not in done:
                        params = chosen[name, schedule, variant.label][number]
                        found.append(
                            Training(
                                *key,
                                params,
                                train(spec, variant.label, params, 1000 * seed + number),
                            )
                        )
        if len(found) > before:
            write(found, file)
            print(name, number, len(found), flush=True)


def write(trainings: Sequence[Training], file: Path) -> None:
    ordered = sorted(
        trainings, key=lambda one: (one.set, one.schedule, one.method, one.setting, one.seed)
    )
    text = "".join(json.dumps(asdict(one), separators=(",", ":")) + "\n" for one in ordered)
    content = io.BytesIO()
    with gzip.GzipFile(fileobj=content, mode="wb", mtime=0) as packed:
        packed.write(text.encode())
    write_whole(file, content.getvalue())


def read(file: Path = FILE) -> list[Training]:
    with gzip.open(file, "rt") as lines:
        return [Training(**json.loads(line)) for line in lines]
