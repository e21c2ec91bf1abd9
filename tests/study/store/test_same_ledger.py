"""No fresh ledger over old results: one that is gone, emptied or another study's ends every
command, and nothing is written."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from optuna import create_study
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from study.schema.errors import LedgerError
from study.store import ledger as ledger_module
from study.store.driver_lock import driver_lock
from study.store.journal import LedgerLost
from study.store.ledger import open_storage
from study.store.study import open_study
from tests.study.command_line import here, here_json, write_spec

pytestmark = pytest.mark.slow


def content(folder: Path) -> dict[Path, bytes | None]:
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def run_in(folder: Path, ledger: Path | str, **keys: Any) -> tuple[object, ...]:
    """A study whose ledger lies in another folder, and the words that run it."""
    plain = {"methods": ["focal"], "trials": 2, "epochs": 1, "ledger": str(ledger), **keys}
    words = ("run", write_spec(folder / "small.yaml", **plain), "--storage", folder)
    here(*words)
    return words


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its ledger is in disk/ on a mount/. Leave it as it was."""
    folder = tmp_path_factory.mktemp("begun")
    run_in(folder, folder / "mount" / "disk" / "ledger.log")
    return folder


@pytest.fixture
def restored(begun: Path, tmp_path: Path) -> Any:
    """`begun`, whose ledger is put back afterwards."""
    shutil.copytree(begun / "mount", tmp_path / "mount")
    yield begun
    shutil.rmtree(begun / "mount", ignore_errors=True)
    shutil.copytree(tmp_path / "mount", begun / "mount")


def ledger_of(folder: Path) -> Path:
    return folder / "mount" / "disk" / "ledger.log"


def lines_until(folder: Path, trials: int) -> None:
    """Keep the first lines of the ledger, with so many trials, as an old backup has them."""
    lines = ledger_of(folder).read_text().splitlines(keepends=True)
    asked = [at for at, line in enumerate(lines) if json.loads(line)["op_code"] == CREATE_TRIAL]
    ledger_of(folder).write_text("".join(lines[: asked[trials]]))


def another_study(folder: Path) -> None:
    ledger_of(folder).unlink()
    storage = JournalStorage(JournalFileBackend(str(ledger_of(folder))))
    study = create_study(
        storage=storage, study_name="small/focal", directions=["maximize", "minimize"]
    )
    study.set_user_attr("calstudy", {"version": 1, "id": "other", "label": "focal"})


CREATE_TRIAL = 4  # in Optuna's journal
LOST: dict[str, tuple[Callable[[Path], Any], str]] = {
    "unmounted": (lambda folder: shutil.rmtree(folder / "mount"), "is missing"),
    "mount point empty": (lambda folder: shutil.rmtree(folder / "mount" / "disk"), "is missing"),
    "deleted": (lambda folder: ledger_of(folder).unlink(), "is missing"),
    "emptied": (lambda folder: ledger_of(folder).write_bytes(b""), "has no record of it"),
    "another study's": (another_study, "is of another study"),
    "as it was before its first trial": (
        lambda folder: lines_until(folder, 0),
        "has no focal/0000",
    ),
    "as it was after its first trial": (
        lambda folder: lines_until(folder, 1),
        "has no focal/0001",
    ),
}
COMMANDS = ["status", "pareto", "answer", "trials", "report", "figures", "audit", "sync", "slim"]


@pytest.mark.parametrize("lost", LOST)
def test_a_ledger_that_is_lost_ends_every_command(
    restored: Path, lost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose, problem = LOST[lost]
    lose(restored)
    before = content(restored)
    every = [[name, "small"] for name in (COMMANDS if lost == "unmounted" else ["status", "audit"])]
    every += [["run", restored / "small.yaml"], ["run", restored / "small.yaml", "--trials", 9]]
    if lost == "unmounted":
        every += [["confirm", "small"], ["export", "small", "--name", "m"]]
    for words in every:
        said = here(*words, "--storage", restored, check=2)
        assert said.startswith(
            f"ledger: {ledger_of(restored)} {problem}, but the study at {restored / 'small'} has"
        )
        assert said.count("\n") == 1, words
        assert content(restored) == before, words


@pytest.mark.parametrize("lost", LOST)
def test_a_study_is_known_by_its_trials_too(restored: Path, lost: str) -> None:
    """Where study.yaml does not say that the ledger was made. Another id is for `audit` to
    tell, and `run` refuses it."""
    file = restored / "small" / "study.yaml"
    text = file.read_text()
    file.write_text(text.replace("  ledger_made: true\n", ""))
    assert file.read_text() != text
    try:
        LOST[lost][0](restored)
        before = content(restored)
        problem = {"another study's": "has no focal/0000"}.get(lost, LOST[lost][1])
        for words in (["status", "small"], ["run", restored / "small.yaml"]):
            assert problem in here(*words, "--storage", restored, check=2)
            assert content(restored) == before
    finally:
        file.write_text(text)


@pytest.mark.parametrize("recorded", [True, False])
def test_a_study_without_trials_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recorded: bool
) -> None:
    """A kill after the ledger was made: before that was recorded, or after it and
    before the first trial."""
    with monkeypatch.context() as patch:
        if recorded:
            patch.setattr("study.engine.run._train", lambda *_: pytest.fail("killed"))
        else:
            patch.setattr(ledger_module, "record_facts", lambda *_, **__: pytest.fail("killed"))
        with pytest.raises(BaseException, match="killed"):
            run_in(tmp_path, tmp_path / "mount" / "ledger.log")
    assert open_study("small", str(tmp_path)).recorded.ledger_made == (recorded or None)
    (tmp_path / "small" / "trials" / "focal" / "0000").mkdir(parents=True)
    if not recorded:
        shutil.rmtree(tmp_path / "mount")
    run_in(tmp_path, tmp_path / "mount" / "ledger.log")
    assert here_json("status", "small", "--storage", tmp_path)["methods"]["focal"]["complete"] == 2
    assert open_study("small", str(tmp_path)).recorded.ledger_made is True


def test_a_kill_while_labels_without_trials_are_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = (
        "run",
        write_spec(tmp_path / "small.yaml", methods=["focal"], trials=1, epochs=1),
        "--storage",
        tmp_path,
    )
    monkeypatch.setattr("study.engine.run._train", lambda *_: pytest.fail("killed"))
    with pytest.raises(BaseException, match="killed"):
        here(*words)
    with monkeypatch.context() as patch:
        # The label is deleted by then.
        patch.setattr("optuna.create_study", lambda **_: pytest.fail("killed"))
        with pytest.raises(BaseException, match="killed"):
            here(*words)
    assert open_storage(tmp_path / "small", None).get_all_studies() == []
    monkeypatch.undo()
    here(*words)
    assert here_json("status", "small", "--storage", tmp_path)["methods"]["focal"]["complete"] == 1


def test_the_openings_of_a_confirmation_are_not_begun_again(tmp_path: Path) -> None:
    """Nor its trials: `confirm` opens a ledger too."""
    run_in(tmp_path, tmp_path / "mount" / "ledger.log", methods=["cross_entropy"], trials=1)
    confirm = ("confirm", "small", "--top", 1, "--seeds", 1, "--storage", tmp_path)
    here(*confirm)
    assert open_study("small-confirm", str(tmp_path)).recorded.ledger_made is True
    shutil.rmtree(tmp_path / "mount")
    before = content(tmp_path)
    for words in (confirm, ("status", "small-confirm", "--storage", tmp_path)):
        assert "is missing, but the study at" in here(*words, check=2)
        assert content(tmp_path) == before


def test_a_study_whose_ledger_is_gone_can_be_deleted(tmp_path: Path) -> None:
    run_in(tmp_path, tmp_path / "mount" / "ledger.log", trials=1)
    shutil.rmtree(tmp_path / "mount")
    here("delete", "small", "--yes", "--storage", tmp_path)
    assert not (tmp_path / "small").exists() and not (tmp_path / "mount").exists()


# ---- while a driver runs -------------------------------------------------------------------------


def unmount(folder: Path) -> None:
    folder.rename(folder.with_name("away"))


def mount_an_older_one(folder: Path) -> None:
    lines = (folder / "ledger.log").read_bytes().splitlines(keepends=True)
    (folder / "ledger.log").write_bytes(b"".join(lines[:-1]))


@pytest.mark.parametrize(
    ("lose", "problem"), [(unmount, "is missing"), (mount_an_older_one, "was replaced")]
)
def test_a_ledger_that_goes_away_is_not_made_anew(
    tmp_path: Path, lose: Callable[[Path], Any], problem: str
) -> None:
    folder = tmp_path / "mount"
    folder.mkdir()
    ledger = str(folder / "ledger.log")
    storage = open_storage(tmp_path, ledger)
    study = create_study(storage=storage, study_name="small/focal", directions=["maximize"])
    lose(folder)
    before = content(tmp_path)
    with pytest.raises(LedgerLost, match=f"{ledger} {problem}. Mount or restore it"):
        study.set_user_attr("calstudy", 1)
    assert content(tmp_path) == before


def test_a_run_ends_with_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ledger goes away before its second trial is told."""
    from study.store.ledger import Ledger

    tell = Ledger.tell

    def told(self: Ledger, label: str, number: int, *rest: Any) -> Any:
        if number == 1:
            unmount(tmp_path / "mount")
        return tell(self, label, number, *rest)

    monkeypatch.setattr(Ledger, "tell", told)
    spec = write_spec(
        tmp_path / "small.yaml",
        methods=["focal"],
        trials=2,
        epochs=1,
        ledger=str(tmp_path / "mount/ledger.log"),
    )
    said = here("run", spec, "--storage", tmp_path, check=1)
    assert (
        f"calstudy: the ledger {tmp_path}/mount/ledger.log is missing. Mount or restore it" in said
    )
    assert "Traceback" not in said and not (tmp_path / "mount").exists()
    (tmp_path / "away").rename(tmp_path / "mount")
    monkeypatch.undo()
    here("run", spec, "--storage", tmp_path)
    assert here_json("status", "small", "--storage", tmp_path)["methods"]["focal"]["complete"] == 2


# ---- one journal under two names -----------------------------------------------------------------


def hard_link(journal: Path, folder: Path) -> Path:
    (folder / "hard.log").hardlink_to(journal)
    return folder / "hard.log"


def symbolic_link(journal: Path, folder: Path) -> Path:
    (folder / "soft.log").symlink_to(journal)
    return folder / "soft.log"


def linked_folder(journal: Path, folder: Path) -> Path:
    (folder / "there").symlink_to(journal.parent)
    return folder / "there" / journal.name


@pytest.mark.parametrize("own", [True, False], ids=["a study's own", "elsewhere"])
@pytest.mark.parametrize(
    "name",
    [
        hard_link,
        symbolic_link,
        linked_folder,
        lambda journal, folder: folder / ".." / journal.parent.name / "ledger.log",
    ],
    ids=["hard link", "symbolic link", "linked folder", "dots"],
)
def test_one_journal_under_two_names_has_one_driver(
    tmp_path: Path, name: Callable[[Path, Path], Path], own: bool
) -> None:
    for folder in ("a", "b", "elsewhere"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "study.yaml").write_text("recorded: {}")
    (tmp_path / "elsewhere" / "study.yaml").unlink()
    journal = tmp_path / ("a" if own else "elsewhere") / "ledger.log"
    open_storage(journal.parent, None)
    other = str(name(journal, tmp_path / "b"))
    locks = [(tmp_path / "a", None if own else str(journal)), (tmp_path / "b", other)]
    for first, second in (locks, locks[::-1]):
        with (
            driver_lock(*first),
            pytest.raises(LedgerError, match="another calstudy process"),
            driver_lock(*second),
        ):
            pass
        with driver_lock(*second):
            open_storage(journal.parent, None).get_all_studies()  # it can be read, and written
            create_study(storage=open_storage(tmp_path / "b", other), study_name=str(first))


@pytest.mark.parametrize(
    ("spec", "names"), [("name: a", ("a.log", "ledger.log")), ("recorded: {}", ("a.log", "b.log"))]
)
def test_journals_beside_a_study_yaml_are_locked_apart(
    tmp_path: Path, spec: str, names: tuple[str, str]
) -> None:
    """A spec of that name, or a study's, whose folder has other studies' journals too."""
    (tmp_path / "study.yaml").write_text(spec)
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
    first, second = (str(tmp_path / name) for name in names)
    with driver_lock(tmp_path / "one", first), driver_lock(tmp_path / "two", second):
        assert not (tmp_path / "driver.lock").exists()
