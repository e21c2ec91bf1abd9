"""A full disk is said, by a clock that the test turns; and by runs on a disk of 900 kB."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from study.machines import full_disks
from study.machines.full_disks import LOOK_SECONDS, MARGIN, STALE, FullDisks
from study.machines.ray_session import ClusterUnready
from study.schema.errors import TryAgain
from study.store.study import open_study
from tests.patience import patient
from tests.study.command_line import start, write_spec
from trainables.files.atomic import PATIENCE

LINE = "a: No space left on device: /studies/small (3 kB free); waiting up to 10 minutes"


class Workers:
    """What workers tell, by the clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        self.wait: dict[str, str] = {}
        self.told: list[str | None] = []
        self.full = FullDisks(self.told.append)
        monkeypatch.setattr(full_disks.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(full_disks, "told_full", lambda: self.wait)

    def look(self, seconds: float, alive: bool = True, heard: float = 0.0) -> None:
        until = self.now + seconds
        while self.now < until:
            self.now += 1.0
            if alive:
                self.wait = {name: json.dumps([LINE, self.now]) for name in self.wait}
            self.full.look(heard or self.now)


def test_it_is_said_while_it_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    workers = Workers(monkeypatch)
    workers.look(100)
    assert workers.told == []
    workers.wait = {"1": "", "2": ""}
    workers.look(LOOK_SECONDS + 1)
    assert workers.told[0] == f"a trial waits for space, as 1 others: {LINE}"
    workers.wait = {}
    workers.look(LOOK_SECONDS + 1)
    assert workers.told[-1] is None


def test_a_worker_that_was_killed_waits_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    workers = Workers(monkeypatch)
    workers.wait = {"1": ""}
    workers.look(20)
    workers.look(STALE + LOOK_SECONDS + 1, alive=False)
    assert workers.told[-1] is None


def test_a_run_in_which_none_goes_on_ends_before_its_trials_give_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    workers = Workers(monkeypatch)
    workers.wait = {"1": ""}
    workers.look(2 * PATIENCE)  # others train
    heard = workers.now
    with pytest.raises(ClusterUnready) as ended:
        workers.look(PATIENCE, heard=heard)
    assert isinstance(ended.value, TryAgain) and LINE in str(ended.value)  # exit code 75
    assert workers.now - heard <= PATIENCE - MARGIN + LOOK_SECONDS + 1


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """One of 900 kB."""
    place = tmp_path / "disk"
    place.mkdir()
    tmpfs = ["mount", "-t", "tmpfs", "-o", "size=900k", "tmpfs", str(place)]
    if subprocess.run(tmpfs, capture_output=True, check=False).returncode != 0:
        pytest.skip("no tmpfs can be mounted here: a full disk is not tried")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.mark.platform
@pytest.mark.parametrize("stack", ["off", 8])
def test_a_run_on_a_full_disk_says_so_and_goes_on(
    disk: Path, tmp_path: Path, stack: int | str
) -> None:
    spec = write_spec(tmp_path / "small.yaml", trials=8, epochs=1, stack=stack)
    tracking = f"sqlite:///{tmp_path / 'mlflow.db'}"
    driver = start("run", spec, "--storage", disk, "--tracking", tracking)
    lines: list[str] = []
    assert driver.stdout is not None
    for line in driver.stdout:
        lines.append(line)
        if "No space left on device: " in line:
            break
    said = lines[-1]
    assert f"No space left on device: {disk / 'small'}" in said and " kB free)" in said, lines
    subprocess.run(["mount", "-o", "remount,size=50m", str(disk)], check=True)
    rest = driver.stdout.read()
    assert driver.wait(patient(240)) == 0, rest
    records = open_study("small", str(disk)).records()
    assert [record.state for record in records] == ["complete"] * 16
