"""Joining Ray: what cannot be joined, or could never run a trial, is one clear line, at once."""

import itertools
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from study.machines import ray_session
from study.machines.ray_session import (
    CLIENT_MODE,
    HOOK,
    OF_A_JOB,
    ClusterError,
    check_address,
    check_fits,
    joined,
)
from study.schema.errors import TryAgain
from study.schema.resources import Resources, sharing, slots
from tests.patience import patient
from trainables.problems import FieldError


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.slow
def test_an_address_where_nothing_listens_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    address = f"127.0.0.1:{free_port()}"
    monkeypatch.setattr(ray_session, "head_question", None)  # with a patience of its own
    with pytest.raises(TryAgain, match=f"no Ray head at {address}"):
        check_address(address)


@pytest.mark.parametrize(
    "address", ["nonsense", "host:", "host:port", "127.0.0.1:99999", "ray://127.0.0.1:10001"]
)
def test_an_address_that_is_none(address: str) -> None:
    with pytest.raises(ClusterError, match="--address"):
        check_address(address)


@pytest.mark.parametrize("address", ["auto", "127.0.0.1:1"])
@pytest.mark.parametrize(
    ("variable", "value"),
    [
        (HOOK, "nowhere.hook"),
        (HOOK, "os.nothing"),
        (HOOK, "hook"),
        (OF_A_JOB, "{bad"),
        (OF_A_JOB, "[]"),
        (CLIENT_MODE, "1"),
    ],
)
def test_a_variable_that_keeps_ray_from_a_cluster_is_named(
    address: str, variable: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if variable == CLIENT_MODE:  # Ray has read it
        monkeypatch.setattr("ray._private.client_mode_hook.is_client_mode_enabled", True)
    monkeypatch.setattr(ray_session, "_client_asked", False)
    monkeypatch.setenv(variable, "0" if variable == CLIENT_MODE else value)
    with pytest.raises(ClusterError, match=f"^{variable}: ") as caught:
        check_address(address)
    assert not isinstance(caught.value, TryAgain) and "nset it" in caught.value.mend


@pytest.mark.parametrize("mode", ["token", "disabled", None])
def test_a_token_that_is_refused_or_was_not_sent(
    mode: str | None, monkeypatch: pytest.MonkeyPatch, approved: Callable[..., None]
) -> None:
    import ray

    def asked(seconds: float) -> None:
        raise ray.exceptions.AuthenticationError("no")

    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    if mode is not None:
        monkeypatch.setenv("RAY_AUTH_MODE", mode)
    monkeypatch.setattr(ray_session, "head_question", lambda address: asked)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(ClusterError) as caught:
            check_address(address)
    assert ("Set RAY_AUTH_MODE=token" in caught.value.mend) == (mode != "token")
    approved(str(caught.value).replace(address, "HOST:PORT"))


@pytest.mark.platform
@pytest.mark.slow
def test_a_ray_of_this_machine_alone_ignores_them(tmp_path: Path) -> None:
    """What Ray is asked before it is joined starts no client either."""
    code = (
        "import ray\n"
        "from study.machines.ray_session import joined, set_environment\n"
        "set_environment()\n"
        "print(ray.is_initialized())\n"
        "with joined(None, {}):\n"
        "    print(ray.get(ray.put(7)), ray.util.client.ray.is_connected())\n"
    )
    others = {CLIENT_MODE: "1", HOOK: "nowhere.hook", OF_A_JOB: "{bad"}
    words = [sys.executable, "-c", code]
    done = subprocess.run(
        words, env={**os.environ, **others}, capture_output=True, text=True, timeout=patient(120)
    )
    assert (done.returncode, done.stdout) == (0, "False\n7 False\n"), done.stderr


@pytest.mark.slow
@pytest.mark.platform
def test_an_address_where_something_else_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(ClusterError, match=f"{address} does not answer like a Ray head"):
            check_address(address)


@pytest.mark.parametrize("slow_starts", [2, ray_session.START_TRIES])
def test_a_machine_too_busy_for_ray(monkeypatch: pytest.MonkeyPatch, slow_starts: int) -> None:
    """Ray gives its own processes 30 seconds; it is tried again, and said; then it is
    one line, and code 75."""
    import ray

    said = iter(
        [Exception("The current node timed out during startup. This could happen because")]
        * slow_starts
    )

    def init(**options: Any) -> None:
        if error := next(said, None):
            raise error

    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray, "nodes", lambda: [node(CPU=2)])
    steps: list[str] = []
    if slow_starts == 2:
        with joined(None, {"focal": Resources()}, steps.append):
            pass
        assert steps[1:] == [
            "starting Ray again: it took longer than 30 s (1 of 6 tries)",
            "starting Ray again: it took longer than 30 s (2 of 6 tries)",
        ]
    else:
        with (
            pytest.raises(TryAgain, match="did not start within 30 seconds, 6 times"),
            joined(None, {}),
        ):
            pass


WATCHED = """
import os, stat, sys
from pathlib import Path
from study.machines.ray_session import joined

def mode(path):
    return oct(stat.S_IMODE(os.stat(path).st_mode))

os.umask(0o022)
with joined(None, {}):
    import ray
    session = Path(ray._private.worker._global_node.get_session_dir_path())
    sockets = [path for path in session.rglob("*") if path.is_socket()]
    closed = [str(parent) for parent in session.parents if os.stat(parent).st_mode & 0o077 == 0]
    print(len(sockets) > 0, closed[0], mode(closed[0]))
    assert session.is_relative_to(os.environ["RAY_TMPDIR"])
    @ray.remote
    def umask():
        now = os.umask(0)
        os.umask(now)
        return oct(now)
    print(ray.get(umask.remote()))
print(os.path.exists(closed[0]), mode(Path.home() / ".ray"), mode(Path.home() / ".ray/auth_token"))
"""


@pytest.mark.slow
@pytest.mark.parametrize("there", [None, 0o644])
@pytest.mark.platform
def test_the_files_of_a_local_ray_are_its_users_alone(there: int | None) -> None:
    """Ray's own choice: folders of mode 0777, in which others could replace a socket, and
    a token that all can read."""
    with tempfile.TemporaryDirectory() as home:  # short: Ray's sockets lie below it
        temp, token = Path(home) / "t", Path(home) / ".ray" / "auth_token"
        if there is not None:
            token.parent.mkdir(mode=0o755)
            token.write_text(32 * "1f")
            token.chmod(there)
        environment = {**os.environ, "HOME": home, "RAY_TMPDIR": str(temp)}
        for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
            environment.pop(name, None)
        command = [sys.executable, "-W", "ignore", "-c", WATCHED]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            env=environment,
            check=True,
            timeout=patient(200),
        )
        first, umask, last = done.stdout.strip().splitlines()
        sockets, closed, mode = first.split()
        assert (sockets, mode, Path(closed).parent) == ("True", "0o700", temp)
        assert umask == "0o22"  # the files of trials follow the user's own
        assert last.split() == [
            "False",
            *(["0o700", "0o600"] if there is None else ["0o755", "0o644"]),
        ]
        assert len(token.read_text()) == 64


LISTENING = """
import http.client, json, os, subprocess, sys
import psutil
import ray
from study.machines.ray_session import control_store, joined

PATHS = (("GET", "/"), ("GET", "/metrics"), ("POST", "/get_or_create_runtime_env"))
ASK = "import sys; from ray._raylet import GcsClient as C; C(sys.argv[1]).get_all_node_info()"

def answer(host, port, kind, path):
    asked = http.client.HTTPConnection(host, port, timeout=20)
    try:
        asked.request(kind, path, b"")
        return asked.getresponse().status
    except (OSError, http.client.HTTPException):  # it speaks another protocol
        return None

found = {"refused": [], "answered": []}
with joined(None, {}, asked_cpus=1):
    ray.get(ray.remote(lambda: 1).remote())
    own = psutil.Process()
    for one in (own, *own.children(recursive=True)):
        for at in one.net_connections("tcp"):
            if at.status != "LISTEN":
                continue
            host = at.laddr.ip.replace("::", "127.0.0.1").replace("0.0.0.0", "127.0.0.1")
            for kind, path in PATHS:
                status = answer(host, at.laddr.port, kind, path)
                if status is not None:
                    found["refused" if status == 401 else "answered"].append((path, at.laddr.port))
    for name, token in (("own", {}), ("wrong", {"RAY_AUTH_TOKEN": "0" * 64})):
        command = [sys.executable, "-c", ASK, control_store()]
        done = subprocess.run(command, env={**os.environ, **token}, capture_output=True, text=True)
        found[name] = (done.returncode, "authentication token" in done.stderr.lower())
print(json.dumps(found))
"""


@pytest.mark.slow
@pytest.mark.platform
def test_of_a_local_ray_only_its_metrics_answer_without_the_token() -> None:
    """Each port of its processes is asked over HTTP, and its control store in Ray's own words."""
    with tempfile.TemporaryDirectory(dir="/tmp") as home:
        environment = {**os.environ, "HOME": home, "PYTHONPATH": os.getcwd()}
        for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_TMPDIR"):
            environment.pop(name, None)
        command = [sys.executable, "-W", "ignore", "-c", LISTENING]
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment, timeout=patient(200)
        )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["own"], found["wrong"]) == ([0, False], [1, True])
    assert "/get_or_create_runtime_env" in dict(found["refused"])
    (metrics,) = [port for path, port in found["answered"] if path == "/metrics"]
    assert {port for _, port in found["answered"]} == {metrics}


def test_a_token_is_whole_from_the_first_moment_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    token = tmp_path / ".ray" / "auth_token"

    def random(count: int) -> str:
        assert not token.exists()  # it would be empty
        token.write_text("of another start")
        return 2 * count * "f"

    monkeypatch.setattr("secrets.token_hex", random)
    ray_session._make_token()
    assert token.read_text() == "of another start" and os.listdir(token.parent) == ["auth_token"]
    token.unlink()
    monkeypatch.undo()
    monkeypatch.setenv("HOME", str(tmp_path))
    ray_session._make_token()
    assert len(token.read_text()) == 64 and token.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("is_named", [True, False])
def test_its_folder_is_its_users_alone_and_goes(
    is_named: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In RAY_TMPDIR, or else where temporary files go."""
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    with (
        tempfile.TemporaryDirectory(dir="/tmp") as one,
        tempfile.TemporaryDirectory(dir="/tmp") as other,
    ):
        monkeypatch.setattr(tempfile, "tempdir", one)
        monkeypatch.delenv("RAY_TMPDIR", raising=False)
        if is_named:
            monkeypatch.setenv("RAY_TMPDIR", other)
        with ray_session._private_folder() as folder:
            closed = Path(folder).parent
            assert closed.parent == Path(other if is_named else one)
            assert closed.stat().st_mode & 0o777 == 0o700
        assert not closed.exists()


def test_a_temporary_folder_whose_name_is_too_long_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "none")
    monkeypatch.setenv("RAY_TMPDIR", f"/tmp/{24 * 'x'}")
    with ray_session._private_folder() as folder:
        assert folder.startswith("/tmp/ray-")
    assert (
        capsys.readouterr().err
        == "RAY_TMPDIR: longer than 28 characters; Ray's files go to /tmp.\n"
    )


def node(alive: bool = True, **resources: float) -> dict[str, Any]:
    return {"Alive": alive, "Resources": resources}


@pytest.mark.parametrize(
    ("nodes", "resources", "expected"),
    [
        ([node(CPU=8)], Resources(), 8),
        ([node(CPU=8)], Resources(cpu=3), 2),
        ([node(CPU=64, GPU=4)], Resources(cpu=2, gpu=1), 4),
        ([node(CPU=64, GPU=4)], Resources(cpu=2, gpu=0.25), 16),
        ([node(CPU=64, GPU=1)], Resources(cpu=0, gpu=0.1), 10),
        ([node(CPU=4, GPU=4)], Resources(cpu=2, gpu=1), 2),
        (
            [node(CPU=3), node(CPU=3)],
            Resources(cpu=2),
            2,
        ),  # a trial lies on one node: what is left over adds up to none
        ([node(CPU=8), node(alive=False, CPU=8)], Resources(), 8),
        ([node(CPU=8), node(CPU=8, GPU=2)], Resources(cpu=1, gpu=1), 2),
        ([], Resources(), 0),
    ],
)
def test_as_many_trials_at_once_as_fit_on_the_nodes(
    nodes: list[dict[str, Any]], resources: Resources, expected: int
) -> None:
    assert slots(nodes, resources) == expected


SHARES = (1, 0.9, 0.6, 0.5, 0.4, 1 / 3, 0.3, 0.25, 0.2, 1 / 7, 0.1, 0.0001)


@pytest.mark.parametrize("share", SHARES)
def test_a_part_of_a_gpu_lies_on_one_gpu(share: float) -> None:
    """Against trials put one by one on the first GPU that has room, in Ray's units."""
    for gpus, cpus in itertools.product((0, 1, 2, 3, 8), (1, 7, 64, 20_000)):
        units = round(share * 10_000)
        left = [10_000] * gpus
        count = 0
        while count < cpus and (there := [gpu for gpu in range(gpus) if left[gpu] >= units]):
            left[there[0]] -= units
            count += 1
        assert slots([node(CPU=cpus, GPU=gpus)], Resources(cpu=1, gpu=share)) == count
        alone = min(cpus, 10_000 // units) if gpus else 0
        assert sharing({"CPU": cpus, "GPU": gpus}, Resources(cpu=1, gpu=share)) == alone
        reserved = Resources(cpu=1, gpu=share).together(alone)
        assert reserved["CPU"] == alone and round(10_000 * reserved["GPU"]) == alone * units


def test_a_trial_that_fits_on_no_node() -> None:
    nodes = [node(CPU=8), node(CPU=8)]
    check_fits(nodes, {"focal": Resources(cpu=8)})
    with pytest.raises(
        ClusterError,
        match=r"resources: a trial of mbls needs 1 CPU and 1 GPU on one node; nodes have 8",
    ):
        check_fits(nodes, {"focal": Resources(), "mbls": Resources(gpu=1)})
    with pytest.raises(ClusterError, match="needs 9 CPU"):
        check_fits(nodes, {"focal": Resources(cpu=9)})


def test_a_whole_gpu_instead_of_a_part() -> None:
    assert Resources(cpu=2, gpu=0.25).on_a_whole_gpu() == Resources(cpu=2, gpu=1)
    assert Resources(gpu=1).on_a_whole_gpu() == Resources(gpu=1)


@pytest.mark.parametrize(
    "values", [{"gpu": 2}, {"gpu": 0.00004}, {"cpu": 0, "gpu": 0}, {"cpu": -1}]
)
def test_resources_that_are_none(values: dict[str, float]) -> None:
    with pytest.raises(FieldError):
        Resources(**values)
