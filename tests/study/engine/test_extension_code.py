"""A user's own code is part of what a trial means: recorded with it, and no
change goes unnoticed."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from study.audit.audit import audit
from study.store.ledger import Ledger
from study.store.study import open_study
from tests.study.command_line import here, write_spec
from tests.study.made import unanswered as unanswered  # fixture
from trainables.plugins import use_extensions
from trainables.training.attempt import Attempt
from trainables.training.device import NodeUnfit
from trainables.training.trainable import CalibrationTrainable

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("unanswered")]

MINE = """
from dataclasses import dataclass
from trainables.methods.cross_entropy import CrossEntropy

@dataclass(frozen=True)
class Mine(CrossEntropy):
    def loss(self, logits, targets, progress):
        return 2 * super().loss(logits, targets, progress)
"""
OTHER = MINE.replace("Mine", "Other").replace("return 2", "return 3")
UNUSED = MINE.replace("Mine", "Unused")
SHARED = "FACTOR = 4\n"
# Has another file's class as its base, finds one more only when it trains, and mentions Mine, mine.
BY_NAME = """
import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path
from trainables.methods import find

spec = importlib.util.spec_from_file_location("_shared", Path(__file__).with_name("_shared.py"))
sys.modules["_shared"] = shared = importlib.util.module_from_spec(spec)
spec.loader.exec_module(shared)

@dataclass(frozen=True)
class ByName(find("other")):
    def loss(self, logits, targets, progress):
        assert find("late").__name__ == "Late"
        return super().loss(logits, targets, progress)
"""


@pytest.fixture(autouse=True)
def own_names_only() -> Iterator[None]:
    yield
    use_extensions(None)


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    files = {
        "methods/mine.py": MINE,
        "methods/unused.py": UNUSED,
        "methods/.mine.py.swp": "an editor's",
    }
    for name, text in files.items():
        (tmp_path / "ours" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "ours" / name).write_text(text)
    return with_methods(tmp_path, "mine", "cross_entropy")


def with_methods(folder: Path, *methods: str, trials: int = 1) -> Path:
    return write_spec(
        folder / "small.yaml", methods=[*methods], trials=trials, epochs=1, extensions="ours"
    )


def edit(file: Path, before: str = "return 2", after: str = "return 7") -> None:
    text = file.read_text()
    assert before in text
    file.write_text(text.replace(before, after))


def content(folder: Path) -> dict[Path, bytes]:
    return {
        path: path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }


CHANGED = (
    "small.yaml: extensions: methods/mine.py has changed since trial mine/0000 was trained with it."
    " Restore it, or copy it to a new name.\n"
)


def test_a_change_of_what_a_trial_used_is_refused_and_nothing_is_written(
    spec: Path, tmp_path: Path
) -> None:
    here("run", spec, "--storage", tmp_path)
    study, file = open_study("small", str(tmp_path)), tmp_path / "ours" / "methods" / "mine.py"
    of = {record.name: record.extensions for record in study.records()}
    assert of == {
        "mine/0000": {"methods/mine.py": hashlib.sha256(MINE.encode()).hexdigest()},
        "cross_entropy/0000": {},
    }
    edit(file)
    before = content(study.directory)
    assert here("run", spec, "--storage", tmp_path, "--trials", 2, check=2) == CHANGED
    assert here("plan", spec, "--storage", tmp_path, check=2).endswith(CHANGED)
    file.rename(file.with_name("renamed.py"))
    (file.parent / "renamed.py").write_text(OTHER.replace("Other", "Renamed"))
    assert "there is no method 'mine'" in here("run", spec, "--storage", tmp_path, check=2)
    assert content(study.directory) == before

    # Restored, it goes on; so do changes of what no trial used, and a new file.
    file.write_text(MINE)
    edit(file.with_name("unused.py"))
    file.with_name("other.py").write_text(OTHER)
    here(
        "run",
        with_methods(tmp_path, "mine", "cross_entropy", "other", trials=2),
        "--storage",
        tmp_path,
    )
    assert {record.name for record in study.records()} > {"mine/0001", "cross_entropy/0001"}
    grown = open_study("small", str(tmp_path))
    assert set(grown.records().of("other")[1].extensions) == {"methods/other.py"}
    assert (study.directory / "extensions" / "methods" / "unused.py").read_text() == UNUSED.replace(
        "2 *", "7 *"
    )
    assert "clean" in here("audit", "small", "--storage", tmp_path)


# What a trial of ByName imports, and what is no Python.
COUNTING = {
    "methods/by_name.py": BY_NAME,
    "methods/other.py": OTHER,
    "methods/late.py": MINE.replace("Mine", "Late"),
    "methods/_shared.py": SHARED,
    "data/weights.json": "[1]",
}
NOT_COUNTING = {"methods/_unread.py": "", "methods/README": "", "data/notes.md": "By name."}


def test_what_a_trial_imported_counts_and_what_is_no_python(tmp_path: Path, spec: Path) -> None:
    ours = tmp_path / "ours"
    (ours / "data").mkdir()
    for name, text in (COUNTING | NOT_COUNTING).items():
        (ours / name).write_text(text)
    methods = ("other", "by_name", "cross_entropy")
    here("run", with_methods(tmp_path, *methods), "--storage", tmp_path)
    study = open_study("small", str(tmp_path))
    of = {record.label: record.extensions for record in study.records()}
    assert of == {
        "other": digests({"methods/other.py": OTHER, "data/weights.json": "[1]"}),
        "by_name": digests(COUNTING),
        "cross_entropy": {},
    }
    # Nor does a method of another name, even one that a file mentions which a trial has used.
    for name in ("methods/mine.py", "methods/unused.py", *NOT_COUNTING):
        (ours / name).write_text((ours / name).read_text() + "# more\n")
    spec = with_methods(tmp_path, *methods, trials=2)
    here("run", spec, "--storage", tmp_path)
    first, second = study.records().of("by_name")
    assert first.extensions == second.extensions == digests(COUNTING)
    assert "clean" in here("audit", "small", "--storage", tmp_path)
    for name, text in COUNTING.items():
        (ours / name).write_text(f"{text}\n")
        refused = here("run", spec, "--storage", tmp_path, check=2)
        assert f"{name} has changed since trial " in refused
        (ours / name).write_text(text)
    (ours / "methods" / "_shared.py").unlink()
    assert "_shared.py" in here("run", spec, "--storage", tmp_path, check=2)


def digests(files: dict[str, str]) -> dict[str, str]:
    return {name: hashlib.sha256(text.encode()).hexdigest() for name, text in files.items()}


class Killed(BaseException):
    pass


@pytest.mark.parametrize("at", ["before the attempt", "before training", "in training"])
def test_a_trial_in_progress_counts_wherever_it_was_killed(
    at: str, spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As soon as something is trained with them, its files are in the ledger."""
    really = Ledger.begin_attempt

    def begin(ledger: Ledger, label: str, number: int, *extensions: Any) -> int:
        written = type(ledger._storage).set_trial_user_attr

        def killed(storage: Any, trial: int, key: str, value: Any) -> None:
            if key == "attempt" and at == "before the attempt":
                raise Killed
            written(storage, trial, key, value)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(ledger._storage), "set_trial_user_attr", killed)
            attempt = really(ledger, label, number, *extensions)
        if at == "before training":
            raise Killed
        return attempt

    def advance(self: Any, learner: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "begin_attempt", begin)
        patch.setattr(Attempt, "_advance", advance)
        with pytest.raises(Killed):
            here("run", spec, "--storage", tmp_path)
    (record,) = open_study("small", str(tmp_path)).records()
    assert (record.state, record.attempt) == ("running", 0 if at == "before the attempt" else 1)
    edit(tmp_path / "ours" / "methods" / "mine.py")
    if at != "in training":  # nothing was trained with it
        here("run", spec, "--storage", tmp_path)
        (record,) = open_study("small", str(tmp_path)).records().of("mine")
        now = MINE.replace("2 *", "7 *")
        assert record.extensions == {"methods/mine.py": hashlib.sha256(now.encode()).hexdigest()}
    else:
        assert here("run", spec, "--storage", tmp_path, check=2) == CHANGED


def test_an_edit_while_trials_run_changes_none_of_them(
    spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They use the study's copy; a machine that sees another file does not train."""
    begin, outcomes = CalibrationTrainable.setup, []

    def edited(self: Any, config: Any) -> None:
        file = tmp_path / "ours" / "methods" / "mine.py"
        file.write_text(MINE.replace("return 2", "raise SystemError('edited')"))
        if len(outcomes) == 1:
            copy = tmp_path / "small" / "extensions" / "methods" / "mine.py"
            text = copy.read_text()
            copy.write_text(text + "# other bytes\n")
            begin(self, config)
            with pytest.raises(NodeUnfit) as unfit:
                self.step()
            outcomes.append(str(unfit.value))
            copy.write_text(text)
        begin(self, config)
        outcomes.append(None)

    monkeypatch.setattr(CalibrationTrainable, "setup", edited)
    here("run", with_methods(tmp_path, "mine", trials=2), "--storage", tmp_path)
    found = open_study("small", str(tmp_path)).records().of("mine")
    assert [record.state for record in found] == ["complete", "complete"]
    assert "has another" in outcomes[1]
    assert "extensions/methods/mine.py than the driver" in outcomes[1]


def test_a_confirmation_uses_the_code_of_the_search_or_none(spec: Path, tmp_path: Path) -> None:
    here("run", spec, "--storage", tmp_path)
    copy = tmp_path / "small" / "extensions" / "methods" / "mine.py"
    edit(tmp_path / "ours" / "methods" / "mine.py")  # the search's copy is what counts
    edit(copy)
    wanted = ("confirm", "small", "--trial", "mine/0", "--seeds", 1, "--storage", tmp_path)
    refused = here(*wanted, check=2)
    assert "small: extensions: methods/mine.py has changed since trial mine/0000" in refused
    assert not (tmp_path / "small-confirm").exists()
    copy.write_text(MINE)
    here(*wanted)
    retrained = {
        record.label: set(record.extensions)
        for record in open_study("small-confirm", str(tmp_path)).records()
    }
    assert retrained == {"mine_0000_default": {"methods/mine.py"}, "cross_entropy_default": set()}


def rewrite_recorded(storage: Path, change: Any) -> None:
    """Change the digests in the journal's lines."""
    log = storage / "small" / "ledger.log"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    lines = [line for line in lines if change(line) is not None]
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_the_audit_compares_what_is_recorded_and_counts_what_is_not(
    spec: Path, tmp_path: Path
) -> None:
    here("run", with_methods(tmp_path, "mine", "cross_entropy", trials=2), "--storage", tmp_path)

    def check() -> Any:
        study = open_study("small", str(tmp_path))
        report = audit(study, study.tracking(None))
        (found,) = [check for check in report.checks if check.name == "extensions"]
        assert all(not other.offenders for other in report.checks if other is not found)
        return found

    found = check()
    assert (found.counted, found.offenders, found.notes) == (2, [], [])
    edit(copy := tmp_path / "small" / "extensions" / "methods" / "mine.py")
    assert [offender.name for offender in check().offenders] == ["extensions/methods/mine.py"]
    copy.write_text(MINE)

    seen: list[Any] = []

    def second_differs(line: Any) -> Any:
        if "extensions" in line.get("user_attr", {}):
            seen.append(line)
            if len(seen) == 2:
                line["user_attr"]["extensions"]["methods/mine.py"] = "0" * 64
        return line

    rewrite_recorded(tmp_path, second_differs)
    (offender,) = check().offenders
    assert (offender.name, offender.problem) == (
        "mine/0001",
        "was trained with another methods/mine.py than mine/0000",
    )
