"""Where our files go: the home, or a folder of this user alone."""

import os
import pwd
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from trainables.fields import expanded
from trainables.files.home import default_cache, ensure_home, own_place, token_file
from trainables.problems import FieldError


@pytest.fixture
def homeless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user without HOME, and unknown to the system; the folder for temporary files."""

    def unknown(uid: int) -> None:
        raise KeyError(uid)

    for name in ("HOME", "CALSTUDY_CACHE", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.setenv(name, "")  # so that it is as before once the test ends
        monkeypatch.delenv(name)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_a_home_that_can_be_written_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("CALSTUDY_CACHE", raising=False)
    assert own_place(".ray") == tmp_path / ".ray" and not (tmp_path / ".ray").exists()
    assert default_cache() == tmp_path / ".cache" / "calstudy"
    monkeypatch.setenv("CALSTUDY_CACHE", "~/data")
    assert default_cache() == tmp_path / "data"


def test_without_a_home_it_is_a_folder_of_this_user_alone(homeless: Path) -> None:
    own = homeless / f"calstudy-{os.geteuid()}"
    assert default_cache() == own / ".cache" / "calstudy"
    assert stat.S_IMODE(own.stat().st_mode) == 0o700
    assert token_file() == own / ".ray" / "auth_token"
    ensure_home()
    assert os.environ["HOME"] == str(own)


def test_a_home_that_cannot_be_written_is_read(
    homeless: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write anywhere
    own = homeless / f"calstudy-{os.geteuid()}"
    assert token_file() == own / ".ray" / "auth_token"
    (home / ".ray").mkdir()
    (home / ".ray" / "auth_token").touch()
    assert token_file() == home / ".ray" / "auth_token"
    ensure_home()
    assert os.environ["HOME"] == str(home)


@pytest.mark.parametrize("what", ["a link", "open", "another user's"])
def test_a_folder_that_is_not_ours_alone_is_refused(
    what: str, homeless: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = homeless / f"calstudy-{os.geteuid()}"
    if what == "a link":
        (homeless / "elsewhere").mkdir(mode=0o700)
        own.symlink_to("elsewhere")
    else:
        own.mkdir(mode=0o700)
    if what == "open":
        own.chmod(0o755)
    if what == "another user's":
        uid = os.geteuid()
        own.rename(homeless / f"calstudy-{uid + 1}")
        monkeypatch.setattr(os, "geteuid", lambda: uid + 1)
    with pytest.raises(
        OSError, match=r"calstudy-\d+ (is no folder|belongs to|is open).* Set HOME or TMPDIR"
    ):
        default_cache()


def test_a_home_that_is_not_known_is_named(homeless: Path) -> None:
    assert expanded("data/~x", "data.path") == "data/~x"
    for path in ("~/studies", "~no-such-user/studies"):
        with pytest.raises(
            FieldError, match=r"^storage: '~.*' is no home folder here\. Write the whole path\.$"
        ):
            expanded(path, "storage")


@pytest.mark.slow
def test_nodes_are_sent_what_needs_no_calstudy() -> None:
    """What `node_facts` calls travels with it: a node may have another calstudy, or none."""
    script = """
import subprocess, sys
from ray import cloudpickle
from study.machines import node_facts, nodes
for module in nodes.SENT:
    cloudpickle.register_pickle_by_value(module)
questions = [(node_facts.token, ()), (node_facts.room, ("/",)), (node_facts.gpus, ())]
there = "import pickle, sys; sys.modules['study'] = sys.modules['trainables'] = None; "
there += "answers, questions = pickle.load(sys.stdin.buffer); print(*sorted(answers(questions)))"
sent = cloudpickle.dumps((node_facts.answers, questions))
subprocess.run([sys.executable, "-c", there], input=sent, check=True)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert {"authentication", "open_token", "disks", "memory", "gpus"} <= {*done.stdout.split()}, (
        done.stderr
    )
