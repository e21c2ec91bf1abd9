"""`try_first: [{from: STUDY}]`: the settings of another study's front, looked up once.

A study that has begun has them in its study.yaml.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from study.analysis.pareto import front
from study.analysis.ranking import Ranking
from study.schema.errors import LedgerError, SpecError, located
from study.schema.reading import ParsedSpec, parse_spec
from study.schema.spec import StudySpec
from study.schema.try_first import (
    OTHER_DATA,
    OTHER_SPLIT,
    SAME,
    Front,
    Taken,
    Try,
    Values,
    read_try_first,
    taken_for,
)
from study.store.study import Study, begun, open_study
from trainables.dataset import Dataset
from trainables.files.home import default_cache
from trainables.loading.cache import data_digests

MOST = 5  # settings of a method
T = TypeVar("T")


def spec_and_study_with_fronts(
    path: Path, storage: str | None, **overrides: Any
) -> tuple[StudySpec, Study | None]:
    """As `spec_and_study`, with the fronts that the file takes: see `begun_with_fronts`."""
    return begun_with_fronts(parse_spec(path, **overrides), storage)


def begun_with_fronts(parsed: ParsedSpec, storage: str | None) -> tuple[StudySpec, Study | None]:
    """As `begun`, with the fronts that the spec takes: as the study recorded them, else as they are
    now. Raises SpecError for one that cannot be taken."""

    def looked_up(parsed: ParsedSpec, stored: Study | None) -> ParsedSpec:
        known = _recorded(stored)

        def of(tries: Sequence[Try], where: str) -> tuple[Try, ...]:
            found = list(tries)
            for index, one in enumerate(tries):
                if isinstance(one, Taken) and not one.split:
                    place = f"{where}[{index}]"
                    found[index] = known.get(one.study) or _taken(one.study, parsed, place, storage)
            return tuple(found)

        values = {**parsed.values, "try_first": of(parsed.values["try_first"], "try_first")}
        methods = {
            label: replace(one, try_first=of(one.try_first, f"methods[{index}].try_first"))
            for index, (label, one) in enumerate(parsed.methods.items())
        }
        return ParsedSpec(parsed.file_name, values, methods)

    return begun(parsed, storage, looked_up)


def _recorded(stored: Study | None) -> dict[str, Taken]:
    """What a study that has begun took, by the study it took it from."""
    if stored is None:
        return {}
    plain = [stored.plain.get("try_first")]
    plain += [entry.get("try_first") for entry in stored.plain["methods"]]
    with located(str(stored.directory / "study.yaml")):
        tries = [one for each in plain for one in read_try_first(each)]
    return {one.study: one for one in tries if isinstance(one, Taken) and one.split}


def _taken(name: str, parsed: ParsedSpec, where: str, storage: str | None) -> Taken:
    """The front of the study of that name, as it is now."""
    file = parsed.file_name
    if name == parsed.name:
        raise SpecError(file, f"{where}.from", "is this study itself", "Name another.")
    try:
        study = open_study(name, storage or parsed.storage)
        ranking = Ranking(study, study.records())
    except SpecError as error:
        found = f"{error.file_name}: {error.found}"
        raise SpecError(file, f"{where}.from", found, error.mend) from None
    except LedgerError as error:
        raise type(error)(f"{file}: {where}.from: {name}: {error.found}", error.mend) from None
    if not ranking.eligible:
        mend = "Run it first, or remove this entry."
        raise SpecError(file, f"{where}.from", f"{name} has no trial that counts yet", mend)
    fronts = {}
    for label, space in study.recorded_spaces.items():
        if settings := front_settings(ranking, label):
            fronts[label] = Front(dict(space.parts), settings)
    with located(file, "data"):
        split = _split(parsed.values, study)
    return Taken(name, study.id, split, fronts)


def front_settings(ranking: Ranking, label: str) -> list[Values]:
    """The settings of a method on the study's front, then of those on its own; at most MOST."""
    objectives = ranking.study.objectives
    own = [record for record in ranking.eligible if record.label == label]
    joint = [record for record in ranking.front if record.label == label]
    found: list[Values] = []
    for records in (joint, front(own, objectives)):
        more: list[Values] = []
        for record in records:
            if record.params and record.params not in (*found, *more):
                more.append(dict(record.params))
        found += spread(more, MOST - len(found))
    return found


def spread(items: Sequence[T], room: int) -> list[T]:
    """As many as there is room for, evenly from the first to the last."""
    if len(items) <= room:
        return list(items)
    if room < 2:
        return list(items[:room])
    return [items[round(place * (len(items) - 1) / (room - 1))] for place in range(room)]


def _split(values: Mapping[str, Any], other: Study) -> str:
    """How the other study's data are to those of a spec with these values."""
    data: Dataset = values["data"]
    seed = values.get("seed", StudySpec.field_named("seed").default)
    recorded = other.recorded.data_digest
    found = data_digests(data, seed)
    # Old code's, where identical samples are together now.
    is_before = recorded == found.apart and (default_cache() / found.together).exists()
    if recorded in found and not is_before:
        return SAME
    theirs = other.plain["data"]
    share = theirs.get("validation", data.validation) if isinstance(theirs, Mapping) else None
    alike = data if share is None else replace(data, validation=share)
    known = recorded in data_digests(alike, int(other.plain["seed"]))
    return OTHER_SPLIT if known else OTHER_DATA


# ---- what is said of it --------------------------------------------------------------------------


def taken_lines(spec: StudySpec) -> list[str]:
    """What `plan` says of each front that is taken: how much of it, and of which data it is."""
    lines = []
    for taken in spec.taken:
        counts = {}
        left = 0
        for variant in spec.variants:
            if taken in (*variant.try_first, *spec.try_first):
                can, cannot = taken_for(spec.searches(variant.label), taken)
                counts[variant.label] = len(can)
                left += len(cannot)
        each = ", ".join(f"{count} of {label}" for label, count in counts.items() if count)
        line = f"from {taken.study}: the settings of its front ({each or 'none of these methods'})"
        if left:
            line += f"; {left} left out, which lie outside the ranges here or are fixed otherwise"
        lines.append(f"{line}.")
        if taken.note:
            lines.append(f"warning: {taken.note}")
    return lines
