"""Check a study before training."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from study.terminal.console import (
    console,
    cpus_option,
    errors,
    json_option,
    refuse_cpus,
    storage_option,
)

if TYPE_CHECKING:
    from study.engine.probe import ProbedStudy
    from study.schema.spec import StudySpec
    from study.store.study import Study
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
    cpus: int | None,
    storage: str | None,
    as_json: bool,
) -> None:
    """Check a study and preview its trials.

    Checks the whole spec and its data (decoded into the cache; of shift sets only the header is
    read) and shows what `run` will do. Trains nothing, except with --probe: a few epochs of each
    method, of which nothing is kept, to predict time, memory and disk. A budget also needs a probe,
    where no trial of a method has ended yet.
    """
    refuse_cpus(cpus, address)
    if schema:
        from study.schema.json_schema import json_schema

        click.echo(json.dumps(json_schema(), indent=1))
        return
    if spec is None:
        raise click.UsageError("give SPEC, or --schema.")
    from study.engine.budget import paid_line
    from study.engine.opening import existing_study, prepare_data, serves_of
    from study.schema.objective import serves_note
    from study.schema.uris import without_credentials
    from study.store.study import reopened, spec_and_study, storage_root
    from study.terminal.steps import Steps

    study, opened = spec_and_study(spec, storage, trials=trials)
    root = storage_root(storage, study.storage)
    prepared = prepare_data(study, spec.name, Steps(errors))
    # Raises what `run` would raise.
    stored = existing_study(study, spec.name, reopened(root / study.name, opened), prepared)
    probed, slots, expected = _probed(
        study, spec.name, root, prepared, stored, probe, address, cpus
    )
    if as_json:
        plain = _plain(study, prepared, explained)
        if probe and probed is not None:
            plain["probe"] = _prediction_plain(study, probed, slots)
        click.echo(json.dumps(without_credentials(plain)))
        return
    if explained:
        _print_explained(study)
        return
    console.print(
        f"{study.name}: {len(study.variants)} methods x {study.trials} trials of {study.epochs}"
        " epochs",
        style="bold",
    )
    _print_data(study, prepared)
    _print_aims(study, prepared)
    _print_methods(study)
    if note := serves_note(study.objectives, serves_of(study, stored)):
        console.say(f"{note}.")
    if study.budget is not None:
        console.say(f"{paid_line(study, stored, expected)}.")
    if probe and probed is not None:
        _print_prediction(study, probed, slots)
    console.print(f"results go to {root / study.name}")
    console.print(
        "add --explain for every key with its default and every range with its source", style="dim"
    )


def _plain(study: StudySpec, prepared: Prepared, explained: bool) -> dict[str, Any]:
    from study.schema.advice import advice
    from study.schema.explain import explain

    shapes = {
        "classes": prepared.num_classes,
        "shape": list(prepared.input_shape),
        "sizes": dict(prepared.sizes),
    }
    return {
        "name": study.name,
        "spec": study.to_mapping(),
        "data": shapes,
        "explain": [row._asdict() for row in explain(study)] if explained else [],
        "warnings": list(advice(study)),
    }


def _print_explained(study: StudySpec) -> None:
    from study.schema.explain import explain
    from study.terminal.layout import Table

    made = Table("key", "value", "default", "allowed", "meaning or source")
    for row in explain(study):
        made.add_row(*row)
    console.print(made)
    _print_kept(study)


def _print_data(study: StudySpec, prepared: Prepared) -> None:
    from trainables.loading.trial_data import image_bytes

    sizes = ", ".join(f"{size} {name}" for name, size in prepared.sizes.items())
    if study.equal_train or any(variant.method.needs_meta for variant in study.variants):
        whose = "all methods" if study.equal_train else "the methods that learn on it"
        sizes += f"; {study.data.meta:g} of train is the meta split, held out for {whose}"
    shape = "x".join(str(side) for side in prepared.input_shape)
    console.say(
        f"data: {prepared.num_classes} classes of {shape} images; {sizes} (the test split stays"
        " sealed)"
    )
    if study.resources.gpu:
        size = sum(image_bytes(prepared, study.data.augment, study.data.padding)) / 1e6
        console.say(
            f"images: {size:,.1f} MB of a trial's share of its GPU's memory; streamed where that is"
            " more than half of the share"
        )


def _print_aims(study: StudySpec, prepared: Prepared) -> None:
    """Print what the search seeks, within which bounds, and what to think of that."""
    from study.schema.advice import advice
    from study.schema.resolution import resolution_line

    wanted = ", ".join(f"{one.direction} {one.metric}" for one in study.objectives)
    console.print(f"objectives: {wanted}")
    if line := resolution_line(study, prepared.sizes["validation"]):
        console.say(f"resolution: {line}")
    for constraint in study.constraints:
        console.print(f"constraint: {constraint}")
    for warning in advice(study):
        console.say(f"warning: {warning}")
    if study.early_stopping is not None:
        rule = study.early_stopping.in_words(study.epochs)
        console.say(f"early stopping: {rule}")


def _print_methods(study: StudySpec) -> None:
    from study.schema.variant import first_standings
    from study.terminal.layout import Table

    made = Table("method", "searched", "tried first")
    for variant in study.variants:
        searched = ", ".join(variant.space.distributions)
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


def _probed(
    spec: StudySpec,
    file_name: str,
    root: Path,
    prepared: Prepared,
    stored: Study | None,
    probe: bool,
    address: str | None,
    cpus: int | None,
) -> tuple[ProbedStudy | None, int, dict[str, float]]:
    """The probe, if asked for; how many trials fit at once; the costs the budget expects."""
    from study.engine.budget import expected_costs
    from study.engine.probe import probe_here, probe_on_cluster, slots_here
    from study.terminal.steps import Steps

    if not probe and spec.budget is None:
        return None, 0, {}
    with ExitStack() as stack:
        steps = stack.enter_context(Steps(errors))
        slots = 0
        if address is not None:
            from study.machines.nodes import check_nodes
            from study.machines.ray_session import check_address, joined

            check_address(address)
            needs = {variant.label: spec.resources_of(variant.label) for variant in spec.variants}
            count = stack.enter_context(joined(address, needs, steps))
            check_nodes(spec, root, prepared.digest, steps)
            slots = count()
        elif probe:
            slots = slots_here(spec, cpus)
        probed = None
        if probe:
            at = probe_here if address is None else probe_on_cluster
            labels = [variant.label for variant in spec.variants]
            probed = at(spec, file_name, prepared.digest, labels, steps)
        expected = expected_costs(
            spec, file_name, stored, prepared.digest, steps, address is not None, probed
        )
    return probed, slots, expected


def _predictions(spec: StudySpec, probed: ProbedStudy, slots: int) -> tuple[Any, Any]:
    """The costs of all trials trained to their end and, if the study stops early, with that."""
    from study.analysis.prediction import predict

    whole = predict(spec, probed.probes, slots)
    if spec.early_stopping is None:
        return whole, None
    return whole, predict(spec, probed.probes, slots, True)


def _prediction_plain(spec: StudySpec, probed: ProbedStudy, slots: int) -> dict[str, Any]:
    from study.terminal.prediction import prediction_plain

    found = prediction_plain(*_predictions(spec, probed, slots))
    return {**found, "memory_free": probed.memory_free, "device_size": probed.device_size}


def _print_prediction(spec: StudySpec, probed: ProbedStudy, slots: int) -> None:
    from study.terminal.prediction import prediction_lines, prediction_table

    whole, stopped = _predictions(spec, probed, slots)
    console.print()
    console.print(prediction_table(whole))
    for line in prediction_lines(whole, stopped, probed.memory_free, probed.device_size):
        console.print(line)
    console.print()
