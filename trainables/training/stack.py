"""A stack: several trials that train as one program. No Ray here."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from trainables import metrics
from trainables.config import TrialConfig
from trainables.loading.batches import DeviceSplit
from trainables.loading.trial_data import TrialData
from trainables.outputs.classifier import PREDICTION_BATCH
from trainables.stacks import likeness, loss_key, why_alone
from trainables.training import program
from trainables.training.choices import Choices
from trainables.training.learner import Diverged, Learner, Measured, Place
from trainables.training.modes import repeatable, to_host
from trainables.vectorized import for_each


class Stack:
    """Trains trials of equal `likeness` on `data`. `rows` are their learners, in the order given.

    Equal configs give equal weights, in any order (CPU: bits); alone they differ by rounding. A row
    that diverged, or was dropped, is no longer in `training`: its place trains on, and nobody reads
    it.
    """

    def __init__(
        self, configs: Sequence[TrialConfig], data: TrialData, device: torch.device
    ) -> None:
        assert len(configs) > 1, "a trial by itself is trained by its Learner"
        for config in configs:
            assert why_alone(config) is None, why_alone(config)
            assert likeness(config) == likeness(configs[0])
        order = sorted(range(len(configs)), key=lambda place: _in_order(configs[place]))
        trials = [(configs[place], program.new_network(configs[place], data)) for place in order]
        (config, network), *others = trials
        self._program = program.program_for(config, data, network, device, others)
        assert self._program.stacked is not None
        self._step = self._program.stacked
        self._rows = [
            Learner(config, data, device, Place(self._program, row))
            for row, (config, _) in enumerate(trials)
        ]
        self.rows = [self._rows[order.index(place)] for place in range(len(configs))]
        self.training = list(self.rows)
        self._first = self._rows[0]
        self._labels = data.validation.labels.to(device)

    @property
    def epoch(self) -> int:
        return self._first.epoch

    @property
    def finished(self) -> bool:
        return self._first.finished or not self.training

    def advance(self) -> dict[Learner, Diverged]:
        """Train one epoch. Returns what ended rows."""
        started = time.monotonic()
        decided = self._decided()
        steps = sum(choices.steps for choices in decided)
        self._program.loss.zero_()
        with repeatable(self._first.config.deterministic):
            for choices in decided:
                self._program.run(choices, self._take, self._streamed(choices))
        for row in self._rows:
            row.samples += sum(choices.train["indices"][:, 0].numel() for choices in decided)
            row.stand_after(row.epoch + 1)
        return self._measure(steps, started)

    def drop(self, row: Learner) -> None:
        """Do not read a row any more."""
        self.training.remove(row)

    def _decided(self) -> list[Choices]:
        """The epoch's choices of all rows: for its whole batches, and for the one that is left."""
        # Trials of a number see the same samples.
        of_numbers = {row.config.number: row for row in self._rows}
        samples = {number: row.samples_in(row.order()) for number, row in of_numbers.items()}
        of_rows = []
        for row in self._rows:
            preparation = row.own_stream("preparation", row.epoch)
            of_rows.append([row.chosen(each, preparation) for each in samples[row.config.number]])
        return [self._step.together(own) for own in zip(*of_rows, strict=True)]

    def _streamed(self, choices: Choices) -> Callable[[int], dict[str, Tensor]] | None:
        split = self._first.train
        if split.place != "streamed":
            return None
        rows = choices.train["rows"]
        return lambda step: {"train": split.gather(rows[step].flatten())}

    def _take(self, now: Choices) -> tuple[Tensor, Any]:
        losses = self._step.take(now, self._first.train, self._first.autocast())
        return losses, self._program.state

    def _measure(self, steps: int, started: float) -> dict[Learner, Diverged]:
        """Measure the epoch just trained, for all rows at once."""
        logits = self._logits(self._first.data.validation)
        labels = self._labels
        values = {"train_loss": self._program.loss / steps}
        for name in metrics.ESSENTIAL:
            values[name] = for_each(metrics.find(name), logits, labels, in_dims=(0, None))
        found = torch.stack([each.double() for each in values.values()], 1)
        there, wait = to_host(found)
        wait()
        now = time.monotonic()  # the same for all
        ended = {}
        count = len(self.training)
        for row in list(self.training):
            measured = Measured(
                row.epoch, row.samples, started, list(values), there[row.row], wait, count, now
            )
            try:
                row.take(measured, logits[row.row])
            except Diverged as error:
                self.drop(row)
                ended[row] = error
        return ended

    def _logits(self, split: DeviceSplit) -> Tensor:
        """[R, N, C] float32 of a split, for all rows."""
        config = self._first.config
        # What the layers make of them takes no more memory than a training step.
        size = max(config.batch_size, PREDICTION_BATCH // len(self._rows))
        found = []
        with torch.inference_mode(), self._first.autocast():
            for start in range(0, len(split), size):
                found.append(self._step.predicted(split.images(start, start + size)))
        return torch.cat(found, 1)

    def leave(self) -> None:
        """Give the program to the next stack of this process; the rows are then at their end."""
        program.leave(self._program)


def _in_order(config: TrialConfig) -> tuple[str, str]:
    """By which rows are ordered: those of a method are beside each other."""
    return loss_key(config), json.dumps(config.to_mapping(), sort_keys=True)
