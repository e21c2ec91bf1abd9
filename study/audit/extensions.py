"""Trials of a label were trained with one version of a user's own code."""

from __future__ import annotations

from study.audit.evidence import Evidence
from study.audit.result import Check
from study.store.extensions import files_of, first_users
from trainables.plugins import changed_files


def check_extensions(facts: Evidence) -> Check:
    """No two trials of a label recorded a file differently, and the study's copy is what they recorded."""
    check = Check("extensions", "trials of a method trained with the same extension files")
    spec, unknown = facts.study.spec, 0
    for label, records in facts.records.items():
        used = (
            [record for record in records if record.attempt]
            if files_of(spec.trial_mapping(label))
            else []
        )
        unknown += sum(not record.extensions for record in used)
        check.counted += sum(bool(record.extensions) for record in used)
        first = first_users(used)
        for record in used:
            for file, digest in record.extensions.items():
                if digest != first[file].extensions[file]:
                    fix = "their results cannot be compared; delete the study and run it again"
                    check.add_offender(
                        record.name, f"was trained with another {file} than {first[file].name}", fix
                    )
        for file in changed_files(
            spec.extensions, {file: record.extensions[file] for file, record in first.items()}
        ):
            fix = "restore it; `export` and `confirm` use this copy"
            check.add_offender(
                f"extensions/{file}", f"is not what {first[file].name} was trained with", fix
            )
    if unknown:
        check.notes.append(f"{unknown} trials were trained before extension files were recorded")
    return check
