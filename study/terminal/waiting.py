"""The options of commands that wait for the nodes of a cluster."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from study.schema.wait import NO_WAIT, Wait, duration


def _valid(context: click.Context, option: click.Parameter, given: str | None) -> str | None:
    if given is not None:
        duration(given)
    return given


_OPTIONS = (
    click.option(
        "--slots",
        type=click.IntRange(min=1),
        metavar="N",
        help="Begin once N trials fit at once, or --wait is over (default then: 15m).",
    ),
    click.option(
        "--nodes",
        type=click.IntRange(min=1),
        metavar="N",
        help="Begin once N nodes that fit are there, or --wait is over (default then: 15m).",
    ),
    click.option(
        "--wait",
        metavar="TIME",
        callback=_valid,
        help="How long to wait for nodes of the cluster: 90s, 15m, 2h.",
    ),
)


def wait_options(command: Callable[..., None]) -> Callable[..., None]:
    """--wait, --nodes and --slots, beside --address; the command gets them as `wait`."""

    @functools.wraps(command)
    def waiting(
        *,
        address: str | None,
        wait: str | None,
        nodes: int | None,
        slots: int | None,
        **others: Any,
    ) -> None:
        asked = NO_WAIT if (wait, nodes, slots) == (None,) * 3 else Wait(wait, nodes, slots)
        if address is None and asked.options:
            first = f"--{next(iter(asked.options))} is for a cluster"
            raise click.UsageError(
                f"{first}, and there is none without --address. Add that, or leave it out."
            )
        if nodes is not None and slots is not None:
            raise click.UsageError("use only one of --nodes and --slots.")
        command(address=address, wait=asked, **others)

    made: Callable[..., None] = waiting
    for option in _OPTIONS:
        made = option(made)
    return made
