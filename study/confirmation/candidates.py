"""The candidates of a confirmation, and the spec that retrains them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from search_spaces.space import Value
from study.analysis.pareto import complete, front, rank
from study.analysis.ranking import Ranking, set_aside_line
from study.confirmation.results import BASELINE, DEFAULT, candidate_label, default_label
from study.schema.spec import SpecError, StudySpec, spec_from_mapping
from study.schema.variant import Variant
from study.store.confirmed import RESTORE, SUFFIX, confirming_directory, missing_confirmation
from study.store.study import Study, open_directory
from study.store.trials import TrialRecord, trial_named
from trainables.config import value_at
from trainables.fields import FieldError
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
        raise SpecError(
            name, "", f"is itself a confirmation of '{search.spec.confirms}'. Confirm that one."
        )
    before = _confirmation_before(search)
    known = [] if before is None else [variant.to_mapping() for variant in before.variants]
    candidates = _chosen(search, asked) if asked.anything or before is None else []
    seeds = asked.seeds or (SEEDS if before is None else before.trials)
    plain = {
        **search.spec.to_mapping(),
        "name": name + SUFFIX,
        "confirms": name,
        "serve": search.serves,
        "methods": _with_wanted(known, candidates, search),
        "search_space": {},
        "search_optimizer": False,
        "first_seed": search.spec.first_seed + FRESH,
        "trials": seeds if before is None else max(seeds, before.trials),
        "early_stopping": None,
        "budget": None,  # what was selected is retrained to its end
        "keep_models": "all",  # all are measured on test, and the front is not known before
    }
    return spec_from_mapping(plain, name + SUFFIX, search.directory)


def _with_wanted(
    known: list[dict[str, Any]], candidates: list[TrialRecord], search: Study
) -> list[dict[str, Any]]:
    """Known entries, then the requested ones, then defaults. What agrees in all values is entered once."""
    defaults = {entry["label"]: entry for entry in _defaults(search)}
    entries, labels = list(known), {entry["label"] for entry in known}
    for record in candidates:
        label, default = candidate_label(record), defaults[default_label(record.label)]
        if not labels & {label, default_label(label)}:
            entry = {**_candidate(search.spec, record), "label": default["label"]}
            both = entry == default and default["label"] not in labels
            entries.append({**entry, "label": default_label(label) if both else label})
    covered = {
        re.sub(rf"_\d{{4,}}(?={DEFAULT}$)", "", entry["label"])
        for entry in entries
        if entry["label"] not in defaults
    }
    covered |= {entry["label"] for entry in entries}
    for label, entry in defaults.items():
        alike = ({**entry, "label": known["label"]} == known for known in entries)
        if label not in covered and not any(alike):
            entries.append(entry)
    return entries


def _confirmation_before(search: Study) -> StudySpec | None:
    directory = confirming_directory(search.directory)
    if missing := missing_confirmation(search):
        mend = f"{RESTORE}; or run the study under a new name, and confirm that."
        raise SpecError(search.name, "", f"{missing}. {mend}")
    if not (directory / "study.yaml").is_file():
        return None
    found = open_directory(directory, directory.name).spec
    if found.confirms != search.spec.name:
        raise SpecError(
            str(directory),
            "confirms",
            f"this study does not confirm '{search.spec.name}'. Rename it.",
        )
    return found


# ---- which trials --------------------------------------------------------------------------------------------------


def _chosen(search: Study, asked: Asked) -> list[TrialRecord]:
    ranking = Ranking(search, search.all_records())
    if not complete(ranking.records):
        problem = (
            "no trial is complete yet, so there is nothing to confirm. Run `calstudy run` first."
        )
        raise SpecError(search.spec.name, "", problem)
    if asked.trials:
        named = [trial_named(ranking.records, name, "--trial") for name in asked.trials]
        for record in named:
            if reason := ranking.set_aside.get(record.name):
                raise FieldError(
                    "--trial", f"{record.name} is set aside: {reason}. Choose another trial."
                )
        return list({record.name: record for record in named}.values())
    if ranking.knee is None:
        problem = f"there is nothing to confirm. {set_aside_line(ranking.set_aside)} `calstudy trials` lists them."
        raise SpecError(search.spec.name, "", problem)
    if asked.top is not None:
        return best(ranking, asked.top)
    return _distinct([*_first(ranking), *ranking.front])


def _distinct(records: Iterable[TrialRecord]) -> list[TrialRecord]:
    """The first of each group with equal values: with fresh seeds they would be identical."""
    found: dict[tuple[Any, ...], TrialRecord] = {}
    for record in records:
        found.setdefault(_setting(record), record)
    return list(found.values())


def _setting(record: TrialRecord) -> tuple[Any, ...]:
    return record.label, *sorted(record.params.items())


def _first(ranking: Ranking) -> list[TrialRecord]:
    """The trial that the answer takes before a confirmation, and the knee."""
    from study.uncertainty.recommended import recommended

    found = (recommended(ranking), ranking.knee)
    return list({record.name: record for record in found if record is not None}.values())


def best(ranking: Ranking, count: int) -> list[TrialRecord]:
    """What the answer takes before a confirmation, the knee and the front; then the front of the rest, and so on until
    there are `count` trials of distinct values.

    A front that does not fit is spread: the answer, the knee, the ends, then by the share of resamples in which a trial
    is on the front. Of two or more, the trial with the largest share is never left out. Selected on validation, like
    everything.
    """
    left, taken, first = list(ranking.eligible), list[TrialRecord](), _first(ranking)
    while left and len(taken) < count:
        layer = _distinct([*first, *front(left, ranking.study.objectives)])
        settings, known = (
            {_setting(record) for record in layer},
            {_setting(record) for record in taken},
        )
        left = [record for record in left if _setting(record) not in settings]
        fresh = [record for record in layer if _setting(record) not in known]
        room = count - len(taken)
        taken += fresh if len(fresh) <= room else _spread(ranking, fresh, first, room)
        first = [one for one in [ranking.knee_among(left)] if one is not None]
    return taken


def _spread(
    ranking: Ranking, layer: Sequence[TrialRecord], first: Sequence[TrialRecord], room: int
) -> list[TrialRecord]:
    """`room` of a front's trials, `first` of all these."""
    from study.uncertainty.bootstrap import analyse

    objectives = ranking.study.objectives
    wanted = [objective.metric for objective in objectives]
    shares = analyse(ranking.study, ranking.eligible, wanted=wanted, off_front=()).shares
    by_share = sorted(
        layer, key=lambda record: (-shares.get(record.name, 0.0), *rank(record, objectives))
    )
    ends = [
        min(layer, key=lambda record: one.sign * record.metrics[one.metric]) for one in objectives
    ]
    known = [record for record in first if record in layer]
    ordered = list({record.name: record for record in (*known, *ends, *by_share)}.values())
    if room > 1 and by_share[0] not in ordered[:room]:
        ordered.insert(room - 1, by_share[0])
    return ordered[:room]


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
        default = {
            path: value for path, value in first.items() if path in variant.space.distributions
        }
        entries.append(
            _entry(variant, default_label(variant.label), {**own, **default, **variant.space.pins})
        )
    return entries


def _own_values(spec: StudySpec, label: str, paths: Iterable[str]) -> dict[str, Value]:
    trial = spec.trial(label)
    return {path: value_at(trial, path) for path in paths}


def _entry(variant: Variant, label: str, values: dict[str, Value]) -> dict[str, Any]:
    return {**variant.to_mapping(), "label": label, "values": dict(sorted(values.items()))}
