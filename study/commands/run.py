"""Run a study."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from study.engine.stopping import Ending
from study.terminal.console import (
    FAILED,
    INTERRUPTED,
    console,
    cpus_option,
    refuse_cpus,
    storage_option,
    tracking_option,
)


@click.command()
@click.argument("spec", type=click.Path(path_type=Path))
@click.option(
    "--trials",
    type=int,
    metavar="N",
    help="Trials per method, overriding the spec; raise it to add trials.",
)
@click.option("--address", metavar="A", help="Ray cluster to run on; default: this machine.")
@cpus_option
@storage_option
@tracking_option
def run(
    spec: Path,
    trials: int | None,
    address: str | None,
    cpus: int | None,
    storage: str | None,
    tracking: str | None,
) -> None:
    """Run the trials that are still missing.

    To resume after an interruption (exit code 75), run the same command again; every trial is counted once. The code is
    75 too if MLflow lacks something at the end: the next run only uploads it. You may add trials or methods and change
    resources or the tracking server; a change to what a trial means is refused.
    """
    refuse_cpus(cpus, address)
    with Ending(console) as stopping:
        with console.status("importing torch"):  # shows nothing on a pipe
            from study.analysis.pareto import complete
            from study.commands.answer import conclude
            from study.engine.run import run_study
            from study.schema.spec import refuse_confirmation
            from study.store.study import read_study_spec, storage_root

        study = read_study_spec(spec, storage, trials=trials)
        refuse_confirmation(study, spec.name)
        root = storage_root(storage, study.storage)
        outcome = run_study(study, spec.name, root, tracking, address, console, stopping, cpus)
        _report_run(outcome, outcome.study.tracking(None))
        if outcome.interrupted:
            stopping.say()
            raise SystemExit(INTERRUPTED)
        described = conclude(outcome.study, None, storage)
        if not any(complete(found) for found in outcome.records.values()):
            raise SystemExit(FAILED)
        if not (outcome.tracked and described):
            raise SystemExit(INTERRUPTED)


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
        console.print(budget_line(study, outcome.records), soft_wrap=True)
    if now.ranking.front:
        console.print(front_table(now.ranking.front, study.objectives))
    console.print(f"study:    {study.directory}", soft_wrap=True)
    console.print(f"tracking: {public_uri(uri)}", soft_wrap=True)
    if not outcome.tracked:
        trouble = f" ({outcome.tracking_trouble})" if outcome.tracking_trouble else ""
        what = f"{outcome.untracked} trials are" if outcome.untracked else "the end of the study is"
        fix = f"run the same command again, or `calstudy sync {study.spec.name}`, to upload what it lacks."
        console.print(f"{what} not in MLflow yet{trouble}; {fix}", soft_wrap=True)
    elif outcome.tracking_trouble:
        console.print(f"tracking: {outcome.tracking_trouble}", soft_wrap=True)
