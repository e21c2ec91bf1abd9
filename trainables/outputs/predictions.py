"""Predictions: models and devices before them, pure functions on small arrays after them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import InitVar, dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from trainables import metrics
from trainables.files.arrays import array_headers, read_arrays, write_arrays
from trainables.groups import renumbered
from trainables.kinds import count_of
from trainables.metrics.shared import post_hoc
from trainables.outputs.probabilities import PYTHON, Door, as_probs, refuse_probs
from trainables.problems import FieldError, nearest

# Bytes a value beside the array that `evaluate` takes, as measured: casts to float64, a logarithm,
# softmaxes of both.
WORKING = {"logits": 96, "probs": 96, "labels": 16, "groups": 48}
WANTED = "an npz with `logits` or `probs`, and `labels`"
TABLES = (".csv", ".parquet")
Normalized = Callable[[float], object]


class Scores(NamedTuple):
    """Logits [N, K]; the probabilities, if these were given: the logits are their logarithms."""

    logits: Tensor
    probs: Tensor | None


@dataclass(frozen=True)
class Predictions:
    """logits: [N, K] float32 (or float64). labels: [N] int64, in [0, K).

    groups: [N] int64, numbered by first appearance: samples that belong together; None: each by
    itself. probs: [N, K] floating, in place of logits, `Predictions(probs=p, labels=y)`: metrics
    bin them as they are, and the logits are their logarithms, float64 (of 0: -inf; if it is the
    label's, the NLL is infinite). by_network: whether a network gave the logits here.

    Raises FieldError for logits that are probabilities (of a network's own, nothing is asked), and
    for probabilities that are none.
    """

    logits: Tensor = None  # type: ignore[assignment]  # of `probs`, where those are given
    labels: Tensor = None  # type: ignore[assignment]
    groups: Tensor | None = None
    probs: Tensor | None = None
    by_network: InitVar[bool] = False

    def __post_init__(self, by_network: bool) -> None:
        if self.labels is None or (self.logits is None) == (self.probs is None):
            raise FieldError("", "Predictions takes labels, and either logits or probs")
        if self.probs is not None:
            as_probs(self.probs, PYTHON)
            object.__setattr__(self, "logits", self.probs.double().log())
        elif not by_network:
            refuse_probs(self.logits, PYTHON)

    def evaluate(self, bins: int = 15, also: Collection[str] = ()) -> dict[str, float]:
        """The metrics every trial stores, and as `ts_` those of cross-fitted temperatures.

        also: further metrics to compute, by name (`skce`, `ts_skce`); any of `metrics.names()`.
        """
        return self._evaluate(self.cross_fitted(), bins, also)

    def evaluate_at(
        self, temperature: float, bins: int = 15, also: Collection[str] = ()
    ) -> dict[str, float]:
        """The metrics at a temperature fitted on other samples."""
        return self._evaluate(self.logits.double() / temperature, bins, also)

    def essential_at(self, temperature: float) -> dict[str, float]:
        """The essential metrics, and as `ts_` those at a temperature fitted on other samples."""
        found = metrics.measure(self.logits, self.labels, metrics.ESSENTIAL, probs=self.probs)
        scaled = self.logits.double() / temperature
        after = metrics.measure(scaled, self.labels, metrics.ESSENTIAL)
        prefix = metrics.AFTER_TEMPERATURE
        return {**found, **{prefix + name: value for name, value in after.items()}}

    def cross_fitted(self) -> Tensor:
        """The logits [N, K], each scaled by a temperature fitted on other samples."""
        return post_hoc.cross_fitted(self.logits, self.labels, groups=self.groups)

    def temperature(self) -> float:
        """The temperature fitted to all samples."""
        return post_hoc.fit_temperature(self.logits, self.labels)

    def _evaluate(self, calibrated: Tensor, bins: int, also: Collection[str]) -> dict[str, float]:
        prefix = metrics.AFTER_TEMPERATURE
        also_after = [name.removeprefix(prefix) for name in also if name.startswith(prefix)]
        after = metrics.measure_stored(calibrated, self.labels, bins, also_after)
        return {
            **metrics.measure_stored(self.logits, self.labels, bins, also, calibrated, self.probs),
            **{prefix + name: value for name, value in after.items()},
        }

    def save(self, path: Path) -> str:
        """Write `path` (npz) atomically; returns its sha256."""
        name = "logits" if self.probs is None else "probs"
        arrays = {name: getattr(self, name).cpu().numpy(), "labels": self.labels.cpu().numpy()}
        if self.groups is not None:
            arrays["groups"] = self.groups.cpu().numpy()
        return write_arrays(path, arrays)

    @classmethod
    def load(cls, path: Path, normalized: Normalized | None = None) -> Predictions:
        """Read an npz with `logits` or `probs`, `labels` and perhaps `groups`, or a csv or parquet
        file with columns `label`, `logit_0`, ... or `prob_0`, ... and perhaps `group`.

        normalized: as in `as_probs`, of a file with probabilities. Raises FieldError, also for
        logits that are probabilities.
        """
        found = cls.stored(path, normalized)
        if found.probs is None:
            refuse_probs(found.logits, _door(path, found.logits.shape[1]))
        return found

    @classmethod
    def stored(cls, path: Path, normalized: Normalized | None = None) -> Predictions:
        """`load` of what a study stored: its logits are a network's own, and are not looked at."""
        arrays = _arrays(path)
        scores = _scores(path, arrays, normalized)
        labels = _labels(path, arrays["labels"], *scores.shape)
        groups = None
        if "groups" in arrays:
            groups = _groups(path, arrays["groups"], len(scores))
        if "logits" in arrays:
            return cls(scores, labels, groups, by_network=True)
        return cls(labels=labels, groups=groups, probs=scores)


def load_scores(path: Path, normalized: Normalized | None = None) -> Scores:
    """What `Predictions.load` reads of a file without its labels, which may be of other classes."""
    arrays = _arrays(path, labelled=False)
    scores = _scores(path, arrays, normalized)
    if "logits" not in arrays:
        return Scores(scores.double().log(), scores)
    refuse_probs(scores, _door(path, scores.shape[1]))
    return Scores(scores, None)


def has_groups(path: Path) -> bool:
    """Whether a file as `Predictions.load` reads it says which samples belong together."""
    if path.suffix.lower() in TABLES:
        from trainables.outputs.prediction_tables import table_has_groups

        return table_has_groups(path)
    return "groups" in array_headers(path, WANTED)


def _arrays(path: Path, labelled: bool = True) -> dict[str, np.ndarray]:
    """`logits` or `probs`, `labels` if labelled, `groups` if there are any; nothing of them is
    checked. Raises FieldError naming all that the file lacks."""
    if path.suffix.lower() in TABLES:
        from trainables.outputs.prediction_tables import table_arrays

        return table_arrays(path, labelled)
    # What a study keeps is an npz; of another's file, any kind may be meant.
    wanted = WANTED if path.suffix == ".npz" else f"{WANTED}, or a csv or parquet file"
    arrays = read_arrays(path, wanted, working=WORKING)
    names = sorted(arrays)
    lacking = (
        {} if {"logits", "probs"} & arrays.keys() else {"logits": "neither 'logits' nor 'probs'"}
    )
    if labelled and "labels" not in arrays:
        lacking["labels"] = "no array 'labels'"
    if labelled and "group" in arrays and "groups" not in arrays:
        lacking["groups"] = "an array 'group', which must be called 'groups'"
    if lacking:
        mend = f"It has {', '.join(names) or 'no arrays'}. Give {wanted}."
        if len(lacking) == 1:
            mend = nearest(next(iter(lacking)), names)
        raise FieldError(str(path), f"has {', and '.join(lacking.values())}", mend)
    return arrays


def _door(path: Path, num_classes: int) -> Door:
    is_table = path.suffix.lower() in TABLES
    logits = "the columns 'logit_0', 'logit_1', ..." if is_table else "the array 'logits'."
    probs = "the columns 'prob_0', 'prob_1', ..." if is_table else "the array 'probs'."
    return Door(
        str(path),
        f"'prob_0' to 'prob_{num_classes - 1}'" if is_table else "'probs'",
        f"If they are logits, name {logits}",
        f"Name {probs}",
        "If they were rounded, --normalize divides each row by its sum.",
    )


def _scores(path: Path, arrays: dict[str, np.ndarray], normalized: Normalized | None) -> Tensor:
    """The logits, or the probabilities in their own dtype, [N, K]."""
    name = "logits" if "logits" in arrays else "probs"
    scores = torch.from_numpy(np.ascontiguousarray(_checked(path, name, arrays[name])))
    if name == "probs":
        return as_probs(scores, _door(path, scores.shape[1]), normalized)
    if normalized is not None:
        mend = "Leave out --normalize; it is for probabilities."
        raise FieldError(str(path), "has logits", mend)
    return scores.float() if scores.dtype == torch.float16 else scores


def _labels(path: Path, labels: np.ndarray, num_samples: int, num_classes: int) -> Tensor:
    where = str(path)
    is_number = np.issubdtype(labels.dtype, np.integer) or np.issubdtype(labels.dtype, np.floating)
    if labels.shape != (num_samples,) or not is_number:
        found = f"{labels.dtype} {list(labels.shape)}"
        raise FieldError(where, f"'labels' must be integers [{num_samples}], got {found}")
    if len(broken := np.flatnonzero(~np.isfinite(labels) | (labels != np.floor(labels)))):
        found = f"'labels' must be whole numbers, got {labels[broken[0]]} in row {broken[0]}"
        raise FieldError(where, found, "A label is the number of a class, from 0.")
    labels = labels.astype(np.int64)
    if len(others := np.flatnonzero((labels < 0) | (labels >= num_classes))):
        found = f"{labels[others[0]]} in row {others[0]}"
        raise FieldError(where, f"'labels' must lie in 0..{num_classes - 1}, got {found}")
    return torch.from_numpy(labels)


def _groups(path: Path, groups: np.ndarray, num_samples: int) -> Tensor:
    """The groups, renumbered by first appearance. Raises FieldError."""
    where = str(path)
    is_text = groups.dtype.kind == "U"
    if groups.shape != (num_samples,) or not (is_text or groups.dtype.kind in "iu"):
        found = f"{groups.dtype} {list(groups.shape)}"
        mend = "Give each sample the number or the name of its group."
        raise FieldError(
            where, f"'groups' must be whole numbers or text [{num_samples}], got {found}", mend
        )
    if is_text and len(missing := np.flatnonzero(np.char.strip(groups) == "")):
        found = f"'groups' is empty in {count_of(len(missing), 'rows')}, e.g. row {missing[0]}"
        raise FieldError(where, found, "Name the group of every sample.")
    return torch.from_numpy(renumbered(groups))


def _checked(path: Path, name: str, scores: np.ndarray) -> np.ndarray:
    where = str(path)
    if scores.ndim != 2 or scores.shape[1] < 2 or not np.issubdtype(scores.dtype, np.floating):
        found = f"{scores.dtype} {list(scores.shape)}"
        raise FieldError(where, f"'{name}' must be float [N, K] with K >= 2, got {found}")
    if len(scores) == 0:
        raise FieldError(where, f"'{name}' is empty")
    if not np.isfinite(scores).all():
        rows = (~np.isfinite(scores)).any(1).sum()
        raise FieldError(where, f"'{name}' has NaN or infinite values in {rows} rows")
    return scores
