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
@click.option(
    "--temperature/--raw",
    default=None,
    help="Serve the network with its temperature, or as trained; default: what the study serves.",
)
@interval_option
@storage_option
@tracking_option
def export(
    study: str,
    trial: str | None,
    pick: str | None,
    name: str,
    alias: str | None,
    temperature: bool | None,
    level: float,
    storage: str | None,
    tracking: str | None,
) -> None:
    """Register one trial's model in MLflow.

    Includes its signature, model card and lineage, and the temperature if the study serves it. The model is registered
    only if it reproduces the measured probabilities. Exporting it twice gives one version.

    Without --trial and --pick it takes the model that `calstudy answer` names.

    If the study is confirmed, that and --pick select among the retrained candidates by their validation means over
    fresh seeds, and register the seed with the median validation value; the card shows the test results of all seeds.
    accuracy~best: not significantly worse than the best on validation. knee: the compromise on the Pareto front.
    """
    from study.analysis.ranking import Ranking
    from study.confirmation.results import search_of
    from study.registry.export import export as export_model
    from study.registry.model_card import confirmed_facts
    from study.schema.objective import IN_WORDS, RAW, TEMPERATURE, other_than, searched_for
    from study.schema.uris import public_uri
    from study.store.study import check_home, open_study

    if trial is not None and pick is not None:
        raise click.UsageError("use one of --trial and --pick.")
    opened = open_study(study, storage)
    check_home(opened)
    uri = opened.tracking(tracking)
    choice, search = _chosen(opened, trial, pick), search_of(opened)
    asked = None if temperature is None else TEMPERATURE if temperature else RAW
    is_default = trial is None and pick is None and asked in (None, search.serves)
    why = _why(search, choice, level) if is_default else ()
    confirmed = confirmed_facts(choice, level)
    exported = export_model(choice.study, choice.record, name, alias, uri, confirmed, asked, why)
    made = "registered" if exported.created else "already registered:"
    to = f"; alias {alias} points to it" if alias is not None else ""
    console.print(
        f"{made} {exported.uri} from {choice.study.name}/{exported.trial}{to}", soft_wrap=True
    )
    if choice.study.confirms is None:
        aside = Ranking(choice.study, choice.study.all_records()).set_aside
        if reason := aside.get(choice.record.name):
            console.print(
                f"{choice.record.name} is set aside in the study: {reason}.", soft_wrap=True
            )
    measured, other = choice.record.metrics, other_than(exported.serves)
    note = {exported.serves: "served", other: f"--{other} serves it"}
    console.print(
        f"validation ECE: {measured['ece']:.4f} {IN_WORDS[RAW]} ({note[RAW]}), {measured['ts_ece']:.4f}"
        f" {IN_WORDS[TEMPERATURE]} {exported.temperature:.4f} ({note[TEMPERATURE]})",
        soft_wrap=True,
    )
    differs = search.serves_note if asked is None else ""
    console.print(differs or searched_for(search.objectives), soft_wrap=True)
    console.print(
        f"largest difference from the measured probabilities: {exported.largest_difference:.1e}",
        soft_wrap=True,
    )
    where = public_uri(opened.tracking_as_given(tracking) or uri)
    console.print(f"check it: calstudy verify {exported.uri} --tracking {where}", soft_wrap=True)


def _chosen(study: Study, trial: str | None, rule: str | None) -> Choice:
    from study.answer.choice import choose, seed_of
    from study.store.trials import trial_named

    if trial is not None:
        return seed_of(study, trial_named(study.all_records(), trial, "--trial"))
    return choose(study, rule)


def _why(study: Study, choice: Choice, level: float) -> tuple[str, ...]:
    """The study's answer, if it names this model."""
    from study.answer.answer import answer

    found = answer(study, level)
    return (
        found.sentences if found.choice is not None and found.choice.record == choice.record else ()
    )
