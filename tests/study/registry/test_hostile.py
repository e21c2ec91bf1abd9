"""Files of a version that someone changed: they are compared first, and not opened."""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import mlflow.pyfunc
import pytest

from study.registry.export import Exported
from study.registry.names import ExportError
from study.registry.verification import NotVerified
from study.registry.verify import _own_extensions
from study.store.study import write_study_file
from study.tracking.registered import differences
from tests.extending.test_extending import EXTENSION
from tests.study import command_line
from tests.study.command_line import calstudy
from tests.study.registry.hostile import code_in_the_graph, extensions_in_the_record
from tests.study.registry.test_export import Trained, forget_digests, record_digests, train
from tests.study.registry.test_export import here as here  # fixtures
from tests.study.registry.test_export import root as root
from tests.study.registry.test_export import server as server
from tests.study.registry.test_export import trained as trained
from trainables.plugins import extension_digests, use_extensions

pytestmark = pytest.mark.slow


def attacked(trained: Trained, name: str, kind: str, mark: Path) -> tuple[Exported, str]:
    """A version, and the file of it that was changed to leave the mark."""
    found = trained.export(name)
    artifacts = trained.artifacts(found)
    if kind == "graph":
        code_in_the_graph(artifacts / "data" / "model.pt2", mark)
        return found, "data/model.pt2"
    extensions_in_the_record(artifacts, mark.with_name("theirs"), mark)
    return found, "calstudy/record.json"


@pytest.mark.parametrize("kind", ["graph", "record"])
def test_changed_files_run_nothing(
    trained: Trained, here: Callable[..., object], kind: str, tmp_path: Path
) -> None:
    """Nor where the registry has no digests, or those of the changed files: code is taken from no
    folder that they name."""
    found, file = attacked(trained, f"attacked_{kind}", kind, tmp_path / "mark")
    said = command_line.here("verify", found.uri, "--tracking", trained.uri, check=1)
    why = f"its files are not those registered, and were not opened: {file} has changed."
    assert said == f"{found.uri}: NOT verified: {why}\n"
    assert not (tmp_path / "mark").exists()
    forget_digests(trained, found)
    with pytest.raises(NotVerified, match="the registry has no digests of its files"):
        here(found.uri)
    if kind == "record":
        record_digests(trained, found)
        with pytest.raises(
            NotVerified, match=r"its data set 'mine' is code of the study 'small', which is not in "
        ):
            here(found.uri)
    assert not (tmp_path / "mark").exists()


@pytest.mark.parametrize("kind", ["graph", "record"])
def test_export_moves_no_alias_to_changed_files(
    trained: Trained, kind: str, tmp_path: Path
) -> None:
    """Once the registry has their digests, code in a graph is refused too; a record is not
    opened."""
    name = f"aliased_{kind}"
    found, file = attacked(trained, name, kind, tmp_path / "mark")

    def refused(why: str) -> None:
        with pytest.raises(ExportError, match=f"^{name}/1 exists, and its .*{why}"):
            trained.export(name, "champion")
        assert trained.version(found).aliases == []

    refused(f"{file} has changed. Restore")
    record_digests(trained, found)
    if kind == "graph":
        refused("expression that is not arithmetic")
    else:
        assert not trained.export(name, "champion").created
    assert not (tmp_path / "mark").exists()


def test_every_file_counts_but_the_one_that_mlflow_adds(
    trained: Trained, here: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = trained.export("more")
    folder = trained.artifacts(found)
    monkeypatch.setenv("MLFLOW_REGISTRY_URI", trained.uri)
    mlflow.pyfunc.load_model(found.uri)
    assert (folder / "registered_model_meta").is_file()
    assert here(found.uri).ok
    (folder / "data" / "extra").touch()
    (folder / "input_example.json").unlink()
    os.symlink(folder / "MLmodel", folder / "link")
    with (folder / "MLmodel").open("a") as file:
        file.write(" ")
    with pytest.raises(NotVerified) as caught:
        here(found.uri)
    assert str(caught.value).endswith(
        ": MLmodel has changed; data/extra was added; input_example.json is missing; link was"
        " added."
    )


def test_no_name_of_a_file_reaches_the_terminal_as_a_command(tmp_path: Path) -> None:
    (tmp_path / "a\x1b[2J").touch()
    os.mkfifo(tmp_path / "pipe")  # would be read for ever
    assert differences(tmp_path, {"pipe": "0" * 64}) == [
        "'a\\x1b[2J' was added",
        "pipe has changed",
    ]


def test_the_files_that_were_verified_can_be_kept(trained: Trained, tmp_path: Path) -> None:
    found, kept = trained.export("kept"), tmp_path / "kept"
    words = ("verify", found.uri, "--tracking", trained.uri, "--keep", kept)
    assert command_line.here(*words).startswith(f"{found.uri}: verified on ")
    assert mlflow.pyfunc.load_model(str(kept)).metadata.model_uuid in trained.version(found).source
    assert "exists. Name a folder that does not." in command_line.here(*words, check=2)
    shutil.rmtree(kept)
    (trained.artifacts(found) / "conda.yaml").write_text("")
    command_line.here(*words, check=1)
    assert not kept.exists()


@pytest.mark.platform
def test_a_data_set_of_ones_own_comes_from_ones_own_study(
    root: Path, server: str, tmp_path: Path
) -> None:
    try:
        own = train(root, server, "theirs", "mlp", data="listed", extensions=str(EXTENSION))
        own = replace(own, record=replace(own.record, extensions=extension_digests(EXTENSION)))
        found = own.export("theirs")
        plain = {**own.study.plain, "extensions": "extensions"}
        write_study_file(replace(own.study, plain=plain))
        shutil.copytree(EXTENSION, own.study.directory / "extensions")
    finally:
        use_extensions(None)
    words = ("verify", found.uri, "--tracking", own.uri)
    assert "verified on " in calstudy(*words, "--storage", root).stdout
    named = ("--storage", tmp_path, "--extensions", EXTENSION)
    try:
        assert "verified on " in command_line.here(*words, *named)
    finally:
        use_extensions(None)
    why = f"its data set 'listed' is code of the study 'theirs', which is not in {tmp_path}."
    mend = "Give that storage with --storage, or the code with --extensions."
    said = f"{found.uri}: NOT verified: {why} {mend}\n"
    assert command_line.here(*words, "--storage", tmp_path, check=1) == said
    # A study of that name with another identity, and one that a tag names elsewhere, are not it.
    another = replace(own.study.recorded, id="other")
    other = replace(own.study, directory=tmp_path / "theirs", recorded=another)
    other.directory.mkdir()
    write_study_file(replace(other, plain=plain))
    assert command_line.here(*words, "--storage", tmp_path, check=1) == said
    own.client.set_model_version_tag(found.name, "1", "calstudy.study", f"../{root.name}/theirs")
    assert "which is not in" in command_line.here(*words, "--storage", tmp_path, check=1)
    # Nor is code that was changed since, or lies elsewhere.
    own.client.set_model_version_tag(found.name, "1", "calstudy.study", "theirs")
    version = own.version(found)
    record = json.loads((own.artifacts(found) / "calstudy" / "record.json").read_text())
    assert (
        json.loads(version.tags["calstudy.extensions"])
        == record["extensions"]
        == own.record.extensions
    )
    folder = own.study.directory / "extensions"
    assert _own_extensions(record, version, root) == folder
    (folder / "data" / "listed.py").write_text("")
    with pytest.raises(
        NotVerified,
        match=r"data/listed\.py is not what its trial was trained with, and was not imp",
    ):
        _own_extensions(record, version, root)
    for upwards in ("", ".", ".."):
        write_study_file(replace(own.study, plain={**plain, "extensions": upwards}))
        with pytest.raises(NotVerified, match="which is not in"):
            _own_extensions({**record, "extensions": {}}, version, root)
