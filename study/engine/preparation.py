"""What comes before a study trains: its data prepared, the study that exists checked against the
spec, and what is recorded."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from search_spaces import strict_yaml
from study.analysis.guessing import above_majority, above_majority_of_groups, no_test
from study.engine.display import ShowsSteps
from study.engine.own_code import check_own_code
from study.engine.probe import slots_here
from study.engine.retry import Retry, refuse_after_test
from study.engine.stack_size import stacks_of
from study.engine.weights import (
    check_weights,
    models_and_data,
    refuse_other_weights,
    weights_of,
)
from study.machines.ray_session import ClusterError
from study.schema.compatibility import completed_meaning, refuse_changes
from study.schema.errors import LedgerError, SpecError, located
from study.schema.objective import EITHER, TEMPERATURE, served_by_default
from study.schema.samples import (
    check_class_weights,
    check_positions,
    check_samples,
    check_worded,
)
from study.schema.spec import StudySpec, check_objectives
from study.schema.temperature import WITH_PRIOR
from study.schema.uris import public_uri, recorded_tracking
from study.schema.versions import recorded_versions
from study.store.confirmed import matters_at_opening, recorded_openings
from study.store.extensions import refuse_changed_code
from study.store.home import check_home, home_of
from study.store.own_data import as_recorded
from study.store.recorded import Race, Recorded
from study.store.study import (
    EXTENSIONS,
    StudyFolder,
    reopened,
    write_study_file,
)
from study.store.trials import Trials
from trainables.dataset import Dataset
from trainables.inputs import Inputs
from trainables.kinds import FEWEST, count_of
from trainables.loading.cache import Prepared, load_split, prepare, why_other
from trainables.loading.shift import check_header, unknown_words
from trainables.loading.trial_data import meta_of, together_in_train
from trainables.loading.vocabulary import FIRST
from trainables.plugins import keep_extensions, skipped_files
from trainables.problems import UserError


def digest_begun(spec: StudySpec, directory: Path, opened: StudyFolder | None) -> str | None:
    """The digest of the data of a study that goes on, or that it confirms; None if there is none.

    opened: the study as it was before.
    """
    if spec.confirms is not None:
        directory = directory.with_name(spec.confirms)
    with suppress(UserError, OSError):
        stored = reopened(directory, opened if spec.confirms is None else None)
        return None if stored is None else stored.recorded.data_digest
    return None


def prepare_data(
    spec: StudySpec,
    file_name: str,
    steps: AbstractContextManager[ShowsSteps],
    begun: str | None = None,
) -> Prepared:
    """The study's data, decoded once on this machine; of shift sets only the header is read.

    begun: the digest of a study that goes on. Raises SpecError if data, an objective or a shift set
    is unusable.
    """
    with steps as step, located(file_name, "data"):
        step(f"preparing data {spec.data.shown}")
        progress = partial(step.progress, noun=spec.data.noun)
        prepared = prepare(spec.data, spec.seed, progress=progress, begun=begun)
        used = spec.data.source_rows() if spec.shift else {}
    check_objectives(spec, prepared.num_classes, file_name)
    check_weights(spec, prepared.input_shape, file_name)
    check_class_weights(spec, prepared.num_classes, file_name)
    used_data = [data for _, data in models_and_data(spec)]
    check_samples(spec.model, used_data, prepared.input_shape, file_name)
    if prepared.input_shape.carry_labels and spec.model.per_position:
        check_positions(spec, prepared.input_shape, file_name)
    if prepared.input_shape.words:
        check_worded(spec, prepared.input_shape, file_name)
    check_own_code(spec, prepared, file_name)
    _check_padding(spec.data, prepared.input_shape, file_name)
    for name, shift_set in spec.shift.items():
        with located(file_name, f"shift.{name}"):
            check_header(shift_set, used, prepared.classes, prepared.input_shape)
    return prepared


def _check_padding(data: Dataset, inputs: Inputs, file_name: str) -> None:
    """Raise SpecError if crops would be of zeros alone, or the padding has no effect."""
    if data.padding is None:
        return
    if "crop" not in data.augment:
        raise SpecError(
            file_name,
            "data.padding",
            f"has no effect with augment: {data.augment}",
            "Remove it, or write augment: crop or crop_flip.",
        )
    if data.padding >= min(inputs[1:]):
        raise SpecError(
            file_name,
            "data.padding",
            f"{data.padding} is not below the images' {min(inputs[1:])} pixels: crops could be"
            " empty",
            "Lower it.",
        )


def _check_batch(
    spec: StudySpec, prepared: Prepared, file_name: str, begun: Iterable[str] = ()
) -> None:
    """Raise SpecError if a batch would need more samples than there are to train on. begun: labels
    that have trials, which keep their batches. Imports no code of one's own: where a study is
    opened, its copy of that is in use, which lacks what the new file adds."""
    for variant in spec.variants:
        if variant.label in begun:
            continue
        holds_out = spec.equal_train or variant.method.needs_meta
        there = round(prepared.sizes["train"] * (1 - spec.data.meta * holds_out))
        if holds_out and together_in_train(prepared) is not None:
            held_out = int(meta_of(prepared, spec.data.meta, spec.seed).sum())
            there = prepared.sizes["train"] - held_out
        searched: Any = variant.space.distributions.get("batch_size")
        largest: Any = variant.space.pins.get("batch_size", spec.batch_size)
        if searched is not None:
            largest = max(getattr(searched, "choices", None) or [searched.high])
        if largest > there:
            raise SpecError(
                file_name,
                "batch_size",
                f"{largest} is more than the {there} samples that {variant.label} trains on",
                "Lower it.",
            )


def existing_study(
    spec: StudySpec,
    file_name: str,
    directory: Path,
    opened: StudyFolder | None,
    prepared: Prepared,
    retry: Retry | None = None,
) -> StudyFolder | None:
    """The study as the spec goes on with it, None if there is none yet. opened: as it was before.
    retry: which failed trials are to be retried, whose own code may have been mended.

    Raises SpecError if these cannot be, if it is a copy, or if it has trials and the spec, the data
    or the extensions would change their meaning; LedgerError if its ledger is missing or lacks
    trials: its folder may be a mount that is gone.
    """
    stored = reopened(directory, opened)
    records = Trials({}) if stored is None else stored.records()
    retried = [] if retry is None else retry.chosen(records)
    if stored is None:
        if spec.confirms is None:  # else it is as its study trained
            _check_batch(spec, prepared, file_name)
        return None
    check_home(stored)
    if retry is not None:
        refuse_after_test(stored)
    if stored.confirms_itself and any(one.space.distributions for one in spec.variants):
        found = f"'{spec.name}' was measured on test, so nothing can be searched in it any more"
        raise SpecError(file_name, "methods", found, "Give the study a new name.")
    if records:
        meaning = completed_meaning(stored.recorded.meaning, stored.spec.meaning())
        refuse_changes(meaning, spec, file_name, "already exists")
        _refuse_fewer_trials(spec, records, file_name)
        _refuse_other_first(spec, stored, records, file_name)
        if stored.recorded.data_digest != prepared.digest:
            found = f"the source has changed since '{spec.name}' was started"
            mend = (
                "Restore it, or give the study another name: to confirm or export this one takes"
                " the data it began with."
            )
            recorded = stored.recorded.data_digest
            why = why_other(spec.data, spec.seed, recorded, found, mend)
            raise SpecError(file_name, "data", *why)
        refuse_other_weights(spec, stored.recorded.weights, file_name)
        if stored.ledger != spec.ledger:
            raise SpecError(
                file_name,
                "ledger",
                f"the ledger of '{spec.name}' is {public_uri(stored.ledger or 'ledger.log')}",
                "Write that.",
            )
        refuse_changed_code(spec.extensions, records, file_name, retried)
    if spec.confirms is None:
        _check_batch(spec, prepared, file_name, {record.label for record in records})
    return stored


def _refuse_fewer_trials(spec: StudySpec, records: Trials, file_name: str) -> None:
    """Raise SpecError if a method has begun more trials than are planned: they are kept."""
    begun = {variant.label: len(records.of(variant.label)) for variant in spec.variants}
    label = max(begun, key=lambda one: begun[one])
    if begun[label] > spec.trials:
        found = f"{label} has begun {begun[label]:,} trials, and {spec.trials:,} are planned"
        mend = f"Write at least {begun[label]}, or --trials {begun[label]}: trials are kept."
        raise SpecError(file_name, "trials", found, mend)


def _refuse_other_first(
    spec: StudySpec, stored: StudyFolder, records: Trials, file_name: str
) -> None:
    """Raise SpecError if methods that have trials would try other settings first than they did."""
    now = {one.label: one.space.own for one in spec.variants}
    for variant in stored.spec.variants:
        label = variant.label
        if records.of(label) and variant.space.own != now.get(label, variant.space.own):
            was = strict_yaml.one_line(variant.space.own)
            raise SpecError(
                file_name,
                "try_first",
                f"{label} has begun with {was}, and would now begin with"
                f" {strict_yaml.one_line(now[label])}",
                f"Restore `try_first` as it was, or give the study another name than {spec.name}.",
            )


def serves_of(spec: StudySpec, stored: StudyFolder | None) -> str:
    """What the study's registered models give, EITHER as well. stored: the study as it exists,
    which keeps what it has."""
    if spec.serve is not None:
        return spec.serve
    if stored is not None and stored.objectives == spec.objectives:
        return str(stored.recorded.serves)
    found = served_by_default(spec.objectives)
    is_new = stored is None or stored.recorded.serves == EITHER
    return EITHER if is_new and found != TEMPERATURE else found or TEMPERATURE


def record_spec(
    spec: StudySpec,
    file_name: str,
    directory: Path,
    prepared: Prepared,
    tracking: str | None,
    slots: Callable[[], int],
    opened: StudyFolder | None = None,
    retry: Retry | None = None,
    race: Race | None = None,
) -> StudyFolder:
    """Write STUDY/study.yaml: the checked spec and recorded facts. Under the driver's lock.

    Raises as `existing_study`, and as `stacks_of`, by which `slots` is asked. opened: the study as
    it was before the lock was taken.
    """
    now = datetime.now(UTC).isoformat(timespec="seconds")
    recorded = Recorded(id=uuid.uuid4().hex, created=now)
    stored = existing_study(spec, file_name, directory, opened, prepared, retry)
    if stored is not None:
        # Kept even without trials: the id may already be in the ledger and MLflow. Another ledger
        # is accepted for a study without trials, and not made yet.
        recorded = stored.recorded
        if stored.ledger != spec.ledger:
            recorded = replace(recorded, ledger_made=None)
        if "guard" not in stored.plain:  # of a version without it, which set nothing aside by it
            spec = replace(spec, guard="off")
        rules_then = (stored.constraints, stored.serve, stored.plain.get("guard", "off"))
        if rules_then != (spec.constraints, spec.serve or stored.serve, spec.guard):
            # Models of a front that was another.
            recorded = replace(recorded, kept_by_other_rules=True)
        if recorded_openings(stored):
            matters = matters_at_opening(stored)
            recorded = replace(recorded, matters_at_opening=matters)
    if race is not None and recorded.race is not None:
        race = replace(race, at_once=recorded.race.at_once)
    elif race is not None:
        race = replace(race, at_once=max(1, slots()))
    inputs = prepared.input_shape
    stack = stacks_of(spec, file_name, stored, prepared, slots).most
    recorded = replace(
        recorded,
        race=race,
        stack=stack,
        data_digest=prepared.digest,
        classes=list(prepared.classes),
        sizes=dict(prepared.sizes),
        versions=recorded_versions(),
        meaning={**spec.meaning(), "stack": "off" if stack is None else stack.trials},
        serves=serves_of(spec, stored),
        temperature_fit=WITH_PRIOR,
        majority=prepared.majority("validation"),
        kind=None if inputs.kind == "image" else inputs.kind,
        marked=inputs.marked or None,
        rows=dict(prepared.rows) or None,
        weights=weights_of(spec) or None,
        home=home_of(directory),
        tracking=recorded_tracking(tracking),
    )
    recorded = _with_groups(recorded, spec.data, prepared)
    plain = spec.to_mapping()
    plain["data"] = as_recorded(plain["data"], directory, spec.confirms)
    if stored is not None and "guard" not in stored.plain:
        del plain["guard"]
    if spec.extensions is not None:
        # Readers on other machines need the names too, and may not have the original folder. Trials
        # also use the copy: the original may be edited while they run.
        keep_extensions(Path(spec.extensions), directory / EXTENSIONS)
        plain["extensions"] = EXTENSIONS
        spec = replace(spec, extensions=str(directory / EXTENSIONS))
    write_study_file(StudyFolder(directory, plain, recorded))
    return StudyFolder.of(directory, spec, recorded)


def _with_groups(recorded: Recorded, data: Dataset, prepared: Prepared) -> Recorded:
    """With what is recorded of samples that belong together, if any do."""
    inputs = prepared.input_shape
    if inputs.marked and not prepared.groups:
        # The pixels of an image belong together.
        of_images = replace(recorded, groups=dict(prepared.sizes), unit=inputs.noun)
        return replace(of_images, least_accuracy=_least_accuracy(prepared))
    if not prepared.groups:
        return recorded
    return replace(
        recorded,
        groups=dict(prepared.groups),
        least_accuracy=_least_accuracy(prepared),
        unit=data.unit or "groups",
        shared=list(prepared.shared) or None,
    )


def _least_accuracy(prepared: Prepared) -> float | None:
    """The smallest validation accuracy that shows that a trial does not guess; None: none does."""
    validation = load_split(prepared, "validation")
    if validation.groups is None:
        return above_majority(prepared.majority("validation"), len(validation.labels))
    return above_majority_of_groups(validation.labels.numpy(), validation.groups.numpy())


def data_notes(spec: StudySpec, prepared: Prepared) -> tuple[str, ...]:
    """What to warn of before a study begins: what was found in its data, of its splits what they
    share and what they are too small for, and what of its extensions is not read."""
    links = [] if spec.extensions is None else skipped_files(Path(spec.extensions))
    return (
        *prepared.notes,
        *_left_out(spec.data),
        *prepared.shared,
        *_too_small(spec.data, prepared),
        *(f"left out of extensions: {name}" for name in links),
    )


def _left_out(data: Dataset) -> Iterator[str]:
    """Not of the prepared data, which stay as they are when such files come and go."""
    if found := data.left_out():
        ordered = sorted(found.items(), key=lambda item: (-item[1], item[0]))
        counts = (f"{count:,} {ending or 'without an ending'}" for ending, count in ordered)
        yield f"left out: {', '.join(counts)}"


def texts_lines(spec: StudySpec, prepared: Prepared) -> Iterator[str]:
    """What `plan` says of texts: their vocabulary, and what it and their length leave out."""
    if not prepared.texts:
        return
    words = prepared.input_shape.words - FIRST
    parts = [f"the vocabulary has the {words:,} most frequent of train"]
    if cut := prepared.texts["cut"]:
        of_all = f"{cut:,} of {sum(prepared.sizes.values()):,} texts"
        parts.append(f"{of_all} are cut to {prepared.input_shape[0]:,}")
    names = ("train", "validation")
    unknown = (f"{prepared.texts[f'unknown_{name}']:.1%} of the words of {name}" for name in names)
    parts.append(f"{' and '.join(unknown)} are outside it")
    if empty := prepared.texts["empty"]:
        parts.append(f"{count_of(int(empty), 'texts')} without a word, one unknown word each")
    yield f"words: {'; '.join(parts)}"
    for name, shift_set in spec.shift.items():
        share = unknown_words(shift_set, prepared)
        yield f"words of shift.{name}: {share:.1%} are outside the vocabulary"


def meta_lines(spec: StudySpec, prepared: Prepared) -> Iterator[str]:
    """What `plan` says of the meta samples in each step of the methods that learn on them."""
    noun = prepared.input_shape.noun
    for variant in spec.variants:
        if variant.method.needs_meta:
            batch = spec.trial(variant.label).batch_size
            there = int(meta_of(prepared, spec.data.meta, spec.seed).sum())
            asked = variant.method.meta_size(batch)
            taken = f"{asked:,}" if asked < there else f"all {there:,} (of up to {asked:,})"
            yield f"{variant.label}: each step takes {taken} meta {noun} beside {batch:,} of train"


def _too_small(data: Dataset, prepared: Prepared) -> Iterator[str]:
    unit = data.unit or prepared.input_shape.noun
    for split in ("validation", "test"):
        count = (prepared.groups or prepared.sizes)[split]
        if count < FEWEST:
            yield f"{split} has {count_of(count, unit)}, too few for intervals: {FEWEST} are needed"
    if _least_accuracy(prepared) is None:
        yield no_test(prepared.majority("validation")).rstrip(".")


def is_trained(spec: StudySpec, directory: Path, opened: StudyFolder | None) -> bool:
    """Whether every trial of the spec has ended; False where the study cannot be read."""
    with suppress(UserError, OSError):
        stored = reopened(directory, opened)
        if stored is not None:
            records = stored.records().under(variant.label for variant in spec.variants)
            # A race may be continued otherwise than it was.
            raced = bool(records.places)
            return not raced and not StudyFolder.of(directory, spec, stored.recorded).lacking(
                records
            )
    return False


def check_machine(
    spec: StudySpec, directory: Path, stored: StudyFolder | None, cpus: int | None
) -> int | None:
    """How many trials fit on this machine at once.

    ClusterError if they do not; None if all have ended, and nothing is trained. stored: the study
    as it exists.
    """
    try:
        return slots_here(spec, cpus)
    except ClusterError:
        if is_trained(spec, directory, stored):
            return None
        raise


def make_folders(spec: StudySpec, directory: Path, stored: StudyFolder | None) -> None:
    """Make the folders of a new study and its ledger. stored: the study as it exists.

    Raises LedgerError, with nothing touched, if there are trials of a study that is not there.
    """
    is_new = stored is None and not (directory / "study.yaml").exists()
    if is_new and any(directory.glob("trials/*/*/attempt-*")):
        raise LedgerError(
            f"{directory}: has trials, but no study.yaml", "Restore it, or rename the study."
        )
    has_trials = stored is not None and stored.traces.trained
    directory.mkdir(parents=True, exist_ok=True)
    if not has_trials and spec.ledger is not None:
        Path(spec.ledger).parent.mkdir(parents=True, exist_ok=True)
