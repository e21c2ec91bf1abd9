"""`calstudy jobs`, `logs` and `stop`, the exit codes of what goes wrong with a cluster, and
`submit --env`, whose values the driver alone gets: on a real head."""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import subprocess
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import click
import pytest
from ray.dashboard.modules.job.pydantic_models import JobDetails, JobType
from ray.job_submission import JobStatus

from study import cli
from study.machines import job_server
from study.machines.handing import values_here
from study.machines.job_server import Job, find_job, our_jobs
from study.machines.ray_session import ClusterError, ClusterUnready, set_environment, use_token
from tests.conftest import Cluster
from tests.hosts import Host
from tests.patience import patient, wait_until
from tests.study.command_line import write_spec
from tests.study.machines.test_submit import PATIENT, on
from trainables.problems import UserError

ADDRESS = "http://127.0.0.1:8265"
SECRET = "CALSTUDY_TEST_SECRET"
# Each process that imports it says which program it is, and what it has of the secret.
TELLING = """

import hashlib
import os
import sys

value = os.environ.get({name!r}, "")
program = os.path.basename(sys.argv[0])
told = hashlib.sha256(value.encode()).hexdigest() if value else "nothing"
line = f"{{program}} {{sys.argv[1]}} {{told}}"
Path({seen!r}, f"{{os.uname().nodename}}-{{os.getpid()}}").write_text(line)
"""
# Passes on what comes to port 8299, until it is ended: an ssh that forwards a port.
FORWARD = """
import asyncio

async def pump(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()

async def serve(reader, writer):
    there = await asyncio.open_connection("127.0.0.1", 8265)
    await asyncio.gather(pump(reader, there[1]), pump(there[0], writer), return_exceptions=True)

async def main():
    async with await asyncio.start_server(serve, "127.0.0.1", 8299) as server:
        await server.serve_forever()

asyncio.run(main())
"""


# ---- a study at work on a cluster, with a secret -------------------------------------------------


@dataclass(frozen=True)
class Work:
    """A study that was submitted with a secret, and waits for its gate."""

    spec: Path
    storage: Path
    seen: Path
    gate: Path
    job: str
    secret: str
    told: str  # what `submit` printed


@pytest.fixture(scope="module")
def work(cluster: Cluster) -> Work:
    shared = cluster.shared / "jobs"
    gate, seen, storage = shared / "gate", shared / "seen", shared / "studies"
    methods = shared / "mine" / "methods"
    methods.mkdir(parents=True)
    seen.mkdir()
    telling = TELLING.format(name=SECRET, seen=str(seen))
    (methods / "patient.py").write_text(PATIENT.format(gate=str(gate)) + telling)
    spec = write_spec(
        shared / "worked.yaml",
        name="worked",
        methods=["patient"],
        extensions="mine",
        trials=2,
        epochs=300,
    )
    secret = secrets.token_hex(20)
    words = ("submit", spec, "--storage", storage, "--env", SECRET)
    done = on(cluster.head, *words, env={SECRET: secret, "CALSTUDY_ADDRESS": ADDRESS})
    found = re.search(r"^submitted: +(\S+)$", done.stdout, re.MULTILINE)
    assert found is not None, done.stdout + done.stderr
    trials = storage / "worked" / "trials" / "patient"
    wait_until(lambda: len(list(trials.glob("*/attempt-1"))) == 2, 300, "both trials train")
    return Work(spec, storage, seen, gate, found[1], secret, done.stdout)


@pytest.mark.slow
def test_the_driver_alone_has_the_secret(cluster: Cluster, work: Work) -> None:
    digest = hashlib.sha256(work.secret.encode()).hexdigest()
    told = [file.read_text().split() for file in work.seen.iterdir()]
    ours = {(command, value) for program, command, value in told if program == "cli.py"}
    assert ours == {(command, digest) for command in ("submit", "doctor", "run")}, told
    workers = [value for program, _, value in told if program == "default_worker.py"]
    assert len(workers) >= 2 and set(workers) == {"nothing"}, told
    assert len(workers) + len(ours) == len(told), told


@pytest.mark.slow
def test_nothing_that_others_see_holds_the_secret(cluster: Cluster, work: Work) -> None:
    """Environments and command lines of all processes, every file that Ray or the study wrote, and
    what the job server answers."""
    needle = work.secret.encode()
    hosts = (cluster.head, *cluster.workers)
    looked_at = 0
    for host in hosts:
        for pid in host.pids():
            for file in ("environ", "cmdline"):
                text = read_bytes(Path(f"/proc/{pid}/{file}"))
                looked_at += bool(text)
                assert needle not in text, (host.name, pid, file)
        grep = ["grep", "-rlsF", work.secret, "/tmp/ray", "/tmp/home", "/dev/shm", work.storage]
        assert host.run(grep, check=False).stdout == ""
    assert looked_at > 20
    listed = asked(cluster.head, "/api/jobs/")
    assert work.job in listed and work.secret not in listed and SECRET in listed
    assert work.secret not in work.told and work.secret not in asked(
        cluster.head, f"/api/jobs/{work.job}/logs"
    )


def read_bytes(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:  # it has ended
        return b""


def asked(head: Host, path: str) -> str:
    """What the job server answers to whoever has the token, asked without our code."""
    script = (
        "import pathlib, sys, urllib.request\n"
        "token = pathlib.Path.home().joinpath('.ray/auth_token').read_text()\n"
        "headers = {'Authorization': f'Bearer {token}'}\n"
        f"asked = urllib.request.Request('{ADDRESS}' + sys.argv[1], headers=headers)\n"
        "print(urllib.request.urlopen(asked).read().decode())"
    )
    return head.run(["python", "-c", script, path]).stdout


@pytest.mark.slow
def test_metrics_are_told_to_anyone_and_hold_no_secret(cluster: Cluster, work: Work) -> None:
    """As docs/security.md says: a later Ray that asks for the token should change that page."""
    script = (
        "import subprocess, urllib.request\n"
        "lines = subprocess.run(['ss', '-Hltn'], capture_output=True, text=True).stdout\n"
        "for port in {line.split()[3].rpartition(':')[2] for line in lines.splitlines()}:\n"
        "    asked = f'http://{sys.argv[1]}:{port}/metrics'\n"
        "    try: print(urllib.request.urlopen(asked, timeout=20).read().decode())\n"
        "    except (OSError, http.client.HTTPException): pass\n"
    )
    words = ["python", "-c", f"import http.client, sys\n{script}", cluster.head.address]
    told = cluster.head.run(words, timeout=200).stdout
    assert "ray_node_mem_used" in told and work.job in told
    assert work.secret not in told and SECRET not in told


@pytest.mark.slow
def test_the_control_store_has_the_values_until_they_are_taken(cluster: Cluster) -> None:
    """So whoever has the token could read them before: docs/security.md says so."""
    script = (
        "import os\n"
        "from study.machines.handing import hand_over, take_handed\n"
        "from study.machines.job_server import connect\n"
        "from study.machines.ray_session import ClusterUnready\n"
        f"place = hand_over(connect('{ADDRESS}'), {{'{SECRET}': 'a b=c'}})\n"
        "from ray._raylet import GcsClient\n"
        f"store = GcsClient('{cluster.head.address}:6379')\n"
        "print(b'a b=c' in store.internal_kv_get(place.encode(), None))\n"
        "os.environ['CALSTUDY_HANDED'] = place\n"
        "take_handed()\n"
        f"print(os.environ['{SECRET}'], 'CALSTUDY_HANDED' in os.environ)\n"
        "print(store.internal_kv_get(place.encode(), None))\n"
        "os.environ['CALSTUDY_HANDED'] = place\n"
        "try: take_handed()\n"
        "except ClusterUnready as error: print(error)\n"
    )
    env = {"RAY_ADDRESS": f"{cluster.head.address}:6379"}
    said = cluster.head.run(["python", "-c", script], env=env).stdout.splitlines()
    gone = "--env: the values for the driver are gone: it began too late or a second time."
    assert said == ["True", "a b=c False", "None", f"{gone} Submit the study again."]


# ---- exit codes ----------------------------------------------------------------------------------

AT = ("--address", ADDRESS)
NOWHERE = "http://127.0.0.1:8298"
# Words (of a submission SPEC and STORAGE stand for ours), what is set in the environment, the exit
# code, and how what is said begins.
SITUATIONS: dict[str, tuple[tuple[str, ...], dict[str, str], int, str]] = {
    "listed": (("jobs", *AT), {}, 0, "job "),
    "listed at the address of the environment": (
        ("jobs",),
        {"CALSTUDY_ADDRESS": ADDRESS},
        0,
        "job ",
    ),
    "a log is read": (("logs", "worked", *AT), {}, 0, ""),
    "no address": (("jobs",), {}, 2, "calstudy: Missing option '--address'. Write"),
    "an address that is no job server": (
        ("stop", "worked", "--address", "10.0.0.1:6379"),
        {},
        2,
        "--address: '10.0.0.1:6379' is not a job server.",
    ),
    "no server": (
        ("logs", "worked", "--address", NOWHERE),
        {},
        2,
        f"--address: nothing answers at {NOWHERE}.",
    ),
    "another token": (
        ("jobs", *AT),
        {"RAY_AUTH_TOKEN": "0" * 64},
        2,
        f"--address: the job server at {ADDRESS} rejects this token.",
    ),
    "no token": (
        ("jobs", *AT),
        {"RAY_AUTH_MODE": "disabled"},
        2,
        f"--address: the job server at {ADDRESS} requires a token.",
    ),
    "an unknown study": (("logs", "worker", *AT), {}, 2, f"'worker': {ADDRESS} has no such job"),
    "an unknown job": (
        ("stop", "calstudy-other", *AT),
        {},
        2,
        f"'calstudy-other': {ADDRESS} has no such job",
    ),
    "submitted twice": (
        ("submit", "SPEC", "--storage", "STORAGE", *AT),
        {},
        2,
        "worked: job calstudy-worked-",
    ),
    "a value on the command line": (
        ("submit", "SPEC", "--storage", "STORAGE", "--env", "PGPASSWORD=hunter2", *AT),
        {},
        2,
        "--env: PGPASSWORD=... gives a value, and a command line is public.",
    ),
    "a variable that is not set": (
        ("submit", "SPEC", "--storage", "STORAGE", "--env", "PGPASSWORD", *AT),
        {},
        2,
        "--env: PGPASSWORD is not set here.",
    ),
}


# One process imports, which is most of a command's time; each of the commands is its child.
CHILDREN = """
import json, os, sys
import ray.job_submission
from study.cli import main

for number, (words, environment) in enumerate(json.loads(sys.argv[1])):
    child = os.fork()
    if child == 0:
        os.environ.update(environment)
        file = os.open(f"{sys.argv[2]}/said-{number}", os.O_WRONLY | os.O_CREAT)
        os.dup2(file, 1)
        os.dup2(file, 2)
        main(words)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.fixture(scope="module")
def found(cluster: Cluster, work: Work) -> dict[str, tuple[int, str]]:
    """The exit code and the words of each situation."""
    ours = {"SPEC": str(work.spec), "STORAGE": str(work.storage)}
    made = {}
    together = {}
    for name, (words, environment, _, _) in SITUATIONS.items():
        given = [ours.get(word, word) for word in words]
        if "RAY_AUTH_MODE" in environment:  # Ray reads it where it is imported
            done = on(cluster.head, *given, check=False, env=environment)
            made[name] = (done.returncode, done.stdout + done.stderr)
        else:
            together[name] = (given, {"COLUMNS": "120", **environment})
    folder = work.spec.parent
    asked = json.dumps([*together.values()])
    done = cluster.head.run(["python", "-c", CHILDREN, asked, str(folder)], timeout=280)
    for number, (name, code) in enumerate(zip(together, done.stdout.split(), strict=True)):
        made[name] = (int(code), (folder / f"said-{number}").read_text())
    return made


@pytest.mark.slow
@pytest.mark.parametrize("situation", SITUATIONS)
def test_an_exit_code_and_one_line(found: dict[str, tuple[int, str]], situation: str) -> None:
    *_, code, begin = SITUATIONS[situation]
    was, said = found[situation]
    assert was == code and said.startswith(begin), said
    assert code == 0 or said.count("\n") == 1, said
    assert "hunter2" not in said and "Traceback" not in said


@pytest.mark.slow
def test_a_misspelt_study_is_told_the_nearest(found: dict[str, tuple[int, str]]) -> None:
    assert found["an unknown study"][1].rstrip().endswith("Did you mean 'worked'?")


# ---- the end -------------------------------------------------------------------------------------


def table(host: Host) -> dict[str, dict[str, Any]]:
    """What `jobs --json` says, by the names of the jobs."""
    return {row["job"]: row for row in json.loads(on(host, "jobs", *AT, "--json").stdout)}


@pytest.mark.slow
def test_a_stop_waits_for_the_end_and_says_how_to_go_on(cluster: Cluster, work: Work) -> None:
    head = cluster.head
    assert table(head)[work.job]["state"] == "running"
    said = on(head, "stop", "worked", *AT).stdout.splitlines()
    last = "stopped by SIGTERM; run the same command again to resume."
    again = f"{work.spec} --storage {work.storage} --env {SECRET} --address {ADDRESS}"
    assert said == [
        f"{work.job}: stopped.",
        f"driver:    {last}",
        f"resume:    calstudy submit {again}",
    ]
    assert not head.pids("study.cli run")
    found = table(head)[work.job]
    assert found["state"] == "stopped" and found["begun"] < found["ended"]
    twice = on(head, "stop", work.job, *AT).stdout
    assert twice.startswith(f"{work.job}: it had ended before: stopped.")
    followed = on(head, "logs", work.job, "-f", *AT, check=False)
    assert followed.returncode == 75
    assert followed.stdout.splitlines()[-1] == last
    assert followed.stderr == f"{work.job}: stopped.\n"


@pytest.mark.slow
def test_a_job_is_followed_to_its_end(cluster: Cluster, work: Work) -> None:
    """A study's name means its newest job; a connection that breaks is an exit code of 75, and no
    end of the job."""
    head = cluster.head
    assert not work.gate.exists()
    words = ("submit", work.spec, "--storage", work.storage, "--env", SECRET, *AT)
    on(head, *words, env={SECRET: work.secret})
    newest = next(iter(table(head)))
    assert newest != work.job
    with head.popen(["python", "-c", FORWARD]) as forward:
        wait_until(
            lambda: "127.0.0.1:8299" in head.run(["ss", "-Hltn"]).stdout, 60, "a forwarded port"
        )
        follow = ["python", "-m", "study.cli", "logs", "-f", "worked"]
        with head.popen(
            [*follow, "--address", "http://127.0.0.1:8299"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as following:
            assert following.stdout is not None and following.stderr is not None
            assert newest in "".join(following.stdout.readline() for _ in range(2))
            forward.kill()
            said = following.stderr.read()
            assert following.wait(patient(120)) == 75
    assert said.count("\n") == 1 and "8299 broke. The job does not notice. Run again" in said
    work.gate.touch()
    done = on(head, "logs", "-f", "worked", *AT)
    assert "2/2 trials; 2 complete" in done.stdout and done.stderr == f"{newest}: finished.\n"
    assert on(head, "stop", "worked", *AT).stdout == (f"{newest}: it had ended before: finished.\n")


# ---- without a cluster ---------------------------------------------------------------------------


def details(name: str, status: str, code: int | None = None, **metadata: str) -> JobDetails:
    """A job as Ray describes it."""
    return JobDetails(
        type=JobType.SUBMISSION,
        submission_id=name,
        status=JobStatus(status),
        entrypoint="true",
        driver_exit_code=code,
        start_time=int(name[-1]) * 1000,
        metadata={"calstudy": "run", "study": name[:-2], "storage": "/s", **metadata},
    )


def jobs_of(*found: JobDetails) -> list[Job]:
    return our_jobs(SimpleNamespace(list_jobs=lambda: list(found)), ADDRESS)


@pytest.mark.parametrize(
    ("status", "driver", "state", "shown", "code"),
    [
        ("PENDING", None, "waiting", "waiting", None),
        ("RUNNING", None, "running", "running", None),
        ("SUCCEEDED", 0, "finished", "finished", 0),
        ("STOPPED", None, "stopped", "stopped", 75),
        ("FAILED", 75, "interrupted", "interrupted", 75),
        ("FAILED", 2, "failed", "failed (exit code 2)", 2),
        ("FAILED", 1, "failed", "failed (exit code 1)", 1),
        ("FAILED", -9, "failed", "failed (ended by SIGKILL)", 1),
        ("FAILED", None, "failed", "failed", 1),
    ],
)
def test_every_state_of_a_job_has_a_word_and_an_exit_code(
    status: str, driver: int | None, state: str, shown: str, code: int | None
) -> None:
    (job,) = jobs_of(details("mine-1", status, driver))
    assert (job.state, job.shown_state, job.is_over) == (state, shown, code is not None)
    assert code is None or job.code == code
    assert set(JobStatus) == {JobStatus(name) for name in job_server.STATES}


def test_a_study_means_its_newest_job_and_doctor_is_none_of_its() -> None:
    others = JobDetails(type=JobType.DRIVER, status=JobStatus("RUNNING"), entrypoint="")
    found = jobs_of(
        details("mine-1", "STOPPED"),
        details("mine-3", "RUNNING"),
        details("mine-2", "FAILED", 1),
        details("mine-4", "SUCCEEDED", calstudy="doctor"),
        details("mine-5", "RUNNING", calstudy="", study=""),
        others,
    )
    assert [job.name for job in found] == ["mine-4", "mine-3", "mine-2", "mine-1"]
    assert find_job(found, "mine", ADDRESS).name == "mine-3"
    assert find_job(found, "mine-4", ADDRESS).kind == "doctor"
    with pytest.raises(ClusterError, match=r"Did you mean 'mine'\?$"):
        find_job(found, "mien", ADDRESS)
    with pytest.raises(ClusterError, match=f"List them: calstudy jobs --address {ADDRESS}"):
        find_job(found, "zzzzz", ADDRESS)
    with pytest.raises(ClusterError, match=r"No study was submitted there\.$"):
        find_job([], "mine", ADDRESS)


def test_a_driver_that_does_not_end_is_no_endless_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_server, "STOP_PATIENCE", 0.0)
    running = details("mine-1", "RUNNING")
    stopped: list[str] = []
    client = SimpleNamespace(stop_job=stopped.append, get_job_info=lambda name: running)
    (job,) = jobs_of(running)
    with pytest.raises(ClusterUnready, match=r"mine-1: its driver has not ended .* See: calstudy"):
        job_server.stop(client, job, ADDRESS)
    assert stopped == ["mine-1"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("NAME=hunter2", "--env: NAME=... gives a value"),
        ("=hunter2", "--env: =... gives a value"),
        ("MY-NAME", "--env: 'MY-NAME' is not the name of an environment variable"),
        ("", "--env: '' is not the name"),
        ("CALSTUDY_NOT_SET", "--env: CALSTUDY_NOT_SET is not set here"),
        ("CALSTUDY_EMPTY", "--env: CALSTUDY_EMPTY is empty here"),
    ],
)
def test_only_a_name_that_is_set_here_is_handed_over(
    monkeypatch: pytest.MonkeyPatch, given: str, words: str
) -> None:
    monkeypatch.setenv("CALSTUDY_EMPTY", "")
    monkeypatch.setenv("CALSTUDY_SET", "hunter2")
    assert values_here(["CALSTUDY_SET"]) == {"CALSTUDY_SET": "hunter2"}
    with pytest.raises(UserError) as refused:
        values_here(["CALSTUDY_SET", given])
    assert str(refused.value).startswith(words) and "hunter2" not in str(refused.value)


def test_the_address_of_the_environment_is_for_the_cluster_commands_alone() -> None:
    context = click.Context(cli.calstudy)
    reading = set()
    for name in cli.calstudy.list_commands(context):
        command = cli.calstudy.get_command(context, name)
        assert command is not None
        if any(option.envvar == "CALSTUDY_ADDRESS" for option in command.params):
            reading.add(name)
    assert reading == {"doctor", "jobs", "logs", "stop", "submit"}


@pytest.mark.parametrize(
    ("file", "variables", "mode"),
    [
        (True, {}, "token"),
        (False, {}, None),
        (False, {"RAY_AUTH_TOKEN": "1f"}, "token"),
        (True, {"RAY_AUTH_MODE": "disabled"}, "disabled"),
        (True, {"RAY_AUTH_TOKEN_PATH": "/nowhere/token"}, None),
    ],
)
def test_who_has_a_token_uses_it_unless_something_says_otherwise(
    tmp_path: Path, file: bool, variables: dict[str, str], mode: str | None
) -> None:
    (tmp_path / ".ray").mkdir()
    if file:
        (tmp_path / ".ray" / "auth_token").write_text("1f")
    clean = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH")}
    environment = {**clean, "HOME": str(tmp_path), **variables}
    with mock.patch.dict(os.environ, environment, clear=True):
        set_environment()
        assert os.environ.get("RAY_AUTH_MODE") == variables.get("RAY_AUTH_MODE")  # to join Ray
        use_token()
        assert os.environ.get("RAY_AUTH_MODE") == mode
