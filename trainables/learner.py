"""Train one model by one method: epochs, checkpoints, validation predictions. No Ray here."""

from __future__ import annotations

import hashlib
import io
import math
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trainables import metrics
from trainables.config import TrialConfig
from trainables.files.atomic import write_whole
from trainables.loading.batches import DeviceSplit
from trainables.loading.trial_data import TrialData
from trainables.method import Batch, Task
from trainables.methods.shared.entropy import entropy
from trainables.model import Network
from trainables.outputs.classifier import PREDICTION_BATCH, Classifier
from trainables.outputs.predictions import Predictions
from trainables.outputs.train_entropy import TrainEntropy
from trainables.seeding import seed_of, stream


class Diverged(RuntimeError):
    """The loss is not finite; the message gives the epoch."""


class Learner:
    """Trains `config` on `data`. Equal configs give equal weights, whether resumed or not (bit for bit on a CPU)."""

    def __init__(self, config: TrialConfig, data: TrialData, device: torch.device) -> None:
        self.config, self.data, self.device = config, data, device
        self.epoch, self._updates_done, self._updates_of_epoch, self._update = 0, 0, 1, 0
        self.history: list[dict[str, float]] = []
        self.best: dict[str, Any] | None = None
        self._last: Predictions | None = None  # of the epoch just trained
        self.samples = 0  # training samples seen: of train, of meta, and when scoring train
        prepared = data.prepared
        self.train, self._meta = data.train, None
        if config.method.needs_meta or config.equal_train:
            self.train, self._meta = data.with_meta(config.data.meta, config.seed)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed_of(config.seed, config.number, "weights"))
            network = config.model.build(prepared.input_shape, prepared.num_classes)
        self.network = network.to(device)
        self._parameters = list(self.network.parameters())
        self.optimizer = config.optimizer.build(self._parameters)
        generator = stream(config.seed, config.number, "method")
        task = Task(prepared.num_classes, self.train.rows, device, generator, self.network, prepared.digest)
        self.method_state = config.method.start(task)
        self._meta_stream = generator
        self._meta_order = torch.empty(0, dtype=torch.int64, device=device)
        self._recorded: Tensor | None = None
        if config.record == "train_entropy":
            self._recorded = torch.full((config.epochs, len(data.train)), torch.nan, device=device)

    @property
    def epochs(self) -> int:
        return self.config.epochs

    @property
    def progress(self) -> float:
        """Fraction of training done, in [0, 1); schedules are functions of it."""
        return (self.epoch + self._update / self._updates_of_epoch) / self.config.epochs

    @property
    def finished(self) -> bool:
        return self.epoch >= self.config.epochs

    @property
    def learning_rate(self) -> float:
        return self.config.optimizer.learning_rate(self.progress)

    @property
    def num_samples(self) -> int:
        """Size of train, without the meta split."""
        return len(self.train)

    def meta_batch(self) -> Batch:
        """The next batch of the meta split, reshuffled each epoch and whenever it runs out."""
        assert self._meta is not None, "a method that uses meta batches must set needs_meta"
        size = min(self.config.batch_size, len(self._meta))
        if len(self._meta_order) < size:
            again = torch.randperm(len(self._meta), generator=self._meta_stream).to(self.device)
            self._meta_order = torch.cat([self._meta_order, again])
        indices, self._meta_order = self._meta_order[:size], self._meta_order[size:]
        self.samples += size
        return self._meta.batch(indices, self._meta_stream)

    def train_logits(self) -> Tensor:
        """[num_samples, K]: the current network's logits on train, in evaluation mode, without augmentation."""
        self.samples += len(self.train)
        logits = self._logits(self.train)
        self.network.train()
        return logits

    def update(self, loss: Tensor) -> None:
        """Backward pass and one optimizer step at the current learning rate."""
        for parameter in self._parameters:  # zero_grad without its profiler hooks
            parameter.grad = None
        loss.backward()  # type: ignore[no-untyped-call]
        if self.config.optimizer.clip is not None:
            torch.nn.utils.clip_grad_norm_(self._parameters, self.config.optimizer.clip)
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate
        self.optimizer.step()

    def train_epoch(self) -> dict[str, float]:
        """Train one epoch; returns its history row: epoch (from 1), time, seconds, train_loss, validation metrics.

        Raises Diverged if the loss is not finite.
        """
        started = time.time()
        seed, number, method = self.config.seed, self.config.number, self.config.method
        generator = stream(seed, number, "order", self.epoch)
        augmentation = stream(seed, number, "augmentation", self.epoch, device=self.device)
        preparation = stream(seed, number, "preparation", self.epoch)
        self._meta_stream = stream(seed, number, "meta", self.epoch)
        self._meta_order = torch.empty(0, dtype=torch.int64, device=self.device)
        order = method.order(self, self.method_state, generator).to(self.device)
        # Batch norm cannot train on a single leftover sample.
        least = min(2, self.config.batch_size, len(order))
        batches = [batch for batch in torch.split(order, self.config.batch_size) if len(batch) >= least]
        self._updates_of_epoch, total = len(batches), torch.zeros((), device=self.device)
        self.network.train()
        with torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []):
            self._seed_modules(seed_of(seed, number, "modules", self.epoch))
            for self._update, indices in enumerate(batches):
                batch = method.prepare(self.train.batch(indices, augmentation), preparation)
                loss, logits, state = method.step(self, self.method_state, batch)
                self.method_state = method.observe(state, batch, logits)
                self._record(batch, logits)
                self.samples += len(indices)
                total += loss
        self._update = 0
        self.epoch += 1
        row = self._row(float(total) / len(batches), started)
        self.history.append(row)
        self._keep_best(row)
        return row

    def _seed_modules(self, seed: int) -> None:
        """Seed the device's global generator, used by modules such as dropout.

        `torch.manual_seed` seeds all devices and takes a millisecond.
        """
        torch.default_generator.manual_seed(seed)
        if self.device.type == "cuda":
            torch.cuda.manual_seed(seed)

    def _row(self, train_loss: float, started: float) -> dict[str, float]:
        predictions = self._last = self.predict()
        # All other metrics are measured once, on the trial's result.
        values = {n: float(metrics.find(n)(predictions.logits, predictions.labels)) for n in metrics.ESSENTIAL}
        now = time.time()
        for name, value in (("loss", train_loss), ("validation nll", values["nll"])):
            if not math.isfinite(value):
                where = f"at epoch {self.epoch} (optimizer.lr={self.config.optimizer.lr:g})"
                raise Diverged(f"{name} is {value:g} {where}")
        row = {"epoch": self.epoch, "time": now, "seconds": now - started, "samples": self.samples}
        more = self.config.method.measured(self.method_state)
        if self.config.diagnostics:
            more |= diagnostics(predictions, self.network)
        return {**row, "train_loss": train_loss, **values, **more}

    def _record(self, batch: Batch, logits: Tensor) -> None:
        if self._recorded is not None:
            self._recorded[self.epoch, self.train.rows[batch.indices]] = entropy(logits.float())

    def _keep_best(self, row: dict[str, float]) -> None:
        """With `result: best_*`, keep the weights of the best epoch so far (the first of equals)."""
        if self.config.result == "last":
            return
        metric = self.config.result.removeprefix("best_")
        score = -metrics.describe(metric).sign * row[metric]
        if self.best is None or score > self.best["score"]:
            weights = {name: value.clone() for name, value in self.network.state_dict().items()}
            self.best = {"score": score, "epoch": self.epoch, "weights": weights}

    def predict(self) -> Predictions:
        """Validation predictions of the current network, in evaluation mode, on the CPU."""
        validation = self.data.validation
        return Predictions(self._logits(validation).cpu(), validation.labels.cpu())

    def _logits(self, split: DeviceSplit) -> Tensor:
        """[N, K] float32 of a split, in evaluation mode, on the device."""
        self.network.eval()
        with torch.inference_mode():
            starts = range(0, len(split), PREDICTION_BATCH)
            logits = [self.network(split.images(start, start + PREDICTION_BATCH)) for start in starts]
        return torch.cat(logits).float()

    def take_result(self) -> tuple[int, Predictions]:
        """Load the weights of the trial's result into the network; returns their epoch and predictions."""
        if self.best is None:
            return self.epoch, self._last or self.predict()
        self.network.load_state_dict(self.best["weights"])
        return int(self.best["epoch"]), self.predict()

    def recorded(self) -> TrainEntropy | None:
        """What `record:` requested, over all epochs."""
        return None if self._recorded is None else TrainEntropy(self._recorded, self.data.prepared.digest)

    def classifier(self) -> Classifier:
        """The trained model on the CPU; temperature 1 until one is fitted."""
        prepared = self.data.prepared
        return Classifier(self.network, prepared.mean, prepared.std)

    # ---- checkpoint ------------------------------------------------------------------------------------------------

    def save(self, path: Path) -> None:
        """Write a checkpoint to `path` atomically. Random streams are functions of (seed, trial, epoch)."""
        state = {
            "config": self.config.to_mapping(),
            "epoch": self.epoch,
            "history": self.history,
            "best": self.best,
            "network": self.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "method_state": self.method_state,
            "samples": self.samples,
            "recorded": self._recorded,
        }
        inner, outer = io.BytesIO(), io.BytesIO()
        torch.save(state, inner)
        payload = torch.frombuffer(inner.getbuffer(), dtype=torch.uint8)
        # A zip's own checksums are not verified on load: the digest detects a corrupted file.
        torch.save({"sha256": hashlib.sha256(inner.getbuffer()).hexdigest(), "state": payload}, outer)
        write_whole(path, outer.getbuffer(), durable=True)

    def load(self, path: Path) -> bool:
        """Resume from what `save` wrote; False, with nothing changed, if it is damaged or of another trial."""
        try:
            outer = torch.load(path, weights_only=True, map_location="cpu")
            payload = outer["state"].numpy().tobytes()
            if hashlib.sha256(payload).hexdigest() != outer["sha256"]:
                return False
            state = torch.load(io.BytesIO(payload), weights_only=True, map_location=self.device)
            # The extensions' location does not affect training; settings newer than the file get their defaults.
            moved = {**state["config"], "extensions": self.config.extensions}
            same = moved == self.config.to_mapping() or TrialConfig.from_mapping(moved) == self.config
        except Exception:  # whatever torch raises on a torn file; the trial starts from an older one, or from scratch
            return False
        if not same:
            return False
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.epoch, self.history, self.best = state["epoch"], state["history"], state["best"]
        self.method_state, self.samples, self._recorded = state["method_state"], state["samples"], state["recorded"]
        return True


def diagnostics(predictions: Predictions, network: Network) -> dict[str, float]:
    """Mean NLL and entropy, in nats, of correctly and wrongly classified samples, and the last layer's norm.

    Mukhoti et al. 2020, Figure 2: the source of over-confidence. Empty groups are left out.
    """
    logits, labels = predictions.logits.double(), predictions.labels
    right = logits.argmax(dim=-1) == labels
    each = {"nll": torch.nn.functional.cross_entropy(logits, labels, reduction="none"), "entropy": entropy(logits)}
    found = {
        f"{name}_{word}": float(values[chosen].mean())
        for name, values in each.items()
        for word, chosen in (("right", right), ("wrong", ~right))
        if chosen.any()
    }
    weights = [weight.detach().double().square().sum() for weight in network.head.parameters()]
    return {**found, "head_norm": float(torch.stack(weights).sum().sqrt())}
