"""What a machine says of itself, and who is asked: told truly, and nothing is left behind."""

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest

from study.machines import node_facts
from study.machines.admission import code_problem, storage_problem
from study.machines.nodes import NodeFacts, StorageProbe
from tests.cases import damage_unsampled
from trainables.config import TrialConfig
from trainables.loading.cache import prepare
from trainables.machine import versions

ROOT = Path("/storage")


def answer(probe: StorageProbe, folder: Path | None = None) -> NodeFacts:
    """What a machine says that sees the probe, or that has another folder in its place."""
    question, (seen, token, name) = probe.question("node")
    return NodeFacts("node", **probe.seen("node", question(str(folder or seen), token, name)))


def test_a_storage_that_is_seen(tmp_path: Path) -> None:
    with StorageProbe(tmp_path) as probe:
        node = answer(probe)
    assert (node.storage, node.written, node.lock) == (None, True, "held") and storage_problem(
        node, ROOT
    ) is None
    assert list(tmp_path.iterdir()) == []


def test_a_storage_that_is_not_there(tmp_path: Path) -> None:
    with StorageProbe(tmp_path) as probe:
        node = answer(probe, tmp_path / "elsewhere")
    assert "does not see the storage /storage (No such file or directory)." in str(
        storage_problem(node, ROOT)
    )


def test_another_folder_in_its_place(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "token").write_text("of another driver")
    with StorageProbe(tmp_path) as probe:
        assert "(a different folder is mounted there)" in str(
            storage_problem(answer(probe, tmp_path / "other"), ROOT)
        )


def test_what_a_node_writes_must_be_seen_here(tmp_path: Path) -> None:
    with StorageProbe(tmp_path) as probe:
        question, (folder, token, name) = probe.question("node")
        said = question(folder, token, name)
        (Path(folder) / name).unlink()
        node = NodeFacts("node", **probe.seen("node", said))
    assert "files it writes to the storage /storage are not visible here" in str(
        storage_problem(node, ROOT)
    )


def test_a_lock_that_does_not_hold(tmp_path: Path) -> None:
    with StorageProbe(tmp_path) as probe:
        folder = Path(probe.question("node")[1][0])
        # Another file than the driver locked, as where locks stay on their own machine.
        (folder / "lock").unlink()
        (folder / "lock").touch()
        assert answer(probe).lock == "ignored"


def test_a_storage_that_was_not_there_is_not_there_again(tmp_path: Path) -> None:
    with StorageProbe(tmp_path / "not" / "yet"):
        assert (tmp_path / "not" / "yet").is_dir()
    assert not (tmp_path / "not").exists()
    with StorageProbe(tmp_path / "not" / "yet"):
        (tmp_path / "not" / "kept").touch()
    assert [path.name for path in (tmp_path / "not").iterdir()] == ["kept"]


def test_other_code_or_extensions_are_named() -> None:
    own = NodeFacts("here", code="a", code_at="/laptop", extensions="e")
    assert code_problem(NodeFacts("node", code="a", extensions="e"), own, "/ext") is None
    other = NodeFacts("node", code="b", code_at="/opt/old", extensions="e")
    assert str(code_problem(other, own, "/ext")).startswith(
        "has different code in /opt/old than this machine in /laptop."
    )
    assert "has no extensions /ext" in str(code_problem(NodeFacts("node", code="a"), own, "/ext"))
    changed = NodeFacts("node", code="a", extensions="f")
    assert "has different files in extensions /ext" in str(code_problem(changed, own, "/ext"))


def test_the_digest_of_code_follows_what_is_run_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "methods" / "__pycache__").mkdir(parents=True)
    (tmp_path / "methods" / "mine.py").write_text("x = 1\n")
    digest = node_facts.code(str(tmp_path))["extensions"]
    (tmp_path / "methods" / "__pycache__" / "mine.cpython-311.pyc").write_bytes(b"compiled")
    (tmp_path / "notes.txt").write_text("no code")
    assert node_facts.code(str(tmp_path))["extensions"] == digest
    (tmp_path / "methods" / "mine.py").write_text("x = 2\n")
    assert node_facts.code(str(tmp_path))["extensions"] != digest
    assert node_facts.code(str(tmp_path / "none"))["extensions"] is None


@pytest.mark.parametrize(
    ("mode", "folder", "told"), [(0o600, 0o755, False), (0o644, 0o755, True), (0o644, 0o700, False)]
)
def test_a_token_that_others_can_read(
    monkeypatch: pytest.MonkeyPatch, mode: int, folder: int, told: bool
) -> None:
    # Pytest's own folders are for their user alone.
    with tempfile.TemporaryDirectory(dir="/tmp") as made:
        token = Path(made) / "auth_token"
        token.touch(mode)
        token.chmod(mode)
        token.parent.chmod(folder)
        monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(token))
        assert node_facts.token()["open_token"] == (str(token) if told else None)


def test_versions_of_what_is_not_installed() -> None:
    assert versions(["numpy", "no-such-thing"]).keys() == {"numpy", "no-such-thing"}
    assert versions(["no-such-thing"]) == {"no-such-thing": "missing"}


@pytest.fixture
def trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A trial on the digits, prepared in a cache of its own."""
    monkeypatch.setenv("CALSTUDY_CACHE", str(tmp_path / "cache"))
    return {"data": {"name": "digits"}, "model": "mlp", "method": "cross_entropy", "seed": 0}


def test_data_are_prepared_where_they_are_asked_for(trial: dict[str, Any]) -> None:
    config = TrialConfig.from_mapping(trial)
    expected = prepare(config.data, config.seed).digest
    assert node_facts.prepared(trial, None, True) == {"data": expected, "damaged": []}
    assert node_facts.prepared(trial, expected, False) == {"data": expected}
    assert "its digest is" in node_facts.prepared(trial, "0" * 64, False)["data_problem"]


@pytest.mark.platform
def test_torn_data_are_prepared_anew_and_damaged_ones_named(
    trial: dict[str, Any], tmp_path: Path
) -> None:
    digest = node_facts.prepared(trial, None, False)["data"]
    file = tmp_path / "cache" / digest / "train.npy"
    whole = file.read_bytes()
    file.write_bytes(whole[:-100])
    assert (
        node_facts.prepared(trial, digest, True) == {"data": digest, "damaged": []}
        and file.read_bytes() == whole
    )
    file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert node_facts.prepared(trial, digest, True)["damaged"] == [] and file.read_bytes() == whole
    damage_unsampled(file)
    assert node_facts.prepared(trial, digest, True)["damaged"] == [str(file)]


def test_the_sealed_split_is_not_read(trial: dict[str, Any], tmp_path: Path) -> None:
    digest = node_facts.prepared(trial, None, False)["data"]
    test = tmp_path / "cache" / digest / "test.npy"
    test.write_bytes(bytes(test.stat().st_size))  # same size, other bytes: who read it would tell
    assert node_facts.prepared(trial, digest, True)["damaged"] == []
    assert "test.npy" in json.loads((test.parent / "meta.json").read_text())["sha256"]
