"""A method as a study runs it: its label, its fixed values, and the space of the rest."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from typing import Any

from optuna.distributions import BaseDistribution

from search_spaces.space import (
    Default,
    Entry,
    Pin,
    SpaceError,
    Value,
    contains,
    parse_entry,
    to_plain,
)
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
from study.schema.recommended import OPTIMIZER_FILE, Recommended, inert_paths, standing
from study.schema.resources import Resources
from trainables.config import TrialConfig, build, owner_of, value_at, with_value
from trainables.config import to_plain as settings_to_plain
from trainables.fields import FieldError, nearest
from trainables.method import Method
from trainables.plugins import name_of

STUDY_ORIGIN, OWN_ORIGIN = "search_space of the study", "values of the method"


@dataclass(frozen=True)
class Space:
    """The search space of one method. Paths are dotted (`method.base.gamma`) and sorted."""

    distributions: dict[str, BaseDistribution]
    pins: dict[str, Value]  # set for every trial of the method
    defaults: list[dict[str, Value]]  # settings to try first; omitted paths are sampled
    origins: dict[str, str]  # source of each path
    recommended: list[dict[str, Value]] = field(
        default_factory=list
    )  # `defaults` before the study's own ranges


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
    kept: tuple[str, ...] = field(
        default=(), compare=False
    )  # what search_spaces/ now has otherwise

    def to_mapping(self) -> dict[str, Any]:
        """Its entry under `methods:`: fixed values only."""
        resources = (
            {} if self.resources is None else {"resources": settings_to_plain(self.resources)}
        )
        values = {"values": dict(self.values)} if self.values else {}
        return {
            "label": self.label,
            **_fixed_mapping(self.method, "method", self.fixed),
            **values,
            **resources,
        }


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
        found += (
            fixed_paths(base, value, f"{prefix}.{key}")
            if isinstance(base, Method)
            else [f"{prefix}.{key}"]
        )
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
            raise FieldError(
                f"values.{path}", "must be a plain value; write ranges under `search_space`."
            )
        found[path] = entry
    return found


def build_variant(
    trial: TrialConfig,
    label: str,
    fixed: tuple[str, ...],
    laid_over: Mapping[str, Entry],
    own: Mapping[str, tuple[str, Pin]],
    recommended: Recommended,
) -> Variant:
    """The variant of `trial.method`: its recommended space without fixed paths, overridden by the study's space and
    then by its own values, {location: (path, value)}; without ranges that have no effect."""
    entries = {path: found for path, found in recommended.entries.items() if path not in fixed}
    for path, entry in laid_over.items():
        if fits(trial, path) and path not in fixed:
            entries[path] = checked_entry(trial, path, entry, f"search_space.{path}"), STUDY_ORIGIN
    values: dict[str, Value] = {}
    for where, (path, entry) in own.items():
        if path in fixed:
            raise FieldError(
                where,
                f"is fixed to {value_at(trial, path)!r} by the method; remove one of the two.",
            )
        pin = checked_entry(trial, path, entry, where)
        assert isinstance(pin, Pin)
        entries[path], values[path] = (pin, OWN_ORIGIN), pin.value
    pins = {
        path: entry.value for path, (entry, _) in sorted(entries.items()) if isinstance(entry, Pin)
    }
    pinned = with_pins(trial, pins)
    searched = {
        path: entry
        for path, (entry, _) in sorted(entries.items())
        if isinstance(entry, BaseDistribution)
    }
    inert = inert_paths(pinned.method, searched).keys() - recommended.kept
    distributions = {path: entry for path, entry in searched.items() if path not in inert}
    space = Space(
        distributions,
        pins,
        _first_settings(pinned, distributions, recommended.settings),
        {path: entries[path][1] for path in sorted([*distributions, *pins])},
        recommended.settings,
    )
    return Variant(label, pinned.method, space, fixed, values)


def with_pins(trial: TrialConfig, pins: Mapping[str, Value]) -> TrialConfig:
    plain = trial.to_mapping()
    for path, value in pins.items():
        plain = with_value(plain, path, value)
    config: TrialConfig = build(TrialConfig, plain)
    return config


def differing(variant: Variant, today: Variant) -> tuple[str, ...]:
    """Searched paths that search_spaces/ now has otherwise; `tried first` for the settings to try first."""
    ours, theirs = ({**of.space.pins, **of.space.distributions} for of in (variant, today))
    paths = [path for path in sorted({*ours, *theirs}) if ours.get(path) != theirs.get(path)]
    first = ["tried first"] if variant.space.recommended != today.space.recommended else []
    return (*paths, *first)


def first_standings(trial: TrialConfig, space: Space) -> list[Default | None]:
    """Whose settings `space.defaults` are; None: the study's own. trial: the variant's."""
    searched = {path for path in space.distributions if path.startswith("method.")}
    return [
        standing(with_pins(trial, setting).method) if searched <= set(setting) else None
        for setting in space.defaults
    ]


def check_optimizer(label: str, trial: TrialConfig, space: Space) -> None:
    """Raise FieldError if a setting from which the optimizer's search should start is outside its range."""
    for path, entry in space.distributions.items():
        value = value_at(trial, path)
        if space.origins[path].startswith(OPTIMIZER_FILE) and not contains(entry, value):
            found = f"{path} of {label} is {value!r}, outside {one_line(to_plain(entry))} of {OPTIMIZER_FILE}"
            raise FieldError(
                "search_optimizer", f"{found}; write a range for it under `search_space`."
            )


def _first_settings(
    trial: TrialConfig,
    distributions: Mapping[str, BaseDistribution],
    recommended: list[dict[str, Value]],
) -> list[dict[str, Value]]:
    """The recommended settings inside the space; other paths take the study's value if that is inside too."""
    own = {path: value_at(trial, path) for path in distributions}
    own = {path: value for path, value in own.items() if contains(distributions[path], value)}
    found: list[dict[str, Value]] = []
    for setting in recommended:
        named = {
            path: typed(trial, path, value)
            for path, value in setting.items()
            if path in distributions
        }
        whole = dict(sorted({**own, **named}.items()))
        if (
            whole
            and whole not in found
            and all(contains(distributions[path], whole[path]) for path in whole)
        ):
            found.append(whole)
    return found


def check_path(
    path: str, trials: Mapping[str, TrialConfig], fixed: Mapping[str, tuple[str, ...]]
) -> None:
    """Raise FieldError unless the path is searchable for one of the methods ({label: trial})."""
    fitting = [label for label, trial in trials.items() if fits(trial, path)]
    if any(path not in fixed[label] for label in fitting):
        return
    where = f"search_space.{path}"
    if fitting:
        value = value_at(trials[fitting[0]], path)
        raise FieldError(
            where, f"is fixed to {value!r} by {' and '.join(fitting)}; remove one of the two."
        )
    if path.partition(".")[0] in {spec.name for spec in fields(TrialConfig)} and not is_searched(
        path
    ):
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
