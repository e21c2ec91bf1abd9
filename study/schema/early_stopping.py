"""`early_stopping:` of a study: which of a method's trials are trained to their end."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution

from study.schema.paths import searchable_paths
from trainables.config import TrialConfig, value_at
from trainables.fields import Settings, choices, number
from trainables.metrics import ESSENTIAL
from trainables.optimizer import RISES
from trainables.problems import FieldError

Searched = Mapping[str, BaseDistribution]


@dataclass(frozen=True)
class EarlyStopping(Settings):
    """After a share of the epochs, a trial goes on if it is among its method's best so far."""

    at: float = number(
        0.4, above=0, below=1, doc="share of the epochs after which a trial is judged"
    )
    keep: float = number(0.5, above=0, below=1, doc="share of a method's trials that go on")
    by: tuple[str, ...] = choices(
        ("brier", "ece"),
        *ESSENTIAL,
        of="metrics measured each epoch",
        doc="what orders them, by Pareto dominance",
    )

    def epoch(self, epochs: int) -> int:
        """The rung: the epoch after which a trial of so many epochs is judged."""
        return max(1, round(self.at * epochs))

    def in_words(self, epochs: int) -> str:
        share = f"{100 * self.keep:.3g}%"
        best = f"among the best {share} of its method's so far by {' and '.join(self.by)}"
        never = "cross-entropy, and what is tried first, are never stopped"
        rung = f"after epoch {self.epoch(epochs)} of {epochs}"
        return f"{rung} a trial goes on if it is {best}; {never}"

    def check(self, epochs: int, trials: Mapping[str, tuple[TrialConfig, Searched]]) -> None:
        """Raise FieldError if it would save nothing, or judge where a method's order does not tell.

        trials: by label, what is fixed and what is searched.
        """
        epoch = self.epoch(epochs)
        rung = f"epoch {epoch} of {epochs}"
        if epoch >= epochs:
            mend = "Lower it." if epochs > 1 else "Remove early_stopping."
            raise FieldError("at", f"{rung} is the last: stopping there saves nothing", mend)
        for label, (trial, searched) in trials.items():
            for path, share in _warm_ups(trial, searched):
                if epoch < share * epochs - 1e-9:
                    after = math.ceil(share * epochs - 1e-9) / epochs
                    raise FieldError(
                        "at",
                        f"{rung} is within the warm-up of {label} ({path}, {share:g} of them)",
                        f"Write {after:.3g} or more, or shorten the warm-up.",
                    )
            drop = _first_drop(trial, searched)
            if drop is not None and epoch <= drop * epochs + 1e-9:
                after = (math.floor(drop * epochs + 1e-9) + 1) / epochs
                raise FieldError(
                    "at",
                    f"{rung} comes before the learning rate's first drop in {label}"
                    f" (optimizer.steps, {drop:g}), where ECE does not rank trials reliably",
                    f"Write {after:.3g} or more." if after < 1 else "Remove early_stopping.",
                )


def _first_drop(trial: TrialConfig, searched: Searched) -> float | None:
    """The latest first drop, as a share of training; None without steps.

    Before it the order does not last: benchmarks/results/stopping.md.
    """
    if "steps" not in _values(trial, searched, "optimizer.schedule"):
        return None
    return max(min(steps, default=0.0) for steps in _values(trial, searched, "optimizer.steps"))


def _warm_ups(trial: TrialConfig, searched: Searched) -> Iterator[tuple[str, float]]:
    """The longest of each warm-up of a trial, as a share of training."""
    for path in searchable_paths(trial):
        if path.endswith(".warmup"):
            yield path, max(_values(trial, searched, path))
    for schedule in _values(trial, searched, "optimizer.schedule"):
        yield f"optimizer.schedule: {schedule}", RISES.get(schedule, 0.0)


def _values(trial: TrialConfig, searched: Searched, path: str) -> list[Any]:
    """The values a path may have; of a range its highest."""
    found = searched.get(path)
    if isinstance(found, CategoricalDistribution):
        return list(found.choices)
    if isinstance(found, FloatDistribution):
        return [found.high]
    return [value_at(trial, path)]
