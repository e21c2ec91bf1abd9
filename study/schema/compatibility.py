"""The meaning of a trial: the values that must not change once there are trials."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from search_spaces import strict_yaml
from study.schema.errors import SpecError
from trainables.plain import Plain, Value

A_FILE = "a file"  # in place of its path, which may change


class Meant(Protocol):
    """The part of a study used here."""

    @property
    def name(self) -> str: ...

    def meaning(self) -> dict[str, Plain]: ...


@dataclass(frozen=True)
class MethodMeaning:
    """A method's fixed values, ranges and pins; and what is tried first, which may change.

    defaults: as search_spaces/ has them. own, published: the whole settings that are tried, before
    the defaults and as those; only of a study that has its own.
    """

    fixed: dict[str, Plain]
    space: dict[str, Plain]
    defaults: list[dict[str, Value]]
    own: list[dict[str, Value]] = field(default_factory=list)
    published: list[dict[str, Value]] = field(default_factory=list)

    def to_plain(self) -> dict[str, Plain]:
        late = ("own", "published")  # an older version has none
        return {key: value for key, value in vars(self).items() if value or key not in late}


def leaves(plain: Mapping[str, Plain], prefix: str = "") -> list[tuple[str, Plain]]:
    """(dotted path, value) of every leaf of a nested mapping."""
    found: list[tuple[str, Plain]] = []
    for key, value in plain.items():
        if isinstance(value, Mapping):
            found += leaves(value, f"{prefix}{key}.")
        else:
            found.append((f"{prefix}{key}", value))
    return found


@dataclass(frozen=True)
class RecordedSpace:
    """A label's space as a study recorded it.

    fixed: the names of its method and bases and their values that are not searched, by path. space:
    its ranges and pins, in plain values. named: the paths that its file named, so that they are no
    recommendation or default. defaults: its settings to try first. own, published: as in a
    MethodMeaning.
    """

    fixed: dict[str, Plain]
    space: dict[str, Plain]
    named: frozenset[str]
    search_optimizer: bool
    defaults: list[dict[str, Value]]
    own: list[dict[str, Value]] = field(default_factory=list)
    published: list[dict[str, Value]] = field(default_factory=list)

    @property
    def parts(self) -> dict[str, Plain]:
        """The names of its method and bases, by path."""
        return {path: name for path, name in self.fixed.items() if path.endswith(".name")}


def recorded_spaces(
    plain: Mapping[str, Plain], meaning: Mapping[str, Plain]
) -> dict[str, RecordedSpace]:
    """By label, from the spec and the meaning in a STUDY/study.yaml."""
    written = _entries_in(plain)
    space = plain.get("search_space")
    ranges = space if isinstance(space, Mapping) else {}
    on = bool(plain.get("search_optimizer"))
    found = {}
    for label, parts in methods_in(meaning).items():
        entry = written.get(label, {})
        own = entry.get("values")
        values = own if isinstance(own, Mapping) else {}
        named = frozenset((*ranges, *values, *_fixed(entry, "method")))
        found[label] = RecordedSpace(
            parts.fixed, parts.space, named, on, parts.defaults, parts.own, parts.published
        )
    return found


def without_fronts(plain: dict[str, Any], meaning: Mapping[str, Plain]) -> dict[str, Any]:
    """The spec in a STUDY/study.yaml. Where it took another study's front, as an earlier version
    could, each method has the settings that the meaning says it tries."""
    if not any(_takes_front(each) for each in (plain, *plain["methods"])):
        return plain
    own = {label: parts.own for label, parts in methods_in(meaning).items()}
    methods = [{**entry, "try_first": own.get(entry["label"], [])} for entry in plain["methods"]]
    return {**plain, "try_first": [], "methods": methods}


def _takes_front(keys: Mapping[str, Plain]) -> bool:
    tries = keys.get("try_first")
    entries = tries if isinstance(tries, list) else []
    return any(isinstance(one, Mapping) and "from" in one for one in entries)


def methods_in(meaning: Any) -> dict[str, MethodMeaning]:
    """By label, from a meaning in plain values."""
    return {
        label: MethodMeaning(
            parts["fixed"],
            parts["space"],
            parts["defaults"],
            parts.get("own", []),
            parts.get("published", []),
        )
        for label, parts in meaning.get("methods", {}).items()
    }


def _entries_in(plain: Any) -> dict[str, Mapping[str, Plain]]:
    """The entries of `methods:`, by label."""
    return {entry["label"]: entry for entry in plain["methods"]}


def _fixed(entry: Mapping[str, Plain], prefix: str) -> Iterator[str]:
    """The paths of the values written with a method and its bases."""
    for key, value in entry.items():
        if isinstance(value, Mapping) and "name" in value:
            yield from _fixed(value, f"{prefix}.{key}")
        elif key not in ("label", "name", "values", "resources", "try_first"):
            yield f"{prefix}.{key}"


def completed_meaning(
    recorded: Mapping[str, Plain], today: Mapping[str, Plain]
) -> dict[str, Plain]:
    """A recorded meaning; keys that its version did not have are taken from `today`, as read now.

    Search spaces, early stopping and stacks are not completed: what is added later is a change.
    """
    whole = dict(today)
    for key, value in recorded.items():
        known = today.get(key)
        if isinstance(value, Mapping) and isinstance(known, Mapping) and key != "space":
            value = completed_meaning(value, known)
        whole[key] = value
    return {
        key: value
        for key, value in whole.items()
        if key not in ("space", "early_stopping", "stack") or key in recorded
    }


def refuse_changes(
    old_meaning: Mapping[str, Plain], new: Meant, file_name: str, done_note: str
) -> None:
    """Raise SpecError listing every line that changes what a trial means; new labels are allowed.

    done_note: what already exists, such as `has 37 trials`.
    """
    # Of a study made before, each trial trains alone; `auto` goes on with what was recorded.
    old_meaning = {"stack": "off", **old_meaning}
    meaning = {"stack": old_meaning["stack"], **new.meaning()}
    old_methods = methods_in(old_meaning)
    new_methods = methods_in(meaning)
    gone = [
        f"methods.{label}: was present, is missing"
        for label in old_methods
        if label not in new_methods
    ]
    both = [label for label in old_methods if label in new_methods]
    old_lines = _lines(old_meaning, both)
    new_lines = _lines(meaning, both)
    changed = [
        f"{key}: was {old_lines.get(key, 'absent')}, is {new_lines.get(key, 'absent')}"
        for key in dict.fromkeys([*old_lines, *new_lines])
        if old_lines.get(key) != new_lines.get(key)
    ]
    if gone or changed:
        raise SpecError(
            file_name,
            "name",
            f"'{new.name}' {done_note}, and this file changes what a trial means",
            "Restore these lines, or give the study a new name:",
            differences=(*changed, *gone),
        )


def _lines(meaning: Mapping[str, Plain], labels: Iterable[str]) -> dict[str, str]:
    """{dotted key: value as written} of these labels; ranges and lists are not split."""
    methods = methods_in(meaning)
    lines = {}
    for key, value in meaning.items():
        if key == "methods":
            for label in labels:
                for path, fixed in {**methods[label].fixed, **methods[label].space}.items():
                    lines[f"methods.{label}: {path}"] = strict_yaml.one_line(fixed)
        elif isinstance(value, Mapping):
            lines |= {path: strict_yaml.one_line(leaf) for path, leaf in leaves(value, f"{key}.")}
        else:
            lines[key] = strict_yaml.one_line(value)
    return lines
