"""Check every node."""

from __future__ import annotations

from pathlib import Path

import click

from study.terminal.console import (
    ADDRESS,
    FAILED,
    console,
    cpus_option,
    errors,
    json_option,
    refuse_cpus,
    removed_option,
    storage_option,
    tracking_option,
)


@click.command()
@click.argument("spec", type=click.Path(path_type=Path), required=False)
@click.option(
    "--address",
    metavar="A",
    envvar=ADDRESS,
    help="Ray cluster (HOST:PORT or auto); default: $CALSTUDY_ADDRESS, else this machine.",
)
@removed_option(
    "--env",
    "Doctor runs where the driver will: write passwords into a file there.",
    takes_value=True,
)
@cpus_option
@storage_option
@tracking_option
@json_option
def doctor(
    spec: Path | None,
    address: str | None,
    cpus: int | None,
    storage: str | None,
    tracking: str | None,
    as_json: bool,
) -> None:
    """Check every node of a cluster, or this machine.

    Checks code, versions, storage, GPUs, free disk and memory, clock, token and tracking; with
    SPEC, also its data. Writes only the cache of prepared data and, to a tracking server, one small
    artifact, which it deletes again. Prints each failure with its fix, and exits with code 1 if
    there are any.
    """
    from study.machines.doctor import diagnose
    from study.store.study import spec_and_study, storage_root
    from study.terminal.doctor import show

    refuse_cpus(cpus, address)
    study, opened = (None, None) if spec is None else spec_and_study(spec, storage)
    root = storage_root(storage, None if study is None else study.storage)
    with errors.status("checking every node"):
        report = diagnose(study, root, tracking, address, cpus, opened)
    if as_json:
        click.echo(report.to_json())
    else:
        show(report, console)
    if not report.ok:
        raise SystemExit(FAILED)
