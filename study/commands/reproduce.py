"""Reproduce a paper's table: its published numbers beside ours."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import click

from study.machines.stopping import Ending
from study.terminal.console import (
    INTERRUPTED,
    console,
    cpus_option,
    errors,
    json_option,
    print_json,
    refuse_cpus,
    removed_option,
    storage_option,
    tracking_option,
)
from study.terminal.layout import Table
from study.terminal.steps import Steps
from study.terminal.waiting import wait_options

if TYPE_CHECKING:
    from study.engine.reproduce import Place, Reproduced
    from study.reproduction.reproduction import Reproduction
    from study.reproduction.studies import Asked
    from study.reproduction.table import PaperTable, StudyEntry
    from study.schema.spec import StudySpec
    from study.schema.wait import Wait
    from study.store.study import StudyFolder
    from trainables.loading.cache import Prepared


@click.command()
@click.argument("table", required=False, metavar="[TABLE]")
@click.option(
    "--seeds",
    type=click.IntRange(min=1),
    metavar="N",
    help="Trainings of each method; default: 3, or what the table's study says if that is more.",
)
@click.option("--short", is_flag=True, help="A small network, 2000 samples, 3 epochs: a rehearsal.")
@click.option("--network", metavar="X", help="One of the table's networks; default: its first.")
@click.option("--option", metavar="X", help="One of the table's options.")
@click.option(
    "--data",
    metavar="PATH|SETTINGS",
    help="The data elsewhere, or other data: a path, or settings as in a study.",
)
@removed_option("--format", "The table is text; --json has all of it.", takes_value=True)
@removed_option("--output", "The table goes to standard output: add > FILE.", takes_value=True)
@click.option("--address", metavar="A", help="Ray cluster to train on; default: this machine.")
@wait_options
@cpus_option
@storage_option
@tracking_option
@json_option
def reproduce(
    table: str | None,
    seeds: int | None,
    short: bool,
    network: str | None,
    option: str | None,
    data: str | None,
    address: str | None,
    wait: Wait,
    cpus: int | None,
    storage: str | None,
    tracking: str | None,
    as_json: bool,
) -> None:
    """Train a paper's table and print its numbers next to ours.

    TABLE is one of calstudy's, which the command lists if none is given, or a file NAME.table.yaml
    of your own. Its studies are trained, then measured on the sealed test split, once per model. To
    resume after an interruption (exit code 75), run the same command again; with more --seeds it
    adds some. The table goes to standard output, everything else to standard error.

    The paper's claims that one method is better than another are judged by paired seeds.
    """
    refuse_cpus(cpus, address)
    if table is None:
        _list(as_json)
        return
    with Ending(errors, errors) as stopping:
        stopping.resume = _resumes()
        with Steps(errors) as steps:
            steps("importing torch")
            from study.engine.reproduce import Place
            from study.reproduction.studies import Asked
            from study.reproduction.table import find_table, read_table
            from study.store.study import storage_root

        found = read_table(find_table(table))
        asked = Asked.of(found, network, short, option, data, seeds)
        place = Place(storage_root(storage), tracking, address, cpus, wait)
        ended = _studies(asked, place, stopping)
        lacking = {name: one.untracked for name, one in ended.items() if one.untracked}
        shown = _reproduction(asked, ended)
        _write(shown, as_json)
        for name, why in lacking.items():
            errors.say(f"{name} is not whole in MLflow yet ({why}); run the same command again.")
        if lacking:
            raise SystemExit(INTERRUPTED)


def _resumes() -> str:
    """The command as it was given."""
    context = click.get_current_context()
    words = [str(context.params["table"])]
    for option in context.command.params[1:]:
        value = context.params.get(str(option.name))
        if value is True:
            words.append(option.opts[0])
        elif value not in (None, False, option.default):
            words += [option.opts[0], str(value)]
    return shlex.join(["calstudy", "reproduce", *words])


# ---- the studies ---------------------------------------------------------------------------------


def _studies(asked: Asked, place: Place, stopping: Ending) -> dict[str, Reproduced]:
    """The table's studies, trained, and measured if they have rows, by name in the table."""
    from study.engine.reproduce import Reproduced, is_kept, measured, tracked, train
    from study.reproduction.studies import located_data
    from study.reproduction.table import check_labels
    from study.store.study import begun
    from study.terminal.display import ConsoleDisplay

    display = ConsoleDisplay(errors)
    found = {}
    for entry in asked.table.studies:
        with located_data(asked, entry):
            found[entry.name] = begun(asked.parsed(entry, place.root), str(place.root))
    check_labels(asked.table, {name: spec for name, (spec, _) in found.items()})
    ended = {}
    for entry in asked.table.studies:
        spec, opened = found[entry.name]
        with located_data(asked, entry):
            if is_kept(spec, place.root / spec.name, opened, entry.seeds is None):
                errors.say(f"{spec.name} is finished, and cannot be written: it is read as it is.")
                ended[entry.name] = Reproduced(opened)
                continue
            prepared = _checked(asked, entry, spec, place)
            if opened is None or not opened.records():
                _predict(asked, entry, spec, opened, place, prepared)
        file_name = asked.table.spec_file(entry.name, asked.short).name
        done = train(spec, file_name, opened, place, display, stopping)
        if done.study is not None and entry.seeds is None:
            done = measured(done.study, place, display, stopping)
        elif done.study is not None:
            done = tracked(done, place)
        if done.study is None:
            stopping.say()
            raise SystemExit(INTERRUPTED)
        ended[entry.name] = done
    return ended


def _checked(asked: Asked, entry: StudyEntry, spec: StudySpec, place: Place) -> Prepared:
    """The study's data, after all that can be refused before a probe."""
    from study.engine.preparation import digest_begun, prepare_data
    from study.engine.reproduce import refuse_driver, refuse_search
    from study.reproduction.studies import check_classes
    from study.store.place import check_place

    file_name = asked.table.spec_file(entry.name, asked.short).name
    folder = place.root / spec.name
    refuse_search(spec, file_name)
    check_place(file_name, folder, spec.ledger)
    refuse_driver(folder, spec.ledger)
    begun = digest_begun(spec, folder, None)
    prepared = prepare_data(spec, file_name, Steps(errors), begun)
    check_classes(asked, prepared.num_classes)
    if entry.seeds is None and asked.seeds is not None and asked.seeds < spec.trials:
        errors.say(f"{spec.name} has {spec.trials} seeds already: all are shown.")
    return prepared


def _predict(
    asked: Asked,
    entry: StudyEntry,
    spec: StudySpec,
    opened: StudyFolder | None,
    place: Place,
    prepared: Prepared,
) -> None:
    """Say what a study of which no trial has begun is going to cost."""
    from study.answer.phrases import counted
    from study.commands.plan import Planned, Where, print_prediction, with_probe
    from study.engine.preparation import check_machine
    from study.store.targets import Targets

    file_name = asked.table.spec_file(entry.name, asked.short).name
    folder = place.root / spec.name
    Targets(place.root).check(spec, prepared.digest, file_name)
    slots = None
    if place.address is None:
        slots = check_machine(spec, folder, opened, place.cpus)
    methods = counted(len(spec.variants), "method")
    errors.say(f"{spec.name}: {methods}, {counted(spec.trials, 'seed')} each")
    where = Where(place.address, place.wait, place.cpus)
    planned = Planned(spec, folder, prepared, opened, slots=slots)
    found = with_probe(planned, file_name, True, where)
    print_prediction(found, errors)


def _reproduction(asked: Asked, ended: dict[str, Reproduced]) -> Reproduction:
    from study.reproduction.reproduction import reproduction_of

    with Steps(errors) as steps:
        steps("measuring the temperatures and their spread")
        wanted = {row.study for row in asked.table.rows}
        studies = {name: one.study for name, one in ended.items() if name in wanted and one.study}
        return reproduction_of(asked, studies)


# ---- what is shown -------------------------------------------------------------------------------


def _write(found: Reproduction, as_json: bool) -> None:
    from study.reproduction.words import (
        CLAIM_HEADINGS,
        CLAIMS_CAPTION,
        claim_text,
        figure,
        heading,
        lines_above,
        lines_below,
        ours,
        parts,
        to_plain,
    )

    if as_json:
        print_json(to_plain(found))
        return
    console.print(found.table.title, style="bold")
    for line in lines_above(found):
        console.say(line)
    compared, own = parts(found)
    for column in compared:
        made = Table("method", ">published", ">ours", title=heading(column))
        for row, cell in found.cells[column.name].items():
            made.add_row(row, figure(column, cell.published), ours(column, cell))
        console.print(made)
    if own:
        made = Table("method", *(f">{heading(column)}" for column in own), title="ours alone")
        for row in found.seeds:
            made.add_row(row, *(ours(column, found.cells[column.name][row]) for column in own))
        console.print(made)
    if found.findings:
        made = Table(*_aligned(CLAIM_HEADINGS), title="the paper's claims")
        for claim, finding in zip(found.table.claims, found.findings, strict=True):
            made.add_row(*claim_text(claim, finding, found.table.column(claim.column)))
        console.print(made)
        console.say(CLAIMS_CAPTION)
    for line in lines_below(found):
        console.say(line)


def _aligned(names: tuple[str, ...]) -> list[str]:
    first, *middle, last = names
    return [first, *(f">{name}" for name in middle), last]


def _list(as_json: bool) -> None:
    """Every table: networks, trainings and hours."""
    from study.reproduction.table import packaged_tables, read_table, trainings_of

    tables = [read_table(file) for file in packaged_tables().values()]
    if as_json:
        print_json([_listed(table) for table in tables])
        return
    made = Table("table", "network", ">trainings a seed", ">hours a seed")
    for table in tables:
        count = str(trainings_of(table))
        for place, network in enumerate(table.networks or [None]):
            hours = table.hours_of(network)
            shown = "minutes, no GPU" if hours is None else f"{hours:g}"
            name = table.name if place == 0 else ""
            made.add_row(name, network or "", count, shown)
    console.print(made)
    console.say(
        "hours a seed: of one H100, an estimate from the networks' sizes, not measured; it may be"
        " off by a factor of 2. The probe predicts it for your machine before anything is trained."
    )
    for table in tables:
        console.print(f"{table.name}: {table.title}", style="bold")
        if not any(table.published.values()):
            console.say("  no published numbers: ours alone")


def _listed(table: PaperTable) -> dict[str, object]:
    from study.reproduction.table import trainings_of

    hours = {network: one.hours for network, one in table.networks.items()}
    return {
        "name": table.name,
        "title": table.title,
        "source": table.source,
        "networks": list(table.networks),
        "trainings_a_seed": trainings_of(table),
        "hours_estimate": hours or table.hours,
        "options": {name: option.what for name, option in table.options.items()},
        "published": any(table.published.values()),
    }
