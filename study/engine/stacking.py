"""Which trials are asked together, and which of them form a stack."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from study.engine.proposing import most_pending, trials_without_results
from study.schema.spec import StudySpec
from study.schema.variant import with_values
from study.store.study import Study
from study.store.trials import TrialRecord, Trials, label_and_number
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


@dataclass
class Batch:
    """Trials that are asked together: the labels and numbers of all, and the first ones as they
    were proposed so far, of which some are in the ledger."""

    places: list[tuple[str, int]]
    proposed: list[TrialRecord] = field(default_factory=list)
    recorded: int = 0

    @property
    def names(self) -> list[str]:
        return [one.name for one in self.proposed]


class Stacking:
    """How the trials of a study are stacked.

    labels: of the methods that can be. numbers: how many trials of each one stack takes; methods:
    of how many.
    """

    def __init__(self, study: Study) -> None:
        self._spec = study.spec
        self._configs = {label: study.spec.trial_mapping(label) for label in study.labels}
        self.labels = tuple(study.spec.stackable) if study.stack else ()
        self.numbers = self.methods = 1
        if study.stack and self.labels:
            self.numbers = numbers_in(study.spec, study.stack)
            self.methods = study.stack // self.numbers

    def places(self, asked: Mapping[str, int], more: Mapping[str, int]) -> list[tuple[str, int]]:
        """The labels and numbers that are asked next: of the labels with the fewest those from the
        lowest number on. A label that fills its places goes first.

        asked: how many each label has. more: how many may be asked now, of some of them.
        """
        full = {label: min(self.numbers, self._spec.trials - asked[label]) for label in more}
        fill = {label: count for label, count in more.items() if 0 < full[label] <= count}
        more = fill or more
        first = min((asked[label] for label, count in more.items() if count), default=0)
        last = first + self.numbers
        taken = [label for label, count in more.items() if count and asked[label] < last]
        taken = sorted(taken, key=lambda label: asked[label])[: self.methods]
        found = []
        for number in range(first, last):
            found += [
                (label, number)
                for label in taken
                if asked[label] <= number < asked[label] + more[label]
            ]
        return found

    def stacks(self, trials: Iterable[TrialRecord]) -> dict[str, str]:
        """By trial, the name of its stack: that of the first trial that is alike. One that is like
        no other trains alone."""
        alike: dict[object, list[str]] = {}
        for one in trials:
            config = with_values(self._configs[one.label], one.params)
            key = likeness(config), self._spec.resources_of(one.label)
            alike.setdefault(key, []).append(one.name)
        found: dict[str, str] = {}
        for names in alike.values():
            if len(names) > 1:
                found |= dict.fromkeys(names, names[0])
        return found

    def unfinished(self, records: Trials) -> Batch | None:
        """What a kill left half asked."""
        known = {record.name: record for record in records}
        for first in records:
            if first.together and not known.keys() >= set(first.together):
                places = [label_and_number(name) for name in first.together]
                begun = [known[name] for name in first.together if name in known]
                left = [place for place in places[len(begun) :] if place[1] < self._spec.trials]
                return Batch(places[: len(begun)] + left, begun, len(begun)) if left else None
        return None

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
