"""This machine alone: its driver, its actors, its files and its clock."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from benchmarks.chaos import clock
from benchmarks.chaos.attempts import Attempt, attempts_of
from benchmarks.chaos.processes import stopped, wait_for
from benchmarks.chaos.stage import Ground, Stage, Strike, by_kind
from study.store.journal import journal_path
from trainables.outputs.attempts import attempt_directory, attempts_in


def driver_sigkill(stage: Stage) -> Strike:
    """The driver is gone between two instructions."""
    pid = stage.signal_driver(signal.SIGKILL)
    stage.start()
    return Strike(pid, taken_up=2)


def driver_sigterm(stage: Stage) -> Strike:
    """The driver is asked to go, as a batch system does before it takes a machine away."""
    said = stage.printed("stopped by SIGTERM")
    pid = stage.signal_driver(signal.SIGTERM)
    stopped = stage.printed("stopped by SIGTERM") > said or stage.complete()
    stage.start()
    return Strike(
        pid, taken_up=2, check=lambda: [] if stopped else ["the driver did not say what stopped it"]
    )


def actor_sigkill(stage: Stage) -> Strike:
    """A process that trains is gone."""
    actors = stage.actors()
    if not actors:
        raise ProcessLookupError
    pid = stage.random.choice(actors)
    os.kill(pid, signal.SIGKILL)
    return Strike(pid, taken_up=1)


def torn_journal(stage: Stage) -> Strike:
    """The driver is gone in the midst of an append to the ledger: half a line without its end."""
    pid = stage.signal_driver(signal.SIGKILL)
    journal = journal_path(stage.directory, None)
    line = stage.random.choice(journal.read_bytes().splitlines())
    with journal.open("ab") as file:
        file.write(line[: stage.random.randrange(1, len(line))])
    return _mended(stage, pid, "removed an incomplete last line")


def _mended(stage: Stage, pid: int, words: str) -> Strike:
    """Run again: it must say that it mended the ledger."""
    said = stage.printed(words)
    stage.start()
    return Strike(
        pid,
        taken_up=2,
        check=lambda: [] if stage.printed(words) > said else [f"the driver did not say '{words}'"],
    )


def corrupted_checkpoint(stage: Stage) -> Strike:
    """Trials are gone, and the newest checkpoint of one has a few bytes that are
    not what was written."""

    def corrupt(file: Path) -> None:
        content = bytearray(file.read_bytes())
        for _ in range(8):
            content[stage.random.randrange(len(content))] ^= 0xFF
        file.write_bytes(content)

    return _damaged(stage, corrupt)


def half_written_checkpoint(stage: Stage) -> Strike:
    """Trials are gone, and of the newest checkpoint of one only the beginning is on the disk."""

    def halve(file: Path) -> None:
        os.truncate(file, stage.random.randrange(file.stat().st_size))
        file.with_name("last.pt.partial").write_bytes(file.read_bytes())

    return _damaged(stage, halve)


def _damaged(stage: Stage, damage: Callable[[Path], None]) -> Strike:
    """Stop what trains, damage the newest checkpoint of a running trial, kill the driver
    or what trains, go on."""
    stage.until_training(lambda: _with_checkpoint(stage))
    by_driver = stage.random.random() < 0.5
    actors = stage.actors()
    _signal(actors, signal.SIGSTOP)  # else one could write a whole checkpoint over the damaged one
    # Nor may one be in the midst of a rename.
    wait_for(lambda: all(map(stopped, actors)), 10.0, 0.01)
    # One that is just being handed out again is no target: its next attempt may have
    # read the file already.
    found = [attempt for attempt in _with_checkpoint(stage) if attempt.pid in actors]
    if not found:  # its trial has just ended
        _signal(actors, signal.SIGCONT)
        raise ProcessLookupError
    lost = stage.random.choice(found)
    trial = stage.directory / "trials" / lost.trial
    damage(attempt_directory(trial, lost.number) / "last.pt")
    floor = _newest_whole(stage, trial, lost)
    pid = stage.signal_driver(signal.SIGKILL) if by_driver else actors[0]
    _signal(actors, signal.SIGKILL)
    if by_driver:
        stage.start()

    def check() -> list[str]:
        wrong = [
            attempt
            for attempt in attempts_of(stage.directory)[lost.trial]
            if attempt.number > lost.number and attempt.resumed_from == f"attempt-{lost.number}"
        ]
        return [
            f"{lost.trial}: attempt {attempt.number} went on from a damaged file"
            for attempt in wrong[:1]
        ]

    return Strike(pid, taken_up=1, floors={(lost.trial, lost.number): floor}, check=check)


def _with_checkpoint(stage: Stage) -> list[Attempt]:
    """The attempts that train and have a checkpoint of their own."""
    return [
        attempt
        for attempt in stage.training().values()
        if (
            attempt_directory(stage.directory / "trials" / attempt.trial, attempt.number)
            / "last.pt"
        ).exists()
    ]


def _newest_whole(stage: Stage, trial: Path, lost: Attempt) -> int:
    """The epoch of the newest checkpoint that earlier attempts have left; 0 where there is none."""
    import torch

    damaged = {key for key in stage.floors if key[0] == lost.trial}
    for directory in attempts_in(trial):
        number = int(directory.name.removeprefix("attempt-"))
        if (
            number < lost.number
            and (lost.trial, number) not in damaged
            and (directory / "last.pt").exists()
        ):
            outer = torch.load(directory / "last.pt", weights_only=True)
            inner = trial / "whole"
            inner.write_bytes(outer["state"].numpy().tobytes())
            epoch = int(torch.load(inner, weights_only=True)["epoch"])
            inner.unlink()
            return epoch
    return 0


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def clock_skew(stage: Stage) -> Strike:
    """The driver is gone, and the next one runs where the clock is minutes
    ahead or an hour behind."""
    pid = stage.signal_driver(stage.random.choice([signal.SIGKILL, signal.SIGTERM]))
    stage.next_environment = clock.skewed(stage.ground.directory, stage.random.choice(clock.SKEWS))
    stage.start()
    return Strike(pid, taken_up=2)


class Local(Ground):
    """Two slots, as many as this machine has cores for."""

    faults = by_kind(
        driver_sigkill,
        driver_sigterm,
        actor_sigkill,
        torn_journal,
        corrupted_checkpoint,
        half_written_checkpoint,
        clock_skew,
    )

    @classmethod
    def refusal(cls) -> str | None:
        return clock.refusal()
