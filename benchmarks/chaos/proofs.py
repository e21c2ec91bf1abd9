"""What must be true of a study under fire: the audit, and what the audit does not look at."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from benchmarks.chaos.attempts import Attempt, Loss
from benchmarks.chaos.processes import command_line, wait_for
from study.store.study import StudyFolder
from study.store.trials import TrialRecord

if TYPE_CHECKING:
    from trainables.training.learner import Learner

# How long the processes of a study may take to end once their driver has. Where it was killed, two
# agents of Ray first try for a minute to tell the control store, which is gone too, that their
# raylet is (process_watcher.py:109).
ENDING_SECONDS = 90.0


def audited(study: StudyFolder, tracking: str | None, seconds: float) -> dict[str, Any]:
    """The audit, once it is clean; as it is after so many seconds.

    MLflow follows the ledger: while a driver works, or its server has just been away, it may
    lack what was just told.
    """
    from study.audit.audit import audit

    deadline = time.monotonic() + seconds
    while True:
        report = audit(study, study.tracking(tracking))
        if report.clean or time.monotonic() > deadline:
            break
        time.sleep(0.5)
    told = report.to_json()
    return {
        **{key: told[key] for key in ("clean", "planned", "lost", "duplicated")},
        "off": {
            check["name"]: check["offenders"] for check in told["checks"] if check["offenders"]
        },
    }


def left_alive(processes: Callable[[], list[int]]) -> list[str]:
    """Every process that is still there although its driver has ended."""
    wait_for(lambda: not processes(), ENDING_SECONDS)
    return [f"left alive: {pid} {command_line(pid)[:100]}" for pid in processes()]


def promises_kept(losses: list[Loss]) -> list[str]:
    """Every attempt of which more was lost than one checkpoint interval."""
    return [
        f"{loss.lost.trial} attempt {loss.lost.number}: {loss.epochs} epochs lost, promised"
        f" {loss.promised}"
        for loss in losses
        if not loss.kept
    ]


def proposed_as_undisturbed(study: StudyFolder) -> list[str]:
    """Trials whose parameters are not those that one driver, never disturbed, would have proposed.

    True of the random sampler alone: others look at what is finished, and that is a matter of time.
    """
    from study.analysis.ranking import rules_of
    from study.engine.proposing import Proposer

    undisturbed, wrong = Proposer(study.spec, rules_of(study), []), []
    for label, records in study.records().by_label.items():
        for record in records:
            expected = undisturbed.proposal(label, record.number)
            if record.params != expected:
                wrong.append(
                    f"{record.name}: its parameters are {record.params}, undisturbed {expected}"
                )
    return wrong


def trained_as_undisturbed(
    study: StudyFolder, attempts: dict[str, list[Attempt]], rng: random.Random
) -> list[str]:
    """One of the trials that were attempted again, and all of its stack, trained without a break:
    equal logits, bit for bit."""
    import torch

    from trainables.outputs.predictions import Predictions

    again = [
        record
        for record in study.records().complete
        if (
            any(attempt.resumed_after for attempt in attempts[record.name])
            if record.stack is None
            # It has not left its stack.
            else len(attempts[record.name]) > 1 and record.deaths.get("stack", 0) < 2
        )
    ]
    if not again:
        return []
    record = rng.choice(again)
    torch.set_num_threads(max(1, int(study.spec.resources.cpu)))
    rows, wrong = [record], []
    if record.stack is not None:
        rows = [one for one in study.records() if one.stack == record.stack]
    for row, learner in zip(rows, _undisturbed(study, rows), strict=True):
        if row.state != "complete":
            continue
        learner.take_result()
        undisturbed = learner.predictions()
        told = Predictions.load(study.files(row) / "predictions.npz")
        equal = torch.equal(undisturbed.logits, told.logits)
        if not equal or undisturbed.evaluate() != row.metrics:
            wrong.append(f"{row.name}: trained without a break it gives other predictions")
    return wrong


def _undisturbed(study: StudyFolder, rows: list[TrialRecord]) -> list[Learner]:
    """The learners of a lone trial, or of all trials of a stack, at the end of their training."""
    import torch

    from trainables.loading.trial_data import trial_data
    from trainables.training.learner import Learner
    from trainables.training.stack import Stack

    configs, device = [study.config_of(row) for row in rows], torch.device("cpu")
    data = trial_data(configs[0], device)
    if len(rows) > 1:
        stack = Stack(configs, data, device)
        while not stack.finished:
            stack.advance()
        return stack.rows
    learner = Learner(configs[0], data, device)
    while not learner.finished:
        learner.train_epoch()
    return [learner]
