"""URIs: which MLflow is meant, and what of it may be printed."""

from pathlib import Path

import pytest

from study.schema.uris import TrackingError, hidden, is_hidden, public_uri, resolve_uri, scrub


def test_the_option_comes_first_then_the_spec_then_the_storage() -> None:
    root = Path("/data/studies")
    assert resolve_uri("http://a:1", "http://b:2", root) == "http://a:1"
    assert resolve_uri(None, "http://b:2", root) == "http://b:2"
    assert resolve_uri(None, None, root) == "sqlite:////data/studies/mlflow.db"
    for uri in ("sqlite:////x/y.db", "https://u:p@h/base", "postgresql+psycopg2://u:p@h/db"):
        assert resolve_uri(uri, None, root) == uri


@pytest.mark.parametrize(
    "uri",
    ["sqlite:///mlflow.db", "sqlite://", "sqlite:///:memory:", "mlruns", "./mlruns", "file:///x/mlruns", "htp://x"],
)
def test_what_would_end_up_anywhere_is_refused(uri: str) -> None:
    with pytest.raises(TrackingError, match=r"^tracking: "):
        resolve_uri(None, uri, Path("/data"))


def test_a_relative_database_is_refused_with_the_absolute_one() -> None:
    with pytest.raises(TrackingError, match=rf"--tracking: .* Write sqlite:///{Path.cwd()}/a/b.db\."):
        resolve_uri("sqlite:///a/b.db", None, Path("/data"))


@pytest.mark.parametrize(
    ("uri", "public"),
    [
        ("http://host:5000", "http://host:5000"),
        ("https://maria:p%40ss@host/base?token=t0ken", "https://host/base"),
        ("postgresql://maria:a/b?c#d@host/db", "postgresql://host/db"),
        ("sqlite:////home/maria@work/mlflow.db", "sqlite:////home/maria@work/mlflow.db"),
    ],
)
def test_credentials_are_not_public(uri: str, public: str) -> None:
    assert public_uri(uri) == public


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("https://maria:p%40ss@host/base", "https://***@host/base"),
        ("https://t0ken@host/base", "https://***@host/base"),
        ("postgresql://maria:a/b?c#d@host/db", "postgresql://***@host/db"),
        ("postgresql:///db?password=p", "postgresql://***@/db"),
        # Nothing in these opens anything: the name of a user whose password is in ~/.pgpass, a path, a server.
        ("postgresql://maria@host/db", None),
        ("sqlite:////home/maria@work/mlflow.db?timeout=5", None),
        ("http://host:5000", None),
        ("/head/ledger@work.log", None),
    ],
)
def test_what_study_yaml_shows_of_a_uri(uri: str, shown: str | None) -> None:
    assert hidden(uri) == (shown or uri) and is_hidden(hidden(uri)) == (shown is not None)
    assert hidden(hidden(uri)) == hidden(uri) and public_uri(hidden(uri)) == public_uri(uri)


def test_credentials_are_taken_out_of_what_others_say() -> None:
    uri = "https://maria:p%40ss@host/base?token=t0ken"
    text = f'{uri} maria:p%40ss@host p@ss p%40ss t0ken for user "maria" at host'
    assert scrub(text, uri) == 'https://host/base host *** *** *** for user "***" at host'
