"""A study's YAML, read as a StudySpec. Every user error in it is found here."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import Field, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from search_spaces import strict_yaml
from search_spaces.space import Entry, Pin, check_order, parse_entry, when_of
from study.schema.compatibility import RecordedSpace
from study.schema.condition import Condition, read_constraints
from study.schema.conditions import check_searched, without_effect
from study.schema.errors import SpecError, check_keys, located, under
from study.schema.matters import read_matters
from study.schema.objective import Objective, named_objective
from study.schema.recommendations import (
    Recommended,
    as_recorded,
    is_of,
    kept_values,
    recommendation,
)
from study.schema.resources import Resources
from study.schema.spec import LONGEST_NAME, REQUIRED, StudySpec, key_of, shared_keys
from study.schema.try_first import read_try_first
from study.schema.variant import (
    Variant,
    Written,
    build_variant,
    check_optimizer,
    check_path,
    check_try_first,
    differing,
    fixed_paths,
    read_values,
    with_pins,
)
from trainables import data, methods, metrics, models
from trainables.config import TrialConfig, build, nested_kind
from trainables.config import to_plain as settings_to_plain
from trainables.fields import check_value, expanded, is_file
from trainables.loading.shift import ShiftSet
from trainables.method import Method
from trainables.plain import Plain
from trainables.plugins import extension_folder, own_stems, use_extensions
from trainables.problems import FieldError, nearest

RecordedSpaces = Mapping[str, RecordedSpace]  # by label
Values = dict[str, Any]  # of StudySpec's fields, by name
KEYS = [key_of(spec.name) for spec in fields(StudySpec)]
# Each has a reader of its own below.
READ_APART = ("objectives", "matters", "constraints", "search_space", "shift", "try_first")


@dataclass(frozen=True)
class ParsedSpec:
    """A study as its file words it, checked. Its methods have no search spaces yet.

    values: of StudySpec's fields, without `variants`. methods: the entries of `methods:` by label.
    """

    file_name: str
    values: Values
    methods: dict[str, Written]

    @property
    def name(self) -> str:
        return str(self.values["name"])

    @property
    def storage(self) -> str | None:
        storage: str | None = self.values.get("storage")
        return storage

    def spec(self, recorded: RecordedSpaces | None = None) -> StudySpec:
        """The study, with the spaces that search_spaces/ recommends under the file's own words.

        recorded: by label, what the study keeps, if it has begun. Raises SpecError.
        """
        with located(self.file_name):
            variants = []
            for index, label in enumerate(self.methods):
                before = (recorded or {}).get(label)
                variants.append(self._variant(label, f"methods[{index}]", before))
            space = self.values["search_space"]
            check_searched(space, [one.space.distributions for one in variants])
            self._check_effect(space, variants)
            spec = StudySpec(variants=tuple(variants), **self.values)
            check_try_first(spec.try_first, [spec.searches(one.label) for one in variants])
            return spec

    def _variant(self, label: str, where: str, before: RecordedSpace | None) -> Variant:
        one = self.methods[label]
        begun = before is not None and is_of(one.trial, before)
        values = kept_values(one.trial, one.fixed, before) if before is not None and begun else {}
        one = replace(one, trial=with_pins(one.trial, values))
        on = self.values.get("search_optimizer", False)
        # A confirmation searches nothing: each of its values is written.
        searches = self.values.get("confirms") is None
        today = recommendation(one.trial, on) if searches else Recommended({}, [])
        over = self.values["search_space"]
        shared = self.values["try_first"]
        variant_of = partial(build_variant, label, one, where, over, shared)
        variant = variant_of(today)
        if before is not None and begun:
            kept = variant_of(as_recorded(one.trial, today, before, on))
            differs = tuple(dict.fromkeys((*values, *differing(kept, variant))))
            variant = replace(kept, kept=differs, kept_values=values)
        check_optimizer(label, with_pins(one.trial, variant.space.pins), variant.space)
        return variant

    def _check_effect(self, space: Mapping[str, Entry], variants: list[Variant]) -> None:
        """Raise FieldError for a range that has no effect in any method."""
        for path, entry in space.items():
            if isinstance(entry, Pin) or any(path in one.space.origins for one in variants):
                continue
            for variant in variants:
                trial = with_pins(self.methods[variant.label].trial, variant.space.pins)
                inert = without_effect(trial, variant.space.distributions)
                if path in inert:
                    raise FieldError(
                        f"search_space.{path}",
                        f"has no effect in {variant.label} ({inert[path]})",
                        "Remove it.",
                    )


def parse_spec(path: Path, **overrides: Any) -> ParsedSpec:
    """What a file says, with `overrides` of its keys (`trials=8`; None: not given).

    Opens no study. Raises SpecError, and nothing else, for any invalid file.
    """
    with located(path.name):
        plain = strict_yaml.read(path)
    if isinstance(plain, dict) and "recorded" in plain:
        raise SpecError(
            path.name,
            "recorded",
            f"this is the record of the study '{plain.get('name')}', not a spec",
            "Go on with it: `calstudy run` and its folder. For a new study, remove `recorded` and"
            " change `name`.",
        )
    if isinstance(plain, dict):
        plain |= {key: value for key, value in overrides.items() if value is not None}
    return parse_mapping(plain, path.name, path.absolute().parent)


def parse_mapping(
    mapping: Any, file_name: str, folder: Path | None = None, *, recorded: bool = False
) -> ParsedSpec:
    """What plain values say; their relative paths are resolved from `folder` (default: cwd).

    recorded: they are a study's own, whose names may be longer than those of a new one.
    """
    with located(file_name):
        parsed = ParsedSpec(file_name, *_parse(mapping, folder or Path.cwd()))
        if not recorded:
            _check_lengths(parsed)
    return parsed


def _check_lengths(parsed: ParsedSpec) -> None:
    """Raise FieldError for a name that no folder or file can have, with what is added to it."""
    names = {f"methods[{index}].label": label for index, label in enumerate(parsed.methods)}
    names |= {f"shift.{name}": name for name in parsed.values["shift"]}
    for where, name in {"name": parsed.name, **names}.items():
        if len(name) > LONGEST_NAME:
            found = f"has {len(name)} characters, more than {LONGEST_NAME}: '{name[:20]}...'"
            raise FieldError(where, found, "Shorten it.")


def read_spec(path: Path, **overrides: Any) -> StudySpec:
    """The study in a file, as if it had not begun; else as `parse_spec`."""
    return parse_spec(path, **overrides).spec()


def spec_from_mapping(mapping: Any, file_name: str, folder: Path | None = None) -> StudySpec:
    """The study in plain values, as if it had not begun; else as `parse_mapping`."""
    return parse_mapping(mapping, file_name, folder).spec()


def _parse(plain: Any, folder: Path) -> tuple[Values, dict[str, Written]]:
    check_keys(plain, "study", KEYS, REQUIRED)
    plain = _with_absolute_paths(plain, folder)
    extensions = StudySpec.field_named("extensions")
    _use_checked_extensions(check_value(StudySpec, extensions, plain.get("extensions")))
    plain["model"] = _model_from(plain["model"], folder)
    taken: Values = {}
    for spec in fields(StudySpec):
        if spec.name in plain and spec.name not in READ_APART:
            taken[spec.name] = _read_field(spec, plain[spec.name])
    if "objectives" in plain:
        taken["objectives"] = _read_objectives(plain["objectives"])
    objectives = taken.get("objectives", StudySpec.field_named("objectives").default)
    taken["matters"] = read_matters(plain.get("matters"), objectives)
    taken["constraints"] = read_constraints(plain.get("constraints"), objectives)
    _check_measurable(objectives, taken["constraints"])
    taken["shift"] = _read_shift(plain.get("shift"))
    taken["try_first"] = read_try_first(plain.get("try_first"))
    written = _read_methods(plain["methods"], taken)
    taken["search_space"] = _read_search_space(plain.get("search_space"), written)
    return taken, written


def _with_absolute_paths(plain: Mapping[str, Plain], folder: Path) -> dict[str, Plain]:
    """Resolve relative paths of data, extensions and ledger from the folder of the study's file."""

    def located(dataset: Plain, where: str) -> Plain:
        if not isinstance(dataset, Mapping):
            return dataset
        named = [name for name in path_options(dataset) if name in dataset]
        return {
            **dataset,
            **{name: _absolute(dataset[name], folder, f"{where}.{name}") for name in named},
        }

    done = dict(plain)
    if "data" in done:
        done["data"] = located(done["data"], "data")
    shift = done.get("shift")
    if isinstance(shift, Mapping):
        done["shift"] = {name: located(of, f"shift.{name}") for name, of in shift.items()}
    if done.get("extensions") == "":
        raise FieldError("extensions", "is empty", "Write null, or remove the key.")
    for key in ("extensions", "ledger"):
        if key in done:
            done[key] = _absolute(done[key], folder, key)
    return done


def path_options(dataset: Mapping[str, Plain]) -> tuple[str, ...]:
    """The options of a data set that are paths."""
    name = dataset.get("name")
    if not {"group", "classes", "vectors"} & dataset.keys() or name not in data.names():
        return ("path",)
    return tuple(one.name for one in fields(data.find(str(name))) if "is_path" in one.metadata)


def _absolute(path: Plain, folder: Path, where: str) -> Plain:
    if not isinstance(path, str) or not path or "://" in path:
        return path
    return os.path.abspath(folder / expanded(path, where))


def _model_from(model: Plain, folder: Path) -> Plain:
    """The network, with the files of its settings resolved as other paths are."""
    if not isinstance(model, Mapping) or model.get("name") not in models.names():
        return model
    named = {
        spec.name
        for spec in fields(models.find(str(model["name"])))
        if is_file(spec, model.get(spec.name))
    }
    found = {name: _absolute(model[name], folder, f"model.{name}") for name in named}
    return {**model, **found}


def _use_checked_extensions(directory: str | None) -> None:
    """Register the folder's names, and load each of its files to check it; of metrics the texts."""
    use_extensions(directory)
    metrics.check_own()
    for package in (methods, models, data):
        short = package.__name__.rpartition(".")[2]
        folder = extension_folder(short)
        if folder is not None:
            package.names()  # raises for a name that calstudy already has
            for name in own_stems(folder):
                package.find(name)
    spaces = extension_folder("search_spaces")
    for name in own_stems(spaces, ".yaml") if spaces is not None else ():
        if name not in methods.names():
            found = f"search_spaces/{name}.yaml: there is no method '{name}'"
            raise FieldError("extensions", found, nearest(name, methods.names()))


def _read_field(spec: Field[Any], value: Any) -> Any:
    kind = nested_kind(StudySpec, spec.name)
    if kind is None or (value is None and spec.default is None):
        return check_value(StudySpec, spec, value)
    with under(spec.name):
        return build(kind, value)


def _read_objectives(plain: Any) -> tuple[Objective, ...]:
    if not isinstance(plain, list) or not plain:
        raise FieldError("objectives", f"must be a list of one or more objectives, got {plain!r}")
    found: dict[str, Objective] = {}
    for index, entry in enumerate(plain):
        where = f"objectives[{index}]"
        objective = _objective(entry, where)
        metric = objective.metric
        if metric in found:
            raise FieldError(f"{where}.metric", f"'{metric}' is listed twice", "Remove one.")
        found[metric] = objective
    return tuple(found.values())


def _objective(entry: Any, where: str) -> Objective:
    """A metric by name, in its better direction, or with a direction."""
    if isinstance(entry, str):
        return named_objective(entry, where)
    if not isinstance(entry, Mapping):
        example = "{metric: accuracy, direction: maximize}"
        raise FieldError(where, f"must be a metric or a mapping such as {example}, got {entry!r}")
    if "direction" not in entry and "metric" in entry:
        raise FieldError(f"{where}.direction", "is missing", "Write maximize or minimize.")
    with under(where):
        objective: Objective = build(Objective, entry)
    return objective


def _check_measurable(objectives: Sequence[Objective], constraints: Sequence[Condition]) -> None:
    """Raise FieldError for a metric of the extensions of another study than this."""
    for index, objective in enumerate(objectives):
        with under(f"objectives[{index}].metric"):
            metrics.check_measurable(objective.metric)
    for index, condition in enumerate(constraints):
        with under(f"constraints[{index}]"):
            metrics.check_measurable(condition.metric)


def _mapping(key: str, plain: Any, needed: str) -> Mapping[str, Any]:
    # A key with all its lines commented out reads as null.
    if plain is None:
        return {}
    if not isinstance(plain, Mapping):
        raise FieldError(key, f"must map {needed}, got {plain!r}")
    return plain


def _read_shift(plain: Any) -> dict[str, ShiftSet]:
    found = {}
    for name, shift_set in _mapping("shift", plain, "names to data sets").items():
        if not isinstance(name, str) or not re.fullmatch(r"[a-z0-9_]+", name):
            raise FieldError(
                "shift", f"the name of a set may contain only a-z, 0-9 and _, got {name!r}"
            )
        with under(f"shift.{name}"):
            found[name] = ShiftSet.read(shift_set)
    return found


def _read_methods(plain: object, taken: Mapping[str, Any]) -> dict[str, Written]:
    if not isinstance(plain, list) or not plain:
        raise FieldError("methods", f"must be a list of one or more methods, got {plain!r}")
    # A trial has no `precision: auto`, and no space depends on the precision.
    names = {*shared_keys()} - {"precision"}
    shared = {name: value for name, value in taken.items() if name in names}
    found: dict[str, Written] = {}
    for index, entry in enumerate(plain):
        where = f"methods[{index}]"
        own = dict(entry) if isinstance(entry, Mapping) else {"name": entry}
        if not isinstance(own.get("name"), str):
            needed = "must be a method name, or a mapping with `name` and its fields"
            raise FieldError(where, f"{needed}, got {entry!r}")
        label = own.pop("label", own["name"])
        resources = None
        with under(where):
            if "resources" in own:
                usual = taken.get("resources", Resources())
                resources = _read_resources(own.pop("resources"), usual)
            values = read_values(own.pop("values", {}))
            tries = read_try_first(own.pop("try_first", None))
            method: Method = build(Method, own)
        _check_label(f"{where}.label", label, list(found))
        trial = TrialConfig(method=method, **shared)
        found[label] = Written(trial, fixed_paths(method, own), values, resources, tries)
    return found


def _check_label(where: str, label: object, others: list[str]) -> None:
    if not isinstance(label, str) or not re.fullmatch(r"[a-z0-9_]+", label):
        raise FieldError(where, f"may contain only a-z, 0-9 and _, got {label!r}")
    if label in others:
        raise FieldError(
            where,
            f"methods[{others.index(label)}] already has label '{label}'",
            "Give one of them another.",
        )


def _read_resources(plain: Any, usual: Resources) -> Resources:
    """A method's own resources; the study's, `usual`, for what it leaves out."""
    if isinstance(plain, Mapping):
        plain = {**settings_to_plain(usual), **plain}
    with under("resources"):
        own: Resources = build(Resources, plain)
    return own


def _read_search_space(plain: Any, written: Mapping[str, Written]) -> dict[str, Entry]:
    entries = _mapping("search_space", plain, "paths to ranges")
    for path in entries:
        check_path(path, written)
    found = {path: parse_entry(f"search_space.{path}", entry) for path, entry in entries.items()}
    check_order(found, "search_space")
    for path, entry in found.items():
        for key in when_of(entry):
            try:
                check_path(key, written)
            except FieldError as error:
                raise error.at(f"search_space.{path}.when.{key}") from None
    return found
