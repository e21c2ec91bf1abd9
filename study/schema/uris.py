"""The MLflow URI of a study, given or by the name of what holds it; URIs stripped of user, password and query for
printing, logging and storing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from trainables.fields import UserError

SCHEMES = ("http", "https", "sqlite", "postgresql", "mysql", "mssql")
DATABASES = ("postgresql", "mysql", "mariadb", "sqlite", "mssql")
# What a database's URL may set: a study is also opened by others than its user, and by most other settings a driver
# reads a file or loads code (libpq by `sslkey`).
SETTINGS = {
    *("host", "port", "user", "password", "charset", "timeout", "connect_timeout"),
    *("application_name", "target_session_attrs", "sslmode", "sslrootcert", "ssl_ca"),
    *("keepalives_idle", "keepalives_interval", "keepalives_count", "tcp_user_timeout"),
}
FROM_ENVIRONMENT = (
    "sslkey",
    "sslcert",
    "sslcrl",
    "passfile",
    "service",
    "options",
    "gssencmode",
)  # of libpq, as PG...
VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")  # the name of an environment variable that holds a URI
LONGEST = 10_000  # characters read of a file that holds one
URIS = (
    "Write http://HOST:PORT or a database (sqlite:////DIR/mlflow.db), or name a file or an environment variable that"
    " holds it; MLflow no longer supports folders such as mlruns."
)


def public_uri(uri: str) -> str:
    """The URI without user, password and query."""
    scheme, separator, rest = uri.partition("://")
    # A password cannot contain @, but a database path can; a URL of such a path has no authority part.
    rest = rest if rest.startswith("/") else rest.rpartition("@")[2]
    ends = r"\?" if rest.startswith("/") else r"[?#]"  # a # in a file's path is a part of it
    return scheme + separator + re.split(ends, rest, maxsplit=1)[0] if separator else uri


HIDDEN = "***@"  # in a URI of study.yaml: its credentials are in secrets.yaml


def hidden(uri: str) -> str:
    """The URI with `***@` for user, password and query, if it has a secret; a path and any other URI as it is."""
    return public_uri(uri).replace("://", f"://{HIDDEN}", 1) if has_password(uri) else uri


def is_hidden(uri: str) -> bool:
    return uri.partition("://")[2].startswith(HIDDEN)


def why_hidden(uri: str, where: str) -> str:
    """What to say where the credentials of a `hidden` URI are needed."""
    problem = "has its user and password in secrets.yaml beside study.yaml, which is missing or not yours to read"
    fix = (
        " or give --tracking"
        if where == "tracking"
        else f" or write the whole URI as `{where}` in study.yaml"
    )
    if where == "ledger" and uri.startswith("postgresql"):
        fix += ", or set PGPASSWORD and leave the password out of the URL"
    return f"{where}: {uri} {problem}. Ask its owner,{fix}."


def scrub(text: str, uri: str) -> str:
    """The text without what `public_uri` removes."""
    rest = uri.partition("://")[2]
    userinfo = _userinfo(uri)
    user, _, password = userinfo.partition(":")
    query = rest.rpartition("@")[2].partition("?")[2]
    secrets = [password, *(pair.partition("=")[2] for pair in query.split("&"))]
    text = text.replace(uri, public_uri(uri))
    text = text.replace(f"{userinfo}@", "") if userinfo else text
    for secret in sorted({*secrets, *map(unquote, secrets)} - {""}, key=len, reverse=True):
        text = text.replace(secret, "***")
    # Database drivers report: authentication failed for user "maria".
    return re.sub(rf"(['\"]){re.escape(user)}\1", r"\1***\1", text) if user else text


def has_password(uri: str) -> bool:
    """Whether a password or token stands in the URI, before its host or in its query; a user's name is none."""
    user, _, password = _userinfo(uri).partition(":")
    token = user if uri.startswith("http") else ""  # elsewhere a name alone opens nothing
    in_query = re.search(r"[?&][^=&]*(pass|pwd|token|secret|key)[^=&]*=", uri, re.IGNORECASE)
    return bool(password or token or ("://" in uri and in_query))


def _userinfo(uri: str) -> str:
    rest = uri.partition("://")[2]
    return "" if rest.startswith("/") else rest.rpartition("@")[0]


def without_credentials(value: Any) -> Any:
    """The plain value with `public_uri` applied to every string."""
    if isinstance(value, Mapping):
        return {key: without_credentials(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [without_credentials(inner) for inner in value]
    return public_uri(value) if isinstance(value, str) else value


def sqlite_file(uri: str) -> Path | None:
    """The file of an SQLite database; None for any other URI."""
    scheme, _, rest = uri.partition("://")
    return Path(rest.removeprefix("/").partition("?")[0]) if scheme.startswith("sqlite") else None


class TrackingError(UserError):
    """MLflow cannot be used as requested; one line, without credentials."""


def embedded_tracking(root: Path) -> str:
    """The URI of the MLflow database embedded in a storage root.

    Raises TrackingError for a path that a URI would read as another one.
    """
    path = str(root)
    if "?" in path or unquote(path) != path:
        character = "?" if "?" in path else "%"
        raise TrackingError(
            f"storage: MLflow cannot keep its database under a path with '{character}': {path}. Use a folder"
            " without it, or another MLflow server (--tracking)."
        )
    return f"sqlite:///{root / 'mlflow.db'}"


def forbidden_setting(uri: str) -> str | None:
    """What a database's URL sets and may not, with the fix. None for one that SQLAlchemy cannot read: it opens none."""
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        url = make_url(uri)
    except (ArgumentError, ValueError):
        return None
    for key in url.query:
        if key not in SETTINGS:
            from_outside = url.get_backend_name() == "postgresql" and key in FROM_ENVIRONMENT
            return f"the URL may not set '{key}'; {f'set PG{key.upper()} where you run' if from_outside else 'remove it'}."
    return None


def resolve_uri(option: str | None, spec_tracking: str | None, storage_root: Path) -> str:
    """The MLflow URI to write: --tracking, else the spec's, else the database embedded in the storage.

    Either may name the file or the environment variable that holds the URI. Raises TrackingError if there is none, or
    for a URI relative to the working directory.
    """
    given = option or spec_tracking
    if given is None:
        return embedded_tracking(storage_root)
    where = "--tracking" if option else "tracking"
    if is_hidden(given):
        raise TrackingError(why_hidden(given, "tracking"))
    uri, holder = (given, "") if "://" in given else _held(given, where)
    scheme, separator, rest = uri.partition("://")
    if not separator or scheme.partition("+")[0] not in SCHEMES:
        # What a file or a variable holds may be anything: it is not shown.
        found = f"what {holder} holds" if holder else f"'{public_uri(uri)}'"
        raise TrackingError(f"{where}: {found} is not a tracking server. {URIS}")
    if scheme.startswith("sqlite") and not rest.startswith("//"):
        path = rest.lstrip("/")
        fix = f" Write {scheme}:///{Path(path).absolute()}." if path and path != ":memory:" else ""
        raise TrackingError(
            f"{where}: '{uri}' is not an absolute path, which needs four slashes.{fix}"
        )
    if scheme not in ("http", "https") and (problem := forbidden_setting(uri)):
        raise TrackingError(f"{where}: {problem}")
    return uri


def recorded_tracking(option: str | None) -> str | None:
    """--tracking as a study records it: a name and never what it holds, the path of a file from the root."""
    if option is None or "://" in option or VARIABLE.fullmatch(option):
        return option
    return str(Path(os.path.expanduser(option)).absolute())


def _held(name: str, where: str) -> tuple[str, str]:
    """The URI that an environment variable or a file holds, and which; any other name as it is, and nothing."""
    if VARIABLE.fullmatch(name):
        holder, text = f"the environment variable {name}", os.environ.get(name)
        if text is None:
            raise TrackingError(
                f"{where}: {holder} is not set. Set it to the URI, or give --tracking."
            )
    else:
        path = Path(os.path.expanduser(name))
        if path.is_absolute() and not path.exists():
            raise TrackingError(
                f"{where}: there is no file {path}. Write the URI into it, or give --tracking."
            )
        if not path.is_file():
            return name, ""
        if where == "tracking" and not path.is_absolute():
            raise TrackingError(f"{where}: '{name}' is a relative path. Write {path.absolute()}.")
        holder = f"the file {path}"
        try:
            with path.open() as file:
                text = file.read(LONGEST)
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not text"
            raise TrackingError(f"{where}: {holder} cannot be read ({why}).") from None
    lines = text.strip().splitlines()
    if len(lines) != 1:
        found = f"holds {len(lines)} lines" if lines else "is empty"
        raise TrackingError(f"{where}: {holder} {found}. Write the URI into it, on one line.")
    return lines[0].strip(), holder
