"""A study adopted where it was copied to: it has one home, and the ledger and the original say so
too."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from study.schema.errors import LedgerError, SpecError
from study.store.driver_lock import driver_is_alive, driver_lock
from study.store.home import check_home, home_of
from study.store.journal import journal_path
from study.store.ledger import open_to_write
from study.store.ledger_facts import adoptions_in, studies_in
from study.store.same_ledger import ledger_is_missing
from study.store.study import (
    Study,
    open_directory,
    record_facts,
)
from trainables.files.digest import file_digest
from trainables.problems import UserError


def is_at_home(study: Study) -> bool:
    """Whether the folder is the one that the study has been in, wherever it was moved.

    A copy in the place of the original goes on there, but was not checked.
    """
    try:
        check_home(study)
    except SpecError:
        return False
    home = study.recorded.home
    return home is None or home.inode == home_of(study.directory).inode


@dataclass(frozen=True)
class HomeNow:
    """Where a copied study has its home now. study: that one, if it is seen from here."""

    path: str
    study: Study | None


def home_now(study: Study) -> HomeNow | None:
    """The home that a copy records, or the one that was adopted in its place; None without any.

    Raises LedgerError while a driver runs it, and if its ledger is not the copy's: trials that only
    it has would be trained twice.
    """
    home = study.recorded.home
    if home is None or home.path == str(study.directory):
        return None
    found = _adopted_last(study, home.path)
    there = found.study
    if there is None:
        return found
    if driver_is_alive(there.directory, there.ledger):
        problem = f"{there.directory}: another calstudy process is running the original"
        raise LedgerError(problem, "Wait for it or stop it, then copy the study again.")
    if study.ledger is None and _own_ledger(there) != _own_ledger(study):
        raise LedgerError(
            f"the ledgers of {there.directory} and of its copy {study.directory} differ",
            "Go on with the original; or copy it again, then adopt the copy.",
        )
    return found


def _adopted_last(study: Study, path: str) -> HomeNow:
    """The home at the path; if that was adopted elsewhere since, the last that is known."""
    asked: set[str] = set()
    while path not in asked:
        asked.add(path)
        there = _of_this_study(study, path)
        if there is None or there.recorded.home is None or is_at_home(there):
            return HomeNow(path, there)
        path = there.recorded.home.path
    return HomeNow(path, None)


def _of_this_study(study: Study, path: str) -> Study | None:
    """The study at the path, if it is seen and is this one in another folder."""
    try:
        there = open_directory(Path(path), path)
    except (UserError, OSError):  # there is none that could go on
        return None
    is_other = there.id == study.id and not there.directory.samefile(study.directory)
    return there if is_other else None


def _own_ledger(study: Study) -> str | None:
    file = journal_path(study.directory, study.ledger)
    return file_digest(file) if file.exists() else None


def with_adoptions(study: Study) -> Study:
    """The study as if it were the folder that its ledger belongs to."""
    storage = study.reader.unchecked.storage()
    known = 0 if storage is None else adoptions_in(studies_in(storage), study.name)
    return replace(study, recorded=replace(study.recorded, adoptions=known or None))


def adopt(study: Study, original: Study | None) -> str | None:
    """Record the folder as the study's home: first in a ledger elsewhere, then in the original,
    then in its study.yaml. A kill in between leaves a study that no folder goes on with until it
    is adopted again.

    Returns why the original could not be marked; None if it was, or is not there. Raises
    LedgerError if a driver runs either.
    """
    unmarked = None
    with ExitStack() as stack:
        stack.enter_context(driver_lock(study.directory, study.ledger))
        adoptions = _take_ledger(study)
        home = home_of(study.directory)
        if original is not None:
            try:
                if original.ledger is None:
                    stack.enter_context(driver_lock(original.directory))
                record_facts(original.directory, home=home)
            except OSError as error:  # it is read-only, or another user's
                unmarked = error.strerror or str(error)
        record_facts(study.directory, home=home, adoptions=adoptions)
    return unmarked


def _take_ledger(study: Study) -> int | None:
    """Count the adoption in a ledger elsewhere, which other folders of the study name too; returns
    the count."""
    if study.ledger is None or ledger_is_missing(study.directory, study.ledger):
        return study.recorded.adoptions
    storage, _ = open_to_write(study.directory, study.ledger, not study.traces.begun)
    there = studies_in(storage)
    adoptions = 1 + adoptions_in(there, study.name)
    for label in study.labels:
        mark = there.get(f"{study.name}/{label}", {}).get("calstudy")
        if isinstance(mark, dict):
            label_id = storage.get_study_id_from_name(f"{study.name}/{label}")
            storage.set_study_user_attr(label_id, "calstudy", {**mark, "adoptions": adoptions})
    return adoptions
