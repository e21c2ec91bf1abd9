"""STUDY/secrets.yaml, which only its user may read: the URIs of study.yaml that have credentials.

study.yaml, which a colleague may read, has them with `***` instead. A study of an earlier version has all in
study.yaml, until it is run again.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from search_spaces import strict_yaml
from study.schema.uris import hidden, is_hidden, public_uri

SECRETS = "secrets.yaml"


def without_secrets(plain: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """study.yaml's values as it holds them, and those of secrets.yaml: whole URIs by their place."""
    secrets: dict[str, str] = {}

    def take(place: str, uri: str) -> str:
        if uri != hidden(uri) or is_hidden(uri):
            secrets[place] = uri
        return hidden(uri)

    return _with_uris(plain, take), secrets


def with_secrets(directory: Path, plain: Any) -> Any:
    """study.yaml's values with whole URIs, where STUDY/secrets.yaml can be read and is of the same servers."""
    known: list[Any] = []  # what secrets.yaml holds, read if it is needed

    def reveal(place: str, uri: str) -> str:
        if not is_hidden(uri):
            return uri
        if not known:
            known.append(_read(directory))
        whole = known[0].get(place) if isinstance(known[0], dict) else None
        return whole if isinstance(whole, str) and public_uri(whole) == public_uri(uri) else uri

    return _with_uris(plain, reveal)


def _read(directory: Path) -> Any:
    try:
        return strict_yaml.read(directory / SECRETS)
    except strict_yaml.YamlError:  # another user's, or not there: said where a URI is needed
        return None


def _with_uris(plain: Any, changed: Callable[[str, str], str]) -> Any:
    """A copy with each URI as `changed` gives it, called with its place and the URI."""
    if not isinstance(plain, dict):
        return plain
    found = dict(plain)
    for key in ("ledger", "tracking"):
        if isinstance(found.get(key), str):
            found[key] = changed(key, found[key])
    recorded = found.get("recorded")
    if isinstance(recorded, dict) and isinstance(recorded.get("tracking"), str):
        found["recorded"] = {
            **recorded,
            "tracking": changed("recorded.tracking", recorded["tracking"]),
        }
    return found
