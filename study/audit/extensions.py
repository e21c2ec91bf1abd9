"""Trials of a label were trained with one version of a user's own code."""

from __future__ import annotations

from study.audit.evidence import Evidence
from study.audit.result import Check
from study.store.extensions import changed_code, mended_code
from study.store.trials import TrialRecord


def check_extensions(facts: Evidence) -> Check:
    """All trials of a label recorded the same files, or others where they were mended for a retry,
    and the study's copy is what holds."""
    check = Check("extensions", "trials of a method trained with the same extension files")
    for records in facts.records.by_label.values():
        used = [record for record in records if record.attempt and record.extensions]
        check.counted += len(used)
        first: dict[str, TrialRecord] = {}
        mended: set[tuple[str, str]] = set()  # file and digest of retries
        for record in used:
            if record.is_retry:
                mended |= set(record.extensions.items())
            for file in record.extensions:
                first.setdefault(file, record)
        fix = "their results cannot be compared; delete the study and run it again"
        for record in used:
            for file, digest in record.extensions.items():
                known = first[file].extensions[file]
                if digest != known and not {(file, digest), (file, known)} & mended:
                    problem = f"was trained with another {file} than {first[file].name}"
                    check.add_offender(record.name, problem, fix)
        check.notes += [f"{line}." for line in mended_code(used)]
        fix = "restore it; `export` and `confirm` use this copy"
        for file, trial in changed_code(facts.study.spec.extensions, used).items():
            problem = f"is not what {trial} was trained with"
            check.add_offender(f"extensions/{file}", problem, fix)
    return check
