"""Early stopping on Ray Tune: a trial's decision is in the ledger before Ray hears of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ray.tune.schedulers import FIFOScheduler, TrialScheduler

from study.analysis.rungs import RungEntry, entries_of, goes_on, going_on, is_protected, rank
from study.schema.spec import StudySpec
from study.store.ledger import Ledger
from study.store.trials import Decision, TrialRecord
from trainables.outputs.outcome import Reached


class RungScheduler(FIFOScheduler):
    """Stops the trials that are not to go on, by `LedgerSearch.goes_on`."""

    def __init__(self, goes_on: Callable[[str, str], bool]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._goes_on = goes_on

    def on_trial_result(self, tune_controller: Any, trial: Any, result: Mapping[str, Any]) -> str:
        """Called before the search hears of a result; of one that stops it hears by
        `on_trial_complete` alone."""
        further = self._goes_on(trial.trial_id, result["reports"])
        return str(TrialScheduler.CONTINUE if further else TrialScheduler.STOP)

    def __reduce__(self) -> tuple[Any, ...]:
        return FIFOScheduler, ()


def decided(ledger: Ledger, spec: StudySpec, record: TrialRecord, rung: Reached) -> Decision:
    """The ledger's decision of a trial at a rung; decided and recorded now if there is none yet.

    rung: as `Attempt` reports it, with the attempt that did.
    """
    epoch = rung.epoch
    rule = spec.early_stopping
    outcome = rung.outcome
    assert rule and outcome.attempt and outcome.digests and outcome.metrics
    if str(epoch) in record.rungs:
        return record.rungs[str(epoch)]
    before = entries_of(ledger.records(record.label), epoch)
    here = RungEntry(len(before), record.number, tuple(rung.costs))
    file = f"rung-{epoch}.npz"
    digests = {file: outcome.digests[file]}
    decision = Decision(here.place, rung.costs, outcome.attempt, digests)
    protected = is_protected(spec.variant(record.label), record.number)
    if not (protected or goes_on(here, before, rule.keep)):
        values = ", ".join(f"{name} {outcome.metrics[name]:.4f}" for name in rule.by)
        count = len(before) + 1
        best = f"rank {rank(here, before)} of {count}, the best {going_on(count, rule.keep)} go on"
        reason = f"stopped early at epoch {epoch} of {spec.epochs}: {values} ({best})"
        decision = replace(decision, outcome=replace(outcome, reason=reason))
    ledger.decide(record.label, record.number, epoch, decision)
    return decision
