"""Run a study: StudySpec -> ledger -> Ray Tuner. Idempotent: running it again does only what is missing."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from study.analysis.ranking import Rules, on_a_front, rules_of
from study.engine.budget import Spending, expected_costs
from study.engine.nodes import check_nodes
from study.engine.ray_session import check_address, control_store, joined, set_environment
from study.engine.stopping import Stopping, temporary_folder
from study.schema.compatibility import completed_meaning, refuse_changes
from study.schema.errors import LedgerError
from study.schema.explain import kept_line
from study.schema.objective import TEMPERATURE, served_by_default
from study.schema.spec import SpecError, StudySpec, check_objectives
from study.schema.uris import public_uri, recorded_tracking, resolve_uri
from study.schema.versions import recorded_versions
from study.store.connection import is_database
from study.store.database_lock import DatabaseLock
from study.store.driver_ledger import open_ledger
from study.store.driver_lock import driver_lock
from study.store.extensions import refuse_changed_code
from study.store.ledger import Ledger, storage_to_read
from study.store.study import (
    EXTENSIONS,
    Study,
    check_home,
    home_of,
    open_directory,
    write_study_file,
)
from study.store.study_file import LEDGER_MADE
from study.store.targets import Targets
from study.store.trials import Listener, TrialRecord, trial_directory
from study.terminal.progress import Progress
from study.terminal.steps import Steps
from trainables.dataset import Dataset
from trainables.fields import FieldError, UserError
from trainables.loading.cache import Prepared, prepare
from trainables.loading.shift import check_header
from trainables.outputs.attempts import clear_checkpoints
from trainables.plugins import keep_extensions

# Joins Ray on entry, and yields a function that returns how many trials fit now.
Join = AbstractContextManager[Callable[[], int]]
# Seconds the end of a run waits for a tracking server that does not answer.
TRACKING_PATIENCE = 20.0


@dataclasses.dataclass(frozen=True)
class Outcome:
    study: Study
    records: dict[str, list[TrialRecord]]
    interrupted: str | None  # what stopped it: a signal's name
    untracked: int  # finished trials not in MLflow yet
    tracked: bool  # whether MLflow has all of them, and the end of the study's run
    tracking_trouble: str | None


def prepare_data(spec: StudySpec, file_name: str, console: Console) -> Prepared:
    """The study's data, decoded once on this machine; of shift sets only the header is read. Raises SpecError if data,
    an objective or a shift set is unusable."""
    with Steps(console) as steps, located(file_name, "data"):
        steps(f"preparing data {spec.data.shown}")
        prepared = prepare(spec.data, spec.seed, progress=steps.progress)
        used = spec.data.source_rows() if spec.shift else {}
    check_objectives(spec, prepared.num_classes, file_name)
    _check_padding(spec.data, prepared.input_shape, file_name)
    for name, shift_set in spec.shift.items():
        with located(file_name, f"shift.{name}"):
            check_header(shift_set, used, prepared.classes, prepared.input_shape)
    return prepared


def _check_padding(data: Dataset, shape: tuple[int, int, int], file_name: str) -> None:
    """Raise SpecError if crops would be of zeros alone, or the padding has no effect."""
    if data.padding is None:
        return
    if "crop" not in data.augment:
        problem = f"has no effect with augment: {data.augment}; remove it, or write augment: crop or crop_flip."
        raise SpecError(file_name, "data.padding", problem)
    if data.padding >= min(shape[1:]):
        problem = f"{data.padding} is not below the images' {min(shape[1:])} pixels: crops could be empty. Lower it."
        raise SpecError(file_name, "data.padding", problem)


def _check_batch(spec: StudySpec, prepared: Prepared, file_name: str) -> None:
    """Raise SpecError if a batch would need more samples than there are to train on."""
    for variant in spec.variants:
        holds_out = spec.equal_train or variant.method.needs_meta
        there = round(prepared.sizes["train"] * (1 - spec.data.meta * holds_out))
        searched: Any = variant.space.distributions.get("batch_size")
        largest = spec.trial(variant.label).batch_size
        if searched is not None:
            largest = max(getattr(searched, "choices", None) or [searched.high])
        if largest > there:
            problem = f"{largest} is more than the {there} samples that {variant.label} trains on. Lower it."
            raise SpecError(file_name, "batch_size", problem)


@contextmanager
def located(file_name: str, path: str) -> Iterator[None]:
    """FieldErrors raised inside become SpecErrors of the file, under the path."""
    try:
        yield
    except FieldError as error:
        found = error.under(path)
        raise SpecError(file_name, found.path, found.problem) from None


def run_study(
    spec: StudySpec,
    file_name: str,
    root: Path,
    tracking: str | None,
    address: str | None,
    console: Console,
    stopping: Stopping | None = None,
    cpus: int | None = None,
) -> Outcome:
    """Run the missing trials. Raises SpecError, LedgerError, ClusterError before anything has started.

    tracking: --tracking, which overrides the spec's and is recorded with the study. stopping: says when to stop;
    default: signals do. cpus: of this machine, for all trials; default: those that are ours.
    """
    if stopping is None:
        with Stopping() as stopping:
            return run_study(spec, file_name, root, tracking, address, console, stopping, cpus)
    set_environment()  # before Ray is imported, whose C code reads it without a lock
    tracking_uri = resolve_uri(tracking, spec.tracking, root)
    directory = root / spec.name
    if address is not None and _is_trained(spec, directory):
        address = None  # only MLflow may lack something, for which no cluster is needed
    if address is not None:
        check_address(address)
    prepared = prepare_data(spec, file_name, console)
    targets = Targets(root)
    targets.check(spec, prepared.digest, file_name)
    stored = None if spec.budget is None else existing_study(spec, file_name, directory, prepared)
    expected: dict[str, float] = {}
    if address is None:  # before anything is written
        with Steps(console) as steps:
            expected = expected_costs(spec, file_name, stored, prepared.digest, steps)
    _make_folders(spec, directory)
    if line := kept_line(spec):
        console.print(line, soft_wrap=True)
    lock, steps = driver_lock(directory, spec.ledger), Steps(console)
    with lock as database, steps, _ray(spec, root, prepared, address, steps, cpus) as join:
        if address is not None:
            expected = expected_costs(
                spec, file_name, stored, prepared.digest, steps, on_cluster=True
            )
        study = _record_spec(spec, file_name, directory, prepared, tracking)
        ledger = _open_ledger(study, database, console)
        _remove_leftovers(study)
        with stopping.deferred():
            return _train(
                study, ledger, tracking_uri, targets, join, console, steps, stopping, expected
            )


def _is_trained(spec: StudySpec, directory: Path) -> bool:
    """Whether every trial of the spec has ended; False where the study cannot be read."""
    with suppress(UserError, OSError):
        stored = _stored(spec, directory)
        if stored is not None:
            found = stored.records()
            records = {variant.label: found.get(variant.label, []) for variant in spec.variants}
            return not Study.of(directory, spec, stored.recorded).lacking(records)
    return False


def _make_folders(spec: StudySpec, directory: Path) -> None:
    """Make the folders of a new study and its ledger.

    Raises LedgerError, with nothing touched, if the ledger of a study that has begun is missing or lacks trials: its
    folder may be a mount that is gone.
    """
    stored = _stored(spec, directory)
    if stored is None and any(directory.glob("trials/*/*/attempt-*")):
        raise LedgerError(
            f"{directory}: has trials, but no study.yaml. Restore it, or rename the study."
        )
    has_trials = stored is not None and any(stored.traces.newest())
    if stored is not None:
        storage_to_read(directory, stored.ledger, stored.traces)
    directory.mkdir(parents=True, exist_ok=True)
    if not has_trials and spec.ledger is not None and not is_database(spec.ledger):
        Path(spec.ledger).parent.mkdir(parents=True, exist_ok=True)


@contextmanager
def _ray(
    spec: StudySpec,
    root: Path,
    prepared: Prepared,
    address: str | None,
    steps: Steps,
    cpus: int | None,
) -> Iterator[Join]:
    """How to join Ray. A cluster is joined now, to check its nodes before anything of the study is written."""
    needs = {variant.label: spec.resources_of(variant.label) for variant in spec.variants}
    if address is None:
        yield joined(None, needs, steps, cpus)
        return
    with joined(address, needs, steps) as slots:
        check_nodes(spec, root, prepared.digest, steps)
        yield nullcontext(slots)


def _stored(spec: StudySpec, directory: Path) -> Study | None:
    """The study in the directory, with the spec's ledger where that is the same one by another URL; None if none.

    A password changes, and a server's name. Raises LedgerError if a database is named that lacks its trials.
    """
    stored = open_directory(directory, spec.name) if (directory / "study.yaml").exists() else None
    if stored is None or not is_database(spec.ledger) or stored.plain["ledger"] == spec.ledger:
        return stored
    before: dict[str, list[TrialRecord]] | None = None
    with suppress(
        LedgerError
    ):  # of a URL that is no longer right, or whose password is not ours to read
        before = stored.records()
    if before is not None and not any(before.values()):
        return stored
    moved = stored.with_ledger(spec.ledger)
    was = f"study.yaml names {public_uri(stored.plain['ledger'] or 'ledger.log')}"
    try:
        found = moved.records()
    except LedgerError as error:
        raise LedgerError(f"{error} {was}.") from None
    if before is not None and _states(found) != _states(before):
        problem = f"has other trials of '{spec.name}' than its ledger. Write that: {was}."
        raise LedgerError(f"ledger: {public_uri(spec.ledger)} {problem}")
    return moved


def _states(records: dict[str, list[TrialRecord]]) -> dict[str, str]:
    return {record.name: record.state for found in records.values() for record in found}


def existing_study(
    spec: StudySpec, file_name: str, directory: Path, prepared: Prepared
) -> Study | None:
    """The study in the directory, None if there is none yet. Raises SpecError if it is a copy, or if it has trials and
    the spec, the data or the extensions would change their meaning.
    """
    stored = _stored(spec, directory)
    if stored is None:
        if spec.confirms is None:  # else it is as its study trained
            _check_batch(spec, prepared, file_name)
        return None
    check_home(stored)
    if records := stored.all_records():
        meaning = completed_meaning(stored.recorded["meaning"], stored.spec.meaning())
        refuse_changes(meaning, spec, file_name, "already exists")
        if stored.recorded["data_digest"] != prepared.digest:
            problem = f"the source has changed since '{spec.name}' was started. Restore it, or rename the study."
            raise SpecError(file_name, "data", problem)
        if stored.ledger != spec.ledger:
            problem = f"the ledger of '{spec.name}' is {public_uri(stored.ledger or 'ledger.log')}. Write that."
            raise SpecError(file_name, "ledger", problem)
        refuse_changed_code(spec.extensions, records, file_name)
    return stored


def serves_of(spec: StudySpec, stored: Study | None) -> str | None:
    """What the study's registered models give; None for one made before `serve`, which keeps the temperature.

    stored: the study as it exists.
    """
    if stored is not None and spec.serve is None and stored.objectives == spec.objectives:
        found: str | None = stored.recorded.get("serves")
        return found
    return spec.serve or served_by_default(spec.objectives) or TEMPERATURE


def _record_spec(
    spec: StudySpec, file_name: str, directory: Path, prepared: Prepared, tracking: str | None
) -> Study:
    """Write STUDY/study.yaml: the checked spec and recorded facts. Raises as `existing_study`."""
    recorded: dict[str, Any] = {
        "id": uuid.uuid4().hex,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    stored = existing_study(spec, file_name, directory, prepared)
    if stored is not None:
        # Kept even without trials: the id may already be in the ledger and MLflow.
        # Another ledger is accepted for a study without trials, and not made yet.
        recorded = {
            key: value
            for key, value in stored.recorded.items()
            if key != LEDGER_MADE or stored.ledger == spec.ledger
        }
        rules_then = ("majority" in recorded, stored.constraints, stored.serves)
        if rules_then != (True, spec.constraints, spec.serve or stored.serves):
            recorded = {
                **recorded,
                "kept_by_other_rules": True,
            }  # models of a front that was another
    serves = serves_of(spec, stored)
    recorded = {
        **recorded,
        "data_digest": prepared.digest,
        "classes": list(prepared.classes),
        "sizes": dict(prepared.sizes),
        "versions": recorded_versions(),
        "meaning": spec.meaning(),
        **({"serves": serves} if serves is not None else {}),
        "majority": prepared.majority("validation"),
        "home": home_of(directory),
        "tracking": recorded_tracking(tracking),
    }
    plain = spec.to_mapping()
    if spec.extensions is not None:
        # Readers on other machines need the names too, and may not have the original folder. Trials also use the copy:
        # the original may be edited while they run.
        keep_extensions(Path(spec.extensions), directory / EXTENSIONS)
        plain["extensions"] = EXTENSIONS
        spec = dataclasses.replace(spec, extensions=str(directory / EXTENSIONS))
    write_study_file(directory, {**plain, "recorded": recorded})
    return Study.of(directory, spec, recorded)


def _open_ledger(study: Study, lock: DatabaseLock | None, console: Console) -> Ledger:
    """Open the ledger and complete what a killed driver left half recorded."""
    spec = study.spec
    ledger, repaired = open_ledger(study, lock)
    for line in repaired:
        console.print(f"ledger: {line}.", soft_wrap=True)
    if not study.lacking(
        {variant.label: ledger.records(variant.label) for variant in spec.variants}
    ):
        return ledger
    for variant in spec.variants:
        ledger.finish_reported(variant.label, spec.objectives)
    return ledger


def _remove_leftovers(study: Study) -> None:
    """Remove checkpoints left by a kill between a trial's result and the clean-up."""
    for record in study.all_records():
        if record.state != "running":
            clear_checkpoints(trial_directory(study.directory, record.label, record.number))


def _train(
    study: Study,
    ledger: Ledger,
    tracking_uri: str,
    targets: Targets,
    join: Join,
    console: Console,
    steps: Steps,
    stopping: Stopping,
    expected: Mapping[str, float],
) -> Outcome:
    from study.tracking.projection import FAULT_PATIENCE, Projection

    spec = study.spec
    records = {variant.label: ledger.records(variant.label) for variant in spec.variants}
    with Projection(study, tracking_uri, stopping.requested) as projection:
        stopping.last_acts.append(lambda: projection.close(_is_complete(study), FAULT_PATIENCE))
        spending = Spending(spec, records, expected)
        if study.lacking(records) and spending.has_work():
            keeper = _ModelKeeper(study, records)
            rules = rules_of(study, [record for found in records.values() for record in found])
            with Progress(spec, records, console, steps, rules) as progress:
                ledger.waiting.show, ledger.waiting.stopped = (
                    progress.waiting,
                    lambda: stopping.caught,
                )
                _tune(
                    study,
                    ledger,
                    [keeper, progress, projection, spending],
                    targets,
                    join,
                    stopping,
                    steps,
                )
        records = {variant.label: ledger.records(variant.label) for variant in spec.variants}
        complete = not study.lacking(records)
        untracked = projection.close(complete, TRACKING_PATIENCE)
    return Outcome(study, records, stopping.caught, untracked, projection.whole, projection.trouble)


def _is_complete(study: Study) -> bool:
    """Whether every planned trial is finished; False where the ledger does not tell."""
    with suppress(LedgerError):
        return not study.lacking(study.records())
    return False


def _tune(
    study: Study,
    ledger: Ledger,
    listeners: list[Any],
    targets: Targets,
    join: Join,
    stopping: Stopping,
    steps: Steps,
) -> None:
    """Join Ray and train until every budget is met or a stop is requested."""
    with join as slots:
        steps("starting workers")  # until the first trial trains
        stopping.listen()
        from study.engine.search import LedgerSearch
        from study.engine.watching import watched
        from trainables.trainable import CalibrationTrainable

        search = LedgerSearch(study, ledger, listeners, slots, targets, stopping.requested)
        with watched(control_store(), ledger.waiting.show, stopping):
            tune_study(search, study.spec.name, CalibrationTrainable, stopping.requested)


def tune_study(search: Any, name: str, trainable: Any, stop_requested: Callable[[], bool]) -> None:
    """One Ray Tune run over all methods, on the joined Ray."""
    from ray import tune

    from study.engine.early_stopping import EarlyStopping
    from study.engine.ray_compat import losses_are_deaths, messages_until, uncounted_callbacks
    from study.engine.search import Interrupted, Watch

    with temporary_folder("calstudy-tune-") as scratch:
        tuner = tune.Tuner(
            trainable,
            tune_config=tune.TuneConfig(
                search_alg=search,
                scheduler=EarlyStopping(search.goes_on),
                num_samples=-1,
                # No limit by Tune, which could not follow nodes that come and go; the search has its own.
                max_concurrent_trials=max(1, search.outstanding),
                reuse_actors=True,
                trial_dirname_creator=lambda trial: trial.trial_id,
            ),
            run_config=tune.RunConfig(
                name=name,
                storage_path=scratch,
                callbacks=[Watch(search, stop_requested)],
                failure_config=tune.FailureConfig(
                    max_failures=0
                ),  # the search decides what is retried
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
                verbose=0,
            ),
        )
        with (
            suppress(Interrupted),
            losses_are_deaths(),
            messages_until(stop_requested),
            uncounted_callbacks(),
        ):
            tuner.fit()
        if search.fault is not None:
            raise search.fault


class _ModelKeeper(Listener):
    """`keep_models: front`: removes the weights of trials that are not, or no longer, on the front."""

    def __init__(self, study: Study, records: dict[str, list[TrialRecord]]) -> None:
        self._study = study
        self._kept: list[TrialRecord] = []
        self._rules: Rules = rules_of(study, [])
        self._best: dict[str, float] = {}
        self._keep(
            [record for found in records.values() for record in found if record.state == "complete"]
        )

    def finished(self, record: TrialRecord) -> None:
        if record.state == "complete":
            self._keep([*self._kept, record])

    def _keep(self, candidates: list[TrialRecord]) -> None:
        if self._study.spec.keep_models == "all":
            return
        # Candidates are those kept before and new ones. The best of all trials is remembered: it may itself not count.
        self._best = self._rules.best(candidates, self._best)
        self._kept = on_a_front(self._study, self._rules.eligible(candidates, self._best))
        kept = {record.name for record in self._kept}
        for dropped in candidates:
            if dropped.name not in kept:
                (self._study.files(dropped) / "model.pt").unlink(missing_ok=True)
