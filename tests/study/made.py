"""A finished study on disk, made in this process: its study.yaml, ledger and files,
without Ray or training."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from optuna.distributions import BaseDistribution
from optuna.samplers import RandomSampler

from study.commands import answer
from study.engine.proposing import propose
from study.machines.guarded import Unfit
from study.schema.objective import TEMPERATURE, Objective, served_by_default
from study.schema.reading import spec_from_mapping
from study.store.ledger import Ledger, open_storage
from study.store.recorded import Recorded
from study.store.study import StudyFolder, open_study, write_study_file
from study.store.trials import TrialRecord, Trials, trial_directory
from trainables import methods
from trainables.files.digest import file_digest
from trainables.outputs.attempts import attempt_directory
from trainables.outputs.outcome import Outcome
from trainables.outputs.predictions import Predictions


class Places:
    """Nodes for so many trials, all of them fit."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.unfit: list[Unfit] = []

    def slots(self) -> int:
        return self.count

    def trained(self) -> None:
        pass

    def pass_over(self, unfit: Unfit) -> None:
        self.unfit.append(unfit)

    def look(self) -> None:
        pass

    def memory(self) -> tuple[int, int] | None:
        return None


OBJECTIVES = (Objective("accuracy", "maximize"), Objective("ece", "minimize"))
# Its metrics ({}: it failed) and its history.
Trial = tuple[dict[str, float], list[dict[str, float]]]


def made_study(
    root: Path,
    name: str,
    trials: dict[str, Sequence[Trial]],
    space: dict[str, BaseDistribution] | None = None,
    objectives: tuple[Objective, ...] = OBJECTIVES,
    predictions: Callable[[str, int], Predictions] | None = None,
    classes: int = 10,
    planned: int | None = None,
    majority: float = 0.0,  # nothing guesses
) -> StudyFolder:
    """trials by label, told in order; planned, space: of every label;
    predictions: of (label, number)."""
    directory = root / name
    directory.mkdir(parents=True)
    known = methods.names()
    plain = {
        "name": name,
        "data": "digits",
        "model": "mlp",
        "methods": [
            {"label": label, "name": label if label in known else "cross_entropy"}
            for label in trials
        ],
        "objectives": [{"metric": each.metric, "direction": each.direction} for each in objectives],
        "trials": planned or max(1, *map(len, trials.values())),
    }
    spec = spec_from_mapping(plain, "study.yaml")
    recorded = Recorded(
        id=name,
        created="2023-11-14T22:13:20+00:00",
        data_digest="d1635",
        classes=[str(k) for k in range(classes)],
        sizes={"train": 900, "validation": 287, "test": 360},
        serves=served_by_default(objectives) or TEMPERATURE,
        majority=majority,
        temperature_fit="temperature",
        meaning=spec.meaning(),
    )
    write_study_file(StudyFolder.of(directory, spec, recorded))
    ledger = Ledger(open_storage(directory, None), name, name)
    for label, found in trials.items():
        ledger.open(label, objectives)
        for metrics, history in found:
            number = asked(ledger, label, space).number
            files = attempt_directory(
                trial_directory(directory, label, number), ledger.begin_attempt(label, number)
            )
            digests = _write(files, history, predictions(label, number) if predictions else None)
            told = Outcome(
                attempt=1,
                state="complete" if metrics else "failed",
                reason=None if metrics else "loss is nan",
                metrics=metrics or None,
                epoch=len(history),
                samples=1000,
                seconds=1.5,
                digests=digests,
            )
            ledger.tell(label, number, told, objectives)
    return open_study(name, str(root))


def asked(
    ledger: Ledger,
    label: str,
    space: Mapping[str, BaseDistribution] | None = None,
    given: Mapping[str, Any] | None = None,
) -> TrialRecord:
    """A new trial, RUNNING, with the given parameters, and random ones."""
    sampler = RandomSampler(seed=len(ledger.records(label)))
    return ledger.add(
        label, propose([], OBJECTIVES, space or {}, sampler) | dict(given or {}), space or {}
    )


def trials_of(records: Iterable[TrialRecord]) -> Trials:
    """These trials by their labels."""
    found: dict[str, list[TrialRecord]] = {}
    for record in records:
        found.setdefault(record.label, []).append(record)
    return Trials(found)


def unwritten_study(
    labels: Sequence[str],
    objectives: tuple[Objective, ...] = OBJECTIVES,
    trials: int = 1,
    **recorded: Any,
) -> StudyFolder:
    """A study that is on no disk: what is read of its spec and of the recorded
    facts to rank trials."""
    plain = {
        "name": "small",
        "methods": [{"label": label, "name": label} for label in labels],
        "objectives": [{"metric": each.metric, "direction": each.direction} for each in objectives],
        "trials": trials,
        "ledger": None,
        "confirms": None,
        **{
            key: recorded.pop(key)
            for key in ("constraints", "guard", "serve", "search_space", "resources")
            if key in recorded
        },
    }
    methods = {label: {"fixed": {}, "space": {}, "defaults": []} for label in labels}
    facts = Recorded(
        id="small",
        classes=[str(k) for k in range(10)],
        sizes={"train": 900, "validation": 287, "test": 360},
        serves=served_by_default(objectives) or TEMPERATURE,
        majority=0.0,
        temperature_fit="temperature",
        meaning={"methods": methods},
    )
    return StudyFolder(Path("small"), plain, replace(facts, **recorded))


def _write(
    files: Path, history: list[dict[str, float]], predictions: Predictions | None
) -> dict[str, str]:
    files.mkdir(parents=True)
    (files / "history.json").write_text(json.dumps(history))
    if predictions is not None:
        predictions.save(files / "predictions.npz")
    return {file.name: file_digest(file) for file in files.iterdir()}


def random_predictions(seed: int, samples: int = 287, scale: float = 3.0) -> Predictions:
    """Ten classes; labels drawn from the softmax of the logits over 1.5: over-confident."""
    generator = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(samples, 10, generator=generator)
    labels = torch.multinomial((logits / 1.5).softmax(-1), 1, generator=generator).squeeze(-1)
    return Predictions(logits, labels)


@pytest.fixture
def unanswered(monkeypatch: pytest.MonkeyPatch) -> None:
    """`run` and `confirm` end without the study's answer, whose intervals take longer than a few
    small trials: for tests of something else. Make no study of `made_once` under it."""
    monkeypatch.setattr(answer, "conclude", lambda *given: True)
