"""Trials of a label were trained with one version of a user's own code."""

from __future__ import annotations

from study.audit.evidence import Evidence
from study.audit.result import Check
from study.store.extensions import first_users
from trainables.plugins import changed_files


def check_extensions(facts: Evidence) -> Check:
    """All trials of a label recorded the same files, and the study's copy is what they recorded."""
    check = Check("extensions", "trials of a method trained with the same extension files")
    for records in facts.records.by_label.values():
        used = [record for record in records if record.attempt and record.extensions]
        check.counted += len(used)
        first = first_users(used)
        for record in used:
            for file, digest in record.extensions.items():
                if digest != first[file].extensions[file]:
                    fix = "their results cannot be compared; delete the study and run it again"
                    check.add_offender(
                        record.name, f"was trained with another {file} than {first[file].name}", fix
                    )
        for file in changed_files(
            facts.study.spec.extensions,
            {file: record.extensions[file] for file, record in first.items()},
        ):
            fix = "restore it; `export` and `confirm` use this copy"
            check.add_offender(
                f"extensions/{file}", f"is not what {first[file].name} was trained with", fix
            )
    return check
