"""The hosts are what they claim: separate machines as the kernel sees them, and nothing
of them stays behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Cluster
from tests.hosts import CHECKOUT, Host, network, nodes, start_head, start_worker
from tests.patience import wait_until

pytestmark = pytest.mark.usefixtures("hosts_allowed")


def reaches(host: Host, other: Host) -> bool:
    """Does a TCP connection come about?"""
    listener = (
        "import socket; s = socket.create_server(('', 9000)); print('up', flush=True); s.accept()"
    )
    caller = f"import socket; socket.create_connection(('{other.address}', 9000), timeout=1)"
    with other.popen(["python3", "-c", listener], stdout=subprocess.PIPE) as listening:
        assert listening.stdout is not None and listening.stdout.readline() == "up\n"
        reached = host.run(["python3", "-c", caller], check=False).returncode == 0
        listening.kill()
    return reached


def test_own_addresses_and_names() -> None:
    with network(3) as hosts:
        shown = [
            host.run(["ip", "-4", "-brief", "address", "show", "dev", "eth0"]).stdout.split()[2]
            for host in hosts
        ]
        assert shown == [f"{host.address}/24" for host in hosts] and len(set(shown)) == 3
        assert [host.run(["hostname"]).stdout.strip() for host in hosts] == [
            host.name for host in hosts
        ]


def test_a_host_sees_no_process_but_its_own() -> None:
    with network(2) as (one, other), one.popen(["sleep", "60"]) as sleeping:
        pid = sleeping.program
        # For an instant its command line is empty.
        wait_until(lambda: one.pids("sleep 60") == [pid], 30, "it sleeps")
        assert other.pids() == []
        listed = [host.run(["ps", "-eo", "args"]).stdout for host in (one, other)]
        assert "sleep 60" in listed[0] and "sleep 60" not in listed[1]
        assert other.run(["sh", "-c", f"kill -9 {pid}"], check=False).returncode != 0
        sleeping.terminate()
        assert sleeping.wait() == -signal.SIGTERM


def test_own_files_and_the_shared_folder(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    with network(2, shared) as (one, other):
        one.run(["sh", "-c", f"touch {shared}/seen /tmp/mine /dev/shm/mine ~/mine"])
        assert (shared / "seen").exists() and not Path("/tmp/mine").exists()
        assert (
            other.run(["ls", shared, "/tmp", "/dev/shm", "/tmp/home"]).stdout.split().count("mine")
            == 0
        )
        other.hide(shared)
        assert other.run(["ls", shared]).stdout == "" and one.run(["ls", shared]).stdout == "seen\n"
        other.show(shared)
        assert other.run(["ls", shared]).stdout == "seen\n"


def test_a_cut_host_is_cut_and_mended() -> None:
    with network(3) as (one, two, three):
        assert reaches(one, two)
        two.cut()
        assert not reaches(one, two) and not reaches(two, one) and reaches(one, three)
        two.mend()
        assert reaches(one, two) and reaches(two, one)


def test_a_killed_host_is_gone_with_its_disk_and_boots_anew() -> None:
    with network(2) as (one, other):
        one.run(["touch", "/tmp/mine"])
        sleeping = one.popen(["sleep", "60"])
        wait_until(lambda: one.pids("sleep 60") != [], 10, "asleep")
        one.kill()
        assert sleeping.wait(timeout=5) == -signal.SIGKILL and one.pids() == []
        one.boot()
        assert one.run(["ls", "/tmp"]).stdout.split().count("mine") == 0 and reaches(other, one)


def test_orphans_are_reaped() -> None:
    with network(1) as (host,):
        host.run(["sh", "-c", "setsid sleep 0.1 &"])
        wait_until(lambda: host.pids() == [], 5, "no zombie")


def test_nothing_is_left_when_we_are_killed(tmp_path: Path) -> None:
    script = (
        "import os, signal; from tests.hosts import network\n"
        "with network(2) as hosts:\n"
        "    for host in hosts: host.popen(['sleep', '60']).program\n"
        "    print(*[pid for host in hosts for pid in (host.init_pid, *host.pids())], flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    before = (Path("/proc/mounts").read_text(), sorted(os.listdir("/sys/class/net")))
    died = subprocess.run(
        [sys.executable, "-c", script], cwd=CHECKOUT, stdout=subprocess.PIPE, text=True, check=False
    )
    pids = died.stdout.split()
    assert died.returncode == -signal.SIGKILL and len(pids) == 4
    wait_until(
        lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), 5, "all processes gone"
    )
    assert (Path("/proc/mounts").read_text(), sorted(os.listdir("/sys/class/net"))) == before


@pytest.mark.slow
def test_three_nodes_in_one_ray_cluster(cluster: Cluster) -> None:
    hosts = (cluster.head, *cluster.workers)
    assert nodes(cluster.head) == dict.fromkeys([host.address for host in hosts], True)
    script = (
        "import ray, socket; from ray.util.scheduling_strategies import"
        " NodeAffinitySchedulingStrategy as On\nray.init(address='auto',"
        " logging_level='ERROR')\nname = ray.remote(num_cpus=1)(lambda: socket.gethostname())\non ="
        " [On(node['NodeID'], soft=False) for node in"
        " ray.nodes()]\nprint(*sorted(ray.get([name.options(scheduling_strategy=one).remote() for"
        " one in on])))\n"
    )
    ran = cluster.workers[1].run(["python", "-c", script]).stdout
    assert ran.split() == [host.name for host in hosts]


@pytest.mark.slow
def test_a_wrong_token_is_refused(cluster: Cluster) -> None:
    asked = (
        "from ray._raylet import GcsClient;"
        f" GcsClient('{cluster.head.address}:6379').get_all_node_info()"
    )
    host = cluster.workers[0]
    assert host.run(["python", "-c", asked], check=False).returncode == 0
    refused = host.run(["python", "-c", asked], check=False, env={"RAY_AUTH_TOKEN": "0" * 64})
    assert refused.returncode != 0 and "authentication token" in refused.stderr.lower()


@pytest.mark.slow
def test_a_supervised_node_comes_back(tmp_path: Path) -> None:
    with network(2) as (head, worker):
        start_head(head)
        start_worker(worker, head, supervised=True)
        first = worker.raylet_pid()
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: worker.pids("raylet/raylet") not in ([], [first]), 60, "another raylet")
        wait_until(lambda: nodes(head)[worker.address], 60, "back in the cluster")
