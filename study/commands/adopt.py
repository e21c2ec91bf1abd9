"""A study that was copied, gone on with where it now is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from study.terminal.console import FAILED, console, storage_option

if TYPE_CHECKING:
    from study.store.adoption import HomeNow
    from study.store.study import Study


@click.command()
@click.argument("study")
@click.option("--yes", is_flag=True, help="Adopt without asking: the original is gone.")
@click.option(
    "--incomplete",
    is_flag=True,
    help="Adopt although files are lost or damaged; `audit` goes on naming them.",
)
@storage_option
def adopt(study: str, yes: bool, incomplete: bool, storage: str | None) -> None:
    """Go on with a study that was copied from another disk or machine.

    Checks every file against the digests in the ledger, asks whether the original is gone, and
    records the new home; of the confirmation beside it too, with every opening of the test split.
    Of two folders only one may go on: both would train the same trials, and open the test split. An
    original that is seen from here, and a ledger elsewhere, are reported.
    """
    from study.answer.confirmation import search_of
    from study.store.adoption import adopt as adopt_study
    from study.store.adoption import home_now, is_at_home
    from study.store.confirmed import confirming_study, missing_confirmation
    from study.store.study import open_study

    search = search_of(open_study(study, storage))
    confirming = confirming_study(search)
    both = [search] if confirming is None or confirming is search else [search, confirming]
    copies = [each for each in both if not is_at_home(each)]
    if not copies:
        console.say(f"{search.name} is at home in {search.directory}: there is nothing to adopt.")
        return
    homes = {each.name: home_now(each) for each in copies}
    whole = [_is_whole(each, search) for each in copies]
    if missing := missing_confirmation(search):
        console.say(f"{missing}. Copy that folder here too, and adopt again.")
    if not (all(whole) or incomplete):
        console.say(
            "nothing was adopted. Copy these files again, from the original or a backup, then adopt"
            " again; where they are lost for good, add --incomplete."
        )
        raise SystemExit(FAILED)
    _ask(list(homes.values()), yes)
    for each in copies:
        home = homes[each.name]
        unmarked = adopt_study(each, None if home is None else home.study)
        console.say(f"{each.name} has its home in {each.directory}")
        if home is not None and unmarked is not None:
            console.say(f"{home.path} could not be marked ({unmarked}): never run it again.")
    _say_next(search)


def _is_whole(study: Study, search: Study) -> bool:
    """Print what was compared, and what is missing or differs; whether that is nothing."""
    from study.analysis.states import Snapshot, in_words, summed
    from study.audit.files import compared_folder
    from study.audit.openings import compare_record
    from study.audit.result import Check
    from study.store.adoption import with_adoptions
    from study.store.openings import openings_in

    study = with_adoptions(study)
    records = study.records()
    found = compared_folder(study, records)
    states = summed(Snapshot.of(study, records, alive=False).counts.values())
    home = study.recorded.home
    console.say(f"{study.name}, copied from {home and home.path}: {in_words(states)}")
    files = f"{found.matching:,} files match the ledger's digests"
    if study.is_confirmation:
        opened = sum(len(openings_in(notes)) for notes in study.reader.unchecked.notes().values())
        files += f"; {opened:,} openings of the test split come with it"
    console.say(f"  {files}")
    problems = [f"{name}: {file} {problem}" for name, file, problem in found.problems]
    if study.is_confirmation:
        check = Check("openings", "")
        compare_record(search, check)
        problems += [f"{each.name}: {each.problem}" for each in check.offenders]
    for problem in problems:
        console.say(f"  {problem}")
    return not problems


def _ask(homes: list[HomeNow | None], yes: bool) -> None:
    """End the command unless the user says that the originals are gone. yes: --yes was given."""
    console.say(
        "Only one folder of a study may go on: two would train the same trials, and open the test"
        " split on their own."
    )
    for home in filter(None, homes):
        if home.study is None:
            console.say(f"The original, {home.path}, is not seen from here.")
        else:
            console.say(
                f"{home.path} is still there. It will be marked: calstudy then refuses to run it."
            )
    if not yes and not click.confirm("Is every original gone, or never run again?", default=False):
        console.say("nothing was adopted.")
        raise SystemExit(FAILED)


def _say_next(search: Study) -> None:
    """What resumes the study or its confirmation; else what shows its answer."""
    from study.answer.confirmation import results_of
    from study.store.study import open_directory

    found = results_of(open_directory(search.directory, search.name))
    if found.lacking:
        console.say(f"Resume: {found.study.goes_on}")
    if found.confirmation is not None and not found.confirmation.finished:
        console.say(f"Resume: {found.confirmation.goes_on}")
    elif not found.lacking:
        console.say(f"Next: {found.study.command('answer')}")
