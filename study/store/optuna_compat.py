"""Workarounds for Optuna; each names the behaviour it depends on, and has a test that fails when
that changes."""

from __future__ import annotations

from typing import Any

from optuna.storages import RDBStorage
from optuna.storages._rdb import models
from optuna.storages._rdb.storage import _create_scoped_session
from optuna.trial import FrozenTrial


def make_trial(
    storage: RDBStorage, study_id: int, template: FrozenTrial | None, numbers: list[int]
) -> int:
    """The id of a new trial. `RDBStorage._create_new_trial` tries again by itself where a commit
    seemed to fail, and so makes a second trial where only the answer was lost.

    numbers: empty at first; when called again, the number that the trial has if that commit did
    happen.
    """
    with _create_scoped_session(storage.scoped_session) as session:
        # Waits for a transaction of ours that the server has not ended yet.
        models.StudyModel.find_or_raise_by_id(study_id, session, for_update=True)
        trial: Any = None
        if numbers:
            trial = (
                session.query(models.TrialModel)
                .filter_by(study_id=study_id, number=numbers[-1])
                .one_or_none()
            )
        if trial is None:
            trial = storage._get_prepared_new_trial(study_id, template, session)
            session.flush()
            numbers.append(trial.number)
        return int(trial.trial_id)
