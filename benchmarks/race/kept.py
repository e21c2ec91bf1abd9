"""What the page needs of a finished race, in two small files: per-sample scores, and trials.

Of a confirmed network and each test sample: its confidence, whether it is right, and what NLL and
Brier score need beside, each in a byte or less, on a logarithmic scale. Intervals are computed from
these; values are the ledger's.
"""

from __future__ import annotations

import io
import json
import lzma
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from benchmarks.race import choosers
from study.answer.confirmation import (
    BASELINE,
    DEFAULT,
    Confirmation,
    Confirmed,
    Results,
    results_of,
)
from study.answer.networks import networks_on_test
from study.engine.candidates import best_of_each
from study.schema.matters import matters_in
from study.schema.objective import RAW, TEMPERATURE, as_served
from study.store.study import open_directory
from study.store.trials import Trials
from study.uncertainty.bootstrap import logits_of
from study.uncertainty.consistency import calibrated_sums
from study.uncertainty.methods import Methods, NetworkPredictions, Seeds, joined, seeds_of_one
from study.uncertainty.resampling import BINS, Draws, Floats, SampleTerms, mass_starts
from study.uncertainty.worlds import Resampled
from trainables.machine import in_threads
from trainables.metrics.binned import equal_width_index

UNTUNED = "cross_entropy, untuned"  # a method's name on the page: the study's own settings
METRICS = {
    RAW: ("accuracy", "nll", "brier", "ece"),
    TEMPERATURE: ("ts_nll", "ts_brier", "ts_ece"),  # which leaves the accuracy
}
PREFIX = {RAW: "", TEMPERATURE: "ts_"}
RESAMPLES = 1000


class Scale(NamedTuple):
    """A byte for numbers from 0 to `largest`, even in log(1 + x / small)."""

    largest: float
    small: float = 0.001

    def bytes_of(self, values: Floats) -> np.ndarray:
        reach = math.log1p(self.largest / self.small)
        clipped = np.clip(values, 0, self.largest)
        return np.round(np.log1p(clipped / self.small) * (255 / reach)).astype(np.uint8)

    def values_of(self, stored: np.ndarray) -> Floats:
        reach = math.log1p(self.largest / self.small)
        found: Floats = np.expm1(stored * (reach / 255)) * self.small
        return found


DOUBT = Scale(1.0)  # 1 - confidence
LOSS = Scale(40.0)  # NLL of a wrong prediction; of a right one it follows from the confidence
STEPS = 31  # of how the rest of the probability is spread, which Brier needs


class Scores(NamedTuple):
    """Of one network, a number for each test sample [N]."""

    hits: Floats
    confidence: Floats
    nll: Floats
    brier: Floats

    @classmethod
    def of(cls, network: NetworkPredictions, form: str) -> Scores:
        logits = logits_of(network.predictions, PREFIX[form], network.temperature)
        labels = network.predictions.labels.numpy()
        terms = SampleTerms.of(logits, labels, classwise=False)
        return cls(terms.hits, terms.confidence, terms.scores[:, 2], terms.scores[:, 3])

    def stored(self) -> list[np.ndarray]:
        """Hits in bits, then three times a byte."""
        wrong = self.hits == 0
        own = np.where(wrong, np.exp(-self.nll), self.confidence)
        squares = self.brier - 1 + 2 * own
        rest = np.maximum(1 - self.confidence, 1e-9)
        spread = np.clip((squares - self.confidence**2) / rest**2, 0, 1)
        return [
            np.packbits(self.hits > 0),
            _doubt(self.confidence),
            LOSS.bytes_of(np.where(wrong, self.nll, 0)),
            np.round(spread * STEPS).astype(np.uint8),
        ]

    @classmethod
    def read(
        cls, hits: np.ndarray, doubt: np.ndarray, loss: np.ndarray, spread: np.ndarray
    ) -> Scores:
        right = np.unpackbits(hits, count=len(doubt)).astype(float)
        rest = DOUBT.values_of(doubt)
        confidence = 1 - rest
        nll = np.where(right > 0, -np.log(confidence), LOSS.values_of(loss))
        squares = confidence**2 + spread / STEPS * rest**2
        return cls(right, confidence, nll, 1 - 2 * np.exp(-nll) + squares)

    def seeds(self, draws: Draws, form: str, classes: int) -> dict[str, Seeds]:
        """As the product computes them from predictions."""
        one = np.ones_like(self.hits)
        terms = SampleTerms(
            classes,
            self.confidence,
            np.stack([self.hits, one, self.nll, self.brier], axis=1),
            self.hits,
            _bins(self.confidence),
            np.searchsorted(mass_starts(self.confidence), self.confidence, side="right"),
            np.zeros(len(one), np.int64),
        )
        draw = partial(calibrated_sums, terms, draws.chances)
        found = Resampled(terms.total(), terms.sums(draws.weights), draw)
        return seeds_of_one({PREFIX[form]: found}, METRICS[form])


def _doubt(confidence: Floats) -> np.ndarray:
    """The bytes of 1 - confidence, moved by one where another bin of ECE begins between the two."""
    found = DOUBT.bytes_of(1 - confidence)
    beyond = _bins(1 - DOUBT.values_of(found)) - _bins(confidence)
    moved: np.ndarray = (found + np.sign(beyond)).astype(np.uint8)
    return moved


def _bins(confidence: Floats) -> np.ndarray:
    found: np.ndarray = equal_width_index(torch.from_numpy(confidence), BINS).numpy()
    return found


@dataclass(frozen=True)
class Kept:
    """A finished race. facts: what the json file says. scores: by row, form and seed."""

    facts: Mapping[str, Any]
    scores: Mapping[tuple[str, str], list[Scores]]

    @property
    def methods(self) -> list[str]:
        """The methods that were searched."""
        return [name for name in self.facts["best"] if name != UNTUNED]

    def row(self, name: str) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.facts["rows"][name]
        return found

    def compared(self, rows: Mapping[str, str], form: str, level: float) -> dict[str, Methods]:
        """The rows by metric. rows: by the name that they get."""
        samples = len(self.scores[next(iter(rows.values())), form][0].hits)
        draws = Draws.of(samples, RESAMPLES, 0)
        flat = [one for row in rows.values() for one in self.scores[row, form]]
        found = iter(in_threads(lambda one: one.seeds(draws, form, self.facts["classes"]), flat))
        by_metric: dict[str, dict[str, Seeds]] = {metric: {} for metric in METRICS[form]}
        for name, row in rows.items():
            seeds = [(next(found), known) for known in self.row(row)["test"]]
            for metric, of in by_metric.items():
                # The ledger's values, which are exact.
                of[name] = joined(
                    [one[metric]._replace(values=np.array([known[metric]])) for one, known in seeds]
                )
        return {
            metric: Methods(of, level, samples=samples if metric == "accuracy" else 0)
            for metric, of in by_metric.items()
        }

    @property
    def off(self) -> float:
        """The most by which the scores' NLL or Brier of a network is off what the ledger has."""
        worst = 0.0
        for (row, form), of in self.scores.items():
            for scores, known in zip(of, self.row(row)["test"], strict=True):
                means = {"nll": scores.nll.mean(), "brier": scores.brier.mean()}
                for name, value in means.items():
                    worst = max(worst, abs(float(value) - known[as_served(name, form)]))
        return worst

    @classmethod
    def read(cls, facts: Path) -> Kept:
        plain = json.loads(facts.read_text())
        arrays = np.load(io.BytesIO(lzma.decompress(facts.with_suffix(".npz.xz").read_bytes())))
        scores = {}
        for row, about in plain["rows"].items():
            for form in about["kept"]:
                parts = [arrays[f"{row}:{form}:{part}"] for part in range(4)]
                scores[row, form] = [Scores.read(*each) for each in zip(*parts, strict=True)]
        return cls(plain, scores)


# ---- from a study --------------------------------------------------------------------------------


def keep(directory: Path, folder: Path) -> Path:
    """Write the two files of a finished race. Raises SystemExit if its confirmation is not done."""
    study = open_directory(directory, directory.name)
    found = results_of(study)
    confirmation = found.confirmation
    if confirmation is None or not confirmation.finished:
        raise SystemExit(f"{directory}: not confirmed. Run `{study.command('confirm')}` first.")
    # As trained, then with its temperature, of each method in turn.
    names = [_row_of(found, one.name) for one in best_of_each(found.ranking)]
    best = dict(zip(study.labels, zip(names[::2], names[1::2], strict=True), strict=True))
    best[UNTUNED] = (_untuned(confirmation),) * 2
    taken = choosers.taken(study)
    front = [_row_of(found, name) for name in choosers.front_of(study)]
    chosen = {
        name: {budget: _row_of(found, trial) for budget, trial in of.items()}
        for name, of in taken.items()
    }
    wanted: dict[str, set[str]] = {}
    for raw, after in best.values():
        wanted.setdefault(raw, set()).add(RAW)
        wanted.setdefault(after, set()).add(TEMPERATURE)
    for name in [*front, *(row for of in chosen.values() for row in of.values())]:
        wanted.setdefault(name, set()).add(RAW)
    rows = {row.name: row for row in confirmation.rows}
    facts = {
        "name": study.name,
        "classes": len(study.recorded.classes),
        "sizes": dict(study.recorded.sizes),
        "matters": {
            name: matters_in(name, study.matters, len(study.recorded.classes))
            for name in METRICS[RAW]
        },
        "best": best,
        "chosen": chosen,
        "front": front,
        "seconds": _seconds(found.records),
        "searched": len(found.records.complete),
        "rows": {name: _facts(rows[name], sorted(forms)) for name, forms in wanted.items()},
    }
    arrays = {}
    networks = networks_on_test(confirmation)
    for name, forms in wanted.items():
        for form in forms:
            parts = [Scores.of(one, form).stored() for one in networks[rows[name].label]]
            for part, of in enumerate(zip(*parts, strict=True)):
                arrays[f"{name}:{form}:{part}"] = np.stack(of)
    file = io.BytesIO()
    np.savez(file, **arrays)
    folder.mkdir(parents=True, exist_ok=True)
    written = folder / f"{study.name}.json"
    written.with_suffix(".npz.xz").write_bytes(lzma.compress(file.getvalue(), preset=6))
    written.write_text(json.dumps(facts) + "\n")
    return written


def _row_of(found: Results, trial: str) -> str:
    """The row that retrained a trial, or one with its values."""
    setting = found.records.named(trial, "--trial").setting
    assert found.confirmation is not None
    for row in found.confirmation.rows:
        if row.candidate is not None and row.candidate.setting == setting:
            return row.name
    raise SystemExit(
        f"{trial} is not confirmed: `calstudy confirm {found.study.name} --trial {trial}`."
    )


def _untuned(confirmation: Confirmation) -> str:
    """The row of cross-entropy at the study's own settings."""
    for row in confirmation.rows:
        if row.label.startswith(BASELINE) and row.label.endswith(DEFAULT):
            return row.name
    raise SystemExit(f"{confirmation.study.name} has no default of {BASELINE}")


def _facts(row: Confirmed, kept: Iterable[str]) -> dict[str, Any]:
    """What is said of a row: its values by seed."""
    names = [name for of in METRICS.values() for name in of]
    return {
        "kept": list(kept),
        "validation": [{name: one.metrics[name] for name in names} for one in row.records],
        "test": [{name: one[name] for name in names} for one in row.tests],
    }


def _seconds(records: Trials) -> dict[str, float]:
    """The mean seconds of a training of the search, on one core, by method."""
    found = {}
    for label, of in records.complete.by_label.items():
        taken = [one.seconds for one in of if one.seconds is not None]
        found[label] = round(float(np.mean(taken)), 2)
    return found
