"""Run a study: StudySpec -> ledger -> Ray Tuner. Idempotent: running it again does only what is
missing."""

from __future__ import annotations

import logging
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from study.analysis.ranking import rules_of
from study.engine.budget import Spending, expected_costs
from study.engine.demand import first_demand
from study.engine.display import Display, ShowsSteps
from study.engine.keeping import ModelKeeper
from study.engine.preparation import (
    check_machine,
    data_notes,
    digest_begun,
    existing_study,
    is_trained,
    make_folders,
    prepare_data,
    record_spec,
)
from study.engine.probe import here, on_nodes, probe, slots_here
from study.engine.retry import Retry
from study.engine.seeds import Seeds
from study.engine.stack_size import stacks_of
from study.machines.admission import fit_again, needed_of
from study.machines.autoscaler import Demand, asking
from study.machines.fit_nodes import PATIENCE, FitNodes
from study.machines.full_disks import FullDisks
from study.machines.guarded import Unfit, guarded
from study.machines.held import Held
from study.machines.nodes import PROBE, alive_nodes, send_as_source
from study.machines.ray_job import check_job
from study.machines.ray_session import check_address, control_store, joined, set_environment
from study.machines.stopping import Stopping, temporary_folder
from study.machines.waiting import admitted
from study.machines.watching import watched
from study.schema.errors import LedgerError
from study.schema.explain import kept_line
from study.schema.resources import most_slots
from study.schema.spec import StudySpec
from study.schema.uris import resolve_uri
from study.schema.wait import NO_WAIT, Wait
from study.store.driver_lock import driver_lock
from study.store.ledger import Ledger, open_ledger
from study.store.place import check_place, check_room
from study.store.recorded import FIRST, Race
from study.store.study import StudyFolder
from study.store.targets import Targets
from study.store.trials import Trials
from study.store.waits import note_wait
from trainables.loading.cache import Prepared
from trainables.outputs.attempts import clear_checkpoints

# Seconds the end of a run waits for a tracking server that does not answer.
TRACKING_PATIENCE = 20.0


@dataclass(frozen=True)
class RunResult:
    study: StudyFolder
    records: Trials
    interrupted: str | None  # what stopped it: a signal's name
    untracked: int  # finished trials not in MLflow yet
    tracked: bool  # whether MLflow has all of them, and the end of the study's run
    tracking_trouble: str | None


def run_study(
    spec: StudySpec,
    file_name: str,
    root: Path,
    tracking: str | None,
    address: str | None,
    display: Display,
    stopping: Stopping | None = None,
    cpus: int | None = None,
    opened: StudyFolder | None = None,
    wait: Wait = NO_WAIT,
    retry: Retry | None = None,
    race: Race | None = None,
) -> RunResult:
    """Run the missing trials. Raises SpecError, LedgerError, ClusterError before anything has
    started.

    tracking: --tracking, which overrides the spec's and is recorded with the study. display: shows
    what is done. stopping: says when to stop; default: signals do. cpus: of this machine, for all
    trials; default: those that are ours. opened: the study as it is, if that was opened before.
    wait: for what on a cluster. retry: which failed trials are retried. race: how a confirmation
    gives out its seeds.
    """
    if stopping is None:
        with Stopping() as stopping:
            return run_study(
                spec,
                file_name,
                root,
                tracking,
                address,
                display,
                stopping,
                cpus,
                opened,
                wait,
                retry,
                race,
            )
    set_environment()  # before Ray is imported, whose C code reads it without a lock
    check_job(spec, file_name, root, display.say)
    tracking_uri = resolve_uri(tracking, spec.tracking, root)
    directory = root / spec.name
    asked_address = address
    if address is not None and retry is None and is_trained(spec, directory, opened):
        address = None  # only MLflow may lack something, for which no cluster is needed
    if address is not None:
        check_address(address)
    check_place(file_name, directory, spec.ledger)
    begun = digest_begun(spec, directory, opened)
    prepared = prepare_data(spec, file_name, display.steps(), begun)
    targets = Targets(root)
    targets.check(spec, prepared.digest, file_name)
    stored = existing_study(spec, file_name, directory, opened, prepared, retry)
    if stored is None:
        for note in data_notes(spec, prepared):
            display.say(f"warning: {note}")
    expected: dict[str, float] = {}
    room = partial(check_room, file_name, directory)
    slots = partial(slots_here, spec, cpus)
    if address is None:  # before anything is written
        with display.steps() as steps:
            if any(each.gpu for each in spec.needs.values()):
                steps("trying the GPU")
            if retry is None:
                check_machine(spec, directory, stored, cpus)
            else:
                slots_here(spec, cpus)
            stacks_of(spec, file_name, stored, prepared, slots)  # refuses what takes too long
            prober = partial(probe, targets=targets, where=partial(here, cpus=cpus))
            expected = expected_costs(
                spec, file_name, stored, prepared.digest, steps, prober, room=room
            )
    make_folders(spec, directory, stored)
    first = spec if race is None else replace(spec, trials=FIRST)
    if line := kept_line(spec):
        display.say(line)
    with (
        driver_lock(directory, spec.ledger),
        display.steps() as steps,
        _ray(
            first, root, prepared, address, display, steps, cpus, stopping, wait, stored, retry
        ) as cluster,
    ):
        if address is not None:
            off = [unfit.node for unfit in cluster.unfit]
            fit = [node for node in alive_nodes() if node["NodeID"] not in off]
            slots = partial(most_slots, fit, spec.needs.values())
            prober = partial(
                probe, targets=targets, where=partial(on_nodes, off=off, wait=wait.text)
            )
            expected = expected_costs(
                spec, file_name, stored, prepared.digest, steps, prober, room=room
            )
        steps("opening the ledger")
        study = record_spec(
            spec, file_name, directory, prepared, tracking, slots, stored, retry, race
        )
        stopping.resume = stopping.resume or _resumes(study, asked_address, cpus, wait)
        ledger = _open_ledger(study, display, asked_address)
        _remove_leftovers(study, ledger.trials())
        with stopping.deferred():
            if retry is not None:
                retry.enqueue(study, ledger, expected, display.say)
            return _train(
                study, ledger, tracking_uri, targets, cluster, display, steps, stopping, expected
            )


def _resumes(
    study: StudyFolder, address: str | None, cpus: int | None, wait: Wait = NO_WAIT
) -> str | None:
    """The command that resumes the study as it now runs; None for a job on a cluster, which is
    submitted again, from elsewhere."""
    if address == "auto":
        return None
    awaited = {} if address is None else wait.options
    return study.command(study.resumed_by, address=address, **awaited, cpus=cpus)


@dataclass(frozen=True)
class _Cluster:
    """Ray. join: joins it on entry, if that was not done before, and leaves it; in between it is
    watched. unfit: nodes that a check at the start found so."""

    join: AbstractContextManager[object]
    unfit: Sequence[Unfit] = ()
    is_here: bool = False
    ask: Callable[[Demand], None] | None = None  # an autoscaler
    patience: float = PATIENCE  # seconds without a fit node
    wait: str | None = None  # --wait, which bounds how long nothing is free


@contextmanager
def _ray(
    spec: StudySpec,
    root: Path,
    prepared: Prepared,
    address: str | None,
    display: Display,
    steps: ShowsSteps,
    cpus: int | None,
    stopping: Stopping,
    wait: Wait,
    stored: StudyFolder | None = None,
    retry: Retry | None = None,
) -> Iterator[_Cluster]:
    """A cluster is joined now, to check its nodes before anything of the study is written; a Ray on
    this machine when there is something to train."""
    if address is None:
        yield _Cluster(_ray_here(spec, display, steps, cpus, stopping), is_here=True)
        return
    directory = root / spec.name
    note_wait(directory, None)  # what a killed one left
    with ExitStack() as cluster:
        cluster.enter_context(joined(address, {}, steps))
        ask = cluster.enter_context(asking(address, stopping))
        stopping.listen()
        cluster.enter_context(watched(control_store(), display.waiting, stopping))
        records = Trials({}) if stored is None else stored.records()
        ask(first_demand(spec, records if retry is None else retry.begun(records), stored))

        def step(line: str) -> None:
            note_wait(directory, line)
            steps(line)

        try:
            unfit = admitted(
                spec, root, prepared.digest, wait, step, display.say, stopping.requested
            )
        finally:
            note_wait(directory, None)
        yield _Cluster(cluster, unfit, False, ask, max(PATIENCE, wait.seconds), wait.text)


@contextmanager
def _ray_here(
    spec: StudySpec, display: Display, steps: ShowsSteps, cpus: int | None, stopping: Stopping
) -> Iterator[None]:
    with (
        joined(None, spec.needs, steps, cpus),
        watched(control_store(), display.waiting, stopping),
    ):
        yield


def _open_ledger(study: StudyFolder, display: Display, address: str | None) -> Ledger:
    """Open the ledger and complete what a killed driver left half recorded."""
    spec = study.spec
    ledger, repaired = open_ledger(study, address)
    for line in repaired:
        display.say(f"ledger: {line}.")
    if not study.lacking(ledger.trials()):
        return ledger
    for variant in spec.variants:
        ledger.finish_reported(variant.label, spec.objectives)
    return ledger


def _remove_leftovers(study: StudyFolder, records: Trials) -> None:
    """Remove what a kill left: checkpoints, between a trial's last result and the clean-up, and
    folders by which nodes were asked again; and the checkpoints of stacks, of an earlier version.
    """
    for folder in [*study.directory.glob(f"{PROBE}*"), study.directory / "stacks"]:
        shutil.rmtree(folder, ignore_errors=True)
    for record in records.finished:
        clear_checkpoints(record.directory(study.directory))


def _train(
    study: StudyFolder,
    ledger: Ledger,
    tracking_uri: str,
    targets: Targets,
    cluster: _Cluster,
    display: Display,
    steps: ShowsSteps,
    stopping: Stopping,
    expected: Mapping[str, float],
) -> RunResult:
    from study.tracking.projection import FAULT_PATIENCE, Projection

    spec = study.spec
    Seeds(study, ledger)  # what was not decided before a kill
    records = ledger.trials()
    with Projection(study, tracking_uri, stopping.requested) as projection:
        stopping.last_acts.append(lambda: projection.close(_is_complete(study), FAULT_PATIENCE))
        spending = Spending(spec, records, expected)
        if study.lacking(records) and spending.has_work():
            keeper = ModelKeeper(study, records)
            rules = rules_of(study)
            with display.following(spec, records, rules) as progress:
                _tune(
                    study,
                    ledger,
                    [keeper, progress, projection, spending],
                    targets,
                    cluster,
                    stopping,
                    steps,
                    display.waiting,
                )
        records = ledger.trials()
        complete = not study.lacking(records)
        with display.steps() as last:
            last("writing to MLflow")
            untracked = projection.close(complete, TRACKING_PATIENCE)
    return RunResult(
        study, records, stopping.caught, untracked, projection.whole, projection.trouble
    )


def _is_complete(study: StudyFolder) -> bool:
    """Whether every planned trial is finished; False where the ledger does not tell."""
    with suppress(LedgerError):
        return not study.lacking(study.records())
    return False


def _tune(
    study: StudyFolder,
    ledger: Ledger,
    listeners: list[Any],
    targets: Targets,
    cluster: _Cluster,
    stopping: Stopping,
    steps: ShowsSteps,
    waiting: Callable[[str | None], None],
) -> None:
    """Join Ray, train until every budget is met or a stop is requested, and leave Ray."""
    with cluster.join:
        steps("starting workers")  # until the first trial trains
        stopping.listen()
        from study.engine.search import LedgerSearch
        from study.machines.ray_compat import placed_off
        from trainables.training.trainable import CalibrationTrainable

        needed = needed_of(study)
        nodes = FitNodes(
            list(study.spec.needs.values()),
            partial(fit_again, needed),
            lambda line: _said(listeners, line),
            cluster.is_here,
            cluster.patience,
        )
        for unfit in cluster.unfit:
            nodes.pass_over(unfit)

        def tell(line: str | None) -> None:
            note_wait(study.directory, line)
            waiting(line)

        held = Held(study.spec.needs, lambda: nodes.passed_over, tell, cluster.wait)
        full = FullDisks(tell)

        def follow(waits: bool, heard: float) -> None:
            if not cluster.is_here:  # that Ray is ours alone
                held.look(waits)
            full.look(heard)

        search = LedgerSearch(
            study,
            ledger,
            listeners,
            nodes,
            targets,
            stopping.requested,
            cluster.ask,
            follow,
        )
        send_as_source()
        trainable = guarded(CalibrationTrainable, needed.question)
        with placed_off(lambda: nodes.passed_over):
            tune_study(search, study.spec.name, trainable, stopping.requested)
        if cluster.ask is not None:  # writing to MLflow needs no nodes
            cluster.ask(Counter())


def _said(listeners: list[Any], line: str) -> None:
    for listener in listeners:
        listener.said(line)


def tune_study(search: Any, name: str, trainable: Any, stop_requested: Callable[[], bool]) -> None:
    """One Ray Tune run over all methods, on the joined Ray."""
    from ray import tune

    from study.engine.early_stopping import RungScheduler
    from study.engine.watch import Interrupted, Watch
    from study.machines.ray_compat import losses_are_deaths, uncounted_callbacks, without_messages

    with temporary_folder("calstudy-tune-") as scratch:
        tuner = tune.Tuner(
            trainable,
            tune_config=tune.TuneConfig(
                search_alg=search,
                scheduler=RungScheduler(search.goes_on),
                num_samples=-1,
                # No limit by Tune, which could not follow nodes that come and go; the search has
                # its own.
                max_concurrent_trials=max(1, search.queue.most_outstanding),
                reuse_actors=True,
                trial_dirname_creator=lambda trial: trial.trial_id,
            ),
            run_config=tune.RunConfig(
                name=name,
                storage_path=scratch,
                callbacks=[Watch(search, stop_requested)],
                # The search decides what is retried.
                failure_config=tune.FailureConfig(max_failures=0),
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
                verbose=0,
            ),
        )
        logging.getLogger("ray.tune").setLevel(logging.CRITICAL)  # it lists what we tried again
        with (
            suppress(Interrupted),
            losses_are_deaths(),
            without_messages(),
            uncounted_callbacks(),
        ):
            tuner.fit()
        if search.fault is not None:
            raise search.fault
