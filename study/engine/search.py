"""LedgerSearch: Ray's events on top of the ledger, which records everything before Ray sees it."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from ray.tune.search import Searcher

from study.analysis.pareto import complete
from study.analysis.ranking import Ranking, rules_of
from study.engine.deaths import (
    NO_REST,
    Death,
    Killings,
    Rest,
    all_killed,
    death_in,
    death_of,
    with_memory,
)
from study.engine.demand import by_resources
from study.engine.early_stopping import decided
from study.engine.live import Assigning, Live, Row
from study.engine.queue import Group, Queue
from study.machines.autoscaler import Demand
from study.machines.guarded import Unfit, unfit_node
from study.schema.errors import SpecError
from study.store.ledger import MAX_DEATHS, Ledger
from study.store.study import StudyFolder
from study.store.targets import Targets
from study.store.trials import Decision, Listener, TrialRecord
from trainables.outputs.attempts import clear_checkpoints
from trainables.outputs.outcome import Outcome, Report, reports_from_json
from trainables.training.attempt import BESIDE_OTHERS, time_limit_reason

# A trial ends itself at the first epoch after its limit; if it does not within this extra time, it
# hangs. The time has to cover the start of its process: importing torch and reading the data take
# half a minute on a busy machine.
OVERDUE_SECONDS = 60.0
OVERDUE_SHARE = 0.1
ASK_SECONDS = 2.0  # between two demands
# Between two looks for trials that hang: with a thousand at once, a look at each event would cost
# more than the event.
OVERDUE_LOOK_SECONDS = 1.0

T = TypeVar("T")


class Nodes(Protocol):
    """The nodes that train: `FitNodes`."""

    def slots(self) -> int: ...
    def trained(self) -> None: ...
    def pass_over(self, unfit: Unfit) -> None: ...
    def look(self) -> None: ...
    def memory(self) -> tuple[int, int] | None: ...


class LedgerSearch(Searcher):
    """Hands out what the queue says, and records how each attempt goes and ends.

    nodes: those that may train. targets: those checked at the start. stop_requested: from then on a
    death is no trial's fault: what stops this process may stop its workers too. ask: asks for
    nodes for so many trials. follow: is told whether all that was handed out waits, and when a
    trial last reported.
    """

    def __init__(
        self,
        study: StudyFolder,
        ledger: Ledger,
        listeners: list[Listener],
        nodes: Nodes,
        targets: Targets | None = None,
        stop_requested: Callable[[], bool] = lambda: False,
        ask: Callable[[Demand], None] | None = None,
        follow: Callable[[bool, float], None] = lambda waits, heard: None,
    ) -> None:
        super().__init__()
        self._ask = ask
        self._follow = follow
        self._asked = -math.inf
        self._stop_requested = stop_requested
        self._study = study
        self._spec = study.spec
        self._directory = study.directory
        self._ledger = ledger
        self._listeners = listeners
        self._nodes = nodes
        self._limit = None if self._spec.trial_minutes is None else 60 * self._spec.trial_minutes
        targets = targets or Targets(study.directory.parent)
        self._assigning = Assigning(study, targets, self._limit)
        self._rules = rules_of(study)
        self.queue = Queue(study, ledger, self._rules, listeners, nodes.slots)
        self._constraints_judged = (
            not self._spec.constraints or self._ranking().defaults is not None
        )
        self._live: dict[str, Live] = {}
        self._next_look = -math.inf  # for trials that hang
        self._next_following = -math.inf
        # Trials that lost a GPU shared under MPS, perhaps by another's fault.
        self._on_a_whole_gpu: set[str] = set()
        self._killings = Killings()
        self.fault: Exception | None = None

    def suggest(self, trial_id: str) -> Any:
        """One attempt for Ray; None while no more fit or only running ones are left, FINISHED when
        none are left.

        At most twice the slots: a finished actor finds its next trial waiting, but trials asked
        later are proposed from more results.
        """
        if self.fault is not None or self._stop_requested():
            # On None, Tune would wait for another suggestion.
            return None if self._live else Searcher.FINISHED
        slots = self._nodes.slots()
        if len(self._live) >= 2 * max(1, slots) or any(one.alone for one in self._live.values()):
            return None
        try:
            return self._suggested(trial_id)
        except Exception as error:  # the run ends with it at the end of Tune's step
            self.fault = error
            return None

    def _suggested(self, trial_id: str) -> Any:
        may_ask = self._killings.may_ask(self._nodes.slots())
        group = self.queue.next(len(self._live), may_ask)
        if group is None:
            waits = self._live or self.queue.is_drafting or self.queue.rests
            return None if waits else Searcher.FINISHED
        live = self._live[trial_id] = self._begun(group)
        for row in live.rows.values():
            for listener in self._listeners:
                listener.handed_out(row.record)
        assignment = self._assigning.of(live, self._nodes.slots())
        return {"assignment": assignment, **self._assigning.shown(live)}

    def _begun(self, group: Group) -> Live:
        """A new attempt at the trials, as the ledger has it."""
        first = group.records[0]
        resources = self._spec.resources_of(first.label)
        if group.stack is None:
            if first.deaths.get("out_of_memory") or first.name in self._on_a_whole_gpu:
                resources = resources.on_a_whole_gpu()
            return Live(group, self._ledger.begin_attempt(first.label, first.number), resources)
        number = 1 + max(record.attempt for record in group.records)
        for record in group.open:
            self._ledger.begin_attempt(record.label, record.number, number)
        return Live(group, number, resources)

    # ---- events from Ray -------------------------------------------------------------------------

    def attempt_started(
        self, trial_id: str, in_new_process: bool = False, actor: str | None = None
    ) -> None:
        """Ray has started it; until then it was waiting. actor: Ray's id of its process."""
        live = self._live[trial_id]
        live.actor = actor
        live.last_seen = time.monotonic()
        live.prepares = in_new_process
        training = [each for each in self._live.values() if each.last_seen is not None]
        for each in training:
            each.had_company |= len(training) > 1
        for row in live.rows.values():
            for listener in self._listeners:
                listener.started(row.record)

    def goes_on(self, trial_id: str, reports: str) -> bool:
        """Whether Tune trains a trial further after a report: not if it is stopped early, which the
        ledger then has. A stack has no rungs."""
        found = self._guarded(lambda: self._decided(trial_id, reports_from_json(reports)))
        return all(each.goes_on for each in found or ())

    def on_trial_result(self, trial_id: str, result: Mapping[str, Any]) -> None:
        self._guarded(lambda: self._heard(trial_id, reports_from_json(result["reports"])))

    def on_trial_complete(
        self, trial_id: str, result: Mapping[str, Any] | None = None, error: bool = False
    ) -> None:
        """A trial or a stack ended by itself, or early; `attempt_died` handles one whose process
        died (`error`)."""
        if not error and result is not None:
            self._guarded(lambda: self._ended(trial_id, reports_from_json(result["reports"])))

    def attempt_died(self, trial_id: str, message: str) -> None:
        """A trial's process died, with Ray's message: retry the trial, or FAIL it if it may not be
        retried. Nobody is to blame where its node is not fit: the trial goes on elsewhere."""
        if unfit := unfit_node(message):
            self._guarded(lambda: self._pass_over(trial_id, unfit))
            return
        if BESIDE_OTHERS in message:  # whose fault it was shows where it trains alone
            self._on_a_whole_gpu.update(self._live[trial_id].rows)
        actor = self._live[trial_id].actor
        self._guarded(lambda: self._again_or_fail(trial_id, death_of(message, actor)))

    def overdue(self) -> list[str]:
        """What hangs of all that was handed out; each is returned once."""
        now = time.monotonic()
        if self._limit is None or now < self._next_look:
            return []
        self._next_look = now + OVERDUE_LOOK_SECONDS
        patience = self._limit + max(OVERDUE_SECONDS, OVERDUE_SHARE * self._limit)
        found = [name for name, live in self._live.items() if live.hangs(now, patience)]
        for trial_id in found:
            self._live[trial_id].overdue = True
        return found

    # ---- handling --------------------------------------------------------------------------------

    def _pass_over(self, trial_id: str, unfit: Unfit) -> None:
        if unfit.nowhere:
            raise SpecError(self._study.name, "", f"no node can train it: it {unfit.because}")
        self._nodes.pass_over(unfit)
        self._put_back(trial_id)

    def _put_back(self, trial_id: str, rest: Rest = NO_REST) -> None:
        live = self._live.pop(trial_id)
        self.queue.put_back(live.group, rest)
        for row in live.rows.values():
            for listener in self._listeners:
                listener.stopped(row.record)

    def look(self) -> None:
        """Called between events: follow the nodes, ask for as many as could be used, and end the
        run where none is left."""
        self._guarded(self._nodes.look)
        now = time.monotonic()
        if now >= self._next_following:
            self._next_following = now + OVERDUE_LOOK_SECONDS
            self._guarded(self._tell_follower)
        if self._ask is not None and now - self._asked > ASK_SECONDS:
            self._asked = now
            self._ask(self._demand())

    def _tell_follower(self) -> None:
        seen = [one.last_seen for one in self._live.values() if one.last_seen is not None]
        self._follow(bool(self._live) and not seen, max(seen, default=-math.inf))

    def _demand(self) -> Demand:
        """The resources of all trials that run, or could."""
        running = Counter(live.resources for live in self._live.values())
        return running + by_resources(self._spec, self.queue.handed_out_at_once())

    def _heard(self, trial_id: str, reports: Mapping[str, Report]) -> None:
        """What an attempt reports of its trials, some of which may have ended."""
        self._nodes.trained()
        live = self._live[trial_id]
        live.seen(time.monotonic())
        for name, report in reports.items():
            row = live.rows[name]
            self._uses(row, report)
            if report.outcome is not None:
                self._finish(live, row, report.rows, report.outcome)
                continue
            row.add(report.rows)
            self._killings.went_on(live.group.name, row.epoch)
            for listener in self._listeners:
                listener.trained(row.record, report.rows)

    def _uses(self, row: Row, report: Report) -> None:
        """Record the extension files of which a report tells."""
        if report.extensions:
            self._ledger.add_extensions(row.record.label, row.record.number, report.extensions)

    def _decided(self, trial_id: str, reports: Mapping[str, Report]) -> list[Decision]:
        live = self._live[trial_id]
        found = []
        for name, report in reports.items():
            if report.rung is not None:
                record = self._now_of(live.rows[name])
                outcome = self._with_facts(live, report.rung.outcome)
                rung = replace(report.rung, outcome=outcome)
                found.append(decided(self._ledger, self._spec, record, rung))
        return found

    def _now_of(self, row: Row) -> TrialRecord:
        return self._ledger.record(row.record.label, row.record.number)

    def _with_facts(self, live: Live, outcome: Outcome) -> Outcome:
        """The outcome with what the driver knows of it. An early one has that already."""
        if outcome.attempt is not None:
            return outcome
        versions = {**self._study.recorded.versions, **(outcome.versions or {})}
        return replace(outcome, attempt=live.number, versions=versions)

    def _ended(self, trial_id: str, reports: Mapping[str, Report]) -> None:
        """An attempt ended with these reports. What the machine is to blame for is no result."""
        live = self._live[trial_id]
        died: Death | None = None
        for name, report in reports.items():
            row = live.rows[name]
            self._uses(row, report)
            outcome = report.outcome or self._now_of(row).stopped
            assert outcome is not None, "Tune stops no trial that was not to be stopped"
            death = death_in(outcome)
            died = death or died
            if death is None:
                self._finish(live, row, report.rows, outcome)
        if died is None:
            del self._live[trial_id]
        else:
            self._again_or_fail(trial_id, died)

    def _again_or_fail(self, trial_id: str, death: Death) -> None:
        if self._stop_requested():  # it resumes in the next run
            return
        if death.cause == "machine":
            death = with_memory(death, self._nodes.memory())
        live = self._live[trial_id]
        if live.group.stack is None:
            row = next(iter(live.rows.values()))
            if outcome := self._without_retry(live, row, death):
                self._finish(live, row, [], outcome)
                del self._live[trial_id]
                return
        else:
            for row in live.rows.values():
                self._ledger.died(row.record.label, row.record.number, "stack")
        self._put_back(trial_id, self._rest(live, death) if death.cause == "machine" else NO_REST)

    def _rest(self, live: Live, death: Death) -> Rest:
        """Until when those that the machine killed rest. Raises ClusterUnready if it kills all."""
        name = live.group.name
        if self._killings.is_quiet:
            for listener in self._listeners:
                listener.said(f"trial {name}: {death.told}. It is tried again after a pause.")
        rest = self._killings.died(name, death, time.monotonic())
        judged = live.was_alone_for(death) and self._is_its_own(name)
        if self._killings.all_die(name) and not judged:
            left = self._spec.trials * len(self._spec.variants)
            left -= len(self._ledger.trials().finished)
            raise all_killed(name, death, left, live.group.records[0].directory(self._directory))
        return rest if live.group.stack is None else replace(rest, alone=False)

    def _is_its_own(self, name: str) -> bool:
        """Whether its deaths alone are its own affair: others live, or none is left."""
        is_last = len(self._live) == 1 and not self.queue.outstanding
        return is_last or self._killings.others_went_on_since(name)

    def _others_went_on(self, name: str) -> bool:
        ended = (one for one in self._ledger.trials().finished if one.state != "failed")
        return self._killings.others_went_on(name) or any(one.name != name for one in ended)

    def _without_retry(self, live: Live, row: Row, death: Death) -> Outcome | None:
        """The outcome of a lone trial whose attempt died; None where it may be tried again."""
        record = row.record
        if outcome := self._now_of(row).stopped:  # before Ray could stop it
            return outcome
        failed = Outcome(state="failed", reason=death.reason)
        if row.epoch:
            failed = replace(failed, epoch=row.epoch, seconds=row.seconds)
        if live.overdue and self._limit is not None:
            reason = time_limit_reason(self._limit, row.epoch) + ", where it hung"
            return replace(failed, reason=reason)
        may_retry = self._ledger.died(record.label, record.number, death.cause)
        if death.cause == "machine":
            return self._without_rest(live, record, death, failed)
        whole = live.resources.on_a_whole_gpu() == live.resources
        return None if may_retry and not (death.cause == "out_of_memory" and whole) else failed

    def _without_rest(
        self, live: Live, record: TrialRecord, death: Death, failed: Outcome
    ) -> Outcome | None:
        """The outcome of a lone trial that the machine killed, if it is itself too big."""
        if death.memory is not None:
            self._ledger.add_memory(record.label, record.number, vars(death.memory))
        if death.of_too_big and not live.had_company and self._others_went_on(record.name):
            return replace(failed, reason=death.blame)
        told = live.alone or self._is_its_own(record.name)
        if not (live.was_alone_for(death) and told):
            return None
        if self._ledger.died(record.label, record.number, "alone"):
            return None
        return replace(failed, reason=f"{death.blame}, {MAX_DEATHS['alone']} times alone")

    def _finish(self, live: Live, row: Row, rows: list[dict[str, float]], outcome: Outcome) -> None:
        label = row.record.label
        number = row.record.number
        outcome = self._with_facts(live, outcome)
        record = self._ledger.tell(label, number, outcome, self._spec.objectives)
        del live.rows[record.name]
        if record.state != "failed":
            self._killings.went_on(record.name, math.inf)
        clear_checkpoints(record.directory(self._directory))
        self.queue.ended(record)
        for listener in self._listeners:
            listener.trained(record, rows)
            listener.finished(record)
        if not self._constraints_judged:
            self._judge_constraints()

    def _ranking(self) -> Ranking:
        return Ranking(self._study, self._ledger.trials())

    def _judge_constraints(self) -> None:
        """Once all defaults have ended, say which constraints none of them meets."""
        ranking = self._ranking()
        if ranking.defaults is None:
            return
        self._constraints_judged = True
        best = self._rules.best(ranking.defaults)
        counting = [one for one in complete(ranking.defaults) if not self._rules.guesses(one)]
        for condition in self._spec.constraints:
            if counting and not any(condition.holds(one.metrics, best) for one in counting):
                why = (
                    f"no default meets {condition}; until a trial meets every constraint, there is"
                    " no front"
                )
                for listener in self._listeners:
                    listener.said(f"constraints: {why}.")

    def _guarded(self, act: Callable[[], T]) -> T | None:
        """Keep the exception for the run: raised here, Ray would only fail the trial."""
        try:
            return act()
        except Exception as error:
            self.fault = error
            return None

    # Ray would save searchers with its snapshots; all of our state is in the ledger.
    def save(self, checkpoint_path: str) -> None:
        """Nothing to save."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing to restore."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Searcher, ()
