"""Figures, page and tables of a study."""

import importlib.util
import os
from pathlib import Path

from trainables.files.home import own_place


def _import_matplotlib() -> None:
    """Import it where the first `matplotlibrc` found is its own: no settings, and surely a file."""
    cache = own_place(".cache/matplotlib")
    if cache != Path(os.path.expanduser("~/.cache/matplotlib")):
        os.environ.setdefault("MPLCONFIGDIR", str(cache))
    found = importlib.util.find_spec("matplotlib")
    assert found is not None and found.origin is not None
    here = os.open(".", os.O_PATH)
    try:
        os.chdir(Path(found.origin).parent / "mpl-data")
        import matplotlib  # noqa: F401
    finally:
        os.fchdir(here)
        os.close(here)


_import_matplotlib()
