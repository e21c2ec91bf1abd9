"""The command line: finds the command, and tells a user's mistake in one line."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from study import commands
from study.terminal.console import FAILED, MISTAKE, errors
from trainables.fields import UserError
from trainables.plugins import stems


class _Commands(click.Group):
    """study/commands/NAME.py holds the command NAME."""

    def list_commands(self, context: click.Context) -> list[str]:
        return stems(Path(commands.__path__[0]))

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in self.list_commands(context):
            return None
        command: click.Command = getattr(importlib.import_module(f"study.commands.{name}"), name)
        return command


@click.command(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="calstudy")
def calstudy() -> None:
    """Hyperparameter studies of training-time calibration.

    \b
    calstudy plan   study.yaml     check a study, see what it will try
    calstudy run    study.yaml     train it; run again after any interruption, it goes on
    calstudy status digits         how far it is
    calstudy pareto digits         accuracy against calibration error: the trials nothing beats
    calstudy confirm digits --pareto     retrain those from fresh seeds, and open the sealed test split
    calstudy report digits         one page that tells all of it; --format latex: the papers' table
    calstudy figures digits        reliability, hypervolume, searched values, learning curves
    calstudy export digits --pick knee --name digits      one model into the MLflow registry
    calstudy verify models:/digits/1                      prove that it is the one measured
    calstudy audit  digits         prove that every trial is counted once

    \b
    on a cluster
    calstudy doctor study.yaml --address A     ask every node whether all is well
    calstudy submit study.yaml --address A     run it there; this machine may go

    Only confirm opens the test split: all other figures are of the validation split.
    """


def main(arguments: list[str] | None = None) -> None:
    """The command line. Exit codes: 0, 1 (it failed), 2 (the user's mistake: one line, no traceback)."""
    sys.exit(_exit_code(lambda: calstudy.main(arguments, prog_name="calstudy", standalone_mode=False)))


def _exit_code(command: Callable[[], Any]) -> int:
    try:
        result = command()
        return result if isinstance(result, int) else 0
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return MISTAKE
    except click.ClickException as error:
        usage = f" Try: {error.ctx.command_path} --help" if isinstance(error, click.UsageError) and error.ctx else ""
        errors.print(f"calstudy: {error.format_message()}{usage}")
        return MISTAKE
    except (click.Abort, KeyboardInterrupt):
        errors.print("calstudy: stopped.")
        return FAILED
    except UserError as error:
        errors.print(str(error))
        return MISTAKE
    except OSError as error:  # no permission, no space, a file where a folder should be
        errors.print(f"calstudy: {error}")
        return FAILED


if __name__ == "__main__":
    main()
