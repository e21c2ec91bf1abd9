"""TrialConfig, one trial's whole configuration: plain values in, checked dataclasses out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any

from trainables import data, methods, models
from trainables.dataset import Dataset
from trainables.fields import Settings, allowed_types, check_value, choice, number, setting
from trainables.method import Method
from trainables.model import Model
from trainables.optimizer import Optimizer
from trainables.plain import Plain
from trainables.plugins import in_a_line, name_of, raised_in, use_extensions
from trainables.problems import FieldError, UserError, nearest

# How to find the class of each named kind.
FOLDERS: dict[type, Callable[[str], Any]] = {
    Dataset: data.find,
    Model: models.find,
    Method: methods.find,
}


@dataclass(frozen=True)
class TrialConfig(Settings):
    """One trial: data, model, method, optimizer, length and seed."""

    data: Dataset = field()
    model: Model = field()
    method: Method = field()
    optimizer: Optimizer = field(default_factory=Optimizer)
    batch_size: int = number(64, low=1, doc="samples per update")
    epochs: int = number(20, low=1, doc="passes over the training split")
    seed: int = number(
        0, low=0, doc="determines the splits and, with the trial number, every random stream"
    )
    number: int = number(0, low=0, doc="trial number; trial k of every method uses stream(seed, k)")
    precision: str = choice(
        "float32", "bfloat16", doc="of the network's passes in training; losses are float32"
    )
    deterministic: bool = setting(
        False, doc="on a GPU: a resumed trial equals one never interrupted, bit for bit; slower"
    )
    compile: bool = setting(
        False,
        doc="on a GPU: compile the network's features, for a minute, once per method and model",
    )
    capture: str = choice(
        *("on", "off"),
        doc="on a GPU: replay the training step as a CUDA graph; off: run it from Python each time",
    )
    equal_train: bool = setting(
        False, doc="train every method on the same samples: hold out the meta split for all"
    )
    diagnostics: bool = setting(
        False,
        doc=(
            "record per epoch NLL and entropy of correct and wrong predictions, and norms of head"
            " and features"
        ),
    )
    record: str | None = choice(
        None, "train_entropy", doc="what to record for each training sample and epoch"
    )
    result: str = choice(
        *("last", "best_accuracy", "best_nll", "best_ece"),
        doc=(
            "the epoch whose model is the trial's result; best_*: chosen on validation, so its"
            " values look too good"
        ),
    )
    extensions: str | None = setting(
        None, doc="folder with your own methods/, models/, data/ and metrics/"
    )

    @classmethod
    def from_mapping(
        cls, mapping: Mapping[str, Plain], values: Mapping[str, Plain] | None = None
    ) -> TrialConfig:
        """Checked config from plain values, overridden by `values` ({dotted path: value}).

        A named part is a name, or a mapping with `name` and its fields. Raises FieldError with the
        path.
        """
        plain = dict(mapping)
        folder = cls.field_named("extensions")
        use_extensions(check_value(cls, folder, plain.get("extensions")))
        for path, value in (values or {}).items():
            plain = with_value(plain, path, value)
        config: TrialConfig = build(cls, plain)
        return config

    def to_mapping(self) -> dict[str, Plain]:
        """Plain values; `from_mapping` restores an equal config."""
        return to_plain(self)


def with_value(mapping: Mapping[str, Plain], path: str, value: Plain) -> dict[str, Plain]:
    """A copy with the value at the dotted path set: `method.base.gamma`."""
    key, _, rest = path.partition(".")
    if not rest:
        return {**mapping, key: value}
    inner = mapping.get(key, {})
    if isinstance(inner, str):
        inner = {"name": inner}
    assert isinstance(inner, Mapping)
    return {**mapping, key: with_value(inner, rest, value)}


def value_in(mapping: Mapping[str, Plain], path: str) -> Plain:
    """The value of plain values at a dotted path; None: there is none."""
    found: Plain = mapping
    for key in path.split("."):
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def before_there_were(settings: Settings, prefix: str) -> dict[str, Plain]:
    """{path: value} that a record has which lacks these fields, of the settings or a base."""
    found: dict[str, Plain] = {}
    for spec in fields(settings):
        path = f"{prefix}.{spec.name}"
        if before := spec.metadata.get("before"):
            found[path] = before
        value = getattr(settings, spec.name)
        if isinstance(value, Method):
            found |= before_there_were(value, path)
    return found


def build(cls: type, plain: Any) -> Any:
    """The dataclass `cls` (for a named kind, the class given by `name`) from plain values.

    Raises FieldError: unknown key (with the nearest known one), wrong type, value out of range.
    """
    if isinstance(plain, cls):
        return plain
    if cls in FOLDERS:
        return _build_named(cls, plain)
    if not isinstance(plain, Mapping):
        is_name = isinstance(plain, str) and any(spec.name == "name" for spec in fields(cls))
        mend = f"Write {{name: {plain}}}." if is_name else ""
        raise FieldError("", f"must be a mapping of settings, got {plain!r}", mend)
    return _build_settings(cls, plain)


def _build_named(kind: type, plain: Any) -> Any:
    values = {"name": plain} if isinstance(plain, str) else plain
    if not isinstance(values, Mapping) or not isinstance(values.get("name"), str):
        raise FieldError("", f"must be a name, or a mapping with `name`, got {plain!r}")
    cls = FOLDERS[kind](values["name"])
    if not issubclass(cls, kind):
        raise FieldError("", f"'{values['name']}' must define a {kind.__name__}")
    return _build_settings(cls, {key: value for key, value in values.items() if key != "name"})


def _build_settings(cls: type[Settings], plain: Mapping[str, Plain]) -> Any:
    taken = {}
    for key, value in plain.items():
        spec = cls.field_named(key)
        if nested := nested_kind(cls, key):
            try:
                value = build(nested, value)
            except FieldError as error:
                raise error.under(key) from None
        taken[key] = check_value(cls, spec, value)
    missing = [spec.name for spec in required(cls) if spec.name not in taken]
    if missing:
        raise FieldError(missing[0], f"is missing; {cls.__name__} requires it")
    try:
        return cls(**taken)
    except (Exception, SystemExit) as error:
        if isinstance(error, UserError) or (file := raised_in(error)) is None:
            raise
        raise FieldError(
            "", f"{file}: {cls.__name__} cannot be created: {in_a_line(error)}"
        ) from error


def required(cls: type[Settings]) -> list[Field[Any]]:
    """The fields without a default."""
    return [spec for spec in fields(cls) if spec.default is spec.default_factory is MISSING]


def nested_kind(cls: type, name: str) -> type[Settings] | None:
    """The Settings class of a field (Method, Optimizer, ...); None for a plain value."""
    for kind in allowed_types(cls, name):
        if isinstance(kind, type) and issubclass(kind, Settings):
            return kind
    return None


def owner_of(config: Settings, path: str) -> tuple[Settings, Any]:
    """The settings object that holds the dotted path, and the path's field.

    Raises FieldError with the whole path and the nearest known name.
    """
    owner = config
    *groups, last = path.split(".")
    try:
        for group in groups:
            inner = getattr(owner, owner.field_named(group).name)
            if not isinstance(inner, Settings):
                raise FieldError(path, f"'{group}' is a value; it has no settings")
            owner = inner
        spec = owner.field_named(last)
    except FieldError as error:
        raise error.at(path) from None
    if nested_kind(type(owner), last):
        names = [inner.name for inner in fields(getattr(owner, last))]
        raise FieldError(path, "is a group of settings, not a value", nearest("", names))
    return owner, spec


def value_at(config: Settings, path: str) -> Any:
    """The value at a dotted path."""
    owner, spec = owner_of(config, path)
    return getattr(owner, spec.name)


def to_plain(settings: Settings) -> dict[str, Plain]:
    """{field: plain value}, nested; a named part starts with its `name`."""
    plain: dict[str, Plain] = {}
    if isinstance(settings, tuple(FOLDERS)):
        plain["name"] = name_of(type(settings))
    for spec in fields(settings):
        value = getattr(settings, spec.name)
        if value is None and not spec.metadata.get("recorded", True):
            continue
        plain[spec.name] = to_plain(value) if isinstance(value, Settings) else value
    return plain
