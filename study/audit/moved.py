"""A copy of a study, gone on with where it lies: compared with the ledger's digests, then recorded
as the study's home."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from study.audit.files import compared_files
from study.audit.openings import other_openings
from study.schema.errors import LedgerError, SpecError
from study.store.confirmed import confirming_study, missing_confirmation
from study.store.driver_lock import driver_lock
from study.store.extensions import changed_code
from study.store.home import away_from_home, home_of
from study.store.journal import journal_path
from study.store.ledger import open_to_write
from study.store.ledger_facts import adoptions_in, studies_in
from study.store.openings import openings_in, read_tested
from study.store.same_ledger import ledger_is_missing
from study.store.study import EXTENSIONS, StudyFolder, open_directory, record_facts
from trainables.files.digest import file_digest
from trainables.problems import UserError


def go_on_here(search: StudyFolder) -> Iterator[str]:
    """Record the folders of a study and of the confirmation beside it as their homes, where they
    are copies; yields what is to be said.

    Of two folders one may go on: both would train the same trials, and open the test split. Which
    one is written where both find it, and nowhere else. An original that is seen gets the new home
    into its study.yaml: it is refused from then on, and so is any other copy of it. A ledger
    outside the folder counts the moves: a folder that knows of fewer is refused. A second copy of
    an original that is gone, whose ledger lay in its folder, cannot be told from the first.

    A kill leaves a copy that no command goes on with until it is moved again. Raises SpecError, and
    records nothing, if a file is missing or differs; LedgerError if the original runs or went on.
    """
    confirming = confirming_study(search)
    both = [search] if confirming is None or confirming is search else [confirming, search]
    for study in both:
        if away_from_home(study):
            yield from _moved(study, search)
            if study is search and (missing := missing_confirmation(search)):
                yield f"{missing}. Copy that folder here too."


def _moved(study: StudyFolder, search: StudyFolder) -> Iterator[str]:
    # It asks the lock whether a driver runs.
    openings = other_openings(search) if study.is_confirmation else None
    with ExitStack() as locks:
        locks.enter_context(driver_lock(study.directory, study.ledger))
        yield from _checked(study, openings)
        yield f"{study.name}: {_mark_original(study, locks)}"
        adoptions = _count_in_ledger(study)
        record_facts(study.directory, home=home_of(study.directory), adoptions=adoptions)
    yield f"{study.name} goes on in {study.directory}"


def _checked(study: StudyFolder, openings: str | None) -> Iterator[str]:
    """Say what was compared, and what is missing or differs. Raises SpecError if anything is."""
    # As if it were the folder that a ledger elsewhere, which counts moves, belongs to.
    reader = replace(study.reader, traces=replace(study.traces, adoptions=sys.maxsize))
    records = study.records(reader)
    found = compared_files(study, records, read_tested(study, reader), alive=False)
    problems = [f"{name}: {file} {problem}" for name, file, problem in found.problems]
    for file, trial in changed_code(study.directory / EXTENSIONS, records).items():
        problems.append(f"{EXTENSIONS}: {file} is not what {trial} was trained with")
    if openings is not None:
        problems.append(f"openings: {openings}")
    files = f"{study.name}: {len(found.whole):,} files match the ledger's digests"
    if study.is_confirmation:
        opened = sum(len(openings_in(notes)) for notes in reader.notes().values())
        files += f"; {opened:,} openings of the test split come with it"
    yield files
    yield from (f"  {problem}" for problem in problems)
    if problems:
        raise SpecError(
            str(study.directory),
            "",
            f"is no whole copy: {len(problems):,} of its files are missing or differ",
            "Copy these again, from the original or a backup.",
        )


def _mark_original(study: StudyFolder, locks: ExitStack) -> str:
    """Write the new home into the original, under its lock, if it is seen; returns what to say.

    Raises LedgerError if it runs, if another copy of it went on, or if its ledger is not the
    copy's: trials that only it has would be trained twice.
    """
    assert study.recorded.home is not None
    path = study.recorded.home.path
    here = home_of(study.directory)
    try:
        there = open_directory(Path(path), path)
    except (UserError, OSError):
        there = None
    if there is None or there.id != study.id:
        return f"{path}, of which this is a copy, is not seen from here: never run it again"
    try:
        if there.ledger is None:
            locks.enter_context(driver_lock(there.directory))
        there = open_directory(Path(path), path)
        if away_from_home(there) and there.recorded.home != here:
            elsewhere = there.recorded.home and there.recorded.home.path
            raise LedgerError(
                f"{study.directory} is a second copy of {path}, which has gone on in {elsewhere}",
                f"Go on there; or, if that is gone, with {path}, by --moved.",
            )
        if study.ledger is None and _own_ledger(there) != _own_ledger(study):
            raise LedgerError(
                f"the ledgers of {path} and of its copy {study.directory} differ",
                "Go on with the original, or copy it again.",
            )
        record_facts(there.directory, home=here)
    except OSError as error:  # it is read-only, or another user's
        return f"{path} could not be marked ({error.strerror or error}): never run it again"
    return f"{path}, of which this is a copy, is marked: calstudy refuses to run it from now on"


def _own_ledger(study: StudyFolder) -> str | None:
    file = journal_path(study.directory, study.ledger)
    return file_digest(file) if file.exists() else None


def _count_in_ledger(study: StudyFolder) -> int | None:
    """Count the move in a ledger elsewhere, which other folders of the study name too; returns the
    count."""
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
