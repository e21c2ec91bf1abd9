"""The options of a command whose candidates race."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from study.store.recorded import FIRST

_WHOLE = click.IntRange(min=1)
_LIMITS = {
    "trainings": ("N", _WHOLE, "The race ends at N trainings; default: no limit."),
    "at_most": (
        "S",
        click.IntRange(min=FIRST),
        "Seeds of a model in the race, at most; default: 12.",
    ),
    "until": (
        "U",
        click.FloatRange(min=0),
        "The race ends when no other model is likely to be better by U times the smallest"
        " difference that matters; default: 0.25.",
    ),
    "candidates": (
        "N",
        _WHOLE,
        "Beside the front, the N trials with the lowest sums of the objectives; default: 8.",
    ),
}


def race_options(command: Callable[..., None]) -> Callable[..., None]:
    """--candidates, --until, --at-most, --trainings, --defaults and --calibrators, beside --seeds;
    the command gets them as `race`, by name."""

    @functools.wraps(command)
    def racing(
        *, seeds: int | None, defaults: bool, calibrators: str | None, **others: Any
    ) -> None:
        race = {name: others.pop(name) for name in _LIMITS}
        given = [name for name, value in race.items() if value is not None and name != "candidates"]
        if seeds is not None and given:
            raise click.UsageError(
                f"--{given[0].replace('_', '-')} is for a race, and with --seeds all candidates get"
                " as many. Leave out one of them."
            )
        named = tuple(name.strip() for name in (calibrators or "").split(",") if name.strip())
        asked = {**race, "defaults": defaults, "calibrators": named}
        command(seeds=seeds, race=asked, **others)

    words = "Score these on test too, such as structured_vector; named before it is first opened."
    racing = click.option("--calibrators", metavar="NAMES", help=words)(racing)
    words = "In a race: retrain each method's default too."
    racing = click.option("--defaults", is_flag=True, help=words)(racing)
    for name, (metavar, of, words) in _LIMITS.items():
        option = f"--{name.replace('_', '-')}"
        racing = click.option(option, type=of, metavar=metavar, help=words)(racing)
    return racing
