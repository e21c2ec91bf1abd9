"""The JSON Schema of a study file, from the fields themselves: editors complete and check with it. Draft 7."""

from __future__ import annotations

from dataclasses import MISSING, Field, fields
from typing import Any

from study.schema.budget import Budget
from study.schema.early_stopping import EarlyStopping
from study.schema.objective import DIRECTIONS, Objective
from study.schema.resources import Resources
from study.schema.spec import REQUIRED, Sampler, StudySpec, key_of
from trainables import data, methods, metrics, models
from trainables.config import FOLDERS, nested_kind
from trainables.dataset import Dataset
from trainables.fields import Range, Settings, allowed_types
from trainables.method import Method
from trainables.model import Model
from trainables.optimizer import Optimizer

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
    type(None): "null",
}
PIN: Schema = {
    "type": ["number", "string", "boolean", "null"],
    "description": "a plain value is fixed, not searched",
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
            },
        },
        {
            "type": "object",
            "required": ["choices"],
            "additionalProperties": False,
            "properties": {"choices": {"type": "array", "minItems": 1}},
        },
    ],
}


def json_schema() -> Schema:
    """Of every key, with its default, range and meaning. Names of a user's extensions are accepted, not completed."""
    properties = {key_of(field): _study_key(field) for field in fields(StudySpec)}
    definitions = {word: _named(kind) for kind, (word, _) in PACKAGES.items()}
    definitions["entry"] = ENTRY
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "calstudy study",
        "type": "object",
        "required": list(REQUIRED),
        "additionalProperties": False,
        "properties": properties,
        "definitions": definitions,
    }


def _study_key(field: Field[Any]) -> Schema:
    groups: dict[str, type[Settings]] = {
        "optimizer": Optimizer,
        "sampler": Sampler,
        "resources": Resources,
    }
    doc = {"description": field.metadata["doc"]} if field.metadata.get("doc") else {}
    if field.name in groups:
        return {**_settings(groups[field.name]), **doc}
    if field.name == "early_stopping":
        return {**_settings(EarlyStopping), "type": ["object", "null"], **doc}
    if field.name == "budget":
        one_of = [{"required": [one.name]} for one in fields(Budget)]
        return {
            **_settings(Budget),
            "type": ["object", "null"],
            **doc,
            "oneOf": [{"type": "null"}, *one_of],
        }
    if field.name == "variants":
        return {"type": "array", "minItems": 1, "items": _variant(), **doc}
    if field.name == "objectives":
        objective = _settings(Objective)
        objective["properties"]["metric"]["examples"] = metrics.names()
        objective["properties"]["direction"] = {"enum": sorted(DIRECTIONS.values())}
        return {
            "type": "array",
            "minItems": 1,
            "items": {**objective, "required": ["metric", "direction"]},
            **doc,
        }
    if field.name == "constraints":
        return {"type": ["array", "null"], "items": {"type": "string"}, **doc}
    if field.name == "search_space":
        return {
            "type": ["object", "null"],
            "additionalProperties": {"$ref": "#/definitions/entry"},
            **doc,
        }
    if field.name == "shift":
        return {
            "type": ["object", "null"],
            "additionalProperties": {"type": ["object", "string"]},
            **doc,
        }
    return _field(StudySpec, field)


def _variant() -> Schema:
    """An entry of `methods`: a name, or a mapping with what a label may have of its own."""
    own = {
        "label": {
            "type": "string",
            "pattern": "^[a-z0-9_]+$",
            "description": "default: the method's name",
        },
        "resources": _settings(Resources),
        "values": {
            "type": "object",
            "additionalProperties": PIN,
            "description": "values to fix, by path",
        },
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
    needed = [
        field.name
        for field in fields(cls)
        if field.default is MISSING and field.default_factory is MISSING
    ]
    required = {"required": needed} if needed else {}
    return {"type": "object", "additionalProperties": False, "properties": found, **required}


def _field(cls: type, field: Field[Any]) -> Schema:
    schema: Schema = {"description": field.metadata["doc"]} if field.metadata.get("doc") else {}
    nested = nested_kind(cls, field.name)
    if nested in FOLDERS:
        return {**schema, "$ref": f"#/definitions/{PACKAGES[nested][0]}"}
    if "each" in field.metadata:
        return {
            **schema,
            "type": ["array", "null"] if type(None) in allowed_types(cls, field.name) else "array",
            "minItems": 1,
            "items": {"type": "number", **_bounds(field.metadata["each"])},
        }
    if "some" in field.metadata:
        words = {"type": "string", "enum": list(field.metadata["some"])}
        return {**schema, "type": "array", "minItems": 1, "uniqueItems": True, "items": words}
    kinds = [TYPES[kind] for kind in allowed_types(cls, field.name) if kind in TYPES]
    if kinds:
        schema["type"] = kinds[0] if len(kinds) == 1 else kinds
    if "range" in field.metadata:
        schema |= _bounds(field.metadata["range"])
    if "choices" in field.metadata:
        schema["enum"] = [*field.metadata["choices"], *([None] if "null" in kinds else [])]
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
