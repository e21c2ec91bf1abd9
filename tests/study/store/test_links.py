"""A hostile study folder: which links are followed, and which commands run its extensions."""

import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from search_spaces import strict_yaml
from study.schema.errors import LedgerError
from study.store.driver_lock import (
    driver_is_alive,
    driver_lock,
    export_lock,
)
from tests.study.command_line import here, here_json, write_spec
from tests.study.made import made_study
from trainables.plugins import extension_digests, keep_extensions, use_extensions


@pytest.mark.slow
@pytest.mark.platform
def test_no_file_of_a_study_is_written_through_a_link(tmp_path: Path) -> None:
    spec = write_spec(tmp_path / "small.yaml", methods=["focal"], trials=1, checkpoint_seconds=0)

    def everything(storage: Path) -> None:
        here("run", spec, "--storage", storage)
        here("figures", "small", "--storage", storage, "--bootstrap", 0)
        here("report", "small", "--storage", storage, "--bootstrap", 0)

    everything(tmp_path / "plain")
    study = tmp_path / "plain" / "small"
    written = [path.relative_to(study) for path in study.rglob("*") if path.is_file()]
    attempt = Path("trials/focal/0000/attempt-1")
    assert {
        attempt / "model.pt",
        attempt / "log",
        Path("report.html"),
        Path("figures/front.png"),
    } <= set(written)

    # The same with a link already in the place of every file, and of its temporary one.
    kept_apart = {Path("study.yaml"), Path("driver.lock"), Path("ledger.log")}
    victim, hostile = tmp_path / "bashrc", tmp_path / "hostile" / "small"
    victim.write_text("mine")
    for name in {*written, attempt / "last.pt"} - kept_apart:
        (hostile / name).parent.mkdir(parents=True, exist_ok=True)
        for place in (hostile / name, hostile / f"{name}.partial"):
            place.symlink_to(victim)
    (hostile / "study.yaml.partial").symlink_to(victim)
    assert "has trials, but no study.yaml" in here(
        "run", spec, "--storage", tmp_path / "hostile", check=2
    )
    assert victim.read_text() == "mine"
    shutil.rmtree(hostile / "trials")
    everything(tmp_path / "hostile")
    assert victim.read_text() == "mine"
    counts = here_json("status", "small", "--storage", tmp_path / "hostile")["methods"]["focal"]
    assert (counts["complete"], counts["to_do"]) == (1, 0)

    # study.yaml too is replaced, not written through.
    elsewhere = tmp_path / "elsewhere.yaml"
    shutil.move(hostile / "study.yaml", elsewhere)
    before = elsewhere.read_bytes()
    (hostile / "study.yaml").symlink_to(elsewhere)
    write_spec(spec, methods=["focal"], trials=2, checkpoint_seconds=0)
    here("run", spec, "--storage", tmp_path / "hostile")
    assert elsewhere.read_bytes() == before and not (hostile / "study.yaml").is_symlink()


@pytest.mark.slow
def test_folders_and_a_ledger_that_a_user_linked_work(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    for folder in ("storage", "small", "trials", "journal"):
        (disk / folder).mkdir(parents=True)
    (tmp_path / "storage").symlink_to(disk / "storage")
    (disk / "storage" / "small").symlink_to(disk / "small")
    (disk / "small" / "trials").symlink_to(disk / "trials")
    (tmp_path / "ledger.log").symlink_to(disk / "journal" / "ledger.log")
    spec = write_spec(
        tmp_path / "small.yaml", methods=["focal"], trials=1, ledger=str(tmp_path / "ledger.log")
    )
    here("run", spec, "--storage", tmp_path / "storage")
    assert (
        here_json("status", "small", "--storage", tmp_path / "storage")["methods"]["focal"][
            "complete"
        ]
        == 1
    )
    assert (disk / "trials/focal/0000/attempt-1/model.pt").is_file()
    assert (disk / "journal" / "ledger.log").stat().st_size > 0 and (
        tmp_path / "ledger.log"
    ).is_symlink()


def test_a_linked_lock_is_refused(tmp_path: Path) -> None:
    victim = tmp_path / "bashrc"
    victim.write_text("mine")
    study = tmp_path / "study"
    study.mkdir()
    (study / "driver.lock").symlink_to(victim)
    with (
        pytest.raises(LedgerError, match=r"study/driver\.lock: is a symbolic link.*Remove it\.$"),
        driver_lock(study),
    ):
        pass
    assert victim.read_text() == "mine" and not driver_is_alive(study)


@pytest.mark.timeout(60)  # it would wait for ever
def test_a_pipe_in_place_of_a_lock_is_not_waited_for(tmp_path: Path) -> None:
    for name in ("driver.lock", "export.lock"):
        os.mkfifo(tmp_path / name)
    assert not driver_is_alive(tmp_path)
    with pytest.raises(
        LedgerError, match=r"/driver\.lock: is a pipe, which a study's lock never is\. Remove it\.$"
    ):
        driver_lock(tmp_path).__enter__()
    with export_lock(tmp_path):
        pass


def test_the_copy_of_extensions_is_not_written_through_a_link(tmp_path: Path) -> None:
    victim = tmp_path / "home"
    (victim / "methods").mkdir(parents=True)
    (victim / "methods" / "kept.py").write_text("")
    source = tmp_path / "mine"
    (source / "methods").mkdir(parents=True)
    (source / "methods" / "own.py").write_text("")
    study = tmp_path / "study"
    study.mkdir()
    for name in ("extensions", "extensions.partial"):
        (study / name).symlink_to(victim)
    keep_extensions(source, study / "extensions")
    assert [path.name for path in victim.rglob("*.py")] == ["kept.py"]
    assert (study / "extensions/methods/own.py").is_file() and not (
        study / "extensions"
    ).is_symlink()


def test_links_and_pipes_of_extensions_are_left_out_and_said(
    tmp_path: Path, approved: Callable[..., None]
) -> None:
    """A link may lead to a whole disk, or back to where it lies."""
    secret = tmp_path / "secret.py"
    secret.write_text("SECRET")
    mine = tmp_path / "mine"
    (mine / "methods/below").mkdir(parents=True)
    (mine / "methods/own.py").write_text(EXTENSION.format(gate=str(tmp_path / "gate")))
    (mine / "methods/below/loop").symlink_to("..")
    (mine / "methods/linked.py").symlink_to(secret)
    (mine / "methods/dangling.py").symlink_to("nowhere")
    os.mkfifo(mine / "methods/pipe.py")
    (mine / "models").symlink_to("/")
    (mine / "search_spaces").mkdir()
    (mine / "search_spaces/own.yaml").symlink_to(secret)
    spec = write_spec(tmp_path / "small.yaml", methods=["own"], trials=1, extensions=str(mine))
    said = here("plan", spec, "--storage", tmp_path / "storage")
    approved("".join(line for line in said.splitlines(True) if "left out of" in line))
    keep_extensions(mine, tmp_path / "kept")
    assert list(extension_digests(mine)) == ["methods/own.py"]
    assert [path.name for path in tmp_path.joinpath("kept").rglob("*")] == ["methods", "own.py"]
    linked = write_spec(tmp_path / "b.yaml", methods=["linked"], trials=1, extensions=str(mine))
    approved(here("plan", linked, check=2))


EXTENSION = """
from dataclasses import dataclass
from trainables.methods.focal import Focal

open({gate!r}, "w").close()

@dataclass(frozen=True)
class Own(Focal):
    pass
"""


@pytest.mark.parametrize(
    ("command", "imports"),
    [("status", False), ("trials", False), ("pareto", False), ("report", True)],
)
def test_which_commands_import_the_extensions_of_a_study(
    tmp_path: Path, command: str, imports: bool
) -> None:
    """As docs/why/security.md says: some that only read import nothing."""
    trial = ({"accuracy": 0.9, "ece": 0.1}, [{"epoch": 1, "time": 0.0}])
    study, gate = made_study(tmp_path, "small", {"focal": [trial]}).directory, tmp_path / "imported"
    plain = strict_yaml.read(study / "study.yaml")
    plain["methods"][0]["name"], plain["extensions"] = "own", "extensions"
    (study / "study.yaml").write_text(strict_yaml.dump(plain))
    (study / "extensions" / "methods").mkdir(parents=True)
    (study / "extensions" / "methods" / "own.py").write_text(EXTENSION.format(gate=str(gate)))
    try:
        here(
            command,
            "small",
            "--storage",
            tmp_path,
            *(["--bootstrap", 0] if command == "report" else []),
        )
    finally:
        use_extensions(None)
    assert gate.exists() == imports


def test_the_url_of_a_tracking_server_loads_no_code(tmp_path: Path) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        server.settimeout(0)
        url = f"postgresql://maria@127.0.0.1:{server.getsockname()[1]}/db?sslmode=require&sslkey=/x/evil.so:x"
        problem = "the URL may not set 'sslkey'. Set PGSSLKEY where you run."
        file = made_study(tmp_path, "small", {"focal": []}).directory / "study.yaml"
        plain = strict_yaml.read(file)
        file.write_text(
            strict_yaml.dump({**plain, "recorded": {**plain["recorded"], "tracking": url}})
        )
        assert here("audit", "small", "--storage", tmp_path, check=2) == f"tracking: {problem}\n"
        with pytest.raises(BlockingIOError):  # nobody connected
            server.accept()
