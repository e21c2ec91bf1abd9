"""The MLflow URI of a study, and URIs without user, password and query, to be shown or stored."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard
from urllib.parse import parse_qsl, unquote, urlsplit

from study.schema.errors import TryAgain
from trainables.problems import FieldError, UserError

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

SCHEMES = ("http", "https", "sqlite", "postgresql", "mysql", "mssql")
# What a database's URL may set: a study is also opened by others than its user, and by most other
# settings a driver reads a file or loads code (libpq by `sslkey`).
SETTINGS = {
    *("host", "port", "user", "password", "charset", "timeout", "connect_timeout"),
    *("application_name", "target_session_attrs", "sslmode", "sslrootcert", "ssl_ca"),
    *("keepalives_idle", "keepalives_interval", "keepalives_count", "tcp_user_timeout"),
}
# The settings of libpq that it also reads from variables, as PG...
FROM_ENVIRONMENT = ("sslkey", "sslcert", "sslcrl", "passfile", "service", "options", "gssencmode")
SECRET = re.compile("pass|pwd|token|secret|key", re.IGNORECASE)  # in the name of a setting
VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")  # the name of an environment variable that holds a URI
LONGEST = 10_000  # characters read of a file that holds one
URIS = (
    "Write http://HOST:PORT or a database (sqlite:////DIR/mlflow.db), or name a file or an"
    " environment variable that holds it; MLflow no longer supports folders such as mlruns."
)
PLACES = {  # of passwords
    "http": "Leave user and password out, and set MLFLOW_TRACKING_USERNAME and"
    " MLFLOW_TRACKING_PASSWORD or write ~/.mlflow/credentials",
    "postgresql": "Leave the password out, and set PGPASSWORD or write ~/.pgpass",
}

# What stands before the last @ is taken for user and password, also what should have been escaped:
# none of it may be shown. A URL of a file has no such part, and a # in its path is a part of that.
PARTS = re.compile(
    r"(?P<scheme>.*?://)(?:(?!/)(?P<login>.*)@)?(?P<place>/[^?]*|[^?#]*)(?P<query>.*)", re.DOTALL
)


def public_uri(uri: str) -> str:
    """The URI without user, password and query."""
    found = PARTS.fullmatch(uri)
    return found["scheme"] + found["place"] if found else uri


def scrub(text: str, uri: str) -> str:
    """The text without what `public_uri` removes."""
    found = PARTS.fullmatch(uri)
    if found is None:
        return text
    text = text.replace(uri, public_uri(uri))
    login = found["login"] or ""
    user, _, password = login.partition(":")
    secrets = {password, *(pair.partition("=")[2] for pair in found["query"].split("&"))}
    if login:
        text = text.replace(f"{login}@", "")
    for secret in sorted({*secrets, *map(unquote, secrets)} - {""}, key=len, reverse=True):
        text = text.replace(secret, "***")
    if user:  # database drivers report: authentication failed for user "maria"
        text = re.sub(rf"(['\"]){re.escape(user)}\1", r"\1***\1", text)
    return text


def has_password(uri: str) -> bool:
    """Whether a password or token stands in the URI's login or query; a user's name is none."""
    found = PARTS.fullmatch(uri)
    if found is None:
        return False
    user, _, password = (found["login"] or "").partition(":")
    is_token = user and uri.startswith("http")  # elsewhere a name alone opens nothing
    names = {name for name, _ in parse_qsl(found["query"][1:])} - {*FROM_ENVIRONMENT}
    return bool(password or is_token or any(map(SECRET.search, names)))


def password_elsewhere(uri: str) -> str:
    """Where the password of a URI belongs."""
    for scheme, place in PLACES.items():
        if uri.startswith(scheme):
            return place
    return "Use a server that needs none in its URI"


def refuse_password(uri: str | None, where: str) -> None:
    """Raise FieldError at `where` for a URI that is written out with its password."""
    if uri is None or not has_password(uri):
        return
    found = f"{public_uri(uri)} is written with a password or token, which others could read"
    mend = "; or name a file or an environment variable that holds the URI."
    raise FieldError(where, found, password_elsewhere(uri) + mend)


def refuse_database(ledger: str | None) -> None:
    """Raise FieldError for a ledger that is given as the URL of a database."""
    if is_url(ledger):
        raise FieldError(
            "ledger",
            f"{public_uri(ledger)} is a URL, and a ledger is a file",
            "Write the path of a file on this machine's own disk, or null.",
        )


def is_url(ledger: Any) -> TypeGuard[str]:
    """Whether a ledger is in a database, as earlier versions could keep it."""
    return isinstance(ledger, str) and "://" in ledger


def without_credentials(value: Any) -> Any:
    """The plain value with `public_uri` applied to every string."""
    if isinstance(value, Mapping):
        return {key: without_credentials(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [without_credentials(inner) for inner in value]
    return public_uri(value) if isinstance(value, str) else value


def sqlite_file(uri: str) -> Path | None:
    """The file of an SQLite database; None for any other URI."""
    if not uri.startswith("sqlite"):
        return None
    parts = urlsplit(uri, allow_fragments=False)
    return Path(f"{parts.netloc}{parts.path}".removeprefix("/"))


class TrackingError(UserError):
    """MLflow cannot be used as requested; one line, without credentials."""


class TrackingUnavailable(TrackingError, TryAgain):
    """A tracking server that does not answer now."""


def embedded_tracking(root: Path) -> str:
    """The URI of the MLflow database embedded in a storage root.

    Raises TrackingError for a path that a URI would read as another one.
    """
    path = str(root)
    if "?" in path or unquote(path) != path:
        character = "?" if "?" in path else "%"
        found = f"MLflow cannot keep its database under a path with '{character}': {path}"
        mend = "Use a folder without it, or another MLflow server (--tracking)"
        raise TrackingError(f"storage: {found}", f"{mend}.")
    return f"sqlite:///{root / 'mlflow.db'}"


def database_url(uri: str) -> URL | None:
    """The URL of a database, in its parts; None for a broken one."""
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    with suppress(ArgumentError, ValueError):
        return make_url(uri)
    return None


def lacks_password(uri: str) -> str | None:
    """What to say of a PostgreSQL URI with a user whose password is nowhere on this machine."""
    place = database_url(uri)
    # Whoever opens a broken one says so.
    if place is None or place.get_backend_name() != "postgresql" or has_password(uri):
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


def forbidden_setting(uri: str) -> UserError | None:
    """The error of a setting that a database's URL may not have. Nothing opens a broken URL."""
    url = database_url(uri)
    if url is None:
        return None
    key = next((key for key in url.query if key not in SETTINGS), None)
    if key is None:
        return None
    mend = "Remove it."
    if url.get_backend_name() == "postgresql" and key in FROM_ENVIRONMENT:
        mend = f"Set PG{key.upper()} where you run."
    return UserError(f"the URL may not set '{key}'", mend)


def resolve_uri(option: str | None, spec_tracking: str | None, storage_root: Path) -> str:
    """The MLflow URI to write: --tracking, else the spec's, else the database in the storage.

    Either may name the file or the environment variable that holds the URI. Raises TrackingError
    if there is none and for a relative one, FieldError for one written out with a password.
    """
    given = option or spec_tracking
    if given is None:
        return embedded_tracking(storage_root)
    where = "--tracking" if option else "tracking"
    refuse_password(given, where)
    uri, holder = _held(given, where)
    scheme, separator, rest = uri.partition("://")
    if not separator or scheme.partition("+")[0] not in SCHEMES:
        # What a file or a variable holds may be anything: it is not shown.
        found = f"what {holder} holds" if holder else f"'{public_uri(uri)}'"
        raise TrackingError(f"{where}: {found} is not a tracking server", URIS)
    if scheme.startswith("sqlite") and not rest.startswith("//"):
        mend = ""
        if (path := rest.lstrip("/")) not in ("", ":memory:"):
            mend = f"Write {scheme}:///{Path(path).absolute()}."
        found = f"{where}: '{uri}' is not an absolute path, which needs four slashes"
        raise TrackingError(found, mend)
    if scheme not in ("http", "https") and (problem := forbidden_setting(uri)):
        raise TrackingError(f"{where}: {problem.found}", problem.mend)
    return uri


def recorded_tracking(option: str | None) -> str | None:
    """--tracking as a study records it: a name, not what it holds; a file's path from the root."""
    if option is None or "://" in option or VARIABLE.fullmatch(option):
        return option
    return str(Path(os.path.expanduser(option)).absolute())


def _held(name: str, where: str) -> tuple[str, str]:
    """The URI that a variable or a file holds, and which; any other text as it is, and nothing."""
    if "://" in name:
        return name, ""
    if VARIABLE.fullmatch(name):
        holder = f"the environment variable {name}"
        text = os.environ.get(name)
        if text is None:
            mend = "Set it to the URI, or give --tracking."
            raise TrackingError(f"{where}: {holder} is not set", mend)
    else:
        path = Path(os.path.expanduser(name))
        if path.is_absolute() and not path.exists():
            mend = "Write the URI into it, or give --tracking."
            raise TrackingError(f"{where}: there is no file {path}", mend)
        if not path.is_file():
            return name, ""
        if where == "tracking" and not path.is_absolute():
            raise TrackingError(
                f"{where}: '{name}' is a relative path", f"Write {path.absolute()}."
            )
        holder = f"the file {path}"
        try:
            with path.open() as file:
                text = file.read(LONGEST)
        except UnicodeDecodeError:
            raise TrackingError(f"{where}: {holder} cannot be read (it is not text)") from None
        except OSError as error:
            raise TrackingError(f"{where}: {holder} cannot be read ({error.strerror})") from None
    lines = text.strip().splitlines()
    if len(lines) != 1:
        found = f"holds {len(lines)} lines" if lines else "is empty"
        raise TrackingError(f"{where}: {holder} {found}", "Write the URI into it, on one line.")
    return lines[0].strip(), holder
