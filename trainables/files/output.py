"""A file that a user names to write to, which may be a pipe or a device."""

import os
from pathlib import Path

from trainables.files.atomic import write_whole
from trainables.problems import FieldError


def write_output(path: Path, data: bytes | memoryview) -> None:
    """Write what a user asked for, with its folders. Raises FieldError for a folder there.

    A file, there or not yet, is written atomically, through a link too. What else is there, such as
    a pipe or /dev/stdout, is opened and written into: to replace it would break it for all.
    """
    target = Path(os.path.realpath(path))
    if path.is_dir():
        raise FieldError(str(path), "is a folder", "Give a file.")
    if target.is_file() or not path.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        write_whole(target, data)
        return
    with path.open("wb") as file:
        file.write(data)
