"""The Ray Tune trainable: one class for all methods, so that one Tune run covers them and actors are reused.

The only file of this package that imports Ray.
"""

from __future__ import annotations

import json
import os
import re
import socket
import time
import traceback
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from ray.tune import PlacementGroupFactory, Trainable

from trainables import methods, metrics, mps
from trainables.allocation import keep_freed_memory
from trainables.config import TrialConfig
from trainables.fields import FieldError
from trainables.files.atomic import append, retry_until_space, write_whole
from trainables.learner import Learner
from trainables.loading.trial_data import trial_data
from trainables.outputs import train_entropy
from trainables.outputs.attempts import attempt_directory, attempts_in, epochs_reached
from trainables.outputs.predictions import Predictions
from trainables.plugins import changed_files, raised_in
from trainables.program import forget


@dataclass(frozen=True)
class Assignment:
    """One attempt at one trial, sent by the driver as JSON, which nothing on the way copies or flattens."""

    trial: str  # LABEL/NUMBER
    directory: str  # the trial's; this attempt's is attempt-N in it
    attempt: int
    config: dict[str, Any]  # TrialConfig.to_mapping()
    data_digest: str  # required digest of the data
    checkpoint_seconds: float
    resources: dict[str, float]  # cpu, gpu
    metrics: tuple[str, ...] = ()  # measured in addition to those every trial stores
    step_seconds: float = 2.0  # between reports; at least one epoch
    seconds_limit: float | None = None  # of training, over all attempts
    rung: int | None = None  # the epoch after which the driver decides whether it goes on
    costs: tuple[str, ...] = ()  # the metrics by which
    extension_files: dict[str, str] = field(default_factory=dict)  # sha256 of those it uses
    study_file: str | None = (
        None  # a file visible on every node that mounts the study's storage; None: not checked
    )

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @property
    def attempt_directory(self) -> Path:
        return attempt_directory(Path(self.directory), self.attempt)


class CalibrationTrainable(Trainable):
    """Trains the assignment in `config["assignment"]`; each result has a `report`, as JSON:

    {"rows": [history rows since the last report], "outcome": None, or what the driver records in the ledger}.

    After the epoch of its rung, a report also has the `rung`: what the driver decides by, and the outcome of a trial
    that is stopped there. One that resumes at its rung reports it again.

    An outcome's state is `complete` or `failed`; or, worth another attempt, `out_of_memory` (on a whole GPU) or
    `interrupted` (by the machine: a disk, a missing device); or `storage_unseen`: this node does not mount the study's
    storage, so every trial on it would be lost. A GPU that gives errors ends the process instead (`GpuLost`).
    """

    @classmethod
    def default_resource_request(cls, config: dict[str, Any]) -> PlacementGroupFactory:
        resources = json.loads(config["assignment"])["resources"]
        return PlacementGroupFactory([{"CPU": resources["cpu"], "GPU": resources["gpu"]}])

    def setup(self, config: dict[str, Any]) -> None:
        self._begin(Assignment(**json.loads(config["assignment"])))

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self.setup(new_config)
        return True

    def _begin(self, assignment: Assignment) -> None:
        """Only store the assignment: building may fail, and failures are reported in `step`."""
        if stopped := getattr(self, "_learner", None):  # by the driver, at its rung
            stopped.leave()
        self._assignment = assignment
        self._directory = assignment.attempt_directory
        self._learner: Learner | None = None
        self._model: Future[str] | None = None  # the sha256 of model.pt
        self._saved = time.monotonic()
        self._told: str | None = None

    def step(self) -> dict[str, Any]:
        rows: list[dict[str, float]] = []
        rung = None
        try:
            outcome = self._train(rows)
            if outcome is None and self._at_rung:
                rung = self._reach()
        except StorageUnseen as error:
            outcome = {"state": "storage_unseen", "reason": str(error)}
        except (Exception, SystemExit) as error:
            if isinstance(error, SystemExit) and raised_in(error) is None:
                raise
            outcome = self._stopped_by(error)
        if outcome is not None:
            if self._learner is not None and outcome["state"] == "complete":
                self._learner.leave()
            self._learner = None
        report = {"rows": rows, "outcome": outcome, **({} if rung is None else {"rung": rung})}
        return {"report": json.dumps(report), "done": outcome is not None}

    @property
    def _at_rung(self) -> bool:
        return self._learner is not None and self._learner.epoch == self._assignment.rung

    def _train(self, rows: list[dict[str, float]]) -> dict[str, Any] | None:
        """Train epochs for one step; the outcome after the last one."""
        if self._learner is None:
            self._learner = self._start()
            rows += self._learner.history
            if self._at_rung:
                return None
        learner, before = self._learner, self._learner.epoch
        until = time.monotonic() + self._assignment.step_seconds
        while not learner.finished and (learner.epoch == before or time.monotonic() < until):
            known = len(learner.history)
            try:
                self._advance(learner)
                saves = time.monotonic() - self._saved >= self._assignment.checkpoint_seconds
                if saves or self._at_rung:
                    learner.catch_up()
            finally:
                rows += learner.history[known:]
                self._log_rows(learner.history[known:])
                self._log_eager(learner)
            if learner.finished:
                break
            self._check_time(learner)
            if saves:
                learner.save(self._directory / "last.pt")
                self._saved = time.monotonic()
            if self._at_rung:
                break
        return self._finish(learner) if learner.finished else None

    def _advance(self, learner: Learner) -> None:
        """Train one epoch; the weights of the result are written while they are validated."""
        with ThreadPoolExecutor(1) as beside:
            learner.advance(lambda: self._write_model(learner, beside))

    def _write_model(self, learner: Learner, beside: ThreadPoolExecutor) -> Future[str]:
        self._model = beside.submit(learner.classifier().save, self._directory / "model.pt")
        return self._model

    def _log_eager(self, learner: Learner) -> None:
        """Once, on a GPU: why steps are not captured."""
        if learner.device.type == "cuda" and learner.eager_because not in (None, self._told):
            self._told = learner.eager_because
            self._log(f"steps run eagerly: {self._told}\n")

    def _log_rows(self, rows: list[dict[str, float]]) -> None:
        for row in rows:
            self._log(" ".join(f"{name}={value:.6g}" for name, value in row.items()) + "\n")

    def _check_time(self, learner: Learner) -> None:
        """Raise TimeLimit if the trial has exceeded its training time."""
        limit, seconds = (
            self._assignment.seconds_limit,
            sum(row["seconds"] for row in learner.history),
        )
        if limit is not None and seconds > limit:
            raise TimeLimit(time_limit_reason(limit, learner.epoch))

    def _stopped_by(self, error: BaseException) -> dict[str, Any]:
        """The outcome of an attempt that ended with an error."""
        reason = reason_of(error)
        try:
            self._log(traceback.format_exc())
            (self._directory / "model.pt").unlink(missing_ok=True)
            if ran_out_of_memory(error):
                forget()
                torch.cuda.empty_cache()
                return {"state": "out_of_memory", "reason": reason}
            if gpu_is_lost(error):
                is_shared = mps.is_running() and self._assignment.resources["gpu"] < 1
                raise GpuLost(f"{BESIDE_OTHERS if is_shared else ''}{reason}") from error
            if isinstance(error, OSError):
                return {"state": "interrupted", "reason": reason}
            return {"state": "failed", "reason": reason, **self._remains()}
        except OSError as second:
            return {"state": "interrupted", "reason": reason_of(second)}

    def _remains(self) -> dict[str, Any]:
        """The completed epochs of a failed trial."""
        if self._learner is None or not self._learner.history:
            return {}
        history = self._learner.history
        return {
            "epoch": int(history[-1]["epoch"]),
            "seconds": sum(row["seconds"] for row in history),
            "samples": self._learner.samples,
            "device": self._learner.device.type,
            "training": self._learner.facts(),
            "digests": {"history.json": self._write_history(history)},
        }

    def _write_history(self, history: list[dict[str, float]]) -> str:
        """Write history.json atomically; returns its sha256."""
        return write_whole(self._directory / "history.json", json.dumps(history).encode())

    def _start(self) -> Learner:
        assignment = self._assignment
        if assignment.study_file is not None and not os.path.exists(assignment.study_file):
            raise StorageUnseen(f"node {socket.gethostname()} does not see {assignment.study_file}")
        retry_until_space(lambda: self._directory.mkdir(parents=True, exist_ok=True))
        self._log(f"process {os.getpid()} on {socket.gethostname()}\n")
        torch.set_num_threads(max(1, int(assignment.resources["cpu"])))
        device = device_for(assignment.resources["gpu"])
        if device.type == "cpu":
            keep_freed_memory()
        folder = assignment.config.get("extensions")
        for file in changed_files(folder, assignment.extension_files):
            raise OSError(f"{socket.gethostname()} has another {folder}/{file} than the driver")
        config = TrialConfig.from_mapping(assignment.config)
        if config.deterministic:  # read when cuBLAS begins
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        if (
            config.precision == "bfloat16"
            and device.type == "cuda"
            and not torch.cuda.is_bf16_supported(False)
        ):
            name = torch.cuda.get_device_name(device)
            raise FieldError("precision", f"{name} has no bfloat16. Write `precision: float32`.")
        learner = Learner(config, trial_data(config, device, assignment.data_digest), device)
        attempts = attempts_in(Path(assignment.directory))
        reached = epochs_reached(attempts)
        for attempt in attempts:
            if not (attempt / "last.pt").exists():
                continue
            if learner.load(attempt / "last.pt"):
                self._log(
                    f"resumed from {attempt.name} after epoch {learner.epoch}, of {reached} trained\n"
                )
                if learner.converted:
                    self._log(f"converted {attempt.name}/last.pt of an older version\n")
                break
            self._log(f"{attempt.name}/last.pt: not an intact checkpoint of this trial\n")
        return learner

    def _reach(self) -> dict[str, Any]:
        """Write what the driver decides by; the decision's facts, and the outcome of a trial that it stops."""
        learner = self._learner
        assert learner is not None
        predictions, file = learner.predictions(), f"rung-{learner.epoch}.npz"
        digests = {file: predictions.save(self._directory / file)}
        return {
            "epoch": learner.epoch,
            "costs": metrics.costs(predictions.logits, predictions.labels, self._assignment.costs),
            "outcome": {
                "state": "pruned",
                **self._measured(learner, learner.epoch, predictions, digests),
            },
        }

    def _finish(self, learner: Learner) -> dict[str, Any]:
        """Write the trial's files; the outcome lists them with their digests."""
        epoch = learner.take_result()
        with ThreadPoolExecutor(
            1
        ) as beside:  # the weights are written while they predict, if they are not yet
            model = self._model or self._write_model(learner, beside)
            predictions, digests = learner.predictions(), {"model.pt": model.result()}
        digests["predictions.npz"] = predictions.save(self._directory / "predictions.npz")
        recorded = learner.recorded()
        if recorded is not None:
            digests[train_entropy.FILE] = recorded.save(self._directory / train_entropy.FILE)
        return {"state": "complete", **self._measured(learner, epoch, predictions, digests)}

    def _measured(
        self, learner: Learner, epoch: int, predictions: Predictions, digests: dict[str, str]
    ) -> dict[str, Any]:
        """The facts of an outcome, after `history.json` is written as well."""
        return {
            "metrics": predictions.evaluate(also=self._assignment.metrics),
            "epoch": epoch,
            "seconds": sum(row["seconds"] for row in learner.history),
            "samples": learner.samples,
            "device": learner.device.type,
            "training": learner.facts(),
            "digests": {**digests, "history.json": self._write_history(learner.history)},
        }

    def _log(self, text: str) -> None:
        """The trial's log: one line per epoch, so that epochs trained can be compared with epochs needed."""
        retry_until_space(lambda: self._directory.mkdir(parents=True, exist_ok=True))
        append(self._directory / "log", text.encode())


def ran_out_of_memory(error: BaseException) -> bool:
    """Whether the device ran out of memory; CUDA's libraries raise their own errors for it."""
    text = str(error)
    return isinstance(error, torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError)
        and ("CUDA error: out of memory" in text or "_ALLOC_FAILED" in text)
    )


def gpu_is_lost(error: BaseException) -> bool:
    """Whether CUDA gave an error other than too little memory. Most leave the process without a GPU: it must end."""
    return (
        isinstance(error, RuntimeError)
        and re.search("CUDA error|(CUBLAS|CUDNN)_STATUS_", str(error)) is not None
    )


class GpuLost(RuntimeError):
    """Ends a process that can no longer use its GPU. Under MPS, `BESIDE_OTHERS` says that the fault may be theirs."""


BESIDE_OTHERS = "beside other trials: "


class StorageUnseen(RuntimeError):
    """The study's storage is not mounted on this node."""


class TimeLimit(RuntimeError):
    """A trial exceeded its training time."""


def time_limit_reason(seconds: float, epoch: int) -> str:
    """Why a trial was stopped, named as in the study's file."""
    return f"trial_minutes: stopped after {seconds / 60:g} minutes, at epoch {epoch}"


def device_for(gpu: float) -> torch.device:
    """The device of a trial to which Ray assigns `gpu` GPUs; a fraction also limits its share of the GPU's memory.

    $CALSTUDY_DEVICE overrides it, for test clusters with simulated GPUs. Raises OSError if Ray assigns a GPU and torch
    sees none: another node may have one.
    """
    if gpu == 0:
        return torch.device("cpu")
    device = torch.device(os.environ.get("CALSTUDY_DEVICE") or "cuda")
    if device.type == "cuda":
        if not torch.cuda.is_available():
            host = socket.gethostname()
            raise OSError(
                f"Ray assigned {gpu:g} GPU on {host}, but torch sees none there; run `calstudy doctor`."
            )
        torch.cuda.set_per_process_memory_fraction(min(1.0, gpu))
    return device


def reason_of(error: BaseException) -> str:
    """Why a trial failed, in one line."""
    reason = f"{type(error).__name__}: {error}".rstrip(": ").splitlines()[0][:500]
    return f"{reason} in {raised_in(error)}" if isinstance(error, SystemExit) else reason


def trainable_for(method: str) -> type[Trainable]:
    """A trainable of one method for your own Tuner: `trainable_for("focal")` is FocalTrainable.

    Its config has TrialConfig's values by dotted path: {"data": "digits", "model": "mlp", "method.gamma":
    tune.uniform(0, 5), "epochs": 20}. Each step trains an epoch and reports its history row; the last one adds every
    validation metric.
    """
    method_class = methods.find(method)

    class MethodTrainable(Trainable):
        """One trial of one method, on the device Ray assigns."""

        def setup(self, config: dict[str, Any]) -> None:
            trial = TrialConfig.from_mapping({"method": method}, config)
            device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
            if device.type == "cpu":
                keep_freed_memory()
            self._learner = Learner(trial, trial_data(trial, device), device)

        def reset_config(self, new_config: dict[str, Any]) -> bool:
            self._learner.leave()
            self.setup(new_config)
            return True

        def step(self) -> dict[str, Any]:
            row = self._learner.train_epoch()
            if not self._learner.finished:
                return {**row, "done": False}
            self._learner.take_result()
            return {**row, **self._learner.predictions().evaluate(), "done": True}

        def save_checkpoint(self, checkpoint_dir: str) -> None:
            self._learner.save(Path(checkpoint_dir) / "last.pt")

        def load_checkpoint(self, checkpoint: Any) -> None:
            if not self._learner.load(Path(checkpoint) / "last.pt"):
                raise ValueError(
                    f"{checkpoint}: last.pt is not an intact checkpoint of this trial."
                )

    MethodTrainable.__name__ = MethodTrainable.__qualname__ = f"{method_class.__name__}Trainable"
    return MethodTrainable
