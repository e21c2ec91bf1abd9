"""A method as a study runs it: its label, its fixed values, and the space of the rest."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from typing import Any

from optuna.distributions import BaseDistribution

from search_spaces.space import Default, Entry, Pin, contains, parse_entry, to_plain
from search_spaces.strict_yaml import one_line
from study.schema.paths import (
    NOT_SEARCHED,
    SEARCHED,
    SEARCHED_GROUPS,
    checked_entry,
    fits,
    is_searched,
    searchable_paths,
    typed,
)
from study.schema.recommendations import OPTIMIZER_FILE, Recommended, inert_paths, standing
from study.schema.resources import Resources
from study.schema.try_first import Searches, Values, own_settings
from trainables.config import TrialConfig, build, owner_of, value_at, with_value
from trainables.config import to_plain as settings_to_plain
from trainables.method import Method
from trainables.plain import Plain, Value
from trainables.plugins import name_of
from trainables.problems import FieldError, nearest

STUDY_ORIGIN = "search_space of the study"
OWN_ORIGIN = "values of the method"


@dataclass(frozen=True)
class Written:
    """An entry of `methods:`. fixed: the paths of the values written with the method."""

    trial: TrialConfig
    fixed: tuple[str, ...]
    values: dict[str, Pin]
    resources: Resources | None
    try_first: tuple[Values, ...] = ()


@dataclass(frozen=True)
class Space:
    """The search space of one method. Paths are dotted (`method.base.gamma`) and sorted."""

    distributions: dict[str, BaseDistribution]
    pins: dict[str, Value]  # set for every trial of the method
    defaults: list[dict[str, Value]]  # published settings to try; omitted paths are sampled
    origins: dict[str, str]  # source of each path
    # `defaults` before the study's own ranges.
    recommended: list[dict[str, Value]] = field(default_factory=list)
    own: list[dict[str, Value]] = field(default_factory=list)  # by `try_first`

    @property
    def first(self) -> list[dict[str, Value]]:
        """The settings that are tried first, in order, each once: its own, then `defaults`."""
        return [*self.own, *(one for one in self.defaults if one not in self.own)]


@dataclass(frozen=True)
class Variant:
    """A method and the label of its trials.

    fixed: paths whose values are written with the method. values: set for this label only.
    """

    label: str
    method: Method
    space: Space
    fixed: tuple[str, ...] = ()
    values: dict[str, Value] = field(default_factory=dict)
    resources: Resources | None = None  # None: the study's
    try_first: tuple[Values, ...] = ()  # of this label only
    # Paths that search_spaces/ or the method now has otherwise.
    kept: tuple[str, ...] = field(default=(), compare=False)
    # The method's defaults when the study began, where today's are others.
    kept_values: dict[str, Value] = field(default_factory=dict, compare=False)

    def to_mapping(self) -> dict[str, Plain]:
        """Its entry under `methods:`: fixed values only."""
        fixed = _fixed_mapping(self.method, "method", self.fixed)
        plain: dict[str, Plain] = {"label": self.label, **fixed}
        if self.values:
            plain["values"] = dict(self.values)
        if self.resources is not None:
            plain["resources"] = settings_to_plain(self.resources)
        if self.try_first:
            plain["try_first"] = [dict(one) for one in self.try_first]
        return plain


def _fixed_mapping(method: Method, prefix: str, fixed: tuple[str, ...]) -> dict[str, Plain]:
    plain: dict[str, Plain] = {"name": name_of(type(method))}
    for spec in fields(method):
        path = f"{prefix}.{spec.name}"
        value = getattr(method, spec.name)
        if isinstance(value, Method):
            plain[spec.name] = _fixed_mapping(value, path, fixed)
        elif path in fixed:
            plain[spec.name] = value
    return plain


def fixed_paths(method: Method, plain: Any, prefix: str = "method") -> tuple[str, ...]:
    """The dotted paths of the values written with a method (`plain`: name or mapping) and bases."""
    if not isinstance(plain, Mapping):
        return ()
    found: list[str] = []
    for key in plain.keys() - {"name"}:
        path = f"{prefix}.{key}"
        base = getattr(method, key)
        found += fixed_paths(base, plain[key], path) if isinstance(base, Method) else [path]
    return tuple(sorted(found))


def read_values(plain: Any) -> dict[str, Pin]:
    """`values:` of a method. Raises FieldError unless it maps paths to plain values."""
    if not isinstance(plain, Mapping):
        raise FieldError("values", f"must map paths to values, got {plain!r}")
    found: dict[str, Pin] = {}
    for path, value in plain.items():
        entry = parse_entry(f"values.{path}", value)
        if not isinstance(entry, Pin):
            raise FieldError(
                f"values.{path}", "must be a plain value", "Write ranges under `search_space`."
            )
        found[path] = entry
    return found


def build_variant(
    label: str,
    written: Written,
    where: str,
    laid_over: Mapping[str, Entry],
    shared: Sequence[Values],
    recommended: Recommended,
) -> Variant:
    """The variant of an entry at `where`, with its recommended space.

    Without fixed paths and ranges that have no effect; overridden by the study's space, then by
    the entry's own values. shared: what the whole study tries first.
    """
    trial = written.trial
    fixed = written.fixed
    entries = {path: found for path, found in recommended.entries.items() if path not in fixed}
    for path, entry in laid_over.items():
        if fits(trial, path) and path not in fixed:
            entry = checked_entry(trial, path, entry, f"search_space.{path}")
            entries[path] = (entry, STUDY_ORIGIN)
    values: dict[str, Value] = {}
    for path, own in written.values.items():
        at = f"{where}.values.{path}"
        if path in fixed:
            value = value_at(trial, path)
            raise FieldError(at, f"is fixed to {value!r} by the method", "Remove one of the two.")
        pin = checked_entry(trial, path, own, at)
        assert isinstance(pin, Pin)
        entries[path] = (pin, OWN_ORIGIN)
        values[path] = pin.value
    laid = {path: entry for path, (entry, _) in sorted(entries.items())}
    pins = {path: entry.value for path, entry in laid.items() if isinstance(entry, Pin)}
    pinned = with_pins(trial, pins)
    searched = {path: of for path, of in laid.items() if isinstance(of, BaseDistribution)}
    inert = inert_paths(pinned.method, searched).keys() - recommended.kept
    distributions = {path: entry for path, entry in searched.items() if path not in inert}
    defaults = _first_settings(pinned, distributions, recommended.settings)
    rest = defaults[0] if defaults else _inside(pinned, distributions)
    tries = written.try_first
    method = Searches(label, pinned, distributions)
    space = Space(
        distributions,
        pins,
        defaults,
        {path: entries[path][1] for path in sorted([*distributions, *pins])},
        recommended.settings,
        own_settings(method, rest, tries, shared, f"{where}.try_first"),
    )
    return Variant(label, pinned.method, space, fixed, values, written.resources, tries)


def with_pins(trial: TrialConfig, pins: Mapping[str, Value]) -> TrialConfig:
    config: TrialConfig = build(TrialConfig, with_values(trial.to_mapping(), pins))
    return config


def with_values(plain: Mapping[str, Plain], values: Mapping[str, Value]) -> dict[str, Plain]:
    """A trial's plain values, with these by dotted path."""
    found = dict(plain)
    for path, value in values.items():
        found = with_value(found, path, value)
    return found


def differing(variant: Variant, today: Variant) -> tuple[str, ...]:
    """Searched paths that search_spaces/ now has otherwise; `tried first` for those settings."""
    ours = {**variant.space.pins, **variant.space.distributions}
    theirs = {**today.space.pins, **today.space.distributions}
    paths = [path for path in sorted({*ours, *theirs}) if ours.get(path) != theirs.get(path)]
    if variant.space.recommended != today.space.recommended:
        paths.append("tried first")
    return tuple(paths)


def first_standings(trial: TrialConfig, space: Space) -> list[Default | None]:
    """Whose settings `space.first` are; None: the study's own. trial: the variant's."""
    searched = {path for path in space.distributions if path.startswith("method.")}
    return [
        standing(with_pins(trial, setting).method)
        if searched <= set(setting) and setting in space.defaults
        else None
        for setting in space.first
    ]


def check_optimizer(label: str, trial: TrialConfig, space: Space) -> None:
    """Raise FieldError if the optimizer's search would start outside its range."""
    for path, entry in space.distributions.items():
        value = value_at(trial, path)
        if space.origins[path].startswith(OPTIMIZER_FILE) and not contains(entry, value):
            range_ = one_line(to_plain(entry))
            found = f"{path} of {label} is {value!r}, outside {range_} of {OPTIMIZER_FILE}"
            mend = "Write a range for it under `search_space`."
            raise FieldError("search_optimizer", found, mend)


def _first_settings(
    trial: TrialConfig,
    distributions: Mapping[str, BaseDistribution],
    recommended: list[dict[str, Value]],
) -> list[dict[str, Value]]:
    """The recommended settings inside the space; other paths have the study's value if it is."""
    own = _inside(trial, distributions)
    found: list[dict[str, Value]] = []
    for setting in recommended:
        inner = {path: value for path, value in setting.items() if path in distributions}
        named = {path: typed(trial, path, value) for path, value in inner.items()}
        whole = dict(sorted({**own, **named}.items()))
        inside = all(contains(distributions[path], value) for path, value in whole.items())
        if whole and inside and whole not in found:
            found.append(whole)
    return found


def _inside(trial: TrialConfig, distributions: Mapping[str, BaseDistribution]) -> dict[str, Value]:
    """The study's own values of searched paths, where they are in the range."""
    own = {path: value_at(trial, path) for path in distributions}
    return {path: value for path, value in own.items() if contains(distributions[path], value)}


def check_try_first(tries: Sequence[Values], methods: Sequence[Searches]) -> None:
    """Raise FieldError for a setting of the whole study that no method can try."""
    for index, one in enumerate(tries):
        where = f"try_first[{index}]"
        for path in one:
            if not any(fits(each.trial, path) for each in methods):
                unknown = _unknown_path(path, [each.trial for each in methods])
                raise unknown.at(f"{where}.{path}")
        refused = [each.refuses(one) for each in methods]
        reasons = [why for why in refused if why is not None]
        if len(reasons) == len(methods):
            nearest_to = [why for why in reasons if "has no" not in why.found]
            raise (nearest_to or reasons)[0].under(where)


def check_path(path: str, written: Mapping[str, Written]) -> None:
    """Raise FieldError unless the path is searchable for one of the methods."""
    fitting = [label for label, one in written.items() if fits(one.trial, path)]
    if any(path not in written[label].fixed for label in fitting):
        return
    where = f"search_space.{path}"
    if fitting:
        value = value_at(written[fitting[0]].trial, path)
        by = " and ".join(fitting)
        raise FieldError(where, f"is fixed to {value!r} by {by}", "Remove one of the two.")
    known = {spec.name for spec in fields(TrialConfig)}
    if path.partition(".")[0] in known and not is_searched(path):
        raise FieldError(where, NOT_SEARCHED, SEARCHED)
    raise _unknown_path(path, [one.trial for one in written.values()]).at(where)


def _unknown_path(path: str, trials: list[TrialConfig]) -> FieldError:
    """The error of a path that fits no method, judged by the nearest method."""
    known: dict[str, TrialConfig] = {}
    for trial in trials:
        known |= dict.fromkeys(searchable_paths(trial), trial)
    close = get_close_matches(path, known, n=1, cutoff=0.5)
    group = path.partition(".")[0]
    if close and group in SEARCHED_GROUPS:
        try:
            owner_of(known[close[0]], path)
        except FieldError as error:
            return error
    inside = [name for name in known if name.startswith(f"{group}.")]
    meant = close or inside
    mend = nearest(path, meant) if meant else SEARCHED
    return FieldError(path, f"there is no '{path}'", mend)
