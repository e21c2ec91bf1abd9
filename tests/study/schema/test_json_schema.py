"""The JSON Schema against the checker of study files: what one takes, the other takes."""

import json
from pathlib import Path

import jsonschema
import pytest
import yaml

import study
from study.schema.json_schema import json_schema
from tests.study.schema.specs import RATE, SHIFT, SMALL

SPECS = Path(study.__file__).parent / "specs"
FILES = sorted({*SPECS.rglob("*.yaml")} - {*SPECS.rglob("*.table.yaml")})
SCHEMA = json_schema()
VALIDATOR = jsonschema.Draft7Validator(SCHEMA)


def test_it_is_a_schema_and_the_one_that_is_shipped() -> None:
    """`calstudy plan --schema > study/specs/study.schema.json` writes it anew."""
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    assert json.loads((SPECS / "study.schema.json").read_text()) == SCHEMA


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_ready_study_is_valid_and_names_the_schema(file: Path) -> None:
    text = file.read_text()
    VALIDATOR.validate(yaml.load(text, yaml.CSafeLoader))
    named = text.splitlines()[0].removeprefix("# yaml-language-server: $schema=")
    assert (file.parent / named).resolve() == SPECS / "study.schema.json"


@pytest.mark.parametrize(
    "keys",
    [
        {"search_space": RATE},
        {"shift": SHIFT},
        {"methods": ["mine", {"name": "mine", "power": 2}]},
        {"record": None},
        *({"stack": value} for value in ("auto", "off", 2, 300)),
    ],
)
def test_it_takes_what_is_right(keys: dict[str, object]) -> None:
    VALIDATOR.validate({**SMALL, **keys})


@pytest.mark.parametrize(
    "keys",
    [
        {"epoch": 3},
        {"epochs": 0},
        {"optimizer": {"name": "sdg"}},
        {"batch_size": "many"},
        {"methods": []},
        {"methods": [{"name": "focal", "gama": 2}]},
        {"methods": [{"name": "focal", "gamma": -1}]},
        {"objectives": [{"metric": "ece"}]},
        {"search_space": {"optimizer.lr": {"low": 1}}},
        {"model": {"name": "mlp", "widht": 3}},
        *({"stack": value} for value in (0, 1, 2.5, True, "many", None)),
    ],
    ids=json.dumps,
)
def test_it_refuses_what_the_reader_refuses(keys: dict[str, object]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        VALIDATOR.validate({**SMALL, **keys})
