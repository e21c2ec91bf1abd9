"""Which trials of a method are asked together, and which of them form a stack."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from study.engine.proposing import most_pending, trials_without_results
from study.schema.spec import StudySpec
from study.schema.variant import with_values
from study.store.study import Study
from study.store.trials import TrialRecord, Trials, label_and_number
from trainables.config import TrialConfig
from trainables.stacks import likeness

# Trials in a stack, by `auto` and where proposals learn from results: a search that proposed 17 at
# once ended with worse fronts, one that proposed 8 did not (`python -m benchmarks.search`).
MOST = 8


def rows_of(spec: StudySpec, label: str, most: int) -> int:
    """How many trials of a method a stack of at most so many takes."""
    if label not in spec.stackable:
        return 1
    if trials_without_results(spec, label) < spec.trials:
        most = min(most, most_pending(spec), MOST)
    return min(most, spec.trials)


@dataclass
class Batch:
    """Trials of a method that are asked together: the numbers of all, and the first ones as they
    were proposed so far, of which some are in the ledger."""

    numbers: list[int]
    proposed: list[TrialRecord] = field(default_factory=list)
    recorded: int = 0


class Stacking:
    """How the trials of a study are stacked. rows: of a method in a stack, by label."""

    def __init__(self, study: Study) -> None:
        self._spec = study.spec
        self._configs = {label: study.spec.trial_mapping(label) for label in study.labels}
        self.rows = {label: rows_of(study.spec, label, study.stack or 1) for label in study.labels}

    def stacks(self, trials: Iterable[TrialRecord]) -> dict[str, str]:
        """By trial, the name of its stack: that of the first trial that is alike. One that is like
        no other trains alone."""
        keys = {}
        first: dict[str, str] = {}
        for one in trials:
            config = with_values(self._configs[one.label], one.params)
            keys[one.name] = likeness(TrialConfig.from_mapping(config))
            first.setdefault(keys[one.name], one.name)
        alike = Counter(keys.values())
        return {name: first[key] for name, key in keys.items() if alike[key] > 1}

    def unfinished(self, records: Trials) -> dict[str, Batch]:
        """By method, what a kill left half asked."""
        found = {}
        for first in records:
            places = list(map(label_and_number, first.together))
            begun = [one for one in records.of(first.label) if one.number >= first.number]
            # Those of an earlier version are of several methods.
            if len(begun) < len(places) and {label for label, _ in places} == {first.label}:
                numbers = [number for _, number in places]
                found[first.label] = Batch(numbers, begun, len(begun))
        return found

    def slots(self, counts: Mapping[str, int]) -> dict[str, int]:
        """By label, how many slots so many trials take."""
        return {label: math.ceil(count / self.rows[label]) for label, count in counts.items()}
