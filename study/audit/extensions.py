"""Trials of a label were trained with one version of a user's own code."""

from __future__ import annotations

from study.audit.evidence import Evidence
from study.audit.result import Check
from study.store.extensions import changed_code, first_users


def check_extensions(facts: Evidence) -> Check:
    """All trials of a label recorded the same files, and the study's copy is what they recorded."""
    check = Check("extensions", "trials of a method trained with the same extension files")
    for records in facts.records.by_label.values():
        used = [record for record in records if record.attempt and record.extensions]
        check.counted += len(used)
        first = first_users(used)
        fix = "their results cannot be compared; delete the study and run it again"
        for record in used:
            for file, digest in record.extensions.items():
                if digest != first[file].extensions[file]:
                    problem = f"was trained with another {file} than {first[file].name}"
                    check.add_offender(record.name, problem, fix)
        fix = "restore it; `export` and `confirm` use this copy"
        for file, trial in changed_code(facts.study.spec.extensions, used).items():
            problem = f"is not what {trial} was trained with"
            check.add_offender(f"extensions/{file}", problem, fix)
    return check
