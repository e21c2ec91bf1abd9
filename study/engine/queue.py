"""Queue: which trials are attempted next. It knows the ledger and the proposer, and no Ray."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from study.analysis.ranking import Rules
from study.engine.deaths import NO_REST, Rest
from study.engine.demand import may_be_asked
from study.engine.proposing import Proposer, most_pending
from study.engine.seeds import Seeds
from study.engine.stacking import Batch, Stacking, Turn
from study.store.ledger import MAX_DEATHS, Ledger
from study.store.study import StudyFolder
from study.store.trials import Listener, TrialRecord


@dataclass(frozen=True)
class Group:
    """What one process trains: a lone trial, or the trials of a stack, also those that have
    ended. rest: what it waits for."""

    records: tuple[TrialRecord, ...]
    stack: str | None = None
    rest: Rest = NO_REST

    @property
    def name(self) -> str:
        """That of the trial, or of the stack's first one."""
        return self.stack or self.records[0].name

    @property
    def open(self) -> list[TrialRecord]:
        """Its trials that have not ended."""
        return [record for record in self.records if record.is_open]


class Queue:
    """The missing trials: those to go on with, then new ones of each method in turn, until every
    budget is met. A function of the ledger's records, in the order of events.

    slots: returns how many trials fit on the cluster now. is_drafting: at the last question the
    next proposal was still worked out.
    """

    def __init__(
        self,
        study: StudyFolder,
        ledger: Ledger,
        rules: Rules,
        listeners: Sequence[Listener],
        slots: Callable[[], int],
    ) -> None:
        self._spec = study.spec
        self._ledger = ledger
        self._listeners = listeners
        self._slots = slots
        records = ledger.trials()
        self._asked = {label: len(found) for label, found in records.by_label.items()}
        self._seeds = Seeds(study, ledger)
        self._proposer = Proposer(self._spec, rules, records)
        self._cap = most_pending(self._spec)
        self._stacking = Stacking(study)
        # Those that learn from results.
        self._pending: dict[str, set[int]] = {label: set() for label in records.labels}
        self._stacks: dict[str, list[TrialRecord]] = {}  # by name, as they were asked
        for record in records:
            self._know(record)
        self._batches = self._stacking.unfinished(records)  # being asked
        half_asked = {one.name for batch in self._batches.values() for one in batch.proposed}
        # Trials that a killed driver left RUNNING come first; trials to retry are put back here.
        running = sorted(records.running, key=lambda one: (one.started or 0.0, one.number))
        self._again = deque(self._grouped([one for one in running if one.name not in half_asked]))
        self._told_idle = False
        self.is_drafting = False

    @property
    def outstanding(self) -> int:
        """Trials that were not handed out yet."""
        again = sum(len(group.open) for group in self._again)
        return again + sum(max(0, left) for left in self._left(self._asked).values())

    @property
    def most_outstanding(self) -> int:
        """As many as may ever wait to be handed out."""
        return max(self.outstanding, self._spec.trials * len(self._asked))

    def handed_out_at_once(self) -> Counter[str]:
        """By method, how many slots could be used now, were there enough."""
        new = self._may_be_asked(self._asked)
        for each in self._listeners:
            new = each.may_begin_of(new)
        again = Counter(group.records[0].label for group in self._again)
        return Counter(self._stacking.slots(new)) + again

    @property
    def rests(self) -> bool:
        """Whether trials wait to be tried again."""
        return bool(self._again)

    def next(self, live: int, may_ask: bool = True) -> Group | None:
        """The trials to attempt now; None if none are to be had. live: how many groups were handed
        out and have not ended. may_ask: whether new ones may be asked
        while some rest."""
        group = self._rested(live)
        if group is None and (may_ask or not self._again):
            self._ask(live)
            group = self._rested(live)
        return group

    def _rested(self, live: int) -> Group | None:
        now = time.monotonic()
        for group in self._again:
            if group.rest.until <= now and not (group.rest.alone and live):
                self._again.remove(group)
                return group
        return None

    def put_back(self, group: Group, rest: Rest) -> None:
        """An attempt died, and its trials may be tried again: alone, if their stack died too
        often."""
        found = self._grouped(Group(tuple(self._now(group.records))).open)
        self._again += [replace(each, rest=rest) for each in found]

    def ended(self, record: TrialRecord) -> None:
        """A trial has its result, from which the proposer learns."""
        self._pending[record.label].discard(record.number)
        self._proposer.see(record)
        if line := self._seeds.look():
            for listener in self._listeners:
                listener.said(line)

    def _know(self, record: TrialRecord) -> None:
        if record.is_open and self._proposer.learns(record.label, record.number):
            self._pending[record.label].add(record.number)
        if record.stack is not None:
            self._stacks.setdefault(record.stack, []).append(record)

    def _now(self, records: Iterable[TrialRecord]) -> list[TrialRecord]:
        return [self._ledger.record(record.label, record.number) for record in records]

    def _grouped(self, running: Iterable[TrialRecord]) -> list[Group]:
        """Each lone trial, and each stack with all its trials, in the order of these. A stack that
        died too often is none any more."""
        # A retry alone may have the name of the stack that it has left.
        found: dict[tuple[str, bool], Group] = {}
        for record in running:
            stack = record.stack
            rows = [] if stack is None else self._now(self._stacks[stack])
            died = max((one.deaths.get("stack", 0) for one in rows), default=0)
            if stack is None or died >= MAX_DEATHS["stack"]:
                found[record.name, False] = Group((record,))
            else:
                found[stack, True] = Group(tuple(rows), stack)
        return list(found.values())

    # ---- asking ----------------------------------------------------------------------------------

    def _ask(self, live: int) -> None:
        """New trials of the methods with the fewest, so that all advance together."""
        waits = self.is_drafting = False
        for turn in self._turns():
            if turn not in self._batches:
                more = self._may_be_asked(turn)
                counts = self._stacking.counts(self._asked, more)
                full = sum(self._stacking.counts(self._asked, self._left(turn)).values())
                # A stack that only waits in advance waits until it is whole.
                if not counts or (live >= self._slots() and sum(counts.values()) < full):
                    waits = True
                    continue
                for each in self._listeners:
                    counts = each.may_begin_of(counts)
                if not any(counts.values()):
                    break
                places = []
                for label, count in counts.items():
                    first = self._asked[label]
                    places += [(label, number) for number in range(first, first + count)]
                self._batches[turn] = Batch(places)
            if self._is_proposed(self._batches[turn]):
                self._again += self._grouped(self._recorded(self._batches.pop(turn)))
                return
            self.is_drafting = True
        if waits and not self.is_drafting:
            self._tell_idle(live)

    def _turns(self) -> list[Turn]:
        """Those that are not full; what is half asked comes first, then who has the fewest."""
        asked = {
            label: self._asked[label] for label, left in self._left(self._asked).items() if left > 0
        }
        fewest = {
            turn: min(asked[label] for label in turn if label in asked)
            for turn in self._stacking.turns
            if asked.keys() & turn
        }
        return sorted(fewest, key=lambda turn: (turn not in self._batches, fewest[turn]))

    def _may_be_asked(self, labels: Iterable[str]) -> dict[str, int]:
        """How many more of each could begin now."""
        return {
            label: may_be_asked(
                self._spec,
                label,
                self._seeds.planned[label],
                self._asked[label],
                len(self._pending[label]),
            )
            for label in labels
        }

    def _left(self, labels: Iterable[str]) -> dict[str, int]:
        """How many of each are planned and were not asked."""
        return {label: self._seeds.planned[label] - self._asked[label] for label in labels}

    def _is_proposed(self, batch: Batch) -> bool:
        """Whether all of the batch are proposed; what is worked out takes its time."""
        for label, number in batch.places[len(batch.proposed) :]:
            params = self._proposer.proposal(label, number)
            if params is None:
                return False
            batch.proposed.append(TrialRecord(label, number, "running", params))
            self._proposer.see(batch.proposed[-1])
        return True

    def _recorded(self, batch: Batch) -> list[TrialRecord]:
        """The trials of the batch, in the ledger. With the first the others are named, so that a
        restart asks what a kill left out."""
        stacks = self._stacking.stacks(batch.proposed) if len(batch.places) > 1 else {}
        found = batch.proposed[: batch.recorded]
        for one in batch.proposed[batch.recorded :]:
            facts: dict[str, object] = {}
            if one.name in stacks:
                facts["stack"] = stacks[one.name]
            if not found and stacks:
                facts["together"] = [each.name for each in batch.proposed]
            ranges = self._spec.variant(one.label).space.distributions
            space = {path: ranges[path] for path in one.params}
            found.append(self._ledger.add(one.label, one.params, space, **facts))
            self._asked[one.label] += 1
            self._know(found[-1])
        return found

    def _tell_idle(self, live: int) -> None:
        """Say once in a run that slots are idle because proposals wait for results."""
        idle = self._slots() - live
        if idle > 0 and not self._told_idle:
            self._told_idle = True
            why = (
                f"each method waits for the results of {self._cap} proposed trials"
                " (sampler.pending)"
            )
            for listener in self._listeners:
                listener.said(f"{idle} of {self._slots()} slots are idle: {why}.")
