"""Queue: which trial is attempted next. It knows the ledger and the proposer, and no Ray."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence

from study.analysis.ranking import Rules
from study.engine.demand import may_be_asked, most_pending
from study.engine.proposing import Proposer, Values
from study.store.ledger import Ledger
from study.store.study import Study
from study.store.trials import Listener, TrialRecord


class Queue:
    """The missing trials: those to go on with, then new ones of each method in turn, until every
    budget is met.

    slots: returns how many trials fit on the cluster now. is_drafting: at the last question the
    next proposal was still worked out.
    """

    def __init__(
        self,
        study: Study,
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
        self._proposer = Proposer(self._spec, rules, records)
        # Trials that a killed driver left RUNNING come first; trials to retry are put back here.
        running = records.running
        self._again = deque(sorted(running, key=lambda one: (one.started or 0.0, one.number)))
        self._cap = most_pending(self._spec)
        # Those that learn from results.
        self._pending: dict[str, set[int]] = {label: set() for label in records.labels}
        self._told_idle = False
        self.is_drafting = False

    @property
    def outstanding(self) -> int:
        return len(self._again) + sum(
            max(0, self._spec.trials - asked) for asked in self._asked.values()
        )

    def handed_out_at_once(self) -> Counter[str]:
        """By method, how many trials could be attempted now, were there slots for all."""
        new = {
            label: may_be_asked(self._spec, label, asked, len(self._pending[label]))
            for label, asked in self._asked.items()
        }
        for each in self._listeners:
            new = each.may_begin_of(new)
        return Counter(new) + Counter(record.label for record in self._again)

    def next(self, live: int) -> TrialRecord | None:
        """The trial to attempt now; None if none is to be had. live: how many were handed out and
        have not ended."""
        return self._again.popleft() if self._again else self._ask(live)

    def put_back(self, record: TrialRecord) -> None:
        """An attempt died, and the trial may be tried again."""
        self._pending[record.label].discard(record.number)
        self._again.append(self._ledger.record(record.label, record.number))

    def ended(self, record: TrialRecord) -> None:
        """A trial has its result, from which the proposer learns."""
        self._pending[record.label].discard(record.number)
        self._proposer.see(record)

    def _ask(self, live: int) -> TrialRecord | None:
        """A new trial of the method with the fewest, so that all advance together."""
        waiting = 0
        self.is_drafting = False
        for label in sorted(self._asked, key=lambda label: self._asked[label]):
            if self._asked[label] >= self._spec.trials or not all(
                each.may_begin(label) for each in self._listeners
            ):
                break
            number = self._asked[label]
            learns = self._proposer.learns(label, number)
            if learns and len(self._pending[label]) >= self._cap:
                waiting += 1
                continue
            params = self._proposer.proposal(label, number)
            if params is not None:
                return self._asked_for(label, params, learns)
            self.is_drafting = True
        if waiting and not self.is_drafting:
            self._tell_idle(live)
        return None

    def _asked_for(self, label: str, params: Values, learns: bool) -> TrialRecord:
        space = self._spec.variant(label).space.distributions
        record = self._ledger.add(label, params, space)
        self._asked[label] += 1
        self._proposer.see(record)
        if learns:
            self._pending[label].add(record.number)
        return record

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
