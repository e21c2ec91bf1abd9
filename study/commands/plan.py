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
    from study.engine.probe import Probed
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

    Checks the whole spec and its data (decoded into the cache; of shift sets only the header is read) and shows what
    `run` will do. Trains nothing, except with --probe: a few epochs of each method, of which nothing is kept, to
    predict time, memory and disk. A budget also needs a probe, where no trial of a method has ended yet.
    """
    refuse_cpus(cpus, address)
    if schema:
        from study.schema.json_schema import json_schema

        click.echo(json.dumps(json_schema(), indent=1))
        return
    if spec is None:
        raise click.UsageError("give SPEC, or --schema.")
    from study.engine.budget import paid_line
    from study.engine.run import existing_study, prepare_data, serves_of
    from study.schema.explain import explain, kept_line
    from study.schema.objective import TEMPERATURE, serves_note
    from study.schema.uris import without_credentials
    from study.schema.variant import first_standings
    from study.store.study import read_study_spec, storage_root
    from study.terminal.layout import Table
    from trainables.loading.trial_data import image_bytes

    study = read_study_spec(spec, storage, trials=trials)
    root = storage_root(storage, study.storage)
    prepared = prepare_data(study, spec.name, errors)
    stored = existing_study(
        study, spec.name, root / study.name, prepared
    )  # raises what `run` would raise
    probed, slots, expected = _probed(
        study, spec.name, root, prepared, stored, probe, address, cpus
    )
    if as_json:
        shapes = {
            "classes": prepared.num_classes,
            "shape": list(prepared.input_shape),
            "sizes": dict(prepared.sizes),
        }
        rows = [row._asdict() for row in explain(study)] if explained else []
        plain = {"name": study.name, "spec": study.to_mapping(), "data": shapes, "explain": rows}
        more = {"probe": _plain(study, probed, slots)} if probe and probed is not None else {}
        click.echo(json.dumps(without_credentials({**plain, **more})))
        return
    if explained:
        made = Table("key", "value", "default", "allowed", "meaning or source")
        for row in explain(study):
            made.add_row(*row)
        console.print(made)
        _print_kept(kept_line(study))
        return
    sizes = ", ".join(f"{size} {name}" for name, size in prepared.sizes.items())
    if study.equal_train or any(variant.method.needs_meta for variant in study.variants):
        whose = (
            "held out for all methods"
            if study.equal_train
            else "held out for the methods that learn on it"
        )
        sizes += f"; {study.data.meta:g} of train is the meta split, {whose}"
    shape = "x".join(str(side) for side in prepared.input_shape)
    budget = f"{len(study.variants)} methods x {study.trials} trials of {study.epochs} epochs"
    console.print(f"{study.name}: {budget}", style="bold")
    data = (
        f"{prepared.num_classes} classes of {shape} images; {sizes} (the test split stays sealed)"
    )
    console.print(f"data: {data}", soft_wrap=True)
    if study.resources.gpu:
        size = sum(image_bytes(prepared, study.data.augment, study.data.padding)) / 1e6
        where = "of a trial's share of its GPU's memory; streamed where that is more than half of the share"
        console.print(f"images: {size:,.1f} MB {where}", soft_wrap=True)
    wanted = ", ".join(
        f"{objective.direction} {objective.metric}" for objective in study.objectives
    )
    console.print(f"objectives: {wanted}")
    for constraint in study.constraints:
        console.print(f"constraint: {constraint}")
    if study.early_stopping is not None:
        console.print(
            f"early stopping: {study.early_stopping.in_words(study.epochs)}", soft_wrap=True
        )
    made = Table("method", "searched", "tried first")
    for variant in study.variants:
        searched = (
            ", ".join(variant.space.distributions)
            or "nothing: repeated with fresh seeds to measure noise"
        )
        standings = first_standings(study.trial(variant.label), variant.space)
        counts = Counter(
            "the study's own" if found is None else found.status for found in standings
        )
        made.add_row(
            variant.label,
            searched,
            ", ".join(f"{count} {status}" for status, count in counts.items()),
        )
    console.print(made)
    _print_kept(kept_line(study))
    serves = serves_of(study, stored)
    if note := serves_note(study.objectives, serves or TEMPERATURE, is_older=serves is None):
        console.print(f"{note}.", soft_wrap=True)
    if study.budget is not None:
        console.print(f"{paid_line(study, stored, expected)}.", soft_wrap=True)
    if probe and probed is not None:
        _print_prediction(study, probed, slots)
    console.print(f"results go to {root / study.name}")
    console.print(
        "add --explain for every key with its default and every range with its source", style="dim"
    )


def _print_kept(line: str | None) -> None:
    if line is not None:
        console.print(line, soft_wrap=True)


def _probed(
    spec: StudySpec,
    file_name: str,
    root: Path,
    prepared: Prepared,
    stored: Study | None,
    probe: bool,
    address: str | None,
    cpus: int | None,
) -> tuple[Probed | None, int, dict[str, float]]:
    """The probe, if it was asked for; how many trials fit at once; and what the budget expects of each method."""
    from study.engine.budget import expected_costs
    from study.engine.probe import probe_here, probe_on_cluster, slots_here
    from study.terminal.steps import Steps

    if not probe and spec.budget is None:
        return None, 0, {}
    with ExitStack() as stack:
        steps, slots = stack.enter_context(Steps(errors)), 0
        if address is not None:
            from study.engine.nodes import check_nodes
            from study.engine.ray_session import check_address, joined

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
            probed = at(
                spec,
                file_name,
                prepared.digest,
                [variant.label for variant in spec.variants],
                steps,
            )
        expected = expected_costs(
            spec, file_name, stored, prepared.digest, steps, address is not None, probed
        )
    return probed, slots, expected


def _predictions(spec: StudySpec, probed: Probed, slots: int) -> tuple[Any, Any]:
    """Of all trials trained to their end, and with early stopping, if the study has it."""
    from study.analysis.prediction import predict

    whole = predict(spec, probed.probes, slots)
    return whole, predict(
        spec, probed.probes, slots, True
    ) if spec.early_stopping is not None else None


def _plain(spec: StudySpec, probed: Probed, slots: int) -> dict[str, Any]:
    from study.terminal.prediction import prediction_plain

    found = prediction_plain(*_predictions(spec, probed, slots))
    return {**found, "memory_free": probed.memory_free, "device_size": probed.device_size}


def _print_prediction(spec: StudySpec, probed: Probed, slots: int) -> None:
    from study.terminal.prediction import prediction_lines, prediction_table

    whole, stopped = _predictions(spec, probed, slots)
    console.print()
    console.print(prediction_table(whole))
    for line in prediction_lines(whole, stopped, probed.memory_free, probed.device_size):
        console.print(line)
    console.print()
