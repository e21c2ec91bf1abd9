"""What a job's driver says."""

from __future__ import annotations

import click

from study.terminal.console import console, errors, job_server_option


@click.command()
@click.argument("job", metavar="JOB|STUDY")
@click.option("-f", "--follow", is_flag=True, help="Go on until the job ends.")
@job_server_option
def logs(job: str, follow: bool, address: str) -> None:
    """Print the log of a job on a cluster.

    Takes the name of a job, or that of a study, which means its newest job. With -f it ends with
    the job, and with the job's exit code; Ctrl-C leaves the job alone.
    """
    from study.machines.job_server import connect, find_job, log_lines, our_jobs
    from study.machines.job_server import follow as follow_job
    from study.terminal.jobs import warn_of_plain_http

    warn_of_plain_http(address)
    client = connect(address)
    found = find_job(our_jobs(client, address), job, address)
    if not follow:
        for line in log_lines(client, found, address):
            console.say(line)
        return
    ended = follow_job(client, found, address, console.say)
    errors.print(f"{ended.name}: {ended.shown_state}.")
    raise SystemExit(ended.code)
