"""A study as a Ray job: what `run` refuses in one, what was removed, and the recipe of
docs/how-to/use-a-ray-cluster.md, whose every command is run on a real head."""

import inspect
import json
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from ray._common.utils import get_default_ray_temp_dir
from ray._private.runtime_env import constants, working_dir
from ray.dashboard.modules.job.job_supervisor import JobSupervisor

from study import cli
from study.machines import ray_job
from study.machines.ray_job import STOP_SECONDS, check_job
from study.machines.ray_session import OF_A_JOB, ClusterError, check_address
from study.schema.errors import SpecError
from study.schema.reading import read_spec
from tests.conftest import Cluster
from tests.gate import write_extensions
from tests.hosts import CHECKOUT, Host
from tests.patience import wait_until
from tests.recipes import blocks
from tests.study.command_line import here, here_json, write_spec
from tests.study.machines.test_ray_session import free_port
from trainables.plugins import use_extensions

PAGE = CHECKOUT / "docs" / "how-to" / "use-a-ray-cluster.md"


@pytest.fixture(autouse=True)
def no_extensions() -> Iterator[None]:
    yield
    use_extensions(None)


# ---- in a job ------------------------------------------------------------------------------------


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A job's working directory, as Ray lays it out for another temporary folder than its own."""
    folder = tmp_path / "session_1" / "runtime_resources" / "working_dir_files" / "_ray_pkg_1"
    (folder / "below").mkdir(parents=True)
    monkeypatch.chdir(folder)
    monkeypatch.setenv(OF_A_JOB, "{}")
    monkeypatch.setenv(STOP_SECONDS, "60")
    monkeypatch.delenv("CALSTUDY_STORAGE", raising=False)
    return folder


def test_what_ray_calls_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert constants.RAY_JOB_CONFIG_JSON_ENV_VAR == OF_A_JOB
    assert STOP_SECONDS in inspect.getsource(JobSupervisor)
    assert JobSupervisor.DEFAULT_RAY_JOB_STOP_WAIT_TIME_S == 3
    assert '"working_dir_files"' in inspect.getsource(working_dir.WorkingDirPlugin)
    for name, value in (("RAY_TMPDIR", None), ("TMPDIR", "/of/tmp"), ("RAY_TMPDIR", "/of/ray")):
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)
        assert next(ray_job._rays_folders()) == Path(get_default_ray_temp_dir())


@pytest.mark.parametrize("where", [None, "studies", "below/../studies", "/tmp/ray/studies"])
def test_a_storage_that_goes_with_the_job_is_refused(
    copy: Path, monkeypatch: pytest.MonkeyPatch, where: str | None
) -> None:
    monkeypatch.delenv("RAY_TMPDIR", raising=False)
    monkeypatch.delenv("TMPDIR", raising=False)
    spec = write_spec(copy / "small.yaml")
    given = () if where is None else ("--storage", where)
    said = here("run", spec, *given, check=2)
    assert said.startswith("--storage: /") and said.count("\n") == 1
    assert "the study would be lost with it. Give an absolute path" in said
    assert sorted(path.name for path in copy.iterdir()) == ["below", "small.yaml"]


@pytest.mark.parametrize(
    ("path", "keys"),
    [
        ("data.path", {"data": {"name": "image_folder", "path": "below"}}),
        ("shift.odd.path", {"shift": {"odd": {"name": "image_folder", "path": "below"}}}),
        ("ledger", {"ledger": "ledger.log"}),
    ],
)
def test_what_a_relative_path_means_there_is_refused(
    copy: Path, tmp_path: Path, path: str, keys: dict[str, Any]
) -> None:
    spec = read_spec(write_spec(copy / "small.yaml", **keys))
    with pytest.raises(SpecError, match=r"lies in a folder of Ray's.* every node sees") as refused:
        check_job(spec, "small.yaml", tmp_path, print)
    assert refused.value.path == path


def test_what_outlives_the_job_is_not(
    copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_extensions(copy / "mine", tmp_path / "gate")  # a study keeps a copy of them
    keys = {"extensions": "mine", "ledger": str(tmp_path / "ledger.log")}
    spec = read_spec(write_spec(copy / "small.yaml", methods=["patient"], **keys))
    said: list[str] = []
    check_job(spec, "small.yaml", tmp_path / "studies", said.append)
    assert said == []
    monkeypatch.delenv(OF_A_JOB)
    monkeypatch.delenv(STOP_SECONDS)
    check_job(spec, "small.yaml", copy / "studies", said.append)
    assert said == []


def test_a_stop_that_is_too_short_is_said(
    copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what the page gives to Ray."""
    monkeypatch.delenv(STOP_SECONDS)
    spec, said = read_spec(write_spec(copy / "small.yaml")), []
    check_job(spec, "small.yaml", tmp_path, said.append)
    (line,) = said
    assert line.startswith("warning: Ray kills this driver 3 s after `ray job stop`")
    (given,) = re.findall("--runtime-env-json '(.*)'", line)
    assert json.loads(given) == {"env_vars": {STOP_SECONDS: "60"}} and given in PAGE.read_text()


# ---- what was removed ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "instead"),
    [
        ("submit mine.yaml --address http://h:8265", "Run: ray job submit --address"),
        ("jobs", "Run: ray job list --address"),
        ("logs -f mine", "Run: ray job logs --follow --address"),
        ("stop --help", "Run: ray job stop --address"),
        ("doctor --env PGPASSWORD", "Doctor runs where the driver will"),
        ("doctor mine.yaml --env=PGPASSWORD", "Doctor runs where the driver will"),
    ],
)
def test_a_removed_command_says_what_to_do_instead(words: str, instead: str) -> None:
    said = here(*words.split(), check=2)
    assert said.startswith("calstudy: ") and f" was removed. {instead}" in said
    assert said.count("\n") == 1


def test_it_is_not_listed() -> None:
    shown = here("--help")
    assert "doctor" in shown
    assert not [words for words in cli.REMOVED if re.search(rf"\b{words}\b", shown)]


@pytest.mark.parametrize("command", ["run", "doctor"])
def test_a_job_server_is_no_address(tmp_path: Path, command: str) -> None:
    spec, at = write_spec(tmp_path / "small.yaml"), "http://127.0.0.1:8265"
    said = here(command, spec, "--address", at, "--storage", tmp_path / "studies", check=2)
    assert said.startswith(f"--address: '{at}' is a job server") and said.count("\n") == 1
    assert f"Run: ray job submit --address {at} " in said
    assert not (tmp_path / "studies").exists()
    with pytest.raises(ClusterError):
        check_address(at.replace("http", "https"))


def test_the_address_of_the_environment_is_for_doctor_alone() -> None:
    context = click.Context(cli.calstudy)
    reading = set()
    for name in cli.calstudy.list_commands(context):
        command = cli.calstudy.get_command(context, name)
        assert command is not None
        if any(option.envvar == "CALSTUDY_ADDRESS" for option in command.params):
            reading.add(name)
    assert reading == {"doctor"}


# ---- the recipe, on a cluster --------------------------------------------------------------------


@pytest.fixture(scope="module")
def recipe(cluster: Cluster) -> Callable[..., str]:
    """Runs a command of the page, the one with these words, as it stands but for the storage and
    the job's name."""
    folder = cluster.shared / "laptop"
    section = PAGE.read_text().partition("## Submit a study as a job\n")[2].partition("\n## ")[0]
    known = "".join(one for one in blocks(PAGE) if one in section).replace("\\\n", " ")

    def follow(words: str, job: str = "", check: bool = True) -> str:
        (line,) = [line for line in known.splitlines() if words in line]
        line = line.replace("/srv/calstudy", str(cluster.shared / "job-studies"))
        line = line.replace("raysubmit_NAME", job)
        command = ["bash", "-c", f"cd {shlex.quote(str(folder))} && {line}"]
        done = cluster.head.run(command, check=check, env={"COLUMNS": "120"}, timeout=280)
        return done.stdout + done.stderr

    return follow


def on(host: Host, *words: object, check: bool = True, **environment: str) -> Any:
    command = ["python", "-m", "study.cli", *map(str, words)]
    return host.run(command, check=check, env={"COLUMNS": "120", **environment}, timeout=150)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_recipe(cluster: Cluster, recipe: Callable[..., str]) -> None:
    """Checked, submitted, followed, stopped, submitted again, finished and audited; with own code,
    and read on another machine meanwhile."""
    storage, gate = cluster.shared / "job-studies", cluster.shared / "gate"
    write_extensions(cluster.shared / "laptop" / "mine", gate)
    write_spec(
        cluster.shared / "laptop" / "mine.yaml",
        name="mine",
        methods=["patient", "cross_entropy"],
        extensions="mine",
        trials=2,
        epochs=100,
    )
    lost = cluster.head.run(
        ["bash", "-c", f"cd {cluster.shared}/laptop && {LOST}"], check=False, timeout=280
    )
    assert lost.returncode == 1  # Ray's own, of any job that failed
    assert "--storage: /tmp/ray/session_" in lost.stdout
    assert "failed with exit code 2" in lost.stdout + lost.stderr

    checked = recipe("exec calstudy doctor")
    for host in (cluster.head, *cluster.workers):
        assert re.search(rf"^{host.address} +(ok +){{4}}0 ", checked, re.MULTILINE), checked
    assert "no problems found." in checked

    trials = storage / "mine" / "trials" / "patient"
    (job,) = set(re.findall(r"raysubmit_\w+", recipe("exec calstudy run")))
    wait_until(lambda: len(list(trials.glob("*/attempt-1"))) == 2, 300, "both trials train")
    meanwhile = on(cluster.workers[0], "status", "mine", "--storage", storage, "--json").stdout
    assert counted(json.loads(meanwhile))["patient"] == {"planned": 2, "running": 2}
    metrics(cluster, job)
    assert "was stopped" in recipe("ray job stop", job)
    assert not cluster.head.pids("calstudy run")
    said = recipe("ray job logs", job)
    assert "stopped by SIGTERM; run the same command again to resume." in said
    assert "warning: " not in said
    interrupted = counted(here_json("status", "mine", "--storage", storage))["patient"]
    assert interrupted == {"planned": 2, "interrupted": 2}

    gate.touch()
    (again,) = set(re.findall(r"raysubmit_\w+", recipe("exec calstudy run")))
    said = recipe("ray job logs", again)  # to its end
    assert "4/4 trials; 4 complete" in said
    listed = recipe("ray job list")
    assert all(
        re.search(rf"{name}.*{state}", listed)
        for name, state in ((job, "STOPPED"), (again, "SUCCEEDED"))
    ), listed
    whole = {"planned": 2, "complete": 2}
    found = here_json("status", "mine", "--storage", storage)
    assert counted(found) == {"patient": whole, "cross_entropy": whole}
    assert sorted(path.name for path in trials.glob("*/attempt-*")) == [
        *["attempt-1"] * 2,
        *["attempt-2"] * 2,
    ]
    here("audit", "mine", "--storage", storage)  # fails where it finds something


# As the page has it, without what it says of storages.
LOST = (
    "ray job submit --address http://127.0.0.1:8265 --working-dir . -- exec calstudy run mine.yaml"
    " --address auto"
)


def counted(status: dict[str, Any]) -> dict[str, dict[str, int]]:
    return {
        label: {state: count for state, count in of.items() if count}
        for label, of in status["methods"].items()
    }


def metrics(cluster: Cluster, job: str) -> None:
    """Told to anyone, as docs/why/security.md says, without the token: a later Ray asking for the
    token should change that page."""
    script = (
        "import http.client, subprocess, sys, urllib.request\n"
        "lines = subprocess.run(['ss', '-Hltn'], capture_output=True, text=True).stdout\n"
        "for port in {line.split()[3].rpartition(':')[2] for line in lines.splitlines()}:\n"
        "    asked = f'http://{sys.argv[1]}:{port}/metrics'\n"
        "    try: print(urllib.request.urlopen(asked, timeout=20).read().decode())\n"
        "    except (OSError, http.client.HTTPException): pass\n"
    )
    told = cluster.head.run(["python", "-c", script, cluster.head.address], timeout=200).stdout
    token = cluster.head.run(["cat", str(cluster.head.home / ".ray" / "auth_token")]).stdout
    assert "ray_node_mem_used" in told and job in told and token.strip() not in told


@pytest.mark.slow
def test_a_wrong_token_or_address_is_one_line_at_once(cluster: Cluster) -> None:
    storage, spec = cluster.shared / "refused", write_spec(cluster.shared / "refused.yaml")
    ray, away = f"{cluster.head.address}:6379", f"127.0.0.1:{free_port()}"
    for command in ("run", "doctor"):
        words = (command, spec, "--storage", storage, "--address")
        done = on(cluster.head, *words, ray, check=False, RAY_AUTH_TOKEN="0" * 64)
        assert done.returncode == 2, done.stderr
        assert done.stderr.startswith(f"--address: the cluster at {ray} rejects this token. Copy")
        assert done.stderr.count("\n") == 1
        done = on(cluster.head, *words, ray, check=False, RAY_AUTH_MODE="disabled")
        assert done.returncode == 2 and "Set RAY_AUTH_MODE=token" in done.stderr, done.stderr
        said = here(*words, away, check=75)
        assert said.startswith(f"--address: no Ray head at {away}") and said.count("\n") == 1
    assert not storage.exists()
