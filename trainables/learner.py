"""Train one model by one method: epochs, checkpoints, validation predictions. No Ray here."""

from __future__ import annotations

import hashlib
import io
import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call

from trainables import metrics, program
from trainables.config import TrialConfig
from trainables.files.atomic import write_whole
from trainables.files.saved import digested_payload
from trainables.loading.batches import DeviceSplit, mirrored_in_turn
from trainables.loading.trial_data import TrialData
from trainables.method import Batch, Task
from trainables.methods.shared.entropy import entropy
from trainables.model import Network
from trainables.outputs.classifier import PREDICTION_BATCH, Classifier
from trainables.outputs.predictions import Predictions
from trainables.outputs.train_entropy import TrainEntropy
from trainables.program import Choices
from trainables.seeding import seed_of, stream


class Diverged(RuntimeError):
    """The loss is not finite; the message gives the epoch."""


class Measured(NamedTuple):
    """An epoch's values, perhaps still on the way: after `wait()` they are there."""

    epoch: int
    samples: int
    started: float
    names: list[str]
    values: Tensor
    wait: Callable[[], None]


class Learner:
    """Trains `config` on `data`. Equal configs give equal weights, whether resumed or not (bit for bit on a CPU)."""

    def __init__(self, config: TrialConfig, data: TrialData, device: torch.device) -> None:
        self.config, self.data, self.device = config, data, device
        self.epoch = 0
        self.history: list[dict[str, float]] = []
        self.best: dict[str, Any] | None = None
        self._last: Tensor | None = None  # validation logits of the epoch just trained
        self._unread: list[Measured] = []
        self.converted = (
            False  # whether it was resumed from a checkpoint of a version with torch's optimizers
        )
        self.samples = 0  # training samples seen: of train, of meta, and when scoring train
        prepared = data.prepared
        self.train, self._meta = data.train, None
        if config.method.needs_meta or config.equal_train:
            self.train, self._meta = data.with_meta(config.data.meta, config.seed)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed_of(config.seed, config.number, "weights"))
            network = config.model.build(prepared.input_shape, prepared.num_classes)
        network.adapt(lambda count: data.images_of(self.train.rows[:count]))
        self._program = program.program_for(config, data, network, device)
        self.network, self.weights, self._method = (
            self._program.network,
            self._program.weights,
            self._program.method,
        )
        self.progress: float | Tensor = (
            0.0  # in a step a 0-dimensional tensor, like the learning rate
        )
        self.learning_rate: float | Tensor = config.optimizer.learning_rate(0.0)
        self._now: Choices | None = None  # of the current step
        generator = stream(config.seed, config.number, "method")
        self._rows, self._labels = self.train.rows.to(device), data.validation.labels.to(device)
        task = Task(
            prepared.num_classes, self._rows, device, generator, self.network, prepared.digest
        )
        state, self._recorded = {"method": config.method.start(task)}, None
        if config.record == "train_entropy":
            self._recorded = torch.full((config.epochs, len(data.train)), torch.nan, device=device)
            state["entropies"] = torch.full((len(self.train),), torch.nan, device=device)
        self._program.keep(state)

    @property
    def epochs(self) -> int:
        return self.config.epochs

    @property
    def finished(self) -> bool:
        return self.epoch >= self.config.epochs

    @property
    def method_state(self) -> Any:
        return self._program.state["method"]

    @property
    def num_samples(self) -> int:
        """Size of train, without the meta split."""
        return len(self.train)

    def meta_batch(self) -> Batch:
        """This step's batch of the meta split, which is reshuffled each epoch and whenever it runs out."""
        assert self._meta is not None and self._now is not None, (
            "a method that uses meta batches must set needs_meta"
        )
        return self._meta.batch(self._now.meta)

    def apply(
        self, module: nn.Module, inputs: Tensor, weights: dict[str, Tensor] | None = None
    ) -> Tensor:
        """The output of the network, or a part of it, in the precision of training; as float32. weights: or its own."""
        network, compiled = self.network, self._program.compiled_features
        with self._autocast():
            if compiled is not None and not weights and module in (network, network.features):
                output = compiled(inputs)
                output = network.head(output) if module is network else output
            else:
                output = functional_call(module, weights, (inputs,)) if weights else module(inputs)
        return output.float()

    def _autocast(self) -> AbstractContextManager[Any]:
        if self.config.precision == "float32":
            return nullcontext()
        return torch.autocast(self.device.type, torch.bfloat16)

    def train_logits(self) -> Tensor:
        """[num_samples, K]: the current network's logits on train, in evaluation mode, without augmentation."""
        self.samples += len(self.train)
        with self._autocast():
            logits = self._logits(self.train)
        self.network.train()
        return logits

    def update(self, loss: Tensor) -> None:
        """Backward pass and one optimizer step at the current learning rate."""
        assert self._now is not None
        self.weights.backward(loss)
        self.weights.update(self._now.learning_rate)

    def train_epoch(self) -> dict[str, float]:
        """Train one epoch; returns its history row: epoch (from 1), time, seconds, train_loss, validation metrics.

        Raises Diverged if the loss is not finite.
        """
        self.advance()
        self.catch_up()
        return self.history[-1]

    def advance(self, settled: Callable[[], object] = lambda: None) -> None:
        """Train one epoch. On a GPU the history may get its row, and Diverged be raised, only after the next one.

        settled: called once the network has the weights of the trial's result, if that is before their validation.
        """
        started = time.time()
        seed, number = self.config.seed, self.config.number
        order = self.config.method.order(
            self, self.method_state, stream(seed, number, "order", self.epoch)
        )
        preparation = stream(seed, number, "preparation", self.epoch)
        decided = self._decided(order, preparation)
        steps = sum(choices.steps for choices in decided)
        self._program.loss.zero_()
        if "entropies" in self._program.state:
            self._program.state["entropies"].fill_(torch.nan)
        with self._training(steps):
            for choices in decided:
                self._program.run(
                    choices, lambda now: self._step(now, preparation), self._streamed(choices)
                )
                self.samples += sum(
                    part["indices"].numel() for part in (choices.train, choices.meta) if part
                )
        if self._recorded is not None:
            self._recorded[self.epoch, self._rows] = self._program.state["entropies"]
        self.epoch, self._now = self.epoch + 1, None
        self.progress = self.epoch / self.epochs
        self.learning_rate = self.config.optimizer.learning_rate(self.progress)
        if self.finished and self.config.result == "last":
            settled()
        self._unread.append(self._measured(steps, started))
        if not program.captures(self.device) or self.finished or self.config.result != "last":
            self.catch_up()
        elif len(self._unread) > 1:
            self._read()

    def catch_up(self) -> None:
        """Wait for the rows of all epochs trained."""
        while self._unread:
            self._read()

    def _decided(self, order: Tensor, preparation: torch.Generator) -> list[Choices]:
        """What the epoch decides beforehand: for its whole batches, and for the smaller one that is left."""
        place, optimizer = (self.config.seed, self.config.number), self.config.optimizer
        augmentation, meta_stream = (
            stream(*place, name, self.epoch) for name in ("augmentation", "meta")
        )
        # Batch norm cannot train on a single leftover sample.
        least = min(2, self.config.batch_size, len(order))
        batches = [
            batch
            for batch in torch.split(order.cpu(), self.config.batch_size)
            if len(batch) >= least
        ]
        progress = (
            self.epoch + torch.arange(len(batches), dtype=torch.float64) / len(batches)
        ) / self.epochs
        rates = torch.tensor([optimizer.learning_rate(share) for share in progress.tolist()])
        mirrored = None
        if "alternating" in self.config.data.augment:
            mirrored = mirrored_in_turn(len(self.data.train), stream(*place, "flip"), self.epoch)
        meta = self._meta if self.config.method.needs_meta else None
        meta_order = torch.empty(0) if meta is None else self._meta_order(len(batches), meta_stream)
        last = len(batches) - 1 if len(batches[-1]) < len(batches[0]) else len(batches)
        return [
            Choices(
                progress[part],
                rates[part],
                self.train.decide(torch.stack(batches[part]), augmentation, mirrored),
                {} if meta is None else meta.decide(meta_order[part], meta_stream),
                self.config.method.draw(len(batches[part]), len(batches[part][0]), preparation),
            )
            for part in (slice(0, last), slice(last, None))
            if batches[part]
        ]

    def _meta_order(self, steps: int, generator: torch.Generator) -> Tensor:
        """[steps, M] indices into the meta split: reshuffled each epoch, and whenever it runs out."""
        assert self._meta is not None
        size = min(self.config.batch_size, len(self._meta))
        rounds = -(-steps * size // len(self._meta))
        orders = [torch.randperm(len(self._meta), generator=generator) for _ in range(rounds)]
        return torch.cat(orders)[: steps * size].view(steps, size)

    def _streamed(self, choices: Choices) -> Callable[[int], dict[str, Tensor]] | None:
        """What gives the images of a step, by the part of the data they are of."""
        if self.train.place != "streamed":
            return None
        parts = [("train", self.train, choices.train)]
        if self._meta is not None and choices.meta:
            parts.append(("meta", self._meta, choices.meta))
        return lambda step: {
            name: split.gather(decided["rows"][step]) for name, split, decided in parts
        }

    def _step(self, now: Choices, preparation: torch.Generator) -> tuple[Tensor, Any]:
        """One training step; its loss and the new state."""
        method, state, self._now = self._method, self._program.state, now
        self.progress, self.learning_rate = now.progress, now.learning_rate
        if not method.tensors_only:
            self.progress, self.learning_rate = float(now.progress), float(now.learning_rate)
        batch = self.train.batch(now.train)._replace(drawn=now.method)
        batch = method.prepare(batch, preparation)
        loss, logits, of_method = method.step(self, state["method"], batch)
        of_method = method.observe(of_method, batch, logits)
        if "entropies" in state:
            state["entropies"].index_copy_(0, batch.indices, entropy(logits.float()))
        return loss, {**state, "method": of_method}

    @contextmanager
    def _training(self, steps: int) -> Iterator[None]:
        """Training mode, with the device's global generator, which modules such as dropout use, seeded by epoch."""
        seed = seed_of(self.config.seed, self.config.number, "modules", self.epoch)
        self.network.train()
        on_gpu = self.device.type == "cuda"
        own_random = torch.random.fork_rng(devices=[self.device] if on_gpu else [])
        with self._repeatable(), own_random, _without_counters(self.network, steps):
            torch.default_generator.manual_seed(
                seed
            )  # torch.manual_seed seeds all devices, in a millisecond
            if on_gpu:
                torch.cuda.manual_seed(seed)
            yield

    @contextmanager
    def _repeatable(self) -> Iterator[None]:
        """Operations that give the same bits each time, where the config asks for them."""
        if not self.config.deterministic:
            yield
            return
        before = (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
        )
        # Only a warning: pooling whose windows do not overlap is repeatable, and PyTorch does not tell it apart.
        torch.use_deterministic_algorithms(True, warn_only=True)
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(before[0], warn_only=before[1])

    def _measured(self, steps: int, started: float) -> Measured:
        """What the epoch just trained is to be measured by: on the device, on the way to the host."""
        with self._autocast():
            logits = self._logits(self.data.validation)
        values: dict[str, float | Tensor] = {"train_loss": self._program.loss / steps}
        # All other metrics are measured once, on the trial's result.
        values |= {name: metrics.find(name)(logits, self._labels) for name in metrics.ESSENTIAL}
        values |= self.config.method.measured(self.method_state)
        if self.config.diagnostics:
            values |= diagnostics(Predictions(logits, self._labels), self.network)
        self._last = logits
        on_device = [
            torch.as_tensor(value, dtype=torch.float64, device=self.device)
            for value in values.values()
        ]
        return Measured(
            self.epoch, self.samples, started, list(values), *_to_host(torch.stack(on_device))
        )

    def _read(self) -> None:
        row = self._row(self._unread.pop(0))
        self.history.append(row)
        self._keep_best(row)

    def _row(self, measured: Measured) -> dict[str, float]:
        measured.wait()
        values, now = dict(zip(measured.names, measured.values.tolist(), strict=True)), time.time()
        for name, value in (("loss", values["train_loss"]), ("validation nll", values["nll"])):
            if not math.isfinite(value):
                where = f"at epoch {measured.epoch} (optimizer.lr={self.config.optimizer.lr:g})"
                raise Diverged(f"{name} is {value:g} {where}")
        # Epochs that overlap: each second is counted once.
        since = max([measured.started, *(row["time"] for row in self.history[-1:])])
        return {
            "epoch": measured.epoch,
            "time": now,
            "seconds": now - since,
            "samples": measured.samples,
            **values,
        }

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
        return Predictions(self._logits(validation).cpu(), validation.labels)

    def _logits(self, split: DeviceSplit) -> Tensor:
        """[N, K] float32 of a split, in evaluation mode, on the device."""
        self.network.eval()
        with torch.inference_mode():
            starts = range(0, len(split), PREDICTION_BATCH)
            logits = [
                self.network(split.images(start, start + PREDICTION_BATCH)) for start in starts
            ]
        return torch.cat(logits).float()

    def take_result(self) -> int:
        """Load the weights of the trial's result into the network; returns their epoch."""
        if self.best is None:
            return self.epoch
        self.network.load_state_dict(self.best["weights"])
        self._last = None
        return int(self.best["epoch"])

    def predictions(self) -> Predictions:
        """`predict` as it is stored: in float32, without TF32. On a CPU the epoch just trained may have made them."""
        if (
            self._last is not None
            and self.device.type == "cpu"
            and self.config.precision == "float32"
        ):
            return Predictions(self._last, self.data.validation.labels)
        # TF32, which convolutions take by default, is no float32.
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
            return self.predict()

    @property
    def eager_because(self) -> str | None:
        """Why its steps are not captured in a CUDA graph; None: they are, or will be."""
        return self._program.eager_because

    def facts(self) -> dict[str, str]:
        """How it is trained: precision, step, features, device."""
        return {
            "precision": self.config.precision,
            "step": "captured" if self._program.is_captured else "eager",
            "features": "compiled" if self._program.compiled_features else "eager",
            "images": self.train.place,
            "device": torch.cuda.get_device_name(self.device)
            if self.device.type == "cuda"
            else self.device.type,
        }

    def leave(self) -> None:
        """Give the program to the next trial of this process. The learner is not to be used any longer."""
        program.leave(self._program)

    def recorded(self) -> TrainEntropy | None:
        """What `record:` requested, over all epochs."""
        return (
            None
            if self._recorded is None
            else TrainEntropy(self._recorded, self.data.prepared.digest)
        )

    def classifier(self) -> Classifier:
        """The trained model on the CPU, where it takes over the network; temperature 1 until one is fitted."""
        prepared = self.data.prepared
        return Classifier(self.network, prepared.mean, prepared.std)

    # ---- checkpoint ------------------------------------------------------------------------------------------------

    def save(self, path: Path) -> None:
        """Write a checkpoint to `path` atomically. Random streams are functions of (seed, trial, epoch)."""
        self.catch_up()
        state = {
            "config": self.config.to_mapping(),
            "epoch": self.epoch,
            "history": self.history,
            "best": self.best,
            "network": self.network.state_dict(),
            "optimizer": self.weights.state(),
            "method_state": self.method_state,
            "samples": self.samples,
            "recorded": self._recorded,
        }
        inner, outer = io.BytesIO(), io.BytesIO()
        torch.save(state, inner)
        payload = torch.frombuffer(inner.getbuffer(), dtype=torch.uint8)
        # A zip's own checksums are not verified on load: the digest detects a corrupted file.
        torch.save(
            {"sha256": hashlib.sha256(inner.getbuffer()).hexdigest(), "state": payload}, outer
        )
        write_whole(path, outer.getbuffer(), durable=True)

    def load(self, path: Path) -> bool:
        """Resume from what `save` wrote; False, with nothing changed, if it is damaged or of another trial."""
        try:
            if (payload := digested_payload(path)) is None:
                return False
            state = torch.load(io.BytesIO(payload), weights_only=True, map_location=self.device)
            # The extensions' location does not affect training; settings newer than the file get their defaults.
            moved = {**state["config"], "extensions": self.config.extensions}
            same = (
                moved == self.config.to_mapping() or TrialConfig.from_mapping(moved) == self.config
            )
        except Exception:  # whatever torch raises on a torn file; the trial starts from an older one, or from scratch
            return False
        if not same:
            return False
        self.network.load_state_dict(state["network"])
        self.converted = self.weights.load(state["optimizer"])
        self.epoch, self.history, self.best = state["epoch"], state["history"], state["best"]
        self.samples, self._recorded = state["samples"], state["recorded"]
        self._program.keep({**self._program.state, "method": state["method_state"]})
        self.progress = self.epoch / self.epochs
        return True


def _to_host(values: Tensor) -> tuple[Tensor, Callable[[], None]]:
    """The values on the host, and what waits until they are there."""
    if not values.is_cuda:
        return values.cpu(), lambda: None
    there = torch.empty(values.shape, dtype=values.dtype, pin_memory=True).copy_(
        values, non_blocking=True
    )
    copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
    copied.record()
    return there, copied.synchronize


@contextmanager
def _without_counters(network: nn.Module, steps: int) -> Iterator[None]:
    """Batch norm counts its batches, one operation a layer, and reads the count only for averages of all batches."""
    name = "num_batches_tracked"
    counted = [
        module for module in network.modules() if getattr(module, "momentum", None) is not None
    ]
    counters = [
        (module, counter)
        for module in counted
        if (counter := getattr(module, name, None)) is not None
    ]
    for module, _ in counters:
        setattr(module, name, None)
    try:
        yield
    finally:
        for module, counter in counters:
            setattr(module, name, counter.add_(steps))


def diagnostics(predictions: Predictions, network: Network) -> dict[str, float]:
    """Mean NLL and entropy, in nats, of correctly and wrongly classified samples, and the last layer's norm.

    Mukhoti et al. 2020, Figure 2: the source of over-confidence. Empty groups are left out.
    """
    logits, labels = predictions.logits.double(), predictions.labels
    right = logits.argmax(dim=-1) == labels
    each = {
        "nll": torch.nn.functional.cross_entropy(logits, labels, reduction="none"),
        "entropy": entropy(logits),
    }
    found = {
        f"{name}_{word}": float(values[chosen].mean())
        for name, values in each.items()
        for word, chosen in (("right", right), ("wrong", ~right))
        if chosen.any()
    }
    weights = [weight.detach().double().square().sum() for weight in network.head.parameters()]
    return {**found, "head_norm": float(torch.stack(weights).sum().sqrt())}
