"""The front of a study, on the terminal and as a figure or a table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from study.terminal import console, json_option, storage_option


@click.command()
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
    from study.stored import open_outline

    opened = open_outline(study, storage)
    objectives = opened.objectives
    conditions = parse_where(where) if where else []
    candidates = [record for found in opened.records().values() for record in found if satisfies(record, conditions)]
    found = front(candidates, objectives)
    chosen = knee(found, objectives)
    volume = hypervolume(found, objectives, len(opened.recorded["classes"]))
    if figure is not None:
        from study.figures import front_figure

        front_figure(candidates, objectives, opened.name, figure, opened.recorded["sizes"]["validation"])
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
    console.print(front_table(found, objectives))
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
        "samples": record.samples,
    }
