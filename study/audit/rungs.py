"""Every decision of early stopping, recomputed from what it was made of."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from study.analysis.rungs import entries_of, goes_on, is_protected
from study.audit.evidence import Evidence
from study.audit.result import Check
from study.audit.values import TOLERANCE
from study.schema.early_stopping import EarlyStopping
from study.store.files import BACKUP
from study.store.trials import Decision, TrialRecord
from trainables import metrics
from trainables.outputs.attempts import attempt_directory
from trainables.outputs.predictions import Predictions
from trainables.problems import FieldError


def check_rungs(facts: Evidence, rule: EarlyStopping, whole: set[Path]) -> Check:
    """Each trial at the rung has one decision, the rule's; exactly those told to stop did.

    whole: the files that match the ledger.
    """
    check = Check("rungs", "decisions of early stopping as the rule makes them")
    spec = facts.study.spec
    epoch = rule.epoch(spec.epochs)
    for variant in spec.variants:
        records = facts.records.of(variant.label)
        entries = entries_of(records, epoch)
        check.counted += len(entries)
        if wrong := [entry for entry in entries if len(entry.costs) != len(rule.by)]:
            has = f"trial {wrong[0].number} has {len(wrong[0].costs)} costs, not one for each of"
            check.add_offender(variant.label, f"{has} {', '.join(rule.by)}")
            continue
        places = [entry.place for entry in entries]
        if places != list(range(len(entries))):
            listed = ", ".join(map(str, places))
            problem = f"the places of its decisions are {listed}, not each of 0 to {places[-1]}"
            check.add_offender(variant.label, f"{problem} once")
        named = {record.number: record for record in records}
        for entry in entries:
            record = named[entry.number]
            decision = record.rungs[str(epoch)]
            before = [other for other in entries if other.place < entry.place]
            protected = is_protected(variant, record.number)
            expected = protected or goes_on(entry, before, rule.keep)
            if expected != decision.goes_on:
                words = {True: "goes on", False: "stops"}
                says = f"the ledger says that it {words[decision.goes_on]} after epoch {epoch}"
                check.add_offender(record.name, f"{says}, the rule that it {words[expected]}")
            directory = attempt_directory(record.directory(facts.study.directory), decision.attempt)
            file = directory / f"rung-{epoch}.npz"
            if file in whole:
                check.add_differences(record.name, list(_other_costs(decision, file, rule)))
        for record in records:
            if problem := _other_end(record, epoch):
                running = record.state == "running"
                fix = f"end it with {facts.goes_on}" if running else BACKUP
                check.add_offender(record.name, problem, fix, running and facts.goes_on_later)
    return check


def _other_end(record: TrialRecord, epoch: int) -> str:
    """What is wrong where a trial did not end as was decided; else empty."""
    decision = record.rungs.get(str(epoch))
    if record.rungs.keys() - {str(epoch)}:
        return f"has decisions after other epochs than {epoch}"
    if decision is None:
        measured = record.state in ("complete", "pruned")
        return f"is {record.state} without a decision after epoch {epoch}" if measured else ""
    if decision.goes_on == (record.state == "pruned"):
        decided = "to go on" if decision.goes_on else "to stop"
        return f"was {decided} after epoch {epoch}, and is {record.state}"
    if record.state == "pruned" and (record.epoch, record.attempt) != (epoch, decision.attempt):
        ended = f"its outcome is of attempt {record.attempt} at epoch {record.epoch}"
        return f"was stopped in attempt {decision.attempt} at epoch {epoch}, but {ended}"
    return ""


def _other_costs(decision: Decision, file: Path, rule: EarlyStopping) -> Iterator[str]:
    """Differences between a decision's costs and those of the predictions stored at the rung."""
    try:
        predictions = Predictions.stored(file)
    except FieldError as error:
        yield error.problem
        return
    found = metrics.costs(predictions.logits, predictions.labels, rule.by, predictions.groups)
    for name, recorded, cost in zip(rule.by, decision.costs, found, strict=True):
        if not abs(recorded - cost) <= TOLERANCE:
            yield f"{name} costs {recorded:g} in the ledger, {cost:g} by {file.name}"
