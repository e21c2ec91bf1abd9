"""`calstudy doctor`: on real hosts each of which has something wrong, and what it
makes of what they say."""

import json
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from benchmarks.chaos import clock
from study.machines import doctor
from study.machines.doctor import DoctorReport, Finding
from study.machines.nodes import NodeFacts
from study.schema.reading import read_spec
from study.store.study import open_study
from study.terminal.doctor import show
from tests.cases import damage_unsampled
from tests.hosts import CHECKOUT, Host, network, start_head, start_worker
from tests.study.command_line import write_spec
from tests.study.machines.test_ray_session import free_port
from tests.study.made import made_study

CHECKS = ["code", "versions", "storage", "data", "GPUs", "disk", "memory", "clock", "token"]


# ---- what is made of the facts -------------------------------------------------------------------


def sound(**facts: Any) -> NodeFacts:
    """A node with nothing wrong but `facts`."""
    well: dict[str, Any] = {
        "name": "node",
        "python": "3.11.7",
        "versions": {"torch": "2.15.0+cu128", "ray": "2.60.0"},
        "data": "d" * 64,
        "gpus": 2,
        "lent": 2.0,
        "disks": {"storage": ("/storage", 10**12), "temp": ("/tmp", 10**11)},
        "memory": 10**11,
        "authentication": True,
        "loopback": False,
    }
    return NodeFacts(**(well | facts))


def judged(node: NodeFacts, shares: bool = False) -> dict[str, Finding]:
    return {
        finding.check: finding
        for finding in doctor._judge(node, sound(), Path("/storage"), {}, shares)
    }


def test_a_sound_node() -> None:
    found = judged(sound())
    assert list(found) == CHECKS and {finding.state for finding in found.values()} == {"ok"}
    assert (found["GPUs"].text, found["disk"].text, found["clock"].text) == ("2", "100 GB", "+0.0s")


def test_trials_that_share_a_gpu_want_mps() -> None:
    found = judged(sound(), shares=True)["GPUs"]
    assert found.state == "warning" and "nvidia-cuda-mps-control -d" in found.text
    assert judged(sound(mps=True), shares=True)["GPUs"].text == "2 MPS"


@pytest.mark.parametrize(
    ("facts", "check", "state", "words"),
    [
        (
            {"versions": {"torch": "2.14.0", "ray": "2.60.0"}},
            "versions",
            "failed",
            "torch 2.14.0 (here 2.15.0)",
        ),
        ({"versions": {"torch": "2.15.0+cpu", "ray": "2.60.0"}}, "versions", "ok", "ok"),
        ({"python": "3.12.1"}, "versions", "failed", "python 3.12 (here 3.11)"),
        ({"lock": "ignored"}, "storage", "failed", "two processes could write one study"),
        (
            {"data": "e" * 64},
            "data",
            "failed",
            "the digest there is eeeeeeeeeeee, here dddddddddddd",
        ),
        (
            {"data": None, "data_problem": "data.path: no file."},
            "data",
            "failed",
            "data.path: no file.",
        ),
        (
            {"damaged": ["/cache/d/train.npy"]},
            "data",
            "failed",
            "train.npy in /cache/d. Remove that folder",
        ),
        ({"gpus": 1}, "GPUs", "failed", "Ray offers 2 GPUs, torch sees 1"),
        ({"gpus": 2, "mps": True}, "GPUs", "ok", "2 MPS"),
        ({"gpus": 4}, "GPUs", "warning", "torch sees 4 GPUs, Ray offers 2"),
        ({"gpus": "undefined symbol: x"}, "GPUs", "failed", "undefined symbol: x"),
        ({"disks": {"temp": ("/tmp", 2 * 10**9)}}, "disk", "warning", "temp /tmp has 2.0 GB free"),
        ({"disks": {"temp": ("/tmp", 10**8)}}, "disk", "failed", "temp /tmp has 0.1 GB free"),
        ({"memory": 5 * 10**8}, "memory", "failed", "0.5 GB of memory"),
        ({"clock": -3.0}, "clock", "warning", "3.0 s behind"),
        ({"clock": 1.0}, "clock", "ok", "+1.0s"),
        (
            {"open_token": "/home/a/.ray/auth_token"},
            "token",
            "failed",
            "chmod 600 /home/a/.ray/auth_token",
        ),
        ({"authentication": False}, "token", "failed", "without a token"),
        ({"authentication": False, "loopback": True}, "token", "ok", "-"),
    ],
)
def test_what_is_wrong_with_a_node(
    facts: dict[str, Any], check: str, state: str, words: str
) -> None:
    found = judged(sound(**facts))
    assert found[check].state == state and words in found[check].text
    assert {other for other, finding in found.items() if finding.state != "ok"} <= {check}


def test_a_ledger_that_no_run_would_accept(tmp_path: Path) -> None:
    study = made_study(
        tmp_path, "small", {"focal": [({"accuracy": 0.9, "ece": 0.1}, [{"epoch": 1, "time": 0.0}])]}
    )

    def finding(ledger: Path | str) -> str:
        (found,) = doctor._ledger(replace(study.spec, ledger=str(ledger)), study.directory)
        assert (found.check, found.state) == ("ledger", "failed")
        return found.text

    assert doctor._ledger(study.spec, study.directory) == []
    assert f"{tmp_path}/mount/ledger.log is missing, but the study at" in finding(
        tmp_path / "mount" / "ledger.log"
    )
    (tmp_path / "garbage.log").write_text("garbage" * 100)
    assert "garbage.log is no ledger" in finding(tmp_path / "garbage.log")
    (tmp_path / "small" / "ledger.log").rename(tmp_path / "elsewhere.log")
    (found,) = doctor._ledger(study.spec, study.directory)
    assert found.state == "failed" and "ledger.log is missing" in found.text
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "elsewhere.log",
        "garbage.log",
        "small",
    ]


def test_where_the_storage_has_no_locks_the_ledger_may_lie_elsewhere() -> None:
    node = sound(lock="No locks available")
    state = {}
    for elsewhere in (False, True):
        found = doctor._judge(node, sound(), Path("/storage"), {}, False, elsewhere)
        (storage,) = [one for one in found if one.check == "storage"]
        state[elsewhere] = storage.state
        assert "cannot lock a file (No locks available) in /storage" in storage.text
        assert elsewhere or "or keep the ledger on this machine's own disk" in storage.text
    assert state == {False: "failed", True: "warning"}


def test_a_trial_that_does_not_fit_on_this_machine(tmp_path: Path) -> None:
    spec = read_spec(write_spec(tmp_path / "small.yaml", resources={"cpu": 3}))
    assert doctor._resources_here(spec, sound(), 3) == []
    (found,) = doctor._resources_here(spec, sound(), 2)
    assert (found.check, found.state) == (
        "resources",
        "failed",
    ) and "needs 3 CPU; this machine gives 2 CPU" in found.text


def test_a_node_that_does_not_answer_is_one_failure() -> None:
    found = doctor._judge(
        NodeFacts("node", problem="no answer within 60 s."), sound(), Path("/storage"), None, False
    )
    assert (
        found == [Finding("node", "answer", "failed", "no answer within 60 s.")]
        and not DoctorReport(found).ok
    )


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("mlruns", "is not a tracking server"),
        ("file:///srv/mlruns", "is not a tracking server"),
        ("sqlite:///mlflow.db", "is not an absolute path, which needs four slashes"),
        ("sqlite:////no/such/folder/mlflow.db", "there is no folder /no/such/folder. Create it"),
        (
            "http://127.0.0.1:{port}",
            "MLflow at http://127.0.0.1:{port}: Connection refused. Start it",
        ),
        (
            "postgresql://maria@127.0.0.1:{port}/mlflow",
            "MLflow at postgresql://127.0.0.1:{port}/mlflow: ",
        ),
    ],
)
def test_a_tracking_that_cannot_be_written(tmp_path: Path, uri: str, words: str) -> None:
    port = free_port()
    (found,) = doctor._tracking(uri.format(port=port), None, tmp_path)
    assert found.state == "failed" and words.format(port=port) in found.text
    assert "maria" not in found.text


def test_what_a_variable_holds_is_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for scheme in ("http", "postgresql"):
        place = f"127.0.0.1:{free_port()}/mlflow"
        monkeypatch.setenv("MY_TRACKING", f"{scheme}://maria:hunter2@{place}")
        (found,) = doctor._tracking("MY_TRACKING", None, tmp_path)
        assert found.state == "failed" and f"MLflow at {scheme}://{place}: " in found.text
        assert "hunter2" not in found.text and "maria" not in found.text


@pytest.mark.parametrize("has", ["neither", "PGPASSWORD", "a file", "the home's file"])
def test_a_user_without_a_password_here_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has: str
) -> None:
    monkeypatch.delenv("PGPASSWORD", raising=False)
    monkeypatch.delenv("PGPASSFILE", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    file = tmp_path / ".pgpass"
    if has == "PGPASSWORD":
        monkeypatch.setenv("PGPASSWORD", "hunter2")
    elif has != "neither":
        file = tmp_path / "mine" if has == "a file" else file
        file.write_text("*:*:*:maria:hunter2")
    if has == "a file":
        monkeypatch.setenv("PGPASSFILE", str(file))
    spec = read_spec(
        write_spec(
            tmp_path / "small.yaml",
            tracking="postgresql:///mlflow?host=127.0.0.1&port=9&user=maria",
        )
    )
    found = doctor._passwords(None, spec, tmp_path)
    if has == "neither":
        assert {one.state for one in found} == {"warning"}
        assert [one.text.partition(":")[0] for one in found] == ["tracking"]
        assert all(f"there is no file {file}. Write it there" in one.text for one in found)
        assert "maria" not in str(found)
    else:
        assert found == []


@pytest.mark.parametrize(
    "uri", [None, "http://h:1", "postgresql://h/db", "postgresql://maria@h:x/db"]
)
def test_where_no_user_is_named_no_password_is_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uri: str | None
) -> None:
    monkeypatch.delenv("PGPASSWORD", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    spec = replace(read_spec(write_spec(tmp_path / "small.yaml")), tracking=uri)
    assert doctor._passwords(None, spec, tmp_path) == []


@pytest.mark.parametrize(
    ("states", "end"),
    [
        (["ok"], "no problems found."),
        (["ok", "warning"], "nothing failed; 1 warning, above. A study can run."),
        (["warning", "warning"], "nothing failed; 2 warnings, above. A study can run."),
        (["failed", "warning"], "warning: here: so it is"),
    ],
)
def test_the_last_line_says_what_was_found(
    capsys: pytest.CaptureFixture[str], states: list[str], end: str
) -> None:
    found = [
        doctor.Finding("here", f"check {n}", state, "so it is") for n, state in enumerate(states)
    ]
    show(doctor.DoctorReport(found), Console(width=80))
    assert capsys.readouterr().out.splitlines()[-1] == end


def test_a_database_anywhere_on_this_machine_is_a_tracking(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    for root in (tmp_path, tmp_path / "studies"):
        assert doctor._tracking(uri, None, root) == [Finding(doctor.HERE, "tracking", "ok", uri)]
    assert [found.state for found in doctor._tracking(None, None, tmp_path / "not yet")] == ["ok"]


# ---- this machine --------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.platform
def test_this_machine_with_damaged_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spec, storage = read_spec(write_spec(tmp_path / "small.yaml")), tmp_path / "studies"
    monkeypatch.setenv("CALSTUDY_CACHE", str(tmp_path / "cache"))
    show(doctor.diagnose(spec, storage, None, None), Console(width=80))
    said = capsys.readouterr().out.splitlines()
    assert said[0].split() == ["machine", *CHECKS] and said[1].split()[1:6] == [
        "ok",
        "ok",
        "ok",
        "ok",
        "0",
    ]
    assert (
        said[2:] == [f"tracking: sqlite:///{storage}/mlflow.db", "no problems found."]
        and not storage.exists()
    )
    (images,) = (tmp_path / "cache").glob("*/train.npy")
    damage_unsampled(images)
    show(doctor.diagnose(spec, storage, None, None), Console(width=80))
    said = capsys.readouterr().out.splitlines()
    assert said[1].split()[4] == "FAIL" and "no problems found." not in said
    assert f"the cache is damaged: train.npy in {images.parent}. Remove that folder" in said[2]


# ---- a cluster on which much is wrong (one that is well: test_ray_job.py) ------------------------


def on(host: Host, *words: object) -> subprocess.CompletedProcess[str]:
    """Run calstudy on a host."""
    return host.run(["python", "-m", "study.cli", *map(str, words)], check=False, timeout=150)


@dataclass(frozen=True)
class Ill:
    """A cluster on which much is wrong, and what is said of it."""

    failures: dict[tuple[str, str], str]  # doctor's, by machine and check
    doctor: int  # its exit code
    refused: subprocess.CompletedProcess[str]  # a run whose trials are too large for the head
    left: list[str]  # by it, in the storage
    run: subprocess.CompletedProcess[str]  # one whose trials are not
    hosts: set[str | None]  # that trained


@pytest.fixture(scope="module")
def ill(hosts_allowed: None, tmp_path_factory: pytest.TempPathFactory) -> Ill:
    """First worker: no storage, a GPU that is none. Second: other code, clock an hour ahead,
    token for all to read."""
    shared = tmp_path_factory.mktemp("ill")
    storage, other = shared / "studies", shared / "other"
    storage.mkdir()
    for package in ("study", "trainables", "search_spaces"):
        shutil.copytree(
            CHECKOUT / package, other / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    with (other / "trainables" / "methods" / "focal.py").open("a") as file:
        file.write("# not what the driver has\n")
    spec = write_spec(shared / "small.yaml", trials=1)
    ahead = {} if clock.refusal() else clock.skewed(shared, 3600)
    with network(3, shared) as (head, one, two):
        start_head(head)
        with ThreadPoolExecutor() as pool:
            joining = [
                pool.submit(start_worker, one, head, cpus=2, options=["--num-gpus=1"]),
                pool.submit(
                    start_worker, two, head, cpus=2, env={"PYTHONPATH": str(other), **ahead}
                ),
            ]
        for joined in joining:
            joined.result()
        one.hide(storage)
        two.run(["chmod", "-R", "a+rX", two.home])
        words = ("--address", f"{head.address}:6379", "--storage", storage)
        away = f"http://127.0.0.1:{free_port()}"
        done = on(head, "doctor", *words, "--tracking", away, "--json")
        large = write_spec(shared / "large.yaml", trials=1, resources={"cpu": 2})
        refused = on(head, "run", large, *words)
        left = sorted(str(path.relative_to(storage)) for path in storage.rglob("*"))
        ran = on(head, "run", spec, *words)
    failures = {
        (finding["machine"], finding["check"]): finding["text"]
        for finding in json.loads(done.stdout)["findings"]
        if finding["state"] != "ok"
    }
    records = open_study("small", str(storage)).records()
    hosts = {record.host for record in records.complete}
    return Ill(failures, done.returncode, refused, left, ran, hosts)


HEAD, ONE, TWO = "10.77.0.1", "10.77.0.2", "10.77.0.3"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("machine", "check", "words"),
    [
        (ONE, "storage", "does not see the storage"),
        (ONE, "GPUs", "Ray offers 1 GPUs, torch sees 0."),
        (TWO, "code", "has different code in"),
        (TWO, "token", "other users can read /tmp/home/.ray/auth_token"),
        ("this machine", "tracking", "Connection refused"),
    ],
)
def test_each_failure_is_a_line_of_its_machine(
    ill: Ill, machine: str, check: str, words: str
) -> None:
    assert words in ill.failures[machine, check]


@pytest.mark.slow
def test_a_clock_ahead_is_a_warning(ill: Ill) -> None:
    if why := clock.refusal():
        pytest.skip(f"no test of clocks: {why}")
    told = re.match(r"its clock is (\S+) s ahead of this machine's.", ill.failures[TWO, "clock"])
    # At the least: the way of the answer is taken off.
    assert told is not None and 3590 < float(told[1]) <= 3600


@pytest.mark.slow
def test_what_is_well_is_not_accused(ill: Ill) -> None:
    expected = {
        (ONE, "storage"),
        (ONE, "GPUs"),
        (TWO, "code"),
        (TWO, "token"),
        ("this machine", "tracking"),
    }
    assert set(ill.failures) - {(TWO, "clock")} == expected and ill.doctor == 1


@pytest.mark.slow
def test_a_run_without_a_fit_node_ends_at_once_and_leaves_no_ledger(ill: Ill) -> None:
    said = set(ill.refused.stdout.splitlines())  # what took more than a second
    assert ill.refused.returncode == 75 and all(
        line.startswith(("importing torch", "joining Ray", "checking")) for line in said
    )
    (line,) = ill.refused.stderr.splitlines()
    assert line.startswith(f"node {ONE}: does not see the storage") and "1 more nodes fail" in line
    assert ill.left == ["small", "small/driver.lock"]


@pytest.mark.slow
def test_a_run_passes_over_the_nodes_that_are_not_fit(ill: Ill) -> None:
    assert ill.run.returncode == 0 and ill.hosts == {"host-0"}
    lines = [line for line in ill.run.stdout.splitlines() if "is passed over" in line]
    assert len(lines) == 2 and lines[0].startswith(
        f"node {ONE} is passed over: it does not see the storage"
    )
    assert lines[1].startswith(f"node {TWO} is passed over: it has different code in")
    assert lines[1].endswith("Install the same version there. It is asked again every minute.")
