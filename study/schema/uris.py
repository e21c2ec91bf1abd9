"""The MLflow URI of a study; URIs stripped of user, password and query for printing, logging and storing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from trainables.fields import UserError

SCHEMES = ("http", "https", "sqlite", "postgresql", "mysql", "mssql")


def public_uri(uri: str) -> str:
    """The URI without user, password and query."""
    scheme, separator, rest = uri.partition("://")
    # A password cannot contain @, but a database path can; a URL of such a path has no authority part.
    rest = rest if rest.startswith("/") else rest.rpartition("@")[2]
    ends = r"\?" if rest.startswith("/") else r"[?#]"  # a # in a file's path is a part of it
    return scheme + separator + re.split(ends, rest, maxsplit=1)[0] if separator else uri


def scrub(text: str, uri: str) -> str:
    """The text without what `public_uri` removes."""
    rest = uri.partition("://")[2]
    userinfo = "" if rest.startswith("/") else rest.rpartition("@")[0]
    user, _, password = userinfo.partition(":")
    query = rest.rpartition("@")[2].partition("?")[2]
    secrets = [password, *(pair.partition("=")[2] for pair in query.split("&"))]
    text = text.replace(uri, public_uri(uri))
    text = text.replace(f"{userinfo}@", "") if userinfo else text
    for secret in sorted({*secrets, *map(unquote, secrets)} - {""}, key=len, reverse=True):
        text = text.replace(secret, "***")
    # Database drivers report: authentication failed for user "maria".
    return re.sub(rf"(['\"]){re.escape(user)}\1", r"\1***\1", text) if user else text


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


def resolve_uri(option: str | None, spec_tracking: str | None, storage_root: Path) -> str:
    """The MLflow URI to write: --tracking, else the spec's, else the database embedded in the storage.

    Raises TrackingError for a URI relative to the working directory.
    """
    uri = option or spec_tracking
    if uri is None:
        return embedded_tracking(storage_root)
    where = "--tracking" if option else "tracking"
    scheme, separator, rest = uri.partition("://")
    if not separator or scheme.partition("+")[0] not in SCHEMES:
        raise TrackingError(
            f"{where}: '{public_uri(uri)}' is not a tracking server. Write http://HOST:PORT or a database"
            " (sqlite:////DIR/mlflow.db); MLflow no longer supports folders such as mlruns."
        )
    if scheme.startswith("sqlite") and not rest.startswith("//"):
        path = rest.lstrip("/")
        fix = f" Write {scheme}:///{Path(path).absolute()}." if path and path != ":memory:" else ""
        raise TrackingError(f"{where}: '{uri}' is not an absolute path, which needs four slashes.{fix}")
    return uri
