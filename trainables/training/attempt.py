"""One attempt at a trial: start or resume, epochs, the files of its result. No Ray here."""

from __future__ import annotations

import errno
import json
import os
import socket
import time
import traceback
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import torch

from trainables import metrics
from trainables.config import TrialConfig
from trainables.files.atomic import append, retry_until_space, write_whole
from trainables.loading.trial_data import TrialData, prepared_for, trial_data
from trainables.machine import TRAINING_LIBRARIES, mps_is_running, versions
from trainables.outputs import train_entropy
from trainables.outputs.attempts import attempt_directory, attempts_in, epochs_reached
from trainables.outputs.outcome import Outcome, OutcomeState, Reached, Report
from trainables.outputs.predictions import Predictions
from trainables.plain import Plain
from trainables.plugins import changed_files, finding_for, raised_at, raised_in, used_files
from trainables.problems import FieldError, UserError
from trainables.training import checkpoint
from trainables.training.device import (
    NodeUnfit,
    check_device,
    gpu_is_lost,
    prepared_device,
    ran_out_of_memory,
)
from trainables.training.learner import Learner
from trainables.training.program import forget

PERMANENT = (errno.ENAMETOOLONG, errno.EINVAL)  # as on any other node


@dataclass(frozen=True)
class Assignment:
    """One attempt at one trial, sent as JSON, which nothing on the way copies or flattens."""

    trial: str  # LABEL/NUMBER
    directory: str  # the trial's; this attempt's is attempt-N in it
    attempt: int
    config: dict[str, Plain]  # TrialConfig.to_mapping()
    data_digest: str  # required digest of the data
    checkpoint_seconds: float
    resources: dict[str, float]  # cpu, gpu
    metrics: tuple[str, ...] = ()  # measured in addition to those every trial stores
    step_seconds: float = 2.0  # between reports; at least one epoch
    seconds_limit: float | None = None  # of training, over all attempts
    rung: int | None = None  # the epoch after which the driver decides whether it goes on
    costs: tuple[str, ...] = ()  # the metrics by which
    extension_files: dict[str, str] = field(default_factory=dict)  # sha256, as the driver sees them
    weights: dict[str, str] = field(
        default_factory=dict
    )  # names by sha256: those it may start from
    # A file visible on every node that mounts the study's storage; None: not checked.
    study_file: str | None = None
    ended: bool = False  # it has its result, and trains again beside the others of its stack
    stack: str | None = None  # in words: the one it is trained in, or has left; None: it has none

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @property
    def attempt_directory(self) -> Path:
        return attempt_directory(Path(self.directory), self.attempt)


class Attempt:
    """Trains what an assignment says, step by step.

    A trial that uses extension files reports them before it trains. One that resumes at its
    rung reports it again. A GPU that gives errors ends the process (`GpuLost`) instead of
    leaving an outcome; so does a node that lacks what the trial needs (`NodeUnfit`).
    """

    def __init__(self, assignment: Assignment) -> None:
        """Only store the assignment: building may fail, and failures are reported in `step`."""
        self._assignment = assignment
        self._directory = assignment.attempt_directory
        self._learner: Learner | None = None
        self.is_over = False
        self._model: Future[str] | None = None  # the sha256 of model.pt
        self._saved = time.monotonic()
        self._told: str | None = None

    def prepare(self) -> None:
        """Have the data on this node, before the trial's time begins: to decode them may take long.
        What is wrong with them, or with the trial, is found in `step`."""
        assignment = self._assignment
        folder = assignment.config.get("extensions")
        with suppress(Exception, SystemExit), finding_for(self.label):
            if not changed_files(str(folder) if folder else None, assignment.extension_files):
                config = TrialConfig.from_mapping(assignment.config)
                device = prepared_device(assignment.resources)
                prepared_for(config, device, assignment.data_digest)

    def leave(self) -> None:
        """Give the program of a trial that is stopped at its rung to the next one."""
        if self._learner is not None:
            self._learner.leave()

    def step(self) -> Report:
        """Train epochs for one report; the last one has the outcome."""
        rows: list[dict[str, float]] = []
        rung = None
        try:
            with finding_for(self.label):
                outcome = self._train(rows)
                if outcome is None and self._at_rung:
                    rung = self._reach()
        except NodeUnfit:
            raise
        except (Exception, SystemExit) as error:
            if isinstance(error, SystemExit) and raised_in(error) is None:
                raise
            outcome = self.stopped_by(error)
        if outcome is not None:
            self.is_over = True
            if outcome.state == "complete":
                self.leave()
            self._learner = None
        return Report(rows, outcome, rung, self.used or None)

    def reports(self) -> dict[str, Report]:
        """`step`, by the trial's name."""
        return {self._assignment.trial: self.step()}

    @property
    def used(self) -> dict[str, str]:
        """The extension files that the trial uses, with their digests."""
        return used_files(self.label, self._assignment.extension_files)

    @property
    def label(self) -> str:
        return label_of(self._assignment.trial)

    @property
    def _at_rung(self) -> bool:
        return self._learner is not None and self._learner.epoch == self._assignment.rung

    def _train(self, rows: list[dict[str, float]]) -> Outcome | None:
        """Train epochs for one step; the outcome after the last one."""
        if self._learner is None:
            self._learner = self._start()
            rows += self._learner.history
            if self._at_rung or self.used:
                return None
        learner = self._learner
        before = learner.epoch
        until = time.monotonic() + self._assignment.step_seconds
        while not learner.finished and (learner.epoch == before or time.monotonic() < until):
            known = len(learner.history)
            try:
                self._advance(learner)
                saves = time.monotonic() - self._saved >= self._assignment.checkpoint_seconds
                if saves or self._at_rung:
                    learner.catch_up()
            finally:
                rows += self.noted(learner, known)
            if learner.finished:
                break
            self.check_time(learner)
            if saves:
                checkpoint.save(learner, self._directory / "last.pt")
                self._saved = time.monotonic()
            if self._at_rung:
                break
        if not learner.finished:
            return None
        return self.finish(learner)

    def noted(self, learner: Learner, known: int) -> list[dict[str, float]]:
        """The rows of its history after so many that are known, which the log then has."""
        self._learner = learner
        for row in learner.history[known:]:
            self.log(" ".join(f"{name}={value:.6g}" for name, value in row.items()) + "\n")
        self._log_eager(learner)
        return learner.history[known:]

    def _advance(self, learner: Learner) -> None:
        """Train one epoch; the weights of the result are written while they are validated."""
        with ThreadPoolExecutor(1) as beside:
            learner.advance(lambda: self._write_model(learner, beside))

    def _write_model(self, learner: Learner, beside: ThreadPoolExecutor) -> Future[str]:
        self._model = beside.submit(learner.classifier().save, self._directory / "model.pt")
        return self._model

    def _log_eager(self, learner: Learner) -> None:
        """Log once, on a GPU, why steps are not captured."""
        if learner.device.type == "cuda" and learner.eager_because not in (None, self._told):
            self._told = learner.eager_because
            self.log(f"steps run eagerly: {self._told}\n")

    def check_time(self, learner: Learner) -> None:
        """Raise TimeLimit if the trial has exceeded its training time."""
        limit = self._assignment.seconds_limit
        if limit is not None and sum(row["seconds"] for row in learner.history) > limit:
            raise TimeLimit(time_limit_reason(limit, learner.epoch))

    def stopped_by(self, error: BaseException) -> Outcome:
        """The outcome of an attempt that ended with an error."""
        reason = reason_of(error)
        try:
            self.log(traceback.format_exc())
            (self._directory / "model.pt").unlink(missing_ok=True)
            if ran_out_of_memory(error):
                forget()
                torch.cuda.empty_cache()
                return Outcome(state="out_of_memory", reason=reason)
            if gpu_is_lost(error):
                if mps_is_running() and self._assignment.resources["gpu"] < 1:
                    reason = BESIDE_OTHERS + reason
                raise GpuLost(reason) from error
            if is_denied(error):
                return Outcome(state="denied", reason=reason)
            if isinstance(error, OSError):
                refuse_everywhere(error)
                return Outcome(state="interrupted", reason=reason)
            return self._failed(with_place(reason, error))
        except OSError as second:
            refuse_everywhere(second)
            return Outcome(state="interrupted", reason=reason_of(second))

    def _failed(self, reason: str) -> Outcome:
        """The outcome of a failed trial, with its completed epochs."""
        if self._learner is None or not self._learner.history:
            return Outcome(state="failed", reason=reason)
        epoch = int(self._learner.history[-1]["epoch"])
        return self._outcome("failed", self._learner, epoch, {}, reason=reason)

    def _start(self) -> Learner:
        config, device = self.checked()
        learner = Learner(config, self.data(config, device), device)
        self._resume(learner)
        return learner

    def checked(self) -> tuple[TrialConfig, torch.device]:
        """The trial's config and device, once its log has begun. Raises NodeUnfit."""
        assignment = self._assignment
        self._log_start()
        folder = assignment.config.get("extensions")
        assert folder is None or isinstance(folder, str)
        for file in changed_files(folder, assignment.extension_files):
            raise NodeUnfit(f"has another {folder}/{file} than the driver", "Copy that there.")
        config = TrialConfig.from_mapping(assignment.config)
        if config.deterministic:  # read when cuBLAS begins
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        device = prepared_device(assignment.resources)
        check_device(device, config.precision)
        self._check_weights(config)
        metrics.load_own(self._assignment.metrics)
        return config, device

    def _resume(self, learner: Learner) -> None:
        """Go on from the newest intact checkpoint of this trial's attempts."""
        directory = Path(self._assignment.directory)
        for folder in attempts_in(directory):
            if not (folder / "last.pt").exists():
                continue
            try:
                if checkpoint.load(learner, folder / "last.pt"):
                    reached = epochs_reached(attempts_in(directory))
                    after = f"after epoch {learner.epoch}, of {reached} trained"
                    self.log(f"resumed from {folder.name} {after}\n")
                    return
                problem = "not an intact checkpoint of this trial"
            except checkpoint.OtherFeatures:
                problem = "was trained on features of another kind of machine; it starts over"
            self.log(f"{folder.name}/last.pt: {problem}\n")

    def _check_weights(self, config: TrialConfig) -> None:
        """Raise NodeUnfit unless this node has the weights that the study began with."""
        known = self._assignment.weights
        try:
            origin = config.model.origin()
        except FieldError as error:
            raise NodeUnfit(f"lacks the weights of the network ({error})") from None
        if known and origin is not None and origin.sha256 not in known:
            found = f"has other weights of {origin.name}, sha256 {origin.sha256[:12]}"
            raise NodeUnfit(found, "Copy the study's file there.")

    def _log_start(self) -> None:
        """The first file of the attempt: where the storage cannot be written, nothing trains."""
        study = self._assignment.study_file
        if study is not None and not os.path.exists(study):
            raise NodeUnfit(f"does not see {study}", "Mount the storage there.")
        try:
            self.log(f"process {os.getpid()} on {socket.gethostname()}\n")
        except OSError as error:
            refuse_everywhere(error)
            found = f"cannot write to {self._directory} ({error.strerror or error})"
            raise NodeUnfit(found, "Check how the storage is mounted there.") from None

    def data(self, config: TrialConfig, device: torch.device) -> TrialData:
        """The trial's data, which the driver has prepared: if they cannot be had, it is the
        node's fault."""
        try:
            return trial_data(config, device, self._assignment.data_digest)
        except (FieldError, OSError) as error:
            raise NodeUnfit(f"cannot prepare the data ({error})") from None

    def _reach(self) -> Reached:
        """The trial at its rung, after what the driver decides by is written."""
        learner = self._learner
        assert learner is not None
        predictions = learner.predictions()
        file = f"rung-{learner.epoch}.npz"
        digests = {file: predictions.save(self._directory / file)}
        costs = metrics.costs(
            predictions.logits, predictions.labels, self._assignment.costs, predictions.groups
        )
        found = self._measured(learner, predictions)
        outcome = self._outcome("pruned", learner, learner.epoch, digests, metrics=found)
        return Reached(learner.epoch, costs, outcome)

    def finish(self, learner: Learner) -> Outcome:
        """Write the trial's files; the outcome lists them with their digests."""
        epoch = learner.take_result()
        # The weights are written while they predict, if they are not yet.
        with ThreadPoolExecutor(1) as beside:
            model = self._model or self._write_model(learner, beside)
            predictions = learner.predictions()
            digests = {"model.pt": model.result()}
        digests["predictions.npz"] = predictions.save(self._directory / "predictions.npz")
        recorded = learner.recorded()
        if recorded is not None:
            digests[train_entropy.FILE] = recorded.save(self._directory / train_entropy.FILE)
        found = self._measured(learner, predictions)
        return self._outcome("complete", learner, epoch, digests, metrics=found)

    def _measured(self, learner: Learner, predictions: Predictions) -> dict[str, float]:
        also = learner.data.prepared.also
        return predictions.evaluate(also=(*self._assignment.metrics, *also))

    def _outcome(
        self,
        state: OutcomeState,
        learner: Learner,
        epoch: int,
        digests: dict[str, str],
        **more: Any,
    ) -> Outcome:
        """What the epochs left, after `history.json` is written as well."""
        rows = json.dumps(learner.history).encode()
        history = write_whole(self._directory / "history.json", rows)
        stack = self._assignment.stack
        return Outcome(
            state=state,
            epoch=epoch,
            seconds=sum(row["seconds"] for row in learner.history),
            samples=learner.samples,
            device=learner.device.type,
            host=socket.gethostname(),
            versions=_libraries(),
            training=learner.facts() | ({} if stack is None else {"stack": stack}),
            features=learner.data.prepared.features,
            digests={**digests, "history.json": history},
            **more,
        )

    def log(self, text: str) -> None:
        """Add to the trial's log, whose epochs trained are compared with those needed."""
        folder = self._directory
        retry_until_space(lambda: folder.mkdir(parents=True, exist_ok=True), folder)
        append(self._directory / "log", text.encode())


@cache
def _libraries() -> dict[str, str]:
    return versions(TRAINING_LIBRARIES)


def label_of(trial: str) -> str:
    return trial.partition("/")[0]


def is_denied(error: BaseException) -> bool:
    """The machine gave no process, thread, memory or disk: a failed fork is no trial's fault."""
    if isinstance(error, OSError):
        return error.errno in (errno.EAGAIN, errno.ENOMEM, errno.ENOSPC, errno.EDQUOT)
    return isinstance(error, RuntimeError) and str(error) == "can't start new thread"


def refuse_everywhere(error: OSError) -> None:
    """Raise NodeUnfit for an error that every node gives: a name too long, a wrong argument; but
    not for one's own code's."""
    if error.errno in PERMANENT and raised_in(error) is None:
        found = f"cannot use {error.filename or 'its files'} ({error.strerror or error})"
        raise NodeUnfit(found, "Use shorter names, or another storage.", nowhere=True) from None


class GpuLost(RuntimeError):
    """The process can use its GPU no longer. `BESIDE_OTHERS`: under MPS, perhaps others' fault."""


BESIDE_OTHERS = "beside other trials: "


class TimeLimit(RuntimeError):
    """A trial exceeded its training time."""


def time_limit_reason(seconds: float, epoch: int) -> str:
    """Why a trial was stopped, named as in the study's file."""
    return f"trial_minutes: stopped after {seconds / 60:g} minutes, at epoch {epoch}"


def reason_of(error: BaseException) -> str:
    """Why a trial ended, in one line."""
    return f"{type(error).__name__}: {error}".rstrip(": ").splitlines()[0][:500]


def with_place(reason: str, error: BaseException) -> str:
    """The reason, after the place in a user's own code that raised the error."""
    if isinstance(error, FieldError) and error.path == "extensions":  # its place is said
        return error.problem
    place = None if isinstance(error, UserError) else raised_at(error)
    return reason if place is None else f"{place}: {reason}"
