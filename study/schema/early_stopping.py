"""`early_stopping:` of a study: which of a method's trials are trained to their end."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution

from study.schema.paths import searchable_paths
from trainables.config import TrialConfig, value_at
from trainables.fields import FieldError, Settings, choices, number
from trainables.metrics import ESSENTIAL
from trainables.optimizer import RISES

Searched = Mapping[str, BaseDistribution]


@dataclass(frozen=True)
class EarlyStopping(Settings):
    """After a share of the epochs, a trial goes on if it is among the best of its method that came so far."""

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
        best = f"among the best {100 * self.keep:.3g}% of its method's so far by {' and '.join(self.by)}"
        never = "cross-entropy, and what is tried first, are never stopped"
        return (
            f"after epoch {self.epoch(epochs)} of {epochs} a trial goes on if it is {best}; {never}"
        )

    def check(self, epochs: int, trials: Mapping[str, tuple[TrialConfig, Searched]]) -> None:
        """Raise FieldError if it would save nothing, or judge a method where its order does not tell.

        trials: by label, what is fixed and what is searched.
        """
        epoch = self.epoch(epochs)
        if epoch >= epochs:
            mend = "Lower it." if epochs > 1 else "Remove early_stopping."
            raise FieldError(
                "at", f"epoch {epoch} of {epochs} is the last: stopping there saves nothing. {mend}"
            )
        for label, (trial, searched) in trials.items():
            for path, share in _warm_ups(trial, searched):
                if epoch < share * epochs - 1e-9:
                    after = math.ceil(share * epochs - 1e-9) / epochs
                    problem = f"epoch {epoch} of {epochs} is within the warm-up of {label} ({path}, {share:g} of them)"
                    raise FieldError(
                        "at", f"{problem}. Write {after:.3g} or more, or shorten the warm-up."
                    )
            # Before the first drop the order does not last: benchmarks/RESULTS.md, "Search and early stopping".
            if "steps" in _values(trial, searched, "optimizer.schedule"):
                drop = max(
                    min(steps, default=0.0) for steps in _values(trial, searched, "optimizer.steps")
                )
                if epoch <= drop * epochs + 1e-9:
                    problem = f"epoch {epoch} of {epochs} comes before the learning rate's first drop in {label}"
                    after = (math.floor(drop * epochs + 1e-9) + 1) / epochs
                    mend = f"Write {after:.3g} or more" if after < 1 else "Remove early_stopping"
                    raise FieldError(
                        "at",
                        f"{problem} (optimizer.steps, {drop:g}), where ECE does not rank trials reliably. {mend}.",
                    )


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
    return [found.high] if isinstance(found, FloatDistribution) else [value_at(trial, path)]
