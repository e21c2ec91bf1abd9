"""`plan --explain`: every key of a study with its value, default and meaning, and what is searched."""

from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, fields
from typing import Any, NamedTuple

from optuna.distributions import BaseDistribution

from search_spaces import strict_yaml
from search_spaces.space import Pin, to_plain
from study.schema.condition import Condition
from study.schema.objective import Objective
from study.schema.recommended import standing_text
from study.schema.spec import StudySpec
from study.schema.uris import without_credentials
from study.schema.variant import Variant, first_standings
from trainables import data, methods, models
from trainables.config import nested_kind
from trainables.dataset import Dataset
from trainables.fields import Settings, allowed_types
from trainables.method import Method
from trainables.model import Model
from trainables.plugins import name_of

NAMES: dict[Any, Callable[[], list[str]]] = {
    Dataset: data.names,
    Model: models.names,
    Method: methods.names,
}
OBJECTIVES = "metrics of `calstudy list metrics`"


class Row(NamedTuple):
    key: str
    value: str
    default: str
    allowed: str  # its range or its choices; empty: any value of its type
    note: str  # its meaning; for a searched path, the source of its range


def explain(spec: StudySpec) -> list[Row]:
    """One row per key, in file order."""
    rows: list[Row] = []
    for field in fields(spec):
        value, note = getattr(spec, field.name), field.metadata.get("doc", "")
        if field.name == "variants":
            rows += [row for variant in value for row in _variant_rows(spec, variant)]
        elif field.name == "search_space":
            rows += [
                Row(f"search_space.{path}", _written(entry), "", "", note)
                for path, entry in value.items()
            ]
            rows += [] if value else [Row("search_space", "{}", "{}", "", note)]
        elif field.name == "shift":
            written = {name: strict_yaml.one_line(of.to_mapping()) for name, of in value.items()}
            rows += [Row(f"shift.{name}", of, "", "", note) for name, of in written.items()]
            rows += [] if value else [Row("shift", "{}", "{}", "", note)]
        elif isinstance(value, Settings):
            rows += _settings_rows(field.name, value, note)
        else:
            allowed = OBJECTIVES if field.name == "objectives" else allowed_text(StudySpec, field)
            rows.append(Row(field.name, _written(value), default_text(field), allowed, note))
    return [Row(*(without_credentials(cell) for cell in row)) for row in rows]


def _settings_rows(key: str, settings: Settings, note: str) -> Iterator[Row]:
    for kind, names in NAMES.items():
        if isinstance(settings, kind):
            yield Row(f"{key}.name", name_of(type(settings)), "required", " | ".join(names()), note)
    for field in fields(settings):
        value, allowed = (
            _written(getattr(settings, field.name)),
            allowed_text(type(settings), field),
        )
        yield Row(
            f"{key}.{field.name}",
            value,
            default_text(field),
            allowed,
            field.metadata.get("doc", ""),
        )


def _variant_rows(spec: StudySpec, variant: Variant) -> Iterator[Row]:
    """The method's settings, fixed or searched; what else is searched; and what is tried first."""
    key, space = f"methods.{variant.label}", variant.space
    meaning = (type(variant.method).__doc__ or "").partition("\n")[0]
    yield Row(key, name_of(type(variant.method)), "required", " | ".join(methods.names()), meaning)
    described = dict(_method_fields(variant.method, "method"))
    for path in dict.fromkeys([*described, *space.origins]):
        value, default, allowed, note = described.get(path, ("", "", "", ""))
        if path in space.pins:
            value = _written(space.pins[path])
        elif path in space.distributions:
            value = _written(space.distributions[path])
        yield Row(f"{key}: {path}", value, default, allowed, space.origins.get(path, note))
    for setting, found in zip(
        space.defaults, first_standings(spec.trial(variant.label), space), strict=True
    ):
        rest = found is not None and any(not path.startswith("method.") for path in setting)
        whose = standing_text(found) + ("; the rest as in the study" if rest else "")
        yield Row(f"{key}: tried first", strict_yaml.one_line(setting), "", "", whose)


def kept_line(spec: StudySpec) -> str | None:
    """What the study keeps although search_spaces/ has changed since it began; None: nothing."""
    kept = "; ".join(
        f"{variant.label}: {', '.join(variant.kept)}" for variant in spec.variants if variant.kept
    )
    if not kept:
        return None
    return f"{spec.name} keeps what it recorded when it began, where search_spaces/ has changed since ({kept})."


def _method_fields(method: Method, prefix: str) -> Iterator[tuple[str, tuple[str, str, str, str]]]:
    """(path, (value, default, allowed values, meaning)) of a method's settings, then of its base's."""
    for field in fields(method):
        path, value, note = (
            f"{prefix}.{field.name}",
            getattr(method, field.name),
            field.metadata.get("doc", ""),
        )
        yield path, (_written(value), default_text(field), allowed_text(type(method), field), note)
        if isinstance(value, Method):
            yield from _method_fields(value, path)


def allowed_text(cls: type, field: Field[Any]) -> str:
    """`> 0`, `sgd | adam | adamw`, `true | false`; empty: any value of its type."""
    kinds, found = allowed_types(cls, field.name), field.metadata
    if names := NAMES.get(nested_kind(cls, field.name)):
        words = names()
    elif bool in kinds:
        words = ["true", "false"]
    elif "each" in found:
        words = [f"a list of numbers {found['each']}".strip()]
    elif nested := nested_kind(cls, field.name):
        words = [f"{{{', '.join(spec.name for spec in fields(nested))}}}"]
    elif "some" in found:
        words = [f"a list of {', '.join(found['some'])}"]
    else:
        words = [str(found["range"])] if "range" in found else list(found.get("choices", ()))
    return " | ".join([*words, "null"] if words and type(None) in kinds else words)


def default_text(field: Field[Any]) -> str:
    if field.default is not MISSING:
        return _written(field.default)
    if field.default_factory is not MISSING:
        return _written(field.default_factory())
    return "required"


def _written(value: Any) -> str:
    """A value as written in the file."""
    if isinstance(value, Method):
        return name_of(type(value))
    if isinstance(value, tuple) and value and all(isinstance(item, Objective) for item in value):
        return ", ".join(f"{objective.direction} {objective.metric}" for objective in value)
    if isinstance(value, tuple) and all(isinstance(item, Condition) for item in value):
        value = [str(condition) for condition in value]
    return strict_yaml.one_line(
        to_plain(value) if isinstance(value, BaseDistribution | Pin) else value
    )
