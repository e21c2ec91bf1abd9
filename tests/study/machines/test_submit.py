"""`calstudy submit`: what travels, what is refused, and a study whose laptop is gone,
stopped and submitted again."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from study.machines import submit
from study.machines.job_server import connect
from study.machines.ray_session import ClusterError
from study.machines.submit import job_request, package
from study.schema.errors import SpecError
from study.schema.uris import TrackingError
from tests.conftest import Cluster
from tests.hosts import Host
from tests.patience import wait_until
from tests.study.command_line import write_spec
from tests.study.machines.test_doctor import CHECKS
from tests.study.machines.test_ray_session import free_port
from trainables.plugins import use_extensions

PATIENT = """
import time
from dataclasses import dataclass
from pathlib import Path

from trainables.methods.cross_entropy import CrossEntropy


@dataclass(frozen=True)
class Patient(CrossEntropy):
    \"\"\"Slow while the gate is shut.\"\"\"

    def loss(self, logits, targets, progress):
        if not Path({gate!r}).exists():
            time.sleep(0.2)
        return super().loss(logits, targets, progress)
"""


@pytest.fixture(autouse=True)
def no_extensions() -> Iterator[None]:
    yield
    use_extensions(None)


def write_extensions(folder: Path, gate: Path) -> Path:
    (folder / "methods").mkdir(parents=True)
    (folder / "methods" / "patient.py").write_text(PATIENT.format(gate=str(gate)))
    (folder / "data.csv").write_text("large, and none of a study's business")
    return folder


# ---- what is refused here ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "storage", "tracking", "error", "words"),
    [
        ({}, None, None, ClusterError, "--storage: is missing. Give the absolute path"),
        ({}, "studies", None, ClusterError, "--storage: 'studies' is a relative path"),
        (
            {"storage": "studies"},
            None,
            None,
            ClusterError,
            "--storage: 'studies' is a relative path",
        ),
        (
            {"ledger": "ledger.log"},
            "/s",
            None,
            SpecError,
            "small.yaml: ledger: 'ledger.log' is a relative path",
        ),
        (
            {"data": {"name": "parquet", "path": "a"}},
            "/s",
            None,
            SpecError,
            "small.yaml: data.path: 'a' is a relative path",
        ),
        (
            {"confirms": "x"},
            "/s",
            None,
            SpecError,
            "small.yaml: confirms: only `calstudy confirm x` creates",
        ),
        ({}, "/s", "sqlite:///mlflow.db", TrackingError, "not an absolute path"),
        ({"tracking": "mlruns"}, "/s", None, TrackingError, "not a tracking server"),
    ],
)
def test_what_would_mean_something_else_there(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    keys: dict[str, Any],
    storage: str | None,
    tracking: str | None,
    error: type[Exception],
    words: str,
) -> None:
    monkeypatch.delenv("CALSTUDY_STORAGE", raising=False)
    with pytest.raises(error, match=re.escape(words)):
        job_request(write_spec(tmp_path / "small.yaml", **keys), storage, tracking)


@pytest.mark.parametrize("in_spec", [False, True])
def test_what_a_local_file_or_variable_holds_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_spec: bool
) -> None:
    uri, file = "postgresql://maria@host/mlflow", tmp_path / "tracking"
    file.write_text(uri)
    monkeypatch.setenv("MY_TRACKING", uri)
    for name in (str(file), "MY_TRACKING"):
        spec = write_spec(tmp_path / "small.yaml", **({"tracking": name} if in_spec else {}))
        asked = job_request(spec, "/s", None if in_spec else name)
        assert asked.words[-2:] == ["--tracking", uri]
        assert job_request(None, "/s", name).words[-2:] == ["--tracking", uri]


@pytest.mark.parametrize(
    ("uri", "place"),
    [
        ("http://maria:hunter2@host:5000", "~/.mlflow/credentials"),
        ("postgresql://maria:hunter2@host/mlflow", "~/.pgpass"),
    ],
)
def test_a_password_that_is_held_here_is_not_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uri: str, place: str
) -> None:
    monkeypatch.setenv("MY_TRACKING", uri)
    plain = write_spec(tmp_path / "plain.yaml")
    naming = write_spec(tmp_path / "small.yaml", tracking="MY_TRACKING")
    for file, option in ((naming, None), (plain, "MY_TRACKING"), (None, "MY_TRACKING")):
        with pytest.raises(ClusterError) as refused:
            job_request(file, "/s", option)
        said = str(refused.value)
        where = "tracking" if option is None else "--tracking"
        assert said.startswith(f"{where}: what MY_TRACKING holds has a password"), said
        assert said.endswith(f"write {place} on the head."), said
        assert "hunter2" not in said and "maria" not in said


def test_a_job_has_the_trials_and_the_tracking_of_the_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = job_request(write_spec(tmp_path / "small.yaml"), "/s", "http://host:5000", trials=7)
    shown: list[dict[str, Any]] = []

    class Client:
        def list_jobs(self) -> list[Any]:
            return []

        def submit_job(self, **job: Any) -> None:
            shown.append(job)

    monkeypatch.setattr(submit, "connect", lambda address: Client())
    monkeypatch.setattr(
        submit, "_diagnose", lambda client, *job: SimpleNamespace(findings=[], ok=True)
    )
    assert submit.submit(asked, "http://127.0.0.1:8265").job is not None
    (job,) = shown
    assert "--tracking http://host:5000 --trials 7" in job["entrypoint"]
    again = f"{tmp_path}/small.yaml --storage /s --tracking http://host:5000 --trials 7"
    assert job["metadata"]["again"] == again


@pytest.mark.parametrize("address", ["10.0.0.1:8265", "ray://host:10001", "http://", "auto"])
def test_what_is_no_job_server(address: str) -> None:
    with pytest.raises(
        ClusterError, match=r"--address: .* is not a job server. Write http://HOST:8265"
    ):
        connect(address)


def test_a_job_server_where_nothing_listens() -> None:
    address = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(
        ClusterError, match=f"--address: nothing answers at {address}. Start the head"
    ):
        connect(address)


# ---- what travels --------------------------------------------------------------------------------


def test_the_code_travels_as_it_is_here_with_spec_and_extensions(tmp_path: Path) -> None:
    extensions = write_extensions(tmp_path / "mine", tmp_path / "gate")
    spec = write_spec(tmp_path / "small.yaml", methods=["patient"], extensions="mine")
    with package(job_request(spec, "/s", None)) as folder:
        files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
        assert {"study/cli.py", "study/specs/digits.yaml", "search_spaces/focal.yaml"} < files
        assert {file for file in files if file.startswith("spec/")} == {
            "spec/small.yaml",
            "spec/extensions/methods/patient.py",
        }
        assert (folder / "spec/extensions/methods/patient.py").read_text() == (
            extensions / "methods" / "patient.py"
        ).read_text()
        assert {Path(file).suffix for file in files} == {".py", ".yaml", ""}
        script = (
            "import sys, study, importlib.metadata as m; print(study.__file__,"
            " m.version('calstudy'))"
        )
        done = subprocess.run(
            [sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, check=True
        )
        assert done.stdout.split() == [str(folder / "study" / "__init__.py"), version("calstudy")]
    assert not folder.exists()


# ---- on a cluster --------------------------------------------------------------------------------

JOBS = "http://127.0.0.1:8265"


def on(host: Host, *words: object, check: bool = True, env: dict[str, str] | None = None) -> Any:
    command = ["python", "-m", "study.cli", *map(str, words)]
    return host.run(command, check=check, env={"COLUMNS": "120", **(env or {})}, timeout=150)


def counts(host: Host, storage: Path) -> dict[str, int]:
    found = json.loads(on(host, "status", "small", "--storage", storage, "--json").stdout)
    return {state: count for state, count in found["methods"]["patient"].items() if count}


def log_of(host: Host, job: str) -> str:
    """What `ray job logs` shows, without its two seconds."""
    return str(
        host.run(["sh", "-c", f"cat /tmp/ray/session_latest/logs/job-driver-{job}.log"]).stdout
    )


@dataclass(frozen=True)
class Submission:
    """A study at work as a job, whose trials wait for its gate."""

    words: tuple[object, ...]
    shown: str
    job: str
    storage: Path
    gate: Path

    @property
    def attempts(self) -> list[str]:
        trials = self.storage / "small" / "trials" / "patient"
        return sorted(str(path.relative_to(trials)) for path in trials.glob("*/attempt-*"))


@pytest.fixture(scope="module")
def submission(cluster: Cluster) -> Submission:
    shared = cluster.shared / "submit"
    storage, gate, laptop = shared / "studies", shared / "gate", shared / "laptop"
    write_extensions(laptop / "mine", gate)
    spec = write_spec(
        laptop / "small.yaml", methods=["patient"], extensions="mine", trials=2, epochs=300
    )
    words = ("submit", spec, "--address", JOBS, "--storage", storage)
    shown = on(cluster.head, *words).stdout
    found = re.search(r"^submitted: +(\S+)$", shown, re.MULTILINE)
    assert found is not None, shown
    return Submission(words, shown, found[1], storage, gate)


@pytest.mark.slow
def test_doctor_is_asked_first_and_says_all_of_a_sound_cluster(
    cluster: Cluster, submission: Submission
) -> None:
    assert "no problems found." in submission.shown
    (found,) = [
        line for line in log_of(cluster.head, "doctor-small-*").splitlines() if line.startswith("{")
    ]
    report = json.loads(found)
    assert report["ok"] and {finding["state"] for finding in report["findings"]} == {"ok"}
    hosts = (cluster.head, *cluster.workers)
    expected = {(host.address, check) for host in hosts for check in CHECKS} | {
        ("this machine", "tracking")
    }
    assert {(finding["machine"], finding["check"]) for finding in report["findings"]} == expected


@pytest.mark.slow
def test_a_study_at_work_is_read_elsewhere_and_not_submitted_twice(
    cluster: Cluster, submission: Submission
) -> None:
    first = ["0000/attempt-1", "0001/attempt-1"]
    wait_until(lambda: submission.attempts == first, 300, "both trials train")
    assert counts(cluster.workers[0], submission.storage) == {"planned": 2, "running": 2}
    refused = on(cluster.head, *submission.words, check=False)
    assert (refused.returncode, refused.stdout) == (2, "") and len(
        refused.stderr.splitlines()
    ) == 1, refused.stderr
    mend = f"Wait for it, or run: calstudy stop {submission.job} --address {JOBS}"
    assert refused.stderr.startswith(
        f"small: job {submission.job} is already running this study. {mend}"
    )


@pytest.mark.slow
def test_a_stopped_study_goes_on_when_it_is_submitted_again(
    cluster: Cluster, submission: Submission
) -> None:
    head, other, storage = cluster.head, cluster.workers[0], submission.storage
    stopped = on(head, "stop", "small", "--address", JOBS).stdout.splitlines()
    last = "stopped by SIGTERM; run the same command again to resume."
    assert stopped[:2] == [f"{submission.job}: stopped.", f"driver:    {last}"]
    assert last in log_of(head, submission.job)
    assert counts(other, storage) == {"planned": 2, "interrupted": 2}  # no driver: nothing runs
    submission.gate.touch()
    on(head, *submission.words)
    wait_until(
        lambda: "2/2 trials; 2 complete" in log_of(head, "calstudy-small-*"),
        300,
        "the study is finished",
    )
    assert submission.attempts == [
        "0000/attempt-1",
        "0000/attempt-2",
        "0001/attempt-1",
        "0001/attempt-2",
    ]
    assert counts(other, storage) == {"planned": 2, "complete": 2}
    assert "front (validation)" in on(other, "pareto", "small", "--storage", storage).stdout


@pytest.mark.slow
def test_a_wrong_token_or_address_is_one_line_at_once(cluster: Cluster) -> None:
    storage = cluster.shared / "refused"
    spec = write_spec(cluster.shared / "refused.yaml")
    ray, jobs, away = f"{cluster.head.address}:6379", JOBS, "127.0.0.1:6399"
    asked = (
        ("run", ray, f"--address: the cluster at {ray} rejects this token. Copy"),
        ("doctor", ray, f"--address: the cluster at {ray} rejects this token. Copy"),
        (
            "doctor",
            jobs,
            f"--address: the job server at {jobs} rejects this token. Set RAY_AUTH_MODE=token",
        ),
        (
            "submit",
            jobs,
            f"--address: the job server at {jobs} rejects this token. Set RAY_AUTH_MODE=token",
        ),
        ("run", away, f"--address: no Ray head at {away}"),
        ("doctor", away, f"--address: no Ray head at {away}"),
        (
            "doctor",
            "http://127.0.0.1:8299",
            "--address: nothing answers at http://127.0.0.1:8299. Start the head",
        ),
        (
            "submit",
            "http://127.0.0.1:8299",
            "--address: nothing answers at http://127.0.0.1:8299. Start the head",
        ),
    )
    words = [
        [command, str(spec), "--address", address, "--storage", str(storage)]
        for command, address, _ in asked
    ]
    # One process for all: most of a command's time is its imports.
    script = (
        "import sys\nfrom study.cli import main\n"
        f"for words in {words!r}:\n"
        "    try: main(words)\n"
        "    except SystemExit as end: print('exit', end.code, file=sys.stderr, flush=True)\n"
    )
    said = cluster.head.run(["python", "-c", script], env={"RAY_AUTH_TOKEN": "0" * 64}, timeout=280)
    lines = said.stderr.splitlines()
    assert all(line.startswith("importing torch") for line in said.stdout.splitlines())
    assert lines[1::2] == [f"exit {75 if address == away else 2}" for _, address, _ in asked]
    for line, (_, _, expected) in zip(lines[::2], asked, strict=True):
        assert line.startswith(expected)
    assert not storage.exists()
