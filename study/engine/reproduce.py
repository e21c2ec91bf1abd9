"""Train a study whose every value is fixed and measure it on test, as far as that is to be done."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from study.answer.confirmation import results_of
from study.engine.candidates import Asked, confirms_itself
from study.engine.confirm import choose, confirm
from study.engine.display import Display
from study.engine.preparation import digest_begun, existing_study, is_trained, prepare_data
from study.engine.run import run_study
from study.machines.stopping import Stopping
from study.schema.errors import SpecError, StudyInUse
from study.schema.spec import StudySpec
from study.schema.uris import TrackingError
from study.schema.wait import NO_WAIT, Wait
from study.store.confirmed import SUFFIX
from study.store.driver_lock import driver_is_alive
from study.store.study import StudyFolder, open_directory
from study.tracking.projection import sync


@dataclass(frozen=True)
class Place:
    """Where a study is run. root: the storage. cpus: of this machine; None: those that are ours."""

    root: Path
    tracking: str | None = None
    address: str | None = None
    cpus: int | None = None
    wait: Wait = NO_WAIT


@dataclass(frozen=True)
class Reproduced:
    """study: as it is then; None where a stop was requested. untracked: why MLflow lacks some of
    it, if it does."""

    study: StudyFolder | None
    untracked: str | None = None


def train(
    spec: StudySpec,
    file_name: str,
    opened: StudyFolder | None,
    place: Place,
    display: Display,
    stopping: Stopping,
) -> Reproduced:
    """Run the study's missing trials. Raises UserError before anything has started.

    opened: the study as it is, if it has begun.
    """
    directory = place.root / spec.name
    if not is_trained(spec, directory, opened):
        outcome = run_study(
            spec,
            file_name,
            place.root,
            place.tracking,
            place.address,
            display,
            stopping,
            place.cpus,
            opened,
            place.wait,
        )
        if outcome.interrupted:
            return Reproduced(None)
        lacks = None if outcome.tracked else outcome.tracking_trouble or "its end"
        return Reproduced(open_directory(directory, spec.name), lacks)
    begun = digest_begun(spec, directory, opened)
    prepared = prepare_data(spec, file_name, display.steps(), begun)
    stored = existing_study(spec, file_name, directory, opened, prepared)
    assert stored is not None
    return Reproduced(stored)


def measured(study: StudyFolder, place: Place, display: Display, stopping: Stopping) -> Reproduced:
    """Measure a trained study on test, once per model. Raises UserError before anything is
    opened."""
    if not confirms_itself(results_of(study)):
        found = f"was confirmed in {study.name}{SUFFIX}, which retrained its trials"
        mend = "Reproduce the table in another --storage."
        raise SpecError(study.name, "", found, mend)
    outcome, untracked = confirm(
        choose(study, Asked(), display),
        place.tracking,
        place.address,
        display,
        stopping,
        place.cpus,
        place.wait,
    )
    if stopping.requested():
        return Reproduced(None)
    return Reproduced(open_directory(outcome.study.directory, outcome.study.name), untracked)


def tracked(found: Reproduced, place: Place) -> Reproduced:
    """A study that is not measured, and that MLflow has as well."""
    if found.study is None or found.untracked is not None:
        return found
    try:
        sync(found.study, found.study.tracking(place.tracking))
    except TrackingError as error:
        return Reproduced(found.study, error.found)
    return found


def is_kept(spec: StudySpec, directory: Path, opened: StudyFolder | None, has_rows: bool) -> bool:
    """Whether all is done in a study that cannot be written, such as one on a read-only mount."""
    if opened is None or os.access(directory, os.W_OK) or not is_trained(spec, directory, opened):
        return False
    confirmation = results_of(opened).confirmation
    return not has_rows or (confirmation is not None and confirmation.finished)


def refuse_driver(directory: Path, ledger: str | None) -> None:
    """Raise StudyInUse while another process runs the study."""
    if driver_is_alive(directory, ledger):
        found = f"{directory}: another calstudy process is running this study"
        raise StudyInUse(found, "Wait until it is done, then run the same command again.")


def refuse_search(spec: StudySpec, file_name: str) -> None:
    """Raise SpecError unless every value of the study is fixed, and its models are kept."""
    searched = [one.label for one in spec.variants if one.space.distributions]
    if searched:
        found = f"{searched[0]} has values that are searched, so its trials are no seeds"
        raise SpecError(file_name, "methods", found, "Fix them with `values`.")
    if spec.early_stopping is not None:
        raise SpecError(file_name, "early_stopping", "ends seeds early", "Remove it.")
    if spec.keep_models != "all":
        found = "removes models that are to be measured"
        raise SpecError(file_name, "keep_models", found, "Write keep_models: all.")
