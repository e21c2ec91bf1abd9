"""Freeing disk: a study deleted, or the models of trials dropped.

A kill midway leaves a study that audits, or a deletion that the same command completes.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from search_spaces import strict_yaml
from study.store.driver_lock import driver_lock
from study.store.files import MODEL
from study.store.home import check_home
from study.store.ledger import delete_labels
from study.store.recorded import Recorded
from study.store.study import DELETING, StudyFolder, open_directory, record_facts
from study.store.trials import TrialRecord


def size_of(path: Path) -> int:
    """Bytes of all files below a folder."""
    return sum(
        file.lstat().st_size for file in path.rglob("*") if file.is_symlink() or file.is_file()
    )


def to_delete(directory: Path, suffix: str) -> list[StudyFolder]:
    """The study of a directory and, before it, its confirmation (NAME + suffix); what killed
    deletions left of them comes first."""
    folders = [directory.with_name(directory.name + suffix), directory]
    left = [folder.with_name(folder.name + DELETING) for folder in folders]
    found = []
    for folder in left:
        if (folder / "study.yaml").is_file():
            found.append(_reopened(folder))
        elif folder.is_dir() and not any(folder.iterdir()):
            # Killed at the last step.
            plain = {"name": folder.name.removesuffix(DELETING), "ledger": None}
            found.append(StudyFolder(folder, plain, Recorded()))
    for folder in folders:
        study = open_directory(folder, folder.name) if (folder / "study.yaml").is_file() else None
        if study is not None and (folder == directory or study.confirms == directory.name):
            check_home(study)
            found.append(study)
    return found


def _reopened(folder: Path) -> StudyFolder:
    plain: Any = strict_yaml.read(folder / "study.yaml")
    recorded = plain.pop("recorded")
    return StudyFolder(folder, plain, Recorded.from_plain(recorded))


def set_aside(study: StudyFolder) -> StudyFolder:
    """The study in a folder that no other command opens. Raises LedgerError while a driver runs."""
    if study.directory.name.endswith(DELETING):
        return study
    aside = study.directory.with_name(study.directory.name + DELETING)
    with driver_lock(study.directory, study.ledger):
        study.directory.rename(aside)
    return replace(study, directory=aside)


def remove(study: StudyFolder) -> None:
    """Delete what `set_aside` gave: its trials in a ledger elsewhere, then its files, study.yaml
    last."""
    if study.ledger is not None:
        with driver_lock(study.directory, study.ledger, study=study.name):
            delete_labels(
                study.directory,
                study.ledger,
                study.name,
                study.labels,
                study.id,
                study.recorded.adoptions or 0,
            )
    for entry in study.directory.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        elif entry.name != "study.yaml":
            entry.unlink()
    (study.directory / "study.yaml").unlink(missing_ok=True)
    shutil.rmtree(study.directory)


def droppable(
    study: StudyFolder, records: Iterable[TrialRecord], kept: Iterable[TrialRecord]
) -> list[Path]:
    """The model files of trials that are not `kept`."""
    names = {record.name for record in kept}
    files = [
        study.files(record) / MODEL
        for record in records
        if record.name not in names and MODEL in record.digests
    ]
    return [file for file in files if os.path.lexists(file)]


def drop(study: StudyFolder, files: Iterable[Path]) -> None:
    """Remove model files. That they are gone on purpose is recorded first: no kill leaves an
    unexplained gap."""
    check_home(study)
    with driver_lock(study.directory, study.ledger, writes=False):
        record_facts(study.directory, study, pruned=True)
        for file in files:
            file.unlink(missing_ok=True)
