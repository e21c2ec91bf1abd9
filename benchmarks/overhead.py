"""What the engine costs: the same short focal trials on digits by calstudy, plain
Optuna and plain Ray Tune.

    python benchmarks/overhead.py  # 300 trials, 20 of `ray`; a table for results/overhead.md
    python benchmarks/overhead.py --trials 40 --ray-trials 6
    python benchmarks/overhead.py --trials 60 --only calstudy,ray-reused

All train with our Learner (MLP 64-128-10, 10 epochs, batch 64), so that only
what is around it differs:
- calstudy: `calstudy run`, ledger and MLflow on, everything a study keeps is kept;
- optuna: two processes, `study.optimize` with the same multivariate TPE on one SQLite
  file, nothing else kept;
- ray-reused: a class trainable whose process is used again (`reuse_actors`), OptunaSearch,
  MLflowLoggerCallback: Ray Tune as calstudy uses it, with nothing of what calstudy adds;
- ray: the same with a function trainable, as Ray's documentation has it: a process, and torch's
import, for each trial. Seconds are from the first trial's first moment of training to the last
one's end; start-up is what comes before.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SPEC = {
    "name": "overhead",
    "data": "digits",
    "model": {"name": "mlp", "width": 128, "depth": 1},
    "methods": ["focal"],
    "search_space": {"optimizer.lr": {"low": 0.01, "high": 0.5, "log": True}},
    "epochs": 10,
    "batch_size": 64,
}


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


def train(gamma: float, lr: float) -> tuple[float, float]:
    """One trial without an engine: accuracy and ECE on the validation split."""
    trial = learner(gamma, lr)
    while not trial.finished:
        row = trial.train_epoch()
    return row["accuracy"], row["ece"]


# ---- the engines, each in its own process; each prints {"first", "last"} as seconds since 1970


def by_calstudy(trials: int, directory: Path) -> tuple[float, float]:
    import yaml

    from study.cli import main
    from study.store.study import open_study

    spec = directory / "overhead.yaml"
    spec.write_text(yaml.safe_dump({**SPEC, "trials": trials}))
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
    url = f"sqlite:///{directory / 'optuna.db'}"
    import optuna

    optuna.create_study(storage=url, study_name="overhead", directions=["maximize", "minimize"])
    command = [sys.executable, __file__, "--engine", "optuna-worker", "--trials", str(trials)]
    command += ["--directory", str(directory)]
    workers = [subprocess.Popen([*command, "--half", str(half)]) for half in (0, 1)]
    assert [worker.wait() for worker in workers] == [0, 0]
    found = optuna.load_study(study_name="overhead", storage=url).trials
    assert len(found) == trials
    return (
        min(trial.datetime_start.timestamp() for trial in found),
        max(trial.datetime_complete.timestamp() for trial in found),
    )


def optuna_worker(trials: int, directory: Path, half: int) -> None:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler = optuna.samplers.TPESampler(seed=half, multivariate=True, n_startup_trials=4)
    url = f"sqlite:///{directory / 'optuna.db'}"
    study = optuna.load_study(study_name="overhead", storage=url, sampler=sampler)

    def objective(trial: Any) -> tuple[float, float]:
        return train(
            trial.suggest_float("gamma", 0, 5), trial.suggest_float("lr", 0.01, 0.5, log=True)
        )

    preload()  # torch and the data are start-up, as they are for calstudy's workers
    study.optimize(objective, n_trials=trials // 2 + (trials % 2 if half else 0))


def by_ray(trials: int, directory: Path, reused: bool = False) -> tuple[float, float]:
    """reused: a class trainable, whose actor trains one trial after another."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray
    from ray import tune
    from ray.air.integrations.mlflow import MLflowLoggerCallback
    from ray.tune.search.optuna import OptunaSearch

    def trained(config: dict[str, float]) -> dict[str, float]:
        started = time.time()
        accuracy, ece = train(config["gamma"], config["lr"])
        return {"accuracy": accuracy, "ece": ece, "started": started, "ended": time.time()}

    class Trial(tune.Trainable):
        def setup(self, config: dict[str, float]) -> None:
            preload()  # start-up, as it is for calstudy's workers

        def reset_config(self, new_config: dict[str, float]) -> bool:
            self.config = new_config
            return True

        def step(self) -> dict[str, Any]:
            return {**trained(self.config), "done": True}

    ray.init(address="local", include_dashboard=False, log_to_driver=False)
    space = {"gamma": tune.uniform(0, 5), "lr": tune.loguniform(0.01, 0.5)}
    results = tune.Tuner(
        Trial if reused else lambda config: tune.report(trained(config)),
        param_space=space,
        tune_config=tune.TuneConfig(
            search_alg=OptunaSearch(metric=["accuracy", "ece"], mode=["max", "min"]),
            num_samples=trials,
            reuse_actors=reused,
        ),
        run_config=tune.RunConfig(
            name="overhead",
            storage_path=str(directory / "ray"),
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False) if reused else None,
            callbacks=[
                MLflowLoggerCallback(
                    f"sqlite:///{directory / 'mlflow.db'}", experiment_name="overhead"
                )
            ],
        ),
    ).fit()
    ray.shutdown()
    metrics = [result.metrics for result in results if result.metrics]
    assert len(metrics) == trials
    return min(row["started"] for row in metrics), max(row["ended"] for row in metrics)


ENGINES = {
    "calstudy": by_calstudy,
    "ray-reused": partial(by_ray, reused=True),
    "optuna": by_optuna,
    "ray": by_ray,
}


def measure(engine: str, trials: int) -> dict[str, float]:
    """Run one engine in a fresh process and a fresh folder."""
    with tempfile.TemporaryDirectory(prefix=f"overhead-{engine}-") as directory:
        started, result = time.time(), Path(directory) / "result.json"
        command = [
            sys.executable,
            __file__,
            "--engine",
            engine,
            "--trials",
            str(trials),
            "--directory",
            directory,
        ]
        subprocess.run(
            command,
            check=True,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "PYTHONWARNINGS": "ignore"},
        )
        whole = time.time() - started
        found = json.loads(result.read_text())
    seconds = found["last"] - found["first"]
    return {
        "trials": trials,
        "start_up": found["first"] - started,
        "seconds": seconds,
        "after": whole - (found["last"] - started),
        "per_trial": seconds / trials,
    }


def table(found: dict[str, dict[str, float]]) -> str:
    """A Markdown table: trials per second relative to those of the other engines that ran."""
    bases = [engine for engine in found if engine != "calstudy"]
    over = "".join(f" over {base} |" for base in bases)
    lines = [
        f"| engine | trials | start-up s | first to last s | s a trial |{over} after s |",
        "|" + "---|" * (6 + len(bases)),
    ]
    for engine, row in found.items():
        ratios = "".join(f" {found[base]['per_trial'] / row['per_trial']:.2f}x |" for base in bases)
        lines.append(
            f"| {engine} | {row['trials']:.0f} | {row['start_up']:.1f} | {row['seconds']:.1f}"
            f" | {row['per_trial']:.3f} |{ratios} {row['after']:.1f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=300)
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
        counts = {
            engine: options.ray_trials if engine == "ray" else options.trials for engine in ENGINES
        }
        print(
            table({engine: measure(engine, counts[engine]) for engine in options.only.split(",")})
        )


if __name__ == "__main__":
    main()
