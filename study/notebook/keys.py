"""The keys of a study that are given in Python, with data that are objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from study.notebook.places import Place
from study.schema.arguments import plain_keys
from study.schema.errors import located
from study.store import study as store
from study.store.own_data import ARRAYS, DATA
from trainables.plain import Plain

if TYPE_CHECKING:
    from study.schema.reading import ParsedSpec


def parsed_keys(keys: Mapping[str, Any], storage: str | None) -> ParsedSpec:
    """The study of these keys. Data that are objects are written into its folder first."""
    from study.notebook.objects import given_in, keep
    from study.schema.reading import parse_mapping
    from study.schema.samples import check_samples

    with located("", "data"):
        given = given_in(keys.get("data"))
    if given is None:
        return parse_mapping(_plain(keys), "")
    plain = _plain({**keys, "data": {"name": ARRAYS, "path": DATA, **given.options}})
    # Nothing is written for keys that are wrong.
    first = parse_mapping(plain, "")
    directory = store.storage_root(storage, first.storage) / first.name
    used = (first.values["model"], [first.values["data"]])
    keep(given, directory, Place(), lambda inputs: check_samples(*used, inputs, ""))
    plain = _plain({**plain, "data": {**given.options, "name": ARRAYS, "path": directory / DATA}})
    return parse_mapping(plain, "")


def _plain(keys: Mapping[str, Any]) -> dict[str, Plain]:
    with located(""):
        return plain_keys(keys)
