"""A method as a study runs it: its label, its fixed values, and the space of the rest."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from typing import Any

from optuna.distributions import BaseDistribution

from search_spaces.conditions import When, searched_in
from search_spaces.space import (
    Conditional,
    Default,
    Entry,
    Pin,
    contains,
    parse_entry,
    to_plain,
    when_of,
)
from search_spaces.strict_yaml import one_line
from study.schema.conditions import conditioned
from study.schema.paths import (
    NOT_SEARCHED,
    SEARCHED,
    SEARCHED_GROUPS,
    checked_entry,
    fits,
    is_searched,
    searchable_paths,
)
from study.schema.recommendations import OPTIMIZER_FILE, Recommended, standing
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
    """The search space of one method. Paths are dotted (`method.base.gamma`) and sorted.

    whens: of what is searched only where choices have certain values.
    """

    distributions: dict[str, BaseDistribution]  # each after those of its `when`
    pins: dict[str, Value]  # set for every trial of the method
    defaults: list[dict[str, Value]]  # published settings to try; omitted paths are sampled
    origins: dict[str, str]  # source of each path
    # `defaults` before the study's own ranges.
    recommended: list[dict[str, Value]] = field(default_factory=list)
    own: list[dict[str, Value]] = field(default_factory=list)  # by `try_first`
    whens: Mapping[str, When] = field(default_factory=dict)

    @property
    def ranges(self) -> dict[str, BaseDistribution | Conditional]:
        """By path, with its `when`."""
        return {
            path: Conditional(of, self.whens[path]) if path in self.whens else of
            for path, of in self.distributions.items()
        }

    def searched_in(self, values: Mapping[str, Value]) -> list[str]:
        """The paths that are searched where these values are taken."""
        return searched_in(values, self.distributions, self.whens)

    def held(self, values: Mapping[str, Value]) -> dict[str, Value]:
        """The values without those of ranges that are not searched there."""
        gone = self.distributions.keys() - self.searched_in(values)
        return {path: value for path, value in values.items() if path not in gone}

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
        if all(fits(trial, one) for one in (path, *when_of(entry))) and path not in fixed:
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
    ranges = {path: entry for path, entry in laid.items() if not isinstance(entry, Pin)}
    searched, whens = conditioned(pinned, ranges, recommended.kept)
    method = Searches(label, pinned, searched, whens)
    wholes = _first_settings(method, recommended.settings)
    rest = wholes[0] if wholes else _inside(method)
    first = [method.held(one) for one in wholes]
    defaults = [one for place, one in enumerate(first) if one and one not in first[:place]]
    tries = written.try_first
    space = Space(
        searched,
        pins,
        defaults,
        {path: entries[path][1] for path in sorted([*searched, *pins])},
        recommended.settings,
        own_settings(method, rest, tries, shared, f"{where}.try_first"),
        whens,
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
    ours = {**variant.space.pins, **variant.space.ranges}
    theirs = {**today.space.pins, **today.space.ranges}
    paths = [path for path in sorted({*ours, *theirs}) if ours.get(path) != theirs.get(path)]
    if variant.space.recommended != today.space.recommended:
        paths.append("tried first")
    return tuple(paths)


def first_standings(trial: TrialConfig, space: Space) -> list[Default | None]:
    """Whose settings `space.first` are; None: the study's own. trial: the variant's."""

    def is_whole(setting: Values) -> bool:
        searched = space.searched_in(setting)
        return all(path in setting for path in searched if path.startswith("method."))

    return [
        standing(with_pins(trial, setting).method)
        if is_whole(setting) and setting in space.defaults
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
    method: Searches, recommended: list[dict[str, Value]]
) -> list[dict[str, Value]]:
    """The recommended settings inside the space; other paths have the study's value if it is.
    With values of what is not searched there."""
    own = _inside(method)
    found: list[dict[str, Value]] = []
    for setting in recommended:
        whole = dict(sorted({**own, **method.searched(setting)}.items()))
        held = method.held(whole)
        inside = all(contains(method.distributions[path], value) for path, value in held.items())
        if whole and inside and whole not in found:
            found.append(whole)
    return found


def _inside(method: Searches) -> dict[str, Value]:
    """The study's own values of searched paths, where they are in the range."""
    own = {path: value_at(method.trial, path) for path in method.distributions}
    return {
        path: value for path, value in own.items() if contains(method.distributions[path], value)
    }


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
