"""The folder with a study's own methods, models, data and search spaces, checked when read."""

from __future__ import annotations

from trainables import data, methods, models
from trainables.plugins import extension_folder, stems, use_extensions
from trainables.problems import FieldError, nearest


def use_checked_extensions(directory: str | None) -> None:
    """Register the folder's names, and load each of its files to check it."""
    use_extensions(directory)
    for package in (methods, models, data):
        short = package.__name__.rpartition(".")[2]
        folder = extension_folder(short)
        if folder is not None:
            package.names()  # raises for a name that calstudy already has
            for name in stems(folder):
                package.find(name)
    spaces = extension_folder("search_spaces")
    for name in stems(spaces, ".yaml") if spaces is not None else ():
        if name not in methods.names():
            found = f"search_spaces/{name}.yaml: there is no method '{name}'"
            raise FieldError("extensions", found, nearest(name, methods.names()))
