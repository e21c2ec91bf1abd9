"""The commands: words in, words out. Heavy libraries are imported by the command that needs them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from trainables.fields import UserError

# Markup off: a reason, a path or a range may hold [brackets].
console = Console(highlight=False, markup=False)
errors = Console(stderr=True, highlight=False, soft_wrap=True, markup=False)

FAILED, MISTAKE = 1, 2

storage_option = click.option(
    "--storage", metavar="DIR", help="Folder of studies; default: the spec's, else $CALSTUDY_STORAGE, else ./studies."
)
tracking_option = click.option(
    "--tracking", metavar="URI", help="MLflow server; default: the study's, else the one embedded in the storage."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for a program.")


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="calstudy")
def calstudy() -> None:
    """Hyperparameter studies of training-time calibration.

    \b
    calstudy plan   study.yaml     check a study, see what it will try
    calstudy run    study.yaml     train it; run again after any interruption, it goes on
    calstudy status digits         how far it is
    calstudy pareto digits         accuracy against calibration error: the trials nothing beats
    calstudy export digits --pick knee --name digits      one model into the MLflow registry
    calstudy verify models:/digits/1                      prove that it is the one measured

    Nothing here ever reads the test split: all figures are of the validation split.
    """


@calstudy.command()
@click.argument("spec", type=click.Path(path_type=Path))
@click.option("--explain", "explained", is_flag=True, help="Every key with its default; every range with its source.")
@click.option("--trials", type=int, metavar="N", help="Trials for each method, instead of the spec's.")
@storage_option
@json_option
def plan(spec: Path, explained: bool, trials: int | None, storage: str | None, as_json: bool) -> None:
    """Check a study file wholly, data included (decoded into the cache), and say what `run` will do. Trains nothing."""
    from study.explain import explain
    from study.run import prepare_data
    from study.show import table
    from study.spec import read_spec
    from study.stored import storage_root
    from study.uris import without_credentials

    study = read_spec(spec, trials=trials)
    prepared = prepare_data(study, spec.name)
    root = storage_root(storage, study.storage)
    if as_json:
        shapes = {"classes": prepared.num_classes, "shape": list(prepared.input_shape), "sizes": dict(prepared.sizes)}
        rows = [row._asdict() for row in explain(study)] if explained else []
        public = without_credentials({"name": study.name, "spec": study.to_mapping(), "data": shapes, "explain": rows})
        click.echo(json.dumps(public))
        return
    if explained:
        made = table("key", "value", "default", "meaning, or where the range comes from")
        for row in explain(study):
            made.add_row(*(str(cell) for cell in row))
        console.print(made, soft_wrap=False)
        return
    sizes = ", ".join(f"{size} {name}" for name, size in prepared.sizes.items())
    shape = "x".join(str(side) for side in prepared.input_shape)
    budget = f"{len(study.variants)} methods x {study.trials} trials of {study.epochs} epochs"
    console.print(f"{study.name}: {budget}", style="bold")
    data = f"{prepared.num_classes} classes of {shape} images; {sizes} (the test split stays sealed)"
    console.print(f"data: {data}", soft_wrap=True)
    wanted = ", ".join(f"{objective.direction} {objective.metric}" for objective in study.objectives)
    console.print(f"objectives: {wanted}")
    made = table("method", "searched", ">tried first")
    for variant in study.variants:
        searched = ", ".join(variant.space.distributions) or "nothing: fresh seeds, the noise floor"
        made.add_row(variant.label, searched, str(len(variant.space.defaults)))
    console.print(made)
    console.print(f"it will be in {root / study.name}")
    console.print("every key with its default, every range with its source: add --explain", style="dim")


@calstudy.command()
@click.argument("spec", type=click.Path(path_type=Path))
@click.option("--trials", type=int, metavar="N", help="Trials for each method, instead of the spec's; more go on.")
@click.option("--address", metavar="A", help="Ray cluster to run on; default: this machine alone.")
@storage_option
@tracking_option
def run(spec: Path, trials: int | None, address: str | None, storage: str | None, tracking: str | None) -> None:
    """Train what the study still lacks.

    Kill it at any moment and run the same command again: it goes on, and every trial is counted once. More trials,
    another method, other resources or another tracking server go on too; a change of what a trial means is refused.
    """
    from study.run import run_study
    from study.spec import read_spec
    from study.stored import storage_root
    from study.tracking import resolve_uri

    study = read_spec(spec, trials=trials)
    root = storage_root(storage, study.storage)
    uri = resolve_uri(tracking, study.tracking, root)
    outcome = run_study(study, spec.name, root, uri, address, console)
    _report_run(outcome, uri)
    if outcome.interrupted or not any(
        record.state == "complete" for found in outcome.records.values() for record in found
    ):
        raise SystemExit(FAILED)


def _report_run(outcome: Any, uri: str) -> None:
    from study.pareto import front
    from study.progress import front_table
    from study.uris import public_uri

    study, records = outcome.study, [record for found in outcome.records.values() for record in found]
    states = {state: sum(record.state == state for record in records) for state in ("complete", "pruned", "failed")}
    told = ", ".join(f"{count} {state}" for state, count in states.items() if count or state == "complete")
    planned = sum(max(study.spec.trials, len(found)) for found in outcome.records.values())
    console.print(f"{study.spec.name}: {sum(states.values())}/{planned} trials; {told}", style="bold")
    if outcome.interrupted:
        console.print(f"stopped by {outcome.interrupted}; run the same command again and it goes on.")
    found = front(records, study.spec.objectives)
    if found:
        console.print(front_table(found, study.spec))
    console.print(f"study:    {study.directory}", soft_wrap=True)
    console.print(f"tracking: {public_uri(uri)}", soft_wrap=True)
    if outcome.untracked:
        trouble = f" ({outcome.tracking_trouble})" if outcome.tracking_trouble else ""
        mend = f"`calstudy sync {study.spec.name}` completes it."
        console.print(f"{outcome.untracked} trials are not in MLflow yet{trouble}; {mend}", soft_wrap=True)
    elif outcome.tracking_trouble:
        console.print(f"tracking: {outcome.tracking_trouble}", soft_wrap=True)


@calstudy.command()
@click.argument("study")
@storage_option
@json_option
def status(study: str, storage: str | None, as_json: bool) -> None:
    """How far a study is: per method planned, complete, pruned, failed, running.

    STUDY is its directory, its spec, or its name under the storage; a driver may be running it elsewhere.
    """
    from study.ledger import driver_is_alive
    from study.show import failures_table, status_counts, status_table
    from study.stored import open_study

    opened = open_study(study, storage)
    records, alive = opened.records(), driver_is_alive(opened.directory)
    counts = status_counts(opened, records, alive)
    if as_json:
        click.echo(json.dumps({"name": opened.spec.name, "methods": counts}))
        return
    console.print(f"{opened.spec.name} in {opened.directory}", soft_wrap=True)
    console.print(status_table(counts))
    failures = failures_table(records)
    if failures is not None:
        console.print(failures)
    interrupted = sum(record.state == "running" for found in records.values() for record in found)
    lacking = sum(row["planned"] for row in counts.values()) - sum(
        record.state != "running" for found in records.values() for record in found
    )
    if alive:
        console.print("a driver is running it.")
    elif lacking:
        cut = f", {interrupted} of them cut short" if interrupted else ""
        console.print(f"{lacking} trials are still to be done{cut}; no driver: `calstudy run` goes on.")


@calstudy.command()
@click.argument("study")
@click.option("--where", metavar="CONDITIONS", help='Only trials that satisfy them: "accuracy>=0.95".')
@click.option("--figure", type=click.Path(path_type=Path), metavar="F", help="Draw it: .png, .pdf or .svg.")
@click.option("--csv", "csv_file", type=click.Path(path_type=Path), metavar="F", help="The front as a table.")
@storage_option
@json_option
def pareto(
    study: str, where: str | None, figure: Path | None, csv_file: Path | None, storage: str | None, as_json: bool
) -> None:
    """The front: the trials that no other beats in every objective, with knee and hypervolume.

    All values are of the validation split, on which the search chose: the best of many looks better than it is.
    """
    from study.pareto import front, hypervolume, knee, parse_where, satisfies, write_front_csv
    from study.progress import front_table
    from study.stored import open_study

    opened = open_study(study, storage)
    objectives = opened.spec.objectives
    conditions = parse_where(where) if where else []
    candidates = [record for found in opened.records().values() for record in found if satisfies(record, conditions)]
    found = front(candidates, objectives)
    chosen = knee(found, objectives)
    volume = hypervolume(found, objectives, len(opened.recorded["classes"]))
    if figure is not None:
        from study.figures import front_figure

        front_figure(candidates, objectives, opened.spec.name, figure, opened.recorded["sizes"]["validation"])
    if csv_file is not None:
        write_front_csv(found, csv_file)
    if as_json:
        rows = [_front_row(record) for record in found]
        knee_row = None if chosen is None else {"method": chosen.label, "number": chosen.number}
        named = [{"metric": objective.metric, "direction": objective.direction} for objective in objectives]
        click.echo(json.dumps({"objectives": named, "front": rows, "knee": knee_row, "hypervolume": volume}))
        return
    if chosen is None:
        console.print("no complete trial" + (" satisfies the conditions." if where else " yet."))
        return
    console.print(front_table(found, opened.spec))
    size = opened.recorded["sizes"]["validation"]
    console.print(
        f"knee: {chosen.name}; hypervolume {volume:.4f}; {size} validation samples, values without intervals",
        soft_wrap=True,
    )
    for written in (figure, csv_file):
        if written is not None:
            console.print(f"wrote {written}", soft_wrap=True)


def _front_row(record: Any) -> dict[str, Any]:
    return {
        "method": record.label,
        "number": record.number,
        "params": record.params,
        "validation": record.metrics,
    }


@calstudy.command()
@click.argument("study")
@click.option("--trial", metavar="METHOD/NUMBER", help="This one: focal/0007.")
@click.option("--pick", metavar="RULE", help='knee, or "min ece where accuracy>=0.95".')
@click.option("--name", required=True, metavar="M", help="The registered model's name.")
@click.option("--alias", metavar="A", help="An alias that shall point to it, such as champion.")
@storage_option
@tracking_option
def export(
    study: str,
    trial: str | None,
    pick: str | None,
    name: str,
    alias: str | None,
    storage: str | None,
    tracking: str | None,
) -> None:
    """Register one trial's model in MLflow, with its temperature, signature, card and lineage.

    It is registered only if it gives the probabilities that were measured. Twice gives one version.
    """
    from study.registry import export as export_model
    from study.stored import open_study
    from study.tracking import resolve_uri
    from study.uris import public_uri

    if (trial is None) == (pick is None):
        raise click.UsageError("give one of --trial and --pick.")
    opened = open_study(study, storage)
    uri = resolve_uri(tracking, opened.spec.tracking, opened.directory.parent)
    exported = export_model(opened, _chosen(opened, trial, pick), name, alias, uri)
    made = "registered" if exported.created else "is registered already:"
    console.print(f"{made} {exported.uri} from {opened.spec.name}/{exported.trial}", soft_wrap=True)
    console.print(
        f"temperature {exported.temperature:.4f}; largest difference from the measured probabilities "
        f"{exported.largest_difference:.1e}",
        soft_wrap=True,
    )
    console.print(f"prove it: calstudy verify {exported.uri} --tracking {public_uri(uri)}", soft_wrap=True)


def _chosen(study: Any, trial: str | None, rule: str | None) -> Any:
    from study.pareto import pick
    from trainables.fields import FieldError, nearest

    records = [record for found in study.records().values() for record in found]
    if rule is not None:
        return pick(records, study.spec.objectives, rule)
    label, _, number = (trial or "").partition("/")
    for record in records:
        if record.label == label and number.isdigit() and int(number) == record.number:
            if record.state != "complete":
                raise FieldError("--trial", f"{record.name} is {record.state}; only a complete trial has a model.")
            return record
    known = [record.name for record in records if record.state == "complete"]
    raise FieldError("--trial", f"there is no trial '{trial}'.{nearest(trial or '', known[:8])}")


@calstudy.command()
@click.argument("model_uri")
@storage_option
@tracking_option
@json_option
def verify(model_uri: str, storage: str | None, tracking: str | None, as_json: bool) -> None:
    """Prove that a registered model is the one measured.

    Loads models:/NAME/VERSION (or models:/NAME@ALIAS) in a fresh process that refuses pickle, predicts the validation
    split from the data again, and compares probabilities (1e-5) and metrics (1e-6). Exit code 1 when they differ.
    """
    from study.registry import verify as verify_model
    from study.show import table
    from study.stored import storage_root
    from study.tracking import resolve_uri

    report = verify_model(model_uri, resolve_uri(tracking, None, storage_root(storage)))
    if as_json:
        click.echo(json.dumps(report.to_json()))
    elif report.problem is not None:
        errors.print(f"{model_uri}: NOT verified: {report.problem}")
    else:
        made = table("check", ">difference", ">limit", "")
        for check in report.checks:
            made.add_row(check.name, f"{check.found:g}", f"{check.limit:g}", "ok" if check.ok else "DIFFERS")
        console.print(made)
        verdict = "verified" if report.ok else "NOT verified"
        ties = f"; {report.flipped} of them on a tie" if report.flipped else ""
        console.print(f"{report.model}: {verdict} on {report.num_samples} validation samples{ties}", soft_wrap=True)
    if not report.ok:
        raise SystemExit(FAILED)


@calstudy.command()
@click.argument("study")
@storage_option
@tracking_option
def sync(study: str, storage: str | None, tracking: str | None) -> None:
    """Complete in MLflow what a server that was away, or a kill, has left out. The ledger is what counts."""
    from study.stored import open_study
    from study.tracking import resolve_uri
    from study.tracking import sync as sync_study
    from study.uris import public_uri

    opened = open_study(study, storage)
    uri = resolve_uri(tracking, opened.spec.tracking, opened.directory.parent)
    report = sync_study(opened, uri)
    console.print(f"{report.written} trials written, {report.present} were there, at {public_uri(uri)}", soft_wrap=True)


@calstudy.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--bins", type=click.IntRange(min=1), default=15, show_default=True, help="Bins of the ECE family.")
@json_option
def evaluate(file: Path, bins: int, as_json: bool) -> None:
    """Every metric of predictions from anywhere: an npz with `logits` or `probs` [N, K], and `labels` [N].

    With ts_ in front: after temperature scaling, cross-fitted inside the file.
    """
    from study.show import finite, table
    from trainables.predictions import Predictions

    predictions = Predictions.load(file)
    found = predictions.evaluate(bins)
    n, k = predictions.logits.shape
    if as_json:
        click.echo(json.dumps({"num_samples": n, "num_classes": k, "metrics": finite(found)}))
        return
    console.print(f"{file}: {n} samples, {k} classes, {bins} bins", soft_wrap=True)
    made = table("metric", ">value", ">after temperature")
    for name, value in found.items():
        if not name.startswith("ts_"):
            made.add_row(name, f"{value:.6f}", f"{found['ts_' + name]:.6f}")
    console.print(made)


@calstudy.command(name="list")
@click.argument("kind", type=click.Choice(["methods", "spaces", "datasets", "models", "metrics"]))
@json_option
def list_names(kind: str, as_json: bool) -> None:
    """What a study can name, with settings, valid ranges and sources."""
    from study.show import catalogue, print_catalogue

    rows = catalogue(kind)
    if as_json:
        click.echo(json.dumps(rows))
    else:
        print_catalogue(console, kind, rows)


def main(arguments: list[str] | None = None) -> None:
    """The command line. Exit codes: 0, 1 (it failed), 2 (the user's mistake: one line, no traceback)."""
    sys.exit(_exit_code(lambda: calstudy.main(arguments, prog_name="calstudy", standalone_mode=False)))


def _exit_code(command: Callable[[], Any]) -> int:
    try:
        result = command()
        return result if isinstance(result, int) else 0
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return MISTAKE
    except click.ClickException as error:
        usage = f" Try: {error.ctx.command_path} --help" if isinstance(error, click.UsageError) and error.ctx else ""
        errors.print(f"calstudy: {error.format_message()}{usage}")
        return MISTAKE
    except (click.Abort, KeyboardInterrupt):
        errors.print("calstudy: stopped.")
        return FAILED
    except UserError as error:
        errors.print(str(error))
        return MISTAKE
    except OSError as error:  # no permission, no space, a file where a folder should be
        errors.print(f"calstudy: {error}")
        return FAILED


if __name__ == "__main__":
    main()
