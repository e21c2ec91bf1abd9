"""Register one trial's model in MLflow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from study.terminal.console import console, interval_option, storage_option, tracking_option

if TYPE_CHECKING:
    from study.answer.choice import Choice
    from study.store.study import Study


@click.command()
@click.argument("study")
@click.option("--trial", metavar="METHOD/NUMBER", help="One trial, such as focal/0007.")
@click.option(
    "--pick",
    metavar="RULE",
    help='knee; "min ece where accuracy>=0.95"; "min ece where accuracy~best"; "weighted error=1 ece=2".',
)
@click.option("--name", required=True, metavar="M", help="Name of the registered model.")
@click.option("--alias", metavar="A", help="Alias to point at this version, such as champion.")
@interval_option
@storage_option
@tracking_option
def export(
    study: str,
    trial: str | None,
    pick: str | None,
    name: str,
    alias: str | None,
    level: float,
    storage: str | None,
    tracking: str | None,
) -> None:
    """Register one trial's model in MLflow.

    Includes its temperature, signature, model card and lineage. The model is registered only if it reproduces the
    measured probabilities. Exporting it twice gives one version.

    If the study is confirmed, --pick selects among the retrained candidates by their validation means over fresh seeds
    and registers the seed with the median validation value; the card shows the test results of all seeds.
    accuracy~best: not significantly worse than the best on validation. knee: the compromise on the Pareto front.
    """
    from study.registry.export import export as export_model
    from study.registry.model_card import confirmed_facts
    from study.schema.uris import public_uri
    from study.store.study import check_home, open_study

    if (trial is None) == (pick is None):
        raise click.UsageError("use one of --trial and --pick.")
    opened = open_study(study, storage)
    check_home(opened)
    uri = opened.tracking(tracking)
    choice = _chosen(opened, trial, pick)
    exported = export_model(choice.study, choice.record, name, alias, uri, confirmed_facts(choice, level))
    made = "registered" if exported.created else "already registered:"
    console.print(f"{made} {exported.uri} from {choice.study.spec.name}/{exported.trial}", soft_wrap=True)
    console.print(
        f"temperature {exported.temperature:.4f}; largest difference from the measured probabilities "
        f"{exported.largest_difference:.1e}",
        soft_wrap=True,
    )
    console.print(f"check it: calstudy verify {exported.uri} --tracking {public_uri(uri)}", soft_wrap=True)


def _chosen(study: Study, trial: str | None, rule: str | None) -> Choice:
    from study.answer.choice import choose, seed_of
    from study.store.trials import trial_named

    if rule is not None:
        return choose(study, rule)
    return seed_of(study, trial_named(study.all_records(), trial or "", "--trial"))
