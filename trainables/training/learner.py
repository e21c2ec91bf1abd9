"""Train one model by one method: epochs and validation predictions. No Ray here."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, NamedTuple, TypedDict

import torch
from torch import Tensor, nn
from torch.func import functional_call

from trainables import metrics
from trainables.config import TrialConfig
from trainables.loading.batches import DeviceSplit, mirrored_in_turn
from trainables.loading.trial_data import TrialData
from trainables.method import Batch, Task, check_loss
from trainables.methods.shared.entropy import entropy
from trainables.outputs.classifier import Classifier, batch_size
from trainables.outputs.predictions import Predictions
from trainables.outputs.train_entropy import TrainEntropy
from trainables.seeding import seed_of, stream
from trainables.training import program
from trainables.training.choices import Choices, Samples
from trainables.training.diagnostics import GROUPED, diagnostics, feature_norms
from trainables.training.modes import repeatable, to_host, without_counters


class Diverged(RuntimeError):
    """The loss is not finite; the message gives the epoch."""


class Measured(NamedTuple):
    """An epoch's values, perhaps still on the way: after `wait()` they are there."""

    epoch: int
    samples: int
    started: float  # by the monotonic clock
    names: list[str]
    values: Tensor
    wait: Callable[[], None]
    trials: int = 1  # that trained at once: the seconds are theirs together
    ended: float | None = None  # by the same clock; None: when it is read


class Place(NamedTuple):
    """A trial's place in a program of several."""

    program: program.Program
    row: int


class Best(TypedDict):
    """The best epoch so far, as `last.pt` has it."""

    score: float
    epoch: int
    weights: dict[str, Tensor]


class Learner:
    """Trains `config` on `data`. Equal configs give equal weights, resumed or not (CPU: bits).

    place: of a trial that is trained beside others, by a `Stack`.
    """

    def __init__(
        self,
        config: TrialConfig,
        data: TrialData,
        device: torch.device,
        place: Place | None = None,
    ) -> None:
        self.config = config
        self.data = data
        self.device = device
        self.epoch = 0
        self.history: list[dict[str, float]] = []
        self.best: Best | None = None
        self._last: Tensor | None = None  # validation logits of the epoch just trained
        self._unread: list[Measured] = []
        self._counted = 0.0  # the monotonic time until which the rows have counted seconds
        self.samples = 0  # training samples seen: of train, of meta, and when scoring train
        prepared = data.prepared
        self.train = data.train
        self._meta: DeviceSplit | None = None
        if config.method.needs_meta or config.equal_train:
            self.train, self._meta = data.with_meta(config.data.meta, config.seed)
        if place is None:
            network = program.new_network(config, data)
            if data.vectors is not None:
                network.take_vectors(data.vectors)
            network.adapt(lambda count: data.images_of(self.train.rows[:count]))
            place = Place(program.program_for(config, data, network, device), 0)
        self._program = place.program
        self.row = place.row
        self.network = self._program.networks[place.row]
        self.weights = self._program.weights
        self._method = self._program.weighed(config.method, self.train, place.row)
        # In a step a 0-dimensional tensor, like the learning rate.
        self.progress: float | Tensor = 0.0
        self.learning_rate: float | Tensor = config.optimizer.learning_rate(0.0)
        self._now: Choices | None = None  # of the current step
        generator = self.own_stream("method")
        self._rows = self.train.rows.to(device)
        self._labels = data.validation.labels.to(device)
        task = Task(
            prepared.num_classes, self._rows, device, generator, self.network, prepared.digest
        )
        state = {"method": config.method.start(task)}
        self.entropies: Tensor | None = None  # [epochs, train with meta], for `record:`
        if config.record == "train_entropy":
            self.entropies = torch.full((config.epochs, len(data.train)), torch.nan, device=device)
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

    @method_state.setter
    def method_state(self, state: Any) -> None:
        self._program.keep({**self._program.state, "method": state})

    @property
    def num_samples(self) -> int:
        """Size of train, without the meta split."""
        return len(self.train)

    def meta_batch(self) -> Batch:
        """This step's batch of meta, which is reshuffled each epoch and when it runs out."""
        assert self._meta is not None and self._now is not None, (
            "a method that uses meta batches must set needs_meta"
        )
        return self._meta.batch(self._now.meta)

    def apply(
        self, module: nn.Module, inputs: Tensor, weights: dict[str, Tensor] | None = None
    ) -> Tensor:
        """A module's output in the precision of training, as float32. weights: or its own."""
        compiled = self._program.compiled_features
        with self.autocast():
            if weights:
                output = functional_call(module, weights, (inputs,))
            elif compiled is not None and module is self.network:
                output = self.network.head(compiled(inputs))
            elif compiled is not None and module is self.network.features:
                output = compiled(inputs)
            else:
                output = module(inputs)
        return output.float()

    def own_stream(self, *names: str | int) -> torch.Generator:
        return stream(self.config.seed, self.config.number, *names)

    def autocast(self) -> AbstractContextManager[Any]:
        if self.config.precision == "float32":
            return nullcontext()
        return torch.autocast(self.device.type, torch.bfloat16)

    def train_logits(self) -> Tensor:
        """[num_samples, K]: the network's logits on train, evaluating, not augmented."""
        self.samples += len(self.train)
        with self.autocast():
            logits = self._logits(self.train)
        self.network.train()
        return logits

    def update(self, loss: Tensor) -> None:
        """Backward pass and one optimizer step at the current learning rate."""
        assert self._now is not None
        check_loss(self.config.method, loss)
        self.weights.backward(loss)
        self.weights.update(self._now.learning_rate)

    def train_epoch(self) -> dict[str, float]:
        """Train one epoch; its history row: epoch (from 1), time, seconds, train_loss, metrics.

        train_loss is the mean over batches: a smaller last one counts like the others. Raises
        Diverged if the loss is not finite.
        """
        self.advance()
        self.catch_up()
        return self.history[-1]

    def advance(self, settled: Callable[[], object] = lambda: None) -> None:
        """Train one epoch. On a GPU its row, or Diverged, may come only after the next one.

        settled: called once the network has the weights of the trial's result, if that is before
        their validation.
        """
        started = time.monotonic()
        preparation = self.own_stream("preparation", self.epoch)
        decided = self._decided(self.order(), preparation)
        steps = sum(choices.steps for choices in decided)
        self._program.loss.zero_()
        if "entropies" in self._program.state:
            self._program.state["entropies"].fill_(torch.nan)
        with self._training(steps):
            for choices in decided:
                self._program.run(
                    choices, lambda now: self._step(now, preparation), self._streamed(choices)
                )
                parts = filter(None, (choices.train, choices.meta))
                self.samples += sum(part["indices"].numel() for part in parts)
        if self.entropies is not None:
            self.entropies[self.epoch, self._rows] = self._program.state["entropies"]
        self.stand_after(self.epoch + 1)
        if self.finished and self.config.result == "last":
            settled()
        self._unread.append(self._measured(steps, started))
        if not program.captures(self.device) or self.finished or self.config.result != "last":
            self.catch_up()
        elif len(self._unread) > 1:
            self._read()

    def stand_after(self, epoch: int) -> None:
        """Be where training is after this many epochs, between two steps."""
        self.epoch = epoch
        self._now = None
        self.progress = epoch / self.epochs
        self.learning_rate = self.config.optimizer.learning_rate(self.progress)

    def catch_up(self) -> None:
        """Wait for the rows of all epochs trained."""
        while self._unread:
            self._read()

    def order(self) -> Tensor:
        """Of the epoch's samples, as the method has it."""
        generator = self.own_stream("order", self.epoch)
        return self.config.method.order(self, self.method_state, generator)

    def _decided(self, order: Tensor, preparation: torch.Generator) -> list[Choices]:
        """The epoch's choices: for its whole batches, and for the smaller one that is left."""
        return [self.chosen(each, preparation) for each in self.samples_in(order)]

    def chosen(self, samples: Samples, preparation: torch.Generator) -> Choices:
        """With what is the trial's own: its learning rate, and what the method draws."""
        rates = map(self.config.optimizer.learning_rate, samples.progress.tolist())
        steps, size = samples.train["indices"].shape
        drawn = self.config.method.draw(steps, size, preparation)
        learning_rate = torch.tensor(list(rates))
        return Choices(samples.progress, learning_rate, samples.train, samples.meta, drawn)

    def samples_in(self, order: Tensor) -> list[Samples]:
        """The epoch's batches."""
        augmentation = self.own_stream("augmentation", self.epoch)
        meta_stream = self.own_stream("meta", self.epoch)
        # Batch norm cannot train on a single leftover sample; without it, every network sees the
        # same batches.
        least = min(2, self.config.batch_size, len(order))
        batches = list(torch.split(order.cpu(), self.config.batch_size))
        if len(batches[-1]) < least:
            batches.pop()
        share = torch.arange(len(batches), dtype=torch.float64) / len(batches)
        progress = (self.epoch + share) / self.epochs
        mirrored = None
        if "alternating" in self.config.data.augment:
            mirrored = mirrored_in_turn(len(self.data.train), self.own_stream("flip"), self.epoch)
        meta = self._meta if self.config.method.needs_meta else None
        if meta is not None:
            meta_order = self._meta_order(len(batches), meta_stream)
        last = len(batches)
        if len(batches[-1]) < len(batches[0]):
            last -= 1
        decided = []
        for part in (slice(0, last), slice(last, None)):
            if own := batches[part]:
                train = self.train.decide(torch.stack(own), augmentation, mirrored)
                of_meta = {} if meta is None else meta.decide(meta_order[part], meta_stream)
                decided.append(Samples(progress[part], train, of_meta))
        return decided

    def _meta_order(self, steps: int, generator: torch.Generator) -> Tensor:
        """[steps, M] indices into meta: reshuffled each epoch, and when it runs out."""
        assert self._meta is not None
        size = min(self.config.method.meta_size(self.config.batch_size), len(self._meta))
        rounds = -(-steps * size // len(self._meta))
        orders = [torch.randperm(len(self._meta), generator=generator) for _ in range(rounds)]
        return torch.cat(orders)[: steps * size].view(steps, size)

    def _streamed(self, choices: Choices) -> Callable[[int], dict[str, Tensor]] | None:
        """The images of a step by its index, under the part of the data they are of."""
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
        method = self._method
        state = self._program.state
        self._now = now
        self.progress = now.progress
        self.learning_rate = now.learning_rate
        if not method.tensors_only:
            self.progress = float(now.progress)
            self.learning_rate = float(now.learning_rate)
        batch = self.train.batch(now.train)._replace(drawn=now.method)
        batch = method.prepare(batch, preparation)
        loss, logits, of_method = method.step(self, state["method"], batch)
        of_method = method.observe(of_method, batch, logits)
        if "entropies" in state:
            state["entropies"].index_copy_(0, batch.indices, entropy(logits.float()))
        return loss, {**state, "method": of_method}

    @contextmanager
    def _training(self, steps: int) -> Iterator[None]:
        """Training mode, with the global generator, which dropout uses, seeded by epoch."""
        seed = seed_of(self.config.seed, self.config.number, "modules", self.epoch)
        self.network.train()
        on_gpu = self.device.type == "cuda"
        own_random = torch.random.fork_rng(devices=[self.device] if on_gpu else [])
        counters = without_counters(self.network, steps)
        with repeatable(self.config.deterministic), own_random, counters:
            # torch.manual_seed seeds all devices, in a millisecond.
            torch.default_generator.manual_seed(seed)
            if on_gpu:
                torch.cuda.manual_seed(seed)
            yield

    def _measured(self, steps: int, started: float) -> Measured:
        """The measurements of the epoch just trained, on their way from device to host."""
        with self.autocast(), feature_norms(self.network, self.config.diagnostics) as norms:
            logits = self._logits(self.data.validation)
        values: dict[str, float | Tensor] = {"train_loss": self._program.loss / steps}
        # All other metrics are measured once, on the trial's result.
        values |= {name: metrics.find(name)(logits, self._labels) for name in metrics.ESSENTIAL}
        values |= self.config.method.measured(self.method_state)
        if self.config.diagnostics:
            values |= diagnostics(self._predictions(logits), self.network, norms)
        self._last = logits
        as_float64 = partial(torch.as_tensor, dtype=torch.float64, device=self.device)
        there, wait = to_host(torch.stack(list(map(as_float64, values.values()))))
        return Measured(self.epoch, self.samples, started, list(values), there, wait)

    def _read(self) -> None:
        row = self._row(self._unread.pop(0))
        self.history.append(row)
        self._keep_best(row)

    def _row(self, measured: Measured) -> dict[str, float]:
        measured.wait()
        values = dict(zip(measured.names, measured.values.tolist(), strict=True))
        now = time.monotonic() if measured.ended is None else measured.ended
        for name, value in (("loss", values["train_loss"]), ("validation nll", values["nll"])):
            if not math.isfinite(value):
                where = f"at epoch {measured.epoch} (optimizer.lr={self.config.optimizer.lr:g})"
                raise Diverged(f"{name} is {value:g} {where}")
        for name in GROUPED:  # of no prediction
            if math.isnan(values.get(name, 0.0)):
                del values[name]
        # Epochs that overlap: each second is counted once.
        since = max(measured.started, self._counted)
        self._counted = now
        return {
            "epoch": measured.epoch,
            "time": time.time(),
            "seconds": (now - since) / measured.trials,
            "samples": measured.samples,
            **values,
        }

    def take(self, measured: Measured, logits: Tensor) -> None:
        """The epoch that a stack has trained. Raises Diverged. logits: [N, K], of validation."""
        self._last = logits
        self._unread.append(measured)
        self.catch_up()

    def _keep_best(self, row: dict[str, float]) -> None:
        """Keep the weights of the best epoch so far (the first of equals), if `result` asks."""
        if self.config.result == "last":
            return
        metric = self.config.result.removeprefix("best_")
        score = -metrics.describe(metric).sign * row[metric]
        if self.best is None or score > self.best["score"]:
            weights = {name: value.clone() for name, value in self.network.state_dict().items()}
            self.best = {"score": score, "epoch": self.epoch, "weights": weights}

    def predict(self) -> Predictions:
        """Validation predictions of the current network, in evaluation mode, on the CPU."""
        return self._predictions(self._logits(self.data.validation).cpu())

    def _predictions(self, logits: Tensor) -> Predictions:
        labels, groups = self.data.validation.labels, self.data.validation.groups
        return Predictions(logits, labels.to(logits.device), groups, by_network=True)

    def _logits(self, split: DeviceSplit) -> Tensor:
        """[N, K] float32 of a split, or of its rows, in evaluation mode, on the device."""
        self.network.eval()
        logits = []
        positions = split.positions
        inputs = self.data.prepared.input_shape
        size = batch_size(inputs, positions is not None, inputs.words > 0)
        with torch.inference_mode():
            for start in range(0, len(split), size):
                found = self.network(split.images(start, start + size))
                logits.append(found if positions is None else positions.at(found, start))
        return torch.cat(logits).float()

    def take_result(self) -> int:
        """Load the weights of the trial's result into the network; returns their epoch."""
        if self.best is None:
            return self.epoch
        self.network.load_state_dict(self.best["weights"])
        self._last = None
        return self.best["epoch"]

    def predictions(self) -> Predictions:
        """`predict` as stored: in float32, without TF32. On a CPU the last epoch may have it."""
        as_stored = self.device.type == "cpu" and self.config.precision == "float32"
        if self._last is not None and as_stored:
            return self._predictions(self._last)
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
            return self.predict()

    @property
    def eager_because(self) -> str | None:
        """Why its steps are not captured in a CUDA graph; None: they are, or will be."""
        return self._program.eager_because

    def facts(self) -> dict[str, str]:
        """The ways of training: precision, step, features, the samples' place, device."""
        device = self.device.type
        if device == "cuda":
            device = torch.cuda.get_device_name(self.device)
        return {
            "precision": self.config.precision,
            "step": "captured" if self._program.is_captured else "eager",
            "features": "compiled" if self._program.compiled_features else "eager",
            self.data.prepared.input_shape.noun: self.train.place,
            "device": device,
        }

    def leave(self) -> None:
        """Give the program to the next trial of this process; the learner is then at its end."""
        program.leave(self._program)

    def part(self) -> None:
        """Take weights of its own, in place of views of what a stack shares: it trains no more."""
        for each in self.network.parameters():
            each.data = each.data.clone()

    def recorded(self) -> TrainEntropy | None:
        """The values that `record:` requested, over all epochs."""
        if self.entropies is None:
            return None
        return TrainEntropy(self.entropies, self.data.prepared.digest)

    def classifier(self) -> Classifier:
        """The trained model on the CPU, which takes over the network; temperature 1 for now."""
        prepared = self.data.prepared
        kind = prepared.input_shape.kind
        return Classifier(self.network, prepared.mean, prepared.std, kind=kind)
