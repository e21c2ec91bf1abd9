"""URIs: which MLflow is meant, and what of it may be printed."""

from pathlib import Path

import pytest

from study.schema.uris import (
    TrackingError,
    has_password,
    hidden,
    is_hidden,
    public_uri,
    recorded_tracking,
    resolve_uri,
    scrub,
)


def test_the_option_comes_first_then_the_spec_then_the_storage() -> None:
    root = Path("/data/studies")
    assert resolve_uri("http://a:1", "http://b:2", root) == "http://a:1"
    assert resolve_uri(None, "http://b:2", root) == "http://b:2"
    assert resolve_uri(None, None, root) == "sqlite:////data/studies/mlflow.db"
    for uri in ("sqlite:////x/y.db", "https://u:p@h/base", "postgresql+psycopg2://u:p@h/db"):
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
        ("postgresql://maria@h/db?sslkey=/x/evil.so:x", "'sslkey'; set PGSSLKEY where you run."),
        (
            "postgresql+psycopg2://h/db?sslmode=require&%73slkey=/x/evil.so:x",
            "'sslkey'; set PGSSLKEY where you run.",
        ),
        ("mysql+pymysql://h/db?read_default_file=/x/my.cnf", "'read_default_file'; remove it."),
        ("mssql+pyodbc:///?odbc_connect=Driver%3D/x/evil.so", "'odbc_connect'; remove it."),
        ("sqlite:////x/y.db?plugin=evil", "'plugin'; remove it."),
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
        "mysql+pymysql://h/db?charset=utf8mb4&ssl_ca=/x/ca.pem&password=p",
        "sqlite:////x/y.db?timeout=5",
        "https://h/base?token=t0ken",
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


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("https://maria:p%40ss@host/base", "https://***@host/base"),
        ("https://t0ken@host/base", "https://***@host/base"),
        ("postgresql://maria:a/b?c#d@host/db", "postgresql://***@host/db"),
        ("postgresql:///db?password=p", "postgresql://***@/db"),
        ("https://host/base?a=b&api_key=k", "https://***@host/base"),
        # Nothing in these opens anything: the name of a user whose password is in ~/.pgpass, a path, a server.
        ("postgresql://maria@host/db", None),
        ("sqlite:////home/maria@work/mlflow.db?timeout=5", None),
        ("postgresql://maria@host/db?sslmode=require", None),
        ("postgresql:///db?host=/var/run/postgresql&user=maria&keepalives_idle=9", None),
        ("mysql://maria@host/db?charset=utf8", None),
        ("http://host:5000", None),
        ("/head/ledger@work.log", None),
    ],
)
def test_what_study_yaml_shows_of_a_uri(uri: str, shown: str | None) -> None:
    assert hidden(uri) == (shown or uri) and is_hidden(hidden(uri)) == (shown is not None)
    assert hidden(hidden(uri)) == hidden(uri) and public_uri(hidden(uri)) == public_uri(uri)
    assert has_password(uri) == (shown is not None)


def test_credentials_are_taken_out_of_what_others_say() -> None:
    uri = "https://maria:p%40ss@host/base?token=t0ken"
    text = f'{uri} maria:p%40ss@host p@ss p%40ss t0ken for user "maria" at host'
    assert scrub(text, uri) == 'https://host/base host *** *** *** for user "***" at host'


# ---- named by what holds it ---------------------------------------------------------------------------------------

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
        ("http://host:5000", False),
        ("postgresql://maria@host/db", False),
        ("sqlite:////home/a:b@work/mlflow.db?timeout=5", False),
        ("MY_PASSWORD", False),
        ("http://maria:hunter2@host", True),
        ("postgresql://host/db?user=maria&password=hunter2", True),
        ("https://host/base?token=t0ken", True),
    ],
)
def test_a_password_is_seen(uri: str, has: bool) -> None:
    assert has_password(uri) is has
