"""Consoles, exit codes and options shared by all commands."""

from __future__ import annotations

import click
from rich.console import Console

# Markup off: a reason, a path or a range may hold [brackets].
console = Console(highlight=False, markup=False)
errors = Console(stderr=True, highlight=False, soft_wrap=True, markup=False)

FAILED, MISTAKE = 1, 2
FEWEST_RESAMPLES = 100

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


bootstrap_option = click.option(
    "--bootstrap",
    type=click.IntRange(0, 10_000),
    default=1000,
    show_default=True,
    metavar="N",
    callback=_enough,
    help="Bootstrap resamples for the 95% intervals; 0: no intervals.",
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
