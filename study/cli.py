"""The command line."""

from __future__ import annotations

import sys

if __name__ == "__main__":  # before what takes a moment to import
    from study.machines.early_signals import handle_early_signals

    handle_early_signals(sys.argv[1:])

import errno
import importlib
import os
import re
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import click

from study import commands
from study.schema.errors import TryAgain
from study.terminal.console import FAILED, INTERRUPTED, MISTAKE, errors
from trainables.files.home import ensure_home
from trainables.plugins import in_a_line, raised_at, stems
from trainables.problems import UserError, nearest

# Space is often freed; a name that is too long stays so.
OS_ERRORS = {
    errno.ENOSPC: INTERRUPTED,
    errno.EDQUOT: INTERRUPTED,
    errno.ENAMETOOLONG: MISTAKE,
    errno.ENOTDIR: MISTAKE,
    errno.EISDIR: MISTAKE,
    errno.EEXIST: MISTAKE,
}
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")  # C0, DEL and C1
OS_MENDS = {
    errno.ENOTDIR: " A part of this path is a file. Give another path.",
    errno.EEXIST: " A folder is needed there. Give another path, or move the file away.",
}
GROUPS = {
    "Run a study": ("init", "plan", "run", "status", "doctor"),
    "Read results": (
        "answer",
        "pareto",
        "trials",
        "report",
        "figures",
        "compare",
        "evaluate",
        "list",
    ),
    "Confirm and ship": ("confirm", "export", "verify", "reproduce"),
    "Check, repair, free disk": ("audit", "sync", "slim", "delete"),
}
# What to do instead of a command that there was.
REMOVED = {
    "adopt": "Go on in a copy: calstudy run STUDY --moved.",
    "submit": "Run: ray job submit --address http://HOST:8265 --working-dir . -- exec calstudy run"
    " ... --address auto; docs/how-to/use-a-ray-cluster.md has it whole.",
    "jobs": "Run: ray job list --address http://HOST:8265",
    "logs": "Run: ray job logs --follow --address http://HOST:8265 JOB",
    "stop": "Run: ray job stop --address http://HOST:8265 JOB",
}


class _Commands(click.Group):
    """study/commands/NAME.py holds the command NAME; one in no group is listed under Other."""

    def list_commands(self, context: click.Context) -> list[str]:
        return stems(Path(commands.__path__[0]))

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in self.list_commands(context):
            return None
        command: click.Command = getattr(importlib.import_module(f"study.commands.{name}"), name)
        return command

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = self.list_commands(context)
        if instead := REMOVED.get(args[0]):
            raise click.UsageError(f"`calstudy {args[0]}` was removed. {instead}")
        if args[0] not in known and not args[0].startswith("-"):
            raise click.UsageError(
                f"there is no command '{args[0]}'. {nearest(args[0], known)}", context
            )
        return super().resolve_command(context, args)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        found = {name: self.get_command(context, name) for name in self.list_commands(context)}
        grouped = set(chain(*GROUPS.values()))
        other = tuple(name for name in found if name not in grouped)
        for title, names in {**GROUPS, "Other": other}.items():
            shown = {
                name: command.get_short_help_str(1000)
                for name in names
                if (command := found.get(name))
            }
            if shown:
                with formatter.section(title):
                    formatter.write_dl([(f"{name:9}", summary) for name, summary in shown.items()])


@click.command(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="calstudy")
def calstudy() -> None:
    """Run hyperparameter studies of training-time calibration.

    Begin with `calstudy init study`. Only confirm and reproduce open the sealed test split;
    everything else is measured on validation.
    """
    ensure_home()


def main(arguments: list[str] | None = None) -> None:
    """Run a command. Exit codes: 0, 1 (failed), 2 (user error: one line, no traceback), 3 (a
    condition of --fail-if holds), 75 (interrupted; run again)."""
    _open_standard_files()
    sys.exit(_exit_code(lambda: _run(arguments)))


def _run(arguments: list[str] | None) -> Any:
    for argument in sys.argv[1:] if arguments is None else arguments:
        if CONTROL.search(argument):
            found = f"{argument!a}: a path or a name has no control character"
            raise UserError(found, "Remove it, or rename the file.")
    return calstudy.main(arguments, prog_name="calstudy", standalone_mode=False)


def _open_standard_files() -> None:
    """Open what was closed before the start (`>&-`), else the next file, the ledger even, is it."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))


def _exit_code(command: Callable[[], Any]) -> int:
    try:
        return _exit_code_but_for_own_code(command)
    except (Exception, SystemExit) as error:  # commands give their exit code by SystemExit
        if (place := raised_at(error)) is None:
            raise
        said = f"{place}: {in_a_line(error)}."
        if isinstance(error, SystemExit):
            said = f"{place}: it ends the process ({in_a_line(error)}). Raise an error instead."
        errors.print(f"extensions: {said}")
        return MISTAKE


def _exit_code_but_for_own_code(command: Callable[[], Any]) -> int:
    try:
        result = command()
        return result if isinstance(result, int) else 0
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return MISTAKE
    except click.ClickException as error:
        usage = ""
        if isinstance(error, click.UsageError) and error.ctx:
            usage = f" Try: {error.ctx.command_path} --help"
        errors.print(f"calstudy: {error.format_message()}{usage}")
        return MISTAKE
    except (click.Abort, KeyboardInterrupt):
        errors.print("calstudy: stopped.")
        return FAILED
    except TryAgain as error:
        errors.print(str(error))
        return INTERRUPTED
    except UserError as error:
        errors.print(str(error))
        return MISTAKE
    except PermissionError as error:
        errors.print(
            f"calstudy: no permission for {error.filename}. Give another path (--storage), or"
            " change its mode."
        )
        return MISTAKE
    except OSError as error:  # no space, a file where a folder should be
        where = f"{error.filename}: " if error.filename else ""
        errors.print(
            f"calstudy: {where}{error.strerror or error}.{OS_MENDS.get(error.errno or 0, '')}"
        )
        return OS_ERRORS.get(error.errno or 0, FAILED)


if __name__ == "__main__":
    main()
