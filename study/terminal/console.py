"""Consoles, exit codes and options shared by all commands."""

from __future__ import annotations

import errno
import json
import math
import os
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource
from rich.console import Console, ConsoleDimensions, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from study.schema.printable import printable
from study.schema.uris import refuse_password

if TYPE_CHECKING:
    from study.store.study import StudyFolder


def _nothing_left_to_do() -> None:
    """The end of a command that only reads."""
    raise SystemExit(FAILED)


class SafeConsole(Console):
    """A console that prints no character that the terminal would take as a command."""

    def render_str(self, text: str, **how: Any) -> Text:
        return super().render_str(printable(text), **how)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


class OurConsole(SafeConsole):
    """A console that never breaks lines on a pipe: its readers may count on one line per row.

    Once nobody reads them any more (`| head -1`, a terminal that was closed), it is silent and
    calls `when_closed`.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.when_closed: Callable[[], None] = _nothing_left_to_do
        self._writing = threading.RLock()
        self._kept = False  # what is printed

    def silence(self, patience: float) -> None:
        """Print nothing from now on, after a line that another thread is just writing."""
        self.quiet = True
        if self._writing.acquire(timeout=patience):
            self._writing.release()

    def say(self, line: str) -> None:
        """Print a line that only the terminal wraps."""
        self.print(line, soft_wrap=True)

    def lines_of(self, show: Callable[[], None]) -> tuple[str, ...]:
        """What `show` prints, as on a pipe, in lines; it is kept from the output."""
        self._kept = True
        try:
            with self.capture() as printed:
                show()
        finally:
            self._kept = False
        return tuple(Text.from_ansi(printed.get()).plain.splitlines())

    def on_broken_pipe(self) -> None:
        self.quiet = True
        # So that what is still in buffers does not fail again at the end.
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.file.fileno())
        self.when_closed()

    def _check_buffer(self) -> None:
        try:
            with self._writing:
                super()._check_buffer()
        except OSError as error:
            if error.errno != errno.EIO:  # a terminal's broken pipe
                raise
            self.on_broken_pipe()

    @property  # type: ignore[misc]  # Rich's can also be set
    def size(self) -> ConsoleDimensions:
        found = super().size
        if self.is_terminal and not self._kept:
            return found
        return ConsoleDimensions(UNLIMITED, found.height)


UNLIMITED = 1_000_000  # columns
WIDTH = 100  # of what is read and not parsed, where no terminal says another


def reading_width() -> int:
    """The columns of the terminal, though the output goes into a pager or a file."""
    if (said := os.environ.get("COLUMNS", "")).isdecimal():
        return int(said)
    for number in (1, 2, 0):
        with suppress(OSError):
            return os.get_terminal_size(number).columns or WIDTH
    return WIDTH


# Markup off: a reason, a path or a range may hold [brackets].
# In a notebook too, lines go to the output: they are text there.
console = OurConsole(highlight=False, markup=False, force_jupyter=False)
errors = OurConsole(stderr=True, highlight=False, soft_wrap=True, markup=False, force_jupyter=False)

FAILED = 1
MISTAKE = 2
BEYOND_LIMIT = 3  # --fail-if
INTERRUPTED = 75  # EX_TEMPFAIL: run the same command again
FEWEST_RESAMPLES = 100
MOST_RESAMPLES = 10_000

storage_option = click.option(
    "--storage",
    metavar="DIR",
    help="Folder of studies; default: the spec's, else $CALSTUDY_STORAGE, else ./studies.",
)


def _without_password(
    context: click.Context, option: click.Parameter, given: str | None
) -> str | None:
    """Other users of the machine can read a command line."""
    refuse_password(given, "--tracking")
    return given


tracking_option = click.option(
    "--tracking",
    metavar="URI",
    callback=_without_password,
    help=(
        "MLflow server, or the name of a file or environment variable that holds its URI; default:"
        " the study's, else the one embedded in the storage."
    ),
)

moved_option = click.option(
    "--moved",
    is_flag=True,
    help="Go on in this copy of a study, once its files are checked; the original is gone.",
)

ADDRESS = "CALSTUDY_ADDRESS"  # never for `run` and `confirm`: what they do where is said on them


def removed_option(name: str, mend: str, takes_value: bool = False) -> Callable[[Any], Any]:
    """An option of an earlier version: refused in a line that says what to do instead."""

    def refuse(context: click.Context, option: click.Parameter, given: object) -> None:
        if given:
            raise click.UsageError(f"{name} was removed. {mend}")

    return click.option(
        name, is_flag=not takes_value, expose_value=False, hidden=True, callback=refuse
    )


cpus_option = click.option(
    "--cpus",
    type=click.IntRange(min=1),
    metavar="N",
    help=(
        "CPUs of this machine for all trials; default: what Slurm, the cgroup and the CPU affinity"
        " allow."
    ),
)


def refuse_cpus(cpus: int | None, address: str | None) -> None:
    """Raises UsageError if CPUs of this machine are given for a cluster."""
    if cpus is not None and address is not None:
        source = click.get_current_context().get_parameter_source("address")
        unset = f", or unset {ADDRESS}" if source is ParameterSource.ENVIRONMENT else ""
        raise click.UsageError(
            "--cpus is for this machine; a cluster's nodes say how many they have. Leave it out"
            f"{unset}."
        )


def _enough(context: click.Context, option: click.Parameter, resamples: int) -> int:
    """The number of resamples; too few cannot give a 2.5% quantile."""
    if 0 < resamples < FEWEST_RESAMPLES:
        raise click.BadParameter(
            f"{resamples} resamples are too few. Use 0 for none, or at least {FEWEST_RESAMPLES}."
        )
    return resamples


def _level(context: click.Context, option: click.Parameter, percentage: float) -> float:
    """The level as a fraction."""
    if not 50 < percentage < 100:
        raise click.BadParameter(
            f"{percentage:g} is not between 50 and 100 (both excluded). Write a percentage: 90 for"
            " 90% intervals."
        )
    return percentage / 100


def interval_is_given() -> bool:
    """Whether the user wrote --interval."""
    return click.get_current_context().get_parameter_source("level") is not ParameterSource.DEFAULT


def fewest_resamples(level: float) -> int:
    """The resamples with as many beyond each end as FEWEST_RESAMPLES have beyond a 95% one's."""
    return math.ceil(round(0.05 * FEWEST_RESAMPLES / (1 - level), 6))


def check_resamples(resamples: int, level: float) -> None:
    """Raises UsageError if there are fewer than `fewest_resamples`, but not none."""
    needed = fewest_resamples(level)
    if 0 < resamples < needed:
        mend = f"Use --bootstrap {needed}" if needed <= MOST_RESAMPLES else "Use a lower --interval"
        raise click.UsageError(
            f"{resamples:,} resamples are too few for {100 * level:g}% intervals. {mend}."
        )


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


# A text: metrics of one's own are known once a study is opened.
objectives_option = click.option(
    "--objectives",
    metavar="A,B",
    help=(
        "Other objectives, given afterwards: metrics on validation, such as accuracy,nll; default:"
        " the study's own."
    ),
)
trust_option = click.option(
    "--trust",
    is_flag=True,
    help="Use the code and the servers that a folder of another user names.",
)
yes_option = click.option("--yes", is_flag=True, help="Delete without asking.")


def ask_to_delete(yes: bool) -> None:
    """Ends the command unless the user agrees. yes: --yes was given."""
    if not yes and not click.confirm("Delete?", default=False):
        console.print("nothing was deleted.")
        raise SystemExit(FAILED)


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def print_json(value: object, indent: int | None = None) -> None:
    click.echo(json.dumps(value, indent=indent))


def plain_head(study: StudyFolder) -> dict[str, object]:
    """What JSON begins with where objectives were given afterwards; else nothing."""
    return {"afterwards": study.afterwards} if study.afterwards else {}


def say_afterwards(study: StudyFolder) -> None:
    """Print what an output begins with where objectives were given afterwards."""
    if study.afterwards:
        console.say(study.afterwards)


def human_bytes(count: float) -> str:
    """`950 B`, `12.3 MB`."""
    unit = "B"
    for larger in ("kB", "MB", "GB"):
        if count < 999.5:
            break
        count /= 1000
        unit = larger
    return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
