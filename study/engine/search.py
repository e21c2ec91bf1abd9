"""LedgerSearch: Ray's events on top of the ledger, which records everything before Ray sees it."""

from __future__ import annotations

import math
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

import ray
from ray.tune import Callback
from ray.tune.experiment import Trial
from ray.tune.search import Searcher

from study.analysis.pareto import complete
from study.analysis.ranking import Ranking, rules_of
from study.engine.demand import by_resources
from study.engine.early_stopping import decided
from study.engine.queue import Queue
from study.machines.autoscaler import Demand
from study.machines.guarded import Unfit, unfit_node
from study.machines.nodes import DATA_PATIENCE
from study.machines.ray_compat import actor_id_of, actor_of
from study.machines.ray_session import ClusterError
from study.schema.resources import Resources
from study.schema.variant import with_values
from study.store.ledger import Ledger
from study.store.study import Study
from study.store.targets import Targets
from study.store.trials import Decision, Listener, TrialRecord
from trainables.outputs.attempts import clear_checkpoints
from trainables.outputs.outcome import Outcome, Reached, Report
from trainables.plugins import extension_digests
from trainables.training.attempt import BESIDE_OTHERS, Assignment, time_limit_reason

# A report covers as many epochs as fit in STEP_SECONDS, at least one, because it costs more than a
# short epoch. Many concurrent trials report less often, so that one driver can handle them all.
STEP_SECONDS = 2.0
REPORTS_A_SECOND = 50
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


class Interrupted(Exception):
    """The run was asked to stop; its trials resume in the next run."""


@dataclass
class _Attempt:
    record: TrialRecord
    number: int
    resources: Resources
    last_seen: float | None = None  # time of its last report, by `_now`; None until it has started
    seconds: float = 0.0  # of training, over all attempts
    epoch: int = 0
    overdue: bool = False
    prepares: bool = False  # its process is new, and the data may have to be decoded there


class Nodes(Protocol):
    """The nodes that train: `FitNodes`."""

    def slots(self) -> int: ...
    def trained(self) -> None: ...
    def pass_over(self, unfit: Unfit) -> None: ...
    def look(self) -> None: ...


class LedgerSearch(Searcher):
    """Hands out what the queue says, and records how each attempt goes and ends.

    nodes: those that may train. targets: those checked at the start. stop_requested: from then on a
    death is no trial's fault: what stops this process may stop its workers too. ask: asks for
    nodes for so many trials.
    """

    def __init__(
        self,
        study: Study,
        ledger: Ledger,
        listeners: list[Listener],
        nodes: Nodes,
        targets: Targets | None = None,
        stop_requested: Callable[[], bool] = lambda: False,
        ask: Callable[[Demand], None] | None = None,
    ) -> None:
        super().__init__()
        self._ask = ask
        self._asked = -math.inf
        self._stop_requested = stop_requested
        self._targets = targets or Targets(study.directory.parent)
        self._configs = {label: study.spec.trial_mapping(label) for label in study.labels}
        folder = study.spec.extensions
        self._extensions = {} if folder is None else extension_digests(folder)
        self._study = study
        self._spec = study.spec
        self._directory = study.directory
        self._ledger = ledger
        self._listeners = listeners
        self._nodes = nodes
        early = self._spec.early_stopping
        self._by = () if early is None else early.by
        self._rung = None if early is None else early.epoch(self._spec.epochs)
        self._limit = None if self._spec.trial_minutes is None else 60 * self._spec.trial_minutes
        self._rules = rules_of(study)
        self.queue = Queue(study, ledger, self._rules, listeners, nodes.slots)
        self._constraints_judged = (
            not self._spec.constraints or self._ranking().defaults is not None
        )
        self._live: dict[str, _Attempt] = {}
        self._next_look = -math.inf  # for trials that hang
        # Trials that lost a GPU shared under MPS, perhaps by another's fault.
        self._alone: set[str] = set()
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
        if len(self._live) >= 2 * max(1, self._nodes.slots()):
            return None
        try:
            return self._suggested(trial_id)
        except Exception as error:  # the run ends with it at the end of Tune's step
            self.fault = error
            return None

    def _suggested(self, trial_id: str) -> Any:
        record = self.queue.next(len(self._live))
        if record is None:
            return None if self._live or self.queue.is_drafting else Searcher.FINISHED
        resources = self._spec.resources_of(record.label)
        if record.deaths.get("out_of_memory") or record.name in self._alone:
            resources = resources.on_a_whole_gpu()
        attempt = self._ledger.begin_attempt(record.label, record.number)
        self._live[trial_id] = _Attempt(record, attempt, resources)
        for listener in self._listeners:
            listener.handed_out(record)
        return {"assignment": self._assignment(self._live[trial_id]).to_json()}

    def _assignment(self, attempt: _Attempt) -> Assignment:
        record = attempt.record
        config = with_values(self._configs[record.label], record.params)
        number = self._spec.seed_number(record.number)
        return Assignment(
            trial=record.name,
            directory=str(record.directory(self._directory)),
            attempt=attempt.number,
            config={**self._targets.named_in(config), "number": number},
            checkpoint_seconds=self._spec.checkpoint_seconds,
            data_digest=self._study.recorded.data_digest,
            resources={"cpu": attempt.resources.cpu, "gpu": attempt.resources.gpu},
            metrics=tuple(objective.metric for objective in self._spec.objectives),
            step_seconds=max(STEP_SECONDS, self._nodes.slots() / REPORTS_A_SECOND),
            seconds_limit=self._limit,
            rung=self._rung,
            costs=self._by,
            extension_files=self._extensions,
            weights=self._study.recorded.weights or {},
            study_file=str(self._directory / "study.yaml"),
        )

    # ---- events from Ray -------------------------------------------------------------------------

    def attempt_started(self, trial_id: str, in_new_process: bool = False) -> None:
        """Ray has started it; until then it was waiting."""
        self._live[trial_id].last_seen = self._now()
        self._live[trial_id].prepares = in_new_process
        for listener in self._listeners:
            listener.started(self._live[trial_id].record)

    def goes_on(self, trial_id: str, report: str) -> bool:
        """Whether Tune trains a trial further after a report: not if it is stopped early, which the
        ledger then has."""
        decided = self._guarded(lambda: self._decided(trial_id, Report.from_json(report).rung))
        return decided is None or decided.goes_on

    def on_trial_result(self, trial_id: str, result: Mapping[str, Any]) -> None:
        self._guarded(lambda: self._trained(trial_id, Report.from_json(result["report"])))

    def on_trial_complete(
        self, trial_id: str, result: Mapping[str, Any] | None = None, error: bool = False
    ) -> None:
        """A trial ended by itself, or early; `attempt_died` handles one whose process died
        (`error`)."""
        if not error and result is not None:
            self._guarded(lambda: self._ended(trial_id, Report.from_json(result["report"])))

    def attempt_died(self, trial_id: str, message: str) -> None:
        """A trial's process died, with Ray's message: retry the trial, or FAIL it if it may not be
        retried. Nobody is to blame where its node is not fit: the trial goes on elsewhere."""
        if unfit := unfit_node(message):
            self._guarded(lambda: self._pass_over(trial_id, unfit))
            return
        if BESIDE_OTHERS in message:  # whose fault it was shows where it trains alone
            self._alone.add(self._live[trial_id].record.name)
        self._guarded(lambda: self._again_or_fail(trial_id, *cause_of_death(message)))

    def overdue(self) -> list[str]:
        """Trials that hang: silent for longer than they may train in total, beside what their node
        may take for the data. Each is returned once."""
        now = self._now()
        if self._limit is None or now < self._next_look:
            return []
        self._next_look = now + OVERDUE_LOOK_SECONDS
        found = []
        patience = self._limit + max(OVERDUE_SECONDS, OVERDUE_SHARE * self._limit)
        for trial_id, attempt in self._live.items():
            left = patience - attempt.seconds + DATA_PATIENCE * attempt.prepares
            if (
                attempt.last_seen is not None
                and not attempt.overdue
                and now - attempt.last_seen > left
            ):
                attempt.overdue = True
                found.append(trial_id)
        return found

    def _now(self) -> float:
        """Seconds of a clock that stands still while the ledger is waited for: reports wait with
        us."""
        return time.monotonic() - self._ledger.waiting.waited

    # ---- handling --------------------------------------------------------------------------------

    def _uses(self, trial_id: str, report: Report) -> None:
        """Record the extension files of which a report tells."""
        if report.extensions:
            record = self._live[trial_id].record
            self._ledger.add_extensions(record.label, record.number, report.extensions)

    def _pass_over(self, trial_id: str, unfit: Unfit) -> None:
        self._nodes.pass_over(unfit)
        self._put_back(trial_id)

    def _put_back(self, trial_id: str) -> None:
        record = self._live.pop(trial_id).record
        self.queue.put_back(record)
        for listener in self._listeners:
            listener.stopped(record)

    def look(self) -> None:
        """Called between events: follow the nodes, ask for as many as could be used, and end the
        run where none is left."""
        self._guarded(self._nodes.look)
        now = time.monotonic()
        if self._ask is not None and now - self._asked > ASK_SECONDS:
            self._asked = now
            self._ask(self._demand())

    def _demand(self) -> Demand:
        """The resources of all trials that run, or could."""
        running = Counter(attempt.resources for attempt in self._live.values())
        return running + by_resources(self._spec, self.queue.handed_out_at_once())

    def _trained(self, trial_id: str, report: Report) -> None:
        self._nodes.trained()
        self._uses(trial_id, report)
        attempt = self._live[trial_id]
        rows = report.rows
        attempt.last_seen = self._now()
        attempt.prepares = False
        attempt.seconds += sum(row["seconds"] for row in rows)
        attempt.epoch = int(rows[-1]["epoch"]) if rows else attempt.epoch
        for listener in self._listeners:
            listener.trained(attempt.record, rows)

    def _decided(self, trial_id: str, rung: Reached | None) -> Decision | None:
        if rung is None:
            return None
        attempt = self._live[trial_id]
        record = self._ledger.record(attempt.record.label, attempt.record.number)
        outcome = self._with_facts(attempt, rung.outcome)
        return decided(self._ledger, self._spec, record, replace(rung, outcome=outcome))

    def _early_outcome(self, trial_id: str) -> Outcome | None:
        """The outcome of a trial that was to be stopped early, from the ledger; None of another."""
        record = self._live[trial_id].record
        return self._ledger.record(record.label, record.number).stopped

    def _with_facts(self, attempt: _Attempt, outcome: Outcome) -> Outcome:
        """The outcome with what the driver knows of it. An early one has that already."""
        if outcome.attempt is not None:
            return outcome
        versions = {**self._study.recorded.versions, **(outcome.versions or {})}
        return replace(outcome, attempt=attempt.number, versions=versions)

    def _ended(self, trial_id: str, report: Report) -> None:
        self._uses(trial_id, report)
        outcome = report.outcome or self._early_outcome(trial_id)
        assert outcome is not None, "Tune stops no trial that was not to be stopped"
        cause = {"out_of_memory": "out_of_memory", "interrupted": "process"}.get(outcome.state)
        if cause is None:
            self._finish(trial_id, report.rows, outcome)
        else:
            self._again_or_fail(trial_id, cause, str(outcome.reason))

    def _again_or_fail(self, trial_id: str, cause: str, reason: str) -> None:
        if self._stop_requested():  # it resumes in the next run
            return
        if outcome := self._early_outcome(trial_id):  # before Ray could stop it
            self._finish(trial_id, [], outcome)
            return
        attempt = self._live[trial_id]
        record = attempt.record
        failed = Outcome(state="failed", reason=reason)
        if attempt.epoch:
            failed = replace(failed, epoch=attempt.epoch, seconds=attempt.seconds)
        if attempt.overdue and self._limit is not None:
            reason = time_limit_reason(self._limit, attempt.epoch) + ", where it hung"
            self._finish(trial_id, [], replace(failed, reason=reason))
            return
        may_retry = self._ledger.died(record.label, record.number, cause)
        whole = attempt.resources.on_a_whole_gpu() == attempt.resources
        if may_retry and not (cause == "out_of_memory" and whole):
            self._put_back(trial_id)
        else:
            self._finish(trial_id, [], failed)

    def _finish(self, trial_id: str, rows: list[dict[str, float]], outcome: Outcome) -> None:
        attempt = self._live.pop(trial_id)
        label = attempt.record.label
        number = attempt.record.number
        outcome = self._with_facts(attempt, outcome)
        record = self._ledger.tell(label, number, outcome, self._spec.objectives)
        self.queue.ended(record)
        clear_checkpoints(record.directory(self._directory))
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


def cause_of_death(message: str) -> tuple[str, str]:
    """The ledger's cause (process or node) and the reason, from the message of Ray's exception."""
    message = " ".join(message.split())
    if foreign := re.search(
        r"No module named '((?:study|trainables|search_spaces)[\w.]*)'", message
    ):
        raise ClusterError(
            "a Ray worker imports another package instead of calstudy's: it has no module"
            f" {foreign.group(1)}",
            "Rename that folder or file, or take it off the worker's PYTHONPATH.",
        )
    if lost := re.search(r"\bGpuLost: (?!.*\bGpuLost: )(.*)", message):
        cause = "node" if BESIDE_OTHERS in lost[1] else "process"
        return cause, f"its GPU was lost: {lost[1][:300]}"
    if "node has died" in message or "node has been drained" in message:
        return "node", "its node died"
    # The process may live: its node's raylet or the network is gone.
    if "temporarily unavailable" in message:
        return "node", "its node could not be reached"
    if "memory usage threshold" in message or "low on memory" in message:
        return "process", "out of memory: Ray's memory monitor killed its process"
    because = re.search(r"because (its .*?)(?:\.(?:\s|$)|$)", message)
    detail = re.search(r"Worker exit detail: (.*?)(?:\.(?:\s|$)|$)", message)
    found = [match.group(1) for match in (because, detail) if match] or [
        message or "no reason given"
    ]
    return "process", f"its process died: {'; '.join(found)[:300]}"


class Watch(Callback):
    """Forwards callback events to the search, kills hanging trials, and ends the run on request."""

    def __init__(self, search: LedgerSearch, stop_requested: Callable[[], bool]) -> None:
        self._search = search
        self._stop_requested = stop_requested
        self._running: dict[str, Trial] = {}  # Tune's trials, by id
        self._actors: set[str] = set()  # the ids of processes that have trained

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._running[trial.trial_id] = trial
        actor = actor_id_of(trial)
        self._search.attempt_started(trial.trial_id, actor not in self._actors)
        self._actors.add(actor)

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._running.pop(trial.trial_id, None)

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._running.pop(trial.trial_id, None)
        # Not `get_pickled_error`: it reads from Tune's snapshots, which are off.
        message = Path(trial.error_file).read_text(errors="replace") if trial.error_file else ""
        self._search.attempt_died(trial.trial_id, message)

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        """Called between events: an exception raised here ends the run."""
        self._search.look()
        for trial_id in self._search.overdue():
            ray.kill(actor_of(self._running[trial_id]))
        if self._search.fault is not None:
            raise self._search.fault
        if self._stop_requested():
            raise Interrupted

    def __reduce__(self) -> tuple[Any, ...]:
        return Callback, ()
