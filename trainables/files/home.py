"""The places of our files on this machine: the user's home, or else a folder of their own.

A cluster's nodes are sent these functions as source, so they use only the standard library and each
other.
"""

import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path


def default_cache() -> Path:
    """$CALSTUDY_CACHE, else ~/.cache/calstudy; absolute."""
    named = os.environ.get("CALSTUDY_CACHE")
    if named:
        return Path(os.path.abspath(os.path.expanduser(named)))
    return own_place(".cache/calstudy")


def token_file() -> Path:
    """Ray's authentication token: $RAY_AUTH_TOKEN_PATH, else ~/.ray/auth_token."""
    named = os.environ.get("RAY_AUTH_TOKEN_PATH")
    if named:
        return Path(os.path.expanduser(named))
    at_home = os.path.expanduser("~/.ray/auth_token")
    if os.path.exists(at_home):
        return Path(at_home)
    return own_place(".ray") / "auth_token"


def ensure_home() -> None:
    """Set $HOME for a user without any home: Ray and others cannot even be imported there."""
    if not os.path.isabs(os.path.expanduser("~")):
        os.environ["HOME"] = str(_own_folder())


def own_place(below: str) -> Path:
    """~/BELOW if that can be written, else BELOW in a folder of ours among the temporary ones.

    Raises OSError if somebody else has that folder.
    """
    home = os.path.expanduser("~")  # stays "~" for a user without a home
    if os.path.isabs(home):
        place = Path(home, below)
        there = next(folder for folder in (place, *place.parents) if os.path.exists(folder))
        if os.access(there, os.W_OK | os.X_OK):
            return place
    return _own_folder() / below


def _own_folder() -> Path:
    folder = Path(tempfile.gettempdir(), f"calstudy-{os.geteuid()}")
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    problem = None
    if not stat.S_ISDIR(found.st_mode):
        problem = "is no folder, but a link or a file"
    elif found.st_uid != os.geteuid():
        problem = "belongs to another user"
    elif found.st_mode & 0o077:
        problem = "is open to other users"
    if problem is not None:
        fix = "Set HOME or TMPDIR to a folder of your own"
        raise OSError(f"{folder} {problem}, and there is no home that can be written. {fix}.")
    return folder
