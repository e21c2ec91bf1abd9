"""Whether a registered model is the one that was measured: asked here, found out in a process of
its own (`python -m study.registry.verify URI`)."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from study.schema import own_code
from study.schema.uris import TrackingError, public_uri, scrub, sqlite_file
from study.tracking.client import asking, open_existing, pages
from trainables.problems import FieldError, nearest

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion

# MLflow's 7 retries wait four minutes for an unreachable server; 3 wait a quarter of a minute.
RETRIES = "MLFLOW_HTTP_REQUEST_MAX_RETRIES"


@dataclass(frozen=True)
class Comparison:
    """One comparison: the value found and its limit."""

    name: str
    found: float
    limit: float
    ok: bool


@dataclass(frozen=True)
class VerifyReport:
    """`problem`: why nothing was compared. `flipped`: samples on a tie that fell the other way.

    num_images: that the samples are pixels of; 0: they are none.
    """

    model: str
    checks: tuple[Comparison, ...] = ()
    num_samples: int = 0
    num_images: int = 0
    flipped: int = 0
    metrics: dict[str, float | None] = field(default_factory=dict)
    problem: str | None = None

    @property
    def ok(self) -> bool:
        return self.problem is None and bool(self.checks) and all(check.ok for check in self.checks)

    def to_json(self) -> dict[str, object]:
        """Plain values; None for a number that is not finite."""
        checks = [asdict(check) for check in self.checks]
        for check in checks:
            check["found"] = check["found"] if math.isfinite(check["found"]) else None
        return {"ok": self.ok, **asdict(self), "checks": checks}

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> VerifyReport:
        rest = {key: value for key, value in plain.items() if key not in ("ok", "checks")}
        checks = [
            {**check, "found": math.nan if check["found"] is None else check["found"]}
            for check in plain["checks"]
        ]
        return cls(checks=tuple(Comparison(**check) for check in checks), **rest)


class NotVerified(Exception):
    """The comparison cannot be made: why, in one line."""


def verify(
    model_uri: str,
    tracking_uri: str,
    storage: Path,
    extensions: Path | None = None,
    keep: Path | None = None,
) -> VerifyReport:
    """Compare a version's files with their registered digests, then its predictions in a process
    that refuses pickle.

    storage: where a study may lie whose own data set it needs, unless `extensions` has it.
    keep: a new folder for the files that were verified.
    """
    missing = missing_database(tracking_uri)
    if missing is not None:
        return VerifyReport(
            model_uri,
            problem=f"no MLflow database at {missing}; give its location with --tracking.",
        )
    ours = own_code.environment()
    environment = {
        **{key: value for key, value in ours.items() if key != "MLFLOW_REGISTRY_URI"},
        "MLFLOW_TRACKING_URI": tracking_uri,
        "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false",
        "MLFLOW_DEFAULT_PREDICTION_DEVICE": "cpu",
        "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
        RETRIES: os.environ.get(RETRIES) or "3",
        "CUDA_VISIBLE_DEVICES": "",
    }
    given = [str(storage), str(extensions or ""), str(keep or "")]
    # -P: a file in the user's working directory must not shadow a library.
    command = [sys.executable, "-P", "-m", "study.registry.verify", model_uri, *given]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    if done.returncode != 0 or not lines:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        return VerifyReport(
            model_uri,
            problem=f"the verification process exited with code {done.returncode}: {last}",
        )
    report = VerifyReport.from_json(json.loads(lines[-1]))
    return replace(report, problem=report.problem and scrub(report.problem, tracking_uri))


def missing_database(tracking_uri: str) -> Path | None:
    """The missing file of an SQLite URI, if so: MLflow would create an empty one."""
    path = sqlite_file(tracking_uri)
    if path is None or path.is_file():
        return None
    return path


# ---- which version -------------------------------------------------------------------------------


def parts_of(model_uri: str) -> tuple[str, str, bool]:
    """A model's name, a version or an alias of it, and whether that is an alias. Raises
    FieldError."""
    parts = re.fullmatch(r"models:/([^/@]+)([/@])([^/@]+)", model_uri)
    if parts is None:
        mend = "Give models:/NAME/VERSION or models:/NAME@ALIAS."
        raise FieldError(model_uri, "is not a model version", mend)
    name, separator, which = parts.groups()
    # To MLflow `latest` is an alias too.
    return name, which, separator == "@" or not which.isdigit()


def registered_version(client: MlflowClient, name: str, which: str, is_alias: bool) -> ModelVersion:
    """Raises MlflowException if there is none."""
    if is_alias:
        return client.get_model_version_by_alias(name, which)
    return client.get_model_version(name, which)


def look_up(model_uri: str, tracking_uri: str) -> None:
    """Raise FieldError if the registry has no such version, with what it has. A registry that
    cannot be asked is left to `verify`.

    Asked before torch is imported and another process started.
    """
    from mlflow.exceptions import MlflowException

    parts = parts_of(model_uri)
    lacking = None
    with suppress(TrackingError), asking(tracking_uri, MLFLOW_HTTP_REQUEST_TIMEOUT="120"):
        client = open_existing(tracking_uri)
        try:
            registered_version(client, *parts)
        except MlflowException as error:
            if error.error_code not in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
                raise
            lacking = _what_there_is(client, *parts, public_uri(tracking_uri))
    if lacking is not None:
        raise FieldError(model_uri, *lacking)


def _what_there_is(
    client: MlflowClient, name: str, which: str, is_alias: bool, where: str
) -> tuple[str, str]:
    """What is not there, and what is."""
    found = {each.name: each for each in pages(client.search_registered_models)}
    if name not in found:
        mend = nearest(name, found) if found else "Register one with `calstudy export`."
        return f"there is no registered model '{name}' at {where}", mend
    if is_alias:
        aliases = found[name].aliases
        mend = nearest(which, aliases) if aliases else "It has none."
        return f"{name} has no alias '{which}'", mend
    numbers = [int(each.version) for each in pages(client.search_model_versions, f"name='{name}'")]
    versions = ", ".join(map(str, sorted(numbers))) or "none"
    return f"{name} has no version {which}", f"It has: {versions}."
