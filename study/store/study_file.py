"""STUDY/study.yaml as it is read: what a study is opened by must have the type calstudy writes.
People edit the file.

The rest of the spec is checked where it is used, in full.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from search_spaces import strict_yaml
from study.schema.errors import SpecError
from study.schema.objective import SERVED
from study.schema.temperature import TEMPERATURE_FIT, WITH_PRIOR
from study.schema.uris import is_url, public_uri
from study.store.checks import Predicate, each, having, is_mapping, is_number, of, or_none

# Seconds since 1970: the year 3000, before which every library can show a time.
LATEST = 32_503_680_000
MOST_SHOWN = 40  # characters of a value in a message


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_fraction(value: Any) -> bool:
    return isinstance(value, int | float) and 0 <= value <= 1


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_time(value: Any) -> bool:
    try:
        return 0 < datetime.fromisoformat(value).timestamp() < LATEST
    except (TypeError, ValueError, OverflowError):
        return False


def _is_label(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(r"[a-z0-9_]+", value) is not None


def _is_method(value: Any) -> bool:
    return _is_named(value) and is_mapping(value.get("values", {}))


_is_named = having(label=_is_label, name=_is_text)
_is_meaning = having(
    methods=of(having(fixed=is_mapping, space=is_mapping, defaults=each(is_mapping)))
)
_of_numbers = of(lambda value: isinstance(value, int | float))
_are_sizes = having(train=_is_count, validation=_is_count, test=_is_count)


SPEC: dict[str, tuple[Predicate, str]] = {
    "name": (_is_text, "text"),
    "methods": (lambda value: each(_is_method)(value) and value != [], "a list of methods"),
    "objectives": (each(is_mapping), "a list of objectives"),
    "trials": (_is_count, "a number of trials"),
    "ledger": (or_none(_is_text), "a path or null"),
    "tracking": (or_none(_is_text), "a URL or null"),
}
SPEC_OR_NOT: dict[str, tuple[Predicate, str]] = {
    "search_space": (or_none(is_mapping), "a mapping or null"),
    "matters": (or_none(_of_numbers), "a mapping of objectives to numbers"),
    "try_first": (or_none(each(is_mapping)), "a list of settings or null"),
    "confirms": (or_none(_is_text), "the name of a study or null"),
    "serve": (lambda value: value in (None, *SERVED), "temperature, raw, either or null"),
}
RECORDED: dict[str, tuple[Predicate, str]] = {
    "id": (_is_text, "text"),
    "created": (_is_time, "a date and time"),
    "data_digest": (_is_text, "text"),
    "classes": (
        lambda value: each(_is_text)(value) and len(value) > 1,
        "a list of names",
    ),
    "sizes": (
        lambda value: _are_sizes(value) and of(_is_count)(value),
        "the number of samples of train, validation and test",
    ),
    "versions": (of(_is_text), "a mapping of names to versions"),
    "meaning": (_is_meaning, "what a trial means, with `methods`"),
    "serves": (lambda value: value in SERVED, "temperature, raw or either"),
    TEMPERATURE_FIT: (lambda value: value == WITH_PRIOR, WITH_PRIOR),
    "majority": (_is_fraction, "a fraction"),
}
RECORDED_OR_NOT: dict[str, tuple[Predicate, str]] = {
    "home": (having(path=_is_text, inode=_is_count), "a path and an inode"),
    "weights": (of(_is_text), "a mapping of digests to names"),
    "stack": (
        lambda value: having(trials=_is_count, device=_is_text)(value) and value["trials"] > 1,
        "a number of trials and a kind of device",
    ),
    "groups": (_are_sizes, "the number of groups of train, validation and test"),
    "least_accuracy": (or_none(_is_fraction), "a fraction"),
    "unit": (_is_text, "text"),
    "shared": (each(_is_text), "a list of sentences"),
    "adoptions": (or_none(_is_count), "a count"),
    "tracking": (or_none(_is_text), "a URL or null"),
    "pruned": (_is_flag, "true or false"),
    "kept_by_other_rules": (_is_flag, "true or false"),
    "ledger_made": (_is_flag, "true or false"),
    "matters_at_opening": (_of_numbers, "a mapping of objectives to numbers"),
    "race": (
        lambda value: (
            having(until=is_number, at_most=_is_count, at_once=_is_count)(value)
            and each(_is_text)(value.get("also"))
            and or_none(_is_count)(value.get("trainings"))
        ),
        "how seeds are given out: until, at_most, at_once and also",
    ),
    "confirmation": (
        lambda value: (
            having(name=_is_text, openings=_is_count)(value)
            and or_none(of(_is_count))(value.get("seeds"))
        ),
        "a name, a number of openings and, by label, of seeds",
    ),
}


def check_study_file(file: Path, plain: Mapping[str, Any], recorded: Any) -> None:
    """Raise SpecError naming the field of STUDY/study.yaml that is not as calstudy writes it."""
    _check(file, "recorded", recorded, is_mapping, "a mapping")
    _refuse_older(file, plain, recorded)
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


def _refuse_older(file: Path, plain: Mapping[str, Any], recorded: Mapping[str, Any]) -> None:
    """Raise SpecError naming the version of a study that was begun before its fit was recorded, or
    while a ledger could be in a database."""
    fit, ledger = recorded.get(TEMPERATURE_FIT), plain.get("ledger")
    if fit in (None, "temperature_by_nll"):
        field, found = f"recorded.{TEMPERATURE_FIT}", "is missing" if fit is None else f"is {fit}"
    elif is_url(ledger):
        field, found = "ledger", f"is in a database, {public_uri(ledger)}"
    else:
        return
    known = recorded.get("versions")
    versions = known if isinstance(known, Mapping) else {}
    raise SpecError(
        str(file),
        field,
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
