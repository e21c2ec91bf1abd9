"""What a reliability diagram draws of each trial, from its stored predictions: small enough for a page of hundreds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from study.analysis import pareto
from study.store.study import Study
from study.store.trials import TrialRecord
from trainables import post_hoc
from trainables.fields import FieldError
from trainables.files.digest import file_digest
from trainables.metrics.binned import ReliabilityBins, equal_width_index
from trainables.metrics.scores import top_label
from trainables.outputs.predictions import Predictions
from trainables.threads import in_threads

BINS = 15
FILE = "predictions.npz"
MOST_NAMED = 5  # trials that one note names

_FOLDS = 5  # as `post_hoc.cross_fitted` has it
_MOST_STEPS = 50
_SMALL = 1e-3  # of 1/T: what is left after such a step is about its square


def diagrams(study: Study, records: Iterable[TrialRecord]) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """{trial: its diagram} of the complete trials, and notes on those whose predictions are gone or not theirs.

    A diagram: `raw` and `scaled` (after cross-fitted temperature scaling), each with a row [bin, samples, hits, mean
    confidence] for every bin that holds a sample; `temperature`, the median over the folds.
    """
    finished = pareto.complete(records)
    with _one_thread():
        drawn = in_threads(
            lambda record: _diagram_or_why(study.files(record) / FILE, record.digests.get(FILE)), finished
        )
    found: dict[str, dict[str, Any]] = {}
    lacking: dict[str, list[str]] = {}  # trials by what is wrong
    for record, (diagram_of, why) in zip(finished, drawn, strict=True):
        if diagram_of is not None:
            found[record.name] = diagram_of
        else:
            lacking.setdefault(why, []).append(record.name)
    return found, [
        f"No reliability diagram of {_named(names)}: {FILE} {why.removesuffix('.')}." for why, names in lacking.items()
    ]


@contextmanager
def _one_thread() -> Iterator[None]:
    """On arrays so small several threads mostly wait for each other; on a busy machine ten times as long."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _diagram_or_why(file: Path, digest: str | None) -> tuple[dict[str, Any] | None, str]:
    """The diagram, or why there is none."""
    try:
        if file_digest(file) != digest:
            return None, "is not the file that the ledger knows (another sha256)"
        return diagram(Predictions.load(file)), ""
    except FileNotFoundError:
        return None, "is missing"
    except OSError as error:
        return None, f"cannot be read ({error.strerror})"
    except FieldError as error:
        return None, error.problem


def _named(names: list[str]) -> str:
    rest = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {rest:,} more" if rest > 0 else "")


def diagram(predictions: Predictions) -> dict[str, Any]:
    """The diagram of one trial, before and after temperature scaling."""
    logits, labels = predictions.logits, predictions.labels
    scaled, temperature = cross_fitted(logits, labels)
    return {"raw": _rows(logits, labels), "scaled": _rows(scaled, labels), "temperature": round(temperature, 4)}


def _rows(logits: Tensor, labels: Tensor) -> list[list[float]]:
    confidence, hits = top_label(logits, labels)
    index = equal_width_index(confidence, BINS)
    bins = ReliabilityBins.collect(confidence, hits, index)
    rows = zip(torch.unique(index), bins.counts, bins.counts * bins.accuracy, bins.confidence, strict=True)
    return [[int(k), int(count), round(float(right)), round(float(mean), 5)] for k, count, right, mean in rows]


def cross_fitted(logits: Tensor, labels: Tensor) -> tuple[Tensor, float]:
    """`post_hoc.cross_fitted` and the median of its temperatures, several times faster. Guo et al. 2017, Section 4.2.

    Newton's method on 1/T, in which the NLL is convex, from the fit of all samples to those of the folds, which lie
    close by. Where it finds no minimum (none is finite; a stored probability is 0) the slower way is taken.
    """
    columns = logits.double().T.contiguous()  # [K, N]: a softmax down the columns takes a quarter of the time
    fold = torch.arange(len(labels)) % _FOLDS
    of_all = _minimum(columns, labels, 1.0) if len(labels) >= _FOLDS else None
    inverses = []
    if of_all is not None:
        rests = ((columns[:, fold != k], labels[fold != k]) for k in range(_FOLDS))
        inverses = [found for rest in rests if (found := _minimum(*rest, of_all)) is not None]
    if len(inverses) < _FOLDS:
        return post_hoc.cross_fitted(logits, labels), post_hoc.fit_temperature(logits, labels)
    inverse = torch.tensor(inverses, dtype=torch.float64)
    return (columns * inverse[fold]).T.contiguous(), 1 / float(inverse.median())


def _minimum(columns: Tensor, labels: Tensor, start: float) -> float | None:
    """1/T of least mean NLL of logits [K, N], by Newton's method; None where it does not come to rest in the clamp."""
    inverse, true_logit, squares = start, float(columns.gather(0, labels[None]).mean()), columns.square()
    for _ in range(_MOST_STEPS):
        probs = (columns * inverse).softmax(dim=0)
        means = (probs * columns).sum(dim=0)
        slope = float(means.mean()) - true_logit
        curvature = float(((probs * squares).sum(dim=0) - means.square()).mean())
        if not (math.isfinite(slope) and curvature > 0):
            return None
        # Far from the minimum a whole step may leave the positive numbers: halve or double at most.
        step = -slope / curvature
        inverse = min(max(inverse + step, inverse / 2), inverse * 2)
        if not 1 / post_hoc.HIGHEST < inverse < 1 / post_hoc.LOWEST:
            return None
        if abs(step) < _SMALL * inverse:
            return inverse
    return None
