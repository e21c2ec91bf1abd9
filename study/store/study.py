"""A study on disk, opened for reading: its spec, recorded facts and trials."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from search_spaces import strict_yaml
from study.schema.compatibility import RecordedSpace, recorded_spaces, without_fronts
from study.schema.condition import Condition, read_constraints
from study.schema.errors import LedgerError, SpecError, located
from study.schema.matters import read_matters, units, what_matters
from study.schema.objective import (
    EITHER,
    RAW,
    Objective,
    served_objectives,
    serves_note,
)
from study.schema.resources import Resources
from study.schema.uris import resolve_uri
from study.store.command_line import CommandLine
from study.store.ledger_reader import LedgerReader
from study.store.other_objectives import OtherObjectives
from study.store.recorded import Recorded
from study.store.same_ledger import Traces, traces_of
from study.store.study_file import check_study_file
from study.store.trials import TrialRecord, Trials
from trainables.fields import expanded
from trainables.files.atomic import write_whole
from trainables.outputs.attempts import attempt_directory
from trainables.plugins import open_extensions
from trainables.problems import FieldError, UserError

if TYPE_CHECKING:
    from study.schema.reading import ParsedSpec
    from study.schema.spec import StudySpec
    from trainables.config import TrialConfig
    from trainables.outputs.predictions import Predictions


EXTENSIONS = "extensions"  # the copy of a user's own code, in the study's folder


@dataclass(frozen=True)
class StudyFolder:
    """STUDY/study.yaml, read. Its trials can be read without importing torch or any method; `spec`
    imports both."""

    directory: Path
    plain: dict[str, Any]  # the spec in plain values
    recorded: Recorded
    text: str = field(default="", repr=False, compare=False)  # of study.yaml, as it was read
    given: OtherObjectives | None = None  # objectives, afterwards; None: its own
    form: str | None = None  # of its models where it serves EITHER, once that is decided

    def __post_init__(self) -> None:
        if own := self.plain.get("extensions"):
            open_extensions(self.directory / str(own))

    @classmethod
    def of(cls, directory: Path, spec: StudySpec, recorded: Recorded) -> StudyFolder:
        """The study of a spec that is already read."""
        study = cls(directory, spec.to_mapping(), recorded)
        study.__dict__["spec"] = spec
        return study

    @cached_property
    def spec(self) -> StudySpec:
        """The checked spec. Raises SpecError if study.yaml is invalid."""
        from study.schema.reading import parse_mapping

        parsed = parse_mapping(
            self.plain, str(self.directory / "study.yaml"), self.directory, recorded=True
        )
        return parsed.spec(self.recorded_spaces)

    @cached_property
    def recorded_spaces(self) -> dict[str, RecordedSpace]:
        """By label, the ranges and defaults it keeps."""
        return recorded_spaces(self.plain, self.recorded.meaning)

    @property
    def id(self) -> str:
        """Distinguishes studies of one name on one server."""
        return self.recorded.id

    @property
    def name(self) -> str:
        return str(self.plain["name"])

    @cached_property
    def labels(self) -> tuple[str, ...]:
        return tuple(method["label"] for method in self.plain["methods"])

    @cached_property
    def own_objectives(self) -> tuple[Objective, ...]:
        """Those that it searched and stopped for."""
        return tuple(Objective(**objective) for objective in self.plain["objectives"])

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """Its own, or those given afterwards."""
        return self.own_objectives if self.given is None else self.given.objectives

    @property
    def afterwards(self) -> str:
        """What an output begins with where objectives were given afterwards; else empty."""
        return "" if self.given is None else self.given.line

    @property
    def given_option(self) -> dict[str, Any]:
        """The option that gives these objectives to another command."""
        return {} if self.given is None else self.given.option

    @property
    def suffix(self) -> str:
        """What the names of files that show these objectives have; none of its own."""
        return "" if self.given is None else self.given.suffix

    @property
    def title(self) -> str:
        """Its name in figures; below that line."""
        return "\n".join(filter(None, (self.afterwards, self.name)))

    @cached_property
    def constraints(self) -> tuple[Condition, ...]:
        return read_constraints(self.plain.get("constraints"), self.own_objectives)

    @cached_property
    def matters(self) -> dict[str, float]:
        """The smallest difference that matters in each objective, by metric without `ts_`."""
        own = read_matters(self.plain.get("matters"), self.own_objectives)
        return what_matters(self.objectives, own, len(self.recorded.classes))

    @cached_property
    def units(self) -> dict[str, float]:
        """By objective as deployed, the difference that counts as one."""
        return units(self.served, self.matters)

    @property
    def serve(self) -> str:
        """TEMPERATURE, RAW or EITHER, as the study says or objectives given afterwards do."""
        said = None if self.given is None else self.given.serves
        if said is None or (said, self.recorded.serves) == (RAW, EITHER):
            said = self.recorded.serves
        return str(self.plain.get("serve") or said)

    @property
    def serves(self) -> str:
        """What its registered models give: TEMPERATURE or RAW."""
        if self.serve != EITHER:
            return self.serve
        assert self.form is not None, "not decided yet: `Ranking.deployed`"
        return self.form

    def served_as(self, serves: str) -> StudyFolder:
        """The study as if its registered models gave TEMPERATURE or RAW."""
        return replace(self, plain={**self.plain, "serve": serves})

    @property
    def serves_note(self) -> str:
        """What to say where registered models have other metrics than it optimizes; else empty."""
        return serves_note(self.objectives, self.serves, self.given is None, self.serve == EITHER)

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
        own = {method["label"]: method.get("resources") for method in self.plain["methods"]}
        usual = self.plain.get("resources") or {}
        return Resources(**{**usual, **(own.get(label) or {})})

    @property
    def ledger(self) -> str | None:
        """A path; None: STUDY/ledger.log."""
        ledger: str | None = self.plain["ledger"]
        return ledger

    def with_ledger(self, ledger: str | None) -> StudyFolder:
        """The study as read from another ledger."""
        return replace(self, plain={**self.plain, "ledger": ledger})

    @property
    def stack(self) -> int | None:
        """How many trials are trained as one program at most; None: each is trained alone."""
        return None if self.recorded.stack is None else self.recorded.stack.trials

    @property
    def confirms(self) -> str | None:
        """The study whose candidates it retrains."""
        return self.plain.get("confirms")

    @property
    def confirms_itself(self) -> bool:
        """Whether its own trials are measured on test."""
        found = self.recorded.confirmation
        return found is not None and found.name == self.name

    @property
    def is_confirmation(self) -> bool:
        """Whether its trials are measured on test."""
        return self.confirms is not None or self.confirms_itself

    @property
    def goes_on(self) -> str:
        """The command that resumes it."""
        return self.command(self.resumed_by)

    @property
    def goes_on_anywhere(self) -> str:
        """As `goes_on`, for a text that is read in any folder."""
        return self.command(self.resumed_by, anywhere=True)

    @property
    def resumed_by(self) -> str:
        return "run" if self.confirms is None else "confirm"

    def command(self, verb: str, *, anywhere: bool = False, **options: object) -> CommandLine:
        """A whole command of it with these options, to be pasted into a shell: with --storage where
        a command without it looks elsewhere. anywhere: also from another folder than this process
        is in.

        A confirmation is confirmed by the name of its search.
        """
        root = self.directory.parent
        of_search = self.confirms if verb == "confirm" else None
        is_found = _is_default(root) and not anywhere
        where = () if is_found else ("--storage", str(root))
        return CommandLine.of(verb, of_search or self.name, options, where)

    def records(self, reader: LedgerReader | None = None) -> Trials:
        """All trials, as now in the ledger, or as a reader holds it.

        Raises LedgerError if that lacks what is on disk, or an objective of a complete trial.
        """
        records = (reader or self.reader).records()
        for record in records.complete:
            for objective in self.own_objectives:
                if objective.metric not in record.metrics:
                    found = f"{record.name} is complete, but has no {objective.metric}"
                    raise LedgerError(f"ledger: {found}", "Restore it from a backup.")
        return records if self.given is None else self.given.of(records)

    @property
    def reader(self) -> LedgerReader:
        """Its ledger, to read, with what its folder says of it now."""
        return LedgerReader(self.directory, self.ledger, self.name, self.labels, self.traces)

    @property
    def traces(self) -> Traces:
        """What its folder says of its ledger."""
        made = bool(self.recorded.ledger_made)
        known = self.recorded.adoptions or 0
        return traces_of(self.directory, self.ledger, self.name, self.id, self.labels, made, known)

    def lacking(self, records: Trials) -> int:
        """How many planned trials are not finished."""
        return records.lacking(self.planned)

    def trains(self, record: TrialRecord) -> bool:
        """Whether a process trains the trial, as far as its log tells: it was written since the
        present driver began.

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
        return any(record.directory(self.directory).glob("attempt-*/log"))

    def tracking(self, option: str | None) -> str:
        """The MLflow URI of this study: --tracking, else that of its last run, else the spec's."""
        return resolve_uri(option, self.tracking_as_given(None), self.directory.parent)

    def tracking_as_given(self, option: str | None) -> str | None:
        """A URI, or the name of the file or variable that holds it; None: the embedded database."""
        return option or self.recorded.tracking or self.plain["tracking"]

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
        """The directory of the attempt that counts: predictions.npz, history.json, model.pt,
        log."""
        return attempt_directory(record.directory(self.directory), record.attempt)


def storage_root(option: str | None, spec: str | None = None) -> Path:
    """--storage DIR, else the spec's, else $CALSTUDY_STORAGE, else ./studies; absolute.
    Raises SpecError for a URL."""
    chosen = option or spec or os.environ.get("CALSTUDY_STORAGE") or "studies"
    where = "--storage" if option else "storage" if spec else "$CALSTUDY_STORAGE"
    if scheme := re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", chosen):
        raise SpecError(
            where,
            "",
            f"is a folder, not a URL ({scheme[0]}...)",
            "Mount the bucket or share and give its folder; MLflow can keep its artifacts at a"
            " URL.",
        )
    return Path(expanded(chosen, where)).absolute()


def _is_default(root: Path) -> bool:
    """Whether commands without --storage look there, in this directory and environment."""
    try:
        return storage_root(None).resolve() == root.resolve()
    except UserError:  # $CALSTUDY_STORAGE is no folder
        return False


def open_study(reference: str, storage: str | None) -> StudyFolder:
    """STUDY as a user gives it: a directory, a spec, or a name under the storage. Raises SpecError
    if none exists."""
    return open_directory(directory_of(reference, storage), reference)


def open_directory(
    directory: Path, reference: str, opened: StudyFolder | None = None
) -> StudyFolder:
    """The study of a directory. Raises SpecError if its study.yaml is missing or invalid.

    opened: as it was opened before; returned if its study.yaml is still the same.
    """
    text = _study_text(directory, reference)
    if opened is not None and (opened.directory, opened.text) == (directory, text):
        return opened
    study = StudyFolder(directory, *_parse_study(directory / "study.yaml", text), text)
    try:
        _ = study.name, study.labels, study.own_objectives, study.constraints, study.planned
        _ = study.plain["ledger"], study.plain["tracking"]
    except (KeyError, TypeError, ValueError, FieldError) as error:
        _ = study.spec  # the full check reports what is wrong
        raise SpecError(str(directory / "study.yaml"), "", f"cannot be read: {error}") from None
    if directory.name != study.name:
        raise SpecError(
            str(directory),
            "",
            f"contains the study '{study.name}' and must have that name",
            "Rename the folder back.",
        )
    return study


def reopened(directory: Path, opened: StudyFolder | None) -> StudyFolder | None:
    """The study in a directory as it now is, None if there is none; read again only if its
    study.yaml has changed since it was opened."""
    if not (directory / "study.yaml").exists():
        return None
    return open_directory(directory, directory.name, opened)


def spec_and_study(
    path: Path, storage: str | None, **overrides: Any
) -> tuple[StudySpec, StudyFolder | None]:
    """What a user's file asks, by `parse_spec`, and the study of it that has begun, opened once.

    That keeps what it recorded where the file names nothing else. None also stands for one that
    cannot be opened: who opens it again says why.
    """
    from study.schema.reading import parse_spec

    return begun(parse_spec(path, **overrides), storage)


def begun(parsed: ParsedSpec, storage: str | None) -> tuple[StudySpec, StudyFolder | None]:
    """`spec_and_study` of what is parsed already."""
    stored: StudyFolder | None = None
    with suppress(SpecError):  # running the spec says what is wrong
        stored = reopened(storage_root(storage, parsed.storage) / parsed.name, None)
    return parsed.spec(None if stored is None else stored.recorded_spaces), stored


DELETING = ".deleting"  # the suffix of a folder that `calstudy delete` has started on


def write_study_file(study: StudyFolder) -> None:
    """STUDY/study.yaml, whole or not at all. Under the driver's lock."""
    directory = study.directory
    for left in directory.glob("study.yaml.*.partial"):  # by a killed driver
        left.unlink()
    plain = {**study.plain, "recorded": study.recorded.to_plain()}
    write_whole(directory / "study.yaml", strict_yaml.dump(plain).encode())


def record_facts(directory: Path, opened: StudyFolder | None = None, **facts: Any) -> None:
    """Write facts into STUDY/study.yaml as it now is. Under the driver's lock.

    opened: as it was opened before.
    """
    study = open_directory(directory, directory.name, opened)
    write_study_file(replace(study, recorded=replace(study.recorded, **facts)))


def directory_of(reference: str, storage: str | None) -> Path:
    """Where the study lies that a user names."""
    if storage is not None:
        storage_root(storage)  # refuses a URL, also where the reference is a path
    path = Path(os.path.expanduser(reference))
    if path.is_file():
        with located(path.name):
            named = strict_yaml.read(path)
        if isinstance(named, dict) and "recorded" in named:
            return path.absolute().parent
        name = named.get("name") if isinstance(named, dict) else None
        if not isinstance(name, str):
            raise SpecError(path.name, "name", "is missing", "Give the name of the study.")
        spec_storage = named.get("storage")
        return storage_root(storage, spec_storage if isinstance(spec_storage, str) else None) / name
    return path.absolute() if (path / "study.yaml").is_file() else storage_root(storage) / reference


def _study_text(directory: Path, reference: str) -> str:
    """STUDY/study.yaml, as it is written."""
    file = directory / "study.yaml"
    if not file.exists():
        known = sorted(path.parent.name for path in directory.parent.glob("*/study.yaml"))
        known = [name for name in known if not name.endswith(DELETING)]
        mend = "Create it with `calstudy run SPEC`."
        if known:
            mend += f" Existing studies: {', '.join(known)}."
        raise SpecError(reference, "", f"no study at {directory}", mend)
    with located(str(file)):
        return strict_yaml.read_text(file)


def _parse_study(file: Path, text: str) -> tuple[dict[str, Any], Recorded]:
    """The spec in plain values, and the recorded facts."""
    with located(str(file)):
        plain = strict_yaml.parse(text)
    if not isinstance(plain, dict) or "recorded" not in plain:
        raise SpecError(
            str(file),
            "",
            "this is a spec, not the record of a study that was run",
            "Run it with `calstudy run`, in another folder.",
        )
    recorded = plain.pop("recorded")
    check_study_file(file, plain, recorded)
    return without_fronts(plain, recorded["meaning"]), Recorded.from_plain(recorded)
