"""What faults of the campaign do to the same study by Ray Tune with restore, and by Optuna on a
database, each with MLflow.

    python -m benchmarks.chaos.beside  # half an hour; a table for benchmarks/results/chaos.md
    python -m benchmarks.chaos.beside --times 1 --only ray

Each is a program as its documentation has it, which is run again until it ends well:
- ray: a class trainable with a checkpoint an epoch, `Tuner.restore` with unfinished and errored
  trials, three failures a trial, MLflowLoggerCallback;
- optuna: two processes of `study.optimize` on one SQLite file, heartbeats, a retry of stale trials,
  MaxTrialsCallback; a run of MLflow a trial.

A setting is counted, not a trial: one that a retry takes up again is the same. `lost`: settings
that were begun and never completed, or fewer than were asked for; `doubled`: completed more than
once, or more than were asked for.
"""

from __future__ import annotations

import argparse
import os
import random
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.chaos.grounds.tracking import LOSING
from benchmarks.chaos.mlflow_server import MlflowServer, Proxy
from benchmarks.chaos.processes import MARK, end_marked, heed_signals, marked, wait_for

TRIALS, EPOCHS = 12, 12
EPOCH_SECONDS = 0.25  # beside its training: so that faults come while trials train
ENDS_SECONDS = 240.0  # for a program to end after a fault
TRIES = 4  # of the program, at most


# ---- the programs --------------------------------------------------------------------------------


class Network:
    """A small network on digits, an epoch at a time; each is noted in DIRECTORY/epochs."""

    def __init__(self, directory: Path, lr: float) -> None:
        import torch
        from sklearn.datasets import load_digits

        torch.set_num_threads(1)
        torch.manual_seed(0)
        digits = load_digits()
        self.x = torch.tensor(digits.data / 16, dtype=torch.float32)
        self.y = torch.tensor(digits.target)
        self.net = torch.nn.Sequential(
            torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10)
        )
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=lr)
        self.notes, self.lr, self.epoch = directory / "epochs", lr, 0

    def train(self) -> dict[str, float]:
        import torch

        time.sleep(EPOCH_SECONDS)
        for part in torch.arange(1200).split(64):
            self.optimizer.zero_grad()
            torch.nn.functional.cross_entropy(self.net(self.x[part]), self.y[part]).backward()
            self.optimizer.step()
        self.epoch += 1
        with self.notes.open("a") as notes:
            notes.write(f"{self.lr!r} {self.epoch}\n")
        right = self.net(self.x[1200:]).argmax(1) == self.y[1200:]
        return {"accuracy": float(right.float().mean())}

    def state(self) -> dict[str, Any]:
        return {"net": self.net.state_dict(), "epoch": self.epoch}

    def resume(self, state: dict[str, Any]) -> None:
        self.net.load_state_dict(state["net"])
        self.epoch = state["epoch"]


def run_ray(directory: Path, url: str) -> None:
    import ray
    import torch
    from ray import tune
    from ray.air.integrations.mlflow import MLflowLoggerCallback
    from ray.tune.search.optuna import OptunaSearch

    class Trial(tune.Trainable):
        def setup(self, config: dict[str, float]) -> None:
            self.network = Network(directory, config["lr"])

        def step(self) -> dict[str, float]:
            return self.network.train()

        def save_checkpoint(self, checkpoint_dir: str) -> None:
            torch.save(self.network.state(), Path(checkpoint_dir) / "state.pt")

        def load_checkpoint(self, checkpoint: Any) -> None:
            self.network.resume(torch.load(Path(checkpoint) / "state.pt"))

    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    place = directory / "ray" / "beside"
    if tune.Tuner.can_restore(str(place)):
        tuner = tune.Tuner.restore(str(place), Trial, resume_unfinished=True, resume_errored=True)
    else:
        search = OptunaSearch(metric="accuracy", mode="max")
        tuner = tune.Tuner(
            Trial,
            param_space={"lr": tune.loguniform(0.01, 0.5)},
            tune_config=tune.TuneConfig(search_alg=search, num_samples=TRIALS),
            run_config=tune.RunConfig(
                name="beside",
                storage_path=str(directory / "ray"),
                stop={"training_iteration": EPOCHS},
                checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=1),
                failure_config=tune.FailureConfig(max_failures=3),
                callbacks=[MLflowLoggerCallback(url, experiment_name="beside")],
            ),
        )
    found = tuner.fit()
    ended = [repr(one.config["lr"]) for one in found if one.error is None and _is_whole(one)]
    _note_completed(directory, ended)
    sys.exit(1 if found.errors else 0)


def _is_whole(result: Any) -> bool:
    return bool(result.metrics and result.metrics["training_iteration"] == EPOCHS)


def run_optuna(directory: Path, url: str) -> None:
    command = [sys.executable, "-m", "benchmarks.chaos.beside", "--program", "optuna-worker"]
    command += ["--directory", str(directory), "--url", url]
    _optuna_study(directory)
    ended = [one.wait() for one in [subprocess.Popen(command) for _ in range(2)]]
    found = _optuna_study(directory).get_trials(deepcopy=False)
    _note_completed(
        directory, [repr(one.params["lr"]) for one in found if one.state.name == "COMPLETE"]
    )
    sys.exit(1 if any(ended) else 0)


def _optuna_study(directory: Path) -> Any:
    import optuna

    storage = optuna.storages.RDBStorage(
        f"sqlite:///{directory / 'optuna.db'}",
        heartbeat_interval=1,
        grace_period=5,
        heartbeat_stale_trial_callback=optuna.storages.RetryHeartbeatStaleTrialCallback(3),
    )
    return optuna.create_study(
        storage=storage, study_name="beside", direction="maximize", load_if_exists=True
    )


def run_optuna_worker(directory: Path, url: str) -> None:
    import mlflow
    from optuna.study import MaxTrialsCallback
    from optuna.trial import TrialState

    mlflow.set_tracking_uri(url)
    mlflow.set_experiment("beside")

    def objective(trial: Any) -> float:
        lr = trial.suggest_float("lr", 0.01, 0.5, log=True)
        network = Network(directory, lr)
        with mlflow.start_run(run_name=str(trial.number)):
            mlflow.log_param("lr", lr)
            for epoch in range(EPOCHS):
                row = network.train()
                mlflow.log_metrics(row, step=epoch)
        return row["accuracy"]

    study = _optuna_study(directory)
    if _complete(study) < TRIALS:
        enough = MaxTrialsCallback(TRIALS, states=(TrialState.COMPLETE,))
        study.optimize(objective, callbacks=[enough])


def _complete(study: Any) -> int:
    return sum(one.state.name == "COMPLETE" for one in study.get_trials(deepcopy=False))


def _note_completed(directory: Path, settings: list[str]) -> None:
    (directory / "completed").write_text("".join(f"{one}\n" for one in settings))


PROGRAMS: dict[str, Callable[[Path, str], None]] = {
    "ray": run_ray,
    "optuna": run_optuna,
    "optuna-worker": run_optuna_worker,
}
WORKERS = {"ray": "ray::Trial", "optuna": "--program optuna-worker"}


# ---- one round -----------------------------------------------------------------------------------


class Round:
    """A program under one fault; its processes carry the mark."""

    def __init__(self, name: str, directory: Path, server: MlflowServer, rng: random.Random):
        self.name, self.directory, self.server, self.random = name, directory, server, rng
        self.mark = secrets.token_hex(8)
        self.proxy = Proxy(server, rng)
        self.proxy.open()
        self.driver: subprocess.Popen[Any] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "benchmarks.chaos.beside", "--program", self.name]
        command += ["--directory", str(self.directory), "--url", self.proxy.url]
        environment = {**os.environ, MARK: self.mark, "RAY_TMPDIR": str(self.directory)}
        with (self.directory / "output").open("a") as output:
            self.driver = subprocess.Popen(
                command, env=environment, stdout=output, stderr=subprocess.STDOUT
            )

    @property
    def alive(self) -> bool:
        return self.driver is not None and self.driver.poll() is None

    def lines(self, name: str) -> list[str]:
        file = self.directory / name
        return file.read_text().splitlines() if file.exists() else []

    def until_training(self) -> None:
        if not wait_for(lambda: len(self.lines("epochs")) > 2 or not self.alive, ENDS_SECONDS):
            raise TimeoutError(f"{self.name} does not train")
        time.sleep(self.random.uniform(0, 6))

    def end(self) -> int | None:
        """How the driver ended by itself; None where it had to be killed. All of its processes
        are gone afterwards."""
        assert self.driver is not None
        code: int | None = None
        with suppress(subprocess.TimeoutExpired):
            code = self.driver.wait(ENDS_SECONDS)
        wait_for(lambda: not marked(self.mark), 20)
        end_marked(self.mark)
        self.driver.wait()
        return code

    def finish(self) -> tuple[int, bool]:
        """How often the program was run again, and whether it then ended well."""
        code = self.end()
        for again in range(TRIES):
            if code == 0:
                return again, True
            self.start()
            code = self.end()
        return TRIES, code == 0


def driver_sigkill(one: Round) -> None:
    assert one.driver is not None
    one.driver.kill()


def driver_sigterm(one: Round) -> None:
    assert one.driver is not None
    one.driver.terminate()


def worker_sigkill(one: Round) -> None:
    if found := marked(one.mark, WORKERS[one.name]):
        with suppress(ProcessLookupError):
            os.kill(one.random.choice(found), signal.SIGKILL)


def mlflow_restarted(one: Round) -> None:
    _server_away(one)
    time.sleep(one.random.uniform(0, 6))
    _server_back(one)


def mlflow_away(one: Round) -> None:
    """Until the driver has ended."""
    _server_away(one)
    wait_for(lambda: not one.alive, ENDS_SECONDS / 2)
    _server_back(one)


def mlflow_lost_answer(one: Round) -> None:
    lost = one.proxy.lose_answer(one.random.choice(LOSING))
    wait_for(lambda: lost.is_set() or not one.alive, ENDS_SECONDS)


def _server_away(one: Round) -> None:
    one.proxy.close()
    one.server.kill()


def _server_back(one: Round) -> None:
    one.server.start()
    one.proxy.open()


FAULTS: tuple[Callable[[Round], None], ...] = (
    driver_sigkill,
    driver_sigterm,
    worker_sigkill,
    mlflow_restarted,
    mlflow_away,
    mlflow_lost_answer,
)


class Found(NamedTuple):
    """What a round came to. lacking: completed settings without a run of MLflow that is FINISHED
    and has every epoch; twice: settings with more than one run; open: runs that are RUNNING."""

    ended_well: int
    again: int
    lost: int
    doubled: int
    repeated: int
    lacking: int
    twice: int
    open: int


def play(name: str, fault: Callable[[Round], None], rng: random.Random) -> Found:
    with tempfile.TemporaryDirectory(prefix="beside-", ignore_cleanup_errors=True) as folder:
        directory = Path(folder)
        server = MlflowServer(directory, {})
        one: Round | None = None
        try:
            server.start()
            one = Round(name, directory, server, rng)
            one.start()
            one.until_training()
            fault(one)
            again, well = one.finish()
            return _found(one, again, well)
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            if one is not None:
                end_marked(one.mark)
                one.proxy.close()
            if server.process is not None:
                server.kill()
            signal.signal(signal.SIGTERM, _end)


def _end(*_: Any) -> None:
    """A round cleans up after itself."""
    sys.exit(128 + signal.SIGTERM)


def _found(one: Round, again: int, well: bool) -> Found:
    epochs = Counter(one.lines("epochs"))
    begun = {line.split()[0] for line in epochs}
    completed = Counter(one.lines("completed"))
    runs = list(_runs(one.server.url))
    whole = {lr for lr, status, steps in runs if status == "FINISHED" and steps >= EPOCHS}
    several = Counter(lr for lr, _, _ in runs)
    return Found(
        ended_well=int(well),
        again=again,
        lost=max(len(begun - completed.keys()), TRIALS - len(completed)),
        doubled=max(sum(completed.values()) - TRIALS, completed.total() - len(completed), 0),
        repeated=epochs.total() - len(epochs),
        lacking=len(completed.keys() - whole),
        twice=sum(count > 1 for count in several.values()),
        open=sum(status == "RUNNING" for _, status, _ in runs),
    )


def _runs(url: str) -> Iterator[tuple[str, str, int]]:
    """Of each run: its setting, its status, and how many epochs it has."""
    import mlflow

    client = mlflow.MlflowClient(url)
    if (experiment := client.get_experiment_by_name("beside")) is None:
        return
    for run in client.search_runs([experiment.experiment_id], max_results=1000):
        steps = {point.step for point in client.get_metric_history(run.info.run_id, "accuracy")}
        yield run.data.params.get("lr", run.info.run_id), run.info.status, len(steps)


# ---- the command line ----------------------------------------------------------------------------

COLUMNS = (
    "of",
    "kind",
    "times",
    "ended well",
    "run again",
    "settings lost",
    "doubled",
    "epochs repeated",
    "not whole in MLflow",
    "twice in MLflow",
    "left RUNNING in MLflow",
)


def main() -> None:
    heed_signals()
    options = _options()
    if options.program:
        PROGRAMS[options.program](options.directory, options.url)
        return
    signal.signal(signal.SIGTERM, _end)
    rng = random.Random(options.seed)
    print(f"seed {options.seed}; {TRIALS} trials of {EPOCHS} epochs each time")
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}", flush=True)
    for name in options.only.split(","):
        for fault in FAULTS:
            found = [play(name, fault, rng) for _ in range(options.times)]
            sums = [sum(column) for column in zip(*found, strict=True)]
            cells = [name, fault.__name__, len(found), *sums]
            print(f"| {' | '.join(map(str, cells))} |", flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.chaos.beside")
    parser.add_argument("--only", default="ray,optuna", help="of ray, optuna")
    parser.add_argument("--times", type=int, default=5, help="so often each fault")
    parser.add_argument("--seed", type=int, default=0, help="of what happens when")
    parser.add_argument("--program", choices=PROGRAMS, help=argparse.SUPPRESS)
    parser.add_argument("--directory", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
