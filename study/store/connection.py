"""Reaching a database: whether it is one, what is wrong in one line, and when trying again may
help."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeGuard

from optuna.exceptions import StorageInternalError
from sqlalchemy import create_engine, inspect, text
from sqlalchemy.engine import URL, Engine, make_url
from sqlalchemy.exc import (
    ArgumentError,
    DBAPIError,
    InterfaceError,
    InternalError,
    NoSuchModuleError,
    OperationalError,
    PendingRollbackError,
    SQLAlchemyError,
)
from sqlalchemy.pool import NullPool

from study.schema.errors import LedgerError, LedgerUnavailable
from study.schema.uris import (
    database_url,
    forbidden_setting,
    has_password,
    public_uri,
    scrub,
    sqlite_file,
)

CONNECT_SECONDS = 10
NOTICING = {
    "connect_timeout": CONNECT_SECONDS,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
}
# What a server says of itself that another try may not find so.
RESTARTS = r"starting up|shutting down|terminating connection|closed the connection|recovery mode"
NO_ROUTE = r"timeout expired|timed out|no route to host|network is unreachable"
CROWDED = r"too many (clients|connections)|remaining connection slots"
AWAY = rf"connection refused|{RESTARTS}|{NO_ROUTE}|{CROWDED}"
PRODUCTS = {"postgresql": "PostgreSQL", "sqlite": "SQLite"}  # which can hold a ledger
# What a database says of itself: the first that is found in the message, and what it means with its
# mend.
CAUSES = {
    r"password authentication failed|no password supplied": (
        "the password or user is refused. Correct the user in the URL, and the password in"
        " PGPASSWORD or ~/.pgpass"
    ),
    r"no pg_hba.conf entry": (
        "the server refuses this host, user or database. Ask its administrator"
    ),
    r"database \"[^\"]*\" does not exist": (
        "there is no such database. Create it, or correct its name"
    ),
    r"(resolve|translate) host|name or service not known": (
        "the host is unknown. Correct its name in the URL"
    ),
    r"connection refused": (
        "the connection is refused. Start the server, or correct host and port"
    ),
    NO_ROUTE: (f"no answer within {CONNECT_SECONDS} s. Check host, port and firewall"),
    r"permission denied|must be owner": (
        "its user may not do this. Grant it the right to create and write tables there"
    ),
    CROWDED: ("it has too many connections. Close some"),
    RESTARTS: "the server restarts",
    r"unable to open database file": "it cannot be opened. Create its folder, or correct the path",
    r"readonly database|read-only": "it is read-only",
    r"is not a database": "the file is not a database",
}


def is_database(ledger: Any) -> TypeGuard[str]:
    """Whether `ledger:` is a URL, not a journal's path."""
    return isinstance(ledger, str) and "://" in ledger


def shown(url: str) -> str:
    """`PostgreSQL at db.example.org:5432/ledgers`, without user and password."""
    scheme, _, place = public_uri(url).partition("://")
    return (
        f"{PRODUCTS.get(scheme.partition('+')[0], scheme)} at"
        f" {place.removeprefix('/') or 'this machine'}"
    )


def cause_of(error: BaseException, url: str) -> str:
    """What a database or its driver says, in one line with the mend and without secrets."""
    error = _origin(error)
    if isinstance(error, ImportError):
        return "the package that reaches it is not installed. Run: pip install 'calstudy[postgres]'"
    if isinstance(error, NoSuchModuleError):
        return (
            "no such kind of database can hold a ledger. Write"
            " postgresql://USER@HOST:PORT/DATABASE, or the path of a file"
        )
    if isinstance(error, ArgumentError | NotAURL):
        return "this is not the URL of a database. Write postgresql://USER@HOST:PORT/DATABASE"
    said = str(error.orig if isinstance(error, DBAPIError) else error)
    for pattern, meaning in CAUSES.items():
        if re.search(pattern, said, re.IGNORECASE):
            return meaning
    return scrub(" ".join(said.split())[:300], url) or type(error).__name__


def _origin(error: BaseException) -> BaseException:
    """What happened first: Optuna wraps it, or asks again of the session that it broke."""
    while (
        isinstance(error, StorageInternalError | PendingRollbackError)
        and error.__context__ is not None
    ):
        error = error.__context__
    return error


class NotAURL(ValueError):
    """Of a URL that SQLAlchemy cannot read."""


@contextmanager
def named_causes(url: str) -> Iterator[None]:
    """What a database, its driver or Optuna's schema check raises becomes one line. Other errors
    pass. LedgerUnavailable where the server may be there again soon."""
    try:
        yield
    except (SQLAlchemyError, StorageInternalError, ImportError, ValueError) as error:
        is_away = re.search(AWAY, str(_origin(error)), re.IGNORECASE)
        kind = LedgerUnavailable if is_away else LedgerError
        raise kind(f"ledger: {shown(url)}: {cause_of(error, url)}") from None


def is_transient(error: BaseException) -> bool:
    """Whether trying again may help: the connection was lost, refused or shut, or the database is
    locked."""
    cause = _origin(error)
    if not isinstance(cause, DBAPIError):
        return False
    # A server that became a replica, until the other one takes its place.
    if isinstance(cause, InternalError):
        return "read-only" in str(cause.orig)
    lost = cause.connection_invalidated or isinstance(cause, OperationalError | InterfaceError)
    return lost and "no such table" not in str(cause.orig)


def parsed(url: str) -> URL:
    """Raises LedgerError for a setting that no ledger may have, and what SQLAlchemy raises."""
    if problem := forbidden_setting(url):
        raise LedgerError(f"ledger: {problem.found}", problem.mend)
    try:
        place = make_url(url)
    except ValueError as error:  # of a port that is no number
        raise NotAURL(str(error)) from None
    if place.get_backend_name() not in PRODUCTS:
        raise NoSuchModuleError(url)
    return place


def lacks_password(url: str) -> str | None:
    """What to say of a PostgreSQL URL with a user whose password is nowhere on this machine."""
    place = database_url(url)
    # Whoever opens a broken one says so.
    if place is None or place.get_backend_name() != "postgresql" or has_password(url):
        return None
    if not (place.username or "user" in place.query):
        return None
    file = Path(os.environ.get("PGPASSFILE") or "~/.pgpass").expanduser()
    if os.environ.get("PGPASSWORD") or file.is_file():
        return None
    return (
        f"the URL has a user, and on {socket.gethostname()} there is no password for it: PGPASSWORD"
        f" is not set, and there is no file {file}. Write it there (chmod 600), unless the server"
        " asks for none."
    )


def connect_arguments(url: URL) -> dict[str, int]:
    """So that a server which no longer answers is noticed within half a minute; what the URL says
    has precedence."""
    if url.drivername not in ("postgresql", "postgresql+psycopg", "postgresql+psycopg2"):
        return {}
    return {name: value for name, value in NOTICING.items() if name not in url.query}


def new_engine(url: str, **words: Any) -> Engine:
    place = parsed(url)
    return create_engine(place, poolclass=NullPool, connect_args=connect_arguments(place), **words)


def is_ready(url: str) -> bool:
    """Whether Optuna's tables are there, and whole: it would stamp its version into what has
    none."""
    with named_causes(url), new_engine(url).connect() as connection:
        there = set(inspect(connection).get_table_names())
        if not {"studies", "trials", "version_info", "alembic_version"} <= there:
            return False
        stamps = (
            connection.execute(text(f"SELECT 1 FROM {name}"))
            for name in ("version_info", "alembic_version")
        )
        return all(stamp.first() is not None for stamp in stamps)


def writing_problem(url: str) -> str | None:
    """Why a driver could not write a ledger there; None if it can, as far as reading tells. Raises
    LedgerError."""
    file = sqlite_file(url)
    if file is not None:
        if file.exists():
            is_ready(url)  # raises where it is no database
        writable = os.access(file if file.exists() else file.parent, os.W_OK)
        return None if writable else f"its user may not write {file}"
    sql = "SELECT has_schema_privilege(current_schema(), 'CREATE')"
    problem = "its user may not create tables there. Grant it CREATE on the schema"
    if is_ready(url):
        sql = (
            "SELECT bool_and(has_table_privilege(name, act)) FROM unnest(ARRAY['studies',"
            " 'trials', 'trial_params', 'trial_user_attributes']) AS names(name),"
            " unnest(ARRAY['INSERT', 'UPDATE', 'DELETE']) AS acts(act)"
        )
        problem = (
            "its user may not write Optuna's tables. Grant it INSERT, UPDATE and DELETE on them"
        )
    with named_causes(url), new_engine(url).connect() as connection:
        may = connection.dialect.name != "postgresql" or connection.scalar(text(sql))
    return None if may else problem
