"""CPUs that are ours: by Slurm, by the cgroups, by the affinity, or by --cpus."""

import os
from pathlib import Path

import pytest

from study.machines.cpus import Cpus, own_cpus
from study.machines.ray_session import ClusterError, check_fits
from study.schema.resources import Resources

SLURM = {"SLURM_CPUS_PER_TASK": "2", "SLURM_CPUS_ON_NODE": "6"}


@pytest.fixture(autouse=True)
def eight(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of eight CPUs, all of them allowed."""
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)))


def write(root: Path, **files: str) -> Path:
    """Files by their paths under the root, with __ for /."""
    for name, text in {"proc__self__cgroup": "0::/user.slice/job_7/step\n", **files}.items():
        file = root / name.replace("__", "/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


def test_a_machine_that_is_all_ours(tmp_path: Path) -> None:
    found = own_cpus(None, write(tmp_path), {})
    assert found == Cpus(8, None, 8) and str(found) == "8 CPUs"
    assert own_cpus(None, tmp_path / "no proc", {}) == Cpus(8, None, 8)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        (SLURM, "2 of 8 CPUs (SLURM_CPUS_PER_TASK)"),
        ({"SLURM_CPUS_ON_NODE": "6"}, "6 of 8 CPUs (SLURM_CPUS_ON_NODE)"),
        ({"SLURM_CPUS_PER_TASK": "16"}, "8 CPUs"),
        ({"SLURM_CPUS_PER_TASK": ""}, "8 CPUs"),
        ({"SLURM_CPUS_PER_TASK": "4(x2)"}, "8 CPUs"),
    ],
)
def test_by_slurm(tmp_path: Path, environment: dict[str, str], expected: str) -> None:
    assert str(own_cpus(None, write(tmp_path), environment)) == expected


@pytest.mark.parametrize(
    ("files", "count"),
    [
        ({"sys__fs__cgroup__user.slice__job_7__step__cpu.max": "300000 100000\n"}, 3),
        ({"sys__fs__cgroup__user.slice__job_7__step__cpu.max": "max 100000\n"}, 8),
        # A parent's quota holds for all below it.
        ({"sys__fs__cgroup__user.slice__cpu.max": "200000 100000\n"}, 2),
        ({"sys__fs__cgroup__cpu.max": "150000 100000\n"}, 1),
        ({"sys__fs__cgroup__cpu.max": "50000 100000\n"}, 1),  # a trial needs a whole one
        ({"proc__self__cgroup": "0::/\n", "sys__fs__cgroup__cpu.max": "400000 100000\n"}, 4),
        (
            {
                "proc__self__cgroup": "0::/../../other\n",
                "sys__fs__cgroup__cpu.max": "400000 100000\n",
            },
            4,
        ),
        ({"sys__fs__cgroup__cpu.max": "garbage\n"}, 8),
    ],
)
def test_by_the_cgroups_of_version_2(tmp_path: Path, files: dict[str, str], count: int) -> None:
    found = own_cpus(None, write(tmp_path, **files), {})
    assert found == Cpus(count, None if count == 8 else "the cgroup's quota", 8)


@pytest.mark.parametrize(
    ("quota", "period", "count"),
    [("250000\n", "100000\n", 2), ("-1\n", "100000\n", 8), ("5000\n", "100000\n", 1)],
)
@pytest.mark.parametrize("folder", ["cpu__slurm__job_7", "cpu__slurm", "cpu"])
def test_by_the_cgroups_of_version_1(
    tmp_path: Path, folder: str, quota: str, period: str, count: int
) -> None:
    files = {
        "proc__self__cgroup": (
            "9:name=systemd:/elsewhere\n4:cpuacct,cpu:/slurm/job_7\n3:cpuset:/slurm\n0::/\n"
        ),
        f"sys__fs__cgroup__{folder}__cpu.cfs_quota_us": quota,
        f"sys__fs__cgroup__{folder}__cpu.cfs_period_us": period,
    }
    assert own_cpus(None, write(tmp_path, **files), {}).count == count


def test_the_fewest_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write(tmp_path, **{"sys__fs__cgroup__cpu.max": "300000 100000\n"})
    assert str(own_cpus(None, root, SLURM)) == "2 of 8 CPUs (SLURM_CPUS_PER_TASK)"
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {5})
    assert str(own_cpus(None, root, SLURM)) == "1 of 8 CPUs (the CPU affinity)"
    assert str(own_cpus(4, root, SLURM)) == "4 of 8 CPUs (--cpus)"  # who asks knows better


@pytest.mark.parametrize(
    ("resources", "cpus", "words"),
    [
        (
            Resources(cpu=2),
            Cpus(1, "SLURM_CPUS_PER_TASK", 8),
            (
                "a trial of focal needs 2 CPU; this machine gives 1 CPU (SLURM_CPUS_PER_TASK) and 0"
                " GPU. Request less, or run it on a larger machine, or say with --cpus that you may"
                " use more."
            ),
        ),
        (
            Resources(cpu=1, gpu=1),
            Cpus(8, None, 8),
            (
                "no GPU here; a trial of focal needs 1 CPU and 1 GPU. Run with --address, or on a"
                " node with 1 GPU."
            ),
        ),
    ],
)
def test_a_trial_that_does_not_fit(resources: Resources, cpus: Cpus, words: str) -> None:
    node = {"Alive": True, "Resources": {"CPU": float(cpus.count)}}
    with pytest.raises(ClusterError) as refused:
        check_fits([node], {"focal": resources}, cpus)
    assert str(refused.value) == f"resources: {words}"
