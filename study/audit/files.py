"""The files of finished trials, compared with the digests that the ledger has of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from study.analysis.ranking import Ranking, on_a_front
from study.store.extensions import first_users
from study.store.files import MISSING, MODEL, file_problem
from study.store.openings import read_tested
from study.store.study import EXTENSIONS, Study
from study.store.trials import TrialRecord, Trials
from trainables.plugins import changed_files

READERS = 4  # of files at once


@dataclass(frozen=True)
class Compared:
    """whole: by trial, the files that match. problems: of the others, the trial, the file and what
    is wrong."""

    whole: dict[str, set[str]]
    problems: tuple[tuple[str, str, str], ...]

    @property
    def matching(self) -> int:
        return sum(map(len, self.whole.values()))


def compared_files(study: Study, records: Trials, alive: bool) -> Compared:
    """Those of the finished trials' results; a model that was dropped on purpose is no problem.

    alive: whether a driver runs the study, which may just drop one.
    """
    kept = {record.name for record in on_a_front(study, Ranking(study, records).eligible)}
    on_purpose = study.plain.get("keep_models") == "front" or study.recorded.pruned
    any_of_them = study.recorded.kept_by_other_rules or alive
    wanted = []
    for record in records.finished:
        wanted += [(record, file, digest) for file, digest in record.digests.items()]
    whole: dict[str, set[str]] = defaultdict(set)
    problems = []
    for record, file, problem in _compared(study, wanted):
        dropped = on_purpose and (any_of_them or record.name not in kept)
        if problem is None:
            whole[record.name].add(file)
        elif not (problem == MISSING and file == MODEL and dropped):
            problems.append((record.name, file, problem))
    return Compared(whole, tuple(problems))


def compared_folder(study: Study, records: Trials) -> Compared:
    """`compared_files`, those of the results on test, and the code of a user's own, as it was
    copied. Nothing of it is imported."""
    found = compared_files(study, records, alive=False)
    problems = list(found.problems)
    wanted = []
    tested = read_tested(study)
    for record in records.complete:
        measured = tested[record.label].get(record.number)
        if measured is not None:
            wanted += [(record, file, digest) for file, digest in measured.digests.items()]
    for record, file, problem in _compared(study, wanted):
        if problem is None:
            found.whole[record.name].add(file)
        else:
            problems.append((record.name, file, problem))
    first = first_users(records)
    code = {file: record.extensions[file] for file, record in first.items()}
    changed = changed_files(study.directory / EXTENSIONS, code)
    for file in code:
        if file in changed:
            what = f"is not what {first[file].name} was trained with"
            problems.append((EXTENSIONS, file, what))
        else:
            found.whole[EXTENSIONS].add(file)
    return Compared(found.whole, tuple(problems))


def _compared(
    study: Study, wanted: Sequence[tuple[TrialRecord, str, str]]
) -> Iterator[tuple[TrialRecord, str, str | None]]:
    """What is wrong with each file, None if nothing."""

    def problem(one: tuple[TrialRecord, str, str]) -> str | None:
        record, file, digest = one
        path: Path = study.files(record) / file
        return file_problem(path, digest)

    with ThreadPoolExecutor(READERS) as pool:
        for (record, file, _), found in zip(wanted, pool.map(problem, wanted), strict=True):
            yield record, file, found
