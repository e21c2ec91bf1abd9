"""Run a study as a Ray job: code, spec and extensions are uploaded, and the driver runs on the
head."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from search_spaces import strict_yaml
from study.machines import node_facts
from study.machines.doctor import DoctorReport
from study.machines.handing import PLACE, hand_over
from study.machines.job_server import (
    DOCTOR,
    POLL_SECONDS,
    RUN,
    STOP_SECONDS,
    connect,
    errors_of,
    our_jobs,
)
from study.machines.nodes import DATA_PATIENCE
from study.machines.ray_session import ClusterError
from study.schema.errors import SpecError
from study.schema.reading import path_options
from study.schema.spec import StudySpec, refuse_confirmation
from study.schema.uris import has_password, password_elsewhere, resolve_uri
from study.schema.wait import NO_WAIT, Wait
from study.store.study import spec_and_study, storage_root
from trainables.machine import versions
from trainables.plugins import keep_extensions

SPEC_FOLDER = "spec"
EXTENSIONS = "extensions"


@dataclass(frozen=True)
class JobRequest:
    """What to run on the cluster: a spec, and the storage there."""

    spec: StudySpec | None
    file: Path | None
    root: Path
    # The URI of --tracking or the spec: a file or variable that holds it is not there.
    tracking: str | None
    trials: int | None = None
    wait: Wait = NO_WAIT

    @property
    def words(self) -> list[str]:
        """The arguments of both commands. They are public, and hold no password."""
        named = [f"{SPEC_FOLDER}/{self.file.name}"] if self.file is not None else []
        tracking = ["--tracking", self.tracking] if self.tracking is not None else []
        return [*named, "--address", "auto", "--storage", str(self.root), *tracking]

    def again(self, env: Iterable[str]) -> str:
        """The words after `calstudy submit` that make this request again; env: names of
        variables."""
        tracking = ["--tracking", self.tracking] if self.tracking is not None else []
        trials = [] if self.trials is None else ["--trials", str(self.trials)]
        handed = [word for name in env for word in ("--env", name)]
        words = [str(self.file), "--storage", str(self.root), *tracking, *trials, *self.wait.words]
        return shlex.join([*words, *handed])


def job_request(
    file: Path | None,
    storage: str | None,
    tracking: str | None,
    trials: int | None = None,
    wait: Wait = NO_WAIT,
) -> JobRequest:
    """The checked request. Raises SpecError, ClusterError: paths must be absolute, to be the same
    on every node."""
    spec = spec_and_study(file, storage, trials=trials)[0] if file is not None else None
    if file is not None and spec is not None:
        refuse_confirmation(spec, file.name)
        refuse_relative_paths(file)
    in_spec = spec.storage if spec is not None else None
    chosen = storage or in_spec or os.environ.get("CALSTUDY_STORAGE")
    if chosen is not None:
        storage_root(storage, in_spec)  # refuses a URL
    if chosen is None or not Path(chosen).is_absolute():
        found = "is missing" if chosen is None else f"'{chosen}' is a relative path"
        raise ClusterError(
            f"--storage: {found}", "Give the absolute path of a folder that every node sees."
        )
    named = tracking or (spec.tracking if spec is not None else None)
    uri = resolve_uri(tracking, named, Path(chosen))
    if has_password(uri):
        where = "--tracking" if tracking else "tracking"
        raise ClusterError(
            f"{where}: what {named} holds has a password or token, which is not sent to a cluster",
            f"{password_elsewhere(uri)} on the head.",
        )
    return JobRequest(spec, file, Path(chosen), uri if named else None, trials, wait)


def refuse_relative_paths(file: Path) -> None:
    written = strict_yaml.read(file)
    sources = {
        "data": written["data"],
        **{f"shift.{name}": of for name, of in (written.get("shift") or {}).items()},
    }
    paths = []
    for key, source in sources.items():
        if isinstance(source, dict):
            paths += [(f"{key}.{name}", source.get(name)) for name in path_options(source)]
    for key, path in (*paths, ("ledger", written.get("ledger"))):
        if isinstance(path, str) and "://" not in path and not os.path.isabs(path):
            raise SpecError(
                file.name,
                key,
                f"'{path}' is a relative path",
                "Give the absolute path on the cluster's nodes.",
            )


# ---- the upload ----------------------------------------------------------------------------------


@contextmanager
def package(request: JobRequest) -> Iterator[Path]:
    """A temporary folder with exactly the installed code, the spec and its extensions."""
    with tempfile.TemporaryDirectory(prefix="calstudy-submit-") as made:
        folder = Path(made)
        for name in node_facts.PACKAGES:
            found = importlib.util.find_spec(name)
            assert found is not None and found.submodule_search_locations
            source = Path(found.submodule_search_locations[0])
            for path in node_facts.code_files(source):
                (folder / name / path.relative_to(source)).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, folder / name / path.relative_to(source))
        _write_version(folder)
        if request.file is not None and request.spec is not None:
            _write_spec(folder / SPEC_FOLDER, request.file, request.spec)
        yield folder


def _write_version(folder: Path) -> None:
    """Metadata for `importlib.metadata` on nodes that have no calstudy or another version."""
    version = versions(["calstudy"])["calstudy"]
    described = folder / f"calstudy-{version}.dist-info" / "METADATA"
    described.parent.mkdir()
    described.write_text(f"Metadata-Version: 2.1\nName: calstudy\nVersion: {version}\n")


def _write_spec(folder: Path, file: Path, spec: StudySpec) -> None:
    folder.mkdir()
    written = strict_yaml.read(file)
    if spec.extensions is not None:
        keep_extensions(Path(spec.extensions), folder / EXTENSIONS)
        written["extensions"] = EXTENSIONS
    (folder / file.name).write_text(strict_yaml.dump(written))


# ---- jobs ----------------------------------------------------------------------------------------


def _job_id(kind: str, name: str) -> str:
    return f"{kind}-{name}-{datetime.now(UTC):%Y%m%d-%H%M%S}"


def _start(
    client: Any,
    folder: Path,
    job: str,
    words: list[str],
    metadata: dict[str, str],
    values: Mapping[str, str],
) -> None:
    """values: of environment variables, for the driver alone."""
    handed = f"env {PLACE}={hand_over(client, values)} " if values else ""
    client.submit_job(
        # `exec`, so that a stop signal reaches Python itself, once.
        entrypoint=f"exec {handed}python -m study.cli {shlex.join(words)}",
        submission_id=job,
        runtime_env={
            "working_dir": str(folder),
            "env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": str(STOP_SECONDS), "COLUMNS": "120"},
        },
        metadata=metadata,
    )


# ---- doctor, then run ----------------------------------------------------------------------------


def diagnose_as_job(
    request: JobRequest, address: str, values: Mapping[str, str] | None = None
) -> DoctorReport:
    """The report of `calstudy doctor` on the head. Raises ClusterError if it cannot run there."""
    client = connect(address)
    with package(request) as folder, errors_of(address):
        return _diagnose(client, request, address, folder, values or {})


def _may_start(report: DoctorReport, wait: Wait) -> bool:
    """Whether doctor found no failure, but for a lack of nodes that the run will wait for."""
    failures = [finding for finding in report.findings if finding.state == "failed"]
    return all(wait != NO_WAIT and finding.check == "resources" for finding in failures)


def _diagnose(
    client: Any, request: JobRequest, address: str, folder: Path, values: Mapping[str, str]
) -> DoctorReport:
    name = request.spec.name if request.spec is not None else "cluster"
    job = _job_id("doctor", name)
    mark = {"calstudy": DOCTOR, "study": name, "storage": str(request.root)}
    _start(client, folder, job, ["doctor", *request.words, "--json"], mark, values)
    try:
        _wait(client, job)
    except BaseException:
        with suppress(Exception):  # the first error matters
            client.stop_job(job)
        raise
    log = client.get_job_logs(job).strip().splitlines()
    found = [line for line in log if line.startswith('{"ok"')]
    if not found:
        last = (log or [client.get_job_info(job).message or "no output"])[-1]
        mend = f"Full log: calstudy logs {job} --address {address}"
        if "No module named" in last or "python: not found" in last:
            needed = (
                "Start Ray on the head where `python` has Ray, torch and the other dependencies."
            )
            mend = f"{needed} {mend}"
        raise ClusterError(f"doctor failed on the head: {last.rstrip('.')}", mend)
    return DoctorReport.from_json(found[-1])


def _wait(client: Any, job: str) -> None:
    deadline = time.monotonic() + DATA_PATIENCE
    while not client.get_job_status(job).is_terminal():
        if time.monotonic() > deadline:
            raise ClusterError(
                f"doctor did not finish on the head within {DATA_PATIENCE:g} s and was stopped"
            )
        time.sleep(POLL_SECONDS)


@dataclass(frozen=True)
class Submitted:
    """The doctor's report, and the job if it was started."""

    report: DoctorReport
    job: str | None


def submit(request: JobRequest, address: str, values: Mapping[str, str] | None = None) -> Submitted:
    """Run doctor on the head; if it finds no failure, start the study. Raises ClusterError if it is
    already running.

    values: of environment variables, which the two drivers get and nobody else.
    """
    assert request.spec is not None
    name = request.spec.name
    client = connect(address)
    root = str(request.root)
    handed = values or {}
    with package(request) as folder, errors_of(address):
        for other in our_jobs(client, address):
            if other.is_this_study(name, root) and not other.is_over:
                fix = f"Wait for it, or run: calstudy stop {other.name} --address {address}"
                raise ClusterError(f"{name}: job {other.name} is already running this study", fix)
        report = _diagnose(client, request, address, folder, handed)
        for finding in report.findings:
            if finding.check == "driver":
                raise ClusterError(f"{name}: {finding.text}")
        if not _may_start(report, request.wait):
            return Submitted(report, None)
        job = _job_id("calstudy", name)
        trials = request.trials
        more = [] if trials is None else ["--trials", str(trials)]
        mark = {"calstudy": RUN, "study": name, "storage": root, "again": request.again(handed)}
        _start(
            client, folder, job, ["run", *request.words, *more, *request.wait.words], mark, handed
        )
    return Submitted(report, job)
