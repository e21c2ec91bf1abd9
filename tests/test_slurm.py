"""The file of `calstudy init slurm`: read by bash and by our own parser, and run by a Slurm of two
nodes: preempted, out of time, cancelled, beside another job, and with a node that fails."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from study.cli import calstudy
from study.machines import cluster_files
from study.machines.cluster_files import NodeShape, Request
from study.schema.reading import read_spec
from tests.gate import write_extensions
from tests.hosts import CHECKOUT
from tests.patience import wait_until
from tests.slurm import Slurm, missing, slurm
from tests.study.command_line import here, here_json

TEMPLATE = CHECKOUT / "study/templates/slurm.sbatch"
SPEC = """
name: {name}
data: {{name: digits}}
model: mlp
{methods}
objectives: [{{metric: accuracy, direction: maximize}}, {{metric: ece, direction: minimize}}]
search_space: {{optimizer.lr: {{low: 0.01, high: 0.5, log: true}}}}
batch_size: 600
trials: {trials}
epochs: {epochs}
checkpoint_seconds: 1
"""


def written(
    folder: Path, name: str, *, nodes: int, gpus: int = 0, trials: int = 2, gate: Path | None = None
) -> str:
    """The study's file and that of `init`, which it names. Where there is a gate, trials take eight
    minutes while it is shut and seconds once it is there."""
    methods, epochs = "methods: [cross_entropy]", 20
    if gate is not None:
        methods, epochs = f"methods: [patient]\nextensions: {name}-own", 80
        write_extensions(folder / f"{name}-own", gate, seconds=3.0)  # twice an epoch
    text = SPEC.format(name=name, methods=methods, trials=trials, epochs=epochs)
    (folder / f"{name}.yaml").write_text(text)
    spec = read_spec(folder / f"{name}.yaml")
    asked = Request(spec, Path(f"{name}.yaml"), nodes, NodeShape(cpus=1, gpus=gpus))
    text = cluster_files.slurm(asked, "1:00:00", folder / "storage")
    (folder / f"{name}.sbatch").write_text(text)
    return f"{name}.sbatch"


# ---- read ----------------------------------------------------------------------------------------


def test_the_filled_file_is_a_script_without_a_gap(tmp_path: Path) -> None:
    file = tmp_path / written(tmp_path, "mine", nodes=2, gpus=8)
    text = file.read_text()
    assert "{{" not in text and "#SBATCH --gres=gpu:8\n" in text
    checks = [["bash", "-n"]]
    if shutil.which("shellcheck"):
        # What runs on another node is not called here, as it sees it.
        checks.append(["shellcheck", "--exclude=SC2317"])
    for check in checks:
        done = subprocess.run([*check, str(file)], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_its_top_says_what_was_validated_and_what_was_never_run() -> None:
    top = TEMPLATE.read_text().partition("\nSPEC=")[0]
    assert "Validated with Slurm 22.05.8 and Ray 2.60" in top and "Never run: real GPUs" in top


def test_our_parser_knows_its_commands() -> None:
    text = TEMPLATE.read_text()
    cluster = re.search(r"^ +cluster=\((.+)\)$", text, re.MULTILINE)
    assert cluster is not None
    found = set()
    for line in re.findall(r"calstudy (?:run|status|sync) .*", text):
        words = line.replace('"${cluster[@]}"', cluster[1]).replace("'", "").replace('"', "")
        name, *given = re.split(r" (?:2>|\||&)", words)[0].split()[1:]
        if not given[0].startswith("$"):
            continue  # a sentence
        given = ["2" if word == "$there" else word for word in given]
        with calstudy.make_context("calstudy", [name, *given]) as group:
            command = calstudy.get_command(group, name)
            assert command is not None
            command.make_context(name, given, parent=group)
        found.add(name)
    assert found == {"run", "status", "sync"}


def test_outside_slurm_it_refuses_in_one_line(tmp_path: Path) -> None:
    file = written(tmp_path, "mine", nodes=1)
    done = subprocess.run(
        ["bash", file], cwd=tmp_path, env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"{file}: this is no Slurm job. Submit it: sbatch {file}\n"
    assert list(tmp_path.glob("*.log")) == []


COUNTS = '{"methods": {"focal": {"to_do": LEFT, "interrupted": 0, "running": 0}}}'
STUBS = {
    "calstudy": f"""case $1 in
run) exit "$CODE" ;;
status) echo '{COUNTS}' | sed "s/LEFT/$LEFT/" ;;
esac""",
    "squeue": 'echo "$STATE"',
    "scontrol": 'echo "$@" >asked-of-slurm',
}
AGAIN = "is queued again"
ENDS = {
    "done": (0, 0, "RUNNING", 0, ""),
    "failed": (1, 3, "RUNNING", 0, ""),
    "a mistake": (2, 3, "RUNNING", 0, ""),
    "killed": (137, 3, "RUNNING", 0, ""),
    "interrupted": (75, 3, "RUNNING", 0, f"3 trials are left: the job {AGAIN}"),
    "the 100th time": (75, 3, "RUNNING", 99, f"3 trials are left: the job {AGAIN}"),
    "the 101st time": (75, 3, "RUNNING", 100, "started 101 times, 3 trials are left"),
    "cancelled": (75, 3, "COMPLETING", 0, "the job is COMPLETING: unless Slurm starts it again"),
    "MLflow lacks some": (75, 0, "RUNNING", 0, "MLflow lacks some: calstudy sync 'mine.yaml' --"),
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_what_the_job_does_at_each_end(tmp_path: Path, end: tuple[int, int, str, int, str]) -> None:
    """Slurm and the study are played by scripts; the one requeues, the other ends."""
    code, left, state, restarts, word = end
    job = f"0-{os.getpid()}"  # no job of Slurm's
    given = {"RESTART_COUNT": str(restarts), "CODE": str(code), "LEFT": str(left), "STATE": state}
    done = played(tmp_path, job, given)
    assert done.returncode == code and done.stderr == ""
    assert f"calstudy run ended with {code}\n" in done.stdout and word in done.stdout
    asked = tmp_path / "asked-of-slurm"
    assert (asked.read_text() if asked.exists() else "") == (
        f"requeue {job}\n" if AGAIN in word else ""
    )
    assert not Path(f"/tmp/calstudy-{job}").exists()


def test_a_task_of_an_array_is_queued_again_alone(tmp_path: Path) -> None:
    """One of them has the array's own number, which would stand for all of them."""
    array = {"SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "1"}
    given = {"RESTART_COUNT": "0", "CODE": "75", "LEFT": "3", "STATE": "RUNNING", **array}
    assert AGAIN in played(tmp_path, f"0-{os.getpid()}", given).stdout
    assert (tmp_path / "asked-of-slurm").read_text() == "requeue 7_1\n"


def played(tmp_path: Path, job: str, given: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """The file's end, with scripts in place of Slurm's commands and of ours."""
    commands = tmp_path / "commands"
    commands.mkdir()
    for name, script in STUBS.items():
        (commands / name).write_text(f"#!/bin/bash\n{script}\n")
        (commands / name).chmod(0o755)
    environment = {
        "PATH": f"{commands}:{Path(sys.executable).parent}:/usr/bin:/bin",
        "SLURM_JOB_ID": job,
        "SLURM_JOB_NODELIST": "here",
        "SLURM_JOB_NUM_NODES": "1",
        "SLURM_RESTART_COUNT": given["RESTART_COUNT"],
        **given,
    }
    return subprocess.run(
        ["bash", written(tmp_path, "mine", nodes=1)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )


# ---- run -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def site(hosts_allowed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """Shared by the tests of this file, each of which leaves it idle."""
    if program := missing():
        pytest.skip(f"no Slurm: '{program}' is not installed (Debian: slurm-wlm, munge)")
    with slurm(tmp_path_factory.mktemp("slurm")) as started:
        yield started


def log(site: Slurm, name: str, job: str) -> str:
    file = site.folder / f"{name}-{job}.log"
    return file.read_text() if file.exists() else ""


def ended(site: Slurm, name: str, job: str, seconds: float = 400) -> str:
    """The log of a job that has completed, of a study that is whole: each trial once."""
    site.wait(job, "COMPLETED|FAILED|CANCELLED|TIMEOUT|NODE_FAIL|PREEMPTED", seconds)
    said = log(site, name, job)
    assert site.facts(job)["JobState"] == "COMPLETED", said
    storage = site.folder / "storage"
    here("audit", name, "--storage", storage)
    status = here_json("status", name, "--storage", storage)
    (counts,) = status["methods"].values()
    assert counts["complete"] + counts["excluded"] == counts["planned"] > 0
    return said


def trains(site: Slurm, name: str, job: str, start: int) -> None:
    """Until a trial of that start has made a checkpoint."""
    trials = site.folder / "storage" / name / "trials"

    def seen() -> bool:
        assert site.facts(job)["JobState"] in ("PENDING", "RUNNING"), log(site, name, job)
        starts = log(site, name, job).count("importing torch")
        return starts > start and any(trials.glob("*/*/*/last.pt"))

    wait_until(seen, 300, f"a trial of {name} that trains")


def nothing_is_left(site: Slurm) -> None:
    wait_until(lambda: site.left_behind() == [], 60, "nodes without a trace of the job")


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_two_jobs_do_not_meet_and_one_goes_on_by_itself(site: Slurm) -> None:
    """On the same two nodes each has a Ray of two nodes, not of four, with a token of its own. One
    is cancelled and stops in order; another, of one node, goes on with its study. The other is
    preempted, then out of time, and ends well."""
    gate = site.folder / "gate-of-both"
    files = {
        name: written(site.folder, name, nodes=2, gpus=1, gate=gate) for name in ("one", "two")
    }
    jobs = {name: site.sbatch(file) for name, file in files.items()}
    tokens = set()
    for name, job in jobs.items():
        trains(site, name, job, 0)
        for node in site.nodes:
            folder = f"/tmp/calstudy-{job}"
            assert node.run(["stat", "-c", "%a", folder, f"{folder}/token"]).stdout == "700\n600\n"
            tokens.add(node.run(["cat", f"{folder}/token"]).stdout)
    assert len(tokens) == 2 and {len(token) for token in tokens} == {64}
    # What Slurm gave the step is what Ray's node offers.
    assert [len(node.pids("CPU,1,GPU,1,")) for node in site.nodes] == [2, 2]
    assert {site.facts(job)["JobState"] for job in jobs.values()} == {"RUNNING"}
    site.do("scancel", jobs["two"])
    site.wait(jobs["two"], "CANCELLED", 60)
    assert site.facts(jobs["two"])["Restarts"] == "0"
    assert "checking 2 nodes" in log(site, "two", jobs["two"])
    folder = f"/tmp/calstudy-{jobs['two']}"
    wait_until(lambda: not [node for node in site.nodes if node.pids(folder)], 60, "its end")
    for node in site.nodes:
        assert node.run(["test", "-e", folder], check=False).returncode == 1
    goes_on_by_itself(site, "one", jobs["one"], gate)
    resumed = ended(site, "two", site.sbatch("--nodes=1", files["two"]))
    assert "2 of 2 trials to run" in resumed and "calstudy run ended with 0" in resumed
    assert "checking 2 nodes" not in resumed
    nothing_is_left(site)


def goes_on_by_itself(site: Slurm, name: str, job: str, gate: Path) -> None:
    """After a preemption, and after its time."""
    urgent = site.sbatch("--partition=high", "--nodes=2", "--exclusive", "--wrap=sleep 1")
    site.wait(job, "PENDING", 120)
    site.wait(urgent, "COMPLETED", 120)
    nothing_is_left(site)

    site.do("scontrol", "update", f"JobId={job}", "TimeLimit=3")  # USR1 comes in its first minute
    site.start_soon(job)
    site.wait(job, "RUNNING", 120)
    site.wait(job, "PENDING", 300)
    assert "start 1] told to stop" in log(site, name, job)
    nothing_is_left(site)

    gate.touch()
    site.do("scontrol", "update", f"JobId={job}", "TimeLimit=60")
    site.start_soon(job)
    said = ended(site, name, job, 900)
    assert "checking 2 nodes" in said
    assert site.facts(job)["Restarts"] == "2"
    assert re.findall(r"start (\d)\] calstudy run ended with (\d+)", said)[-1] == ("2", "0")
    assert said.count("trials are left: the job is queued again") == 2
    nothing_is_left(site)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_node_whose_ray_does_not_start_is_done_without(site: Slurm) -> None:
    worker = site.nodes[1]
    ray = Path(worker.run(["sh", "-c", "command -v ray"]).stdout.strip())
    worker.run(["mount", "--bind", "/bin/false", ray])
    try:
        job = site.sbatch(written(site.folder, "lame", nodes=2))
        said = ended(site, "lame", job)
    finally:
        worker.run(["umount", ray])
    assert "host-1: its Ray has ended at once" in said and "checking 2 nodes" not in said
    assert "host-1: Ray ended with 1\n" in (site.folder / f"lame-{job}.ray.log").read_text()
    nothing_is_left(site)
