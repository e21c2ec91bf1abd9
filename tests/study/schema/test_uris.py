"""URIs: which MLflow is meant, and what of it may be printed."""

from pathlib import Path

import pytest

from study.schema.uris import (
    TrackingError,
    has_password,
    public_uri,
    recorded_tracking,
    resolve_uri,
    scrub,
)
from trainables.problems import FieldError


def test_the_option_comes_first_then_the_spec_then_the_storage() -> None:
    root = Path("/data/studies")
    assert resolve_uri("http://a:1", "http://b:2", root) == "http://a:1"
    assert resolve_uri(None, "http://b:2", root) == "http://b:2"
    assert resolve_uri(None, None, root) == "sqlite:////data/studies/mlflow.db"
    for uri in ("sqlite:////x/y.db", "https://h/base", "postgresql+psycopg2://u@h/db"):
        assert resolve_uri(uri, None, root) == uri


@pytest.mark.parametrize(
    "uri",
    [
        "sqlite:///mlflow.db",
        "sqlite://",
        "sqlite:///:memory:",
        "mlruns",
        "./mlruns",
        "file:///x/mlruns",
        "htp://x",
    ],
)
def test_what_would_end_up_anywhere_is_refused(uri: str) -> None:
    with pytest.raises(TrackingError, match=r"^tracking: "):
        resolve_uri(None, uri, Path("/data"))


def test_a_relative_database_is_refused_with_the_absolute_one() -> None:
    with pytest.raises(
        TrackingError, match=rf"--tracking: .* Write sqlite:///{Path.cwd()}/a/b.db\."
    ):
        resolve_uri("sqlite:///a/b.db", None, Path("/data"))


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("postgresql://maria@h/db?sslkey=/x/evil.so:x", "'sslkey'. Set PGSSLKEY where you run."),
        (
            "postgresql+psycopg2://h/db?sslmode=require&%73slkey=/x/evil.so:x",
            "'sslkey'. Set PGSSLKEY where you run.",
        ),
        ("mysql+pymysql://h/db?read_default_file=/x/my.cnf", "'read_default_file'. Remove it."),
        ("mssql+pyodbc:///?odbc_connect=Driver%3D/x/evil.so", "'odbc_connect'. Remove it."),
        ("sqlite:////x/y.db?plugin=evil", "'plugin'. Remove it."),
    ],
)
def test_a_database_may_not_set_what_runs_code(uri: str, words: str) -> None:
    with pytest.raises(TrackingError) as refused:
        resolve_uri(None, uri, Path("/data"))
    assert str(refused.value) == f"tracking: the URL may not set {words}"


def test_a_database_may_set_what_does_not() -> None:
    for uri in (
        "postgresql://h/db?sslmode=verify-full&sslrootcert=/x/ca.pem&application_name=a&target_session_attrs=any",
        "postgresql:///db?host=a:5432&host=b:5432&connect_timeout=3",
        "mysql+pymysql://h/db?charset=utf8mb4&ssl_ca=/x/ca.pem",
        "sqlite:////x/y.db?timeout=5",
    ):
        assert resolve_uri(uri, None, Path("/data")) == uri


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


def test_credentials_are_taken_out_of_what_others_say() -> None:
    uri = "https://maria:p%40ss@host/base?token=t0ken"
    text = f'{uri} maria:p%40ss@host p@ss p%40ss t0ken for user "maria" at host'
    assert scrub(text, uri) == 'https://host/base host *** *** *** for user "***" at host'


# ---- named by what holds it ----------------------------------------------------------------------

SECRET = "https://maria:hunter2@host/base"


def test_a_file_or_a_variable_may_hold_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "tracking"
    file.write_text(f"{SECRET}\n")
    monkeypatch.setenv("MY_TRACKING_2", f"{SECRET} ")
    monkeypatch.chdir(tmp_path)
    for name in (str(file), "tracking", "./tracking", "MY_TRACKING_2"):
        assert resolve_uri(name, None, tmp_path) == SECRET
    for name in (str(file), "MY_TRACKING_2"):
        assert resolve_uri(None, name, tmp_path) == SECRET
    # A study is read from other folders too.
    with pytest.raises(
        TrackingError, match=rf"^tracking: 'tracking' is a relative path. Write {file}\.$"
    ):
        resolve_uri(None, "tracking", tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert [recorded_tracking(each) for each in ("tracking", "~/tracking")] == [str(file)] * 2
    assert [recorded_tracking(each) for each in (None, "MY_TRACKING_2", SECRET)] == [
        None,
        "MY_TRACKING_2",
        SECRET,
    ]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty. Write the URI into it, on one line."),
        (b"\n \n", "is empty. "),
        (b"http://a:1\nhunter2\n", "holds 2 lines. "),
        (b"hunter2", "is not a tracking server. Write http://HOST:PORT"),
        (b"maria:hunter2@host", "is not a tracking server. "),
        (b"\xff\xfe\x00", "cannot be read (it is not text)."),
    ],
)
def test_what_a_file_holds_instead_is_said_and_not_shown(
    tmp_path: Path, content: bytes, words: str
) -> None:
    file = tmp_path / "tracking"
    file.write_bytes(content)
    with pytest.raises(TrackingError) as caught:
        resolve_uri(str(file), None, tmp_path)
    said = str(caught.value)
    assert said.startswith("--tracking: ") and f"the file {file} " in said and words in said
    assert "hunter2" not in said and "\n" not in said


def test_what_holds_nothing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MY_TRACKING_2", raising=False)
    with pytest.raises(
        TrackingError,
        match=r"^--tracking: the environment variable MY_TRACKING_2 is not set\. Set it",
    ):
        resolve_uri("MY_TRACKING_2", None, tmp_path)
    monkeypatch.setenv("MY_TRACKING_2", "")
    with pytest.raises(
        TrackingError, match=r"^tracking: the environment variable MY_TRACKING_2 is empty\."
    ):
        resolve_uri(None, "MY_TRACKING_2", tmp_path)
    with pytest.raises(
        TrackingError, match=rf"^tracking: there is no file {tmp_path}/gone\. Write the URI into it"
    ):
        resolve_uri(None, f"{tmp_path}/gone", tmp_path)


@pytest.mark.parametrize(
    ("uri", "has"),
    [
        ("https://maria:p%40ss@host/base", True),
        ("https://t0ken@host/base", True),
        ("postgresql://maria:a/b?c#d@host/db", True),
        ("postgresql:///db?password=p", True),
        ("postgresql://host/db?user=maria&%70assword=hunter2", True),
        ("https://host/base?a=b&api_key=k", True),
        ("https://host/base?token=t0ken", True),
        # Nothing in these opens anything: the name of a user whose password is in
        # ~/.pgpass, a path, a server, the name of a variable.
        ("postgresql://maria@host/db", False),
        ("postgresql://maria@host/db?sslmode=require", False),
        ("postgresql:///db?host=/var/run/postgresql&user=maria&keepalives_idle=9", False),
        ("postgresql://maria@host/db?sslkey=/x/a.key", False),
        ("mysql://maria@host/db?charset=utf8", False),
        ("sqlite:////home/maria@work/mlflow.db?timeout=5", False),
        ("sqlite:////home/a:b@work/mlflow.db", False),
        ("http://host:5000", False),
        ("/head/ledger@work.log", False),
        ("MY_PASSWORD", False),
    ],
)
def test_a_password_is_seen(uri: str, has: bool) -> None:
    assert has_password(uri) is has


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        (
            "http://maria:hunter2@host/base?token=hunter2",
            "http://host/base is written with a password or token, which others could read. Leave"
            " user and password out, and set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"
            " or write ~/.mlflow/credentials; or name a file or an environment variable",
        ),
        (
            "postgresql://maria:hunter2@host/db",
            "postgresql://host/db is written with a password or token, which others could read."
            " Leave the password out, and set PGPASSWORD or write ~/.pgpass; or name a file",
        ),
        ("mysql://maria:hunter2@host/db", "mysql://host/db is written with a password or token"),
    ],
)
def test_one_that_is_written_out_is_refused_with_where_it_belongs(uri: str, words: str) -> None:
    for option, in_spec, where in ((uri, None, "--tracking"), (None, uri, "tracking")):
        with pytest.raises(FieldError) as refused:
            resolve_uri(option, in_spec, Path("/data"))
        said = str(refused.value)
        assert said.startswith(f"{where}: {words}"), said
        assert "hunter2" not in said and "maria" not in said and "\n" not in said
