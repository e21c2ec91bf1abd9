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
        stack = record.training.get("stack", "alone").partition(",")[0]
        planned = record.stack or "alone"
        check.counted += planned != "alone"
        if stack != planned and not (stack == "alone" and planned in dissolved):
            found = f"was trained in {stack}, the ledger has {planned}"
            fix = "its bits are not those of its stack; delete the study and run it again"
            check.add_offender(record.name, found.replace("in alone", "alone"), fix)
    for folder in ended_stacks(facts.study.directory, facts.records):
        fix = f"remove it with {facts.goes_on}"
        found = "is left of a stack whose trials have ended"
        check.add_offender(f"stacks/{folder.name}", found, fix, facts.goes_on_later)
    return check
