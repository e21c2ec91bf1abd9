"""Consoles, exit codes and options shared by all commands."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import click
from click.core import ParameterSource
from rich.console import Console, ConsoleDimensions, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from study.schema.printable import printable


class SafeConsole(Console):
    """Whatever is printed, no character reaches the terminal as a command to it."""

    def render_str(self, text: str, **how: Any) -> Text:
        return super().render_str(printable(text), **how)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


class _Console(SafeConsole):
    """On a pipe, lines are as long as they need to be: what reads them may count on one line per row."""

    @property  # type: ignore[misc]  # Rich's can also be set
    def size(self) -> ConsoleDimensions:
        found = super().size
        return found if self.is_terminal else ConsoleDimensions(UNLIMITED, found.height)


UNLIMITED = 1_000_000  # columns
# Markup off: a reason, a path or a range may hold [brackets].
console = _Console(highlight=False, markup=False)
errors = _Console(stderr=True, highlight=False, soft_wrap=True, markup=False)

FAILED, MISTAKE = 1, 2
FEWEST_RESAMPLES, MOST_RESAMPLES = 100, 10_000

storage_option = click.option(
    "--storage", metavar="DIR", help="Folder of studies; default: the spec's, else $CALSTUDY_STORAGE, else ./studies."
)
tracking_option = click.option(
    "--tracking", metavar="URI", help="MLflow server; default: the study's, else the one embedded in the storage."
)


def _enough(context: click.Context, option: click.Parameter, resamples: int) -> int:
    """Fewer resamples cannot give a 2.5% quantile."""
    if 0 < resamples < FEWEST_RESAMPLES:
        raise click.BadParameter(f"{resamples} resamples are too few. Use 0 for none, or at least {FEWEST_RESAMPLES}.")
    return resamples


def _level(context: click.Context, option: click.Parameter, percentage: float) -> float:
    """As a fraction."""
    if not 50 < percentage < 100:
        problem = f"{percentage:g} is not between 50 and 100 (both excluded). Write a percentage: 90 for 90% intervals."
        raise click.BadParameter(problem)
    return percentage / 100


def interval_is_given() -> bool:
    """Whether the user wrote --interval."""
    return click.get_current_context().get_parameter_source("level") is not ParameterSource.DEFAULT


def fewest_resamples(level: float) -> int:
    """As many lie beyond each end of the interval as of FEWEST_RESAMPLES beyond a 95% one."""
    return math.ceil(round(0.05 * FEWEST_RESAMPLES / (1 - level), 6))


def check_resamples(resamples: int, level: float) -> None:
    """Raises UsageError if there are fewer than `fewest_resamples`, but not none."""
    needed = fewest_resamples(level)
    if 0 < resamples < needed:
        fix = f"use --bootstrap {needed}" if needed <= MOST_RESAMPLES else "use a lower --interval"
        raise click.UsageError(f"{resamples:,} resamples are too few for {100 * level:g}% intervals; {fix}.")


bootstrap_option = click.option(
    "--bootstrap",
    type=click.IntRange(0, MOST_RESAMPLES),
    default=1000,
    show_default=True,
    metavar="N",
    callback=_enough,
    help="Bootstrap resamples for the intervals; 0: no intervals.",
)
interval_option = click.option(
    "--interval",
    "level",
    type=float,
    default=95,
    show_default=True,
    metavar="PERCENT",
    callback=_level,
    help="Level of the intervals, between 50 and 100.",
)
yes_option = click.option("--yes", is_flag=True, help="Delete without asking.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def human_bytes(count: float) -> str:
    """`950 B`, `12.3 MB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.5 or unit == "GB":
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError("GB is the last unit")
