"""This machine with a disk for the studies and a ledger in PostgreSQL: the server and its
connections come and go."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import ExitStack

from benchmarks.chaos import postgres, preload
from benchmarks.chaos.contents import changes
from benchmarks.chaos.grounds.stops import flock_unavailable
from benchmarks.chaos.grounds.volumes import Volumes, disk_swapped
from benchmarks.chaos.postgres import Postgres
from benchmarks.chaos.stage import Stage, Strike, by_kind

MOST_AWAY_SECONDS = 8.0
WAITS = "does not answer; waiting"


def postgres_restarted(stage: Stage) -> Strike:
    """The server ends, in one way or the other, and is there again after some seconds."""
    pid, server = stage.driver_pid(), _ground(stage).server
    mode, said = stage.random.choice(["fast", "immediate", "kill"]), stage.printed(WAITS)
    server.restart(mode, stage.random.uniform(0.0, MOST_AWAY_SECONDS))

    def check() -> list[str]:
        lines = stage.printed(WAITS) - said
        return [f"it said {lines} times that it waits"] if lines > 1 else []

    return Strike(pid, recovered=_writes(stage), check=check)


def connection_dropped(stage: Stage) -> Strike:
    """The server ends connections: all of them, or that which holds the driver's lock."""
    pid, server = stage.driver_pid(), _ground(stage).server
    holders = "SELECT DISTINCT pid FROM pg_locks WHERE locktype = 'advisory'"
    dropped = len(server.query(f"SELECT pg_terminate_backend(pid) FROM ({holders}) AS found"))
    if not dropped or stage.random.random() < 0.5:
        dropped += server.drop_connections()
    if not dropped:
        raise ProcessLookupError
    return Strike(pid, recovered=_writes(stage))


def cloned_volume(stage: Stage) -> Strike:
    """A clone of the studies' disk, mounted at the same path on what could be another
    machine, and a driver there."""
    ground, pid = _ground(stage), stage.driver_pid()
    clone = ground.disk.clone(ground.directory / "clone.image")
    os.kill(pid, signal.SIGSTOP)  # what now is written to the ledger, the other driver writes
    try:
        before = ground.ledger_contents()
        wrong = stage.refused("another", inside=clone.laid_over(ground.storage))
        wrong += changes(before, ground.ledger_contents())
    finally:
        os.kill(pid, signal.SIGCONT)
        clone.close()
    return Strike(pid, recovered=_writes(stage), check=lambda: wrong)


def _writes(stage: Stage) -> Callable[[], bool]:
    """Whether a driver has written to the ledger after this; what trains goes on
    by itself for a while."""

    def told() -> dict[str, tuple[str, int]]:
        return {name: (record.state, record.attempt) for name, record in stage.records().items()}

    def has_written() -> bool:
        stage.see_to_driver()
        return told() != before

    before = told()
    return has_written


def _ground(stage: Stage) -> Database:
    assert isinstance(stage.ground, Database)
    return stage.ground


class Database(Volumes):
    """A server of its own."""

    faults = by_kind(
        postgres_restarted, connection_dropped, cloned_volume, disk_swapped, flock_unavailable
    )

    @classmethod
    def refusal(cls) -> str | None:
        return super().refusal() or postgres.missing() or preload.refusal()

    def _raise_ledger(self, stack: ExitStack) -> str:
        self.server = stack.enter_context(Postgres())
        return self.server.url

    def ledger_contents(self) -> dict[str, str]:
        tables = [
            name
            for (name,) in self.server.query(
                "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
            )
        ]
        rows = "SELECT md5(string_agg(row::text, ' ' ORDER BY row::text)) FROM {} AS row"
        return {name: str(self.server.query(rows.format(name))[0][0]) for name in tables}
