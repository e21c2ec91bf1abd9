"""Which trials are asked together, and which of them form a stack."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from study.engine.proposing import most_pending, trials_without_results
from study.schema.spec import StudySpec
from study.schema.variant import with_values
from study.store.study import StudyFolder
from study.store.trials import TrialRecord, Trials, label_and_number
from trainables.config import TrialConfig
from trainables.stacks import likeness

# Numbers of a method in a stack, where proposals learn from results: a search that proposed 17 at
# once ended with worse fronts, one that proposed 8 did not (`python -m benchmarks.search`).
MOST_UNSEEN = 8


def numbers_in(spec: StudySpec, rows: int) -> int:
    """How many trials of a method a stack of so many trials takes."""
    labels = spec.stackable
    if any(trials_without_results(spec, label) < spec.trials for label in labels):
        most = min(most_pending(spec), MOST_UNSEEN)
    else:
        most = max(MOST_UNSEEN, math.ceil(rows / len(labels)))
    return min(rows, most, spec.trials)


Turn = tuple[str, ...]  # labels whose trials are asked together


@dataclass
class Batch:
    """Trials that are asked together: the labels and numbers of all, and the first ones as they
    were proposed so far, of which some are in the ledger."""

    places: list[tuple[str, int]]
    proposed: list[TrialRecord] = field(default_factory=list)
    recorded: int = 0


class Stacking:
    """How the trials of a study are stacked.

    labels: of the methods that can be. numbers: how many trials of each one stack takes; methods:
    of how many. turns: these labels, and each other.
    """

    def __init__(self, study: StudyFolder) -> None:
        self._spec = study.spec
        self._configs = {label: study.spec.trial_mapping(label) for label in study.labels}
        self.labels = tuple(study.spec.stackable) if study.stack else ()
        self.numbers = self.methods = 1
        if study.stack and self.labels:
            self.numbers = numbers_in(study.spec, study.stack)
            self.methods = study.stack // self.numbers
        others = [(label,) for label in study.labels if label not in self.labels]
        self.turns: list[Turn] = [self.labels, *others] if self.labels else [*others]

    def counts(self, asked: Mapping[str, int], more: Mapping[str, int]) -> dict[str, int]:
        """How many trials of which labels are asked next: of those that fill their places, else of
        all, the ones with the fewest.

        asked: how many each label has. more: how many may be asked now, of some of them.
        """
        most = {label: self.numbers if label in self.labels else 1 for label in more}
        full = {label: min(most[label], self._spec.trials - asked[label]) for label in more}
        found = {label: min(full[label], count) for label, count in more.items() if count}
        whole = [label for label, count in found.items() if count == full[label]]
        taken = sorted(whole or found, key=lambda label: asked[label])[: self.methods]
        return {label: found[label] for label in taken}

    def stacks(self, trials: Iterable[TrialRecord]) -> dict[str, str]:
        """By trial, the name of its stack: that of the first trial that is alike. One that is like
        no other trains alone."""
        keys = {}
        first: dict[object, str] = {}
        for one in trials:
            config = with_values(self._configs[one.label], one.params)
            alike = likeness(TrialConfig.from_mapping(config))
            keys[one.name] = alike, self._spec.resources_of(one.label)
            first.setdefault(keys[one.name], one.name)
        counts = Counter(keys.values())
        return {name: first[key] for name, key in keys.items() if counts[key] > 1}

    def unfinished(self, records: Trials) -> dict[Turn, Batch]:
        """What a kill left half asked."""
        known = {record.name: record for record in records}
        for first in records:
            begun = [known[name] for name in first.together if name in known]
            places = list(map(label_and_number, first.together))
            left = [place for place in places[len(begun) :] if place[1] < self._spec.trials]
            if left:
                return {self.labels: Batch(places[: len(begun)] + left, begun, len(begun))}
        return {}

    def slots(self, counts: Mapping[str, int]) -> dict[str, int]:
        """By label, how many slots so many trials take: those that are stacked share one, also
        with those of other methods that need the same resources."""
        found = dict(counts)
        by_needs: dict[object, list[str]] = {}
        for label in self.labels:
            by_needs.setdefault(self._spec.resources_of(label), []).append(label)
        for labels in by_needs.values():
            most_first = sorted(labels, key=lambda label: -counts.get(label, 0))
            found |= dict.fromkeys(labels, 0)
            for label in most_first[:: self.methods]:
                found[label] = math.ceil(counts.get(label, 0) / self.numbers)
        return found
