"""StudySpec: a study, checked and typed, and its plain form."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

from search_spaces.conditions import in_words
from search_spaces.space import Entry, to_plain
from study.schema.compatibility import A_FILE, MethodMeaning, leaves
from study.schema.condition import Condition
from study.schema.early_stopping import EarlyStopping
from study.schema.errors import SpecError, located, under
from study.schema.matters import check_matters
from study.schema.objective import SERVED, Objective, plain_name
from study.schema.resources import Budget, Resources, check_budget
from study.schema.try_first import EXAMPLE, Searches, Values
from study.schema.uris import refuse_database, refuse_password
from study.schema.variant import Variant, with_pins
from trainables import metrics
from trainables.config import TrialConfig, required
from trainables.config import to_plain as settings_to_plain
from trainables.dataset import Dataset
from trainables.fields import Settings, choice, is_file, number, setting, words_or_number
from trainables.loading.shift import ShiftSet
from trainables.model import Model
from trainables.optimizer import Optimizer
from trainables.plain import Plain
from trainables.problems import FieldError, nearest
from trainables.stacks import why_alone


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


def _of_a_trial(name: str) -> Any:
    """A field of TrialConfig, with its default and range."""
    spec = TrialConfig.field_named(name)
    return field(default=spec.default, metadata=spec.metadata)


@dataclass(frozen=True, kw_only=True)
class StudySpec(Settings):
    """A checked study. Its fields are the file's keys in order; `methods:` lists `variants`."""

    name: str = setting(doc="[a-z0-9_-]; also the study's directory")
    data: Dataset = setting(doc="a data set and its options")
    model: Model = setting(doc="a network and its options")
    variants: tuple[Variant, ...] = setting(doc="names, or labelled variants with fixed values")
    optimizer: Optimizer = setting(Optimizer(), doc="how the weights are updated")
    batch_size: int = _of_a_trial("batch_size")
    epochs: int = _of_a_trial("epochs")
    seed: int = _of_a_trial("seed")
    first_seed: int = number(
        0, low=0, doc="trial k of every method draws its random numbers by seed and first_seed + k"
    )
    precision: str = choice(
        *("float32", "bfloat16", "auto"),
        doc=(
            "of the network's passes in training; losses and results are float32; auto: bfloat16 if"
            " resources.gpu > 0"
        ),
    )
    deterministic: bool = _of_a_trial("deterministic")
    compile: bool = _of_a_trial("compile")
    capture: str = _of_a_trial("capture")
    result: str = _of_a_trial("result")
    equal_train: bool = _of_a_trial("equal_train")
    diagnostics: bool = _of_a_trial("diagnostics")
    record: str | None = _of_a_trial("record")
    objectives: tuple[Objective, ...] = setting(
        (Objective("accuracy", "maximize"), Objective("ece", "minimize")),
        doc="what the search optimizes, on the validation split",
    )
    matters: dict[str, float] = field(
        default_factory=dict,
        metadata={
            "doc": (
                "smallest difference that matters in an objective: {accuracy: 0.01}; default: its"
                " metric's"
            )
        },
    )
    constraints: tuple[Condition, ...] = setting(
        (),
        doc=(
            "conditions of every front and choice: accuracy >= 0.9, or accuracy >= best - 0.02"
            " (best: of the whole study)"
        ),
    )
    guard: str = choice(
        "auto",
        "off",
        doc=(
            "auto: exclude a trial whose accuracy (else miou, error) is worse than the best by more"
            " than ten times the smallest difference that matters, and not by noise"
        ),
    )
    serve: str | None = choice(
        None,
        *SERVED,
        doc=(
            "whether registered models have a temperature or are as trained; either: validation"
            " decides; null: temperature for objectives such as ts_ece, else either"
        ),
    )
    search_space: dict[str, Entry] = field(
        default_factory=dict,
        metadata={
            "doc": "overrides search_spaces/<method>.yaml; a plain value fixes the parameter"
        },
    )
    try_first: tuple[Values, ...] = setting(
        (), doc=f"settings tried before the published defaults: {EXAMPLE}"
    )
    search_optimizer: bool = setting(
        False,
        doc="also search the learning rate and weight decay, over search_spaces/optimizer.yaml",
    )
    shift: dict[str, ShiftSet] = field(
        default_factory=dict,
        metadata={"doc": "named sets on which `calstudy confirm` also measures its models"},
    )
    sampler: Sampler = Sampler()
    trials: int = number(24, low=1, doc="trials per method")
    stack: int | str = words_or_number(
        *("auto", "off"),
        low=2,
        doc=(
            "train at most so many trials as one program; auto: as many as pay, said by `calstudy"
            " plan`"
        ),
    )
    early_stopping: EarlyStopping | None = setting(
        None,
        doc=(
            "stop a method's poorer trials early: {at: 0.4, keep: 0.5, by: [brier, ece]}; null:"
            " none"
        ),
    )
    budget: Budget | None = setting(
        None, doc="of all trials: {cpu_hours: 5} or {gpu_hours: 20}; null: no limit"
    )
    trial_minutes: float | None = number(
        None, above=0, doc="training limit; a longer trial fails; null: no limit"
    )
    resources: Resources = setting(Resources(), doc="per trial; a method may override them")
    checkpoint_seconds: float = number(
        30.0, low=0, doc="seconds between checkpoints; 0: every epoch"
    )
    keep_models: str = choice("all", "front", doc="which trials keep their model.pt")
    storage: str | None = setting(
        None,
        doc=(
            "folder of studies, relative to the working directory; null: $CALSTUDY_STORAGE or"
            " ./studies"
        ),
    )
    tracking: str | None = setting(
        None, doc="MLflow URI, or a file or variable with it; null: embedded in the storage"
    )
    ledger: str | None = setting(
        None, doc="file on the driver's own disk, relative to this file; null: STUDY/ledger.log"
    )
    extensions: str | None = _of_a_trial("extensions")
    confirms: str | None = setting(
        None, doc="the study whose candidates this one retrains; written by `calstudy confirm`"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_name(self.name)
        for key in ("storage", "tracking", "ledger"):
            if getattr(self, key) == "":
                raise FieldError(key, "is empty", "Write null, or remove the key.")
        refuse_database(self.ledger)
        for key in ("storage", "tracking"):
            refuse_password(getattr(self, key), key)
        if self.early_stopping is not None:
            with under("early_stopping"):
                searched = {one.label: one.space.distributions for one in self.variants}
                trials = {label: (self.trial(label), of) for label, of in searched.items()}
                self.early_stopping.check(self.epochs, trials)
        check_budget(self.budget, self.needs)
        if self.sampler.name == "gp":
            _check_gp(self.variants)
        if isinstance(self.stack, int):
            _check_stack(self)

    def variant(self, label: str) -> Variant:
        """The variant with that label; FieldError with the nearest label if there is none."""
        found = {one.label: one for one in self.variants}
        if label not in found:
            raise FieldError("methods", f"there is no label '{label}'", nearest(label, list(found)))
        return found[label]

    @property
    def trained_in(self) -> str:
        """The precision of its trials: float32 or bfloat16."""
        if self.precision != "auto":
            return self.precision
        return "bfloat16" if self.resources.gpu else "float32"

    def resources_of(self, label: str) -> Resources:
        """The label's own resources, else the study's."""
        return self.variant(label).resources or self.resources

    @property
    def needs(self) -> dict[str, Resources]:
        """By label, what a trial needs."""
        return {one.label: one.resources or self.resources for one in self.variants}

    @cached_property
    def alone(self) -> dict[str, str]:
        """By label whose trials cannot be stacked, why."""
        reasons = {one.label: why_alone(self.trial(one.label)) for one in self.variants}
        return {label: why for label, why in reasons.items() if why is not None}

    @property
    def stackable(self) -> list[str]:
        """The labels whose trials can be stacked."""
        return [one.label for one in self.variants if one.label not in self.alone]

    def seed_number(self, number: int) -> int:
        """The number that seeds the random streams of trial `number` of every label."""
        return self.first_seed + number

    def trial(self, label: str) -> TrialConfig:
        """The base config of a label: the study's values with the label's pins."""
        variant = self.variant(label)
        shared = {name: getattr(self, name) for name in shared_keys()}
        shared["precision"] = self.trained_in
        return with_pins(TrialConfig(method=variant.method, **shared), variant.space.pins)

    @property
    def first_in_words(self) -> str:
        """`each method's defaults are`, after what comes before them."""
        own = [one.label for one in self.variants if one.space.own]
        before = f"the study's own settings ({', '.join(own)}), then " if own else ""
        return f"{before}each method's defaults are"

    def changed_settings(self) -> dict[str, Plain]:
        """The settings of each training that are not the defaults, without data, model and
        optimizer."""
        plain = {key: getattr(self, key) for key in shared_keys()} | {"precision": self.trained_in}
        usual = {each.name: each.default for each in fields(TrialConfig)}
        parts = ("data", "model", "optimizer")
        return {
            key: value for key, value in plain.items() if key not in parts and value != usual[key]
        }

    def searches(self, label: str) -> Searches:
        """The label, as settings are tried in it."""
        space = self.variant(label).space
        return Searches(label, self.trial(label), space.distributions, space.whens)

    def trial_mapping(self, label: str) -> dict[str, Plain]:
        """`trial` in plain values, for `TrialConfig.from_mapping(mapping, values)`."""
        plain = self.trial(label).to_mapping()
        del plain["number"]
        return plain

    def to_mapping(self) -> dict[str, Plain]:
        """Every key in plain values; `spec_from_mapping` reads it back as an equal spec."""
        settings = settings_to_plain(self)
        plain: dict[str, Plain] = {key_of(name): value for name, value in settings.items()}
        plain["methods"] = [variant.to_mapping() for variant in self.variants]
        plain["objectives"] = [settings_to_plain(objective) for objective in self.objectives]
        plain["try_first"] = [dict(one) for one in self.try_first]
        plain["constraints"] = [str(constraint) for constraint in self.constraints]
        plain["shift"] = {name: shift_set.to_mapping() for name, shift_set in self.shift.items()}
        plain["search_space"] = {path: to_plain(entry) for path, entry in self.search_space.items()}
        return plain

    def meaning(self) -> dict[str, Plain]:
        """The meaning of a trial, in plain values; must not change once there are trials."""
        plain = self.to_mapping()
        kept = {*shared_keys(), "first_seed", "confirms", "objectives", "sampler"}
        kept -= {"extensions", "capture"}
        meaning = {key: value for key, value in plain.items() if key in kept}
        meaning["precision"] = self.trained_in
        meaning["sampler"] = _without("pending", self.sampler)
        # Data and weights may move; their digests identify them.
        meaning["data"] = _without_paths(self.data)
        meaning["model"] = _without_files(self.model)
        methods = {one.label: _meaning_of(one).to_plain() for one in self.variants}
        meaning["methods"] = methods
        # Without the key, the study stops no trial.
        if self.early_stopping is not None:
            meaning["early_stopping"] = plain["early_stopping"]
        # What `auto` came to is recorded with the study.
        if self.stack != "auto":
            meaning["stack"] = self.stack
        return meaning


LONGEST_NAME = 100  # characters of a name or label: a file's, with what is added to it, has 255


def _check_name(name: str) -> None:
    if not re.fullmatch(r"[a-z0-9_][a-z0-9_-]*", name):
        valid = re.sub(r"[^a-z0-9_-]+", "_", name.lower()).strip("_-")
        hint = f"Write '{valid}'?" if valid else ""
        raise FieldError(
            "name", f"may contain only a-z, 0-9, _ and - (- not first), got '{name}'", hint
        )
    if name == "artifacts":
        raise FieldError(
            "name", "'artifacts' is where the embedded MLflow keeps its files", "Use another name."
        )


def _check_gp(variants: Iterable[Variant]) -> None:
    """Raise FieldError where some ranges are conditional: it would draw those at random."""
    for variant in variants:
        for path, when in variant.space.whens.items():
            keys = " and ".join(when)
            found = f"gp cannot search {path} of {variant.label} only where {in_words(when)}"
            raise FieldError("sampler.name", found, f"Write tpe, or fix {keys} or {path}.")


def _check_stack(spec: StudySpec) -> None:
    """Raise FieldError if the trials of a study that asks for stacks cannot be stacked."""
    if spec.early_stopping is not None:
        found = "early_stopping ends trials one by one, and a stack trains its own to the end"
        raise FieldError("stack", found, "Write off, or remove early_stopping.")
    alone = spec.alone
    if len(alone) == len(spec.variants):
        raise FieldError("stack", f"no trial can be stacked: {alone_in_words(alone)}", "Write off.")
    for label in spec.stackable:
        if 0 < (share := spec.resources_of(label).gpu) < 1:
            found = f"trials of {label} share a GPU (resources.gpu: {share:g}), which a stack fills"
            raise FieldError("stack", found, "Write gpu: 1, or stack: off.")


def alone_in_words(alone: Mapping[str, str]) -> str:
    """`cnn has no stacked form`, or by label where they differ, `a: ...; b: ...`."""
    if len(set(alone.values())) == 1:
        return next(iter(alone.values()))
    return "; ".join(f"{label}: {why}" for label, why in alone.items())


def _without(key: str, settings: Settings) -> dict[str, Plain]:
    return {name: value for name, value in settings_to_plain(settings).items() if name != key}


def _without_paths(data: Settings) -> dict[str, Plain]:
    files = {one.name for one in fields(data) if "is_path" in one.metadata and one.name != "path"}
    plain = _without("path", data)
    return {
        name: A_FILE if name in files and isinstance(value, str) else value
        for name, value in plain.items()
    }


def _without_files(settings: Settings) -> dict[str, Plain]:
    files = {one.name for one in fields(settings) if is_file(one, getattr(settings, one.name))}
    plain = settings_to_plain(settings)
    return {name: A_FILE if name in files else value for name, value in plain.items()}


def _meaning_of(variant: Variant) -> MethodMeaning:
    space = variant.space
    values = leaves(settings_to_plain(variant.method), "method.")
    fixed = {path: value for path, value in values if path not in space.origins}
    ranges = {path: to_plain(entry) for path, entry in space.ranges.items()}
    whole = dict(sorted({**ranges, **space.pins}.items()))
    tried = (space.own, space.defaults) if space.own else ([], [])
    return MethodMeaning(fixed, whole, space.recommended, *tried)


def shared_keys() -> list[str]:
    """The keys a study passes to its trials unchanged."""
    own = {spec.name for spec in fields(StudySpec)}
    return [spec.name for spec in fields(TrialConfig) if spec.name in own]


def key_of(name: str) -> str:
    """The key in the file for a field."""
    return "methods" if name == "variants" else name


REQUIRED = [key_of(spec.name) for spec in required(StudySpec)]


def check_objectives(spec: StudySpec, num_classes: int, file_name: str = "study.yaml") -> None:
    """Raise SpecError if an objective is undefined for the classes, or has no unit that matters."""
    available = set(metrics.available(num_classes))
    for index, objective in enumerate(spec.objectives):
        if plain_name(objective.metric) not in available:
            raise SpecError(
                file_name,
                f"objectives[{index}].metric",
                f"{objective.metric} is undefined for {num_classes} classes",
                "Use accuracy, or other data.",
            )
    with located(file_name):
        check_matters(spec.objectives, spec.matters)


def refuse_confirmation(spec: StudySpec, file_name: str) -> None:
    """Raise SpecError for a confirmation: only `confirm` may run it, as it opens the test split."""
    if spec.confirms is not None:
        raise SpecError(
            file_name,
            "confirms",
            f"only `calstudy confirm {spec.confirms}` creates and resumes this study",
        )
