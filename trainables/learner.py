"""One model trained by one method: epochs, checkpoint, predictions of the validation split. No Ray here."""

from __future__ import annotations

import functools
import hashlib
import io
import json
import math
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trainables import metrics
from trainables.batches import DeviceSplit
from trainables.classifier import Classifier
from trainables.config import TrialConfig, build, to_plain
from trainables.dataset import Dataset
from trainables.disk import write_whole
from trainables.method import Task
from trainables.predictions import Predictions
from trainables.prepared import Prepared, load_split, prepare
from trainables.seeding import seed_of, stream

# Validation metrics of every epoch; all the others are measured once, on the trial's result.
HISTORY_METRICS = ("accuracy", "nll", "brier", "ece")
# Images of one forward pass of a prediction: enough to fill a GPU, small enough for any.
PREDICTION_BATCH = 1024


class Diverged(RuntimeError):
    """The loss is no number any more; the message says where."""


class TrialData:
    """What a trial is handed: train and validation on its device. No test split."""

    def __init__(self, prepared: Prepared, device: torch.device, augment: str) -> None:
        self.prepared = prepared
        self.train = DeviceSplit(load_split(prepared, "train"), prepared.mean, prepared.std, device, augment)
        self.validation = DeviceSplit(load_split(prepared, "validation"), prepared.mean, prepared.std, device)


@functools.lru_cache(maxsize=2)
def _trial_data(dataset: str, seed: int, device: torch.device, digest: str | None) -> TrialData:
    config = build(Dataset, json.loads(dataset))
    return TrialData(prepare(config, seed, digest=digest), device, config.augment)


def trial_data(config: TrialConfig, device: torch.device, digest: str | None = None) -> TrialData:
    """The data of a trial, prepared once per node and held once per process.

    Raises FieldError where the source is not the one with the `digest`, if that is given.
    """
    return _trial_data(json.dumps(to_plain(config.data), sort_keys=True), config.seed, device, digest)


class Learner:
    """Trains `config` on `data`. Equal configs give equal weights, whether resumed or not (bit for bit on a CPU)."""

    def __init__(self, config: TrialConfig, data: TrialData, device: torch.device) -> None:
        self.config, self.data, self.device = config, data, device
        self.epoch, self._updates_done, self._updates_of_epoch, self._update = 0, 0, 1, 0
        self.history: list[dict[str, float]] = []
        self.best: dict[str, Any] | None = None
        self._last: Predictions | None = None  # of the epoch just trained
        prepared = data.prepared
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed_of(config.seed, config.number, "weights"))
            network = config.model.build(prepared.input_shape, prepared.num_classes)
        self.network = network.to(device)
        self._parameters = list(self.network.parameters())
        self.optimizer = config.optimizer.build(self._parameters)
        task = Task(prepared.num_classes, len(data.train), device, stream(config.seed, config.number, "method"))
        self.method_state = config.method.start(task)

    @property
    def progress(self) -> float:
        """Share of training done, in [0, 1): what schedules are functions of."""
        return (self.epoch + self._update / self._updates_of_epoch) / self.config.epochs

    @property
    def finished(self) -> bool:
        """Whether all epochs are trained."""
        return self.epoch >= self.config.epochs

    def update(self, loss: Tensor) -> None:
        """Backward and one step of the optimizer, at the learning rate of this moment."""
        for parameter in self._parameters:  # what zero_grad does, without its profiler hooks
            parameter.grad = None
        loss.backward()  # type: ignore[no-untyped-call]
        if self.config.optimizer.clip is not None:
            torch.nn.utils.clip_grad_norm_(self._parameters, self.config.optimizer.clip)
        for group in self.optimizer.param_groups:
            group["lr"] = self.config.optimizer.learning_rate(self.progress)
        self.optimizer.step()

    def train_epoch(self) -> dict[str, float]:
        """One pass; returns its row of the history: epoch (from 1), time, seconds, train_loss, validation metrics.

        Raises Diverged where the loss is not finite.
        """
        started = time.time()
        seed, number, method = self.config.seed, self.config.number, self.config.method
        generator = stream(seed, number, "order", self.epoch)
        augmentation = stream(seed, number, "augmentation", self.epoch, device=self.device)
        preparation = stream(seed, number, "preparation", self.epoch, device=self.device)
        order = method.order(self.method_state, len(self.data.train), generator).to(self.device)
        # Batch norm cannot train on the one sample that may be left over at the end.
        least = min(2, self.config.batch_size, len(order))
        batches = [batch for batch in torch.split(order, self.config.batch_size) if len(batch) >= least]
        self._updates_of_epoch, total = len(batches), torch.zeros((), device=self.device)
        self.network.train()
        with torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []):
            self._seed_modules(seed_of(seed, number, "modules", self.epoch))
            for self._update, indices in enumerate(batches):
                batch = method.prepare(self.data.train.batch(indices, augmentation), preparation)
                loss, logits = method.step(self, batch)
                self.method_state = method.observe(self.method_state, batch, logits)
                total += loss
        self._update = 0
        self.epoch += 1
        row = self._row(float(total) / len(batches), started)
        self.history.append(row)
        self._keep_best(row)
        return row

    def _seed_modules(self, seed: int) -> None:
        """Modules that draw for themselves (dropout) draw from the device's global generator.

        `torch.manual_seed` seeds those of all devices, and takes a millisecond for it.
        """
        torch.default_generator.manual_seed(seed)
        if self.device.type == "cuda":
            torch.cuda.manual_seed(seed)

    def _row(self, train_loss: float, started: float) -> dict[str, float]:
        predictions = self._last = self.predict()
        values = {name: float(metrics.find(name)(predictions.logits, predictions.labels)) for name in HISTORY_METRICS}
        now = time.time()
        for name, value in (("loss", train_loss), ("validation nll", values["nll"])):
            if not math.isfinite(value):
                where = f"at epoch {self.epoch} (optimizer.lr={self.config.optimizer.lr:g})"
                raise Diverged(f"{name} is {value:g} {where}")
        return {"epoch": self.epoch, "time": now, "seconds": now - started, "train_loss": train_loss, **values}

    def _keep_best(self, row: dict[str, float]) -> None:
        """With `result: best_*`, remember the weights of the best epoch so far (the first of equals)."""
        if self.config.result == "last":
            return
        metric = self.config.result.removeprefix("best_")
        score = row[metric] if metric == "accuracy" else -row[metric]
        if self.best is None or score > self.best["score"]:
            weights = {name: value.clone() for name, value in self.network.state_dict().items()}
            self.best = {"score": score, "epoch": self.epoch, "weights": weights}

    def predict(self) -> Predictions:
        """Validation predictions of the network as it is now, in evaluation mode, on the CPU."""
        validation = self.data.validation
        self.network.eval()
        with torch.inference_mode():
            logits = [
                self.network(validation.images(start, start + PREDICTION_BATCH))
                for start in range(0, len(validation), PREDICTION_BATCH)
            ]
        return Predictions(torch.cat(logits).float().cpu(), validation.labels.cpu())

    def take_result(self) -> tuple[int, Predictions]:
        """Put the weights that are the trial's result into the network; returns their epoch and predictions."""
        if self.best is None:
            return self.epoch, self._last or self.predict()
        self.network.load_state_dict(self.best["weights"])
        return int(self.best["epoch"]), self.predict()

    def classifier(self) -> Classifier:
        """What this trial leaves behind, on the CPU; temperature 1 until one is fitted."""
        prepared = self.data.prepared
        return Classifier(self.network, prepared.mean, prepared.std)

    # ---- checkpoint ------------------------------------------------------------------------------------------------

    def save(self, path: Path) -> None:
        """Write everything needed to go on to `path`, whole or not at all.

        Random streams are functions of (seed, trial, epoch): the epoch carries them.
        """
        state = {
            "config": self.config.to_mapping(),
            "epoch": self.epoch,
            "history": self.history,
            "best": self.best,
            "network": self.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "method_state": self.method_state,
        }
        inner, outer = io.BytesIO(), io.BytesIO()
        torch.save(state, inner)
        payload = torch.frombuffer(inner.getbuffer(), dtype=torch.uint8)
        # A zip's own checksums are not looked at when it is read: the digest tells a corrupted file from a whole one.
        torch.save({"sha256": hashlib.sha256(inner.getbuffer()).hexdigest(), "state": payload}, outer)
        write_whole(path, outer.getbuffer(), durable=True)

    def load(self, path: Path) -> bool:
        """Go on from what `save` wrote; False, and nothing changed, where it is not whole or not of this trial."""
        try:
            outer = torch.load(path, weights_only=True, map_location="cpu")
            payload = outer["state"].numpy().tobytes()
            if hashlib.sha256(payload).hexdigest() != outer["sha256"]:
                return False
            state = torch.load(io.BytesIO(payload), weights_only=True, map_location=self.device)
        except Exception:  # whatever torch makes of a torn file; the trial then starts from an older one, or anew
            return False
        if state["config"] != self.config.to_mapping():
            return False
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.epoch, self.history, self.best = state["epoch"], state["history"], state["best"]
        self.method_state = state["method_state"]
        return True
