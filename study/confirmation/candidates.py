"""The candidates of a confirmation, and the spec that retrains them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from search_spaces.space import Value
from study.analysis.pareto import complete, front, knee
from study.confirmation.results import BASELINE, DEFAULT, SUFFIX, candidate_label, confirming_directory, default_label
from study.schema.objective import Objective
from study.schema.spec import SpecError, StudySpec, spec_from_mapping
from study.schema.variant import Variant
from study.store.study import Study, open_directory
from study.store.trials import TrialRecord, trial_named
from trainables.config import value_at
from trainables.methods.cross_entropy import CrossEntropy

# Far above the trials of any search, so these seeds are fresh. The splits depend only on the study's seed.
FRESH = 1_000_000
SEEDS = 3


@dataclass(frozen=True)
class Asked:
    """The requested trials: the best `top`, the front (`pareto`), or those named; by default the front."""

    top: int | None = None
    pareto: bool = False
    trials: tuple[str, ...] = ()
    seeds: int | None = None

    @property
    def anything(self) -> bool:
        return self.top is not None or self.pareto or bool(self.trials)


def confirming_spec(search: Study, asked: Asked) -> StudySpec:
    """The spec that retrains the requested candidates and earlier ones. Raises SpecError, FieldError.

    It is the search's spec with every searched value fixed; its trials are seeds.
    """
    name = search.spec.name
    if search.spec.confirms is not None:
        raise SpecError(name, "", f"is itself a confirmation of '{search.spec.confirms}'. Confirm that one.")
    before = _confirmation_before(search)
    known = [] if before is None else [variant.to_mapping() for variant in before.variants]
    candidates = _chosen(search, asked) if asked.anything or before is None else []
    seeds = asked.seeds or (SEEDS if before is None else before.trials)
    plain = {
        **search.spec.to_mapping(),
        "name": name + SUFFIX,
        "confirms": name,
        "methods": _with_wanted(known, candidates, search),
        "search_space": {},
        "search_optimizer": False,
        "first_seed": search.spec.first_seed + FRESH,
        "trials": seeds if before is None else max(seeds, before.trials),
        "keep_models": "all",  # all are measured on test, and the front is not known before
    }
    return spec_from_mapping(plain, name + SUFFIX, search.directory)


def _with_wanted(known: list[dict[str, Any]], candidates: list[TrialRecord], search: Study) -> list[dict[str, Any]]:
    """Known entries, then the requested ones. A candidate equal to its method's default is entered once."""
    defaults = {entry["label"]: entry for entry in _defaults(search)}
    entries, labels = list(known), {entry["label"] for entry in known}
    for record in candidates:
        label, default = candidate_label(record), defaults[default_label(record.label)]
        if not labels & {label, default_label(label)}:
            entry = {**_candidate(search.spec, record), "label": default["label"]}
            both = entry == default and default["label"] not in labels
            entries.append({**entry, "label": default_label(label) if both else label})
    covered = {
        re.sub(rf"_\d{{4,}}(?={DEFAULT}$)", "", entry["label"]) for entry in entries if entry["label"] not in defaults
    }
    covered |= {entry["label"] for entry in entries}
    return [*entries, *(entry for label, entry in defaults.items() if label not in covered)]


def _confirmation_before(search: Study) -> StudySpec | None:
    directory = confirming_directory(search.directory)
    if not (directory / "study.yaml").is_file():
        return None
    found = open_directory(directory, directory.name).spec
    if found.confirms != search.spec.name:
        raise SpecError(str(directory), "confirms", f"this study does not confirm '{search.spec.name}'. Rename it.")
    return found


# ---- which trials --------------------------------------------------------------------------------------------------


def _chosen(search: Study, asked: Asked) -> list[TrialRecord]:
    records = search.all_records()
    finished = complete(records)
    if not finished:
        problem = "no trial is complete yet, so there is nothing to confirm. Run `calstudy run` first."
        raise SpecError(search.spec.name, "", problem)
    if asked.trials:
        named = [trial_named(records, name, "--trial") for name in asked.trials]
        return list({record.name: record for record in named}.values())
    if asked.top is not None:
        return best(finished, search.spec.objectives, asked.top)
    return _distinct(front(finished, search.spec.objectives))


def _distinct(records: Iterable[TrialRecord]) -> list[TrialRecord]:
    """The first of each group with equal values: with fresh seeds they would be identical."""
    found: dict[tuple[Any, ...], TrialRecord] = {}
    for record in records:
        found.setdefault((record.label, *sorted(record.params.items())), record)
    return list(found.values())


def best(records: Sequence[TrialRecord], objectives: Sequence[Objective], count: int) -> list[TrialRecord]:
    """The front, then the front of the rest, and so on until there are `count` trials with distinct values.

    If a front does not fit, its knee comes first. Selected on validation, like everything.
    """
    left, taken = list(records), list[TrialRecord]()
    while left and len(taken) < count:
        layer = front(left, objectives)
        compromise = [knee(layer, objectives)] if len(taken) + len(layer) > count else []
        taken = _distinct([*taken, *(one for one in compromise if one is not None), *layer])
        left = [record for record in left if record not in layer]
    return taken[:count]


# ---- as entries under `methods:` -----------------------------------------------------------------------------------


def _candidate(spec: StudySpec, record: TrialRecord) -> dict[str, Any]:
    variant = spec.variant(record.label)
    # A path that is searched only now had the study's value then.
    own = _own_values(spec, record.label, variant.space.distributions)
    return _entry(variant, candidate_label(record), {**own, **variant.space.pins, **record.params})


def _defaults(search: Study) -> list[dict[str, Any]]:
    """Each searched method's default over the study's values; and cross-entropy's."""
    plain = search.spec.to_mapping()
    if not any(isinstance(variant.method, CrossEntropy) for variant in search.spec.variants):
        plain["methods"] = [*plain["methods"], BASELINE]
    spec = spec_from_mapping(plain, search.spec.name, search.directory, search.recorded_spaces)
    entries = []
    for variant in spec.variants:
        own = _own_values(spec, variant.label, variant.space.distributions)
        # Even where the study's own range excludes it.
        first = variant.space.recommended[0] if variant.space.recommended else {}
        default = {path: value for path, value in first.items() if path in variant.space.distributions}
        entries.append(_entry(variant, default_label(variant.label), {**own, **default, **variant.space.pins}))
    return entries


def _own_values(spec: StudySpec, label: str, paths: Iterable[str]) -> dict[str, Value]:
    trial = spec.trial(label)
    return {path: value_at(trial, path) for path in paths}


def _entry(variant: Variant, label: str, values: dict[str, Value]) -> dict[str, Any]:
    return {**variant.to_mapping(), "label": label, "values": dict(sorted(values.items()))}
