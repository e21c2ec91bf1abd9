"""How many trials each label is to have: those of the spec, or as many seeds as a race gives it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from study.analysis.racing import Standing, places_of, standing_of
from study.store.ledger import Ledger
from study.store.ledger_reader import RACE
from study.store.study import StudyFolder
from study.store.trials import Place

SHOWN = 3  # rivals by name


class Seeds:
    """Follows the race of a study, if it has one: decides by the ledger alone, and records what it
    decides there before it is acted upon.

    planned: trials by label.
    """

    def __init__(self, study: StudyFolder, ledger: Ledger) -> None:
        self._study = study
        self._ledger = ledger
        self._told: Standing | None = None
        self.planned: Mapping[str, int] = dict.fromkeys(study.labels, study.spec.trials)
        if study.recorded.race is None:  # one that it had is over: seeds are equal from now on
            raced = [label for label in study.labels if RACE in ledger.notes(label)]
            self._record(dict.fromkeys(raced, Place(study.spec.trials, False)))
        self.look()

    def look(self) -> str | None:
        """Decide by the trials that have ended. Returns what there is to say of it."""
        if self._study.recorded.race is None:
            return None
        records = self._ledger.trials()
        now = standing_of(self._study, records)
        assert now is not None
        places = places_of(self._study, records, now)
        self._record(places)
        self.planned = {label: place.seeds for label, place in places.items()}
        was = self._told
        if now.leader is None or (was and (was.leader, was.rivals) == (now.leader, now.rivals)):
            return None
        self._told = now
        return in_words(now)

    def _record(self, places: Mapping[str, Place]) -> None:
        for label, place in places.items():
            if self._ledger.notes(label).get(RACE) != place.to_plain():
                self._ledger.note(label, RACE, place.to_plain())


def in_words(now: Standing) -> str:
    """Who leads a race, and who may still be better."""
    leads = f"{_name(str(now.leader))} leads"
    if not now.rivals:
        return f"{leads}; no other is likely to be better"
    shown = ", ".join(map(_name, now.rivals[:SHOWN]))
    more = len(now.rivals) - SHOWN
    return f"{leads}; {shown}{f' and {more} others' if more > 0 else ''} may be better"


def _name(label: str) -> str:
    """Of the trial that a label retrains."""
    return re.sub(r"_(\d{4,})(_default)?$", r"/\1", label)
