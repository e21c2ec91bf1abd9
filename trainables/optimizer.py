"""The update rule's settings, and the learning rate as a pure function of progress in [0, 1]."""

import math
from dataclasses import dataclass

from trainables.fields import Settings, choice, number, numbers, read_by, setting

# PyTorch's one-cycle schedule: the fraction of training in which it rises, from lr / 25,
# then down to lr / 250,000.
RISE, FIRST, LAST = 0.3, 1 / 25, 1 / 25e4
# The triangular schedule of airbench94: the fraction of training in which it rises, and
# where it begins and ends.
PEAK, FOOT, END = 0.23, 0.2, 0.07
# The fraction of training in which a schedule rises.
RISES = {"one_cycle": RISE, "triangular": PEAK}


@dataclass(frozen=True)
class Optimizer(Settings):
    """Update rule and learning rate schedule, as PyTorch defines them. Adam
    uses its published betas; AdaGrad (Duchi et al. 2011) starts from no squares."""

    name: str = choice("sgd", "adam", "adamw", "adagrad", doc="update rule")
    lr: float = number(0.1, above=0, doc="learning rate, the schedule's maximum")
    momentum: float = read_by(number(0.9, low=0, below=1, doc="SGD only"), name="sgd")
    weight_decay: float = number(5.0e-4, low=0, doc="L2 penalty; decoupled in adamw")
    schedule: str = choice(
        *("cosine", "constant", "steps", "one_cycle", "triangular"), doc="learning rate schedule"
    )
    steps: tuple[float, ...] = read_by(
        numbers((0.5, 0.75), above=0, below=1, doc="for `steps`: fractions of training at drops"),
        schedule="steps",
    )
    factor: float = read_by(
        number(0.1, above=0, below=1, doc="for `steps`: factor applied at each drop"),
        schedule="steps",
    )
    warmup: float = number(
        0.0, low=0, below=1, doc="fraction of training with a linear rise from 0"
    )
    clip: float | None = number(
        None, above=0, doc="maximum norm of the gradient; null: no clipping"
    )
    nesterov: bool = read_by(setting(False, doc="SGD only: Nesterov momentum"), name="sgd")
    bias_lr_factor: float = read_by(
        number(
            1.0,
            above=0,
            doc=(
                "SGD only: factor on the lr of biases; their weight decay in an update does not"
                " grow with it"
            ),
        ),
        name="sgd",
    )

    @property
    def moments(self) -> int:
        """The numbers it keeps of each weight: momentum or a sum of squares, or Adam's two."""
        return 2 if self.name in ("adam", "adamw") else 1

    def learning_rate(self, progress: float) -> float:
        """lr at a fraction of training done. `warmup` rises linearly from 0 to the
        schedule's value at its end."""
        if progress < self.warmup:
            return self._scheduled(self.warmup) * progress / self.warmup
        return self._scheduled(progress)

    def _scheduled(self, progress: float) -> float:
        """Cosine: Loshchilov & Hutter 2017, one period, to 0. One cycle: Smith & Topin
        2018 as in PyTorch, two half
        cosines, constant momentum. Triangular: airbench94 (Jordan 2024), a line up and a line down.
        """
        if self.schedule == "constant":
            return self.lr
        if self.schedule == "steps":
            return self.lr * self.factor ** sum(progress >= step for step in self.steps)
        if self.schedule == "one_cycle":
            if progress < RISE:
                return self.lr * _half_cosine(FIRST, 1.0, progress / RISE)
            return self.lr * _half_cosine(1.0, LAST, (progress - RISE) / (1.0 - RISE))
        if self.schedule == "triangular":
            share = progress / PEAK if progress < PEAK else (1.0 - progress) / (1.0 - PEAK)
            return self.lr * ((FOOT if progress < PEAK else END) * (1.0 - share) + share)
        return self.lr * _half_cosine(1.0, 0.0, progress)


def _half_cosine(first: float, last: float, share: float) -> float:
    return last + (first - last) * 0.5 * (1.0 + math.cos(math.pi * share))
