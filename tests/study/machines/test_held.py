"""What holds the CPUs that trials wait for: by a clock that the test turns; and once on a cluster
whose only CPU is taken."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from study.machines import held
from study.machines.held import FIRST_SECONDS, Held, free_slots
from study.machines.ray_compat import Holding
from study.machines.ray_session import ClusterUnready
from study.schema.resources import Resources
from study.store.waits import note_wait, noted_wait
from tests.hosts import network, start_head
from tests.patience import patient, wait_until
from tests.shared import with_empty_mlflow
from tests.study.command_line import write_spec

JOB = "held by job 02 (python hog.py, process 8 on a)"


class Cluster:
    """One node; who holds what of it, by job: 01 is ours."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **resources: float) -> None:
        self.now = 0.0
        self.free = dict(resources)
        self.held: list[Holding] = []
        self.told: list[str | None] = []
        self.jobs = {"02": "python hog.py, process 8 on a"}
        self.node: Any = {"Alive": True, "NodeID": "a", "Resources": resources}
        monkeypatch.setattr(held.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(held, "alive_nodes", lambda: [self.node])
        monkeypatch.setattr(held, "free_resources", lambda: {"a": self.free})
        monkeypatch.setattr(held, "holdings", lambda: self.held)
        monkeypatch.setattr(held, "other_jobs", lambda: self.jobs)
        monkeypatch.setattr(held, "own_job", lambda: "01")

    def take(self, job: str | None, **resources: float) -> None:
        """None: by a task, of which Ray tells nothing."""
        for kind, count in resources.items():
            self.free[kind] -= count
        if job is not None:
            self.held.append(Holding(job, "a", resources))

    def look(self, following: Held, seconds: float, waits: bool = True) -> None:
        until = self.now + seconds
        while self.now < until:
            self.now += 0.5
            following.look(waits)


def test_trials_that_wait_say_once_what_holds_the_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, CPU=2.0)
    following = Held({"focal": Resources(cpu=2)}, lambda: (), cluster.told.append)
    cluster.look(following, 60)
    assert cluster.told == []  # it only starts
    cluster.take("02", CPU=1.0)
    cluster.look(following, 600)
    line = f"nothing is free for a trial of focal, which needs 2 CPU: 1 CPU {JOB}"
    assert cluster.told == [line]
    cluster.look(following, 1, waits=False)
    assert cluster.told == [line, None]
    cluster.look(following, FIRST_SECONDS - 1)
    assert cluster.told == [line, None]


def test_the_wait_bounds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, CPU=1.0)
    cluster.take("02", CPU=1.0)
    following = Held({"focal": Resources()}, lambda: (), cluster.told.append, "20s")
    with pytest.raises(ClusterUnready, match=r"^--wait: after 20s nothing is free for .*hog\.py"):
        cluster.look(following, 600)
    assert 20 < cluster.now < 20 + 2 * FIRST_SECONDS


def test_a_trial_of_ours_that_has_its_place_only_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, CPU=1.0)
    cluster.take("01", CPU=1.0)
    cluster.look(Held({"focal": Resources()}, lambda: (), cluster.told.append, "20s"), 600)
    assert cluster.told == []


def test_tasks_and_many_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, CPU=8.0, GPU=1.0)
    cluster.take(None, CPU=3.0)
    assert held.holders([cluster.node], ["CPU"]) == (
        "3 CPU held by tasks of job 02 (python hog.py, process 8 on a)"
    )
    cluster.jobs = {}
    for job in ("03", "04", "05", "06"):
        cluster.take(job, CPU=1.0, GPU=0.25)
    found = held.holders([cluster.node], ["CPU", "GPU"])
    assert found.startswith("1 CPU and 0.25 GPU held by job 03 (which has ended); 1 CPU and")
    assert found.endswith("; 2 more jobs")


def test_trials_on_a_part_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, CPU=8.0, GPU=2.0)
    half = Resources(cpu=1, gpu=0.5)
    assert free_slots([cluster.node], half) == 4
    cluster.take("02", GPU=0.5)
    assert free_slots([cluster.node], half) == 3
    assert free_slots([cluster.node], Resources(cpu=1, gpu=1)) == 1
    cluster.take("02", GPU=1.3)
    assert free_slots([cluster.node], half) == 0


def test_what_is_noted_for_status(tmp_path: Path) -> None:
    assert noted_wait(tmp_path) is None
    note_wait(tmp_path, "for one")
    note_wait(tmp_path, "for two")
    assert noted_wait(tmp_path) == "for two"
    note_wait(tmp_path, None)
    note_wait(tmp_path, None)
    assert noted_wait(tmp_path) is None and not list(tmp_path.iterdir())


HOG = """
import ray, time
ray.init(address="auto", logging_level="ERROR", log_to_driver=False)
@ray.remote(num_cpus=1)
class Hog:
    def name(self): return "it holds one"
hog = Hog.remote()
print(ray.get(hog.name.remote()), flush=True)
time.sleep(600)
"""


def test_a_cluster_whose_only_cpu_is_taken(hosts_allowed: None, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    with network(1, shared) as (head,):
        start_head(head, cpus=1)
        (shared / "hog.py").write_text(HOG)
        hog = head.popen(["python", str(shared / "hog.py"), "secret"], stdout=subprocess.PIPE)
        assert hog.stdout is not None and hog.stdout.readline() == "it holds one\n"
        storage = ["--storage", str(shared / "studies")]
        words = [str(write_spec(shared / "small.yaml", trials=1)), *storage]
        with_empty_mlflow(["run", *words])
        run = ["python", "-m", "study.cli", "run", *words, "--address", "auto"]
        bounded = head.run([*run, "--slots", "1", "--wait", "5s"], check=False, timeout=280)
        holds = "1 CPU held by job 01000000 (python "
        assert bounded.returncode == 75 and "--wait: after 5s nothing is free for a trial of" in (
            bounded.stderr
        )
        assert holds in bounded.stderr and "hog.py, process" in bounded.stderr
        assert "secret" not in bounded.stderr  # as docs/why/security.md says
        log = shared / "log"
        with log.open("w") as file:
            driver = head.popen(run, stdout=file, stderr=subprocess.STDOUT)
        wait_until(lambda: holds in log.read_text(), 240, "the line")
        status = ["python", "-m", "study.cli", "status", "small", *storage]
        assert holds in head.run(status, timeout=280).stdout
        hog.kill()
        assert driver.wait(patient(280)) == 0, log.read_text()
        assert "It goes on." in log.read_text()
        assert noted_wait(shared / "studies" / "small") is None
