"""A method as a study runs it: its label, its fixed values, and the space of the rest."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution

from search_spaces.space import Entry, Pin, SpaceError, Value, contains, find_space, parse_entry, to_plain
from study.schema.resources import Resources
from trainables.config import TrialConfig, build, nested_kind, owner_of, value_at, with_value
from trainables.config import to_plain as settings_to_plain
from trainables.fields import FieldError, Settings, allowed_types, check_value, nearest
from trainables.method import Method
from trainables.plugins import name_of

# What may differ between trials of a study: groups of settings, and single settings.
SEARCHED_GROUPS = ("method", "optimizer", "model")
SEARCHED_VALUES = ("batch_size", "data.augment")

SEARCHED = f"Searchable: {', '.join([*(f'{group}.*' for group in SEARCHED_GROUPS), *SEARCHED_VALUES])}."
NOT_SEARCHED = f"cannot be searched: it must be the same in every trial for a fair comparison. {SEARCHED}"

STUDY_ORIGIN, OWN_ORIGIN = "search_space of the study", "values of the method"


@dataclass(frozen=True)
class Space:
    """The search space of one method. Paths are dotted (`method.base.gamma`) and sorted."""

    distributions: dict[str, BaseDistribution]
    pins: dict[str, Value]  # set for every trial of the method
    defaults: list[dict[str, Value]]  # settings to try first; omitted paths are sampled
    origins: dict[str, str]  # source of each path


@dataclass(frozen=True)
class Variant:
    """A method and the label of its trials. fixed: paths whose values are written with the method. values: what else
    is set for this label only."""

    label: str
    method: Method
    space: Space
    fixed: tuple[str, ...] = ()
    values: dict[str, Value] = field(default_factory=dict)
    resources: Resources | None = None  # None: the study's

    def to_mapping(self) -> dict[str, Any]:
        """Its entry under `methods:`: fixed values only."""
        resources = {} if self.resources is None else {"resources": settings_to_plain(self.resources)}
        values = {"values": dict(self.values)} if self.values else {}
        return {"label": self.label, **_fixed_mapping(self.method, "method", self.fixed), **values, **resources}


def _fixed_mapping(method: Method, prefix: str, fixed: tuple[str, ...]) -> dict[str, Any]:
    plain: dict[str, Any] = {"name": name_of(type(method))}
    for spec in fields(method):
        path, value = f"{prefix}.{spec.name}", getattr(method, spec.name)
        if isinstance(value, Method):
            plain[spec.name] = _fixed_mapping(value, path, fixed)
        elif path in fixed:
            plain[spec.name] = value
    return plain


def fixed_paths(method: Method, plain: Any, prefix: str = "method") -> tuple[str, ...]:
    """The dotted paths of the values written with a method (`plain`: name or mapping) and its bases."""
    found: list[str] = []
    for key, value in plain.items() if isinstance(plain, Mapping) else ():
        if key == "name":
            continue
        base = getattr(method, key)
        found += fixed_paths(base, value, f"{prefix}.{key}") if isinstance(base, Method) else [f"{prefix}.{key}"]
    return tuple(sorted(found))


def read_values(plain: Any) -> dict[str, Pin]:
    """`values:` of a method. Raises FieldError unless it maps paths to plain values."""
    if not isinstance(plain, Mapping):
        raise FieldError("values", f"must map paths to values, got {plain!r}.")
    found: dict[str, Pin] = {}
    for path, value in plain.items():
        try:
            entry = parse_entry(f"values.{path}", value)
        except SpaceError as error:
            raise FieldError(error.path, error.problem) from None
        if not isinstance(entry, Pin):
            raise FieldError(f"values.{path}", "must be a plain value; write ranges under `search_space`.")
        found[path] = entry
    return found


def build_variant(
    trial: TrialConfig,
    label: str,
    fixed: tuple[str, ...],
    laid_over: Mapping[str, Entry],
    folders: Iterable[Path],
    own: Mapping[str, tuple[str, Pin]],
) -> Variant:
    """The variant of `trial.method`: its recommended space without fixed paths, overridden by the study's space and
    then by its own values, {location: (path, value)}."""
    recommended, published = _recommended(trial, trial.method, "method", tuple(folders))
    entries = {path: found for path, found in recommended.items() if path not in fixed}
    for path, entry in laid_over.items():
        if fits(trial, path) and path not in fixed:
            entries[path] = _checked(trial, path, entry, f"search_space.{path}"), STUDY_ORIGIN
    values: dict[str, Value] = {}
    for where, (path, entry) in own.items():
        if path in fixed:
            raise FieldError(where, f"is fixed to {value_at(trial, path)!r} by the method; remove one of the two.")
        pin = _checked(trial, path, entry, where)
        assert isinstance(pin, Pin)
        entries[path], values[path] = (pin, OWN_ORIGIN), pin.value
    entries = dict(sorted(entries.items()))
    pins = {path: entry.value for path, (entry, _) in entries.items() if isinstance(entry, Pin)}
    distributions = {path: entry for path, (entry, _) in entries.items() if isinstance(entry, BaseDistribution)}
    pinned = with_pins(trial, pins)
    space = Space(
        distributions,
        pins,
        _first_settings(pinned, distributions, published),
        {path: origin for path, (_, origin) in entries.items()},
    )
    return Variant(label, pinned.method, space, fixed, values)


def with_pins(trial: TrialConfig, pins: Mapping[str, Value]) -> TrialConfig:
    plain = trial.to_mapping()
    for path, value in pins.items():
        plain = with_value(plain, path, value)
    config: TrialConfig = build(TrialConfig, plain)
    return config


def _recommended(
    trial: TrialConfig, method: Method, prefix: str, folders: tuple[Path, ...]
) -> tuple[dict[str, tuple[Entry, str]], list[dict[str, Value]]]:
    """{path: (entry, origin)} and published settings of a method at `prefix`, its bases included.

    Each of the method's settings is combined with the first of its base's.
    """
    name = name_of(type(method))
    where = f"search_spaces/{name}.yaml"
    try:
        file = find_space(name, folders)
    except SpaceError as error:
        raise FieldError(where, str(error)) from None
    entries: dict[str, tuple[Entry, str]] = {}
    settings = [{_moved(path, prefix): value for path, value in default.items()} for default in file.defaults]
    for spec in fields(method):
        base = getattr(method, spec.name)
        if isinstance(base, Method):
            theirs, defaults = _recommended(trial, base, f"{prefix}.{spec.name}", folders)
            entries |= theirs
            settings = [{**(defaults[0] if defaults else {}), **setting} for setting in settings]
    for path, entry in file.space.items():
        moved = _moved(path, prefix)
        entries[moved] = _checked(trial, moved, entry, f"{where}: space.{path}"), f"{where}: {file.source}"
    return entries, settings


def _moved(path: str, prefix: str) -> str:
    """A path from a method's file, moved to a base: `method.base.gamma`."""
    return prefix + path.removeprefix("method") if path.startswith("method.") else path


def _first_settings(
    trial: TrialConfig, distributions: Mapping[str, BaseDistribution], published: list[dict[str, Value]]
) -> list[dict[str, Value]]:
    """The published settings inside the space; other paths take the study's value if that is inside too."""
    own = {path: value_at(trial, path) for path in distributions}
    own = {path: value for path, value in own.items() if contains(distributions[path], value)}
    found: list[dict[str, Value]] = []
    for setting in published:
        named = {path: _typed(trial, path, value) for path, value in setting.items() if path in distributions}
        whole = dict(sorted({**own, **named}.items()))
        if whole and whole not in found and all(contains(distributions[path], whole[path]) for path in whole):
            found.append(whole)
    return found


def fits(trial: TrialConfig, path: str) -> bool:
    """Whether the path is a searchable value of this trial."""
    try:
        owner_of(trial, path)
    except FieldError:
        return False
    return _is_searched(path)


def _is_searched(path: str) -> bool:
    return path.partition(".")[0] in SEARCHED_GROUPS or path in SEARCHED_VALUES


def searchable_paths(settings: Settings, prefix: str = "") -> Iterator[str]:
    """Every searchable path of a trial."""
    for spec in fields(settings):
        path = f"{prefix}{spec.name}"
        if nested_kind(type(settings), spec.name):
            yield from searchable_paths(getattr(settings, spec.name), f"{path}.")
        elif _is_searched(path):
            yield path


def check_path(path: str, trials: Mapping[str, TrialConfig], fixed: Mapping[str, tuple[str, ...]]) -> None:
    """Raise FieldError unless the path is searchable for one of the methods ({label: trial})."""
    fitting = [label for label, trial in trials.items() if fits(trial, path)]
    if any(path not in fixed[label] for label in fitting):
        return
    where = f"search_space.{path}"
    if fitting:
        value = value_at(trials[fitting[0]], path)
        raise FieldError(where, f"is fixed to {value!r} by {' and '.join(fitting)}; remove one of the two.")
    if path.partition(".")[0] in {spec.name for spec in fields(TrialConfig)} and not _is_searched(path):
        raise FieldError(where, NOT_SEARCHED)
    raise FieldError(where, _nearest_problem(path, trials))


def _nearest_problem(path: str, trials: Mapping[str, TrialConfig]) -> str:
    """What is wrong with a path that fits no method, judged by the nearest method."""
    known = {name: trial for trial in trials.values() for name in searchable_paths(trial)}
    close = get_close_matches(path, known, n=1, cutoff=0.5)
    group = path.partition(".")[0]
    if close and group in SEARCHED_GROUPS:
        try:
            owner_of(known[close[0]], path)
        except FieldError as error:
            return error.problem
    inside = [name for name in known if name.startswith(f"{group}.")]
    return f"there is no '{path}'.{nearest(path, close or inside) if close or inside else f' {SEARCHED}'}"


def _typed(trial: TrialConfig, path: str, value: Value) -> Value:
    owner, spec = owner_of(trial, path)
    typed: Value = check_value(type(owner), spec, value)
    return typed


def _checked(trial: TrialConfig, path: str, entry: Entry, where: str) -> Entry:
    """The entry with values of the field's type. Raises FieldError at `where`."""
    try:
        owner, spec = owner_of(trial, path)
    except FieldError as error:
        raise FieldError(where, error.problem) from None
    if not _is_searched(path):
        raise FieldError(where, NOT_SEARCHED)
    try:
        if isinstance(entry, Pin):
            return Pin(_typed(trial, path, entry.value))
        if isinstance(entry, CategoricalDistribution):
            return CategoricalDistribution([_typed(trial, path, choice) for choice in entry.choices])
    except FieldError as error:
        raise FieldError(where, error.problem) from None
    owner_class: type = type(owner)
    kinds = allowed_types(owner_class, spec.name)
    plain = to_plain(entry)
    if not {int, float} & set(kinds):
        choices = spec.metadata.get("choices") or ((True, False) if bool in kinds else ())
        known = ", ".join(str(choice).lower() if isinstance(choice, bool) else choice for choice in choices) or "..."
        raise FieldError(where, f"cannot be a range; write {{choices: [{known}]}}.")
    if float not in kinds and not isinstance(entry, IntDistribution):
        raise FieldError(where, "must be a whole number; add `int: true` to the range.")
    if int not in kinds and isinstance(entry, IntDistribution):
        raise FieldError(where, "is not a whole number; write `step: 1` instead of `int: true`.")
    for end in ("low", "high"):
        try:
            _typed(trial, path, plain[end])
        except FieldError as error:
            raise FieldError(where, f"`{end}` {error.problem}") from None
    return entry
