"""The keys of a study that are given in Python, with data that are objects."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from study.notebook.places import Place
from study.schema.arguments import plain_keys
from study.schema.errors import located
from study.store import study as store
from study.store.own_data import ARRAYS, DATA
from study.store.study import EXTENSIONS
from trainables.plain import Plain
from trainables.problems import FieldError

if TYPE_CHECKING:
    from study.notebook.cells import Cells
    from study.schema.reading import ParsedSpec


def parsed_keys(keys: Mapping[str, Any], storage: str | None) -> ParsedSpec:
    """The study of these keys. Data that are objects are written into its folder first, and the
    source of what is defined in a cell."""
    from study.notebook.cells import cells_of
    from study.notebook.objects import given_in, keep
    from study.schema.reading import parse_mapping
    from study.schema.samples import check_samples

    with located("", "data"):
        given = given_in(keys.get("data"))
    if given is not None:
        keys = {**keys, "data": {"name": ARRAYS, "path": DATA, **given.options}}
    with located(""):
        cells = cells_of(keys)
    plain = _plain(_with_source(cells, storage))
    if given is None:
        return parse_mapping(plain, "")
    # Nothing is written for keys that are wrong.
    first = parse_mapping(plain, "")
    directory = store.storage_root(storage, first.storage) / first.name
    used = (first.values["model"], [first.values["data"]])
    keep(given, directory, Place(), lambda inputs: check_samples(*used, inputs, ""))
    plain = _plain({**plain, "data": {**given.options, "name": ARRAYS, "path": directory / DATA}})
    return parse_mapping(plain, "")


def _with_source(cells: Cells, storage: str | None) -> dict[str, Any]:
    """The keys, with the study's own folder as its extensions where cells define some of them."""
    if not cells.files:
        return cells.keys
    from study.notebook.cells import keep, write
    from study.schema.reading import parse_mapping

    if cells.keys.get("extensions") is not None:
        what = f"there is a folder, and {next(iter(cells.files))} is of a cell"
        mend = "Write the definition into a file of that folder, or leave the folder out."
        with located(""):
            raise FieldError("extensions", what, mend)
    # Nothing is written for keys that are wrong.
    with tempfile.TemporaryDirectory(prefix="calstudy-") as folder:
        write(cells.files, Path(folder))
        parsed = parse_mapping(_plain({**cells.keys, "extensions": folder}), "")
    directory = (store.storage_root(storage, parsed.storage) / parsed.name).absolute()
    for line in keep(cells.files, directory):
        Place().stays(line)
    return {**cells.keys, "extensions": str(directory / EXTENSIONS)}


def _plain(keys: Mapping[str, Any]) -> dict[str, Plain]:
    with located(""):
        return plain_keys(keys)
