"""cluster.yaml and its sibling for AWS against Ray's own schema; and cluster.yaml
raised from a clone, used and torn down."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from study.machines.cluster_files import filled
from tests.hosts import CHECKOUT, Host, Process, network
from tests.patience import wait_until
from tests.recipes import blocks

LOCAL = CHECKOUT / "cluster.yaml"


# ---- what Ray says of the files ------------------------------------------------------------------


@pytest.fixture(params=["local.yaml", "aws.yaml"])
def config(request: pytest.FixtureRequest) -> dict[str, Any]:
    """As `ray up` fills it out; Ray's schema refuses a key it does not know and
    a value of another kind."""
    from ray.autoscaler._private.util import prepare_config, validate_config

    text = filled(request.param, wheel="calstudy.whl")
    config: dict[str, Any] = prepare_config(yaml.safe_load(text))
    validate_config(config)
    return config


def test_a_clone_mounts_what_it_is_installed_from() -> None:
    """Each at its own place, and nothing that git does not know."""
    mounts = yaml.safe_load(LOCAL.read_text())["file_mounts"]
    del mounts["~/.ray/auth_token"]
    assert mounts == {f"~/calstudy/code/{path}": path for path in mounts.values()}
    pyproject = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())
    packages = pyproject["tool"]["setuptools"]["packages"]["find"]["include"]
    needed = {package.rstrip("*") for package in packages} | {"pyproject.toml", "README.md"}
    # study/templates/local.yaml is a link to cluster.yaml.
    assert {*mounts.values()} == needed | {"LICENSE", "cluster.yaml"}


def test_what_has_no_password_listens_on_loopback_alone(config: dict[str, Any]) -> None:
    started = " ".join(config["head_start_ray_commands"])
    assert "--dashboard-host=127.0.0.1" in started and "mlflow server --host 127.0.0.1" in started
    assert "--allowed-hosts 127.0.0.1:5000,localhost:5000" in started and "0.0.0.0" not in started


# ---- the story of a user -------------------------------------------------------------------------

USER, UID, HOME = "ada", 61000, "/tmp/ada"
TOOLS = ("sshd", "ssh", "ssh-keygen", "rsync", "setpriv", "pgrep")
STUDY = """
name: mine
data: {name: digits}
model: mlp
methods: [cross_entropy]
objectives: [{metric: accuracy, direction: maximize}, {metric: ece, direction: minimize}]
search_space: {optimizer.lr: {low: 0.01, high: 0.5, log: true}}
trials: 2
epochs: 20
"""


@dataclass(frozen=True)
class Site:
    """A laptop and three machines that it reaches by ssh, with a user of no rights on
    each, and their storage."""

    laptop: Host
    head: Host
    workers: list[Host]
    disk: Path  # the laptop's home, which outlives its power; /tmp does not
    storage: Path


@pytest.fixture
def site(hosts_allowed: None, tmp_path: Path) -> Iterator[Site]:
    path = f"{os.environ['PATH']}:/usr/local/sbin:/usr/sbin"
    if missing := [tool for tool in TOOLS if shutil.which(tool, path=path) is None]:
        pytest.skip(
            f"no cluster raised by `ray up`: '{missing[0]}' is not installed (Debian:"
            " openssh-server, rsync, procps)"
        )
    if os.geteuid() != 0:
        pytest.skip("no cluster raised by `ray up`: sshd needs root to become another user")
    tmp_path.chmod(0o755)
    disk, storage = tmp_path / "laptop", tmp_path / "storage"
    for folder in (disk, storage):
        folder.mkdir()
        os.chown(folder, UID, UID)
    with network(4, tmp_path) as (laptop, *machines):
        switched_on(laptop, disk)
        as_user(laptop, "mkdir -m 700 ~/.ssh; ssh-keygen -q -t ed25519 -N '' -f ~/.ssh/calstudy")
        for machine in machines:
            switched_on(machine)
            serve_ssh(machine, (disk / ".ssh/calstudy.pub").read_text())
        yield Site(laptop, machines[0], machines[1:], disk, storage)


def switched_on(host: Host, disk: Path | None = None) -> None:
    """Give a host that has just booted its user, and a /run and /var/log of its own for sshd."""
    script = f"""
    echo '{USER}:*:{UID}:{UID}::{HOME}:/bin/bash' >>/etc/passwd
    install -d -m 700 -o {UID} -g {UID} {HOME}
    for folder in /run /var/log; do mount -t tmpfs -o mode=755 own $folder; done
    """
    host.run(["sh", "-euc", script])
    if disk is not None:
        host.run(["mount", "--bind", disk, HOME])
    # The user must reach Python and our code; a folder above them may be closed to all but root.
    needed: dict[Path, list[Path]] = {}
    for path in (CHECKOUT, Path(sys.prefix), Path(sys.base_prefix)):
        shut = next(
            (folder for folder in reversed(path.parents) if not folder.stat().st_mode & 0o001), None
        )
        if shut is not None and not path.is_relative_to("/tmp"):
            needed.setdefault(shut, []).append(path)
    script = """
    shut=$1; shift
    for path; do mkdir -p "/tmp/kept$path"; mount --rbind "$path" "/tmp/kept$path"; done
    mount -t tmpfs -o mode=755 open "$shut"
    for path; do mkdir -p "$path"; mount --rbind "/tmp/kept$path" "$path"; done
    """
    for shut, paths in needed.items():
        host.run(["sh", "-euc", script, "open", shut, *paths])


def serve_ssh(host: Host, public_key: str) -> None:
    """sshd, for the user's key; and an environment where pip, which has no way out here, finds
    what it would download."""
    script = f"""
    mkdir -m 700 .ssh && echo '{public_key.strip()}' >.ssh/authorized_keys
    {sys.executable} -m venv --without-pip calstudy/env && cd calstudy/env
    echo {sysconfig.get_path("purelib")} >$(echo lib/python*/site-packages)/downloaded.pth
    for tool in pip ray mlflow; do
        sed "1s|.*|#!$PWD/bin/python|" {sys.prefix}/bin/$tool >bin/$tool && chmod 755 bin/$tool
    done
    printf '[global]\nno-index = true\nno-build-isolation = false\n' >pip.conf
    """
    as_user(host, script)
    host.run(
        ["sh", "-euc", "mkdir -m 755 /run/sshd; ssh-keygen -q -t ed25519 -N '' -f /run/sshd/key"]
    )
    options = (
        "PidFile=none",
        "UsePAM=no",
        "PasswordAuthentication=no",
        "KbdInteractiveAuthentication=no",
    )
    words = [word for option in options for word in ("-o", option)]
    host.popen(
        ["/usr/sbin/sshd", "-D", "-f", "/dev/null", "-h", "/run/sshd/key", *words],
        stderr=subprocess.DEVNULL,
    )


def user_words(command: str) -> tuple[list[str], dict[str, str]]:
    words = [
        "setpriv",
        f"--reuid={UID}",
        f"--regid={UID}",
        "--clear-groups",
        "bash",
        "-c",
        f"cd {HOME}; {command}",
    ]
    return words, {"HOME": HOME, "USER": USER, "LOGNAME": USER, "RAY_TMPDIR": f"{HOME}/.ray"}


def as_user(host: Host, command: str, *, timeout: float = 120, check: bool = True) -> str:
    words, environment = user_words(command)
    return host.run(words, env=environment, timeout=timeout, check=check).stdout


@contextlib.contextmanager
def in_background(host: Host, command: str) -> Iterator[Process]:
    words, environment = user_words(command)
    with host.popen(
        words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        yield process
        process.kill()


def write_clone(site: Site) -> list[str]:
    """What cluster.yaml mounts of a clone, in the user's folder `clone`, with its marked lines
    changed and no other; the commands of its first lines."""
    clone = site.disk / "clone"
    clone.mkdir()
    for path in yaml.safe_load(LOCAL.read_text())["file_mounts"].values():
        if not path.startswith("~"):
            copied = shutil.copytree if (CHECKOUT / path).is_dir() else shutil.copy
            copied(CHECKOUT / path, clone / path)
    changes = {
        "head_ip: 192.0.2.10": f"head_ip: {site.head.address}",
        "[192.0.2.11, 192.0.2.12]": f"[{', '.join(worker.address for worker in site.workers)}]",
        "ssh_user: ubuntu": f"ssh_user: {USER}",
        "/srv/calstudy": str(site.storage),
    }
    lines = LOCAL.read_text().splitlines()
    commands = [line[4:] for line in lines if line.startswith("#   ")]
    for number, line in enumerate(lines):
        if "# <-" in line:
            for old, new in changes.items():
                lines[number] = lines[number].replace(old, new)
    (clone / "cluster.yaml").write_text("\n".join(lines))
    (clone / "mine").mkdir()
    (clone / "mine" / "mine.yaml").write_text(STUDY)
    subprocess.run(["chown", "-R", f"{UID}:{UID}", str(clone)], check=True)
    return commands


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_raised_used_and_torn_down(site: Site) -> None:
    """ray up, ray job submit, the laptop's power fails, status, pareto, laptop on, export,
    ray down.

    All of it is really run; the hosts have no way out, so that pip finds what we have installed.
    """
    laptop, head, workers = site.laptop, site.head, site.workers
    setting, *commands = write_clone(site)
    assert len(commands) == 2
    laptop.hide(site.storage)
    as_user(laptop, "\n".join(["cd clone", setting, *commands]), timeout=240)
    wait_until(
        lambda: all(worker.pids("raylet/raylet") for worker in workers), 90, "Ray on the workers"
    )
    wait_until(
        lambda: "3 local.cluster.node" in on_head(laptop, "ray status"),
        240,
        "3 nodes",
    )
    for host in (laptop, head, *workers):
        assert as_user(host, "stat -c %a ~/.ray/auth_token").strip() == "600"
    for machine in (head, *workers):
        where = ". calstudy/env.sh; python -c 'import study; print(study.__file__)'"
        assert as_user(machine, where).strip() == f"{HOME}/calstudy/code/study/__init__.py"
    check_tracking(head, ["127.0.0.1:5000", "127.0.0.1:8265"])

    page = CHECKOUT / "docs" / "how-to" / "use-your-machines.md"
    (submit,) = [one for one in blocks(page) if "-- exec" in one]
    submit = submit.replace("/srv/calstudy", str(site.storage))
    with in_background(laptop, "ray dashboard clone/cluster.yaml"):
        reached = ["bash", "-c", "</dev/tcp/127.0.0.1/8265"]
        wait_until(
            lambda: laptop.run(reached, check=False).returncode == 0,
            60,
            "the job server through ssh",
        )
        told = as_user(laptop, f"cd clone/mine && {submit}")
        assert "submitted successfully" in told
        laptop.kill()
    wait_until(lambda: bool(head.pids("calstudy run")), 60, "the driver on the head")
    wait_until(lambda: not head.pids("calstudy run"), 180, "the study's end")
    status = as_user(workers[0], f"calstudy status mine --storage {site.storage} --json")
    assert {row["complete"] for row in json.loads(status)["methods"].values()} == {2}
    assert "knee: " in as_user(workers[1], f"calstudy pareto mine --storage {site.storage}")

    laptop.boot()
    switched_on(laptop, site.disk)
    laptop.hide(site.storage)
    export = "calstudy export mine --name mine --alias champion"
    assert "registered models:/mine/1" in on_head(laptop, export)
    assert head.pids("gcs_server")
    as_user(laptop, "ray down -y clone/cluster.yaml")
    wait_until(lambda: not head.pids("ray/"), 30, "the end of Ray on the head")
    check_tracking(head, ["127.0.0.1:5000"])


def on_head(laptop: Host, command: str) -> str:
    return as_user(laptop, f"ray exec clone/cluster.yaml '{command}'")


def check_tracking(head: Host, expected: list[str]) -> None:
    """What listens is on the head's loopback; MLflow refuses who names another host."""

    def places() -> list[str]:
        lines = head.run(["ss", "-Hltn"]).stdout.splitlines()
        return sorted(
            place
            for place in (line.split()[3] for line in lines)
            if place.endswith((":5000", ":8265"))
        )

    wait_until(lambda: len(places()) == len(expected), 60, f"{expected} on the head")
    assert places() == expected
    ask = (
        "import http.client, sys; asked = http.client.HTTPConnection('127.0.0.1',"
        " 5000)\nasked.request('GET', '/api/2.0/mlflow/experiments/search?max_results=1',"
        " headers={'Host': sys.argv[1]})\nprint(asked.getresponse().status)"
    )
    answers = [
        head.run(["python", "-c", ask, name]).stdout.strip()
        for name in ("127.0.0.1:5000", "evil.example")
    ]
    assert answers == ["200", "403"]
