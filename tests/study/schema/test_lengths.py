"""A name that no file can have is refused where it is written; one that a study has is read."""

from pathlib import Path
from typing import Any

import pytest

from study.schema.errors import SpecError
from study.schema.reading import parse_mapping
from tests.study.schema.specs import SHIFT, SMALL

LONG = "x" * 101
CASES: dict[str, dict[str, Any]] = {
    "name": {"name": LONG},
    "methods[0].label": {"methods": [{"label": LONG, "name": "focal"}]},
    f"shift.{LONG}": {"shift": {LONG: next(iter(SHIFT.values()))}},
}


@pytest.mark.parametrize("field", CASES)
def test_a_name_has_at_most_100_characters(field: str, tmp_path: Path) -> None:
    plain = {**SMALL, **CASES[field]}
    with pytest.raises(SpecError) as caught:
        parse_mapping(plain, "a.yaml", tmp_path)
    assert caught.value.path == field and "has 101 characters" in caught.value.found
    assert parse_mapping(plain, "study.yaml", tmp_path, recorded=True)


def test_100_characters_are_not_too_many(tmp_path: Path) -> None:
    label = {"label": LONG[:-1], "name": "focal"}
    assert parse_mapping({**SMALL, "name": LONG[:-1], "methods": [label]}, "a.yaml", tmp_path)
