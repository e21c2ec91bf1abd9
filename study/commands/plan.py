"""Check a study before training."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import click

from study.terminal.console import console, errors, json_option, storage_option


@click.command()
@click.argument("spec", type=click.Path(path_type=Path), required=False)
@click.option("--explain", "explained", is_flag=True, help="Show all keys with defaults and allowed values.")
@click.option("--schema", is_flag=True, help="Print the JSON Schema of a study file, for editors.")
@click.option("--trials", type=int, metavar="N", help="Trials per method, overriding the spec.")
@storage_option
@json_option
def plan(
    spec: Path | None, explained: bool, schema: bool, trials: int | None, storage: str | None, as_json: bool
) -> None:
    """Check a study and preview its trials.

    Checks the whole spec and its data (decoded into the cache; of shift sets only the header is read) and shows what
    `run` will do. Trains nothing.
    """
    if schema:
        from study.schema.json_schema import json_schema

        click.echo(json.dumps(json_schema(), indent=1))
        return
    if spec is None:
        raise click.UsageError("give SPEC, or --schema.")
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
    stored = existing_study(study, spec.name, root / study.name, prepared)  # raises what `run` would raise
    if as_json:
        shapes = {"classes": prepared.num_classes, "shape": list(prepared.input_shape), "sizes": dict(prepared.sizes)}
        rows = [row._asdict() for row in explain(study)] if explained else []
        public = without_credentials({"name": study.name, "spec": study.to_mapping(), "data": shapes, "explain": rows})
        click.echo(json.dumps(public))
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
        whose = "held out for all methods" if study.equal_train else "held out for the methods that learn on it"
        sizes += f"; {study.data.meta:g} of train is the meta split, {whose}"
    shape = "x".join(str(side) for side in prepared.input_shape)
    budget = f"{len(study.variants)} methods x {study.trials} trials of {study.epochs} epochs"
    console.print(f"{study.name}: {budget}", style="bold")
    data = f"{prepared.num_classes} classes of {shape} images; {sizes} (the test split stays sealed)"
    console.print(f"data: {data}", soft_wrap=True)
    if study.resources.gpu:
        size = sum(image_bytes(prepared, study.data.augment, study.data.padding)) / 1e6
        where = "of a trial's share of its GPU's memory; streamed where that is more than half of the share"
        console.print(f"images: {size:,.1f} MB {where}", soft_wrap=True)
    wanted = ", ".join(f"{objective.direction} {objective.metric}" for objective in study.objectives)
    console.print(f"objectives: {wanted}")
    for constraint in study.constraints:
        console.print(f"constraint: {constraint}")
    if study.early_stopping is not None:
        console.print(f"early stopping: {study.early_stopping.in_words(study.epochs)}", soft_wrap=True)
    made = Table("method", "searched", "tried first")
    for variant in study.variants:
        searched = ", ".join(variant.space.distributions) or "nothing: repeated with fresh seeds to measure noise"
        standings = first_standings(study.trial(variant.label), variant.space)
        counts = Counter("the study's own" if found is None else found.status for found in standings)
        made.add_row(variant.label, searched, ", ".join(f"{count} {status}" for status, count in counts.items()))
    console.print(made)
    _print_kept(kept_line(study))
    serves = serves_of(study, stored)
    if note := serves_note(study.objectives, serves or TEMPERATURE, is_older=serves is None):
        console.print(f"{note}.", soft_wrap=True)
    console.print(f"results go to {root / study.name}")
    console.print("add --explain for every key with its default and every range with its source", style="dim")


def _print_kept(line: str | None) -> None:
    if line is not None:
        console.print(line, soft_wrap=True)
