"""End a job."""

from __future__ import annotations

import click

from study.terminal.console import console, errors, job_server_option


@click.command()
@click.argument("job", metavar="JOB|STUDY")
@job_server_option
def stop(job: str, address: str) -> None:
    """Stop a study on a cluster, and wait until its driver has ended.

    Takes the name of a job, or that of a study, which means its newest job. Nothing is lost: submit
    the study again to resume.
    """
    from study.machines.job_server import connect, find_job, last_line, our_jobs
    from study.machines.job_server import stop as stop_job
    from study.terminal.jobs import warn_of_plain_http

    warn_of_plain_http(address)
    client = connect(address)
    found = find_job(our_jobs(client, address), job, address)
    if found.is_over:
        console.say(f"{found.name}: it had ended before: {found.shown_state}.")
    else:
        with errors.status("stopping"):
            found = stop_job(client, found, address)
        console.say(f"{found.name}: {found.shown_state}.")
        if line := last_line(client, found, address):
            console.say(f"driver:    {line}")
    if found.again is not None and found.state != "finished":
        console.say(f"resume:    calstudy submit {found.again} --address {address}")
