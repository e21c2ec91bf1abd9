"""Real hosts on one machine: each with its own address, processes, files and
death, joined by one switch.

    with network(3, shared=tmp_path / "shared") as (head, *workers):
        start_head(head)
        start_worker(workers[0], head)
        workers[0].cut()    # the switch drops its packets; mend() lets them pass again
        os.kill(workers[0].raylet_pid(), signal.SIGKILL)
        workers[0].kill()   # its processes and its disk are gone; boot() brings an empty machine

A host is a set of Linux namespaces (network, PID, mount, hostname, IPC) that live as long as their
first process, a `cat` that reads a pipe from us. When this process ends, however it ends, the pipe
closes, `cat` ends, the kernel kills every process of the host and drops its mounts, its cable and
the switch. Nothing has a name outside: nothing can collide with another run or be left over.

A host sees the machine's files, except that /tmp, /dev/shm and $HOME are its own (in memory). The
checkout, the Python environment and `shared` are at the same path everywhere. There is no way out:
only the hosts of one network reach each other. Without root the hosts live in a user namespace,
where the machine allows it: all but changing user works (sshd).
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from study.machines.ray_compat import without_services
from tests.patience import patient, wait_until

CHECKOUT = Path(__file__).resolve().parents[1]
# The switch and its hosts are a network of their own: any private addresses do, and two
# runs at once cannot meet.
SUBNET = "10.77.0"
TOOLS = ("ip", "bridge", "hostname", "mount", "nsenter", "unshare")
NAMESPACES = ("--net", "--pid", "--mount", "--uts", "--ipc")
_ROOT = os.geteuid() == 0

# The first process of a host. The tmpfs on /dev/shm carries the new /tmp, with what must stay
# visible, to its place.
_BOOT = """
set -eu
mount -t tmpfs host /dev/shm
mkdir -m 1777 /dev/shm/tmp
for path in "$@"; do
    case "$path" in /tmp/*) mkdir -p "/dev/shm$path"; mount --rbind "$path" "/dev/shm$path";; esac
done
mount --rbind /dev/shm/tmp /tmp
mount -t tmpfs -o mode=1777 host /dev/shm
mkdir -p -m 700 /tmp/home/.ray
sed "s|^root:\\(.*\\):[^:]*:\\([^:]*\\)$|root:\\1:/tmp/home:\\2|" /etc/passwd >/tmp/home/.passwd
mount --bind /tmp/home/.passwd /etc/passwd
printf "%s\\n" "$HOSTS" >/tmp/home/.hosts
mount --bind /tmp/home/.hosts /etc/hosts
umask 077
printf %s "$TOKEN" >/tmp/home/.ray/auth_token
hostname "$NAME"
ip link set lo up
echo up
exec env --ignore-signal=CHLD cat    # so that the kernel reaps the orphans of this host
"""


class Process(subprocess.Popen[str]):
    """A program in a host. `pid` is of the nsenter that waits for it, `program` its own;
    signals go to the program."""

    @property
    def program(self) -> int:
        """Its PID. ProcessLookupError where it has ended."""
        wait_until(
            lambda: self.poll() is not None or _children(self.pid), 5, f"a child of {self.pid}"
        )
        started = _children(self.pid) if self.returncode is None else []
        if not started:
            raise ProcessLookupError(f"the program of process {self.pid} has ended")
        return started[0]

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.program, sig)


class Host:
    """One machine of a network, running from the start. Make it with `network`."""

    def __init__(self, network: Network, number: int) -> None:
        self.name = f"host-{number}"
        self.address = f"{SUBNET}.{number + 1}"
        self.home = Path("/tmp/home")  # as the host sees it
        self._network = network
        self._number = number
        self._init: subprocess.Popen[str] | None = None
        self._pid = 0
        self._space = ""
        self.boot()

    @property
    def init_pid(self) -> int:
        """Its first process, as we number it: `nsenter --target PID --net --pid
        --mount --uts --ipc` enters."""
        return self._pid

    def boot(self) -> None:
        """Switch the machine on, with an empty /tmp and $HOME; it must be off."""
        network = self._network
        boot = [
            "unshare",
            *NAMESPACES,
            "--fork",
            "--mount-proc",
            "sh",
            "-c",
            _BOOT,
            "boot",
            *map(str, network.visible),
        ]
        words = {"NAME": self.name, "TOKEN": network.token, "HOSTS": network.names()}
        self._init = _holder([*network.entered(), *boot], words)
        init = self._init.pid
        wait_until(lambda: _children(init), 5, f"a child of {init}")
        self._pid = _children(init)[0]
        self._space = os.readlink(f"/proc/{self._pid}/ns/pid")
        port = f"port-{self._number}"
        network.switch(f"ip link add {port} type veth peer name eth0 netns {self._pid}")
        network.switch(f"ip link set {port} master switch up")
        self.run(["ip", "address", "add", f"{self.address}/24", "dev", "eth0"])
        self.run(["ip", "link", "set", "eth0", "up"])

    def kill(self) -> None:
        """The power fails: every process of the host is dead when this returns."""
        if self._init is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        self._init.communicate()
        self._init = None
        # The kernel takes the other end away too, but in its own time.
        with contextlib.suppress(OSError):
            self._network.switch(f"ip link delete port-{self._number}")

    def popen(self, command: Sequence[str | os.PathLike[str]], **options: Any) -> Process:
        """Start a program in the host. `env` is laid over `environment()`; text mode;
        the rest as subprocess.Popen."""
        if self._init is None:
            raise RuntimeError(f"{self.name} is switched off")
        directory = os.fspath(options.pop("cwd", self.home))
        environment = {**self.environment(), **(options.pop("env", None) or {})}
        options = {"text": True, "start_new_session": True, "stdin": subprocess.DEVNULL, **options}
        return Process(
            [*_entered(self._pid), *NAMESPACES, "env", f"--chdir={directory}", *command],
            env=environment,
            **options,
        )

    def run(
        self,
        command: Sequence[str | os.PathLike[str]],
        *,
        check: bool = True,
        timeout: float = 60,
        **options: Any,
    ) -> subprocess.CompletedProcess[str]:
        """Run a program to its end, its output captured. RuntimeError with the output where
        it fails and `check`; a busy machine has more than the seconds."""
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        if (text := options.pop("input", None)) is not None:
            options["stdin"] = subprocess.PIPE
        with self.popen(command, **options) as process:
            try:
                stdout, stderr = process.communicate(text, timeout=patient(timeout))
            except BaseException:
                os.killpg(process.pid, signal.SIGKILL)
                raise
        if check and process.returncode != 0:
            words = shlex.join(map(os.fspath, command))
            raise RuntimeError(
                f"{self.name}: {words}: exit {process.returncode}\n{stdout or ''}{stderr or ''}"
            )
        return subprocess.CompletedProcess(command, process.returncode, stdout or "", stderr or "")

    def environment(self) -> dict[str, str]:
        """What a program gets: of ours the Python environment alone, first in the path; Ray's
        token is switched on."""
        return {
            "PATH": (
                f"{Path(sys.executable).parent}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
            ),
            "HOME": str(self.home),
            "USER": "root",
            "LANG": "C.UTF-8",
            "OMP_NUM_THREADS": "1",
            "RAY_AUTH_MODE": "token",
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_worker_niceness": "0",  # as in conftest
            "RAY_prestart_worker_first_driver": "0",
        }

    def pids(self, words: str = "") -> list[int]:
        """Its living processes, as we number them (os.kill reaches them), with `words`
        in their command line."""
        return [
            pid
            for pid in _processes(self._space)
            if pid != self._pid and words in _command_line(pid)
        ]

    def raylet_pid(self) -> int:
        return self._only("raylet")

    def gcs_pid(self) -> int:
        """The head's control store."""
        return self._only("gcs_server")

    def _only(self, name: str) -> int:
        found = [pid for pid in self.pids() if Path(_command_line(pid).split(" ")[0]).name == name]
        if len(found) != 1:
            raise RuntimeError(f"{self.name} has {len(found)} processes {name}, not one")
        return found[0]

    def cut(self) -> None:
        """The switch drops every packet from and to the host and tells nobody, as when
        a network partitions."""
        self._network.switch(f"bridge link set dev port-{self._number} state 0")

    def mend(self) -> None:
        """Undo `cut`."""
        self._network.switch(f"bridge link set dev port-{self._number} state 3")

    def hide(self, folder: Path) -> None:
        """Lay an empty folder of its own over `folder`, as on a machine where
        the share is not mounted."""
        self.run(["mount", "-t", "tmpfs", "hidden", folder])

    def show(self, folder: Path) -> None:
        """Undo `hide`."""
        self.run(["umount", folder])


class Network:
    """A switch and its hosts. Make it with `network`."""

    def __init__(self, count: int, visible: Sequence[Path]) -> None:
        self.visible = tuple(visible)
        self.token = secrets.token_hex(32)
        self.hosts: list[Host] = []
        self._count = count
        script = "ip link add switch type bridge && ip link set switch up && echo up && exec cat"
        users = [] if _ROOT else ["--user", "--map-root-user"]
        self._holder = _holder(["unshare", *users, "--net", "sh", "-c", script], {})

    def entered(self) -> list[str]:
        return _entered(self._holder.pid)

    def switch(self, command: str) -> None:
        """Run a command of iproute2 on the switch."""
        done = subprocess.run(
            [*self.entered(), "--net", *command.split()],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise OSError(f"{command}: {done.stderr.strip()}")

    def names(self) -> str:
        """/etc/hosts"""
        names = [f"{SUBNET}.{number + 1} host-{number}" for number in range(self._count)]
        return "\n".join(["127.0.0.1 localhost", *names])

    def boot(self) -> None:
        for number in range(self._count):
            self.hosts.append(Host(self, number))

    def end(self) -> None:
        for host in self.hosts:
            host.kill()
        self._holder.communicate()


@contextlib.contextmanager
def network(count: int, shared: Path | None = None) -> Iterator[list[Host]]:
    """`count` hosts that reach each other; `shared` is a folder all of them see. OSError
    where the machine refuses.

    It costs 0.1 s and next to no memory a host; a head of Ray 3 s and 0.6 GB, a worker
    node 2 s and 0.3 GB more.
    """
    visible = [CHECKOUT, Path(sys.prefix), Path(sys.base_prefix)]
    if shared is not None:
        shared.mkdir(parents=True, exist_ok=True)
        visible.append(shared.resolve())
    whole = Network(count, visible)
    try:
        whole.boot()
        yield whole.hosts
    finally:
        whole.end()


@functools.cache
def refusal() -> str | None:
    """Why this machine lets no hosts be raised; None where it does."""
    if not sys.platform.startswith("linux"):
        return "hosts are made of Linux namespaces"
    if missing := [tool for tool in TOOLS if shutil.which(tool) is None]:
        return f"'{missing[0]}' is not installed (Debian: iproute2, hostname, util-linux)"
    try:
        with network(1) as (host,):
            host.run(["true"])
    except (OSError, RuntimeError) as error:
        return f"namespaces are not allowed here ({str(error).strip().splitlines()[-1]})"
    return None


# Ray on a host


def start_head(
    host: Host,
    *,
    cpus: int = 1,
    jobs: bool = False,
    options: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
) -> None:
    """Ray's head: control store on port 6379. jobs: dashboard and job server on its loopback too,
    port 8265; they take ten seconds of CPU to start."""
    words = ["--head", "--port=6379", f"--include-dashboard={str(jobs).lower()}"]
    words += ["--dashboard-host=127.0.0.1"] if jobs else []
    _start(host, [*_ray_start(host, cpus), *words, *options], env)


@contextlib.contextmanager
def counted(*, cpus: int, gpus: int) -> Iterator[str]:
    """The address of a Ray on this machine, which counts so many CPUs and GPUs, whatever is
    there."""
    from ray.cluster_utils import Cluster

    with without_services():  # half of the CPU of its start
        cluster = Cluster(True, head_node_args={"num_cpus": cpus, "num_gpus": gpus})
    try:
        yield cluster.address
    finally:
        cluster.shutdown()


def start_worker(
    host: Host,
    head: Host,
    *,
    cpus: int = 1,
    options: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    supervised: bool = False,
) -> None:
    """A node that joins the head's cluster; `supervised`: started again whenever it
    ends, as systemd would."""
    words = [*_ray_start(host, cpus), f"--address={head.address}:6379", *options]
    if not supervised:
        _start(host, words, env)
        return
    loop = f"while :; do {shlex.join([*words, '--block'])}; sleep 1; done >>/tmp/ray-start.log 2>&1"
    host.popen(["sh", "-c", loop], env=env)
    wait_until(lambda: nodes(head).get(host.address, False), 180, f"{host.name} in the cluster")


def _ray_start(host: Host, cpus: int) -> list[str]:
    # Nobody reads the log monitor's stream; it costs 50 MB a node.
    return [
        *["ray", "start", f"--node-ip-address={host.address}", f"--num-cpus={cpus}"],
        *["--object-store-memory=100000000", "--include-log-monitor=false"],
    ]


def _start(host: Host, words: Sequence[str], env: Mapping[str, str] | None) -> None:
    """Ray gives a node 30 s to start and no way to say more: a busy machine needs another try."""
    for tries_left in (2, 1, 0):
        started = host.run(words, env=env, check=False, timeout=200)
        if started.returncode == 0:
            return
        if "timed out during startup" not in started.stderr or not tries_left:
            raise RuntimeError(
                f"{host.name}: {shlex.join(words)}\n{started.stdout}{started.stderr}"
            )
        host.run(["ray", "stop", "--force"])  # sees the processes of this host alone


def nodes(head: Host, asked_from: Host | None = None) -> dict[str, bool]:
    """Address -> has it a living node, as the head's control store has it."""
    script = (
        "import json; from ray._raylet import GcsClient; "
        f"client = GcsClient('{head.address}:6379'); "
        "print(json.dumps([[n.node_manager_address, n.state == 0] "
        "for n in client.get_all_node_info().values()]))"
    )
    done = (asked_from or head).run(["python", "-c", script])
    found: dict[str, bool] = {}
    for address, alive in json.loads(done.stdout.splitlines()[-1]):  # one for each time it joined
        found[address] = alive or found.get(address, False)
    return found


# Namespaces and processes


def _entered(pid: int) -> list[str]:
    users = [] if _ROOT else ["--user", "--preserve-credentials"]
    return ["nsenter", "--target", str(pid), *users]


def _holder(command: Sequence[str], words: Mapping[str, str]) -> subprocess.Popen[str]:
    """A process that sets something up, says "up" and then lives as long as we do.
    OSError where it cannot."""
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        command,
        env={**os.environ, **words},
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    if process.stdout.readline() != "up\n":
        raise OSError(process.communicate()[1].strip() or f"{command[0]} ended")
    return process


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _processes(space: str) -> Iterator[int]:
    """Processes of a PID namespace."""
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/{entry.name}/ns/pid") == space:
                    yield int(entry.name)


def _command_line(pid: int) -> str:
    try:
        return (
            Path(f"/proc/{pid}/cmdline")
            .read_bytes()
            .replace(b"\0", b" ")
            .decode(errors="replace")
            .strip()
        )
    except OSError:
        return ""
