"""One driver at a time of a ledger in a database: an advisory lock on a connection of its own."""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from sqlalchemy import text

from study.schema.errors import LedgerError
from study.store.connection import is_transient, named_causes, new_engine, shown

# The server notices within a minute that the driver's machine is gone, and never ends its idle
# session.
SETTINGS = {
    "tcp_keepalives_idle": "30",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "3",
    "idle_session_timeout": "0",
}
# A server needs an instant to see that a killed driver's connection is closed.
ATTEMPTS = 20
PAUSE = 0.1


def locks_in_database(url: str) -> bool:
    """Whether the database has locks that end with a connection. Raises LedgerError where its kind
    is unknown."""
    with named_causes(url):
        return new_engine(url).dialect.name == "postgresql"


@contextmanager
def database_lock(url: str, study: str) -> Iterator[DatabaseLock]:
    """Hold a study's lock in a database. Raises LedgerError if another driver has it, or the
    database is away."""
    lock = DatabaseLock(url, study)
    try:
        with named_causes(url):
            lock.ensure()
        yield lock
    finally:
        lock.release()


def is_held(url: str, study: str) -> bool:
    """Whether a driver has the lock of a study. Raises LedgerError if the database is away."""
    lock = DatabaseLock(url, study)
    try:
        with named_causes(url):
            return lock.is_held()
    finally:
        lock.release()


class DatabaseLock:
    """The lock of one driver on a study's trials."""

    def __init__(self, url: str, study: str) -> None:
        self._url = url
        self._study = study
        self._engine = new_engine(url, isolation_level="AUTOCOMMIT")
        self._connection: Any = None
        # The same for every URL of one database: a number of 64 bits, with sign.
        digest = hashlib.sha256(f"calstudy {study}".encode()).digest()
        self._key = int.from_bytes(digest[:8], "big", signed=True)
        self._token = f"calstudy {secrets.token_hex(4)}"

    def ensure(self) -> None:
        """Take the lock, unless the connection that has it still answers.

        Raises LedgerError if another driver has it, and what SQLAlchemy raises if the database is
        away.
        """
        if self._connection is not None:
            try:
                self._ask("SELECT 1")
                return
            except Exception as error:
                if not is_transient(error):
                    raise
                self.release()
        self._connection = self._engine.connect()
        try:
            self._take()
        except BaseException:
            self.release()
            raise

    def is_held(self) -> bool:
        """Whether any driver has it; it is not taken."""
        self._connection = self._engine.connect()
        return self._holder()[0] is not None

    def attribute(self, study_id: int, key: str) -> Any:
        """A user attribute of an Optuna study; the lock is held when it is read. None if there is
        none."""
        sql = (
            'SELECT value_json FROM study_user_attributes WHERE study_id = :study AND "key" = :key'
        )
        for last in (False, True):
            try:
                if self._connection is None:
                    self.ensure()
                found = self._ask(sql, study=study_id, key=key)
                return None if found is None else json.loads(found[0])
            except Exception as error:
                if last or not is_transient(error):
                    raise
                self.release()
        raise AssertionError("the last attempt returns or raises")

    def release(self) -> None:
        """Close the connection, and with it the lock."""
        connection = self._connection
        self._connection = None
        if connection is not None:
            with suppress(Exception):  # it may be broken
                connection.invalidate()
                connection.close()

    def _ask(self, sql: str, **values: Any) -> Any:
        """The first row."""
        return self._connection.execute(text(sql), values).first()

    def _take(self) -> None:
        who = f"{self._token} pid {os.getpid()} on {socket.gethostname()}"[:63]
        self._ask("SELECT set_config('application_name', :who, false)", who=who)
        for name, value in SETTINGS.items():
            sql = "SELECT set_config(name, :value, false) FROM pg_settings WHERE name = :name"
            self._ask(sql, name=name, value=value)
        holder = "unknown"
        for _ in range(ATTEMPTS):
            if self._ask("SELECT pg_try_advisory_lock(:key)", key=self._key)[0]:
                return
            session, holder = self._holder()
            if session is not None and holder.startswith(self._token):
                # Our own, of a connection that the network lost and the server still keeps.
                self._ask("SELECT pg_terminate_backend(:session)", session=session)
            time.sleep(PAUSE)
        holder = re.sub(r"^calstudy \w+ ", "", holder)
        where = f"'{self._study}' in {shown(self._url)}"
        raise LedgerError(
            f"ledger: another calstudy process is running {where} ({holder})",
            "Wait for it or stop it.",
        )

    def _holder(self) -> tuple[int | None, str]:
        """The session that has the lock, and its name."""
        found = self._ask(
            "SELECT l.pid, a.application_name FROM pg_locks l JOIN pg_stat_activity a ON a.pid ="
            " l.pid WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 AND l.database ="
            " (SELECT oid FROM pg_database WHERE datname = current_database()) AND"
            " ((l.classid::bigint << 32) | l.objid::bigint) = :key",
            key=self._key,
        )
        return (None, "unknown") if found is None else (found[0], found[1] or "unknown")
