"""Studies deleted and slimmed: what is listed goes, nothing else, and a kill
midway leaves no riddle."""

import shutil
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from study.audit.audit import audit
from study.schema.uris import embedded_tracking
from study.store import removal
from study.store.driver_lock import driver_lock
from study.store.study import StudyFolder, open_study, write_study_file
from tests.study.command_line import calstudy, here, write_spec
from tests.study.made import made_study

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`small` with its confirmation, and `other`, in one storage."""
    folder = tmp_path_factory.mktemp("storage")
    for name, trials in (("small", 3), ("other", 1)):
        spec = write_spec(folder / f"{name}.yaml", name=name, methods=["focal"], trials=trials)
        here("run", spec, "--storage", folder)
    here("confirm", "small", "--top", 1, "--seeds", 1, "--storage", folder)
    return folder


@pytest.fixture
def storage(trained: Path, tmp_path: Path) -> Path:
    for name in ("small", "small-confirm", "other"):
        shutil.copytree(trained / name, tmp_path / name)
        file = tmp_path / name / "study.yaml"  # a copy, and meant as one
        lines = file.read_text().splitlines(keepends=True)
        at = next(place for place, line in enumerate(lines) if line.startswith("  home:"))
        file.write_text("".join([*lines[:at], *lines[at + 3 :]]))
    shutil.copy(trained / "mlflow.db", tmp_path)
    return tmp_path


def active_runs(storage: Path) -> int:
    client = MlflowClient(embedded_tracking(storage))
    found = [experiment.experiment_id for experiment in client.search_experiments()]
    return len(client.search_runs(found, max_results=1000))


def folders(storage: Path) -> set[str]:
    return {path.name for path in storage.iterdir() if path.is_dir()} - {"artifacts"}


def test_it_asks_first_and_lists_what_goes(storage: Path) -> None:
    done = calstudy("delete", "small", "--storage", storage, check=1)  # no terminal: no answer
    assert folders(storage) == {"small", "small-confirm", "other"}
    assert str(storage / "small-confirm") in done.stdout and "kB" in done.stdout


def test_a_study_goes_with_its_confirmation(storage: Path) -> None:
    runs = active_runs(storage)
    shown = here("delete", "small", "--yes", "--storage", storage)
    assert (
        folders(storage) == {"other"}
        and "deleted small\n" in shown
        and "deleted small-confirm" in shown
    )
    assert active_runs(storage) == runs
    report = audit(open_study("other", str(storage)), embedded_tracking(storage))
    assert [each for check in report.checks for each in check.offenders] == [] and report.clean


def test_its_runs_in_mlflow_go_if_asked(storage: Path) -> None:
    here("delete", "small", "--yes", "--tracking-too", "--storage", storage)
    assert active_runs(storage) == 2  # those of `other`: its own and its trial's


@pytest.mark.parametrize("at", [0, 1, 3, 5])
def test_a_kill_midway_is_completed_by_the_same_command(
    storage: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """Killed at its n-th removal: `small` is whole and audits, or it is gone
    for every other command."""
    left = [at]

    def dying(remove):  # type: ignore[no-untyped-def]
        def removed(*words, **options):  # type: ignore[no-untyped-def]
            left[0] -= 1
            if left[0] < 0:
                raise KeyboardInterrupt
            return remove(*words, **options)

        return removed

    with monkeypatch.context() as patch:
        patch.setattr("shutil.rmtree", dying(shutil.rmtree))
        patch.setattr("pathlib.Path.unlink", dying(Path.unlink))
        here("delete", "small", "--yes", "--storage", storage, check=1)
    if (storage / "small").is_dir():
        assert audit(open_study("small", str(storage)), embedded_tracking(storage)).clean
    here("delete", "small", "--yes", "--storage", storage)
    assert folders(storage) == {"other"}


def test_a_running_study_is_not_deleted(storage: Path) -> None:
    with driver_lock(storage / "other"):
        here("delete", "other", "--yes", "--storage", storage, check=75)
    assert "other" in folders(storage)


def test_a_ledger_elsewhere_loses_this_study_alone(tmp_path: Path) -> None:
    shared = str(tmp_path / "shared.log")
    for name in ("one", "two"):
        keys = {"methods": ["cross_entropy"], "trials": 1, "epochs": 1}
        spec = write_spec(tmp_path / f"{name}.yaml", name=name, ledger=shared, **keys)
        here("run", spec, "--storage", tmp_path)
    here("delete", "one", "--yes", "--storage", tmp_path)
    assert audit(open_study("two", str(tmp_path)), embedded_tracking(tmp_path)).clean
    here("run", tmp_path / "one.yaml", "--storage", tmp_path)  # of this name another may begin
    assert len(open_study("one", str(tmp_path)).records()) == 1


def test_slimming_keeps_the_models_of_the_front(storage: Path) -> None:
    study = open_study("small", str(storage))
    before = {
        record.name for record in study.records() if (study.files(record) / "model.pt").is_file()
    }
    here("slim", "small", "--keep", "front", "--yes", "--storage", storage)
    after = {
        record.name for record in study.records() if (study.files(record) / "model.pt").is_file()
    }
    shown = here("pareto", "small", "--storage", storage)
    assert after < before and all(name in shown for name in after)
    assert audit(open_study("small", str(storage)), embedded_tracking(storage)).clean
    (gone, *_) = sorted(before - after)
    said = here("export", "small", "--trial", gone, "--name", "m", "--storage", storage, check=2)
    assert "model.pt is missing. Only models on the front were kept" in said
    assert "nothing to delete" in here(
        "slim", "small", "--keep", "front", "--yes", "--storage", storage
    )
    here(
        "run", write_spec(storage / "small.yaml", methods=["focal"], trials=4), "--storage", storage
    )
    assert len(study.records()) == 4 and open_study("small", str(storage)).recorded.pruned
    assert audit(open_study("small", str(storage)), embedded_tracking(storage)).clean


def test_a_confirmation_is_not_slimmed(storage: Path) -> None:
    here("slim", "small-confirm", "--keep", "front", "--yes", "--storage", storage, check=2)


# ---- what a kill leaves, without a trained study -------------------------------------------------

LEDGER = "/nowhere/ledger.log"


@pytest.fixture
def small(tmp_path: Path) -> StudyFolder:
    study = made_study(tmp_path, "small", {"focal": []})
    write_study_file(replace(study, plain={**study.plain, "ledger": LEDGER}))
    return open_study(str(study.directory), None)


def test_a_folder_that_is_no_deletion_is_let_alone(small: StudyFolder) -> None:
    other = small.directory.with_name("small.deleting")
    other.mkdir()
    (other / "notes.txt").touch()
    found = removal.to_delete(small.directory, "-confirm")
    assert [each.directory for each in found] == [small.directory]
    assert (other / "notes.txt").exists()


@pytest.mark.parametrize("killed_before", ["study.yaml", "the folder"])
def test_a_deletion_killed_at_the_last_files_is_completed(
    small: StudyFolder, monkeypatch: pytest.MonkeyPatch, killed_before: str
) -> None:
    """What a killed deletion leaves names the ledger, or there is nothing to delete there."""
    deleted: list[str] = []
    monkeypatch.setattr(
        removal, "delete_labels", lambda directory, ledger, *rest: deleted.append(ledger)
    )
    monkeypatch.setattr(removal, "check_home", lambda study: None)
    monkeypatch.setattr(removal, "driver_lock", lambda *of, **how: nullcontext())  # no server
    aside = removal.set_aside(small)

    def kill(*where: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        if killed_before == "study.yaml":
            patch.setattr(Path, "unlink", kill)
        else:
            rmtree = shutil.rmtree
            patch.setattr(
                shutil,
                "rmtree",
                lambda folder: kill() if folder == aside.directory else rmtree(folder),
            )
        removal.remove(aside)
    again = removal.to_delete(small.directory, "-confirm")
    assert [each.ledger for each in again] == [LEDGER if killed_before == "study.yaml" else None]
    assert aside.directory.is_dir()  # it is listed before the user says yes
    for each in again:
        removal.remove(each)
    assert not aside.directory.exists() and set(deleted) == {LEDGER}
