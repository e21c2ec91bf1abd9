"""Every decision of early stopping, recomputed from what it was made of."""

from __future__ import annotations

from collections.abc import Iterator

from study.analysis.rungs import entries_of, goes_on, is_protected
from study.audit.evidence import Evidence
from study.audit.result import Check
from study.audit.values import TOLERANCE
from study.schema.early_stopping import EarlyStopping
from study.store.files import BACKUP, file_problem
from study.store.study import Study
from study.store.trials import TrialRecord
from trainables import metrics
from trainables.outputs.attempts import attempt_directory
from trainables.outputs.predictions import Predictions
from trainables.problems import FieldError


def check_rungs(facts: Evidence, rule: EarlyStopping) -> Check:
    """Each trial at the rung has one decision, the rule's; exactly those told to stop did."""
    check = Check("rungs", "decisions of early stopping as the rule makes them")
    spec = facts.study.spec
    epoch = rule.epoch(spec.epochs)
    for variant in spec.variants:
        records = facts.records.of(variant.label)
        entries = entries_of(records, epoch)
        check.counted += len(entries)
        if wrong := [entry for entry in entries if len(entry.costs) != len(rule.by)]:
            problem = (
                f"trial {wrong[0].number} has {len(wrong[0].costs)} costs, not one for each of"
            )
            check.add_offender(variant.label, f"{problem} {', '.join(rule.by)}")
            continue
        places = [entry.place for entry in entries]
        if places != list(range(len(entries))):
            problem = f"the places of its decisions are {', '.join(map(str, places))}"
            check.add_offender(
                variant.label, f"{problem}, not each of 0 to {len(entries) - 1} once"
            )
        named = {record.number: record for record in records}
        for entry in entries:
            record = named[entry.number]
            protected = is_protected(variant, record.number)
            before = [other for other in entries if other.place < entry.place]
            expected = protected or goes_on(entry, before, rule.keep)
            decided = record.rungs[str(epoch)].goes_on
            if expected != decided:
                words = {True: "goes on", False: "stops"}
                problem = (
                    f"the ledger says that it {words[decided]} after epoch {epoch}, the rule"
                    " that it"
                )
                check.add_offender(record.name, f"{problem} {words[expected]}")
            for problem in _problems_with_costs(facts.study, record, epoch, rule):
                check.add_offender(record.name, problem)
        for record in records:
            _check_state(facts, record, epoch, check)
    return check


def _check_state(facts: Evidence, record: TrialRecord, epoch: int, check: Check) -> None:
    """A trial ended as was decided, if at all."""
    if record.rungs.keys() - {str(epoch)}:
        check.add_offender(record.name, f"has decisions after other epochs than {epoch}")
    entry = record.rungs.get(str(epoch))
    if entry is None:
        if record.state in ("complete", "pruned"):
            check.add_offender(
                record.name, f"is {record.state} without a decision after epoch {epoch}"
            )
    elif entry.goes_on == (record.state == "pruned"):
        decided = "to go on" if entry.goes_on else "to stop"
        to_come = record.state == "running" and facts.goes_on_later
        fix = f"end it with {facts.goes_on}" if record.state == "running" else BACKUP
        check.add_offender(
            record.name, f"was {decided} after epoch {epoch}, and is {record.state}", fix, to_come
        )
    elif record.state == "pruned" and (record.epoch, record.attempt) != (epoch, entry.attempt):
        problem = (
            f"was stopped in attempt {entry.attempt} at epoch {epoch}, but its outcome is of"
            " attempt"
        )
        check.add_offender(record.name, f"{problem} {record.attempt} at epoch {record.epoch}")


def _problems_with_costs(
    study: Study, record: TrialRecord, epoch: int, rule: EarlyStopping
) -> Iterator[str]:
    """Differences between a decision's costs and those of the predictions stored at the rung."""
    entry = record.rungs[str(epoch)]
    directory = record.directory(study.directory)
    file = f"rung-{epoch}.npz"
    path = attempt_directory(directory, entry.attempt) / file
    if problem := file_problem(path, entry.digests.get(file, "")):
        yield f"{file} {problem}"
        return
    try:
        predictions = Predictions.stored(path)
    except FieldError as error:
        yield error.problem
        return
    found = metrics.costs(predictions.logits, predictions.labels, rule.by, predictions.groups)
    for name, recorded, cost in zip(rule.by, entry.costs, found, strict=True):
        if not abs(recorded - cost) <= TOLERANCE:
            yield f"{name} costs {recorded:g} in the ledger, {cost:g} by {file}"
