"""`plan --explain`: each key with its value, default and meaning, and what is searched."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import MISSING, Field, fields
from typing import Any, NamedTuple

from optuna.distributions import BaseDistribution

from search_spaces import strict_yaml
from search_spaces.conditions import in_words
from search_spaces.space import Conditional, Pin, to_plain
from study.schema.condition import Condition
from study.schema.json_schema import PACKAGES
from study.schema.matters import family
from study.schema.objective import Objective, plain_name
from study.schema.recommendations import standing_text
from study.schema.spec import StudySpec
from study.schema.try_first import EXAMPLE
from study.schema.uris import without_credentials
from study.schema.variant import Space, Variant, first_standings
from trainables import methods
from trainables.config import nested_kind
from trainables.fields import Settings, allowed_types
from trainables.method import Method
from trainables.metrics import described
from trainables.plugins import name_of

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
        value = getattr(spec, field.name)
        note = field.metadata.get("doc", "")
        if field.name == "variants":
            for variant in value:
                rows += _variant_rows(spec, variant)
        elif field.name == "search_space":
            written = {path: _written(entry) for path, entry in value.items()}
            rows += _mapping_rows(field.name, written, note)
        elif field.name == "matters":
            rows += _matters_rows(spec, note)
        elif field.name == "shift":
            written = {name: strict_yaml.one_line(of.to_mapping()) for name, of in value.items()}
            rows += _mapping_rows(field.name, written, note)
        elif field.name == "try_first":
            rows.append(Row(field.name, strict_yaml.one_line([*value]), "[]", EXAMPLE, note))
        elif isinstance(value, Settings):
            rows += _settings_rows(field.name, value, note)
        else:
            row = Row(field.name, *_row_of(spec, field))
            rows.append(row._replace(allowed=OBJECTIVES) if field.name == "objectives" else row)
    return [Row(*(without_credentials(cell) for cell in row)) for row in rows]


def _mapping_rows(key: str, written: dict[str, str], note: str) -> Iterator[Row]:
    if not written:
        yield Row(key, "{}", "{}", "", note)
    for name, value in written.items():
        yield Row(f"{key}.{name}", value, "", "", note)


def _matters_rows(spec: StudySpec, note: str) -> Iterator[Row]:
    """One row for each objective; its note says if objectives of one family share a unit."""
    alike = Counter(family(one.metric) for one in spec.objectives)
    for objective in spec.objectives:
        name = plain_name(objective.metric)
        default = described()[name].matters
        value = spec.matters.get(name, default)
        shared = alike[family(name)]
        said = f"{note}; {shared} calibration errors together count as one" if shared > 1 else note
        yield Row(f"matters.{name}", _written(value), _written(default), "> 0", said)
    if "nll" not in alike:
        default = described()["nll"].matters
        value = spec.matters.get("nll", default)
        said = "smallest difference that matters in NLL, of which the answer counts half"
        yield Row("matters.nll", _written(value), _written(default), "> 0", said)


def _settings_rows(key: str, settings: Settings, note: str) -> Iterator[Row]:
    for kind, (_, package) in PACKAGES.items():
        if isinstance(settings, kind):
            known = " | ".join(package.names())
            yield Row(f"{key}.name", name_of(type(settings)), "required", known, note)
    for field in fields(settings):
        yield Row(f"{key}.{field.name}", *_row_of(settings, field))


def _row_of(settings: Settings, field: Field[Any]) -> tuple[str, str, str, str]:
    """A setting's row after its key: value, default, allowed values, meaning."""
    value = _written(getattr(settings, field.name))
    allowed = allowed_text(type(settings), field)
    return value, default_text(field), allowed, field.metadata.get("doc", "")


def _variant_rows(spec: StudySpec, variant: Variant) -> Iterator[Row]:
    """The method's settings, fixed or searched; what else is searched; and what is tried first."""
    key = f"methods.{variant.label}"
    space = variant.space
    meaning = (type(variant.method).__doc__ or "").partition("\n")[0]
    yield Row(key, name_of(type(variant.method)), "required", " | ".join(methods.names()), meaning)
    described = dict(_method_fields(variant.method, "method"))
    for path in dict.fromkeys([*described, *space.origins]):
        value, default, allowed, note = described.get(path, ("", "", "", ""))
        if path in space.pins:
            value = _written(space.pins[path])
        elif path in space.distributions:
            value = _written(space.ranges[path])
        yield Row(f"{key}: {path}", value, default, allowed, space.origins.get(path, note))
    standings = first_standings(spec.trial(variant.label), space)
    for setting, found in zip(space.first, standings, strict=True):
        whose = standing_text(found)
        if found is not None and any(not path.startswith("method.") for path in setting):
            whose += "; the rest as in the study"
        yield Row(f"{key}: tried first", strict_yaml.one_line(setting), "", "", whose)


def searched_text(space: Space) -> str:
    """`optimizer.momentum (where optimizer.name is sgd), optimizer.name`, sorted."""
    words = {path: f" (where {in_words(when)})" for path, when in space.whens.items()}
    return ", ".join(f"{path}{words.get(path, '')}" for path in sorted(space.distributions))


def kept_line(spec: StudySpec) -> str | None:
    """The sentence of what a study keeps although calstudy has changed; None: nothing."""
    kept = [f"{one.label}: {', '.join(one.kept)}" for one in spec.variants if one.kept]
    if not kept:
        return None
    since = f"where calstudy has changed since ({'; '.join(kept)})"
    return f"{spec.name} keeps what it recorded when it began, {since}."


def _method_fields(method: Method, prefix: str) -> Iterator[tuple[str, tuple[str, str, str, str]]]:
    """(path, `_row_of` it) of a method's settings, then of its base's."""
    for field in fields(method):
        path = f"{prefix}.{field.name}"
        yield path, _row_of(method, field)
        base = getattr(method, field.name)
        if isinstance(base, Method):
            yield from _method_fields(base, path)


def allowed_text(cls: type, field: Field[Any]) -> str:
    """`> 0`, `sgd | adam | adamw`, `true | false`; empty: any value of its type."""
    kinds = allowed_types(cls, field.name)
    found = field.metadata
    nested = nested_kind(cls, field.name)
    if nested in PACKAGES:
        words = PACKAGES[nested][1].names()
    elif bool in kinds:
        words = ["true", "false"]
    elif "each" in found:
        words = [f"a list of numbers {found['each']}".strip()]
        words = [*([found["word"]] if "word" in found else []), *words]
    elif nested:
        words = [f"{{{', '.join(spec.name for spec in fields(nested))}}}"]
    elif "some" in found:
        words = [f"a list of {', '.join(found['some'])}"]
    else:
        words = list(found.get("choices", ()))
        if "range" in found:
            words.append(str(found["range"]))
    if words and type(None) in kinds:
        words = [*words, "null"]
    return " | ".join(words)


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
        value = [str(one) for one in value]
    if isinstance(value, BaseDistribution | Conditional | Pin):
        value = to_plain(value)
    return strict_yaml.one_line(value)
