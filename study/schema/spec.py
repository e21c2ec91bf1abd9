"""StudySpec: a study's YAML, checked and typed. Every user error in it is found here."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from search_spaces import strict_yaml
from search_spaces.space import Entry, Pin, SpaceError, parse_entry, to_plain
from study.schema.budget import Budget, check_budget
from study.schema.compatibility import RecordedSpace, leaves
from study.schema.condition import Condition, read_constraints
from study.schema.early_stopping import EarlyStopping
from study.schema.errors import SpecError as SpecError
from study.schema.extensions import use_checked_extensions
from study.schema.locations import with_absolute_paths
from study.schema.objective import RAW, TEMPERATURE, Objective, plain_name
from study.schema.recommended import Recommended, as_recorded, inert_paths, is_of, recommended
from study.schema.resources import Resources
from study.schema.variant import (
    Variant,
    build_variant,
    check_optimizer,
    check_path,
    differing,
    fixed_paths,
    read_values,
    with_pins,
)
from trainables import metrics
from trainables.config import TrialConfig, build, nested_kind
from trainables.config import to_plain as settings_to_plain
from trainables.dataset import Dataset
from trainables.fields import FieldError, Settings, check_value, choice, nearest, number, text
from trainables.loading.shift import ShiftSet
from trainables.method import Method
from trainables.model import Model
from trainables.optimizer import Optimizer

Recorded = Mapping[str, RecordedSpace]  # by label
NOTHING_RECORDED: Recorded = {}


@dataclass(frozen=True)
class Sampler(Settings):
    name: str = choice(
        "tpe", "gp", "random", doc="how values are proposed; gp: where trials last minutes"
    )
    seed: int = number(0, low=0, doc="seed of the proposals")
    pending: int | None = number(
        None,
        low=1,
        doc="a method's proposals that wait for their results; null: a sixth of its trials",
    )


def _as_in_a_trial(name: str) -> Any:
    """A field shared with TrialConfig: same default, same range."""
    spec = TrialConfig.field_named(name)
    return field(default=spec.default, metadata=spec.metadata)


@dataclass(frozen=True, kw_only=True)
class StudySpec(Settings):
    """A checked study. Its fields are the keys of the file, in order; `variants` are listed under `methods:`."""

    name: str = text(doc="[a-z0-9_-]; also the study's directory")
    data: Dataset = field(metadata={"doc": "a data set and its options"})
    model: Model = field(metadata={"doc": "a network and its options"})
    variants: tuple[Variant, ...] = field(
        metadata={"doc": "names, or labelled variants with fixed values"}
    )
    optimizer: Optimizer = field(
        default_factory=Optimizer, metadata={"doc": "how the weights are updated"}
    )
    batch_size: int = _as_in_a_trial("batch_size")
    epochs: int = _as_in_a_trial("epochs")
    seed: int = _as_in_a_trial("seed")
    first_seed: int = number(
        0, low=0, doc="trial k of every method trains from stream(seed, first_seed + k)"
    )
    precision: str = choice(
        *("float32", "bfloat16", "auto"),
        doc="of the network's passes in training; losses and results are float32; auto: bfloat16 if resources.gpu > 0",
    )
    deterministic: bool = _as_in_a_trial("deterministic")
    compile: bool = _as_in_a_trial("compile")
    result: str = _as_in_a_trial("result")
    equal_train: bool = _as_in_a_trial("equal_train")
    diagnostics: bool = _as_in_a_trial("diagnostics")
    record: str | None = _as_in_a_trial("record")
    objectives: tuple[Objective, ...] = field(
        default=(Objective("accuracy", "maximize"), Objective("ece", "minimize")),
        metadata={"doc": "what the search optimizes, on the validation split"},
    )
    constraints: tuple[Condition, ...] = field(
        default=(),
        metadata={
            "doc": "conditions of every front and choice: accuracy >= 0.9, or accuracy >= best - 0.02 (best: of the"
            " whole study)"
        },
    )
    serve: str | None = choice(
        None,
        TEMPERATURE,
        RAW,
        doc="what a registered model gives; null: what the objectives say, both must choose",
    )
    search_space: dict[str, Entry] = field(
        default_factory=dict,
        metadata={
            "doc": "overrides search_spaces/<method>.yaml; a plain value fixes the parameter"
        },
    )
    search_optimizer: bool = text(
        False,
        doc="also search the learning rate and weight decay, over search_spaces/optimizer.yaml",
    )
    shift: dict[str, ShiftSet] = field(
        default_factory=dict,
        metadata={"doc": "named sets on which `calstudy confirm` also measures its models"},
    )
    sampler: Sampler = field(default_factory=Sampler)
    trials: int = number(24, low=1, doc="trials per method")
    early_stopping: EarlyStopping | None = field(
        default=None,
        metadata={
            "doc": "stop a method's poorer trials early: {at: 0.4, keep: 0.5, by: [brier, ece]}; null: none"
        },
    )
    budget: Budget | None = text(
        None, doc="of all trials: {cpu_hours: 5} or {gpu_hours: 20}; null: no limit"
    )
    trial_minutes: float | None = number(
        None, above=0, doc="training limit; a longer trial fails; null: no limit"
    )
    resources: Resources = field(
        default_factory=Resources, metadata={"doc": "per trial; a method may override them"}
    )
    checkpoint_seconds: float = number(
        30.0, low=0, doc="seconds between checkpoints; 0: every epoch"
    )
    keep_models: str = choice("all", "front", doc="which trials keep their model.pt")
    storage: str | None = text(
        None,
        doc="folder of studies, relative to the working directory; null: $CALSTUDY_STORAGE or ./studies",
    )
    tracking: str | None = text(
        None, doc="MLflow URI, or a file or variable with it; null: embedded in the storage"
    )
    ledger: str | None = text(
        None, doc="Optuna storage: path relative to this file, or RDB URL; null: STUDY/ledger.log"
    )
    extensions: str | None = _as_in_a_trial("extensions")
    confirms: str | None = text(
        None, doc="the study whose candidates this one retrains; written by `calstudy confirm`"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not re.fullmatch(r"[a-z0-9_][a-z0-9_-]*", self.name):
            valid = re.sub(r"[^a-z0-9_-]+", "_", self.name.lower()).strip("_-")
            hint = f" Write '{valid}'?" if valid else ""
            raise FieldError(
                "name",
                f"may contain only a-z, 0-9, _ and - (- not first), got '{self.name}'.{hint}",
            )
        if self.name == "artifacts":
            raise FieldError(
                "name",
                "'artifacts' is where the embedded MLflow keeps its files; use another name.",
            )
        for key in ("storage", "tracking", "ledger"):
            if getattr(self, key) == "":
                raise FieldError(key, "is empty; write null, or remove the key.")
        if self.early_stopping is not None:
            with _under("early_stopping"):
                searched = {one.label: one.space.distributions for one in self.variants}
                self.early_stopping.check(
                    self.epochs, {one: (self.trial(one), of) for one, of in searched.items()}
                )
        check_budget(
            self.budget, {one.label: self.resources_of(one.label) for one in self.variants}
        )

    def variant(self, label: str) -> Variant:
        """The variant with that label; FieldError with the nearest label if there is none."""
        found = {variant.label: variant for variant in self.variants}
        if label not in found:
            raise FieldError(
                "methods", f"there is no label '{label}'.{nearest(label, list(found))}"
            )
        return found[label]

    @property
    def trained_in(self) -> str:
        """The precision of its trials: float32 or bfloat16."""
        return (
            self.precision
            if self.precision != "auto"
            else "bfloat16"
            if self.resources.gpu
            else "float32"
        )

    def resources_of(self, label: str) -> Resources:
        """The label's own resources, else the study's."""
        return self.variant(label).resources or self.resources

    def seed_number(self, number: int) -> int:
        """The number in the config of trial `number` of every label, which seeds its random streams."""
        return self.first_seed + number

    def trial(self, label: str) -> TrialConfig:
        """The base config of a label: the study's values with the label's pins."""
        variant = self.variant(label)
        shared = {name: getattr(self, name) for name in _shared_with_a_trial()} | {
            "precision": self.trained_in
        }
        return with_pins(TrialConfig(method=variant.method, **shared), variant.space.pins)

    def trial_mapping(self, label: str) -> dict[str, Any]:
        """`trial` in plain values, for `TrialConfig.from_mapping(mapping, values)`."""
        return {
            key: value for key, value in self.trial(label).to_mapping().items() if key != "number"
        }

    def to_mapping(self) -> dict[str, Any]:
        """Every key in plain values; `spec_from_mapping` reads it back as an equal spec."""
        plain: dict[str, Any] = {}
        for spec in fields(self):
            value = getattr(self, spec.name)
            plain[key_of(spec)] = settings_to_plain(value) if isinstance(value, Settings) else value
        plain["methods"] = [variant.to_mapping() for variant in self.variants]
        plain["objectives"] = [settings_to_plain(objective) for objective in self.objectives]
        plain["constraints"] = [str(constraint) for constraint in self.constraints]
        plain["shift"] = {name: shift_set.to_mapping() for name, shift_set in self.shift.items()}
        plain["search_space"] = {path: to_plain(entry) for path, entry in self.search_space.items()}
        return plain

    def meaning(self) -> dict[str, Any]:
        """What a trial means, in plain values; must not change once there are trials."""
        plain = self.to_mapping()
        kept = (*_shared_with_a_trial(), "first_seed", "confirms", "objectives", "sampler")
        meaning = {
            key: value for key, value in plain.items() if key in kept and key != "extensions"
        }
        meaning["precision"] = self.trained_in
        meaning["sampler"] = {
            key: value for key, value in meaning["sampler"].items() if key != "pending"
        }
        # The data may move; its digest identifies it.
        meaning["data"] = {key: value for key, value in meaning["data"].items() if key != "path"}
        meaning["methods"] = {variant.label: _meaning_of(variant) for variant in self.variants}
        if (
            self.early_stopping is not None
        ):  # a meaning without it is of a study that stops no trial
            meaning["early_stopping"] = plain["early_stopping"]
        return meaning


def _meaning_of(variant: Variant) -> dict[str, Any]:
    """Its fixed values, ranges and pins; and the settings to try first, which are recorded and may change."""
    space = variant.space
    values = leaves(settings_to_plain(variant.method), "method.")
    fixed = {path: value for path, value in values if path not in space.origins}
    ranges = {path: to_plain(entry) for path, entry in space.distributions.items()}
    whole = dict(sorted({**ranges, **space.pins}.items()))
    return {"fixed": fixed, "space": whole, "defaults": space.recommended}


def _shared_with_a_trial() -> list[str]:
    """The keys a study passes to its trials unchanged."""
    own = {spec.name for spec in fields(StudySpec)}
    return [spec.name for spec in fields(TrialConfig) if spec.name in own]


def key_of(spec: Field[Any]) -> str:
    """The key in the file for a field."""
    return "methods" if spec.name == "variants" else spec.name


KEYS = tuple(key_of(spec) for spec in fields(StudySpec))
REQUIRED = tuple(
    key_of(spec)
    for spec in fields(StudySpec)
    if spec.default is MISSING and spec.default_factory is MISSING
)


def read_spec(path: Path, recorded: Recorded = NOTHING_RECORDED, **overrides: Any) -> StudySpec:
    """The study in a file, with `overrides` of its keys (`trials=8`; None: not given).

    recorded: by label, what the study keeps if it has begun; `store.study.read_study_spec` finds it. Raises SpecError,
    and nothing else, for any invalid file.
    """
    try:
        plain = strict_yaml.read(path)
    except strict_yaml.YamlError as error:
        raise SpecError(path.name, error.path, error.problem) from None
    given = {key: value for key, value in overrides.items() if value is not None}
    if isinstance(plain, dict):
        plain = {**plain, **given}
    return spec_from_mapping(plain, path.name, path.absolute().parent, recorded)


def spec_from_mapping(
    mapping: Any, file_name: str, folder: Path | None = None, recorded: Recorded = NOTHING_RECORDED
) -> StudySpec:
    """The study in plain values; relative paths of data and extensions are resolved from `folder` (default: cwd)."""
    try:
        return _read(mapping, folder or Path.cwd(), recorded)
    except (FieldError, SpaceError) as error:
        raise SpecError(file_name, error.path, error.problem) from None


def _read(plain: Any, folder: Path, recorded: Recorded) -> StudySpec:
    needed = f"a study needs {', '.join(REQUIRED[:-1])} and {REQUIRED[-1]}."
    if plain is None:
        raise FieldError("", f"is empty; {needed}")
    if not isinstance(plain, Mapping):
        raise FieldError("", f"must be a mapping of keys, got {type(plain).__name__}; {needed}")
    for key in plain:
        if key not in KEYS:
            raise FieldError(str(key), f"there is no key '{key}'.{nearest(key, list(KEYS))}")
    for key in REQUIRED:
        if key not in plain:
            raise FieldError(key, f"is missing; {needed}")
    plain = with_absolute_paths(plain, folder)
    use_checked_extensions(
        check_value(StudySpec, StudySpec.field_named("extensions"), plain.get("extensions"))
    )
    taken: dict[str, Any] = {}
    for spec in fields(StudySpec):
        if spec.name in plain and spec.name not in (
            "objectives",
            "constraints",
            "search_space",
            "shift",
        ):
            taken[spec.name] = _read_field(spec, plain[spec.name])
    if "objectives" in plain:
        taken["objectives"] = _read_objectives(plain["objectives"])
    objectives = taken.get("objectives", StudySpec.field_named("objectives").default)
    taken["constraints"] = read_constraints(plain.get("constraints"), objectives)
    taken["shift"] = _read_shift(plain.get("shift"))
    taken["search_space"], taken["variants"] = _read_variants(plain, taken, recorded)
    return StudySpec(**taken)


def _read_field(spec: Field[Any], value: Any) -> Any:
    kind = nested_kind(StudySpec, spec.name)
    if kind is None or (value is None and spec.default is None):
        return check_value(StudySpec, spec, value)
    with _under(spec.name):
        return build(kind, value)


@contextmanager
def _under(path: str) -> Iterator[None]:
    """Prefix the path of FieldErrors raised inside."""
    try:
        yield
    except FieldError as error:
        raise error.under(path) from None


def _read_objectives(plain: Any) -> tuple[Objective, ...]:
    if not isinstance(plain, list) or not plain:
        raise FieldError("objectives", f"must be a list of one or more objectives, got {plain!r}.")
    found: list[Objective] = []
    for index, entry in enumerate(plain):
        where = f"objectives[{index}]"
        if not isinstance(entry, Mapping):
            problem = f"must be a mapping such as {{metric: accuracy, direction: maximize}}, got {entry!r}."
            raise FieldError(where, problem)
        if "direction" not in entry and "metric" in entry:
            raise FieldError(f"{where}.direction", "is missing; write maximize or minimize.")
        with _under(where):
            objective: Objective = build(Objective, entry)
        if objective.metric in [other.metric for other in found]:
            raise FieldError(
                f"{where}.metric", f"'{objective.metric}' is listed twice; remove one."
            )
        found.append(objective)
    return tuple(found)


def _read_shift(plain: Any) -> dict[str, ShiftSet]:
    plain = {} if plain is None else plain
    if not isinstance(plain, Mapping):
        raise FieldError("shift", f"must map names to data sets, got {plain!r}.")
    found = {}
    for name, shift_set in plain.items():
        if not isinstance(name, str) or not re.fullmatch(r"[a-z0-9_]+", name):
            raise FieldError(
                "shift", f"the name of a set may contain only a-z, 0-9 and _, got {name!r}."
            )
        with _under(f"shift.{name}"):
            found[name] = ShiftSet.read(shift_set)
    return found


def _read_variants(
    plain: Mapping[str, Any], taken: Mapping[str, Any], recorded: Recorded
) -> tuple[dict[str, Entry], tuple[Variant, ...]]:
    """The study's search space, and its methods with their spaces."""
    # A trial has no `precision: auto`, and no space depends on the precision.
    shared = {
        name: taken[name]
        for name in _shared_with_a_trial()
        if name in taken and name != "precision"
    }
    trials: dict[str, TrialConfig] = {}
    fixed: dict[str, tuple[str, ...]] = {}
    own_resources: dict[str, Resources] = {}
    own_values: dict[str, dict[str, Pin]] = {}
    written = plain["methods"]
    if not isinstance(written, list) or not written:
        raise FieldError("methods", f"must be a list of one or more methods, got {written!r}.")
    for index, entry in enumerate(written):
        where = f"methods[{index}]"
        own = dict(entry) if isinstance(entry, Mapping) else {"name": entry}
        if not isinstance(own.get("name"), str):
            problem = (
                f"must be a method name, or a mapping with `name` and its fields, got {entry!r}."
            )
            raise FieldError(where, problem)
        label = own.pop("label", own["name"])
        with _under(where):
            if "resources" in own:
                own_resources[label] = _read_resources(own.pop("resources"), taken)
            values = read_values(own.pop("values", {}))
            method: Method = build(Method, own)
        if not isinstance(label, str) or not re.fullmatch(r"[a-z0-9_]+", label):
            raise FieldError(f"{where}.label", f"may contain only a-z, 0-9 and _, got {label!r}.")
        if label in trials:
            problem = f"methods[{list(trials).index(label)}] already has label '{label}'; give one of them another."
            raise FieldError(f"{where}.label", problem)
        trials[label], fixed[label] = TrialConfig(method=method, **shared), fixed_paths(method, own)
        own_values[label] = values
    space = _read_search_space(plain.get("search_space"), trials, fixed)
    on = taken.get("search_optimizer", False)
    variants = []
    for index, (label, trial) in enumerate(trials.items()):
        own_pins = {
            f"methods[{index}].values.{path}": (path, pin)
            for path, pin in own_values[label].items()
        }
        variant_of = partial(build_variant, trial, label, fixed[label], space, own_pins)
        # A confirmation searches nothing: each of its values is written.
        today = Recommended({}, []) if taken.get("confirms") is not None else recommended(trial, on)
        variant, before = variant_of(today), recorded.get(label)
        if before is not None and is_of(trial, before):
            kept = variant_of(as_recorded(trial, today, before, on))
            if before.enqueued:
                # What an older study enqueued may be the first of what search_spaces/ still has: then all of that.
                whole = variant_of(as_recorded(trial, today, replace(before, defaults=None), on))
                enqueued = before.defaults or []
                kept = whole if whole.space.defaults[: len(enqueued)] == enqueued else kept
            variant = replace(kept, kept=differing(kept, variant))
        check_optimizer(label, with_pins(trial, variant.space.pins), variant.space)
        variants.append(replace(variant, resources=own_resources.get(label)))
    _check_effect(space, variants)
    return space, tuple(variants)


def _check_effect(space: Mapping[str, Entry], variants: list[Variant]) -> None:
    """Raise FieldError for a range that has no effect in any method."""
    for path, entry in space.items():
        if isinstance(entry, Pin) or any(path in variant.space.origins for variant in variants):
            continue
        inert = {
            variant.label: inert_paths(variant.method, variant.space.distributions)
            for variant in variants
        }
        label, why = next((label, found[path]) for label, found in inert.items() if path in found)
        raise FieldError(f"search_space.{path}", f"has no effect in {label} ({why}); remove it.")


def _read_resources(plain: Any, taken: Mapping[str, Any]) -> Resources:
    """A method's own resources; the study's for what it leaves out."""
    shared = settings_to_plain(taken.get("resources", Resources()))
    with _under("resources"):
        own: Resources = build(
            Resources, {**shared, **plain} if isinstance(plain, Mapping) else plain
        )
    return own


def _read_search_space(
    plain: Any, trials: Mapping[str, TrialConfig], fixed: Mapping[str, tuple[str, ...]]
) -> dict[str, Entry]:
    # `search_space:` with all its lines commented out reads as null.
    plain = {} if plain is None else plain
    if not isinstance(plain, Mapping):
        raise FieldError("search_space", f"must map paths to ranges, got {plain!r}.")
    for path in plain:
        check_path(path, trials, fixed)
    return {path: parse_entry(f"search_space.{path}", entry) for path, entry in plain.items()}


def check_objectives(spec: StudySpec, num_classes: int, file_name: str = "study.yaml") -> None:
    """Raise SpecError if an objective is undefined for that many classes."""
    available = set(metrics.available(num_classes))
    for index, objective in enumerate(spec.objectives):
        if plain_name(objective.metric) not in available:
            problem = f"{objective.metric} is undefined for {num_classes} classes; use accuracy, or other data."
            raise SpecError(file_name, f"objectives[{index}].metric", problem)


def refuse_confirmation(spec: StudySpec, file_name: str) -> None:
    """Raise SpecError for a confirmation: only `confirm` may run it, because it then opens the test split."""
    if spec.confirms is not None:
        raise SpecError(
            file_name,
            "confirms",
            f"only `calstudy confirm {spec.confirms}` creates and resumes this study.",
        )
