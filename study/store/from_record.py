"""A study that is gone on with from its own record: found by what a user has of it, and what it
brings."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from search_spaces import strict_yaml
from study.schema.errors import SpecError, located
from study.schema.uris import VARIABLE, public_uri
from study.store.home import check_home
from study.store.study import Study, open_directory, storage_root
from trainables.files.beside import nearest_file, no_such_file
from trainables.plain import Plain
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
    """A spec's file, a study's directory, its study.yaml, or its name under the storage.

    Raises SpecError if it is none of these.
    """
    path = Path(os.path.expanduser(reference))
    if storage is not None:
        storage_root(storage)  # refuses a URL, also where it is not needed
    if path.is_file():
        if _is_record(path):
            return ToRun(path, _checked(path.absolute().parent, storage))
        return ToRun(path, None, _beside(reference, storage, f"the spec {path} is taken"))
    if (path / "study.yaml").is_file():
        directory = _checked(path.absolute(), storage)
        note = _beside(reference, storage, f"the study in {directory} is taken", directory)
        return ToRun(directory / "study.yaml", directory, note)
    root = storage_root(storage)
    if (root / reference / "study.yaml").is_file():
        return ToRun(root / reference / "study.yaml", root / reference)
    if path.exists():
        return ToRun(path)  # reading it says what is wrong
    if path.suffix in strict_yaml.ENDINGS or len(path.parts) > 1:
        mend = nearest_file(path, strict_yaml.ENDINGS)
        if (root / path.stem / "study.yaml").is_file():
            begun = open_directory(root / path.stem, path.stem)
            mend = f"To go on with the study '{begun.name}': {begun.goes_on}"
        raise SpecError(path.name, "", no_such_file(path), mend)
    known = sorted(file.parent.name for file in root.glob("*/study.yaml"))
    mend = "Give the file of a spec."
    if known:
        mend = f"Give the file of a spec, or one of the studies there: {', '.join(known)}."
    raise SpecError(reference, "", f"there is no such file, and no such study in {root}", mend)


def _is_record(file: Path) -> bool:
    """Whether a file is a study's record. Raises SpecError for one outside its study."""
    with located(file.name):
        plain = strict_yaml.read(file)
    if not (isinstance(plain, dict) and "recorded" in plain):
        return False
    if file.name != "study.yaml":
        raise SpecError(
            file.name,
            "recorded",
            f"this is the record of the study '{plain.get('name')}', not a spec",
            "Run that study by its name; for a new one, remove `recorded` and change `name`.",
        )
    return True


def _checked(directory: Path, storage: str | None) -> Path:
    """The directory. Raises SpecError if --storage names another place than where it lies."""
    if storage is not None and storage_root(storage).resolve() != directory.parent.resolve():
        raise SpecError(
            "--storage",
            "",
            f"is {storage_root(storage)}, but the study lies in {directory.parent}",
            "Leave --storage out; to have it there, move its folder there, or copy it and run the"
            " copy with --moved.",
        )
    return directory


def _beside(reference: str, storage: str | None, taken: str, directory: Path | None = None) -> str:
    """The note where the storage has another study of this name; else empty."""
    other = storage_root(storage) / reference
    if len(Path(reference).parts) > 1 or not (other / "study.yaml").is_file():
        return ""
    if directory is not None and other.resolve() == directory.resolve():
        return ""
    return f"{taken}; for the study in the storage: calstudy run {other}"


def open_to_go_on(directory: Path, moved: bool = False) -> Study:
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


def recorded_spec(study: Study, trials: int | None = None) -> StudySpec:
    """The spec as the study recorded it. trials: of each method, in place of those recorded.

    It imports the code in the study's folder: see `Taken`.
    """
    if trials is None:
        return study.spec
    from study.schema.reading import parse_mapping

    file = str(study.directory / "study.yaml")
    parsed = parse_mapping({**study.plain, "trials": trials}, file, study.directory)
    return parsed.spec(study.recorded_spaces)


# ---- what it brings ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Taken:
    """What a command takes from a study's folder, beside its trials, as it is shown."""

    directory: Path
    code: tuple[str, ...]  # files of a user's own code
    ledger: str
    tracking: str
    data: tuple[str, ...]
    servers: tuple[str, ...]  # that of MLflow, if the folder names one

    def lines(self) -> Iterator[str]:
        yield f"from the record in {self.directory}"
        for what, found in (
            ("code", ", ".join(self.code) or "none of its own"),
            ("ledger", self.ledger),
            ("tracking", self.tracking),
            ("data", ", ".join(self.data)),
        ):
            yield f"  {f'{what}:':10}{found}"

    def refuse_another_users(self, trust: bool) -> None:
        """Raise SpecError if another user, who may write anything there, decides which code runs or
        which server is asked. trust: --trust was given."""
        owner = None if trust else _other_owner(self._files())
        if owner is None or not (self.code or self.servers):
            return
        named = [*self.code, *self.servers]
        raise SpecError(
            str(self.directory),
            "",
            f"belongs to {owner}, and would have you use {', '.join(named)}",
            "Look at that; then add --trust.",
        )

    def _files(self) -> Iterator[Path]:
        yield from (self.directory, self.directory / "study.yaml")
        yield from (self.directory / file for file in self.code)


def taken_from(study: Study, tracking: str | None = None) -> Taken:
    """Of a study, without importing anything of it. tracking: --tracking, which its own does not
    replace."""
    given = None if tracking is not None else study.tracking_as_given(None)
    asked = tracking if tracking is not None else given
    return Taken(
        study.directory,
        tuple(_code(study)),
        study.ledger or "ledger.log",
        f"embedded in {study.directory.parent}" if asked is None else _place(asked),
        tuple(_data(study.plain)),
        () if given is None else (_place(given),),
    )


def _code(study: Study) -> Iterator[str]:
    """The files of a user's own code, from the study's folder, or by whole paths."""
    kept = study.plain.get("extensions")
    if isinstance(kept, str):
        for file in extension_digests(study.directory / kept):
            yield str(Path(kept) / file)


def _place(tracking: str) -> str:
    """`mlflow.example.org`, or what holds the URI."""
    if "://" in tracking:
        return public_uri(tracking)
    kind = "variable" if VARIABLE.fullmatch(tracking) else "file"
    return f"what the {kind} {tracking} holds"


def _data(plain: Mapping[str, Plain]) -> Iterator[str]:
    """The data set and the shift sets: their names, and where they are read from."""
    shift = plain.get("shift")
    others = list(shift.values()) if isinstance(shift, Mapping) else []
    for each in (plain.get("data"), *others):
        if isinstance(each, Mapping):
            path = each.get("path")
            yield str(each.get("name")) + (f" at {path}" if path else "")
        else:
            yield str(each)


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
