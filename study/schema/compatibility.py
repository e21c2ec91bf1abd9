"""What a trial of a study means: the values that must not change once there are trials."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from search_spaces import strict_yaml
from study.schema.errors import SpecError


class Meant(Protocol):
    """The part of a study used here."""

    @property
    def name(self) -> str: ...

    def meaning(self) -> dict[str, Any]: ...


def leaves(plain: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """(dotted path, value) of every leaf of a nested mapping."""
    found: list[tuple[str, Any]] = []
    for key, value in plain.items():
        found += (
            leaves(value, f"{prefix}{key}.")
            if isinstance(value, Mapping)
            else [(f"{prefix}{key}", value)]
        )
    return found


@dataclass(frozen=True)
class RecordedSpace:
    """What a study recorded of a label's space.

    parts: the names of its method and bases, by path. space: its ranges and pins, in plain values. named: which of
    these its file named, so that they are not from search_spaces/. defaults: its settings to try first; None: not
    recorded. enqueued: those were not recorded either, but are in its ledger.
    """

    parts: dict[str, str]
    space: dict[str, Any]
    named: frozenset[str]
    search_optimizer: bool
    defaults: list[dict[str, Any]] | None = None
    enqueued: bool = False


def recorded_spaces(
    plain: Mapping[str, Any], meaning: Mapping[str, Any]
) -> dict[str, RecordedSpace]:
    """By label, from the spec and the meaning in a STUDY/study.yaml."""
    written = {entry["label"]: entry for entry in plain["methods"]}
    found = {}
    for label, parts in meaning.get("methods", {}).items():
        entry = written.get(label, {})
        named = {
            *(plain.get("search_space") or {}),
            *entry.get("values", {}),
            *_fixed(entry, "method"),
        }
        names = {
            path: name for path, name in parts.get("fixed", {}).items() if path.endswith(".name")
        }
        on = plain.get("search_optimizer", False)
        found[label] = RecordedSpace(
            names, parts["space"], frozenset(named), on, parts.get("defaults")
        )
    return found


def _fixed(entry: Mapping[str, Any], prefix: str) -> Iterator[str]:
    """The paths of the values written with a method and its bases."""
    for key, value in entry.items():
        if isinstance(value, Mapping) and "name" in value:
            yield from _fixed(value, f"{prefix}.{key}")
        elif key not in ("label", "name", "values", "resources"):
            yield f"{prefix}.{key}"


def completed_meaning(recorded: Mapping[str, Any], today: Mapping[str, Any]) -> dict[str, Any]:
    """A meaning recorded by an older version, with missing keys taken from `today`, its spec as read now.

    Search spaces and early stopping are not completed: what is added later is a change.
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
        if key not in ("space", "early_stopping") or key in recorded
    }


def refuse_changes(
    old_meaning: Mapping[str, Any], new: Meant, file_name: str, done_note: str
) -> None:
    """Raise SpecError listing every line that changes what a trial means; new labels are allowed.

    done_note: what already exists, such as `has 37 trials`.
    """
    meaning = new.meaning()
    old_methods, new_methods = dict(old_meaning["methods"]), dict(meaning["methods"])
    gone = [
        f"methods.{label}: was present, is missing"
        for label in old_methods
        if label not in new_methods
    ]
    both = [label for label in old_methods if label in new_methods]
    old_lines = _lines({**old_meaning, "methods": {label: old_methods[label] for label in both}})
    new_lines = _lines({**meaning, "methods": {label: new_methods[label] for label in both}})
    changed = [
        f"{key}: was {old_lines.get(key, 'absent')}, is {new_lines.get(key, 'absent')}"
        for key in dict.fromkeys([*old_lines, *new_lines])
        if old_lines.get(key) != new_lines.get(key)
    ]
    if gone or changed:
        problem = (
            f"'{new.name}' {done_note}, and this file changes what a trial means."
            " Restore these lines, or give the study a new name:"
        )
        raise SpecError(file_name, "name", problem, (*changed, *gone))


def _lines(meaning: Mapping[str, Any]) -> dict[str, str]:
    """{dotted key: value as written}; ranges and lists are not split."""
    lines = {}
    for key, value in meaning.items():
        if key == "methods":
            for label, parts in value.items():
                for path, fixed in {**parts["fixed"], **parts["space"]}.items():
                    lines[f"methods.{label}: {path}"] = strict_yaml.one_line(fixed)
        elif isinstance(value, Mapping):
            lines |= {path: strict_yaml.one_line(leaf) for path, leaf in leaves(value, f"{key}.")}
        else:
            lines[key] = strict_yaml.one_line(value)
    return lines
