"""The audit's check of registered models: each once, its files unchanged, no export half done."""

from __future__ import annotations

import json

from study.audit.evidence import Evidence
from study.audit.result import Check
from study.schema.uris import sqlite_file
from study.store.files import BACKUP
from study.tracking.locations import local_folder, present_location
from study.tracking.registered import ARTIFACTS, RegisteredVersion, differences, facts_of


def check_registered(facts: Evidence) -> Check:
    """Opens nothing of a model. `calstudy verify` compares files on a server or in a bucket."""
    versions = sorted(facts.registered.versions, key=lambda version: (version.name, version.number))
    check = Check("registered", "registered models once and unchanged", len(versions))
    if facts.registered.problem is not None:
        check.notes.append(f"not checked: {facts.registered.problem.rstrip('.')}.")
    first: dict[tuple[str | None, ...], RegisteredVersion] = {}
    for version in versions:
        uri = version.uri
        trial = version.tags.get("calstudy.trial", "")
        earlier = first.setdefault((version.name, *facts_of(version.tags)), version)
        if earlier is not version:
            model = "" if earlier.source == version.source else " and its model"
            fix = f"delete one of the two versions{model} in MLflow"
            check.add_offender(uri, f"is {trial} again, as is {earlier.uri}", fix)
        if problems := _problems(facts, version):
            fix = (
                f"{BACKUP}, or delete the version and its model in MLflow and export {trial} again"
            )
            check.add_offender(uri, problems, fix)
    for trial, model, whole in facts.registered.unfinished:
        if whole:  # its version was deleted, or an export was killed just before
            check.notes.append(
                f"{trial}: the model {model} in MLflow is no version; you may delete it there."
            )
            continue
        fix = (
            f"finish it with `{facts.study.command('export', '--trial', trial, '--name', 'NAME')}`,"
            " or delete it in MLflow"
        )
        check.add_offender(
            trial, f"an export left the model {model}, which is no version", fix, facts.exporting
        )
    return check


def _problems(facts: Evidence, version: RegisteredVersion) -> str:
    """Differences of its local files from those registered; empty also if they are not here."""
    location = present_location(
        version.source, facts.study.name, facts.uri, facts.study.directory.parent
    )
    folder = local_folder(location)
    if folder is None:
        return ""
    # A server's folder may be one of another machine; that of an embedded MLflow is here.
    if sqlite_file(facts.uri) is None and not folder.is_dir():
        return ""
    try:
        recorded = json.loads(version.tags.get(ARTIFACTS, ""))
    except (ValueError, RecursionError):
        recorded = None
    if not isinstance(recorded, dict):
        return f"its tag {ARTIFACTS} is damaged"
    try:
        return "; ".join(differences(folder, recorded))
    except OSError as error:
        return f"its files in {folder} cannot be compared ({error})"
