"""A study that is gone on with from its own record: found by what a user has of it, and what it
brings."""

from __future__ import annotations

import os
import pwd
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from search_spaces import strict_yaml
from study.schema.errors import SpecError, located
from study.schema.uris import VARIABLE, public_uri
from study.store.home import check_home
from study.store.study import StudyFolder, open_directory, storage_root
from trainables.files.nearest_file import nearest_file, no_such_file
from trainables.plugins import extension_digests

if TYPE_CHECKING:
    from study.schema.spec import StudySpec


@dataclass(frozen=True)
class ToRun:
    """What `calstudy run` is given: the file of a spec, or of a record, whose directory is the
    study's.

    note: which of two is taken, where both are called so; else empty.
    """

    file: Path
    directory: Path | None = None
    note: str = ""


def find_to_run(reference: str, storage: str | None) -> ToRun:
    """A spec's file, a study's directory, its study.yaml, or else its name under the storage.

    Raises SpecError for what looks like a file that is not there, and where --storage names another
    place than where the study lies.
    """
    path = Path(os.path.expanduser(reference))
    root = storage_root(storage)  # refuses a URL, also where it is not needed
    stored = root / reference
    is_stored = (stored / "study.yaml").is_file()
    run = shlex.join(("calstudy", "run", str(stored)))
    other = f"; for the study in the storage: {run}" if is_stored else ""
    directory = path.absolute().parent if _is_record(path) else path.absolute()
    if path.is_file() and directory == path.absolute():
        return ToRun(path, None, other and f"the spec {path} is taken{other}")
    if (directory / "study.yaml").is_file():
        if storage is not None and root.resolve() != directory.parent.resolve():
            raise SpecError(
                "--storage",
                "",
                f"is {root}, but the study lies in {directory.parent}",
                "Leave --storage out; to have it there, move its folder there, or copy it and run"
                " the copy with --moved.",
            )
        is_other = is_stored and stored.resolve() != directory.resolve()
        note = f"the study in {directory} is taken{other}" if is_other else ""
        return ToRun(directory / "study.yaml", directory, note)
    if path.exists() and not is_stored:
        return ToRun(path)  # reading it says what is wrong
    if not is_stored and (path.suffix in strict_yaml.ENDINGS or len(path.parts) > 1):
        mend = nearest_file(path, strict_yaml.ENDINGS)
        if (root / path.stem / "study.yaml").is_file():
            begun = open_directory(root / path.stem, path.stem)
            mend = f"To go on with the study '{begun.name}': {begun.goes_on}"
        raise SpecError(path.name, "", no_such_file(path), mend)
    return ToRun(stored / "study.yaml", stored)  # opening it says which studies there are


def _is_record(path: Path) -> bool:
    """Whether it is the study.yaml of a study; a spec may have that name too."""
    if path.name != "study.yaml" or not path.is_file():
        return False
    with located(path.name):
        plain = strict_yaml.read(path)
    return isinstance(plain, dict) and "recorded" in plain


def open_to_go_on(directory: Path, moved: bool = False) -> StudyFolder:
    """The study of a directory, to run what is missing. Raises SpecError for a copy, unless it was
    moved, and for a confirmation, which `confirm` runs."""
    study = open_directory(directory, str(directory))
    if not moved:
        check_home(study)
    if study.confirms is not None:
        raise SpecError(
            study.name,
            "confirms",
            f"is the confirmation of '{study.confirms}'",
            f"Run `{study.goes_on}`.",
        )
    return study


def recorded_spec(study: StudyFolder, trials: int | None = None) -> StudySpec:
    """The spec as the study recorded it. trials: of each method, in place of those recorded.

    It imports the code in the study's folder: see `refuse_another_users`.
    """
    if trials is None:
        return study.spec
    from study.schema.reading import parse_mapping

    file = str(study.directory / "study.yaml")
    parsed = parse_mapping({**study.plain, "trials": trials}, file, study.directory, recorded=True)
    return parsed.spec(study.recorded_spaces)


def brought_by(study: StudyFolder, tracking: str | None = None) -> list[str]:
    """The files of a user's own code and the MLflow server that a study's folder names.

    tracking: --tracking, which its own does not replace. Nothing of it is imported.
    """
    kept = study.plain.get("extensions")
    code = extension_digests(study.directory / kept) if isinstance(kept, str) else {}
    brought = [str(Path(str(kept)) / file) for file in code]
    server = None if tracking is not None else study.tracking_as_given(None)
    if server is not None and "://" in server:
        brought.append(public_uri(server))
    elif server is not None:
        kind = "variable" if VARIABLE.fullmatch(server) else "file"
        brought.append(f"what the {kind} {server} holds")
    return brought


def refuse_another_users(study: StudyFolder, brought: Sequence[str], trust: bool) -> None:
    """Raise SpecError if another user, who may write anything there, decides which code runs or
    which server is asked. trust: --trust was given."""
    files = [study.directory / name for name in ("", "study.yaml", *brought)]
    owner = None if trust or not brought else _other_owner(files)
    if owner is not None:
        found = f"belongs to {owner}, and would have you use {', '.join(brought)}"
        raise SpecError(str(study.directory), "", found, "Look at that; then add --trust.")


def _other_owner(paths: Iterable[Path]) -> str | None:
    """The first user other than this one who owns one of the files; None if there is none."""
    for path in paths:
        try:
            owner = path.stat().st_uid
        except FileNotFoundError:
            continue
        if owner != os.geteuid():
            try:
                return pwd.getpwuid(owner).pw_name
            except KeyError:  # of another machine
                return f"user {owner}"
    return None
