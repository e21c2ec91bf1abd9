"""Dataclass fields with a valid range, and the one place where values are checked.

Every hyperparameter, optimizer setting and dataset option is such a field: the YAML reader, the
search spaces and `calstudy list` read the range from here.
"""

import functools
import math
import os
import types
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, Union, get_args, get_origin, get_type_hints

from trainables.problems import FieldError, nearest


def expanded(path: str, where: str) -> str:
    """The path with the home folder in place of `~`. where: the field.

    Raises FieldError if there is no such home: the path would be that of a folder named `~`.
    """
    found = os.path.expanduser(path)
    if found.startswith("~"):
        home = path.partition("/")[0]
        raise FieldError(
            where, f"'{path}': '{home}' is no home folder here", "Write the whole path."
        )
    return found


@dataclass(frozen=True)
class Range:
    """Numbers between two ends; `above` and `below` exclude the end itself."""

    low: float | None = None
    high: float | None = None
    above: float | None = None
    below: float | None = None

    def __contains__(self, value: float) -> bool:
        return (
            (self.low is None or value >= self.low)
            and (self.high is None or value <= self.high)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
        )

    def __str__(self) -> str:
        ends = ((">=", self.low), (">", self.above), ("<=", self.high), ("<", self.below))
        return " and ".join(f"{sign} {end:g}" for sign, end in ends if end is not None)


def number(default: Any = MISSING, *, doc: str = "", **ends: float) -> Any:
    """A float or int field (by its annotation) with a valid range, as in `Range`."""
    return field(default=default, metadata={"range": Range(**ends), "doc": doc})


def numbers(default: tuple[float, ...] | None, *, doc: str = "", **ends: float) -> Any:
    """A `tuple[float, ...]` field, never empty, written as a list; the range applies to each."""
    return field(default=default, metadata={"each": Range(**ends), "doc": doc})


def word_or_numbers(word: str, *, doc: str = "", **ends: float) -> dict[str, Any]:
    """The metadata of a `str | tuple[float, ...] | None` field: a word, or a list of numbers.

    A trial without it is recorded without it.
    """
    return {"each": Range(**ends), "word": word, "doc": doc, "recorded": False}


def choice(default: str | None, *others: str, doc: str = "", before: str | None = None) -> Any:
    """A field with one of several words, the default first (None: optional).

    before: the value that trials had which were begun before there was the field, if not the
    default.
    """
    if default is not None:
        others = (default, *others)
    return field(default=default, metadata={"choices": others, "doc": doc, "before": before})


def words_or_number(
    default: str, *others: str, doc: str = "", before: str | None = None, **ends: float
) -> Any:
    """An `int | str` field: one of several words, the default first, or a number in a range.
    before: as of `choice`."""
    found = {"choices": (default, *others), "range": Range(**ends), "doc": doc, "before": before}
    return field(default=default, metadata=found)


def choices(default: tuple[str, ...], *others: str, of: str, doc: str = "") -> Any:
    """A `tuple[str, ...]` field of several words, each once, written as a list. of: their kind."""
    return field(default=default, metadata={"some": others, "of": of, "doc": doc})


def path_text(default: Any = MISSING, *, doc: str = "") -> Any:
    """A field of a path, stored absolute: workers have another working directory."""
    return field(default=default, metadata={"is_path": True, "doc": doc})


def file_text(default: str, *words: str, doc: str = "") -> Any:
    """A field of a file, stored absolute, or one of several words."""
    return field(default=default, metadata={"is_path": True, "words": words, "doc": doc})


def is_file(spec: Field[Any], value: Any) -> bool:
    """Whether the value of a field is a file, in place of which it has words."""
    words = spec.metadata.get("words")
    return words is not None and isinstance(value, str) and value not in words


def read_by(spec: Any, **values: str) -> Any:
    """The field, without effect unless others of its settings have these values."""
    return field(default=spec.default, metadata={**spec.metadata, "read_by": values})


def setting(default: Any = MISSING, *, doc: str = "") -> Any:
    """A field of any type that `check_value` supports: text, a bool, another object."""
    return field(default=default, metadata={"doc": doc})


text = setting  # its former name


@functools.cache
def allowed_types(cls: type, name: str) -> tuple[type, ...]:
    """The plain types of a field: `float | None` gives (float, NoneType)."""
    hint = get_type_hints(cls)[name]
    if get_origin(hint) in (Union, types.UnionType):
        return tuple(get_origin(arg) or arg for arg in get_args(hint))
    return (get_origin(hint) or hint,)


def check_value(cls: type, spec: Field[Any], value: Any) -> Any:
    """The value as its field stores it (an int becomes a float for a float field).

    Tensors pass unchecked: losses accept hyperparameters as numbers or tensors. Raises FieldError
    with the field's name, what was found and what is valid.
    """
    if hasattr(value, "detach"):
        return value
    wanted = allowed_types(cls, spec.name)
    if value is None and type(None) in wanted:
        return None
    if "each" in spec.metadata:
        return _check_numbers(spec, value)
    if "some" in spec.metadata:
        return _check_words(spec, value)
    if "choices" in spec.metadata and "range" in spec.metadata:
        return _check_word_or_number(spec, value)
    if float in wanted and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if (isinstance(value, bool) and bool not in wanted) or not isinstance(value, wanted):
        raise FieldError(spec.name, f"must be {_kinds(wanted)}, got {value!r}")
    if isinstance(value, float) and not math.isfinite(value):
        raise FieldError(spec.name, f"must be a finite number, got {value}")
    bounds = spec.metadata.get("range")
    if bounds is not None and isinstance(value, int | float) and value not in bounds:
        raise FieldError(spec.name, f"must be {bounds}, got {value:g}")
    choices = spec.metadata.get("choices")
    if choices is not None and value is not None and value not in choices:
        raise FieldError(spec.name, f"there is no '{value}'", nearest(str(value), choices))
    words = spec.metadata.get("words", ())
    # In place of a path may be a list.
    if "is_path" in spec.metadata and isinstance(value, str) and value not in words:
        return os.path.abspath(expanded(value, spec.name))
    return value


def _kinds(wanted: tuple[type, ...]) -> str:
    names = {
        float: "a number",
        int: "a whole number",
        str: "text",
        bool: "true or false",
        dict: "a mapping",
        list: "a list",
    }
    return " or ".join(names.get(kind, kind.__name__) for kind in wanted if kind is not type(None))


def _check_numbers(spec: Field[Any], value: Any) -> str | tuple[float, ...]:
    word = spec.metadata.get("word")
    if isinstance(value, str) and value == word:
        return value
    if not isinstance(value, list | tuple) or not value:
        wanted = f"{f'{word} or ' if word else ''}a list of numbers such as [0.5, 0.75]"
        raise FieldError(spec.name, f"must be {wanted}, got {value!r}")
    bounds = spec.metadata["each"]
    for item in value:
        if isinstance(item, bool) or not isinstance(item, int | float) or not math.isfinite(item):
            raise FieldError(spec.name, f"must be a list of finite numbers, but contains {item!r}")
        if item not in bounds:
            raise FieldError(spec.name, f"each number must be {bounds}, got {item:g}")
    return tuple(float(item) for item in value)


def _check_word_or_number(spec: Field[Any], value: Any) -> int | str:
    words, bounds = spec.metadata["choices"], spec.metadata["range"]
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if not (value in bounds if is_number else value in words):
        valid = f"{', '.join(words)} or a whole number {bounds}"
        raise FieldError(spec.name, f"must be {valid}, got {value!r}")
    found: int | str = value
    return found


def _check_words(spec: Field[Any], value: Any) -> tuple[str, ...]:
    known = spec.metadata["some"]
    of = spec.metadata["of"]
    if not isinstance(value, list | tuple) or not value:
        usual = ", ".join(spec.default)  # type: ignore[arg-type]
        raise FieldError(spec.name, f"must be a list of {of} such as [{usual}], got {value!r}")
    for place, item in enumerate(value):
        if item not in known:
            raise FieldError(spec.name, f"'{item}' is none of the {of}: {', '.join(known)}")
        if item in value[:place]:
            raise FieldError(spec.name, f"'{item}' is listed twice", "Remove one.")
    return tuple(value)


@dataclass(frozen=True)
class Settings:
    """A frozen dataclass whose fields are checked on creation."""

    def __post_init__(self) -> None:
        for spec in fields(self):
            object.__setattr__(
                self, spec.name, check_value(type(self), spec, getattr(self, spec.name))
            )

    @property
    def inert(self) -> dict[str, str]:
        """Fields without effect, and why: {"momentum": "name: adam"}."""
        return {
            spec.name: f"{key}: {getattr(self, key)}"
            for spec in fields(self)
            for key, value in spec.metadata.get("read_by", {}).items()
            if getattr(self, key) != value
        }

    @classmethod
    def field_named(cls, name: str) -> Field[Any]:
        """The field of that name; FieldError with the nearest name if there is none."""
        known = {spec.name: spec for spec in fields(cls)}
        if name not in known:
            raise FieldError(name, f"{cls.__name__} has no '{name}'", nearest(name, known))
        return known[name]
