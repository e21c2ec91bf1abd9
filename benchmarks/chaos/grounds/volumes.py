"""This machine with a disk for the studies and another for their ledger: disks that are not
there, or are others."""

from __future__ import annotations

import uuid
from contextlib import ExitStack
from pathlib import Path
from typing import ClassVar

from benchmarks.chaos import preload, volume
from benchmarks.chaos.contents import changes, contents
from benchmarks.chaos.grounds.stops import LIGHT, flock_unavailable
from benchmarks.chaos.stage import FAILED, Ground, Stage, Strike, by_kind
from benchmarks.chaos.volume import Volume

# A driver writes to the ledger whenever a trial begins or ends.
NOTICED_SECONDS = 120.0


def ledger_unmounted(stage: Stage) -> Strike:
    """The ledger's disk is unmounted: between two runs, or under a driver at work."""
    ground, wrong = _ground(stage), list[str]()
    ledger = str(ground.ledger)
    between = stage.random.random() < 0.5
    pid = stage.stop_driver() if between else stage.driver_pid()
    seen, said = stage.seen(), stage.printed(ledger)
    stage.driver_may_end()
    ground.ledger_disk.unmount()
    try:
        if between:
            before = contents(ground.storage)
            wrong += stage.refused(ledger)
            wrong += changes(before, contents(ground.storage))
        else:
            stage.wait_for_end(NOTICED_SECONDS, "an unmounted ledger", FAILED)
            lines = stage.printed(ledger) - said
            wrong += [] if lines == 1 else [f"it named the ledger {lines} times"]
        wrong += changes(
            {ground.ledger_mount.name: "a folder"}, contents(ground.ledger_mount.parent)
        )
    finally:
        ground.ledger_disk.mount(ground.ledger_mount)
    stage.start()
    return Strike(pid, taken_up=2, seen=seen, check=lambda: wrong)


def disk_swapped(stage: Stage) -> Strike:
    """Where the studies were is another disk: an empty one, or one with
    another study of that name."""
    ground = _ground(stage)
    pid, seen = stage.stop_driver(), stage.seen()
    ledger, study = ground.ledger_contents(), stage.study()
    files = {file.name: file.read_text() for file in stage.directory.glob("*.yaml")}
    ground.disk.unmount()
    other = Volume(ground.directory / "other.image")
    try:
        other.mount(ground.storage)
        if stage.random.random() < 0.5:
            stage.directory.mkdir()
            other_id = uuid.uuid4().hex
            for name, text in files.items():
                (stage.directory / name).write_text(text.replace(study.id, other_id))
        wrong = stage.refused("another study")
    finally:
        other.close()
        ground.disk.mount(ground.storage)
    wrong += changes(ledger, ground.ledger_contents())
    stage.start()
    return Strike(pid, taken_up=2, seen=seen, check=lambda: wrong)


def _ground(stage: Stage) -> Volumes:
    assert isinstance(stage.ground, Volumes)
    return stage.ground


class Volumes(Ground):
    """Disks made of files."""

    faults = by_kind(ledger_unmounted, disk_swapped, flock_unavailable)
    study: ClassVar = LIGHT

    @classmethod
    def refusal(cls) -> str | None:
        return volume.refusal() or preload.refusal()

    def __enter__(self) -> Ground:
        super().__enter__()
        with ExitStack() as stack:
            self.disk = self._mounted("studies.image", self.storage, stack)
            self.ledger = self._raise_ledger(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *fault: object) -> None:
        self._stack.close()

    def _mounted(self, image: str, at: Path, stack: ExitStack) -> Volume:
        found = Volume(self.directory / image)
        stack.callback(found.close)
        found.mount(at)
        return found

    def _raise_ledger(self, stack: ExitStack) -> str:
        """Make where it will be; its path."""
        self.ledger_mount = self.directory / "disks" / "ledgers"
        self.ledger_mount.mkdir(parents=True)
        self.ledger_disk = self._mounted("ledgers.image", self.ledger_mount, stack)
        # The second is not there when the disk is not.
        folder = self.ledger_mount / self.random.choice([".", "mine"])
        folder.mkdir(exist_ok=True)
        return str(folder / "study.log")

    def ledger_contents(self) -> dict[str, str]:
        """To compare with what it contained before."""
        return contents(self.ledger_mount)
