"""Register one trial's model in MLflow."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import click

from study.terminal.console import (
    console,
    errors,
    interval_option,
    objectives_option,
    storage_option,
    tracking_option,
)
from study.terminal.steps import Steps

if TYPE_CHECKING:
    from study.answer.choice import Choice
    from study.answer.confirmation import Results
    from study.answer.said import Answer
    from study.registry.export import Exported
    from study.store.study import StudyFolder


@click.command()
@click.argument("study")
@click.option("--trial", metavar="METHOD/NUMBER", help="One trial, such as focal/0007.")
@click.option(
    "--pick",
    metavar="RULE",
    help=(
        'knee; "min ece where accuracy>=0.95"; "min ece where accuracy~best"; "weighted error=1'
        ' ece=2".'
    ),
)
@click.option("--name", required=True, metavar="M", help="Name of the registered model.")
@click.option("--alias", metavar="A", help="Alias to point at this version, such as champion.")
@click.option(
    "--temperature/--raw",
    default=None,
    help="Serve the network with its temperature, or as trained; default: what the study serves.",
)
@click.option(
    "--calibrator",
    type=click.Choice(["structured_vector", "structured_matrix"]),
    help="Apply this instead, fitted on validation, as a new version; the selected one stays.",
)
@objectives_option
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
    calibrator: str | None,
    objectives: str | None,
    level: float,
    storage: str | None,
    tracking: str | None,
) -> None:
    """Register one trial's model in MLflow.

    Includes its signature, model card and lineage, and the temperature if the study serves it. The
    model is registered only if it reproduces the measured probabilities. Exporting it twice gives
    one version.

    Without --trial and --pick it takes the model that `calstudy answer` names.

    In a confirmed study, the answer and --pick select among the retrained candidates, by their
    validation means over fresh seeds. The seed with the median validation value is registered; the
    card shows the test results of all seeds. accuracy~best: not significantly worse than the best
    on validation. knee: the compromise on the Pareto front.

    --calibrator registers the model with structured scaling, fitted on the whole validation split,
    as a version of its own. Card and output compare it, cross-fitted, with the model as it was
    selected. An alias of a version without a calibrator does not move to it.

    --objectives accuracy,nll, with --trial: the card says that you selected it by hand for these.
    """
    from study.registry.names import check_names
    from study.schema.uris import public_uri
    from study.store.exports import ExportedModel, note_export
    from study.store.home import check_home
    from study.store.other_objectives import OtherObjectives, selected_by_hand
    from study.store.study import open_study
    from trainables.problems import FieldError

    if trial is not None and pick is not None:
        raise click.UsageError("use one of --trial and --pick.")
    if calibrator is not None and temperature is not None:
        raise click.UsageError(
            "--calibrator takes the place of a temperature. Leave out --temperature and --raw."
        )
    check_names(name, alias)
    if objectives is not None and trial is None:
        raise click.UsageError(
            "--objectives is for a model that you name: its card says what you selected it for."
            " Write --trial METHOD/NUMBER, as `calstudy answer --objectives` gives it."
        )
    opened = open_study(study, storage)
    check_home(opened)
    if calibrator is not None and opened.recorded.marked:
        marked = f"{opened.name} classifies pixels, and a calibrator is of whole samples"
        raise FieldError("--calibrator", marked, "Leave it out.")
    if trial is not None:
        opened.records().named(trial, "--trial")
    from study.answer.choice import refuse_confirmation
    from study.answer.confirmation import results_of, search_of
    from study.answer.phrases import first_upper
    from study.registry.export import export as export_model
    from study.schema.objective import RAW, TEMPERATURE, read_objectives, searched_for

    if trial is None:
        refuse_confirmation(opened)
    uri = opened.tracking(tracking)
    found = results_of(search_of(opened), opened)
    search = found.study
    choice = _chosen(opened, found, trial, pick)
    asked = None
    if temperature is not None:
        asked = TEMPERATURE if temperature else RAW
    is_default = trial is None and pick is None and asked in (None, search.serves)
    by_hand = ""
    asked_for = () if objectives is None else read_objectives(objectives, "--objectives")
    if asked_for not in ((), search.own_objectives):
        by_hand = selected_by_hand(OtherObjectives(asked_for, search.own_objectives))
    with Steps(errors) as steps:
        steps("computing the answer")
        said = _answer(found, choice, level) if is_default else None
        steps("exporting the model and checking it")
        exported = export_model(choice, name, alias, uri, asked, said, level, by_hand, calibrator)
    if said:
        console.say(said.sentences[0])
    differs = search.serves_note if asked is None else ""
    _say(found, choice, exported, alias)
    console.say(by_hand or first_upper(differs) or searched_for(search.objectives))
    console.say(
        f"largest difference from the measured probabilities: {exported.largest_difference:.1e}"
    )
    where = public_uri(opened.tracking_as_given(tracking) or uri)
    if calibrator is None:  # what `answer` calls registered is as it was selected
        note_export(
            search.directory,
            ExportedModel(
                choice.study.name, exported.trial, exported.serves, exported.uri, where, by_hand
            ),
        )
    words = ("calstudy", "verify", exported.uri, "--tracking", str(where))
    console.say(f"check it: {shlex.join(words)}")


def _say(found: Results, choice: Choice, exported: Exported, alias: str | None) -> None:
    """Print what was registered, what to know of its trial, and its ECE both ways."""
    from study.answer.choice import unfinished_lines
    from study.schema.objective import IN_WORDS, RAW, TEMPERATURE, other_than

    made = "registered" if exported.created else "already registered:"
    to = f"; alias {alias} points to it" if alias is not None else ""
    console.say(f"{made} {exported.uri} from {choice.study.name}/{exported.trial}{to}")
    aside = found.ranking.excluded if choice.study.confirms is None else {}
    if reason := aside.get(choice.record.name):
        console.say(f"{choice.record.name} is excluded in the study: {reason}.")
    for line in unfinished_lines(found):
        console.say(line)
    if exported.calibrated:
        console.say(exported.calibrated)
        return
    measured = choice.record.metrics
    other = other_than(exported.serves)
    note = {exported.serves: "served", other: f"--{other} serves it"}
    console.say(
        f"validation ECE: {measured['ece']:.4f} {IN_WORDS[RAW]} ({note[RAW]}),"
        f" {measured['ts_ece']:.4f} {IN_WORDS[TEMPERATURE]} {exported.temperature:.4f}"
        f" ({note[TEMPERATURE]})"
    )


def _chosen(study: StudyFolder, found: Results, trial: str | None, rule: str | None) -> Choice:
    """The trial to register. found: of the study, or of the one that it confirms."""
    from study.answer.choice import Choice, choose, seed_of

    if trial is None:
        choice = choose(found, rule)
        _refuse_lost(choice, found.study)
        return choice
    confirmation = found.confirmation
    if confirmation is not None and confirmation.study.name == study.name:
        return seed_of(confirmation, confirmation.records.named(trial, "--trial"))
    if study.confirms is None:
        return Choice(found.study, found.records.named(trial, "--trial"))
    return Choice(study, study.records().named(trial, "--trial"))


def _refuse_lost(choice: Choice, study: StudyFolder) -> None:
    """Raise FieldError if the trial's predictions are lost: no other is registered unasked."""
    from study.store.files import PREDICTIONS, lost_predictions
    from trainables.problems import FieldError

    for name, problem in lost_predictions(choice.study, [choice.record]).items():
        found = f"{name} is the choice, but its {PREDICTIONS} {problem}"
        mend = (
            "Restore it from a backup, or name another: --trial METHOD/NUMBER"
            f" (`calstudy answer {study.name}` says more)."
        )
        raise FieldError("pick", found, mend)


def _answer(found: Results, choice: Choice, level: float) -> Answer | None:
    """The study's answer, if it names this model."""
    from study.answer.answer import answer

    said = answer(found, level)
    if said.choice is None or said.choice.record != choice.record:
        return None
    return said
