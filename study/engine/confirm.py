"""Confirm: retrain a search's candidates from fresh seeds, then open test once per model.

A study without a search is its own confirmation: its trials are measured, and nothing is retrained.

The only file that opens the sealed test split. Nothing is ever selected on it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from study.answer.calibrated import check_names
from study.answer.confirmation import results_of, search_of
from study.engine.candidates import Asked, check_own, confirming_spec, confirms_itself
from study.engine.confirm_work import Chosen
from study.engine.display import Display
from study.engine.preparation import prepare_data
from study.engine.run import RunResult, run_study
from study.engine.weights import refuse_other_weights
from study.machines.stopping import Stopping
from study.schema.errors import SpecError, StudyInUse, located
from study.schema.spec import StudySpec
from study.schema.uris import TrackingError
from study.schema.wait import NO_WAIT, Wait
from study.store.confirmed import (
    check_calibrators,
    record_calibrators,
    record_openings,
    record_seeds,
)
from study.store.driver_lock import driver_is_alive, driver_lock
from study.store.extensions import refuse_changed_code
from study.store.files import checked_file, stored_classifier, stored_predictions
from study.store.home import check_home
from study.store.ledger import Ledger, open_ledger
from study.store.openings import (
    OPENINGS,
    TEST_FILE,
    TESTED,
    Opening,
    Shifted,
    Tested,
    came_to_nothing,
    openings_in,
    tested_in,
)
from study.store.study import StudyFolder
from study.store.trials import TrialRecord, Trials
from study.tracking.projection import sync
from trainables.groups import renumbered
from trainables.loading.cache import TURNED_SINCE, Prepared, prepare, why_other
from trainables.loading.sealed_split import open_test
from trainables.loading.shift import Shift, ShiftSet, unseen_shift
from trainables.metrics import measure_own, out_of_distribution
from trainables.outputs.classifier import Classifier, predicted
from trainables.outputs.predictions import Predictions
from trainables.positions import Positions
from trainables.problems import UserError


class ConfirmError(UserError):
    """A model that cannot be measured; the message gives the reason and the fix."""


def choose(search: StudyFolder, asked: Asked, display: Display) -> Chosen:
    """What is to be confirmed, checked. Writes nothing but the data's cache. Raises UserError."""
    check_home(search)  # of a copy the test split would be opened once more
    if driver_is_alive(search.directory, search.ledger):
        raise StudyInUse(
            f"{search.directory}: another calstudy process is running this study",
            "Wait until it is done, then confirm.",
        )
    found = results_of(search)
    check_names(asked.calibrators, len(search.recorded.classes))
    check_calibrators(search, asked.calibrators)
    is_own = confirms_itself(found)
    if is_own:
        check_own(found, asked)
        spec, race = search.spec, None
    else:
        if found.lacking:
            left = f"{found.lacking:,} trials not done yet"
            display.say(f"{search.name} is not finished, {left}: its front may still change.")
        with display.steps() as step:
            step("choosing the candidates")
            spec, race = confirming_spec(found, asked)
    refuse_changed_code(spec.extensions, found.records, search.name)
    prepared = prepare_data(spec, spec.name, display.steps(), search.recorded.data_digest)
    if prepared.digest != search.recorded.data_digest:
        changed = f"the source has changed since '{search.spec.name}' was trained"
        recorded = search.recorded.data_digest
        why = why_other(spec.data, spec.seed, recorded, changed, "Restore it.")
        raise SpecError(spec.name, "data", *why)
    refuse_other_weights(spec, search.recorded.weights, spec.name)
    read_shifts(spec, prepared)  # a set is refused before anything is trained
    return Chosen(found, spec, is_own, race, asked.calibrators)


def confirm(
    chosen: Chosen,
    tracking: str | None,
    address: str | None,
    display: Display,
    stopping: Stopping,
    cpus: int | None = None,
    wait: Wait = NO_WAIT,
) -> tuple[RunResult, str | None]:
    """Retrain what was chosen, then open the test split for each model not yet measured.

    Resumable: where a stop is requested, what was begun is finished, and the rest is left to the
    next run. Returns the outcome of training, and why MLflow lacks the test results, if it does.
    Raises UserError before anything has started.
    """
    found = chosen.found
    search = found.study
    spec = chosen.spec
    before = None if found.confirmation is None else found.confirmation.study
    uri = tracking or (before and before.recorded.tracking) or search.recorded.tracking
    if chosen.is_own:
        stopping.resume = stopping.resume or search.command("confirm")
        outcome = _trained(search, found.records)
    else:
        root = search.directory.parent
        outcome = run_study(
            spec,
            spec.name,
            root,
            uri,
            address,
            display,
            stopping,
            cpus,
            before,
            wait,
            race=chosen.race,
        )
    if stopping.requested():
        return outcome, None
    with stopping.deferred(), display.steps() as step:
        step("measuring on the test split")
        opened = measure(outcome.study, stopping, chosen.calibrators)
    if opened:
        how = ", once each"
        if vain := came_to_nothing(outcome.study):
            how = f"; {vain} openings have no result, `calstudy audit` lists them"
        display.say(f"{spec.name}: the test split was opened for {opened} models{how}")
    if stopping.requested():
        return outcome, None
    try:
        with display.steps() as step:
            step("writing the test results to MLflow")
            sync(outcome.study, outcome.study.tracking(tracking))
    except TrackingError as error:
        return outcome, error.found
    return outcome, None


def _trained(study: StudyFolder, records: Trials) -> RunResult:
    """The study as its own confirmation, whose trials have ended."""
    with driver_lock(study.directory, study.ledger, writes=False):
        study = record_seeds(study.directory)
    return RunResult(study, records, None, 0, True, None)


# ---- the sealed split ----------------------------------------------------------------------------


@dataclass(frozen=True)
class TestAccessLog:
    """The ledger's openings and their results, for one run of `confirm` under the driver's lock."""

    ledger: Ledger
    labels: tuple[str, ...]
    run: int
    search: Path  # the directory of the study that is confirmed

    @classmethod
    def of(cls, study: StudyFolder, search: Path) -> TestAccessLog:
        log = cls(open_ledger(study)[0], study.labels, 0, search)
        return replace(log, run=1 + max((opening.run for opening in log._openings()), default=0))

    def _openings(self) -> list[Opening]:
        found: list[Opening | None] = []
        for label in self.labels:
            found += openings_in(self.ledger.notes(label))
        return [opening for opening in found if opening is not None]

    def newest(self) -> int:
        """The number of the last opening; 0 if there is none."""
        return max((opening.number for opening in self._openings()), default=0)

    def has(self, number: int) -> bool:
        return any(opening.number == number for opening in self._openings())

    def open(self, record: TrialRecord) -> int:
        """Record a new opening for a trial; returns its number.

        First in the search's study.yaml: a copy of it without the confirmation says that test was
        opened.
        """
        number = 1 + self.newest()
        record_openings(self.search, number)
        opening = Opening(number, record.number, record.attempt, self.run, time.time())
        written = self.ledger.notes(record.label).get(OPENINGS, [])
        self.ledger.note(record.label, OPENINGS, [*written, asdict(opening)])
        return number

    def tested(self, record: TrialRecord) -> Tested | None:
        return tested_in(self.ledger.notes(record.label)).get(record.number)

    def record(self, record: TrialRecord, tested: Tested) -> None:
        self.ledger.note(record.label, f"{TESTED}{record.number}", tested.to_plain())


def read_shifts(spec: StudySpec, prepared: Prepared) -> dict[str, tuple[str, Shift]]:
    """The digest and samples of each shift set. SpecError if one has too much of the data."""
    found = {}
    used = spec.data.source_rows() if spec.shift else {}
    for name, shift_set in spec.shift.items():
        with located(spec.name, f"shift.{name}"):
            found[name] = shift_set.digest(), unseen_shift(shift_set, used, prepared)
    return found


def measure(
    study: StudyFolder, stopping: Stopping | None = None, calibrators: Sequence[str] = ()
) -> int:
    """Measure each complete trial on test, then on the shift sets; returns the number of openings.
    calibrators: recorded before the first one.

    What was measured is not measured again. A kill between an opening and its result leaves an
    opening without a result; the next run opens again. So does a stop after which one model takes
    longer than `stopping.FINISHING`.
    """
    spec = study.spec
    stopping = stopping or Stopping()
    prepared = prepare(spec.data, spec.seed, digest=study.recorded.data_digest)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    opened = 0
    with driver_lock(study.directory, spec.ledger), _locked_search(study) as search:
        # Before any opening: no result on test can decide what is measured.
        shifts = read_shifts(spec, prepared)
        record_calibrators(search, calibrators)
        log = TestAccessLog.of(study, search)
        evaluator = ModelEvaluator(study, prepared, device, log)
        finished = log.ledger.trials().complete
        for record in finished:
            with stopping.finishing():
                if log.tested(record) is None and not stopping.requested():
                    log.record(record, evaluator.on_test(record))
                    opened += 1
        for name, (digest, shift) in shifts.items():
            for record in finished:
                tested = log.tested(record)
                if tested is not None and not (
                    stopping.requested() or _is_asked(name, spec.shift[name], tested, digest, shift)
                ):
                    log.record(record, evaluator.on_shift(record, tested, name, shift, digest))
    return opened


@contextmanager
def _locked_search(study: StudyFolder) -> Iterator[Path]:
    """The directory of the search, maybe the study itself. Its study.yaml is ours to write; its
    ledger, maybe ours too, is not written."""
    search = search_of(study)
    if search is study:  # whose lock is held
        yield study.directory
        return
    with driver_lock(search.directory, search.ledger, writes=False):
        yield search.directory


def _is_asked(name: str, shift_set: ShiftSet, tested: Tested, digest: str, shift: Shift) -> bool:
    """Whether it was measured on these samples; ConfirmError if on others of the same name."""
    if name not in tested.shifts:
        return False
    measured = tested.shifts[name]
    if measured.data != digest:
        if measured.data == shift_set.unturned_digest():
            found = f"shift.{name}: {TURNED_SINCE} it was measured"
            raise ConfirmError(found, "Rename the set.")
        raise ConfirmError(
            f"shift.{name}: the source has changed since it was measured",
            "Restore it, or rename the set.",
        )
    return shift.ood == ("accuracy" not in measured.metrics)


@dataclass(frozen=True)
class ModelEvaluator:
    """Measures models from their files, on the driver's GPU if it has one."""

    study: StudyFolder
    prepared: Prepared
    device: torch.device
    log: TestAccessLog

    def on_test(self, record: TrialRecord) -> Tested:
        """A trial's results on test, with the temperature fitted on all of validation."""
        model, temperature = self._model(record)
        wanted = [one.metric for one in self.study.spec.objectives]
        # What fails in metrics of one's own fails here, not after the opening.
        validation = stored_predictions(self.study, record)
        measure_own(validation.logits, validation.labels, wanted)
        opening = self.log.open(record)
        split = open_test(self.prepared, opening, self.log)
        groups = None if split.groups is None else split.groups.clone()
        logits = self._logits(model, split.images, split.positions)
        answers = Predictions(logits, split.labels.clone(), groups, by_network=True)
        digest = answers.save(self.study.files(record) / TEST_FILE)
        metrics = answers.evaluate_at(temperature, also=(*wanted, *self.prepared.also))
        return Tested(opening, metrics, temperature, {TEST_FILE: digest}, time.time())

    def on_shift(
        self, record: TrialRecord, tested: Tested, name: str, shift: Shift, digest: str
    ) -> Tested:
        """The trial's results plus those on a shift set, at the same temperature."""
        model, temperature = self._model(record)
        rows = shift.kept_rows
        logits = self._logits(model, shift.images, shift.positions)[rows]
        groups = None
        if shift.groups is not None:
            groups = torch.from_numpy(renumbered(shift.groups[rows].numpy()))
        answers = Predictions(logits, shift.labels[rows], groups, by_network=True)
        file = f"shift_{name}.npz"
        written = answers.save(self.study.files(record) / file)
        if shift.ood:
            own = Predictions.stored(checked_file(self.study, record, TEST_FILE, tested.digests))
            metrics = out_of_distribution.separation_at(own.logits, answers.logits, temperature)
        else:
            metrics = answers.essential_at(temperature)
        samples = int(shift.kept.sum())
        shifted = Shifted(metrics, digest, samples, shift.dropped, shift.shared)
        shifts = {**tested.shifts, name: shifted}
        return replace(tested, shifts=shifts, digests={**tested.digests, file: written})

    def _model(self, record: TrialRecord) -> tuple[Classifier, float]:
        """A trial's model, on the device, and its temperature."""
        model, temperature = stored_classifier(self.study, record, self.prepared)
        return model.to(self.device), temperature

    def _logits(self, model: Classifier, images: Tensor, positions: Positions | None) -> Tensor:
        """The model's logits, [N, K] float32, on the CPU; of images with masks those of rows."""
        with torch.inference_mode():
            return predicted(lambda batch: model.logits(batch.to(self.device)), images, positions)
