"""`calstudy run` of a study that is named, without its spec: it goes on as it was recorded."""

import os
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from study.engine.run import _resumes
from study.machines.early_signals import last_word
from study.schema import reading
from study.schema.errors import SpecError
from study.schema.recommendations import Recommended
from study.schema.wait import Wait
from study.store.from_record import (
    brought_by,
    find_to_run,
    recorded_spec,
    refuse_another_users,
)
from study.store.study import StudyFolder, open_study, write_study_file
from tests.shared import made_once
from tests.study.command_line import here, here_json, interrupted_here, write_spec
from tests.study.made import made_study
from tests.study.made import unanswered as unanswered  # fixture
from tests.study.trained import copy_of, digits

pytestmark = pytest.mark.usefixtures("unanswered")


def found(storage: Path) -> dict[str, object]:
    """Each trial's state, values and metrics."""
    records = open_study("small", str(storage)).records()
    return {each.name: (each.state, each.params, each.metrics) for each in records}


@pytest.fixture(scope="module")
def whole() -> dict[str, object]:
    """What a study that was never interrupted finds."""
    return found(digits())


def make_interrupted(folder: Path) -> None:
    spec = write_spec(folder / "mine.yaml", trials=2)
    interrupted_here(spec, folder)
    spec.unlink()


def test_it_goes_on_from_its_record_alone(tmp_path: Path, whole: dict[str, object]) -> None:
    copy_of(made_once("interrupted", make_interrupted), tmp_path)
    states = here_json("status", "small", "--storage", tmp_path)["methods"].values()
    assert sum(each["complete"] + each["excluded"] for each in states) == 1
    shown = here("run", "small", "--storage", tmp_path)
    assert f"from the record in {tmp_path}/small" in shown
    assert found(tmp_path) == whole
    here("audit", "small", "--storage", tmp_path)
    for given in (tmp_path / "small", tmp_path / "small" / "study.yaml"):
        assert find_to_run(str(given), str(tmp_path)).directory == tmp_path / "small"


def test_more_trials_and_the_tracking_of_its_last_run(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/elsewhere.db"
    spec = write_spec(tmp_path / "small.yaml", methods=["cross_entropy"], trials=1)
    here("run", spec, "--storage", tmp_path, "--tracking", uri)
    shown = here("run", "small", "--storage", tmp_path, "--trials", 2)
    assert f"from the record in {tmp_path}/small: it brings {uri}\n" in shown
    study = open_study("small", str(tmp_path))
    assert (study.planned, len(study.records().finished), study.tracking(None)) == (2, 2, uri)
    said = here("run", "small", "--storage", tmp_path, "--trials", 1, check=2)
    assert "trials: cross_entropy has begun 2 trials, and 1 are planned. Write at least 2" in said
    assert open_study("small", str(tmp_path)).planned == 2


def test_its_ranges_are_those_that_it_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = made_study(tmp_path, "small", {"focal": []}, planned=2)
    then = study.spec.meaning()
    monkeypatch.setattr(reading, "recommendation", lambda trial, on: Recommended({}, []))
    assert reading.parse_mapping(study.plain, "study.yaml").spec().meaning() != then
    spec = recorded_spec(open_study("small", str(tmp_path)), trials=5)
    assert (spec.meaning(), spec.trials) == (then, 5)


# ---- what is meant -------------------------------------------------------------------------------


def test_where_two_could_be_meant_it_says_which(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CALSTUDY_STORAGE", raising=False)
    stored = made_study(tmp_path / "studies", "small", {"focal": []}).directory
    assert find_to_run("small", None).directory == stored
    (tmp_path / "small").mkdir()  # say, of data
    assert find_to_run("small", None).directory == stored
    (tmp_path / "small").rmdir()
    write_spec(tmp_path / "small")
    one = find_to_run("small", None)
    assert (one.directory, one.file) == (None, Path("small"))
    other = f"for the study in the storage: calstudy run {stored}"
    assert one.note == f"the spec small is taken; {other}"
    (tmp_path / "small").unlink()
    beside = made_study(tmp_path, "small", {"focal": []}).directory
    one = find_to_run("small", None)
    assert (one.directory, one.note) == (beside, f"the study in {beside} is taken; {other}")
    monkeypatch.chdir(tmp_path / "studies")
    monkeypatch.setenv("CALSTUDY_STORAGE", str(tmp_path / "studies"))
    assert find_to_run("small", None).note == ""  # both names are of one study


def test_what_is_not_there_is_said_with_what_is(tmp_path: Path) -> None:
    made_study(tmp_path, "small", {"focal": []})
    where = ("--storage", tmp_path)
    said = here("run", "smal", *where, check=2)
    assert f"no study at {tmp_path}/smal." in said and "Existing studies: small." in said
    said = here("run", tmp_path / "small.yaml", *where, check=2)
    assert f"To go on with the study 'small': calstudy run small --storage {tmp_path}" in said
    said = here("run", tmp_path / "small", "--storage", tmp_path / "other", check=2)
    assert f"--storage: is {tmp_path}/other, but the study lies in {tmp_path}." in said


def test_a_record_is_no_spec(tmp_path: Path) -> None:
    file = made_study(tmp_path, "small", {"focal": []}).directory / "study.yaml"
    kept = tmp_path / "kept.yaml"
    kept.write_text(file.read_text())
    for words in (("run", kept), ("plan", file), ("doctor", file)):
        said = here(*words, "--storage", tmp_path / "other", check=2)
        assert "recorded: this is the record of the study 'small', not a spec." in said


def test_a_confirmation_says_what_resumes_it(tmp_path: Path) -> None:
    study = made_study(tmp_path, "small-confirm", {"focal": []})
    write_study_file(replace(study, plain={**study.plain, "confirms": "small"}))
    said = here("run", "small-confirm", "--storage", tmp_path, check=2)
    assert f"Run `calstudy confirm small --storage {tmp_path}`." in said


# ---- what it brings ------------------------------------------------------------------------------


def bringing(study: StudyFolder, **keys: object) -> StudyFolder:
    """The study with keys of its spec that a reader cannot check; they name what must not be
    used."""
    (study.directory / "extensions" / "methods").mkdir(parents=True)
    code = study.directory / "extensions" / "methods" / "mine.py"
    code.write_text(f"open({str(study.directory / 'ran')!r}, 'w')\nraise OSError('mine')\n")
    write_study_file(replace(study, plain={**study.plain, "extensions": "extensions", **keys}))
    return open_study(study.name, str(study.directory.parent))


def test_what_it_brings_is_its_code_and_the_server_it_names(tmp_path: Path) -> None:
    made = made_study(tmp_path, "small", {"focal": []})
    study = bringing(made, tracking="https://maria:secret@mlflow.example.org")
    code = "extensions/methods/mine.py"
    assert brought_by(study) == [code, "https://mlflow.example.org"]
    assert brought_by(study, "TEAM_MLFLOW") == [code]  # its own is not asked
    named = replace(made, plain={**made.plain, "tracking": "TEAM_MLFLOW"})
    assert brought_by(named) == ["what the variable TEAM_MLFLOW holds"]


def test_code_of_another_user_runs_only_where_it_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = bringing(made_study(tmp_path, "small", {"focal": []}))
    mine = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: mine + 1)
    said = here("run", "small", "--storage", tmp_path, check=2)
    assert "would have you use extensions/methods/mine.py. Look at that; then add --trust." in said
    assert not (study.directory / "ran").exists()
    said = here("run", "small", "--storage", tmp_path, "--trust", check=2)
    assert "methods/mine.py: cannot be imported: OSError: mine" in said
    assert (study.directory / "ran").exists()


@pytest.mark.parametrize("theirs", ["", "study.yaml", "extensions/methods/mine.py"])
def test_one_file_of_another_user_is_enough(
    theirs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = bringing(made_study(tmp_path, "small", {"focal": []}))
    brought, stat = brought_by(study), Path.stat
    refuse_another_users(study, brought, trust=False)

    def owned(path: Path, **how: bool) -> os.stat_result:
        found = list(stat(path, **how))
        found[4] += path == study.directory / theirs  # st_uid
        return os.stat_result(found)

    monkeypatch.setattr(Path, "stat", owned)
    with pytest.raises(SpecError, match=r"would have you use extensions/methods/mine\.py"):
        refuse_another_users(study, brought, trust=False)
    refuse_another_users(study, brought, trust=True)


def test_a_server_that_another_user_names_is_asked_only_where_it_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = made_study(tmp_path, "small", {"focal": []})
    named = replace(study, plain={**study.plain, "tracking": "http://127.0.0.1:9"})
    write_study_file(named)
    mine = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: mine + 1)
    said = here("run", "small", "--storage", tmp_path, check=2)
    assert "would have you use http://127.0.0.1:9." in said
    refuse_another_users(named, brought_by(named), trust=True)
    plain = made_study(tmp_path / "plain", "small", {"focal": []})
    refuse_another_users(plain, brought_by(plain), trust=False)  # it brings neither


# ---- after an interruption -----------------------------------------------------------------------


def test_the_last_word_is_a_command_with_what_was_given(tmp_path: Path) -> None:
    study = made_study(tmp_path, "small", {"focal": []})
    where = f"--storage {tmp_path}"
    assert _resumes(study, None, 4) == f"calstudy run small --cpus 4 {where}"
    head = _resumes(study, "10.0.0.1:6379", None)
    assert head == f"calstudy run small --address 10.0.0.1:6379 {where}"
    waiting = _resumes(study, "10.0.0.1:6379", None, Wait("15m", 4))
    assert waiting == head.replace(":6379", ":6379 --wait 15m --nodes 4")
    assert last_word("SIGTERM", head) == f"stopped by SIGTERM. Resume: {head}"
    confirming = replace(study, plain={**study.plain, "confirms": "large"})
    assert shlex.split(str(_resumes(confirming, None, None)))[1:3] == ["confirm", "large"]
    assert _resumes(study, "auto", None) is None  # a job's log is read elsewhere
    assert last_word("SIGTERM").endswith("run the same command again to resume.")
