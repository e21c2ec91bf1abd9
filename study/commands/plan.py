"""Check a study before training."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from study.terminal.console import (
    console,
    cpus_option,
    errors,
    json_option,
    print_json,
    reading_width,
    refuse_cpus,
    storage_option,
)
from study.terminal.layout import Table, columns_text
from study.terminal.steps import Steps
from study.terminal.waiting import wait_options

if TYPE_CHECKING:
    from rich.console import Console

    from study.analysis.prediction import Prediction
    from study.analysis.states import Counts
    from study.engine.stack_size import Stacks
    from study.schema.spec import StudySpec
    from study.schema.wait import Wait
    from study.store.study import StudyFolder
    from trainables.loading.cache import Prepared


@click.command()
@click.argument("spec", type=click.Path(path_type=Path), required=False)
@click.option(
    "--explain", "explained", is_flag=True, help="Show all keys with defaults and allowed values."
)
@click.option("--schema", is_flag=True, help="Print the JSON Schema of a study file, for editors.")
@click.option("--trials", type=int, metavar="N", help="Trials per method, overriding the spec.")
@click.option(
    "--probe", is_flag=True, help="Train a little of each method and predict what the study costs."
)
@click.option("--address", metavar="A", help="Ray cluster to probe on; default: this machine.")
@wait_options
@cpus_option
@storage_option
@json_option
def plan(
    spec: Path | None,
    explained: bool,
    schema: bool,
    trials: int | None,
    probe: bool,
    address: str | None,
    wait: Wait,
    cpus: int | None,
    storage: str | None,
    as_json: bool,
) -> None:
    """Check a study and preview its trials.

    Checks the whole spec and its data (decoded into the cache; of shift sets only the header is
    read) and shows what `run` will do. Trains nothing, except with --probe: a few epochs of each
    method, of which nothing is kept, to predict time, memory and disk. For a study with a budget it
    does so unasked, until a trial of each method has ended.
    """
    refuse_cpus(cpus, address)
    if schema:
        from study.schema.json_schema import json_schema

        print_json(json_schema(), indent=1)
        return
    if spec is None:
        raise click.UsageError("give SPEC, or --schema.")
    found = _planned(spec, trials, probe, Where(address, wait, cpus), storage)
    if as_json:
        from study.schema.uris import without_credentials

        print_json(without_credentials(_plain(found, explained)))
    elif explained:
        _print_explained(found.study)
    else:
        _print(found)
    _check_room(found, spec.name)


def plan_lines(
    spec: Path, trials: int | None, explained: bool, cpus: int | None, storage: str
) -> tuple[str, ...]:
    """What `plan` prints of a study, without a probe that was asked for."""
    from study.schema.wait import NO_WAIT

    found = _planned(spec, trials, False, Where(None, NO_WAIT, cpus), storage)
    return console.lines_of(lambda: _print_explained(found.study) if explained else _print(found))


@dataclass(frozen=True)
class Planned:
    """A study that `run` would run, and what it is expected to cost."""

    study: StudySpec
    folder: Path  # of its results
    prepared: Prepared
    stored: StudyFolder | None  # if it has begun
    expected: dict[str, float] = field(default_factory=dict)  # of the budget, by label
    predicted: Prediction | None = None  # by the probe
    stacks: Stacks | None = None  # None: the first start decides
    slots: int | None = None  # trials that fit at once where it was looked
    lacks: str | None = None  # what `run` would say that this machine lacks

    @cached_property
    def counts(self) -> Counts:
        """Its trials by state, as a run of the spec would count them."""
        from study.analysis.states import count_states, snapshot, summed

        labels = [variant.label for variant in self.study.variants]
        states: dict[str, list[str]] = {label: [] for label in labels}
        if self.stored is not None:
            now = snapshot(self.stored)
            for label, records in now.records.under(labels).by_label.items():
                states[label] = [now.states[record.name] for record in records]
        return summed(count_states(self.study.trials, found) for found in states.values())


class Where(NamedTuple):
    """Where to probe."""

    address: str | None
    wait: Wait
    cpus: int | None


def _planned(
    file: Path, trials: int | None, probe: bool, where: Where, storage: str | None
) -> Planned:
    """The study of the file; raises what `run` would raise."""
    from study.engine.preparation import check_machine, digest_begun, existing_study, prepare_data
    from study.engine.stack_size import stacks_of
    from study.machines.ray_session import ClusterError
    from study.schema.uris import resolve_uri
    from study.store.place import check_place
    from study.store.study import spec_and_study, storage_root

    study, opened = spec_and_study(file, storage, trials=trials)
    root = storage_root(storage, study.storage)
    resolve_uri(None, study.tracking, root)
    folder = root / study.name
    check_place(file.name, folder, study.ledger)
    begun = digest_begun(study, folder, opened)
    prepared = prepare_data(study, file.name, Steps(errors), begun)
    stored = existing_study(study, file.name, folder, opened, prepared)
    found = Planned(study, folder, prepared, stored)
    if where.address is None:
        try:
            slots = check_machine(study, folder, stored, where.cpus)
            stacks = stacks_of(study, file.name, stored, prepared, lambda: slots or 1)
            found = replace(found, slots=slots, stacks=stacks)
        except ClusterError as error:
            if probe:
                raise
            return replace(found, lacks=str(error))
    if not probe and study.budget is None:
        return found
    return with_probe(found, file.name, probe, where)


def with_probe(found: Planned, file_name: str, predicts: bool, where: Where) -> Planned:
    """The study with the costs that its budget expects and, if asked for, those of a probe."""
    from study.analysis.prediction import predict
    from study.engine.budget import expected_costs
    from study.engine.probe import here, on_nodes, probe
    from study.engine.stack_size import stacks_of
    from study.store.place import check_room
    from study.store.targets import Targets

    spec = found.study
    digest = found.prepared.digest
    labels = [variant.label for variant in spec.variants]
    targets = Targets(found.folder.parent)
    prober = partial(probe, targets=targets, where=partial(here, cpus=where.cpus))
    with ExitStack() as stack:
        steps = stack.enter_context(Steps(errors))
        if where.address is not None:
            from study.machines.autoscaler import asking
            from study.machines.nodes import alive_nodes
            from study.machines.ray_session import check_address, joined
            from study.machines.waiting import admitted
            from study.schema.resources import most_slots

            check_address(where.address)
            stack.enter_context(joined(where.address, {}, steps))
            ask = stack.enter_context(asking(where.address))
            ask(Counter(spec.needs.values()))
            checked = admitted(spec, found.folder.parent, digest, where.wait, steps, errors.say)
            off = {unfit.node: unfit.because for unfit in checked}
            nodes = []
            for node in alive_nodes():
                if because := off.get(node["NodeID"]):
                    errors.print(f"node {node['NodeManagerAddress']} is passed over: it {because}")
                else:
                    nodes.append(node)
            slots = most_slots(nodes, spec.needs.values())
            stacks = stacks_of(spec, file_name, found.stored, found.prepared, lambda: slots)
            found = replace(found, slots=slots, stacks=stacks)
            prober = partial(
                probe, targets=targets, where=partial(on_nodes, off=off, wait=where.wait.text)
            )
        probed = None
        if predicts:
            probed = prober(spec, file_name, digest, labels, steps)
        room = partial(check_room, file_name, found.folder)
        expected = expected_costs(
            spec, file_name, found.stored, digest, steps, prober, probed, room
        )
    predicted = None
    if probed is not None:
        assert found.slots is not None  # where it was probed
        predicted = predict(spec, probed, found.slots)
    return replace(found, expected=expected, predicted=predicted)


def _check_room(found: Planned, file_name: str) -> None:
    """Raise SpecError if the storage has less room than what is left to train takes."""
    from study.analysis.states import done
    from study.store.place import check_room

    if found.predicted is not None:
        share = 1 - done(found.counts) / found.counts["planned"]
        check_room(file_name, found.folder, share * found.predicted.total("disk"))


def _plain(found: Planned, explained: bool) -> dict[str, object]:
    from study.engine.demand import Busy, kept_busy
    from study.schema.advice import advice
    from study.schema.explain import explain

    study = found.study
    plain: dict[str, object] = {
        "name": study.name,
        "spec": study.to_mapping(),
        "data": {
            "classes": found.prepared.num_classes,
            "shape": list(found.prepared.input_shape),
            "kind": found.prepared.input_shape.kind,
            "masks": found.prepared.input_shape.marked,
            "rows": dict(found.prepared.rows) or None,
            "texts": dict(found.prepared.texts) or None,
            "columns": list(found.prepared.input_shape.columns),
            "sizes": dict(found.prepared.sizes),
            "groups": dict(found.prepared.groups) or None,
        },
        "trials": found.counts,
        "at_once": asdict(Busy.of(kept_busy(study))),
        "stacks": None if found.stacks is None else {**asdict(found.stacks), "alone": study.alone},
        "lacks": found.lacks,
        "explain": [row._asdict() for row in explain(study)] if explained else [],
        "warnings": [
            *_data_notes(study, found.prepared),
            *advice(study),
        ],
    }
    if found.predicted is not None:
        plain["probe"] = asdict(found.predicted)
    return plain


def _print(found: Planned) -> None:
    from study.engine.budget import paid_line
    from study.engine.demand import busy_line
    from study.engine.preparation import serves_of
    from study.schema.objective import serves_note

    study = found.study
    console.print(
        f"{study.name}: {len(study.variants)} methods x {study.trials} trials of {study.epochs}"
        " epochs",
        style="bold",
    )
    console.say(f"trials: {_done_text(found)}")
    console.say(f"at once: {busy_line(study, found.slots)}{_left_text(found)}.")
    when = "decided at the first start, by how many trials fit at once"
    console.say(f"stacks: {when if found.stacks is None else found.stacks.line(study)}.")
    _print_data(study, found.prepared)
    _print_aims(study, found.prepared)
    _print_methods(study)
    if note := serves_note(study.objectives, serves_of(study, found.stored)):
        console.say(f"serving: {note}.")
    if study.budget is not None and found.lacks is None:
        console.say(f"{paid_line(study, found.stored, found.expected)}.")
    if found.predicted is not None:
        print_prediction(found, console)
    console.print(f"results go to {found.folder}")
    if found.lacks is not None:
        console.say(f"`run` would refuse here: {found.lacks}")
    console.print(
        "add --explain for every key with its default and every range with its source", style="dim"
    )


def _done_text(found: Planned) -> str:
    """`none of 48 is done`, or `12 of 48 are done (10 complete, ...); `calstudy run` goes on`."""
    from study.analysis.states import done, in_words

    counts = found.counts
    ended = done(counts)
    planned = counts["planned"]
    if not ended and not counts["interrupted"] and not counts["running"]:
        return f"none of {planned:,} is done"
    goes_on = "nothing is left to train" if ended == planned else "`calstudy run` trains the rest"
    return f"{ended:,} of {planned:,} are done ({in_words(counts)}); {goes_on}"


def _left_text(found: Planned) -> str:
    """`; what is left takes about 40 min`, by the trials that have ended; empty for none."""
    from study.terminal.progress import human_seconds

    if found.stored is None or found.slots is None:
        return ""
    left = 0
    seconds = 0.0
    records = found.stored.records()
    for variant in found.study.variants:
        taken = [one.seconds for one in records.of(variant.label) if one.seconds is not None]
        count = found.study.trials - len(taken)
        if count > 0 and not taken:
            return ""
        if count > 0:
            left += count
            seconds += count * sum(taken) / len(taken)
    if not left:
        return ""
    return f"; what is left takes about {human_seconds(max(1.0, seconds / min(found.slots, left)))}"


def _print_explained(study: StudySpec) -> None:
    from study.schema.explain import explain

    made = Table("key", "value", "default", "allowed", "meaning or source")
    for row in explain(study):
        made.add_row(*row)
    console.print(made, width=reading_width())
    _print_kept(study)


def _print_data(study: StudySpec, prepared: Prepared) -> None:
    from study.engine.preparation import meta_lines, texts_lines
    from trainables.loading.trial_data import sample_bytes

    groups = {name: "" for name in prepared.sizes}
    if prepared.groups:
        groups = {name: f" ({found} {study.data.unit})" for name, found in prepared.groups.items()}
    sizes = ", ".join(f"{size} {name}{groups[name]}" for name, size in prepared.sizes.items())
    if _has_meta(study):
        whose = "all methods" if study.equal_train else "the methods that learn on it"
        sizes += f"; {study.data.meta:g} of train is the meta split, held out for {whose}"
    inputs = prepared.input_shape
    console.say(
        f"data: {prepared.num_classes} classes of {inputs.shown}; {sizes} (the test split stays"
        " sealed)"
    )
    if prepared.labelled is not None:
        least, most = (f"{share:.0%}" for share in prepared.labelled)
        labelled = least if least == most else f"{least} to {most}"
        rows = ", ".join(f"{name} {prepared.rows[name]:,}" for name in ("validation", "test"))
        console.say(
            f"masks: {labelled} of a train image's pixels are labelled; metrics are of rows, at"
            f" most 1,024 of an image, so that images weigh alike: {rows}"
        )
    for line in (*texts_lines(study, prepared), *meta_lines(study, prepared)):
        console.say(line)
    if inputs.columns:
        console.say(f"columns: {columns_text(inputs.columns)}")
    for note in _data_notes(study, prepared):
        console.say(f"warning: {note}")
    if study.model.frozen:
        console.say(
            f"network: its outputs on train and validation {inputs.noun} are computed once per"
            " node; trials train a new last layer on them"
        )
    elif study.resources.gpu:
        size = sum(sample_bytes(prepared, study.data.augment, study.data.padding)) / 1e6
        console.say(
            f"{inputs.noun}: {size:,.1f} MB of a trial's share of its GPU's memory; streamed where"
            " that is more than half of the share"
        )


def _has_meta(study: StudySpec) -> bool:
    return study.equal_train or any(variant.method.needs_meta for variant in study.variants)


def _data_notes(study: StudySpec, prepared: Prepared) -> tuple[str, ...]:
    """What to warn of in the data and its splits."""
    from study.engine.preparation import data_notes
    from trainables.loading.trial_data import meta_notes

    notes = data_notes(study, prepared)
    if not _has_meta(study):
        return notes
    return (*notes, *meta_notes(prepared, study.data.meta, study.seed, study.data.unit))


def _print_aims(study: StudySpec, prepared: Prepared) -> None:
    """Print what the search seeks, within which bounds, and what to think of that."""
    from study.schema.advice import advice
    from study.schema.resolution import resolution_line

    wanted = ", ".join(f"{one.direction} {one.metric}" for one in study.objectives)
    console.print(f"objectives: {wanted}")
    inputs = prepared.input_shape
    unit = str(study.data.unit) if prepared.groups else inputs.noun
    size = (prepared.groups or prepared.sizes)["validation"]
    line = resolution_line(study, size, unit)
    if line and (prepared.groups or inputs.marked):
        line += f", if the {'pixels' if inputs.marked else inputs.noun} of each are alike"
    if line:
        console.say(f"resolution: {line}")
    for constraint in study.constraints:
        console.print(f"constraint: {constraint}")
    for warning in advice(study):
        console.say(f"warning: {warning}")
    if study.early_stopping is not None:
        rule = study.early_stopping.in_words(study.epochs)
        console.say(f"early stopping: {rule}")


def _print_methods(study: StudySpec) -> None:
    from study.schema.explain import searched_text
    from study.schema.variant import first_standings

    made = Table("method", "searched", "tried first")
    for variant in study.variants:
        searched = searched_text(variant.space)
        standings = first_standings(study.trial(variant.label), variant.space)
        counts = Counter(found.status if found else "the study's own" for found in standings)
        made.add_row(
            variant.label,
            searched or "nothing: repeated with fresh seeds to measure noise",
            ", ".join(f"{count} {status}" for status, count in counts.items()),
        )
    console.print(made)
    _print_kept(study)


def _print_kept(study: StudySpec) -> None:
    from study.schema.explain import kept_line

    if line := kept_line(study):
        console.say(line)


def print_prediction(found: Planned, output: Console) -> None:
    """Print what a probe expects of the study."""
    from study.terminal.prediction import prediction_lines, prediction_table

    assert found.predicted is not None
    output.print()
    output.print(prediction_table(found.predicted))
    for line in prediction_lines(found.predicted):
        output.print(line)
    if found.stacks is not None and found.stacks.most is not None:
        output.print("All this is of trials that train alone: stacked, they take less.")
    output.print()
