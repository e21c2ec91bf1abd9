"""What all commands share: the two consoles, exit codes, and options of one meaning."""

from __future__ import annotations

import click
from rich.console import Console

# Markup off: a reason, a path or a range may hold [brackets].
console = Console(highlight=False, markup=False)
errors = Console(stderr=True, highlight=False, soft_wrap=True, markup=False)

FAILED, MISTAKE = 1, 2

storage_option = click.option(
    "--storage", metavar="DIR", help="Folder of studies; default: the spec's, else $CALSTUDY_STORAGE, else ./studies."
)
tracking_option = click.option(
    "--tracking", metavar="URI", help="MLflow server; default: the study's, else the one embedded in the storage."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for a program.")
