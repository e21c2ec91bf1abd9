"""Studies for the tests of a report: records and predictions made in process,
nothing trained, no ledger."""

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from study.answer.sizes import Sizes
from study.schema.reading import spec_from_mapping
from study.store.recorded import Recorded
from study.store.study import StudyFolder
from study.store.trials import TrialRecord, Trials
from study.uncertainty.intervals import Floor
from trainables.files.digest import file_digest
from trainables.outputs.predictions import Predictions

SAMPLES, CLASSES = 400, 10
LABELS = ("cross_entropy", "focal", "mbls")
FLOORS = {"ece": Floor(0.0134, 0.0081, 0.0195), "ts_ece": Floor(0.0234, 0.0181, 0.0295)}
HOSTILE = "loss is nan </script><img src=x onerror=\"document.title='owned'\"> {{script}} <!--"


class Interval(NamedTuple):
    """As `study.uncertainty.bootstrap` has it."""

    estimate: float
    low: float
    high: float
    floor: Floor | None = None


@dataclass(frozen=True)
class Analysis:
    """As `study.uncertainty.bootstrap` has it."""

    intervals: dict[str, dict[str, Interval]]
    shares: dict[str, float]
    resamples: int = 1000
    level: float = 0.90
    named: str = "90% intervals"


@dataclass(frozen=True)
class Confirmed:
    """As `study.answer.confirmation` has it."""

    label: str
    role: str
    candidate: TrialRecord | None
    records: tuple[TrialRecord, ...]
    tests: tuple[dict[str, float], ...] = ()
    shifts: dict[str, tuple[dict[str, float], ...]] = field(default_factory=dict)
    shift_samples: dict[str, int] = field(default_factory=dict)
    shift_dropped: dict[str, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.label if self.candidate is None else self.candidate.name

    @property
    def networks(self) -> tuple[str, ...]:
        return tuple(record.name for record in self.records)


@dataclass(frozen=True)
class Confirmation:
    """As `study.answer.confirmation` has it."""

    study: StudyFolder
    rows: tuple[Confirmed, ...]
    search: StudyFolder
    cautions: tuple[str, ...] = ()


def make_study(root: Path, name: str = "small", **changes: Any) -> StudyFolder:
    """A study that nobody has run. cross_entropy has nothing to search."""
    plain = {
        "name": name,
        "data": "digits",
        "model": "mlp",
        "methods": list(LABELS),
        "guard": "off",  # far off trials are drawn
        "trials": 3,
    }
    recorded = Recorded(
        id=f"id-of-{name}",
        created="2023-11-14T22:13:20+00:00",
        data_digest="d1635" * 12,
        classes=[str(number) for number in range(CLASSES)],
        sizes={"train": 1151, "validation": SAMPLES, "test": 359},
        versions={"torch": "2.15.0", "git_commit": "c0ffee"},
        serves="temperature",
        majority=0.1,
        temperature_fit="temperature",
    )
    return StudyFolder.of(
        root / name, spec_from_mapping({**plain, **changes}, "small.yaml"), recorded
    )


def predictions(seed: int, sharpness: float = 1.0) -> Predictions:
    """Of a classifier that is right now and then; calibrated at sharpness 1, too sure above it."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2.0 * torch.randn(SAMPLES, CLASSES, generator=generator)
    labels = torch.multinomial(logits.softmax(dim=-1), 1, generator=generator).squeeze(-1)
    return Predictions(sharpness * logits, labels)


def complete(study: StudyFolder, label: str, number: int, **changes: Any) -> TrialRecord:
    """A complete trial with its predictions on disk; `params`, `metrics`, ... in
    `changes` over what they give."""
    seed = 100 * list(map(lambda variant: variant.label, study.spec.variants)).index(label) + number
    of_trial = predictions(seed, 1.0 + 0.5 * number)
    params = {path: 0.25 * (number + 1) for path in study.spec.variant(label).space.distributions}
    record = TrialRecord(
        label,
        number,
        "complete",
        params,
        attempt=1,
        epoch=20,
        seconds=10.0 + number,
        samples=23_020,
        started=1.0,
    )
    file = study.files(record) / "predictions.npz"
    file.parent.mkdir(parents=True, exist_ok=True)
    digests = {"predictions.npz": of_trial.save(file)}
    history = file.with_name("history.json")
    history.write_text(json.dumps(curve(seed)))
    digests[history.name] = file_digest(history)
    return replace(replace(record, metrics=of_trial.evaluate(), digests=digests), **changes)


def curve(seed: int) -> list[dict[str, float]]:
    """A trial's history: 20 epochs, each metric nearer to its last value, 0.9 for accuracy
    and 0.1 for the others."""
    rest = [(1 + seed / 1000) * 0.5**epoch for epoch in range(20)]
    return [
        {
            "epoch": epoch,
            "accuracy": 0.9 - 0.5 * far,
            **{name: 0.1 + far for name in ("nll", "brier", "ece")},
        }
        for epoch, far in enumerate(rest, 1)
    ]


def small(root: Path) -> tuple[StudyFolder, Trials]:
    """Three trials of cross_entropy; two of focal one that failed with a hostile reason;
    of mbls one interrupted."""
    study = make_study(root)
    begun = TrialRecord(
        "mbls", 0, "running", {"method.margin": 10.0, "method.weight": 0.1}, attempt=1
    )
    study.files(begun).mkdir(parents=True)
    (study.files(begun) / "log").write_text("process 1 on node\n")
    failed = TrialRecord("focal", 2, "failed", {"method.gamma": 4.5}, attempt=2, reason=HOSTILE)
    return study, trials(
        cross_entropy=[complete(study, "cross_entropy", number) for number in range(3)],
        focal=[*(complete(study, "focal", number) for number in range(2)), failed],
        mbls=[begun],
    )


def trials(**by_label: list[TrialRecord]) -> Trials:
    """Under the labels of `make_study`."""
    return Trials(by_label).under(LABELS)


def analysis_of(records: Trials) -> Analysis:
    """Intervals 0.01 to either side, which are nobody's; ECE has a floor, before
    and after temperature."""
    done = records.complete
    intervals = {
        record.name: {
            name: Interval(value, max(0.0, value - 0.01), value + 0.01, FLOORS.get(name))
            for name, value in record.metrics.items()
        }
        for record in done
    }
    return Analysis(
        intervals, {record.name: 0.25 * (place % 4) for place, record in enumerate(done)}
    )


def confirmation_of(study: StudyFolder, records: Trials) -> Confirmation:
    """focal/0001 and the default with two seeds; accuracy falls by 0.02 and 0.04 on
    test, ECE rises by 0.01."""
    candidate = records.of("focal")[1]
    seeds = tuple(replace(candidate, number=number) for number in range(2))
    accuracy, ece = candidate.metrics["accuracy"], candidate.metrics["ece"]
    tests = tuple(
        {**candidate.metrics, "accuracy": accuracy - fall, "ece": ece + 0.01}
        for fall in (0.02, 0.04)
    )
    shifts = {"noisy": ({"auroc": 0.9, "fpr95": 0.25}, {"auroc": 0.8, "fpr95": 0.35})}
    confirming = make_study(study.directory.parent, f"{study.spec.name}-confirm")
    return Confirmation(
        confirming,
        (
            Confirmed(
                "focal_0001",
                "candidate",
                candidate,
                seeds,
                tests,
                shifts,
                {"noisy": 5000},
                {"noisy": 3},
            ),
            Confirmed(
                "cross_entropy_default", "baseline", None, tuple(records.of("cross_entropy")[:2])
            ),
        ),
        study,
    )


def sizes_of(confirmation: Confirmation) -> Sizes:
    """Floors of focal/0001 that are nobody's; shrinkage of accuracy as
    `confirmation_of` has it, of ECE .005."""
    (label, *_) = (row.label for row in confirmation.rows)
    shrinkage = {label: {"accuracy": 0.03, "ece": 0.005}}
    return Sizes(
        {label: FLOORS},
        {label: FLOORS},
        shrinkage,
        "shrinkage of ECE compares 359 samples with 359.",
    )
