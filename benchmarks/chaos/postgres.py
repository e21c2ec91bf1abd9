"""A real PostgreSQL on the loopback, in a folder of its own: for tests, and for faults
of a ledger in a database."""

from __future__ import annotations

import os
import pwd
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from benchmarks.chaos.mlflow_server import free_port
from benchmarks.chaos.processes import wait_for

USER, PASSWORD, DATABASE = "maria", "pass:w0rd/5", "ledgers"
OWNER = "postgres"  # the server refuses to run as root
STOPS = {
    "smart": signal.SIGTERM,
    "fast": signal.SIGINT,
    "immediate": signal.SIGQUIT,
    "kill": signal.SIGKILL,
}
START_SECONDS = 60.0


def binaries() -> Path | None:
    """The folder of `initdb` and `postgres`; Debian keeps it off the PATH."""
    found = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[-3])
    )
    on_path = shutil.which("postgres")
    return found[-1].parent if found else Path(on_path).parent if on_path else None


def missing() -> str | None:
    """Why no server can be started here; None if one can."""
    if binaries() is None:
        return "PostgreSQL is not installed (apt-get install postgresql)"
    try:
        import psycopg  # noqa: F401
    except ImportError:
        return "the package psycopg is not installed (pip install calstudy[postgres])"
    return None


class Postgres:
    """One server with the user USER, who owns the database DATABASE. As a context manager:
    started, with its password in PGPASSWORD, then removed."""

    def __init__(self) -> None:
        self.port = free_port()
        self.directory = Path(tempfile.mkdtemp(prefix="postgres-", dir="/tmp"))
        self.process: subprocess.Popen[bytes] | None = None
        self._as_owner: dict[str, Any] = {}
        if os.getuid() == 0:
            owner = pwd.getpwnam(OWNER)
            os.chown(self.directory, owner.pw_uid, owner.pw_gid)
            self._as_owner = {"user": OWNER, "group": owner.pw_gid, "extra_groups": []}
        secret = self.directory / "password"
        secret.write_text(PASSWORD)
        secret.chmod(0o644)  # the folder is its owner's alone
        self._initdb("--pgdata", str(self._data), "--username", "postgres", "--pwfile", str(secret))

    @property
    def _data(self) -> Path:
        return self.directory / "data"

    def _initdb(self, *words: str) -> None:
        found = binaries()
        assert found is not None
        always = ("--auth=scram-sha-256", "--no-sync", "--encoding=UTF8", "--locale=C")
        command = [str(found / "initdb"), *always, *words]
        done = subprocess.run(
            command, cwd=self.directory, capture_output=True, text=True, **self._as_owner
        )
        if done.returncode:
            raise RuntimeError(f"initdb: {done.stderr}")

    @property
    def url(self) -> str:
        """With the user, without the password."""
        return self.url_of()

    def url_of(
        self, user: str = USER, password: str | None = None, database: str = DATABASE
    ) -> str:
        """password: None leaves it out."""
        secret = "" if password is None else f":{quote(password, safe='')}"
        return f"postgresql://{user}{secret}@127.0.0.1:{self.port}/{database}"

    def __enter__(self) -> Postgres:
        self._password_before = os.environ.get("PGPASSWORD")
        os.environ["PGPASSWORD"] = PASSWORD
        self.start()
        self.query(f"CREATE ROLE {USER} LOGIN PASSWORD '{PASSWORD}'", database="postgres")
        self.create_database(DATABASE)
        return self

    def __exit__(self, *fault: object) -> None:
        self.stop("immediate")
        del os.environ["PGPASSWORD"]
        if self._password_before is not None:
            os.environ["PGPASSWORD"] = self._password_before
        shutil.rmtree(self.directory, ignore_errors=True)

    def create_database(self, name: str) -> str:
        """A new database of USER; returns its URL."""
        self.query(f"CREATE DATABASE {name} OWNER {USER}", database="postgres")
        return self.url_of(database=name)

    def start(self) -> None:
        """Returns when it answers."""
        found = binaries()
        assert found is not None
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": self.port,
            "unix_socket_directories": "",
            "fsync": "off",  # the machine does not crash, only the server
            "full_page_writes": "off",
            "shared_buffers": "16MB",
            "max_connections": 50,
        }
        words = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        with (self.directory / "log").open("a") as log:
            self.process = subprocess.Popen(
                [str(found / "postgres"), "-D", str(self._data), *words],
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a signal to whoever started it is not for it
                **self._as_owner,
            )
        if not wait_for(self._answers, START_SECONDS, 0.05):
            raise TimeoutError(
                f"PostgreSQL does not answer: {(self.directory / 'log').read_text()[-2000:]}"
            )

    def _answers(self) -> bool:
        import psycopg

        with suppress(psycopg.OperationalError):
            return bool(self.query("SELECT 1", database="postgres"))
        return False

    def stop(self, mode: str = "fast") -> None:
        """mode: a key of STOPS. `smart` waits until every client has gone; `immediate` and
        `kill` lose no commit."""
        if self.process is None:
            return
        self.process.send_signal(STOPS[mode])
        self.process.wait()
        self.process = None
        if mode == "kill":
            self._wait_for_orphans()

    def _wait_for_orphans(self) -> None:
        """After SIGKILL its processes end by themselves; until then it does not start again."""

        def gone() -> bool:
            return not any(
                self._is_ours(entry.path) for entry in os.scandir("/proc") if entry.name.isdigit()
            )

        if not wait_for(gone, START_SECONDS, 0.05):
            raise TimeoutError(f"processes of PostgreSQL stay in {self._data}")

    def _is_ours(self, process: str) -> bool:
        with suppress(OSError):
            return os.readlink(f"{process}/cwd") == str(self._data)
        return False

    def restart(self, mode: str = "fast", seconds: float = 0.0) -> None:
        """Stop, stay away for so long, start again."""
        self.stop(mode)
        time.sleep(seconds)
        self.start()

    def query(
        self, sql: str, values: tuple[Any, ...] | None = None, database: str = DATABASE
    ) -> list[tuple[Any, ...]]:
        """What the server's superuser is answered; each statement is its own transaction."""
        import psycopg

        url = self.url_of("postgres", PASSWORD, database)
        with psycopg.connect(url, autocommit=True, connect_timeout=5) as connection:
            cursor = connection.execute(sql, values)
            return cursor.fetchall() if cursor.description else []

    def drop_connections(self, database: str = DATABASE, application: str | None = None) -> int:
        """End every other session of a database, those of one application_name only if
        given; how many there were."""
        chosen = "SELECT pid FROM pg_stat_activity WHERE datname = %s AND pid <> pg_backend_pid()"
        chosen += "" if application is None else " AND application_name = %s"
        values = (database,) if application is None else (database, application)
        return len(self.query(f"SELECT pg_terminate_backend(pid) FROM ({chosen}) AS found", values))


class LossyProxy:
    """Stands before a server, and can lose the answer to a commit: it happened, but its
    client does not know."""

    def __init__(self, server: Postgres) -> None:
        self._server, self._lock = server, threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.commits = 0  # seen so far
        self.lost = 0
        self._losing: int | None = None
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> LossyProxy:
        return self

    def __exit__(self, *fault: object) -> None:
        self._listener.close()

    def url_of(self, url: str) -> str:
        """The URL of the server's, through here."""
        return url.replace(f":{self._server.port}/", f":{self.port}/")

    def lose(self, after: int = 0) -> None:
        """Lose the answer to the next commit, or to one so many later."""
        with self._lock:
            self._losing = self.commits + after

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with (
            suppress(OSError),
            client,
            socket.create_connection(("127.0.0.1", self._server.port)) as server,
        ):
            losing = False
            while True:
                ready, _, _ = select.select([client, server], [], [])
                for one in ready:
                    data = one.recv(65536)
                    if not data or (losing and one is server):
                        return
                    if one is client and b"COMMIT" in data:
                        with self._lock:
                            losing, self.commits = self.commits == self._losing, self.commits + 1
                            self.lost += losing
                    (server if one is client else client).sendall(data)
