"""A Slurm of two nodes, which are two hosts of tests/hosts.py: each has its own address, processes
and /tmp, so that a job that leaves something there is seen.

    with slurm(tmp_path) as site:
        job = site.sbatch("mine.sbatch")
        site.wait(job, "RUNNING", 60)

munged, slurmd and (on the first) slurmctld run on the hosts and die with them. What it does not
show: cgroups, GPUs and accounting, and jobs of users other than root.
"""

from __future__ import annotations

import contextlib
import secrets
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.hosts import Host, network
from tests.patience import wait_until

PROGRAMS = ("slurmctld", "slurmd", "munged", "sbatch")
PATH = "/usr/local/sbin:/usr/sbin:/usr/local/bin:/usr/bin:/bin"
CPUS = 4  # of each node, whatever the machine has
GPUS = 2  # counted, no more: there is no device behind them
CONF = """
ClusterName=tests
SlurmctldHost={head.name}({head.address})
AuthType=auth/munge
AuthInfo=socket=/tmp/munge/socket
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir=/tmp/slurmd
SlurmctldPidFile=/tmp/slurmctld.pid
SlurmdPidFile=/tmp/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
KillWait=30
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=0,sched_interval=5,bf_interval=5
GresTypes=gpu
{nodes}
PartitionName=low Nodes=ALL Default=YES PriorityTier=1 GraceTime=60
PartitionName=high Nodes=ALL PriorityTier=10 PreemptMode=OFF
"""


@dataclass(frozen=True)
class Slurm:
    """Two nodes, and the folder that both see, which jobs are submitted from."""

    nodes: tuple[Host, Host]
    folder: Path

    def do(self, *words: str, check: bool = True) -> str:
        """What a command says on the first node."""
        environment = {"SLURM_CONF": str(self.folder / "slurm.conf")}
        done = self.nodes[0].run(words, env=environment, cwd=self.folder, check=check, timeout=120)
        return done.stdout + done.stderr

    def sbatch(self, *words: str) -> str:
        """The number of the job."""
        return self.do("sbatch", "--parsable", *words).split()[-1]

    def facts(self, job: str) -> dict[str, str]:
        """What Slurm says of a job: JobState, Restarts, ExitCode."""
        said = self.do("scontrol", "show", "job", "--oneliner", job)
        return dict(word.split("=", 1) for word in said.split() if "=" in word)

    def wait(self, job: str, states: str, seconds: float) -> None:
        """Until the job is in one of the states, which are separated by |."""
        wait_until(
            lambda: self.facts(job)["JobState"] in states.split("|"),
            seconds,
            f"{job} {states}",
            longest=1.0,
        )

    def start_soon(self, job: str) -> None:
        """Slurm lets a job that was queued again wait for two minutes. At once is too soon: a node
        takes it for the one that it has just ended."""
        self.do("scontrol", "update", f"JobId={job}", "StartTime=now+5")

    def left_behind(self) -> list[str]:
        """Processes of Ray and calstudy, and folders of jobs, on both nodes."""
        found = []
        for node in self.nodes:
            for word in ("ray start", "raylet", "gcs_server", "ray::", "calstudy run"):
                found += [f"{node.name}: process {pid} ({word})" for pid in node.pids(word)]
            names = ["(", "-name", "calstudy-*", "-o", "-name", "ray*", ")"]
            listed = node.run(["find", "/tmp", "-maxdepth", "1", *names])
            found += [f"{node.name}: {line}" for line in listed.stdout.split()]
        return found


def missing() -> str | None:
    """The program that this machine lacks."""
    return next((each for each in PROGRAMS if shutil.which(each, path=PATH) is None), None)


@contextlib.contextmanager
def slurm(folder: Path) -> Iterator[Slurm]:
    """`folder` is made; both nodes see it."""
    folder = folder.resolve()
    with network(2, folder) as (first, second):
        (folder / "state").mkdir()
        key = folder / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o600)
        nodes = "\n".join(
            f"NodeName={host.name} NodeAddr={host.address} CPUs={CPUS} Gres=gpu:{GPUS}"
            for host in (first, second)
        )
        (folder / "slurm.conf").write_text(CONF.format(head=first, folder=folder, nodes=nodes))
        (folder / "gres.conf").write_text("Name=gpu File=/dev/null\nName=gpu File=/dev/zero\n")
        site = Slurm((first, second), folder)
        for host in (first, second):
            _start_munge(host, key)
        _start(first, folder, "slurmctld", "-D")
        for host in (first, second):
            _start(host, folder, "slurmd", "-D", "-N", host.name)
        wait_until(
            lambda: site.do("sinfo", "-h", "-p", "low", "-o", "%D %t", check=False) == "2 idle\n",
            90,
            "two nodes that are idle",
        )
        yield site


def _start_munge(host: Host, key: Path) -> None:
    host.run(["mkdir", "-m", "755", "/tmp/munge"])
    files = [f"--{name}-file=/tmp/munge/{name}" for name in ("pid", "log", "seed")]
    host.popen(
        ["munged", "--foreground", f"--key-file={key}", "--socket=/tmp/munge/socket", *files],
    )
    wait_until(
        lambda: host.run(["test", "-S", "/tmp/munge/socket"], check=False).returncode == 0,
        30,
        f"munge on {host.name}",
    )


def _start(host: Host, folder: Path, *words: str) -> None:
    """A daemon of Slurm; its output goes into the folder."""
    with (folder / f"{words[0]}-{host.name}.out").open("w") as out:
        host.popen(
            words,
            env={"SLURM_CONF": str(folder / "slurm.conf")},
            cwd=folder,
            stdout=out,
            stderr=out,
        )
