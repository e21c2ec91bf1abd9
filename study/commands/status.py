"""Show the progress of a study."""

from __future__ import annotations

from dataclasses import asdict

import click

from study.terminal.console import (
    console,
    json_option,
    print_json,
    storage_option,
)


@click.command()
@click.argument("study")
@storage_option
@json_option
def status(study: str, storage: str | None, as_json: bool) -> None:
    """Show the progress of each method.

    Counts the trials that are complete, excluded (complete, but they do not count), stopped early,
    failed, running (a process trains them now), interrupted (started, but the study is not running)
    and not started yet (to do). Says which methods have stalled, and what their remaining trials
    would cost. STUDY is its directory, its spec, or its name under the storage; it may be running
    elsewhere.
    """
    from study.analysis.stalled import stalled, stalled_lines
    from study.analysis.states import (
        plain_counts,
        saved_line,
        snapshot,
        stopped_line,
        summed,
    )
    from study.store.confirmed import RESTORE, missing_confirmation
    from study.store.extensions import mended_code
    from study.store.home import away_from_home
    from study.store.spending import budget_line, not_begun, spending_plain
    from study.store.study import open_study
    from study.store.waits import noted_wait
    from study.terminal.tables import failures_table, states_table

    opened = open_study(study, storage)
    now = snapshot(opened)
    missing = missing_confirmation(opened)
    found = stalled(now.ranking)
    if as_json:
        plain = {
            "name": opened.name,
            "methods": {label: plain_counts(each) for label, each in now.counts.items()},
            "stalled": {each.label: asdict(each) for each in found},
            "confirmation_missing": missing,
            "spending": spending_plain(opened, now.records),
        }
        print_json(plain)
        return
    console.say(f"{opened.name} in {opened.directory}")
    console.print(states_table(now.counts))
    failures = failures_table(now.records)
    if failures is not None:
        console.print(failures)
    if saved := saved_line(opened, now.records):
        console.print(f"{saved}.")
    console.say(budget_line(opened, now.records, now.alive))
    for mended in mended_code(now.records):
        console.say(f"{mended}.")
    for sentence in stalled_lines(found):
        console.say(sentence)
    if missing is not None:
        console.say(f"{missing}. {RESTORE}.")
    if away := away_from_home(opened):
        console.say(f"this folder {away.found}. {away.mend}")
        return
    if now.alive:
        console.print("another calstudy process is running this study.")
        if waits := noted_wait(opened.directory):
            console.say(f"it waits: {waits}")
    elif not not_begun(opened, now.records) and (
        line := stopped_line(summed(now.counts.values()), opened.goes_on)
    ):
        console.print(line)
