"""A cluster that a node joins late, on which a trial would be lost or would train otherwise: it is
passed over, and used once it has been mended."""

from __future__ import annotations

import importlib.metadata
import time
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from benchmarks.chaos.attempts import attempts_of
from benchmarks.chaos.grounds.nodes import Nodes
from benchmarks.chaos.processes import wait_for
from benchmarks.chaos.stage import CHECKOUT, Ground, Stage, Strike, by_kind
from tests.hosts import Host, start_worker
from trainables.outputs.attempts import attempt_directory

# From the moment it is mended until a trial trains there.
USED_SECONDS = 90.0
SAID_SECONDS = 120.0  # until the driver says that it is passed over
PASSED_OVER, USED_AGAIN = "is passed over: it", "is used again."

Mend = Callable[[], object]


def late_without_storage(stage: Stage) -> Strike:
    """The share is not mounted there."""

    def spoil(host: Host) -> Mend:
        host.hide(stage.ground.storage)
        return lambda: host.show(stage.ground.storage)

    return _joins(stage, spoil, "does not see")


def late_with_other_code(stage: Stage) -> Strike:
    """A loss there is another one."""

    def spoil(host: Host) -> Mend:
        host.run(["cp", "-r", CHECKOUT / "trainables", "/tmp/trainables"])
        host.run(["sh", "-c", "echo '# other' >>/tmp/trainables/methods/focal.py"])
        return _laid_over(host, Path("/tmp/trainables"), CHECKOUT / "trainables")

    return _joins(stage, spoil, "has other code in")


def late_with_another_version(stage: Stage) -> Strike:
    """NumPy is an older one there."""

    def spoil(host: Host) -> Mend:
        files = importlib.metadata.files("numpy") or []
        metadata = next(file for file in files if file.name == "METADATA")
        place = Path(str(metadata.locate())).parent
        host.run(["cp", "-r", place, "/tmp/numpy-info"])
        host.run(["sed", "-i", "s/^Version: .*/Version: 1.0.0/", "/tmp/numpy-info/METADATA"])
        return _laid_over(host, Path("/tmp/numpy-info"), place)

    return _joins(stage, spoil, "has numpy 1.0.0")


def _laid_over(host: Host, other: Path, place: Path) -> Mend:
    host.run(["mount", "--bind", other, place])
    return lambda: host.run(["umount", "--lazy", place])


def _joins(stage: Stage, spoil: Callable[[Host], Mend], why: str) -> Strike:
    """A machine that joins, is passed over, mended and used, and then loses its power."""
    ground = stage.ground
    assert isinstance(ground, Late)
    wrong: list[str] = []
    seen = stage.seen()
    host = ground.spare
    said, used = stage.printed(PASSED_OVER), stage.printed(USED_AGAIN)
    before = _trained_on(stage, host)
    host.boot()
    try:
        mend = spoil(host)
        start_worker(host, ground.head, cpus=1, env=ground.environment())
        passed = _comes(stage, lambda: stage.printed(PASSED_OVER) > said, SAID_SECONDS)
        if not passed or not stage.printed(f"node {host.address} {PASSED_OVER} {why}"):
            wrong.append(f"the driver did not say that {host.address} {PASSED_OVER} {why}")
        if _trained_on(stage, host) - before:
            wrong.append("a trial trained on it")
        mend()
        mended = time.monotonic()
        if not _comes(stage, lambda: _trained_on(stage, host) - before, USED_SECONDS):
            wrong.append(f"no trial trained on it {USED_SECONDS:g} s after it had been mended")
        seconds = time.monotonic() - mended
        print(f"    used {seconds:.0f} s after it had been mended", flush=True)
        if not stage.printed(USED_AGAIN) > used:
            wrong.append("the driver did not say that it is used again")
    finally:
        host.kill()
    blamed = [
        f"{name}: {record.state} ({record.reason}) {record.deaths}"
        for name, record in stage.records().items()
        if set(record.deaths) - {"node"} or not str(record.reason).startswith(("None", "Diverged"))
    ]
    return Strike(None, seen=seen, check=lambda: wrong + blamed)


def _comes(stage: Stage, what: Callable[[], object], seconds: float) -> bool:
    """Whether it comes in so many seconds, while a driver is at work."""

    def happened() -> object:
        stage.see_to_driver()
        return what()

    return bool(wait_for(happened, seconds))


def _trained_on(stage: Stage, host: Host) -> set[Path]:
    """The attempts that trained an epoch there."""
    found = set()
    for tried in attempts_of(stage.directory).values():
        for attempt in tried:
            place = attempt_directory(stage.directory / "trials" / attempt.trial, attempt.number)
            if attempt.seconds and f" on {host.name}\n" in (place / "log").read_text():
                found.add(place)
    return found


class Late(Nodes):
    """A head that trains nothing, a worker that is fit, and a machine that is still off."""

    faults = by_kind(late_without_storage, late_with_other_code, late_with_another_version)
    study: ClassVar = {"trials": 30}
    most_faults = 3

    def __enter__(self) -> Ground:
        super().__enter__()
        self.spare = self.workers.pop()
        self.spare.kill()
        return self
