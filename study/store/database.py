"""A ledger in a database: it may be away for a while, and a lost answer to a write does not mean a
lost write."""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar
from weakref import finalize

from optuna.exceptions import DuplicatedStudyError, StorageInternalError
from optuna.storages import RDBStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy import event
from sqlalchemy.exc import SQLAlchemyError

from study.schema.errors import LedgerError, LedgerUnavailable
from study.store.connection import (
    cause_of,
    connect_arguments,
    is_ready,
    is_transient,
    named_causes,
    parsed,
    shown,
)
from study.store.database_lock import DatabaseLock
from study.store.optuna_compat import make_trial
from trainables.files.atomic import PATIENCE

T = TypeVar("T")

PAUSE = 0.5  # seconds between attempts to reach a server
# The attribute of each label's Optuna study that names the driver that may write it.
DRIVER = "driver"


@dataclass
class Waiting:
    """How a driver waits for a database that does not answer, and whom it tells.

    stopped: the signal that ends the wait, if one came. show: gets the line to show while it waits,
    None afterwards.
    """

    patience: float = PATIENCE
    stopped: Callable[[], str | None] = lambda: None
    show: Callable[[str | None], None] | None = None
    waited: float = 0.0  # seconds in all

    def retry(self, act: Callable[[bool], T], url: str) -> T:
        """What `act` gives; it is told whether it was tried before: then its write may have
        happened.

        Raises LedgerUnavailable when the patience or a signal ends the wait.
        """
        began: float | None = None
        try:
            while True:
                tried = time.monotonic()
                try:
                    return act(began is not None)
                except Exception as error:
                    if not is_transient(error):
                        raise
                    began = tried if began is None else began
                    self._wait(began, cause_of(error, url), url)
        finally:
            if began is not None:
                self.waited += time.monotonic() - began
                self._say(None)

    def _wait(self, began: float, cause: str, url: str) -> None:
        """Until the next attempt. Raises LedgerUnavailable."""
        for _ in range(5):
            seconds = time.monotonic() - began
            if signal := self.stopped():
                raise LedgerUnavailable(
                    f"stopped by {signal} while {shown(url)} did not answer ({cause})"
                )
            if seconds >= self.patience:
                raise LedgerUnavailable(
                    f"ledger: {shown(url)} has not answered for {seconds / 60:.0f} minutes:"
                    f" {cause}",
                    "Run the same command again to resume.",
                )
            self._say(f"ledger: {shown(url)} does not answer; waiting ({seconds:.0f} s): {cause}")
            time.sleep(PAUSE / 5)

    def _say(self, line: str | None) -> None:
        if self.show is not None:
            self.show(line)


def to_stderr() -> Callable[[str | None], None]:
    """A `show` for commands without a live view: one line when a wait begins."""
    said = False

    def show(line: str | None) -> None:
        nonlocal said
        if line is not None and not said:
            print(line, file=sys.stderr)
        said = line is not None

    return show


class Database(RDBStorage):
    """Optuna's storage in a database, which is waited for; a write is done once even if its answer
    was lost.

    lock: the driver's; it is taken again before anything is written over a new connection. waiting:
    None for readers, who do not wait. Use `open_database`.
    """

    def __init__(
        self, url: str, lock: DatabaseLock | None, waiting: Waiting | None, create: bool
    ) -> None:
        self._shown_url = url
        self._lock = lock
        self.waiting = waiting or Waiting(patience=0.0)
        self._reads_only = waiting is None
        self._nested = threading.local()  # whether this thread is within `_patiently`
        place = parsed(url)
        words = {"pool_pre_ping": True, "connect_args": connect_arguments(place)}
        # Optuna takes the URL for a template.
        super().__init__(
            url.replace("{", "{{").replace("}", "}}"), words, skip_table_creation=not create
        )
        finalize(self, self.engine.dispose)
        if lock is not None:
            event.listen(self.engine, "connect", lambda *_: lock.ensure())

    def driver_of(self, study_id: int) -> Any:
        """The attribute DRIVER of an Optuna study, read over the connection that holds the lock
        where there is one."""
        lock = self._lock
        if lock is None:
            return self.get_study_user_attrs(study_id).get(DRIVER)
        return self._patiently(lambda again: lock.attribute(study_id, DRIVER))

    def _patiently(self, act: Callable[[bool], T]) -> T:
        # The outer one tries all of it again, and counts the wait.
        if getattr(self._nested, "here", False):
            return act(False)
        self._nested.here = True
        try:
            return act(False) if self._reads_only else self.waiting.retry(act, self._shown_url)
        except (SQLAlchemyError, StorageInternalError) as error:
            cause = cause_of(error, self._shown_url)
            raise LedgerError(f"ledger: {shown(self._shown_url)}: {cause}") from None
        finally:
            self._nested.here = False

    # ---- writes that are looked for before they are made again -----------------------------------

    def create_new_study(
        self, directions: Sequence[StudyDirection], study_name: str | None = None
    ) -> int:
        def create(again: bool) -> int:
            try:
                return super(Database, self).create_new_study(directions, study_name)
            except DuplicatedStudyError:
                if not again or study_name is None:
                    raise
                return self.get_study_id_from_name(study_name)

        return self._patiently(create)

    def delete_study(self, study_id: int) -> None:
        def delete(again: bool) -> None:
            try:
                super(Database, self).delete_study(study_id)
            except KeyError:
                if not again:
                    raise

        self._patiently(delete)

    def _create_new_trial(
        self, study_id: int, template_trial: FrozenTrial | None = None
    ) -> FrozenTrial:
        """As Optuna's, which would make a second trial where the answer to the first one's commit
        was lost."""
        numbers: list[int] = []
        return self.get_trial(
            self._patiently(lambda again: make_trial(self, study_id, template_trial, numbers))
        )

    def set_trial_state_values(
        self, trial_id: int, state: TrialState, values: Sequence[float] | None = None
    ) -> bool:
        def change(again: bool) -> bool:
            if again:
                found = self.get_trial(trial_id)
                if found.state == state and (values is None or found.values == list(values)):
                    return True
            return super(Database, self).set_trial_state_values(trial_id, state, values)

        return self._patiently(change)


def _retried(name: str) -> Any:
    """A method of RDBStorage that reads, or writes the same again."""
    method = getattr(RDBStorage, name)

    @wraps(method)
    def patient(self: Database, *args: Any, **words: Any) -> Any:
        return self._patiently(lambda again: method(self, *args, **words))

    return patient


for _name in (
    "set_study_user_attr",
    "set_study_system_attr",
    "set_trial_user_attr",
    "set_trial_system_attr",
    "set_trial_intermediate_value",
    "_set_trial_param",
    "get_study_id_from_name",
    "get_study_name_from_id",
    "get_study_directions",
    "get_study_user_attrs",
    "get_study_system_attrs",
    "get_trial_user_attrs",
    "get_trial_system_attrs",
    "get_all_studies",
    "get_trial_id_from_study_id_trial_number",
    "get_trial_param",
    "get_trial",
    "_get_trials",
):
    setattr(Database, _name, _retried(_name))


def open_database(
    url: str, lock: DatabaseLock | None, waiting: Waiting | None, create: bool
) -> Database:
    """For a driver. create: make Optuna's tables where they are missing. Raises LedgerError."""
    if not create and not is_ready(url):
        raise LedgerError(
            f"ledger: {shown(url)} lacks Optuna's tables, but the study has begun", "Restore them."
        )
    with named_causes(url):
        for attempt in range(3, 0, -1):
            try:
                return Database(url, lock, waiting or Waiting(show=to_stderr()), create)
            except RuntimeError as error:  # Optuna's tables are of another version
                raise LedgerError(f"ledger: {shown(url)}: {error}") from None
            except Exception as error:  # two studies create the tables at the same time
                if attempt == 1 or not re.search("already exists|duplicate key", str(error)):
                    raise
                time.sleep(PAUSE)
    raise AssertionError("the last attempt returns or raises")


def read_database(url: str) -> Database | None:
    """For a reader: None where Optuna's tables are missing; none are created. Raises
    LedgerError."""
    if not is_ready(url):
        return None
    with named_causes(url):
        try:
            return Database(url, None, None, create=False)
        except RuntimeError as error:
            raise LedgerError(f"ledger: {shown(url)}: {error}") from None
