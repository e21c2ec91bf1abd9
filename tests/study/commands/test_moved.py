"""A study that was copied to another disk goes on there, from its folder alone."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from study.audit import moved
from study.audit.moved import go_on_here
from study.store.driver_lock import driver_lock
from study.store.home import away_from_home, check_home, home_of
from study.store.ledger import Ledger, open_storage
from study.store.study import open_study, record_facts, write_study_file
from tests.study.command_line import here, interrupted_here, write_spec
from tests.study.made import OBJECTIVES, asked, made_study
from tests.study.made import unanswered as unanswered  # fixture
from tests.study.trained import digits

DONE = ({"accuracy": 0.9, "ece": 0.1}, [{"epoch": 1.0}])


def found(storage: Path) -> dict[str, object]:
    """Each trial's state, values and metrics."""
    records = open_study("small", str(storage)).records()
    return {each.name: (each.state, each.params, each.metrics) for each in records}


def made_copy(tmp_path: Path) -> tuple[Path, Path]:
    """A study with three trials of six, at home in its folder, and a copy."""
    directory = made_study(tmp_path / "old", "small", {"focal": [DONE] * 3}, planned=6).directory
    record_facts(directory, home=home_of(directory))
    shutil.copytree(directory, tmp_path / "new" / "small")
    return directory, tmp_path / "new" / "small"


def test_an_interrupted_study_from_elsewhere_is_finished_from_its_folder_alone(
    tmp_path: Path,
) -> None:
    spec = write_spec(tmp_path / "small.yaml", trials=2)
    interrupted_here(spec, tmp_path / "old")
    shutil.copytree(tmp_path / "old" / "small", tmp_path / "new" / "small")
    shutil.rmtree(tmp_path / "old")
    spec.unlink()
    copy = tmp_path / "new" / "small"
    refused = here("run", copy, check=2)
    mend = f"or, if that folder is gone: `calstudy run small --moved --storage {copy.parent}`"
    assert mend in refused
    shown = here("run", copy, "--moved")
    assert "small: 3 files match the ledger's digests" in shown
    assert f"{tmp_path}/old/small, of which this is a copy, is not seen from here" in shown
    assert found(copy.parent) == found(digits())
    here("audit", copy)
    assert "digests" not in here("run", copy, "--moved")  # the same command resumes it


def move(storage: Path) -> str:
    """What is said when the study there goes on."""
    return "\n".join(go_on_here(open_study("small", str(storage))))


def test_what_is_lost_or_damaged_is_named_and_nothing_recorded(tmp_path: Path) -> None:
    old, new = made_copy(tmp_path)
    old.rename(tmp_path / "away")
    before = (new / "study.yaml").read_bytes()
    (new / "trials/focal/0000/attempt-1/history.json").write_text("[]")
    (new / "trials/focal/0002/attempt-1/history.json").unlink()
    shown = here("run", new, "--moved", check=2)
    assert "  focal/0000: history.json has changed (its digest differs from the ledger)" in shown
    assert "  focal/0002: history.json is missing" in shown and "focal/0001" not in shown
    assert "is no whole copy: 2 of its files are missing or differ. Copy these again" in shown
    assert (new / "study.yaml").read_bytes() == before


def test_code_that_differs_is_named_and_not_imported(tmp_path: Path) -> None:
    old, new = made_copy(tmp_path)
    for directory in (old, new):
        ledger = Ledger(open_storage(directory, None), "small", "small")
        ledger.open("focal", OBJECTIVES)
        number = asked(ledger, "focal").number
        ledger.begin_attempt("focal", number)
        ledger.add_extensions("focal", number, {"methods/mine.py": "0" * 64})
    shutil.rmtree(old)
    (new / "extensions" / "methods").mkdir(parents=True)
    (new / "extensions" / "methods" / "mine.py").write_text("raise SystemExit('imported')\n")
    shown = here("run", new, "--moved", check=2)
    assert "  extensions: methods/mine.py is not what focal/0003 was trained with" in shown


# ---- two folders, one home -----------------------------------------------------------------------


def test_an_original_that_is_seen_is_marked_and_goes_on_no_more(tmp_path: Path) -> None:
    old, new = made_copy(tmp_path)
    assert f"{old}, of which this is a copy, is marked" in move(new.parent)
    check_home(open_study("small", str(new.parent)))
    assert f"{old}: is not the study's home, which is {new}." in here("run", old, check=2)
    assert "3 complete" in here("audit", old, check=1)  # it is still read


def test_the_second_of_two_copies_is_refused(tmp_path: Path) -> None:
    """The original's mark names the first; where that is gone, the original goes on again."""
    old, first = made_copy(tmp_path)
    second = tmp_path / "second" / "small"
    shutil.copytree(old, second)
    move(first.parent)
    before = (second / "study.yaml").read_bytes()
    said = here("run", second, "--moved", check=2)
    assert f"is a second copy of {old}, which has gone on in {first}. Go on there" in said
    assert (second / "study.yaml").read_bytes() == before
    shutil.rmtree(first)
    assert f"`calstudy run small --moved --storage {old.parent}`" in here("run", old, check=2)
    move(old.parent)
    assert f"{old}, of which this is a copy, is marked" in move(second.parent)


def test_a_copy_of_a_copy_goes_on(tmp_path: Path) -> None:
    _, first = made_copy(tmp_path)
    move(first.parent)
    second = tmp_path / "second" / "small"
    shutil.copytree(first, second)
    assert f"{first}, of which this is a copy, is marked" in move(second.parent)
    assert f"{first}: is not the study's home, which is {second}." in here("run", first, check=2)
    shown = here("status", first)
    moved_here = f"calstudy run small --moved --storage {first.parent}"
    assert f"if that folder is gone: `{moved_here}`" in shown
    assert "Resume" not in shown


def test_an_original_that_cannot_be_marked_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = made_copy(tmp_path)
    record = moved.record_facts

    def read_only(directory: Path, **facts: object) -> None:
        if directory == old:
            raise OSError(30, "Read-only file system")
        record(directory, **facts)  # type: ignore[arg-type]

    monkeypatch.setattr(moved, "record_facts", read_only)
    assert f"{old} could not be marked (Read-only file system): never run" in move(new.parent)


def test_an_original_that_runs_or_went_on_is_not_left_behind(tmp_path: Path) -> None:
    old, new = made_copy(tmp_path)
    with driver_lock(old):
        assert f"{old}: another calstudy process" in here("run", new, "--moved", check=75)
    ledger = Ledger(open_storage(old, None), "small", "small")
    ledger.open("focal", OBJECTIVES)
    asked(ledger, "focal")
    said = here("run", new, "--moved", check=2)
    assert f"the ledgers of {old} and of its copy {new} differ. Go on with the original" in said


def test_another_study_in_the_place_of_the_original_is_left_alone(tmp_path: Path) -> None:
    old, new = made_copy(tmp_path)
    study = open_study("small", str(old.parent))
    write_study_file(replace(study, recorded=replace(study.recorded, id="another")))
    before = (old / "study.yaml").read_bytes()
    assert f"{old}, of which this is a copy, is not seen from here" in move(new.parent)
    assert (old / "study.yaml").read_bytes() == before


@pytest.mark.usefixtures("unanswered")
def test_a_ledger_elsewhere_goes_with_the_copy_that_went_on(tmp_path: Path) -> None:
    """The original was on a disk that is away, and comes back: it shares the ledger."""
    ledger = tmp_path / "ledgers" / "small.log"
    keys = {"methods": ["cross_entropy"], "trials": 1, "ledger": str(ledger)}
    spec = write_spec(tmp_path / "small.yaml", **keys)
    old, new = tmp_path / "old" / "small", tmp_path / "new" / "small"
    here("run", spec, "--storage", old.parent)
    shutil.copytree(old, new)
    old.rename(tmp_path / "away")
    here("run", new, "--moved")
    (tmp_path / "away").rename(old)
    assert "belongs to a copy" in here("run", old, check=2)
    assert "belongs to a copy" in here("run", spec, "--storage", old.parent, check=2)
    here("run", new, "--trials", 2)
    here("delete", old, "--yes")
    assert len(found(new.parent)) == 2
    here("audit", new)


@pytest.mark.usefixtures("unanswered")
def test_killed_while_it_is_moved_no_folder_goes_on_until_it_is_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {"methods": ["cross_entropy"], "trials": 1, "ledger": str(tmp_path / "small.log")}
    old, new = tmp_path / "old" / "small", tmp_path / "new" / "small"
    here("run", write_spec(tmp_path / "small.yaml", **keys), "--storage", old.parent)
    shutil.copytree(old, new)
    study = open_study("small", str(new.parent))
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(moved, "open_directory", gone)
        patch.setattr(moved, "record_facts", killed)
        list(go_on_here(study))
    assert "belongs to a copy" in here("run", old, check=2)
    assert "is not the study's home" in here("run", new, check=2)
    here("run", new, "--moved", "--trials", 2)


def gone(directory: Path, reference: str) -> None:
    raise OSError


def killed(directory: Path, **facts: object) -> None:
    raise KeyboardInterrupt


def test_killed_once_the_original_is_marked_the_same_command_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = made_copy(tmp_path)
    record = moved.record_facts

    def killed_at(directory: Path, **facts: object) -> None:
        if directory == new:
            raise KeyboardInterrupt
        record(directory, **facts)  # type: ignore[arg-type]

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(moved, "record_facts", killed_at)
        move(new.parent)
    for folder in (old, new):
        assert away_from_home(open_study("small", str(folder.parent)))
    move(new.parent)
    assert not away_from_home(open_study("small", str(new.parent)))


def test_the_command_that_there_was_names_this_one() -> None:
    said = here("adopt", "small", "--yes", check=2)
    assert "`calstudy adopt` was removed. Go on in a copy: calstudy run STUDY --moved." in said
