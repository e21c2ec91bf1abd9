"""Ranges and settings that search_spaces/ recommends, and those that a begun study keeps."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution

from search_spaces.space import (
    STATUSES,
    Conditional,
    Default,
    Entry,
    SpaceFile,
    find_space,
    parse_entry,
    shared_space,
    to_plain,
)
from search_spaces.strict_yaml import one_line
from study.schema.compatibility import RecordedSpace, leaves
from study.schema.paths import checked_entry, fits
from trainables.config import TrialConfig, before_there_were
from trainables.config import to_plain as settings_to_plain
from trainables.fields import Settings
from trainables.method import Method
from trainables.methods.cross_entropy import CrossEntropy
from trainables.plain import Value
from trainables.plugins import extension_folder, name_of, own_stems
from trainables.problems import FieldError

Entries = dict[str, tuple[Entry, str]]  # {path: (entry, origin)}
OPTIMIZER_FILE = "search_spaces/optimizer.yaml"
OWN_SETTINGS = "the study's own settings"


@dataclass(frozen=True)
class Recommended:
    """Ranges with their origins, and settings to try first. kept: those that stay in any case."""

    entries: Entries
    settings: list[dict[str, Value]]
    kept: Mapping[str, Entry] = field(default_factory=dict)


def recommendation(trial: TrialConfig, search_optimizer: bool) -> Recommended:
    """The ranges of the method's file and its bases'; of the optimizer's too, if it is searched."""
    entries, settings = _of_method(trial, trial.method, "method")
    if search_optimizer:
        file = shared_space("optimizer")
        origin = f"{OPTIMIZER_FILE}: {file.source}"
        entries = {path: (entry, origin) for path, entry in file.space.items()} | entries
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
            if defaults:
                settings = [{**defaults[0], **one} for one in settings]
    for path, entry in file.space.items():
        moved = _moved(path, prefix)
        if isinstance(entry, Conditional):
            entry = replace(entry, when={_moved(key, prefix): of for key, of in entry.when.items()})
        checked = checked_entry(trial, moved, entry, f"{where}: space.{path}")
        entries[moved] = (checked, f"{where}: {file.source}")
    return entries, settings


def _file_of(method: Method) -> SpaceFile:
    name = name_of(type(method))
    folder = extension_folder("search_spaces")
    try:
        if folder is None or name not in own_stems(folder, ".yaml"):
            return find_space(name, [])
        return find_space(name, [folder])
    except FieldError as error:
        where = ": ".join(part for part in (f"search_spaces/{name}.yaml", error.path) if part)
        raise error.at(where) from None


def _moved(path: str, prefix: str) -> str:
    """A path from a method's file, moved to a base: `method.base.gamma`."""
    return prefix + path.removeprefix("method") if path.startswith("method.") else path


# ---- what a study keeps --------------------------------------------------------------------------


def is_of(trial: TrialConfig, recorded: RecordedSpace) -> bool:
    """Whether the record is of this method, with these bases."""
    today = dict(leaves(settings_to_plain(trial.method), "method."))
    return all(today.get(path) == name for path, name in recorded.parts.items())


def kept_values(
    trial: TrialConfig, written: tuple[str, ...], recorded: RecordedSpace
) -> dict[str, Any]:
    """{path: value} of the method's defaults when the study began, where today's are others.

    written: the paths that its file names now.
    """
    today = dict(leaves(settings_to_plain(trial.method), "method."))
    was = {**before_there_were(trial.method, "method"), **recorded.fixed}
    named = {*written, *recorded.named, *recorded.space}
    return {
        path: was[path]
        for path, value in today.items()
        if path in was and _listed(was[path]) != _listed(value) and path not in named
    }


def _listed(value: Any) -> Any:
    """A tuple as the list that a file has of it."""
    return list(value) if isinstance(value, tuple) else value


def as_recorded(
    trial: TrialConfig, today: Recommended, recorded: RecordedSpace, search_optimizer: bool
) -> Recommended:
    """`today` with what a study recorded, but for paths its file named or switched on or off."""

    def is_named(path: str) -> bool:
        switched = recorded.search_optimizer != search_optimizer and path.startswith("optimizer.")
        return switched or path in recorded.named

    # A value that the file once fixed was perhaps not searched then: without that line it is the
    # method's own.
    fixed = recorded.named - set(recorded.space)
    entries = {
        path: found for path, found in today.entries.items() if path not in fixed and is_named(path)
    }
    for path, plain in recorded.space.items():
        if is_named(path) or not fits(trial, path):
            continue
        entry = checked_entry(trial, path, parse_entry(path, plain), path)
        now, origin = today.entries.get(path, (None, ""))
        if entry != now:
            other = "no range" if now is None else one_line(to_plain(now))
            origin = f"recorded with the study; search_spaces/ now has {other}"
        entries[path] = (entry, origin)
    kept = {path: parse_entry(path, plain) for path, plain in recorded.space.items()}
    return Recommended(entries, recorded.defaults, kept)


# ---- ranges without effect -----------------------------------------------------------------------


def inert_paths(
    settings: Settings, searched: Mapping[str, BaseDistribution], prefix: str = "method"
) -> dict[str, str]:
    """{path: the setting that leaves it without effect}, whatever `searched` choices are taken."""
    inert = [each for _, each in _taken(settings, searched, prefix)]
    found = {}
    for spec in fields(settings):
        path = f"{prefix}.{spec.name}"
        if inert and all(spec.name in each for each in inert):
            found[path] = inert[0][spec.name]
    for path, base in _bases(settings, prefix):
        found |= inert_paths(base, searched, path)
    return found


def effective(
    settings: Settings, searched: Mapping[str, BaseDistribution], prefix: str = "method"
) -> dict[str, dict[str, tuple[Value, ...]]]:
    """By path, the `when` of what some of the `searched` choices leave without effect."""
    every = _taken(settings, searched, prefix)
    found: dict[str, dict[str, tuple[Value, ...]]] = {}
    for spec in fields(settings):
        having = [taken for taken, inert in every if spec.name not in inert]
        for name in every[0][0] if every else ():
            wanted = dict.fromkeys(taken[name] for taken in having)
            if wanted and len(wanted) < len({taken[name] for taken, _ in every}):
                when = found.setdefault(f"{prefix}.{spec.name}", {})
                when[f"{prefix}.{name}"] = tuple(wanted)
    for path, base in _bases(settings, prefix):
        found |= effective(base, searched, path)
    return found


def _taken(
    settings: Settings, searched: Mapping[str, BaseDistribution], prefix: str
) -> list[tuple[dict[str, Value], dict[str, str]]]:
    """What the settings have of `searched` choices, in each way, with what is then inert."""
    choices = {}
    for spec in fields(settings):
        entry = searched.get(f"{prefix}.{spec.name}")
        if isinstance(entry, CategoricalDistribution):
            choices[spec.name] = entry.choices
    found = []
    for values in itertools.product(*choices.values()):
        with suppress(FieldError):  # choices that do not go together
            taken: dict[str, Any] = dict(zip(choices, values, strict=True))
            found.append((taken, replace(settings, **taken).inert))
    return found


def _bases(settings: Settings, prefix: str) -> Iterator[tuple[str, Method]]:
    for spec in fields(settings):
        base = getattr(settings, spec.name)
        if isinstance(base, Method):
            yield f"{prefix}.{spec.name}", base


# ---- who tried it --------------------------------------------------------------------------------


def standing(method: Method) -> Default | None:
    """The default of search_spaces/ that a method's settings are; None if they are none.

    With another value beside it, or a base other than cross-entropy, at best transferred: its file
    is not of both.
    """
    own = {f"method.{spec.name}": spec for spec in fields(method) if spec.name not in method.inert}
    values = {path: getattr(method, spec.name) for path, spec in own.items()}
    plain = {path: value for path, value in values.items() if not isinstance(value, Method)}
    changed = {path for path, value in plain.items() if value != _usual(own[path])}
    held = [one for one in _file_of(method).defaults if _holds(one, plain)]
    if not held or not (held[0].values or held[0].by):
        return None
    exact = [one for one in held if changed <= set(one.values)]
    whose = exact[:1] or [held[0], Default({}, "transferred")]
    for base in values.values():
        if not isinstance(base, Method) or isinstance(base, CrossEntropy):
            continue
        theirs = standing(base)
        if theirs is None:
            return None
        whose += [theirs, Default({}, "transferred")]
    status = max((one.status for one in whose), key=STATUSES.index)
    names = "; ".join(one.by for one in whose if one.by).split("; ")
    by = "" if status == "ours" else "; ".join(dict.fromkeys(names))
    return Default(whose[0].values, status, by)


def _holds(default: Default, plain: Mapping[str, Value]) -> bool:
    return all(plain.get(path, value) == value for path, value in default.values.items())


def standing_text(found: Default | None) -> str:
    """`published default (Mukhoti et al. 2020)`, or what it is instead."""
    if found is None:
        return OWN_SETTINGS
    return f"{found.status} default ({found.by})" if found.by else "our default"


def _usual(spec: Field[Any]) -> Any:
    return spec.default_factory() if spec.default_factory is not MISSING else spec.default
