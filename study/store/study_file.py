"""STUDY/study.yaml as it is read: what a study is opened by must have the type calstudy writes.
People edit the file.

The rest of the spec is checked where it is used, in full.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from search_spaces import strict_yaml
from study.schema.errors import SpecError
from study.schema.objective import RAW, TEMPERATURE
from study.schema.temperature import TEMPERATURE_FIT, WITH_PRIOR

Predicate = Callable[[Any], bool]
# Seconds since 1970: the year 3000, before which every library can show a time.
LATEST = 32_503_680_000
MOST_SHOWN = 40  # characters of a value in a message


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_mapping(value: Any) -> bool:
    return isinstance(value, dict)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_time(value: Any) -> bool:
    try:
        return 0 < datetime.fromisoformat(value).timestamp() < LATEST
    except (TypeError, ValueError, OverflowError):
        return False


def _is_method(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(label := value.get("label"), str)
        and re.fullmatch(r"[a-z0-9_]+", label) is not None
        and _is_text(value.get("name"))
        and isinstance(value.get("values", {}), dict)
    )


def _is_meaning(value: Any) -> bool:
    methods = value.get("methods") if isinstance(value, dict) else None
    return isinstance(methods, dict) and all(
        isinstance(parts, dict)
        and isinstance(parts.get("fixed"), dict)
        and isinstance(parts.get("space"), dict)
        and isinstance(parts.get("defaults"), list)
        and all(map(_is_mapping, parts["defaults"]))
        for parts in methods.values()
    )


def _is_confirmation(value: Any) -> bool:
    return (
        isinstance(value, dict) and _is_text(value.get("name")) and _is_count(value.get("openings"))
    )


def _list_of(check: Predicate) -> Predicate:
    return lambda value: isinstance(value, list) and value != [] and all(map(check, value))


def _of_text(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_text, value.values()))


def _of_numbers(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(one, int | float) for one in value.values())


def _or_none(check: Predicate) -> Predicate:
    return lambda value: value is None or check(value)


SPEC: dict[str, tuple[Predicate, str]] = {
    "name": (_is_text, "text"),
    "methods": (_list_of(_is_method), "a list of methods"),
    "objectives": (
        lambda value: isinstance(value, list) and all(map(_is_mapping, value)),
        "a list of objectives",
    ),
    "trials": (_is_count, "a number of trials"),
    "ledger": (_or_none(_is_text), "a path, a URL or null"),
    "tracking": (_or_none(_is_text), "a URL or null"),
}
SPEC_OR_NOT: dict[str, tuple[Predicate, str]] = {
    "search_space": (_or_none(_is_mapping), "a mapping or null"),
    "matters": (_or_none(_of_numbers), "a mapping of objectives to numbers"),
    "confirms": (_or_none(_is_text), "the name of a study or null"),
    "serve": (lambda value: value in (None, RAW, TEMPERATURE), "temperature, raw or null"),
}
RECORDED: dict[str, tuple[Predicate, str]] = {
    "id": (_is_text, "text"),
    "created": (_is_time, "a date and time"),
    "data_digest": (_is_text, "text"),
    "classes": (
        lambda value: isinstance(value, list) and len(value) > 1 and all(map(_is_text, value)),
        "a list of names",
    ),
    "sizes": (
        lambda value: (
            isinstance(value, dict)
            and {"train", "validation", "test"} <= set(value)
            and all(map(_is_count, value.values()))
        ),
        "the number of samples of train, validation and test",
    ),
    "versions": (_of_text, "a mapping of names to versions"),
    "meaning": (_is_meaning, "what a trial means, with `methods`"),
    "serves": (lambda value: value in (RAW, TEMPERATURE), "temperature or raw"),
    TEMPERATURE_FIT: (lambda value: value == WITH_PRIOR, WITH_PRIOR),
    "majority": (lambda value: isinstance(value, int | float) and 0 <= value <= 1, "a fraction"),
}
RECORDED_OR_NOT: dict[str, tuple[Predicate, str]] = {
    "home": (
        lambda value: (
            isinstance(value, dict)
            and _is_text(value.get("path"))
            and _is_count(value.get("inode"))
        ),
        "a path and an inode",
    ),
    "tracking": (_or_none(_is_text), "a URL or null"),
    "pruned": (_is_flag, "true or false"),
    "kept_by_other_rules": (_is_flag, "true or false"),
    "ledger_made": (_is_flag, "true or false"),
    "matters_at_opening": (_of_numbers, "a mapping of objectives to numbers"),
    "confirmation": (_is_confirmation, "a name and a number of openings"),
}


def check_study_file(file: Path, plain: Mapping[str, Any], recorded: Any) -> None:
    """Raise SpecError naming the field of STUDY/study.yaml that is not as calstudy writes it."""
    _check(file, "recorded", recorded, _is_mapping, "a mapping")
    _refuse_older(file, recorded)
    for prefix, mapping, needed, optional in (
        ("", plain, SPEC, SPEC_OR_NOT),
        ("recorded.", recorded, RECORDED, RECORDED_OR_NOT),
    ):
        for key in needed:
            if key not in mapping:
                raise SpecError(
                    str(file), f"{prefix}{key}", "is missing", "Restore it from a backup."
                )
        for key, (check, wanted) in {**needed, **optional}.items():
            if key in mapping:
                _check(file, f"{prefix}{key}", mapping[key], check, wanted)


def _refuse_older(file: Path, recorded: Mapping[str, Any]) -> None:
    """Raise SpecError naming the version of a study that was begun before its fit was recorded."""
    fit = recorded.get(TEMPERATURE_FIT)
    if fit not in (None, "temperature_by_nll"):
        return
    known = recorded.get("versions")
    versions = known if isinstance(known, Mapping) else {}
    found = "is missing" if fit is None else f"is {fit}"
    raise SpecError(
        str(file),
        f"recorded.{TEMPERATURE_FIT}",
        f"{found}: the study is of calstudy {versions.get('calstudy', 'unknown')} (commit"
        f" {versions.get('git_commit', 'unknown')}) or an earlier one, whose format this version"
        " does not read",
        "Use that version, or start again under a new name.",
    )


def _check(file: Path, field: str, value: Any, check: Predicate, wanted: str) -> None:
    if not check(value):
        shown = strict_yaml.one_line(value)
        shown = shown if len(shown) <= MOST_SHOWN else f"{shown[:MOST_SHOWN]}..."
        raise SpecError(
            str(file), field, f"must be {wanted}, got {shown}", "Restore it from a backup."
        )
