"""The candidates of a confirmation, and the spec that retrains them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from study.analysis.pareto import measured_in
from study.analysis.ranking import Ranking, excluded_line
from study.analysis.rule import decide, in_units
from study.answer.confirmation import (
    BASELINE,
    DEFAULT,
    Results,
    candidate_label,
    default_label,
)
from study.schema.errors import SpecError
from study.schema.objective import RAW, TEMPERATURE
from study.schema.reading import parse_mapping
from study.schema.spec import StudySpec
from study.schema.variant import Variant
from study.store.confirmed import RESTORE, SUFFIX, can_confirm_itself, confirming_directory
from study.store.recorded import FIRST, LEAST, Race
from study.store.study import StudyFolder
from study.store.trials import TrialRecord, Trials
from trainables.config import value_at
from trainables.methods.cross_entropy import CrossEntropy
from trainables.plain import Plain, Value
from trainables.problems import FieldError

# Far above the trials of any search, so these seeds are fresh. The splits depend only on the
# study's seed.
FRESH = 1_000_000
SEEDS = 3  # of each, where they do not race
LOWEST = 8
Entry = dict[str, Plain]  # of `methods:`


@dataclass(frozen=True)
class Asked:
    """The requested trials, all of these: the `top` lowest sums of the answer's rule, the front
    (`pareto`), those named, and the best of `each` method; by default the front and so many
    `candidates` with the lowest sums.

    seeds: of each. Without it they race: until, at_most, trainings as in `Race`. defaults: whether
    other defaults than cross-entropy's join. calibrators: scored on test too.
    """

    top: int | None = None
    pareto: bool = False
    each: bool = False
    trials: tuple[str, ...] = ()
    seeds: int | None = None
    candidates: int | None = None
    until: float | None = None
    at_most: int | None = None
    trainings: int | None = None
    defaults: bool = False
    calibrators: tuple[str, ...] = ()

    @property
    def anything(self) -> bool:
        return self.top is not None or self.pareto or self.each or bool(self.trials)

    @property
    def race(self) -> dict[str, Any]:
        """What is said of the race."""
        said = {"until": self.until, "at_most": self.at_most, "trainings": self.trainings}
        return {name: value for name, value in said.items() if value is not None}


def confirms_itself(found: Results) -> bool:
    """Whether the study's own trials are measured: it has no search, and was not retrained yet."""
    begun = found.confirmation is not None or found.missing is not None
    return found.study.confirms_itself or (can_confirm_itself(found.study) and not begun)


def check_own(found: Results, asked: Asked) -> None:
    """Raise SpecError if other than the study's own trials are asked, or if not all have ended."""
    study = found.study
    if asked.anything or asked.race or asked.candidates or asked.defaults:
        has = "has no search, so there is nothing to choose: its own trials are measured"
        raise SpecError(study.name, "", has, "Leave out what chooses trials or limits a race.")
    if asked.seeds not in (None, study.planned):
        has = f"has no search: its {study.planned} trials for each method are its seeds"
        mend = "Leave it out: all of them are measured."
        if asked.seeds is not None and asked.seeds > study.planned:
            mend = f"Add some first: `{study.command('run', trials=asked.seeds)}`."
        raise SpecError(study.name, "--seeds", has, mend)
    if found.lacking:
        verb = "trial has" if found.lacking == 1 else "trials have"
        mend = f"Run `{study.goes_on}` first."
        raise SpecError(study.name, "", f"{found.lacking:,} {verb} not ended", mend)


def confirming_spec(found: Results, asked: Asked) -> tuple[StudySpec, Race | None]:
    """The spec that retrains the requested candidates and earlier ones, and how they race; None:
    each has as many seeds. Raises SpecError, FieldError.

    It is the search's spec with every searched value fixed; its trials are seeds.
    """
    search = found.study
    name = search.spec.name
    if search.spec.confirms is not None:
        raise SpecError(
            name, "", f"is itself a confirmation of '{search.spec.confirms}'", "Confirm that one."
        )
    before = _confirmation_before(found)
    known = [] if before is None else [one.to_mapping() for one in before.spec.variants]
    chooses = asked.anything or asked.candidates is not None or before is None
    candidates = _chosen(found.ranking, asked) if chooses else []
    races = _races(before, candidates, asked)
    entries = _with_wanted(known, candidates, search, asked, races)
    race = _race(before, entries, asked) if races else None
    raced = before is not None and before.recorded.race is not None
    one_by_one = search.stack is None or races or raced
    begun = 0 if found.confirmation is None else _most_begun(found.confirmation.records)
    if race is not None:
        seeds = max(race.at_most, begun)
    else:
        seeds = max(asked.seeds or SEEDS, begun)
        if before is not None and not raced:
            seeds = max(asked.seeds or 0, before.spec.trials)
    plain = {
        **search.spec.to_mapping(),
        "name": name + SUFFIX,
        "confirms": name,
        "serve": search.serves,
        "methods": entries,
        "search_space": {},
        "try_first": [],
        "search_optimizer": False,
        "first_seed": search.spec.first_seed + FRESH,
        "trials": seeds,
        "stack": "off" if one_by_one else search.spec.stack,
        "early_stopping": None,
        "budget": None,  # what was selected is retrained to its end
        "keep_models": "all",  # all are measured on test, and the front is not known before
    }
    parsed = parse_mapping(plain, name + SUFFIX, search.directory, recorded=True)
    return parsed.spec(None if before is None else before.recorded_spaces), race


def _races(before: StudyFolder | None, candidates: Sequence[TrialRecord], asked: Asked) -> bool:
    """Whether candidates race: not if `seeds` are asked, not one alone, and not those that are only
    named. What has begun goes on as it did."""
    if asked.seeds is not None:
        return False
    if asked.race:
        return True
    if before is not None:
        return before.recorded.race is not None
    named_alone = asked.trials and not (asked.top or asked.pareto or asked.each)
    return len(candidates) > 1 and not named_alone


def _race(before: StudyFolder | None, entries: Sequence[Entry], asked: Asked) -> Race:
    was = None if before is None else before.recorded.race
    plain = [_label(entry) for entry in entries if entry["name"] == BASELINE]
    also = [label for label in plain if label.endswith(DEFAULT)]
    race = replace(was or Race(least=LEAST), **asked.race, also=also)
    least = FIRST * len(entries)
    if race.trainings is not None and race.trainings < least:
        problem = f"{race.trainings} do not give {len(entries)} models {FIRST} seeds each"
        raise FieldError("--trainings", problem, f"Allow {least}, or confirm fewer.")
    return race


def _most_begun(records: Trials) -> int:
    return max(map(len, records.by_label.values()), default=0)


def _with_wanted(
    known: list[Entry],
    candidates: list[TrialRecord],
    search: StudyFolder,
    asked: Asked,
    races: bool,
) -> list[Entry]:
    """Known entries, then the requested ones, then defaults; what agrees in all values once.

    Resumed, it has the defaults that it had: all, or cross-entropy's alone, as with `each` and in a
    race without `defaults`.
    """
    defaults = {_label(entry): entry for entry in _defaults(search)}
    others = {label for label, entry in defaults.items() if entry["name"] != BASELINE}
    entries = list(known)
    labels = set(map(_label, known))
    without_others = (asked.each or races) and not asked.defaults
    if known and not (asked.anything or asked.defaults):
        without_others = not others & labels
    for record in candidates:
        label = candidate_label(record)
        default = defaults[default_label(record.label)]
        if not labels & {label, default_label(label)}:
            entry = {**_candidate(search.spec, record), "label": default["label"]}
            both = entry == default and _label(default) not in labels
            entries.append({**entry, "label": default_label(label) if both else label})
    labels = set(map(_label, entries))
    covered = labels | {
        re.sub(rf"_\d{{4,}}(?={DEFAULT}$)", "", label) for label in labels - defaults.keys()
    }
    for label, entry in defaults.items():
        if without_others and label in others:
            continue
        alike = ({**entry, "label": known["label"]} == known for known in entries)
        if label not in covered and not any(alike):
            entries.append(entry)
    return entries


def _confirmation_before(found: Results) -> StudyFolder | None:
    search = found.study
    if found.missing:
        mend = f"{RESTORE}; or run the study under a new name, and confirm that."
        raise SpecError(search.name, "", found.missing, mend)
    if found.confirmation is not None:
        return found.confirmation.study
    directory = confirming_directory(search.directory)
    if (directory / "study.yaml").is_file():
        raise SpecError(
            str(directory),
            "confirms",
            f"this study does not confirm '{search.spec.name}'",
            "Rename it.",
        )
    return None


# ---- which trials --------------------------------------------------------------------------------


def _chosen(ranking: Ranking, asked: Asked) -> list[TrialRecord]:
    name = ranking.study.name
    if not ranking.records.complete:
        raise SpecError(
            name,
            "",
            "no trial is complete yet, so there is nothing to confirm",
            f"Run `{ranking.study.goes_on}` first.",
        )
    named = [ranking.records.named(one, "--trial") for one in asked.trials]
    for record in named:
        if reason := ranking.refused.get(record.name):
            raise FieldError(
                "--trial", f"{record.name} is excluded: {reason}", "Choose another trial."
            )
    if named and not (asked.top or asked.pareto or asked.each):
        return _distinct(named)
    if ranking.knee is None:
        raise SpecError(
            name,
            "",
            "there is nothing to confirm",
            f"{excluded_line(ranking.excluded)} `{ranking.study.command('trials')}` lists them.",
        )
    found: list[TrialRecord] = []
    if asked.top is not None:
        found += lowest(ranking, asked.top)
    if asked.pareto or not asked.anything:
        found += [*_first(ranking), *ranking.front]
    if asked.candidates is not None or not asked.anything:
        found += lowest(ranking, asked.candidates or LOWEST)
    if asked.each:
        found += best_of_each(ranking)
    return _distinct([*found, *named])


def _distinct(records: Iterable[TrialRecord]) -> list[TrialRecord]:
    """The first of each group with equal values: with fresh seeds they would be identical."""
    found: dict[tuple[Any, ...], TrialRecord] = {}
    for record in records:
        found.setdefault(record.setting, record)
    return list(found.values())


def _first(ranking: Ranking) -> list[TrialRecord]:
    """The trial that the answer takes before a confirmation, and the knee."""
    decision = decide(ranking.study, ranking.eligible)
    found = [decision.taken if decision is not None else None, ranking.knee]
    return list({record.name: record for record in found if record is not None}.values())


def lowest(ranking: Ranking, count: int) -> list[TrialRecord]:
    """The trials of distinct values with the lowest sums of the answer's rule, which takes the
    first. The front leaves out some that are not far behind in either objective."""
    study = ranking.study
    measured = measured_in(ranking.eligible, study.served)
    ranked = sorted(measured, key=lambda one: math.fsum(in_units(study, one).values()))
    return _distinct(ranked)[:count]


def best_of_each(ranking: Ranking) -> list[TrialRecord]:
    """Each method's trials that the answer's rule takes: as trained, and with its temperature.

    Of a method whose trials are all far worse than the best of the study, its best of these.
    """
    study = ranking.study
    found = []
    for label in study.labels:
        own = ranking.records.complete.of(label)
        counted = [one for one in own if one.name not in ranking.excluded]
        allowed = counted or [one for one in own if one.name not in ranking.refused]
        for serves in (RAW, TEMPERATURE):
            decision = decide(study.served_as(serves), allowed)
            found += [decision.taken] if decision is not None else []
    return found


# ---- as entries under `methods:` -----------------------------------------------------------------


def _candidate(spec: StudySpec, record: TrialRecord) -> Entry:
    variant = spec.variant(record.label)
    # A path that is searched only now had the study's value then.
    values = variant.space.held({**_own_values(spec, variant), **record.params})
    values |= variant.space.pins | record.params
    return _entry(variant, candidate_label(record), values)


def _defaults(search: StudyFolder) -> list[Entry]:
    """Each searched method's default over the study's values; and cross-entropy's."""
    plain = search.spec.to_mapping()
    if not any(isinstance(variant.method, CrossEntropy) for variant in search.spec.variants):
        plain["methods"] = [*map(Variant.to_mapping, search.spec.variants), BASELINE]
    parsed = parse_mapping(plain, search.spec.name, search.directory, recorded=True)
    spec = parsed.spec(search.recorded_spaces)
    entries = []
    for variant in spec.variants:
        own = _own_values(spec, variant)
        # Even where the study's own range excludes it.
        first = variant.space.recommended[0] if variant.space.recommended else {}
        default = {path: first[path] for path in first if path in variant.space.distributions}
        values = {**variant.space.held({**own, **default}), **variant.space.pins}
        entries.append(_entry(variant, default_label(variant.label), values))
    return entries


def _own_values(spec: StudySpec, variant: Variant) -> dict[str, Value]:
    trial = spec.trial(variant.label)
    return {path: value_at(trial, path) for path in variant.space.distributions}


def _label(entry: Entry) -> str:
    return str(entry["label"])


def _entry(variant: Variant, label: str, values: dict[str, Value]) -> Entry:
    values = {**variant.kept_values, **values}
    entry = {**variant.to_mapping(), "label": label, "values": dict(sorted(values.items()))}
    entry.pop("try_first", None)  # nothing is searched
    return entry
