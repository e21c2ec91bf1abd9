"""Run a study."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from study.machines.stopping import Ending
from study.terminal.console import (
    FAILED,
    INTERRUPTED,
    console,
    cpus_option,
    errors,
    moved_option,
    refuse_cpus,
    storage_option,
    tracking_option,
    trust_option,
)
from study.terminal.steps import Steps
from study.terminal.waiting import wait_options

if TYPE_CHECKING:
    from study.schema.spec import StudySpec
    from study.schema.wait import Wait
    from study.store.study import StudyFolder


@click.command()
@click.argument("spec", metavar="SPEC|STUDY")
@click.argument("failed", metavar="[METHOD/NUMBER ...]", nargs=-1)
@click.option(
    "--trials",
    type=int,
    metavar="N",
    help="Trials per method, overriding the spec; raise it to add trials.",
)
@click.option(
    "--retry-failed",
    is_flag=True,
    help="Retry all failed trials, or those named METHOD/NUMBER after SPEC.",
)
@click.option("--address", metavar="A", help="Ray cluster to run on; default: this machine.")
@wait_options
@cpus_option
@trust_option
@moved_option
@storage_option
@tracking_option
def run(
    spec: str,
    failed: tuple[str, ...],
    trials: int | None,
    retry_failed: bool,
    address: str | None,
    wait: Wait,
    cpus: int | None,
    trust: bool,
    moved: bool,
    storage: str | None,
    tracking: str | None,
) -> None:
    """Run the trials that are still missing.

    SPEC is a file. To go on with a STUDY as it was recorded, name its folder, its study.yaml or its
    name under the storage instead.

    To resume after an interruption (exit code 75), run the same command again; every trial is
    counted once. The code is 75 too if MLflow lacks something at the end: the next run only uploads
    it. You may add trials or methods and change resources or the tracking server; a change to what
    a trial means is refused.

    --retry-failed trains failed trials again: the same values and seeds, each counted once, in the
    place of the one that failed. Your own code may have been mended for it.

    A copy of a study whose original is gone goes on with --moved, as does the copy of its
    confirmation beside it, with every opening of the test split.
    """
    refuse_cpus(cpus, address)
    if failed and not retry_failed:
        raise click.UsageError(f"'{failed[0]}' names a trial: write --retry-failed too.")
    with Ending(console, errors) as stopping:
        with Steps(console) as steps:
            steps("importing torch")
            from study.answer.confirmation import results_of
            from study.commands.answer import conclude
            from study.engine.retry import Retry
            from study.engine.run import run_study
            from study.terminal.display import ConsoleDisplay

        asked = _asked(spec, storage, tracking, trials, trust, moved)
        shown = ConsoleDisplay(console)
        outcome = run_study(
            asked.spec,
            asked.file_name,
            asked.root,
            asked.tracking,
            address,
            shown,
            stopping,
            cpus,
            asked.opened,
            wait,
            Retry(failed) if retry_failed else None,
        )
        _report_run(outcome, outcome.study.tracking(None))
        if outcome.interrupted:
            stopping.say()
            raise SystemExit(INTERRUPTED)
        described = conclude(results_of(outcome.study), None)
        if not outcome.records.complete:
            raise SystemExit(FAILED)
        if not (outcome.tracked and described):
            raise SystemExit(INTERRUPTED)


class _Asked(NamedTuple):
    """What is to be run. opened: the study, where it has begun."""

    spec: StudySpec
    file_name: str
    root: Path
    tracking: str | None
    opened: StudyFolder | None


def _asked(
    reference: str,
    storage: str | None,
    tracking: str | None,
    trials: int | None,
    trust: bool,
    moved: bool,
) -> _Asked:
    """The study of a spec, or that of a record, of which it first says what code and server it
    brings."""
    from study.schema.spec import refuse_confirmation
    from study.store.from_record import (
        brought_by,
        find_to_run,
        open_to_go_on,
        recorded_spec,
        refuse_another_users,
    )
    from study.store.study import spec_and_study, storage_root

    found = find_to_run(reference, storage)
    if found.note:
        console.say(found.note)
    if found.directory is None:
        study, opened = spec_and_study(found.file, storage, trials=trials)
        refuse_confirmation(study, found.file.name)
        root = storage_root(storage, study.storage)
        if moved and opened is not None:
            _say_moved(opened)
        return _Asked(study, found.file.name, root, tracking, opened)
    opened = open_to_go_on(found.directory, moved)
    brought = brought_by(opened, tracking)
    uses = f": it brings {', '.join(brought)}" if brought else ""
    console.say(f"from the record in {opened.directory}{uses}")
    refuse_another_users(opened, brought, trust)
    if moved:
        _say_moved(opened)
        opened = open_to_go_on(found.directory)
    spec = recorded_spec(opened, trials)
    file_name = str(opened.directory / "study.yaml")
    given = tracking or opened.recorded.tracking
    return _Asked(spec, file_name, opened.directory.parent, given, opened)


def _say_moved(study: StudyFolder) -> None:
    """Have a copy of a study go on where it lies; see `go_on_here`."""
    from study.audit.moved import go_on_here

    for line in go_on_here(study):
        console.say(line)


def _report_run(outcome: Any, uri: str) -> None:
    from study.analysis.states import Snapshot, done, in_words, summed
    from study.schema.uris import public_uri
    from study.store.spending import budget_line, budget_of
    from study.terminal.tables import front_table

    study = outcome.study
    now = Snapshot.of(study, outcome.records, alive=False)
    counts = summed(now.counts.values())
    console.print(
        f"{study.spec.name}: {done(counts)}/{counts['planned']} trials; {in_words(counts)}",
        style="bold",
    )
    if budget_of(study) is not None:
        console.say(budget_line(study, outcome.records))
    if now.ranking.front:
        found = now.ranking
        serves = found.deployed.serves
        console.print(
            front_table(found.front, study.objectives, equals=found.equals, serves=serves)
        )
    console.say(f"study:    {study.directory}")
    console.say(f"tracking: {public_uri(uri)}")
    if outcome.interrupted:
        return  # what MLflow lacks is not known then; resuming uploads it
    if not outcome.tracked:
        trouble = f" ({outcome.tracking_trouble})" if outcome.tracking_trouble else ""
        what = f"{outcome.untracked} trials are" if outcome.untracked else "the end of the study is"
        fix = f"run the same command again, or `{study.command('sync')}`, to upload what it lacks."
        console.say(f"{what} not in MLflow yet{trouble}; {fix}")
    elif outcome.tracking_trouble:
        console.say(f"tracking: {outcome.tracking_trouble}")
