"""The trials as an Optuna journal, to be shown: in Optuna's constraints, which trials do not count.

The ledger has none: a condition such as `accuracy >= best - 0.02` means another value after each
better trial, and Optuna's finished trials are final.
"""

from __future__ import annotations

import copy
import tempfile
import warnings
from pathlib import Path
from typing import Any

import optuna
from optuna.exceptions import ExperimentalWarning
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from study.analysis.ranking import Ranking
from study.store.study import StudyFolder
from trainables.files.output import write_output

ASIDE = "excluded"  # 1 of a trial that a rule without an amount leaves out, or that another equals


def write_journal(study: StudyFolder, file: Path) -> int:
    """Write one Optuna study for each method, whose `best_trials` is the front of the method's
    models that count. Returns the number of trials."""
    reader = study.reader.held()
    ranking = Ranking(study, study.records(reader))
    best = ranking.rules.best(ranking.records)
    with tempfile.TemporaryDirectory() as folder:
        journal = Path(folder) / "journal.log"
        storage = JournalStorage(JournalFileBackend(str(journal)))
        for label, trials in reader.trials().items():
            directions: list[Any] = [one.direction for one in study.own_objectives]
            made = optuna.create_study(
                study_name=f"{study.name}/{label}", storage=storage, directions=directions
            )
            with warnings.catch_warnings(action="ignore", category=ExperimentalWarning):
                made.set_metric_names([one.metric for one in study.own_objectives])
            for record, trial in zip(ranking.records.of(label), trials, strict=True):
                shown = copy.copy(trial)
                shown.system_attrs = {}
                if record.state == "complete":
                    out = record.name in ranking.excluded or record.name in ranking.stands_for
                    violated = ranking.rules.violations(record.metrics, best)
                    for name, by in {**violated, ASIDE: float(out)}.items():
                        shown.set_constraint(name, by)
                made.add_trial(shown)
        write_output(file, journal.read_bytes())
    return len(ranking.records)
