"""What the engine costs: the same short focal trials on digits by calstudy, Optuna and
Ray Tune, each logging every epoch to MLflow.

    python benchmarks/overhead.py  # 120 trials, 20 of `ray`; a table for results/overhead.md
    python benchmarks/overhead.py --trials 40 --only calstudy,ray-reused --rounds 3

All train with our Learner (MLP 64-128-10, 20 epochs, batch 64), so that only
what is around it differs:
- calstudy: `calstudy run`, ledger and MLflow on, everything a study keeps is kept; it may train
  several trials at once in one process, as it does by default (`stack: auto`);
- calstudy-alone: the same with `stack: "off"`;
- optuna: two processes, `study.optimize` with the same multivariate TPE on one journal file, and
  MLflow's client: a run for each trial, a row for each epoch;
- ray-reused: a class trainable whose process is used again (`reuse_actors`), OptunaSearch,
  MLflowLoggerCallback: Ray Tune as calstudy uses it, with nothing of what calstudy adds. Its own
  loggers, snapshots of the experiment and table are off, as calstudy has them;
- ray: the same with a function trainable, as Ray's documentation has it: a process, and torch's
  import, for each trial.
Seconds are from the first trial's first moment of training to the last one's end; start-up is what
comes before. CPU is of the same time, by process: the driver (of `optuna` there is none), the
processes that train, and Ray's own.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from bisect import bisect_left
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import psutil

HERE = Path(__file__).resolve().parent
SPEC = {
    "name": "overhead",
    "data": "digits",
    "model": {"name": "mlp", "width": 128, "depth": 1},
    "methods": ["focal"],
    "search_space": {"optimizer.lr": {"low": 0.01, "high": 0.5, "log": True}},
    "epochs": 20,
    "batch_size": 64,
}
EVERY = 0.2  # seconds between two looks at the processes
TRIES = 6  # to start Ray, as `calstudy run` has them: a busy machine may fail one


def preload() -> None:
    """Import torch, map the data, one batch: everything that is paid once a process."""
    learner(2.0, 0.1).train_epoch()


def learner(gamma: float, lr: float) -> Any:
    """The learner of one trial."""
    import torch

    from trainables.config import TrialConfig
    from trainables.loading.trial_data import trial_data
    from trainables.training.learner import Learner

    torch.set_num_threads(1)
    plain = {key: SPEC[key] for key in ("data", "model", "epochs", "batch_size")}
    values = {"method.gamma": gamma, "optimizer.lr": lr}
    config = TrialConfig.from_mapping({**plain, "method": "focal"}, values)
    device = torch.device("cpu")
    return Learner(config, trial_data(config, device), device)


def row_of(trial: Any) -> dict[str, float]:
    """The next epoch of a trial without an engine: accuracy and ECE on the validation split."""
    found = trial.train_epoch()
    return {name: found[name] for name in ("accuracy", "ece")}


# ---- the engines, each in its own process; each prints {"first", "last"} as seconds since 1970


def by_calstudy(trials: int, directory: Path, **keys: Any) -> tuple[float, float]:
    import yaml

    from study.cli import main
    from study.store.study import open_study

    spec = directory / "overhead.yaml"
    spec.write_text(yaml.safe_dump({**SPEC, **keys, "trials": trials}))
    try:
        main(["run", str(spec), "--storage", str(directory)])
    except SystemExit as done:
        assert not done.code, f"calstudy run ended with {done.code}"
    study = open_study("overhead", str(directory))
    records = study.records().of("focal")
    assert len(records) == trials and all(record.state == "complete" for record in records)
    histories = [
        json.loads((study.files(record) / "history.json").read_text()) for record in records
    ]
    return min(rows[0]["time"] - rows[0]["seconds"] for rows in histories), max(
        record.ended or 0 for record in records
    )


def by_optuna(trials: int, directory: Path) -> tuple[float, float]:
    import optuna
    from mlflow import MlflowClient

    study = optuna.create_study(
        storage=_journal(directory), study_name="overhead", directions=["maximize", "minimize"]
    )
    MlflowClient(_mlflow(directory)).create_experiment("overhead")
    command = [sys.executable, __file__, "--engine", "optuna-worker", "--trials", str(trials)]
    command += ["--directory", str(directory)]
    workers = [subprocess.Popen([*command, "--half", str(half)]) for half in (0, 1)]
    assert [worker.wait() for worker in workers] == [0, 0]
    found = study.trials
    assert len(found) == trials
    return (
        min(trial.datetime_start.timestamp() for trial in found if trial.datetime_start),
        max(trial.datetime_complete.timestamp() for trial in found if trial.datetime_complete),
    )


def optuna_worker(trials: int, directory: Path, half: int) -> None:
    import optuna
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Param

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler = optuna.samplers.TPESampler(seed=half, multivariate=True, n_startup_trials=4)
    study = optuna.load_study(storage=_journal(directory), study_name="overhead", sampler=sampler)
    client = MlflowClient(_mlflow(directory))
    experiment = client.get_experiment_by_name("overhead").experiment_id

    def objective(trial: Any) -> tuple[float, float]:
        trial.suggest_float("gamma", 0, 5)
        trial.suggest_float("lr", 0.01, 0.5, log=True)
        run = client.create_run(experiment, run_name=f"{trial.number:04}").info.run_id
        params = [Param(name, str(value)) for name, value in trial.params.items()]
        client.log_batch(run, params=params)
        trained = learner(**trial.params)
        while not trained.finished:
            row = row_of(trained)
            now = int(1000 * time.time())
            metrics = [Metric(name, value, now, trained.epoch) for name, value in row.items()]
            client.log_batch(run, metrics)
        client.set_terminated(run)
        return row["accuracy"], row["ece"]

    preload()  # torch and the data are start-up, as they are for calstudy's workers
    study.optimize(objective, n_trials=trials // 2 + (trials % 2 if half else 0))


def _journal(directory: Path) -> Any:
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    return JournalStorage(JournalFileBackend(str(directory / "optuna.log")))


def _mlflow(directory: Path) -> str:
    return f"sqlite:///{directory / 'mlflow.db'}"


def by_ray(trials: int, directory: Path, reused: bool = False) -> tuple[float, float]:
    """reused: a class trainable, whose actor trains one trial after another."""
    os.environ |= {
        "RAY_USAGE_STATS_ENABLED": "0",
        "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # CSV, JSON and TensorBoard
        "TUNE_GLOBAL_CHECKPOINT_S": "86400",
    }
    from ray import tune
    from ray.air.integrations.mlflow import MLflowLoggerCallback
    from ray.tune.search.optuna import OptunaSearch

    class Trial(tune.Trainable):
        def setup(self, config: dict[str, float]) -> None:
            preload()  # start-up, as it is for calstudy's workers
            self.reset_config(config)

        def reset_config(self, new_config: dict[str, float]) -> bool:
            self.started, self.trial = time.time(), learner(**new_config)
            return True

        def step(self) -> dict[str, Any]:
            row = row_of(self.trial)
            times = {"started": self.started, "ended": time.time()}
            return {**row, **times, "done": self.trial.finished}

    def train(config: dict[str, float]) -> None:
        started, trial = time.time(), learner(**config)
        while not trial.finished:
            row = row_of(trial)
            tune.report({**row, "started": started, "ended": time.time()})

    ray = _ray_started()
    space = {"gamma": tune.uniform(0, 5), "lr": tune.loguniform(0.01, 0.5)}
    results = tune.Tuner(
        Trial if reused else train,
        param_space=space,
        tune_config=tune.TuneConfig(
            search_alg=OptunaSearch(metric=["accuracy", "ece"], mode=["max", "min"]),
            num_samples=trials,
            reuse_actors=reused,
        ),
        run_config=tune.RunConfig(
            name="overhead",
            storage_path=str(directory / "ray"),
            verbose=0,
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False) if reused else None,
            callbacks=[MLflowLoggerCallback(_mlflow(directory), experiment_name="overhead")],
        ),
    ).fit()
    ray.shutdown()
    metrics = [result.metrics for result in results if result.metrics]
    assert len(metrics) == trials
    return min(row["started"] for row in metrics), max(row["ended"] for row in metrics)


def _ray_started() -> Any:
    import ray

    for last in range(TRIES):
        try:
            ray.init(address="local", include_dashboard=False, log_to_driver=False)
            return ray
        except Exception:  # Ray has many; the last try's is raised
            if last == TRIES - 1:
                raise
            ray.shutdown()
    raise AssertionError


ENGINES = {
    "calstudy": by_calstudy,
    "calstudy-alone": partial(by_calstudy, stack="off"),
    "ray-reused": partial(by_ray, reused=True),
    "optuna": by_optuna,
    "ray": by_ray,
}


class Spent(NamedTuple):
    """CPU seconds of an engine's processes until a moment."""

    time: float
    driver: float
    training: float
    ray: float


def measure(engine: str, trials: int) -> dict[str, float]:
    """Run one engine in a fresh process and a fresh folder."""
    with tempfile.TemporaryDirectory(prefix=f"overhead-{engine}-") as directory:
        started, result = time.time(), Path(directory) / "result.json"
        command = [sys.executable, __file__, "--engine", engine, "--trials", str(trials)]
        process = subprocess.Popen(
            [*command, "--directory", directory],
            stdout=subprocess.DEVNULL,
            env={**os.environ, "PYTHONWARNINGS": "ignore"},
        )
        spent = watched(process)
        assert process.returncode == 0, f"{engine} ended with {process.returncode}"
        whole = time.time() - started
        found = json.loads(result.read_text())
    seconds = found["last"] - found["first"]
    before, after = (at(spent, found[moment]) for moment in ("first", "last"))
    cpu = {
        name: (getattr(after, name) - getattr(before, name)) / trials
        for name in ("driver", "training", "ray")
    }
    return {
        "trials": trials,
        "start_up": found["first"] - started,
        "seconds": seconds,
        "after": whole - (found["last"] - started),
        "per_trial": seconds / trials,
        **cpu,
    }


def watched(process: subprocess.Popen[bytes]) -> list[Spent]:
    """What it and its descendants have spent, until it ends. Of one that ends, what its last look
    saw."""
    engine, found = psutil.Process(process.pid), []
    seconds: dict[int, tuple[str, float]] = {}
    while process.poll() is None:
        with contextlib.suppress(psutil.NoSuchProcess):
            for one in (engine, *engine.children(recursive=True)):
                with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
                    used = one.cpu_times()
                    seconds[one.pid] = (part_of(one, engine), used.user + used.system)
        parts = {
            part: sum(used for name, used in seconds.values() if name == part)
            for part in ("driver", "training", "ray")
        }
        found.append(Spent(time.time(), **parts))
        time.sleep(EVERY)
    return found


def part_of(process: psutil.Process, engine: psutil.Process) -> str:
    if process.pid == engine.pid:
        return "driver"
    words = " ".join(process.cmdline())
    trains = "optuna-worker" in words or (words.startswith("ray::") and "Agent" not in words)
    return "training" if trains else "ray"


def at(spent: list[Spent], moment: float) -> Spent:
    """What was spent until the moment, by the first look after it."""
    return spent[min(bisect_left([one.time for one in spent], moment), len(spent) - 1)]


def table(found: dict[str, list[dict[str, float]]]) -> str:
    """A Markdown table of the rounds' medians; ratios are of trials a second, in the same round,
    relative to each of the other engines."""
    bases = [engine for engine in found if not engine.startswith("calstudy")]
    over = "".join(f" over {base} |" for base in bases)
    lines = [
        "| engine | trials | start-up s | s a trial | CPU ms a trial: driver | training"
        f" | Ray's own | after s |{over}",
        "|" + "---|" * (8 + len(bases)),
    ]
    for engine, rows in found.items():

        def median(of: Callable[[dict[str, float]], float], rows: Any = rows) -> float:
            return statistics.median(of(row) for row in rows)

        cpu = [median(lambda row, name=name: 1000 * row[name]) for name in ("driver", "training")]
        ratios = "".join(
            f" {statistics.median(_ratios(found[base], rows)):.2f}x |" for base in bases
        )
        lines.append(
            f"| {engine} | {rows[0]['trials']:.0f} | {median(lambda row: row['start_up']):.1f}"
            f" | {median(lambda row: row['per_trial']):.3f} | {cpu[0]:.0f} | {cpu[1]:.0f}"
            f" | {median(lambda row: 1000 * row['ray']):.0f}"
            f" | {median(lambda row: row['after']):.1f} |{ratios}"
        )
    return "\n".join(lines)


def _ratios(base: list[dict[str, float]], rows: list[dict[str, float]]) -> list[float]:
    return [one["per_trial"] / row["per_trial"] for one, row in zip(base, rows, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=120)
    parser.add_argument("--rounds", type=int, default=1, help="each engine so often, in turn")
    parser.add_argument(
        "--ray-trials", type=int, default=20, help="of `ray`, which takes seconds for each"
    )
    parser.add_argument(
        "--only", default=",".join(ENGINES), help="engines, separated by commas; default: all"
    )
    parser.add_argument("--engine", choices=[*ENGINES, "optuna-worker"], help=argparse.SUPPRESS)
    parser.add_argument("--directory", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--half", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.engine == "optuna-worker":
        optuna_worker(options.trials, options.directory, options.half)
    elif options.engine:
        first, last = ENGINES[options.engine](options.trials, options.directory)
        (options.directory / "result.json").write_text(json.dumps({"first": first, "last": last}))
    else:
        found: dict[str, list[dict[str, float]]] = {}
        for _ in range(options.rounds):
            for engine in options.only.split(","):
                trials = options.ray_trials if engine == "ray" else options.trials
                found.setdefault(engine, []).append(measure(engine, trials))
        print(table(found))


if __name__ == "__main__":
    main()
