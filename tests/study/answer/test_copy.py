"""A copy of a study without its confirmation's folder says that there is one, and
that test was opened."""

import json
import shutil
from pathlib import Path

import pytest
import yaml

from tests.study.command_line import here, here_json, write_spec

MISSING = "small was confirmed in small-confirm, which is not here"


@pytest.fixture(scope="module")
def confirmed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A storage with a study and its confirmation."""
    folder = tmp_path_factory.mktemp("confirmed")
    write_spec(folder / "small.yaml", methods=["cross_entropy"], trials=2, epochs=1)
    here("run", folder / "small.yaml", "--storage", folder / "studies")
    here("confirm", "small", "--storage", folder / "studies", "--seeds", 1)
    return folder / "studies"


@pytest.fixture
def copy(confirmed: Path, tmp_path: Path) -> Path:
    storage = tmp_path / "copy"
    storage.mkdir()
    shutil.copytree(confirmed / "small", storage / "small")
    shutil.copy(confirmed / "mlflow.db", storage)
    file = storage / "small" / "study.yaml"
    plain = yaml.safe_load(file.read_text())
    del plain["recorded"]["home"]  # as one does with a copy whose original is gone
    file.write_text(yaml.safe_dump(plain))
    return storage


def openings(storage: Path) -> int:
    plain = yaml.safe_load((storage / "small" / "study.yaml").read_text())
    return int(plain["recorded"]["confirmation"]["openings"])


def test_a_search_records_every_opening(confirmed: Path) -> None:
    rows = here_json("answer", "small", "--storage", confirmed)
    assert openings(confirmed) == 2  # the candidate and the method's default, one seed each
    assert MISSING not in json.dumps(rows)


@pytest.mark.parametrize("command", ["answer", "status", "report"])
def test_a_copy_says_what_it_lacks(command: str, copy: Path) -> None:
    shown = " ".join(here(command, "small", "--storage", copy).split())
    assert MISSING in shown and f"the test split has been opened {openings(copy)} times" in shown
    assert "not known yet" not in shown


@pytest.mark.parametrize(
    "command", [("export", "small", "--name", "m"), ("confirm", "small", "--seeds", 1)]
)
def test_a_copy_is_not_exported_or_confirmed_anew(command: tuple[object, ...], copy: Path) -> None:
    assert MISSING in " ".join(here(*command, "--storage", copy, check=2).split())


def test_an_audit_sees_a_record_that_does_not_agree(copy: Path, confirmed: Path) -> None:
    shutil.copytree(confirmed / "small-confirm", copy / "small-confirm")
    file = copy / "small" / "study.yaml"
    plain = yaml.safe_load(file.read_text())
    plain["recorded"]["confirmation"]["openings"] = 9
    file.write_text(yaml.safe_dump(plain))
    shown = " ".join(here("audit", "small", "--storage", copy, check=1).split())
    assert "it records 9 openings of the test split, small-confirm 2" in shown


# ---- moved ---------------------------------------------------------------------------------------


def copied(confirmed: Path, storage: Path, *names: str) -> tuple[str, Path]:
    """Copies of these studies, as another disk has them."""
    for name in names:
        shutil.copytree(confirmed / name, storage / name)
        file = storage / name / "study.yaml"
        plain = yaml.safe_load(file.read_text())
        plain["recorded"]["home"] = {"path": f"/disk/studies/{name}", "inode": 1}
        file.write_text(yaml.safe_dump(plain, sort_keys=False))
    return "--storage", storage


def test_openings_of_the_test_split_travel(confirmed: Path, tmp_path: Path) -> None:
    where = copied(confirmed, tmp_path, "small", "small-confirm")
    shown = here("confirm", "small", "--moved", *where)
    assert "2 openings of the test split come with it" in shown
    assert "/disk/studies/small, of which this is a copy, is not seen from here" in shown
    assert openings(tmp_path) == 2  # no model was measured again
    then, now = (
        json.dumps(here_json("answer", "small", "--storage", storage)).replace(str(storage), "")
        for storage in (confirmed, tmp_path)
    )
    assert now == then
    here("audit", "small-confirm", *where)


def test_the_test_split_is_not_opened_of_a_copy(confirmed: Path, tmp_path: Path) -> None:
    where = copied(confirmed, tmp_path, "small")
    file = tmp_path / "small" / "study.yaml"
    plain = yaml.safe_load(file.read_text())
    del plain["recorded"]["confirmation"]  # it was not confirmed when it was copied
    file.write_text(yaml.safe_dump(plain, sort_keys=False))
    said = here("confirm", "small", *where, check=2)
    assert f"`calstudy run small --moved --storage {tmp_path}`" in said
    assert not (tmp_path / "small-confirm").exists()


def test_a_confirmation_that_was_left_behind_is_named(confirmed: Path, tmp_path: Path) -> None:
    where = copied(confirmed, tmp_path, "small")
    shown = " ".join(here("run", "small", "--moved", *where).split())
    assert MISSING in shown and "Copy that folder here too." in shown
    copied(confirmed, tmp_path, "small-confirm")
    said = here("confirm", "small", *where, check=2)
    assert f"`calstudy confirm small --moved --storage {tmp_path}`" in said
    moved = here("confirm", "small", "--moved", *where)
    assert f"small-confirm goes on in {tmp_path}/small-confirm" in moved


def test_a_confirmation_older_than_the_openings_does_not_go_on(
    confirmed: Path, tmp_path: Path
) -> None:
    where = copied(confirmed, tmp_path, "small", "small-confirm")
    file = tmp_path / "small" / "study.yaml"
    plain = yaml.safe_load(file.read_text())
    plain["recorded"]["confirmation"]["openings"] = 9
    file.write_text(yaml.safe_dump(plain, sort_keys=False))
    shown = here("run", "small", "--moved", *where, check=2)
    assert "it records 9 openings of the test split, small-confirm 2" in shown


def test_a_damaged_result_on_test_is_named(confirmed: Path, tmp_path: Path) -> None:
    where = copied(confirmed, tmp_path, "small", "small-confirm")
    damaged = next(tmp_path.glob("small-confirm/trials/*/*/*/test.npz"))
    damaged.unlink()
    assert "test.npz is missing" in here("run", "small", "--moved", *where, check=2)
