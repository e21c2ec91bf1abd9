"""What search_spaces/ recommends for a method, and what a study that has begun keeps instead."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import MISSING, Field, dataclass, fields, replace
from typing import Any

from optuna.distributions import CategoricalDistribution

from search_spaces.space import (
    STATUSES,
    Default,
    Entry,
    SpaceError,
    SpaceFile,
    Value,
    find_space,
    parse_entry,
    shared_space,
    to_plain,
)
from search_spaces.strict_yaml import one_line
from study.schema.compatibility import RecordedSpace, leaves
from study.schema.paths import checked_entry, fits
from trainables.config import TrialConfig
from trainables.config import to_plain as settings_to_plain
from trainables.fields import FieldError
from trainables.method import Method
from trainables.methods.cross_entropy import CrossEntropy
from trainables.plugins import extension_folder, name_of

Entries = dict[str, tuple[Entry, str]]  # {path: (entry, origin)}
OPTIMIZER_FILE = "search_spaces/optimizer.yaml"
OWN_SETTINGS = "the study's own settings"


@dataclass(frozen=True)
class Recommended:
    """Ranges with their origins, and settings to try first. kept: paths that stay whatever they do."""

    entries: Entries
    settings: list[dict[str, Value]]
    kept: frozenset[str] = frozenset()


def recommended(trial: TrialConfig, search_optimizer: bool) -> Recommended:
    """Of the method's file and its bases'; with the shared one of the optimizer, if the study wants it."""
    entries, settings = _of_method(trial, trial.method, "method")
    if search_optimizer:
        file = shared_space("optimizer")
        entries = {
            path: (entry, f"{OPTIMIZER_FILE}: {file.source}") for path, entry in file.space.items()
        } | entries
    return Recommended(entries, settings)


def _of_method(
    trial: TrialConfig, method: Method, prefix: str
) -> tuple[Entries, list[dict[str, Value]]]:
    """Each of the method's settings is combined with the first of its base's."""
    where = f"search_spaces/{name_of(type(method))}.yaml"
    file = _file_of(method)
    entries: Entries = {}
    settings = [
        {_moved(path, prefix): value for path, value in default.values.items()}
        for default in file.defaults
    ]
    for spec in fields(method):
        base = getattr(method, spec.name)
        if isinstance(base, Method):
            theirs, defaults = _of_method(trial, base, f"{prefix}.{spec.name}")
            entries |= theirs
            settings = [{**(defaults[0] if defaults else {}), **setting} for setting in settings]
    for path, entry in file.space.items():
        moved = _moved(path, prefix)
        entries[moved] = (
            checked_entry(trial, moved, entry, f"{where}: space.{path}"),
            f"{where}: {file.source}",
        )
    return entries, settings


def _file_of(method: Method) -> SpaceFile:
    name, folder = name_of(type(method)), extension_folder("search_spaces")
    try:
        return find_space(name, [] if folder is None else [folder])
    except SpaceError as error:
        raise FieldError(f"search_spaces/{name}.yaml", str(error)) from None


def _moved(path: str, prefix: str) -> str:
    """A path from a method's file, moved to a base: `method.base.gamma`."""
    return prefix + path.removeprefix("method") if path.startswith("method.") else path


# ---- what a study keeps --------------------------------------------------------------------------------------------


def is_of(trial: TrialConfig, recorded: RecordedSpace) -> bool:
    """Whether the record is of this method, with these bases."""
    today = dict(leaves(settings_to_plain(trial.method), "method."))
    return all(today.get(path) == name for path, name in recorded.parts.items())


def as_recorded(
    trial: TrialConfig, today: Recommended, recorded: RecordedSpace, search_optimizer: bool
) -> Recommended:
    """`today` with the ranges and defaults a study recorded, except for paths its file named or switched on or off."""

    def is_named(path: str) -> bool:
        switched = recorded.search_optimizer != search_optimizer and path.startswith("optimizer.")
        return switched or path in recorded.named

    # A value that the file once fixed was perhaps not searched then: without that line it is the method's own.
    fixed = recorded.named - set(recorded.space)
    entries = {
        path: found for path, found in today.entries.items() if is_named(path) and path not in fixed
    }
    for path, plain in recorded.space.items():
        if is_named(path) or not fits(trial, path):
            continue
        entry = checked_entry(trial, path, parse_entry(path, plain), path)
        now, origin = today.entries.get(path, (None, ""))
        other = "no range" if now is None else one_line(to_plain(now))
        entries[path] = (
            entry,
            origin if entry == now else f"recorded with the study; search_spaces/ now has {other}",
        )
    settings = today.settings if recorded.defaults is None else recorded.defaults
    return Recommended(entries, settings, frozenset(recorded.space))


# ---- what has no effect --------------------------------------------------------------------------------------------


def inert_paths(
    method: Method, searched: Mapping[str, Any], prefix: str = "method"
) -> dict[str, str]:
    """{path: the setting that leaves it without effect}, whichever of the `searched` choices is taken."""
    paths = {spec.name: f"{prefix}.{spec.name}" for spec in fields(method)}
    entries = {name: searched.get(path) for name, path in paths.items()}
    choices = {
        name: entry.choices
        for name, entry in entries.items()
        if isinstance(entry, CategoricalDistribution)
    }
    inert: list[dict[str, str]] = []
    for values in itertools.product(*choices.values()):
        with suppress(FieldError):  # choices that do not go together
            inert.append(replace(method, **dict(zip(choices, values, strict=True))).inert)
    found = (
        {paths[name]: why for name, why in inert[0].items() if all(name in each for each in inert)}
        if inert
        else {}
    )
    for name, path in paths.items():
        base = getattr(method, name)
        found |= inert_paths(base, searched, path) if isinstance(base, Method) else {}
    return found


# ---- who tried it --------------------------------------------------------------------------------------------------


def standing(method: Method) -> Default | None:
    """The default of search_spaces/ that a method's settings are; None if they are none.

    With another value beside it, or a base other than cross-entropy, at best transferred: its file is not of both.
    """
    own = {f"method.{spec.name}": spec for spec in fields(method) if spec.name not in method.inert}
    values = {path: getattr(method, spec.name) for path, spec in own.items()}
    plain = {path: value for path, value in values.items() if not isinstance(value, Method)}
    changed = {path for path, value in plain.items() if value != _usual(own[path])}
    held = [
        one
        for one in _file_of(method).defaults
        if all(plain.get(at, of) == of for at, of in one.values.items())
    ]
    exact = [one for one in held if changed <= set(one.values)]
    if not held or not (held[0].values or held[0].by):
        return None
    whose = [exact[0]] if exact else [held[0], Default({}, "transferred")]
    for base in (
        value
        for value in values.values()
        if isinstance(value, Method) and not isinstance(value, CrossEntropy)
    ):
        theirs = standing(base)
        if theirs is None:
            return None
        whose += [theirs, Default({}, "transferred")]
    status = max((one.status for one in whose), key=STATUSES.index)
    names = dict.fromkeys(name for one in whose for name in one.by.split("; ") if name)
    return Default(whose[0].values, status, "" if status == "ours" else "; ".join(names))


def standing_text(found: Default | None) -> str:
    """`published default (Mukhoti et al. 2020)`, or what it is instead."""
    if found is None:
        return OWN_SETTINGS
    return f"{found.status} default ({found.by})" if found.by else "our default"


def _usual(spec: Field[Any]) -> Any:
    return spec.default_factory() if spec.default_factory is not MISSING else spec.default
