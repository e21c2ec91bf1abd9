"""Predictions: models and devices before them, pure functions on small arrays after them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import InitVar, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from trainables import metrics
from trainables.files.arrays import array_headers, read_arrays, write_arrays
from trainables.groups import renumbered
from trainables.kinds import count_of
from trainables.outputs.array_checks import (
    array_of,
    class_numbers,
    finite,
    numbers_of,
    refuse_negative,
    refuse_other_order,
)
from trainables.outputs.probabilities import PYTHON, Door, as_probs, refuse_probs
from trainables.problems import FieldError, nearest

if TYPE_CHECKING:
    import torch
    from torch import Tensor

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


class GivenProbs(NamedTuple):
    """Probabilities [N, K] in place of logits: metrics bin them as they are."""

    values: np.ndarray  # floating; float32 for bfloat16, which NumPy has not
    is_bfloat16: bool = False

    def edges(self, bins: int) -> np.ndarray:
        """The inner edges of equal-width bins as these values have them, [bins - 1] float64: see
        `metrics.binned`."""
        edges = (np.arange(1, bins) / bins).astype(self.values.dtype)
        if self.is_bfloat16:
            bits = edges.view(np.uint32)
            bits += 0x7FFF + ((bits >> 16) & 1)
            bits &= 0xFFFF0000
        return edges.astype(np.float64)


class Arrays(NamedTuple):
    """Predictions without torch, which takes a second to import: for what only reads."""

    logits: np.ndarray  # [N, K] float32 or float64
    labels: np.ndarray  # [N] int64
    groups: np.ndarray | None
    given: GivenProbs | None

    @classmethod
    def of(
        cls, scores: np.ndarray, are_logits: bool, labels: np.ndarray, groups: np.ndarray | None
    ) -> Arrays:
        """Those of checked scores: logits, or probabilities."""
        if are_logits:
            return cls(scores, labels, groups, None)
        with np.errstate(divide="ignore"):
            return cls(np.log(scores.astype(np.float64)), labels, groups, GivenProbs(scores))


def _none() -> Any:
    return None


@dataclass(frozen=True)
class Predictions:
    """logits: [N, K] float32 (or float64). labels: [N] int64, in [0, K).

    groups: [N] int64, numbered by first appearance: samples that belong together; None: each by
    itself. probs: [N, K] floating, in place of logits, `Predictions(probs=p, labels=y)`: metrics
    bin them as they are, and the logits are their logarithms, float64 (of 0: -inf; if it is the
    label's, the NLL is infinite). by_network: whether a network gave the logits here.

    `Predictions.of` takes other types; `arrays` has the same without torch. Raises FieldError for
    other types, for logits that are probabilities (a network's own may be), and for probabilities
    that are none.
    """

    # Factories leave no attribute of the class: `__getattr__` is asked for what was read.
    logits: Tensor = field(default_factory=_none)  # of `probs`, where those are given
    labels: Tensor = field(default_factory=_none)
    groups: Tensor | None = field(default_factory=_none)
    probs: Tensor | None = field(default_factory=_none)
    by_network: InitVar[bool] = False

    def __post_init__(self, by_network: bool) -> None:
        if self.labels is None or (self.logits is None) == (self.probs is None):
            raise FieldError("", "Predictions takes labels, and either logits or probs")
        self._check_types()
        if self.probs is not None:
            as_probs(array_of("probs", self.probs), PYTHON)
            object.__setattr__(self, "logits", self.probs.double().log())
        elif not by_network:
            refuse_probs(array_of("logits", self.logits), PYTHON)

    @classmethod
    def of_arrays(cls, arrays: Arrays) -> Predictions:
        """Those of checked arrays; tensors are made of them when one is asked for."""
        made = object.__new__(cls)
        object.__setattr__(made, "arrays", arrays)
        return made

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Tensor | None:
            if name not in ("logits", "labels", "groups", "probs") or "arrays" not in vars(self):
                raise AttributeError(f"Predictions has no attribute '{name}'")
            import torch

            found = self.arrays.given
            value = found and found.values if name == "probs" else getattr(self.arrays, name)
            tensor = None if value is None else torch.from_numpy(np.ascontiguousarray(value))
            object.__setattr__(self, name, tensor)
            return tensor

    @cached_property
    def arrays(self) -> Arrays:
        """The same as NumPy arrays, with the memory of tensors on the CPU."""
        groups = None if self.groups is None else array_of("groups", self.groups)
        given = None
        if self.probs is not None:
            is_bfloat16 = str(self.probs.dtype) == "torch.bfloat16"
            given = GivenProbs(array_of("probs", self.probs), is_bfloat16)
        logits, labels = array_of("logits", self.logits), array_of("labels", self.labels)
        return Arrays(logits, labels, groups, given)

    def _check_types(self) -> None:
        import torch

        kinds: tuple[torch.dtype, ...] = (torch.float32, torch.float64)
        name = "logits"
        if self.probs is not None:
            kinds = (*kinds, torch.float16, torch.bfloat16)
            name = "probs"
        for given, wanted in ((name, kinds), ("labels", (torch.int64,))):
            value = getattr(self, given)
            kind = getattr(value, "dtype", type(value).__name__)
            if kind not in wanted:
                found = f"must be a tensor of {' or '.join(map(str, wanted))}, got {kind}"
                mend = f"Predictions.of({name}=..., labels=...) takes other types."
                raise FieldError(given, found, mend)

    def impossible(self) -> Tensor:
        """The rows whose label has probability 0: the NLL is infinite. [M] int64."""
        own = self.logits.gather(1, self.labels[:, None])[:, 0]
        return own.isneginf().nonzero()[:, 0]

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
        of_ties = self.probs_after(scaled)
        after = metrics.measure(scaled, self.labels, metrics.ESSENTIAL, probs=of_ties)
        prefix = metrics.AFTER_TEMPERATURE
        return {**found, **{prefix + name: value for name, value in after.items()}}

    def cross_fitted(self) -> Tensor:
        """The logits [N, K], each scaled by a temperature fitted on other samples."""
        from trainables.metrics.shared import post_hoc

        return post_hoc.cross_fitted(self.logits, self.labels, groups=self.groups)

    def probs_after(self, calibrated: Tensor) -> Tensor | None:
        """The probabilities [N, K] after a calibration of given ones, such as votes: what was tied
        stays so, for bins of equal counts. None where a network gave logits."""
        from trainables.metrics.scores import softmax_of_ties

        return None if self.probs is None else softmax_of_ties(calibrated)

    def temperature(self) -> float:
        """The temperature fitted to all samples."""
        from trainables.metrics.shared import post_hoc

        return post_hoc.fit_temperature(self.logits, self.labels)

    def _evaluate(self, calibrated: Tensor, bins: int, also: Collection[str]) -> dict[str, float]:
        prefix = metrics.AFTER_TEMPERATURE
        also_after = [name.removeprefix(prefix) for name in also if name.startswith(prefix)]
        of_ties = self.probs_after(calibrated)
        after = metrics.measure_stored(calibrated, self.labels, bins, also_after, probs=of_ties)
        return {
            **metrics.measure_stored(self.logits, self.labels, bins, also, calibrated, self.probs),
            **{prefix + name: value for name, value in after.items()},
        }

    @classmethod
    def of(
        cls, *, labels: Any, logits: Any = None, probs: Any = None, groups: Any = None
    ) -> Predictions:
        """The same of NumPy arrays, tensors, lists or pandas objects, checked as a file's are.

        logits or probs: [N, K], the classes in order. labels: [N] whole numbers, also as text; of
        two classes, also booleans. groups: [N], numbers or text. Raises FieldError.
        """
        if (logits is None) == (probs is None):
            found = "neither or both are given"
            raise FieldError("logits, probs", found, "Give logits, or probs.")
        kind = "logits" if probs is None else "probs"
        given = {kind: logits if probs is None else probs, "labels": labels, "groups": groups}
        refuse_other_order(given)
        arrays = {name: array_of(name, value) for name, value in given.items() if value is not None}
        # The argument stands where a file would.
        scores = _scores(Path(kind), arrays, PYTHON)
        numbers = _labels(Path("labels"), arrays["labels"], *scores.shape)
        together = None
        if groups is not None:
            together = _groups(Path("groups"), arrays["groups"], len(scores))
        if probs is None:
            refuse_probs(scores, PYTHON)
        return cls.of_arrays(Arrays.of(scores, probs is None, numbers, together))

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
        logits = found.arrays.logits
        if found.arrays.given is None:
            refuse_probs(logits, _door(path, logits.shape[1]))
        return found

    @classmethod
    def stored(cls, path: Path, normalized: Normalized | None = None) -> Predictions:
        """`load` of what a study stored: its logits are a network's own, and are not looked at."""
        arrays = _arrays(path)
        scores = _scores(path, arrays, normalized=normalized)
        labels = _labels(path, arrays["labels"], *scores.shape)
        groups = None
        if "groups" in arrays:
            groups = _groups(path, arrays["groups"], len(scores))
        return cls.of_arrays(Arrays.of(scores, "logits" in arrays, labels, groups))


def load_scores(path: Path, normalized: Normalized | None = None) -> Scores:
    """What `Predictions.load` reads of a file without its labels, which may be of other classes."""
    arrays = _arrays(path, labelled=False)
    scores = _scores(path, arrays, normalized=normalized)
    import torch

    values = torch.from_numpy(scores)
    if "logits" not in arrays:
        return Scores(values.double().log(), values)
    refuse_probs(scores, _door(path, scores.shape[1]))
    return Scores(values, None)


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


def _scores(
    path: Path,
    arrays: dict[str, np.ndarray],
    door: Door | None = None,
    normalized: Normalized | None = None,
) -> np.ndarray:
    """The logits, or the probabilities in their own dtype, [N, K]. door: default: of the file."""
    name = "logits" if "logits" in arrays else "probs"
    scores = np.ascontiguousarray(_checked(path, name, arrays[name], door))
    if name == "probs":
        return as_probs(scores, door or _door(path, scores.shape[1]), normalized)
    if normalized is not None:
        mend = "Leave out --normalize; it is for probabilities."
        raise FieldError(str(path), "has logits", mend)
    return scores.astype(np.float32) if scores.dtype == np.float16 else scores


def _labels(path: Path, labels: np.ndarray, num_samples: int, num_classes: int) -> np.ndarray:
    where = str(path)
    if labels.shape != (num_samples,):
        found = f"{labels.dtype} {list(labels.shape)}"
        raise FieldError(where, f"'labels' must be integers [{num_samples}], got {found}")
    called = "'labels'"
    try:
        numbers = numbers_of(labels, lambda _: called)
        return class_numbers(numbers, num_classes, called)
    except FieldError as error:
        raise error.at(where) from None


def _groups(path: Path, groups: np.ndarray, num_samples: int) -> np.ndarray:
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
    return renumbered(groups)


def _checked(path: Path, name: str, scores: np.ndarray, door: Door | None) -> np.ndarray:
    where = str(path)
    if scores.ndim != 2 or scores.shape[1] < 2:
        found = f"{scores.dtype} {list(scores.shape)}"
        mend = "Give each sample a row, and the labels alike." if scores.ndim > 2 else ""
        raise FieldError(where, f"'{name}' must be float [N, K] with K >= 2, got {found}", mend)
    if len(scores) == 0:
        raise FieldError(where, f"'{name}' is empty")
    try:
        values = _finite(name, scores, door)
    except FieldError as error:
        raise error.at(where) from None
    # The type of probabilities says where the edges of their bins are.
    return values.astype(np.float16) if scores.dtype == np.float16 else values


def _finite(name: str, scores: np.ndarray, door: Door | None) -> np.ndarray:
    """Finite scores [N, K]; of probabilities, none is negative. Raises FieldError."""

    def called(number: int) -> str:
        return f"'{name}' of class {number}"

    found = finite(numbers_of(scores, called), called)
    if name == "probs":
        of_array = "If the values are logits, name the array 'logits'."
        refuse_negative(found, called, of_array if door is None else door.if_logits)
    return found
