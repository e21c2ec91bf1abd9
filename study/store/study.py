"""A study on disk, opened for reading: its spec, recorded facts and trials."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from search_spaces import strict_yaml
from study.schema.compatibility import RecordedSpace, recorded_spaces
from study.schema.condition import Condition, read_constraints
from study.schema.errors import LedgerError, SpecError
from study.schema.objective import (
    TEMPERATURE,
    Objective,
    served_by_default,
    served_objectives,
    serves_note,
)
from study.schema.resources import Resources
from study.schema.uris import is_hidden, resolve_uri, why_hidden
from study.store.connection import is_database
from study.store.ledger import read_enqueued, read_records
from study.store.same_ledger import Traces, traces_of
from study.store.secrets import SECRETS, with_secrets, without_secrets
from study.store.study_file import LEDGER_MADE, check_study_file
from study.store.trials import TrialRecord, trial_directory
from trainables.fields import FieldError, expanded
from trainables.files.atomic import write_whole
from trainables.outputs.attempts import attempt_directory

if TYPE_CHECKING:
    from study.schema.spec import StudySpec
    from trainables.config import TrialConfig
    from trainables.outputs.predictions import Predictions


EXTENSIONS = "extensions"  # the copy of a user's own code, in the study's folder


@dataclass(frozen=True)
class Study:
    """STUDY/study.yaml, read. Its trials can be read without importing torch or any method; `spec` imports both.

    recorded: id, created, data_digest, classes, sizes, versions, meaning.
    """

    directory: Path
    plain: dict[str, Any]  # the spec in plain values
    recorded: dict[str, Any]

    @classmethod
    def of(cls, directory: Path, spec: StudySpec, recorded: dict[str, Any]) -> Study:
        """The study of a spec that is already read."""
        study = cls(directory, spec.to_mapping(), recorded)
        study.__dict__["spec"] = spec
        return study

    @cached_property
    def spec(self) -> StudySpec:
        """The checked spec. Raises SpecError if study.yaml is invalid."""
        from study.schema.spec import spec_from_mapping

        return spec_from_mapping(
            self.plain, str(self.directory / "study.yaml"), self.directory, self.recorded_spaces
        )

    @cached_property
    def recorded_spaces(self) -> dict[str, RecordedSpace]:
        """By label, the ranges and defaults it keeps. One made before defaults were recorded: those it enqueued."""
        found = recorded_spaces(self.plain, self.recorded.get("meaning", {}))
        older = [label for label, space in found.items() if space.defaults is None]
        if older and self.confirms is None:
            for label, enqueued in read_enqueued(
                self.directory, self.ledger, self.name, older
            ).items():
                found[label] = replace(found[label], defaults=enqueued, enqueued=True)
        return found

    @property
    def id(self) -> str:
        """Distinguishes studies of one name on one server."""
        return str(self.recorded["id"])

    @property
    def name(self) -> str:
        return str(self.plain["name"])

    @cached_property
    def labels(self) -> tuple[str, ...]:
        return tuple(method["label"] for method in self.plain["methods"])

    @cached_property
    def objectives(self) -> tuple[Objective, ...]:
        return tuple(Objective(**objective) for objective in self.plain["objectives"])

    @cached_property
    def constraints(self) -> tuple[Condition, ...]:
        return read_constraints(self.plain.get("constraints"), self.objectives)

    @property
    def serves(self) -> str:
        """What its registered models give. A study made before this was recorded keeps the temperature."""
        return str(self.plain.get("serve") or self.recorded.get("serves") or TEMPERATURE)

    @property
    def serves_note(self) -> str:
        """What to say where registered models have other metrics than the search optimizes; else empty."""
        is_older = not self.plain.get("serve") and "serves" not in self.recorded
        return serves_note(self.objectives, self.serves, is_older)

    @cached_property
    def served(self) -> tuple[Objective, ...]:
        """The objectives as its registered models have them."""
        return served_objectives(self.objectives, self.serves)

    @property
    def planned(self) -> int:
        """Planned trials per label."""
        return int(self.plain["trials"])

    def resources_of(self, label: str) -> Resources:
        """What is reserved for a trial of that label."""
        own = next(
            (
                method.get("resources")
                for method in self.plain["methods"]
                if method["label"] == label
            ),
            None,
        )
        return Resources(**{**(self.plain.get("resources") or {}), **(own or {})})

    @property
    def ledger(self) -> str | None:
        """A path or an RDB URL; None: STUDY/ledger.log. Raises LedgerError if its credentials cannot be read."""
        ledger: str | None = self.plain["ledger"]
        if ledger is not None and is_hidden(ledger):
            raise LedgerError(why_hidden(ledger, "ledger"))
        return ledger

    def with_ledger(self, ledger: str | None) -> Study:
        """The study as read from another ledger."""
        return replace(self, plain={**self.plain, "ledger": ledger})

    @property
    def confirms(self) -> str | None:
        """The study whose candidates it retrains."""
        return self.plain.get("confirms")

    @property
    def goes_on(self) -> str:
        """The command that resumes it."""
        return "`calstudy run`" if self.confirms is None else f"`calstudy confirm {self.confirms}`"

    def records(self) -> dict[str, list[TrialRecord]]:
        """All trials by label and in order of number, as now in the ledger.

        Raises LedgerError if that lacks what is on disk, or an objective of a complete trial.
        """
        records = read_records(
            self.directory, self.ledger, self.name, list(self.labels), self.traces
        )
        for record in (
            record for found in records.values() for record in found if record.state == "complete"
        ):
            for objective in self.objectives:
                if objective.metric not in record.metrics:
                    problem = f"{record.name} is complete, but has no {objective.metric}. Restore it from a backup."
                    raise LedgerError(f"ledger: {problem}")
        return records

    @property
    def traces(self) -> Traces:
        """What its folder says of its ledger."""
        made = bool(self.recorded.get(LEDGER_MADE))
        id_ = str(self.recorded.get("id", ""))  # none before it is run
        return traces_of(self.directory, self.ledger, self.name, id_, self.labels, made)

    def all_records(self) -> list[TrialRecord]:
        """`records` in one list."""
        return [record for found in self.records().values() for record in found]

    def lacking(self, records: dict[str, list[TrialRecord]]) -> int:
        """How many planned trials are not finished."""
        running = sum(record.state == "running" for found in records.values() for record in found)
        return running + sum(max(0, self.planned - len(found)) for found in records.values())

    def trains(self, record: TrialRecord) -> bool:
        """Whether a process trains the trial, as far as its log tells: it was written since the present driver began.

        The other running trials wait for free resources, or an earlier driver left them.
        """
        try:
            began = (self.directory / "driver.lock").stat().st_mtime
            return (
                record.state == "running" and (self.files(record) / "log").stat().st_mtime >= began
            )
        except FileNotFoundError:
            return False

    def began(self, record: TrialRecord) -> bool:
        """Whether any attempt at the trial began to train."""
        return any(
            trial_directory(self.directory, record.label, record.number).glob("attempt-*/log")
        )

    def tracking(self, option: str | None) -> str:
        """The MLflow URI of this study: --tracking, else that of its last run, else the spec's."""
        return resolve_uri(option, self.tracking_as_given(None), self.directory.parent)

    def tracking_as_given(self, option: str | None) -> str | None:
        """A URI, or the name of the file or variable that holds it; None: the embedded database."""
        return option or self.recorded.get("tracking") or self.plain["tracking"]

    @cached_property
    def kept(self) -> dict[str, Predictions]:
        """Cached predictions, by trial."""
        return {}

    def config_of(self, record: TrialRecord) -> TrialConfig:
        """The complete config the trial was trained with."""
        from trainables.config import TrialConfig

        values = {**record.params, "number": self.spec.seed_number(record.number)}
        return TrialConfig.from_mapping(self.spec.trial_mapping(record.label), values)

    def files(self, record: TrialRecord) -> Path:
        """The directory of the attempt that counts: predictions.npz, history.json, model.pt, log."""
        return attempt_directory(
            trial_directory(self.directory, record.label, record.number), record.attempt
        )


def home_of(directory: Path) -> dict[str, Any]:
    """A study's path, and its inode, which a copy does not share."""
    return {"path": str(directory), "inode": directory.stat().st_ino}


def check_home(study: Study) -> None:
    """Raise SpecError for a copy of a study: two studies of one identity would count a trial twice.

    A study that was moved or is mounted elsewhere keeps its inode; a copy that replaces the original keeps its path. A
    cloned disk keeps all inodes: it is told by the original, where that is still at its path.
    """
    home, here = study.recorded.get("home"), home_of(study.directory)
    if home is None or home["path"] == here["path"]:
        return
    if home["inode"] != here["inode"] or _is_beside(Path(home["path"]), study.directory):
        raise SpecError(
            str(study.directory),
            "recorded.home",
            f"this is a copy of the study at {home['path']}. Continue there; or, if that one no longer exists, remove"
            " `home` from study.yaml.",
        )


def _is_beside(original: Path, copy: Path) -> bool:
    """Whether the original, with the same inode, is still there as well."""
    try:
        there, here = original.stat(), copy.stat()
    except OSError:
        return False
    return there.st_ino == here.st_ino and there.st_dev != here.st_dev


def storage_root(option: str | None, spec: str | None = None) -> Path:
    """--storage DIR, else the spec's, else $CALSTUDY_STORAGE, else ./studies; absolute. Raises SpecError for a URL."""
    chosen = option or spec or os.environ.get("CALSTUDY_STORAGE") or "studies"
    where = "--storage" if option else "storage" if spec else "$CALSTUDY_STORAGE"
    if scheme := re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", chosen):
        problem = f"is a folder, not a URL ({scheme[0]}...). Mount the bucket or share and give its folder"
        raise SpecError(where, "", f"{problem}; MLflow can keep its artifacts at a URL.")
    return Path(expanded(chosen, where)).absolute()


def open_study(reference: str, storage: str | None) -> Study:
    """STUDY as a user gives it: a directory, a spec, or a name under the storage. Raises SpecError if none exists."""
    return open_directory(directory_of(reference, storage), reference)


def open_directory(directory: Path, reference: str) -> Study:
    """The study of a directory. Raises SpecError if its study.yaml is missing or invalid."""
    study = Study(directory, *_read_study(directory, reference))
    try:
        _ = study.name, study.labels, study.objectives, study.constraints, study.planned
        _ = study.plain["ledger"], study.plain["tracking"]
    except (KeyError, TypeError, ValueError, FieldError) as error:
        _ = study.spec  # the full check reports what is wrong
        raise SpecError(str(directory / "study.yaml"), "", f"cannot be read: {error}.") from None
    _check_folder(directory, study.name)
    return study


def read_study_spec(path: Path, storage: str | None, **overrides: Any) -> StudySpec:
    """`read_spec`, for a study that may have begun: it keeps what it recorded where its file names nothing else."""
    from study.schema.spec import read_spec

    stored: Study | None = None
    recorded: dict[str, RecordedSpace] = {}
    if path.is_file():
        with suppress(SpecError):  # reading the spec, or running it, says what is wrong
            directory = directory_of(str(path), storage)
            if (directory / "study.yaml").is_file():
                stored = open_directory(directory, str(path))
                if is_database(
                    ledger := _read_yaml(path).get("ledger")
                ):  # that of study.yaml may no longer answer
                    stored = stored.with_ledger(ledger)
                recorded = stored.recorded_spaces
    spec = read_spec(path, recorded, **overrides)
    if stored is None and spec.serve is None and served_by_default(spec.objectives) is None:
        problem = (
            "the objectives are of the network as trained and of its temperature: write which of them a registered"
            " model gives, serve: temperature or serve: raw."
        )
        raise SpecError(path.name, "serve", problem)
    return spec


DELETING = ".deleting"  # the suffix of a folder that `calstudy delete` has started on


def write_study_file(directory: Path, plain: dict[str, Any]) -> None:
    """STUDY/study.yaml, whole or not at all; before it STUDY/secrets.yaml, for its user alone, if a URI has a secret.

    Under the driver's lock.
    """
    shown, secrets = without_secrets(plain)
    for name in ("study.yaml", SECRETS):
        for left in directory.glob(f"{name}.*.partial"):  # by a killed driver
            left.unlink()
    known = not any(map(is_hidden, secrets.values()))  # else they are another user's, and stay
    if secrets and known:
        write_whole(directory / SECRETS, strict_yaml.dump(secrets).encode(), mode=0o600)
    write_whole(directory / "study.yaml", strict_yaml.dump(shown).encode())
    if not secrets:
        (directory / SECRETS).unlink(missing_ok=True)


def directory_of(reference: str, storage: str | None) -> Path:
    """Where the study lies that a user names."""
    if storage is not None:
        storage_root(storage)  # refuses a URL, also where the reference is a path
    path = Path(os.path.expanduser(reference))
    if path.is_file():
        named = _read_yaml(path)
        if isinstance(named, dict) and "recorded" in named:
            return path.absolute().parent
        name = named.get("name") if isinstance(named, dict) else None
        if not isinstance(name, str):
            raise SpecError(path.name, "name", "is missing. Give the name of the study.")
        spec_storage = named.get("storage")
        return storage_root(storage, spec_storage if isinstance(spec_storage, str) else None) / name
    return path.absolute() if (path / "study.yaml").is_file() else storage_root(storage) / reference


def _read_study(directory: Path, reference: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """STUDY/study.yaml: the spec in plain values, and the recorded facts."""
    file = directory / "study.yaml"
    if not file.exists():
        known = sorted(path.parent.name for path in directory.parent.glob("*/study.yaml"))
        known = [name for name in known if not name.endswith(DELETING)]
        there = f" Existing studies: {', '.join(known)}." if known else ""
        raise SpecError(
            reference, "", f"no study at {directory}. Create it with `calstudy run SPEC`.{there}"
        )
    plain = with_secrets(directory, _read_yaml(file, str(file)))
    if not isinstance(plain, dict) or "recorded" not in plain:
        problem = "this is a spec, not the record of a study that was run. Run it with `calstudy run`, in another folder."
        raise SpecError(str(file), "", problem)
    recorded = plain.pop("recorded")
    check_study_file(file, plain, recorded)
    return plain, recorded


def _check_folder(directory: Path, name: str) -> None:
    if directory.name != name:
        raise SpecError(
            str(directory),
            "",
            f"contains the study '{name}' and must have that name. Rename the folder back.",
        )


def _read_yaml(path: Path, shown: str | None = None) -> Any:
    try:
        return strict_yaml.read(path)
    except strict_yaml.YamlError as error:
        raise SpecError(shown or path.name, error.path, error.problem) from None
