"""The studies on a cluster."""

from __future__ import annotations

import click

from study.terminal.console import console, job_server_option, json_option, print_json


@click.command()
@job_server_option
@json_option
def jobs(address: str, as_json: bool) -> None:
    """List the studies that were submitted to a cluster.

    The newest first, each with its job, its state and when it began. A cluster forgets its jobs
    when it ends; `calstudy status` reads a study from its storage.
    """
    from study.machines.job_server import RUN, connect, our_jobs
    from study.terminal.jobs import jobs_table, warn_of_plain_http

    warn_of_plain_http(address)
    found = [
        job for job in our_jobs(connect(address), address) if job.kind == RUN or not job.is_over
    ]
    if as_json:
        print_json([job.plain() for job in found])
    elif found:
        console.print(jobs_table(found))
    else:
        console.say(f"no study was submitted to {address}.")
