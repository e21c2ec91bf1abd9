"""A study that was copied to another disk is adopted there, and goes on from its folder alone."""

import io
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from study.store import adoption
from study.store.driver_lock import driver_lock
from study.store.home import check_home, home_of
from study.store.ledger import Ledger, open_storage
from study.store.study import open_study, record_facts, write_study_file
from tests.study.command_line import here, interrupted_here, write_spec
from tests.study.made import OBJECTIVES, asked, made_study

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
    here("run", spec, "--storage", tmp_path / "whole")
    interrupted_here(spec, tmp_path / "old")
    shutil.copytree(tmp_path / "old" / "small", tmp_path / "new" / "small")
    shutil.rmtree(tmp_path / "old")
    spec.unlink()
    copy = tmp_path / "new" / "small"
    refused = here("run", copy, check=2)
    assert f"or, if that folder is gone: `calstudy adopt small --storage {copy.parent}`" in refused
    shown = here("adopt", copy, "--yes")
    assert f"small, copied from {tmp_path}/old/small: 1 complete" in shown
    assert "  3 files match the ledger's digests" in shown
    assert f"The original, {tmp_path}/old/small, is not seen from here." in shown
    assert f"Resume: calstudy run small --storage {copy.parent}\n" in shown
    here("run", copy)
    assert found(copy.parent) == found(tmp_path / "whole")
    here("audit", copy)
    assert "there is nothing to adopt" in here("adopt", copy)


def test_what_is_lost_or_damaged_is_named_and_nothing_recorded(tmp_path: Path) -> None:
    old, new = made_copy(tmp_path)
    old.rename(tmp_path / "away")
    before = (new / "study.yaml").read_bytes()
    (new / "trials/focal/0000/attempt-1/history.json").write_text("[]")
    (new / "trials/focal/0002/attempt-1/history.json").unlink()
    shown = here("adopt", new, "--yes", check=1)
    assert "  focal/0000: history.json has changed (its digest differs from the ledger)" in shown
    assert "  focal/0002: history.json is missing" in shown and "focal/0001" not in shown
    assert "nothing was adopted. Copy these files again" in shown
    assert (new / "study.yaml").read_bytes() == before
    here("adopt", new, "--yes", "--incomplete")
    check_home(open_study("small", str(new.parent)))


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
    shown = here("adopt", new, "--yes", check=1)
    assert "  extensions: methods/mine.py is not what focal/0003 was trained with" in shown


@pytest.mark.parametrize("answer", ["n\n", "\n"])
def test_it_asks_and_no_is_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    _, new = made_copy(tmp_path)
    before = (new / "study.yaml").read_bytes()
    monkeypatch.setattr("sys.stdin", io.StringIO(answer))
    shown = here("adopt", new, check=1)
    assert "Is every original gone, or never run again? [y/N]" in shown
    assert (new / "study.yaml").read_bytes() == before
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    assert f"small has its home in {new}" in here("adopt", new)


# ---- two folders, one home -----------------------------------------------------------------------


def test_an_original_that_is_seen_is_marked_and_goes_on_no_more(tmp_path: Path) -> None:
    old, new = made_copy(tmp_path)
    assert f"{old} is still there. It will be marked" in here("adopt", new, "--yes")
    check_home(open_study("small", str(new.parent)))
    assert f"{old}: is not the study's home, which is {new}." in here("run", old, check=2)
    assert "3 complete" in here("audit", old, check=1)  # it is still read


def test_a_second_copy_is_refused_once_the_first_went_on(tmp_path: Path) -> None:
    """The original's mark leads to the home that it has now."""
    old, first = made_copy(tmp_path)
    second = tmp_path / "second" / "small"
    shutil.copytree(old, second)
    here("adopt", first, "--yes")
    with driver_lock(first):
        said = here("adopt", second, "--yes", check=2)
        assert f"{first}: another calstudy process is running the original" in said
    before = (second / "study.yaml").read_bytes()
    ledger = Ledger(open_storage(first, None), "small", "small")
    ledger.open("focal", OBJECTIVES)
    asked(ledger, "focal")
    said = here("adopt", second, "--yes", check=2)
    assert f"the ledgers of {first} and of its copy {second} differ" in said
    assert (second / "study.yaml").read_bytes() == before
    first.rename(tmp_path / "away")
    assert f"The original, {first}, is not seen from here." in here("adopt", second, "--yes")
    assert f"this folder is not the study's home, which is {first}." in here("status", old)


def test_a_mark_goes_on_from_home_to_home(tmp_path: Path) -> None:
    old, first = made_copy(tmp_path)
    second = tmp_path / "second" / "small"
    shutil.copytree(old, second)
    here("adopt", first, "--yes")
    assert f"{first} is still there. It will be marked" in here("adopt", second, "--yes")
    assert f"{first}: is not the study's home, which is {second}." in here("run", first, check=2)
    check_home(open_study("small", str(second.parent)))
    shown = here("status", first)
    assert f"if that folder is gone: `calstudy adopt small --storage {first.parent}`" in shown
    assert "Resume" not in shown


def test_an_original_that_cannot_be_marked_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = made_copy(tmp_path)
    record = adoption.record_facts

    def read_only(directory: Path, **facts: object) -> None:
        if directory == old:
            raise OSError(30, "Read-only file system")
        record(directory, **facts)  # type: ignore[arg-type]

    monkeypatch.setattr(adoption, "record_facts", read_only)
    shown = here("adopt", new, "--yes")
    assert f"{old} could not be marked (Read-only file system): never run it again." in shown


def test_an_original_that_runs_or_went_on_is_not_left_behind(tmp_path: Path) -> None:
    old, new = made_copy(tmp_path)
    with driver_lock(old):
        said = here("adopt", new, "--yes", check=2)
        assert f"{old}: another calstudy process is running the original. Wait for it" in said
    ledger = Ledger(open_storage(old, None), "small", "small")
    ledger.open("focal", OBJECTIVES)
    asked(ledger, "focal")
    said = here("adopt", new, "--yes", check=2)
    assert f"the ledgers of {old} and of its copy {new} differ. Go on with the original" in said


def test_another_study_in_the_place_of_the_original_is_left_alone(tmp_path: Path) -> None:
    old, new = made_copy(tmp_path)
    study = open_study("small", str(old.parent))
    write_study_file(replace(study, recorded=replace(study.recorded, id="another")))
    before = (old / "study.yaml").read_bytes()
    assert f"The original, {old}, is not seen from here." in here("adopt", new, "--yes")
    assert (old / "study.yaml").read_bytes() == before


def test_a_ledger_elsewhere_goes_with_the_adopted_copy(tmp_path: Path) -> None:
    """The original was on a disk that is away, and comes back: it shares the ledger."""
    ledger = tmp_path / "ledgers" / "small.log"
    keys = {"methods": ["cross_entropy"], "trials": 1, "ledger": str(ledger)}
    spec = write_spec(tmp_path / "small.yaml", **keys)
    old, new = tmp_path / "old" / "small", tmp_path / "new" / "small"
    here("run", spec, "--storage", old.parent)
    shutil.copytree(old, new)
    old.rename(tmp_path / "away")
    here("adopt", new, "--yes")
    (tmp_path / "away").rename(old)
    assert "belongs to a copy" in here("run", old, check=2)
    assert "belongs to a copy" in here("run", spec, "--storage", old.parent, check=2)
    here("run", new, "--trials", 2)
    here("delete", old, "--yes")
    assert len(found(new.parent)) == 2
    here("audit", new)


def test_killed_while_it_is_adopted_no_folder_goes_on_until_it_is_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {"methods": ["cross_entropy"], "trials": 1, "ledger": str(tmp_path / "small.log")}
    old, new = tmp_path / "old" / "small", tmp_path / "new" / "small"
    here("run", write_spec(tmp_path / "small.yaml", **keys), "--storage", old.parent)
    shutil.copytree(old, new)
    study = open_study("small", str(new.parent))
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(adoption, "record_facts", killed)
        adoption.adopt(study, None)
    assert "belongs to a copy" in here("run", old, check=2)
    assert "is not the study's home" in here("run", new, check=2)
    here("adopt", new, "--yes")
    here("run", new, "--trials", 2)


def killed(directory: Path, **facts: object) -> None:
    raise KeyboardInterrupt
