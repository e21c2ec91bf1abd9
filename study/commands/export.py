"""One trial's model into the MLflow registry."""

from __future__ import annotations

from typing import Any

import click

from study.terminal import console, storage_option, tracking_option


@click.command()
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
    from study.stored import check_home, open_study
    from study.uris import public_uri

    if (trial is None) == (pick is None):
        raise click.UsageError("give one of --trial and --pick.")
    opened = open_study(study, storage)
    check_home(opened)
    uri = opened.tracking(tracking)
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
