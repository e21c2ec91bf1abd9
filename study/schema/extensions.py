"""The folder with a study's own methods, models, data sets and search spaces: checked when the study is read."""

from __future__ import annotations

from trainables import data, methods, models
from trainables.fields import FieldError, nearest
from trainables.plugins import extension_folder, stems, use_extensions


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
            problem = f"search_spaces/{name}.yaml: there is no method '{name}'.{nearest(name, methods.names())}"
            raise FieldError("extensions", problem)
