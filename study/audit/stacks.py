"""Trials were trained in the stacks that the ledger records."""

from __future__ import annotations

from study.audit.evidence import Evidence
from study.audit.result import Check
from study.store.ledger_facts import dissolved_in
from study.store.trials import ended_stacks


def check_stacks(facts: Evidence) -> Check:
    """Each trial in its own, or alone if that was dissolved; and none has left a folder."""
    check = Check("stacks", "trials trained in the stacks that the ledger records")
    dissolved = dissolved_in({label: state.notes for label, state in facts.labels.items()})
    for record in facts.records.finished:
        if not record.training:  # it failed before its first epoch
            continue
        stack = record.training.get("stack", "").partition(",")[0] or None
        check.counted += record.stack is not None
        if stack != record.stack and not (stack is None and record.stack in dissolved):
            found = f"was trained {_how(stack)}; the ledger has it {_how(record.stack)}"
            fix = "its result is not that of its stack; delete the study and run it again"
            check.add_offender(record.name, found, fix)
    for folder in ended_stacks(facts.study.directory, facts.records):
        fix = f"remove it with {facts.goes_on}"
        found = "is left of a stack whose trials have ended"
        check.add_offender(f"stacks/{folder.name}", found, fix, facts.goes_on_later)
    return check


def _how(stack: str | None) -> str:
    return "alone" if stack is None else f"in the stack {stack}"
