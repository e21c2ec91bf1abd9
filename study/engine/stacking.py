"""Which trials are asked together, and which of them form a stack."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from study.schema.variant import with_values
from study.store.study import Study
from study.store.trials import TrialRecord, Trials, label_and_number
from trainables.stacks import likeness, why_alone


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

    labels: of the methods that can be. numbers: how many trial numbers of each one stack takes.
    """

    def __init__(self, study: Study) -> None:
        self._spec = study.spec
        self._rows = study.stack or 0
        self._configs = {label: study.spec.trial_mapping(label) for label in study.labels}
        self.labels = tuple(
            label
            for label in study.labels
            if self._rows and why_alone(study.spec.trial(label)) is None
        )
        self.numbers = max(1, self._rows // max(1, len(self.labels)))

    def places(self, asked: Mapping[str, int], more: Mapping[str, int]) -> list[tuple[str, int]]:
        """The labels and numbers that are asked next: of each label those from the lowest number
        on.

        asked: how many each label has. more: how many may be asked now, of some of them.
        """
        first = min((asked[label] for label, count in more.items() if count), default=0)
        found = []
        for number in range(first, first + self.numbers):
            found += [
                (label, number)
                for label, count in more.items()
                if asked[label] <= number < asked[label] + count
            ]
        return found[: self._rows]

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
        """By label, how many slots so many trials take: those that are stacked share one, with
        those of other methods that need the same resources."""
        found = dict(counts)
        by_needs: dict[object, list[str]] = {}
        for label in self.labels:
            by_needs.setdefault(self._spec.resources_of(label), []).append(label)
        for labels in by_needs.values():
            most = max(labels, key=lambda label: counts.get(label, 0))
            found |= dict.fromkeys(labels, 0)
            found[most] = math.ceil(counts.get(most, 0) / self.numbers)
        return found
