"""The JSON Schema (draft 7) of a study file: editors complete and check with it."""

from __future__ import annotations

from dataclasses import Field, fields
from typing import Any

from study.schema.objective import DIRECTIONS, Objective
from study.schema.resources import Resources
from study.schema.spec import LONGEST_NAME, REQUIRED, StudySpec, key_of
from trainables import data, methods, metrics, models
from trainables.config import FOLDERS, nested_kind, required
from trainables.dataset import Dataset
from trainables.fields import Range, Settings, allowed_types
from trainables.method import Method
from trainables.model import Model

Schema = dict[str, Any]
PACKAGES: dict[Any, tuple[str, Any]] = {
    Method: ("method", methods),
    Model: ("model", models),
    Dataset: ("dataset", data),
}
TYPES = {
    float: "number",
    int: "integer",
    str: "string",
    bool: "boolean",
    dict: "object",
    list: "array",
    type(None): "null",
}
PIN: Schema = {
    "type": ["number", "string", "boolean", "null"],
    "description": "a plain value is fixed, not searched",
}
WHEN: Schema = {
    "type": "object",
    "minProperties": 1,
    "description": "searched only where choices have these values, by path: one, or a list",
    "additionalProperties": {"type": [*PIN["type"], "array"]},
}
ENTRY: Schema = {
    "description": "a range, choices, or a plain value",
    "anyOf": [
        PIN,
        {
            "type": "object",
            "required": ["low", "high"],
            "additionalProperties": False,
            "properties": {
                "low": {"type": "number"},
                "high": {"type": "number"},
                "log": {"type": "boolean", "description": "search on a logarithmic scale"},
                "step": {"type": "number", "exclusiveMinimum": 0},
                "int": {"type": "boolean", "description": "whole numbers"},
                "when": WHEN,
            },
        },
        {
            "type": "object",
            "required": ["choices"],
            "additionalProperties": False,
            "properties": {"choices": {"type": "array", "minItems": 1}, "when": WHEN},
        },
    ],
}
TRY_FIRST: Schema = {
    "type": ["array", "object", "null"],
    "items": {
        "type": "object",
        "minProperties": 1,
        "description": "values by path",
        "additionalProperties": PIN,
    },
}
OPTIONAL = ["object", "null"]
VALUES: dict[str, Schema] = {  # of the keys that hold a mapping
    "matters": {"type": "number", "exclusiveMinimum": 0},
    "search_space": {"$ref": "#/definitions/entry"},
    "shift": {"type": ["object", "string"]},
}


def json_schema() -> Schema:
    """Every key, with default, range and meaning. Extensions' names are accepted, not completed."""
    properties = {key_of(field.name): _study_key(field) for field in fields(StudySpec)}
    definitions = {word: _named(kind) for kind, (word, _) in PACKAGES.items()}
    definitions["entry"] = ENTRY
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "calstudy study",
        "type": "object",
        "required": REQUIRED,
        "additionalProperties": False,
        "properties": properties,
        "definitions": definitions,
    }


def _study_key(field: Field[Any]) -> Schema:
    doc = _description(field)
    several: Schema = {"type": "array", "minItems": 1}
    if field.name == "variants":
        return {**several, "items": _variant(), **doc}
    if field.name == "objectives":
        objective = _settings(Objective)
        objective["properties"]["metric"]["examples"] = metrics.names()
        objective["properties"]["direction"] = {"enum": sorted(DIRECTIONS.values())}
        both = {**objective, "required": ["metric", "direction"]}
        name = {"type": "string", "examples": metrics.names()}
        return {**several, "items": {"anyOf": [name, both]}, **doc}
    if field.name == "constraints":
        return {"type": ["array", "null"], "items": {"type": "string"}, **doc}
    if field.name == "try_first":
        return {**TRY_FIRST, **doc}
    if field.name in VALUES:
        return {"type": OPTIONAL, "additionalProperties": VALUES[field.name], **doc}
    nested = nested_kind(StudySpec, field.name)
    if nested is None or nested in FOLDERS:
        return _field(StudySpec, field)
    schema = {**_settings(nested), **doc}
    if field.default is None:
        schema["type"] = OPTIONAL
    if field.name == "budget":
        one_of = [{"required": [one.name]} for one in fields(nested)]
        schema["oneOf"] = [{"type": "null"}, *one_of]
    return schema


def _variant() -> Schema:
    """An entry of `methods`: a name, or a mapping with what a label may have of its own."""
    own = {
        "label": {
            "type": "string",
            "pattern": "^[a-z0-9_]+$",
            "maxLength": LONGEST_NAME,
            "description": "default: the method's name",
        },
        "resources": _settings(Resources),
        "values": {
            "type": "object",
            "additionalProperties": PIN,
            "description": "values to fix, by path",
        },
        "try_first": {**TRY_FIRST, "description": "settings that this method tries first"},
    }
    names, *mappings = _named(Method)["anyOf"]
    return {
        "anyOf": [names, *({**of, "properties": {**own, **of["properties"]}} for of in mappings)]
    }


def _named(kind: type) -> Schema:
    """A name alone, or a mapping with `name` and the settings of the class of that name."""
    word, package = PACKAGES[kind]
    known: list[str] = package.names()
    mappings: list[Schema] = []
    for name in known:
        settings = _settings(package.find(name))
        required = ["name", *settings.pop("required", [])]
        properties = {"name": {"const": name}, **settings["properties"]}
        mappings.append({**settings, "properties": properties, "required": required})
    ours = {"not": {"enum": known}}
    theirs: Schema = {
        "type": "object",
        "required": ["name"],
        "properties": {"name": {"type": "string", **ours}},
    }
    return {
        "anyOf": [
            {"type": "string", "examples": known},
            *mappings,
            {**theirs, "description": f"a {word} of an extension"},
        ]
    }


def _settings(cls: type[Settings]) -> Schema:
    found = {field.name: _field(cls, field) for field in fields(cls)}
    needed = [field.name for field in required(cls)]
    schema: Schema = {"type": "object", "additionalProperties": False, "properties": found}
    return {**schema, "required": needed} if needed else schema


def _description(field: Field[Any]) -> Schema:
    meaning = field.metadata.get("doc")
    return {"description": meaning} if meaning else {}


def _field(cls: type, field: Field[Any]) -> Schema:
    schema = _description(field)
    nested = nested_kind(cls, field.name)
    if nested in FOLDERS:
        return {**schema, "$ref": f"#/definitions/{PACKAGES[nested][0]}"}
    if "each" in field.metadata:
        optional = type(None) in allowed_types(cls, field.name)
        numbers = {"type": "number", **_bounds(field.metadata["each"])}
        kind = ["array", "null"] if optional else "array"
        if word := field.metadata.get("word"):
            array = {"type": "array", "minItems": 1, "items": numbers}
            return {**schema, "anyOf": [{"enum": [word, None]}, array]}
        return {**schema, "type": kind, "minItems": 1, "items": numbers}
    if "some" in field.metadata:
        words = {"type": "string", "enum": list(field.metadata["some"])}
        return {**schema, "type": "array", "minItems": 1, "uniqueItems": True, "items": words}
    kinds = [TYPES[kind] for kind in allowed_types(cls, field.name) if kind in TYPES]
    if kinds:
        schema["type"] = kinds[0] if len(kinds) == 1 else kinds
    if "range" in field.metadata:
        schema |= _bounds(field.metadata["range"])
    if "choices" in field.metadata and "range" in field.metadata:
        schema["anyOf"] = [{"enum": [*field.metadata["choices"]]}, {"type": "integer"}]
    elif "choices" in field.metadata:
        schema["enum"] = [*field.metadata["choices"]]
        if "null" in kinds:
            schema["enum"].append(None)
    if "words" in field.metadata:
        schema["examples"] = [*field.metadata["words"]]
    if isinstance(field.default, str | int | float | bool):
        schema["default"] = field.default
    return schema


def _bounds(found: Range) -> Schema:
    words = {
        "minimum": found.low,
        "maximum": found.high,
        "exclusiveMinimum": found.above,
        "exclusiveMaximum": found.below,
    }
    return {word: end for word, end in words.items() if end is not None}
