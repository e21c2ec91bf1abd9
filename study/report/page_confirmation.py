"""The confirmation on a study's report page, as plain values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from study.answer.choice import rows_that_count
from study.answer.confirmation import default_texts
from study.report.page_numbers import number, spread
from study.schema.objective import RAW, TEMPERATURE, as_served, changes_with_temperature, plain_name
from study.store.study import StudyFolder
from study.uncertainty.forms import floor_text
from trainables.plain import Plain

if TYPE_CHECKING:
    from study.answer.confirmation import Confirmation, Confirmed
    from study.answer.sizes import Floors, Sizes


def confirmed(
    study: StudyFolder,
    confirmation: Confirmation,
    measured: Sequence[str],
    sizes: Sizes | None = None,
) -> dict[str, Plain]:
    """The selected trials: validation in the search, validation and test with fresh seeds.

    Lists are in the order of `measured`. `floors`: {split: {index of the metric: [mean, low,
    high]}}.
    """
    rows = confirmation.rows
    texts = default_texts(confirmation)
    _, aside = rows_that_count(study, rows)
    plain: list[Plain] = []
    samples: dict[str, int] = {}
    dropped: dict[str, int] = {}
    for row in rows:
        role = texts.get(row.label, row.role)
        if row.label in aside:
            role += ", excluded"
        named = {"label": row.label, "name": row.name, "role": role}
        plain.append(named | _values(row, measured, sizes))
        samples |= row.shift_samples
        dropped |= row.shift_dropped
    return {
        "name": confirmation.study.spec.name,
        "itself": confirmation.study.confirms_itself,
        "opened": any(row.tests for row in rows),
        "cautions": confirmation.cautions,
        "compared": "" if sizes is None else sizes.compared,
        "rows": plain,
        "shifts": _names(row.shifts for row in rows),
        "shift_samples": samples,
        "shift_dropped": dropped,
    }


def _values(row: Confirmed, measured: Sequence[str], sizes: Sizes | None) -> dict[str, Plain]:
    searched: Mapping[str, float] = {}
    if row.candidate is not None:
        searched = row.candidate.metrics
    floors: dict[str, Plain] = {"validation": {}, "test": {}}
    lost: Mapping[str, float] = {}
    if sizes is not None:
        floors["validation"] = _floors(row.label, measured, sizes.validation)
        floors["test"] = _floors(row.label, measured, sizes.test)
        lost = sizes.shrinkage.get(row.label, {})
    return {
        "candidate": None if row.candidate is None else row.candidate.name,
        "seeds": len(row.records),
        "searched": [number(searched.get(name)) for name in measured],
        "validation": [
            _over(name, [record.metrics for record in row.records]) for name in measured
        ],
        "test": [_over(name, row.tests) for name in measured],
        "floors": floors,
        "shrinkage": [number(lost.get(name)) for name in measured],
        "shifts": {
            shift: {name: _over(name, found) for name in _names(found)}
            for shift, found in row.shifts.items()
        },
    }


def options_of(confirmation: Confirmation) -> dict[str, object]:
    """The options of `calstudy confirm` that give these rows; none where nothing was retrained."""
    if confirmation.study.confirms_itself:
        return {}
    trials = [row.candidate.name for row in confirmation.rows if row.candidate is not None]
    if confirmation.study.recorded.race is not None:
        return {"trial": trials, "until": confirmation.study.recorded.race.until}
    return {"trial": trials, "seeds": confirmation.study.spec.trials}


def shown_floors(study: StudyFolder) -> list[str]:
    """The test metrics on the page that may have a floor: the objectives and ECE, both ways."""
    shown = []
    for name in dict.fromkeys([*(plain_name(one.metric) for one in study.objectives), "ece"]):
        if changes_with_temperature(name):
            shown += [as_served(name, RAW), as_served(name, TEMPERATURE)]
    return shown


def _floors(label: str, measured: Sequence[str], floors: Floors) -> dict[str, Plain]:
    found = floors.get(label, {})
    return {
        str(place): [*map(number, found[name]), floor_text(found[name])]
        for place, name in enumerate(measured)
        if name in found
    }


def _names(found: Iterable[Iterable[str]]) -> list[str]:
    return list(dict.fromkeys(chain(*found)))


def _over(name: str, seeds: Iterable[Mapping[str, float]]) -> list[float | None] | None:
    return spread([each[name] for each in seeds if name in each and math.isfinite(each[name])])
