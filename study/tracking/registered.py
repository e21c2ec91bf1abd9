"""A study's registered models: files against digests, and what an export left unfinished."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from study.tracking.client import PREFIX, pages
from trainables.files.digest import file_digest

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import LoggedModel

ARTIFACTS = PREFIX + "artifacts"  # the tag with the sha256 of each file
# MLflow writes this file when it loads a version: into its own copy, or beside the local files.
ADDED = "registered_model_meta"


def digests_of(folder: Path) -> dict[str, str]:
    """{path: sha256} of a model's files."""
    files = {
        path.relative_to(folder).as_posix(): path
        for path in sorted(folder.rglob("*"))
        if not path.is_dir()
    }
    # A pipe would be read for ever.
    return {
        name: file_digest(path) if path.is_file() else ""
        for name, path in files.items()
        if name != ADDED
    }


def differences(folder: Path, recorded: Mapping[str, str]) -> list[str]:
    """The faults of a model's files, one phrase a file; empty if they are those registered."""
    found = digests_of(folder)
    words = {path: "was added" for path in found.keys() - recorded}
    words |= {path: "is missing" for path in recorded.keys() - found}
    words |= {
        path: "has changed" for path in found.keys() & recorded if found[path] != recorded[path]
    }
    return [
        f"{path if path.isprintable() else ascii(path)} {what}"
        for path, what in sorted(words.items())
    ]


def recorded_digests(tags: Mapping[str, str]) -> Mapping[str, str]:
    """{path: sha256} from a version's tags. A damaged tag names no file: all of them were added."""
    try:
        recorded = json.loads(tags[ARTIFACTS])
    except (ValueError, RecursionError):
        return {}
    if not isinstance(recorded, dict):
        return {}
    return recorded


def facts_of(tags: Mapping[str, str]) -> tuple[str | None, ...]:
    """The facts two versions of a name must not share: trial's files, what is served, confirmation,
    for what it was selected by hand, a calibrator.

    A version without digests of its files is another: nobody can tell whether they are the ones
    registered.
    """
    keys = ("id", "trial", "model_sha256", "predictions_sha256", "confirmed", "serves")
    same = (tags.get(PREFIX + key) for key in (*keys, "selected_for"))
    return (*same, tags.get(PREFIX + "calibrator"), "digests" if ARTIFACTS in tags else None)


def unfinished(
    client: MlflowClient, experiment: str, study_id: str, trial: str | None = None
) -> list[LoggedModel]:
    """Models that exports uploaded, or began to, and that are no version; of one `trial` only."""
    wanted = f"tags.`{PREFIX}id` = '{study_id}'"
    if trial:
        wanted += f" AND tags.`{PREFIX}trial` = '{trial}'"
    models = pages(client.search_logged_models, [experiment], wanted)
    # By their files: a version that a user made in MLflow may have no tags of ours, and no run.
    return [
        model
        for model in models
        if not client.search_model_versions(f"source_path LIKE '%{model.model_id}%'", max_results=1)
    ]
