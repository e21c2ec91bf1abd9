"""The command `calstudy`, and the check that comes before all else: that Python imports our
packages, and not others of the same names."""

import importlib.util
import sys
from pathlib import Path

PACKAGES = ("study", "trainables", "search_spaces")


def foreign_package() -> str | None:
    """The problem and its fix where Python would import another package under one
    of our names, on one line."""
    home = Path(__file__).resolve().parents[1]
    for name in PACKAGES:
        where = _place(name)
        if where is None or where.parent != home:
            fix = "Rename that folder or file, or take its parent off PYTHONPATH."
            return (
                f"calstudy: '{name}' is imported from {where or 'nowhere'}, not from {home / name}."
                f" {fix}"
            )
    return None


def _place(name: str) -> Path | None:
    found = importlib.util.find_spec(name)
    places = (
        [*(found.submodule_search_locations or ()), found.origin] if found is not None else [None]
    )
    return Path(places[0]).resolve() if places[0] is not None else None


def main() -> None:
    """The command line. Exit codes: 0; 1, it failed; 2, the user's mistake, on one
    line without a traceback."""
    problem = foreign_package()
    if problem is not None:
        print(problem, file=sys.stderr)
        sys.exit(2)
    from study.machines.early_signals import handle_early_signals, leave_if_interrupted

    handle_early_signals(sys.argv[1:])
    from study.cli import main as run

    try:
        run()
    except SystemExit as ended:
        leave_if_interrupted(ended.code)
        raise
