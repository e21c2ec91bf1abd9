"""`sys.exit` in a user's own code is an error that names its file, never the silent end
of a command or a trial."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from study.store.study import open_study
from tests.study.command_line import here, write_spec
from trainables.plugins import use_extensions
from trainables.training.trainable import CalibrationTrainable

METHOD = """
import sys
from dataclasses import dataclass
from trainables.methods.cross_entropy import CrossEntropy

@dataclass(frozen=True)
class Mine(CrossEntropy):
    def loss(self, logits, targets, progress):
        {line}
"""
DATA = """
import hashlib, sys
from dataclasses import dataclass
from trainables.dataset import Dataset

@dataclass(frozen=True)
class Leaves(Dataset):
    def source_digest(self):
        return hashlib.sha256(b"leaves").hexdigest()

    def read(self):
        sys.exit()
"""


@pytest.fixture(autouse=True)
def own_names_only() -> Iterator[None]:
    yield
    use_extensions(None)


def write(folder: Path, name: str, text: str, **keys: Any) -> Path:
    (folder / "ours" / name).parent.mkdir(parents=True)
    (folder / "ours" / name).write_text(text)
    return write_spec(
        folder / "small.yaml", trials=1, epochs=1, extensions="ours", search_space={}, **keys
    )


@pytest.mark.parametrize("command", ["plan", "run", "doctor"])
def test_at_import(command: str, tmp_path: Path) -> None:
    spec = write(tmp_path, "methods/mine.py", "import sys\nsys.exit()\n", methods=["mine"])
    said = here(command, spec, "--storage", tmp_path, check=2)
    assert said == "small.yaml: extensions: methods/mine.py: cannot be imported: SystemExit.\n"
    assert not (tmp_path / "small").exists()


def test_wherever_else_a_command_runs_it(tmp_path: Path) -> None:
    spec = write(tmp_path, "data/leaves.py", DATA, data="leaves")
    said = here("plan", spec, "--storage", tmp_path, check=2).splitlines()[-1]
    place = "data/leaves.py, line 12, in read"
    assert said == (
        f"extensions: {place}: it ends the process (SystemExit). Raise an error instead."
    )


@pytest.mark.slow
def test_in_a_trial(tmp_path: Path) -> None:
    codes = {"number": "3", "nothing": "", "text": "'no more data'"}
    errors = {"number": ": 3", "nothing": "", "text": ": no more data"}
    folder = tmp_path / "ours" / "methods"
    folder.mkdir(parents=True)
    for name, code in codes.items():
        text = METHOD.format(line=f"sys.exit({code})")
        (folder / f"{name}.py").write_text(text.replace("Mine", name.capitalize()))
    keys: dict[str, Any] = {"trials": 1, "epochs": 1, "extensions": "ours", "search_space": {}}
    spec = write_spec(tmp_path / "small.yaml", methods=[*codes, "cross_entropy"], **keys)
    here("run", spec, "--storage", tmp_path)
    found = {record.label: record for record in open_study("small", str(tmp_path)).records()}
    assert found["cross_entropy"].state == "complete"
    for name, error in errors.items():
        assert (found[name].state, found[name].attempt) == ("failed", 1)
        assert found[name].reason == f"methods/{name}.py, line 9, in loss: SystemExit{error}"


def test_a_signal_that_comes_meanwhile_is_no_failure_of_the_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray's handler of SIGTERM raises SystemExit in whatever runs; the trial goes
    on in another process."""
    # Python runs a handler on top of the frame it interrupts.
    handler = (
        "exec('def handler():\\n    raise SystemExit(1)\\nhandler()', {'__name__':"
        " 'ray._private.worker'})"
    )
    spec = write(tmp_path, "methods/mine.py", METHOD.format(line=handler), methods=["mine"])
    ended = []
    step = CalibrationTrainable.step

    def watched(self: Any) -> Any:
        try:
            return step(self)
        except SystemExit as error:
            ended.append(error.code)
            raise

    monkeypatch.setattr(CalibrationTrainable, "step", watched)
    here("run", spec, "--storage", tmp_path, check=1)
    assert ended == [1]
    (record,) = open_study("small", str(tmp_path)).records()
    assert (record.state, record.reason) == ("running", None)


RAISES = "        raise KeyError('no such column')\n"


def test_what_a_command_runs_and_fails_is_said_with_its_line(tmp_path: Path) -> None:
    spec = write(
        tmp_path, "data/leaves.py", DATA.replace("        sys.exit()\n", RAISES), data="leaves"
    )
    said = here("plan", spec, "--storage", tmp_path, check=2).splitlines()[-1]
    assert said == "extensions: data/leaves.py, line 12, in read: KeyError: 'no such column'."


@pytest.mark.slow
def test_a_loss_that_is_no_mean(tmp_path: Path) -> None:
    spec = write(
        tmp_path, "methods/mine.py", METHOD.format(line="return logits[:, 0]"), methods=["mine"]
    )
    said = (
        "methods/mine.py, line 8, in loss: a loss is one number that depends on the logits, got a"
        " tensor [64]. Return the mean over the batch."
    )
    assert said in here("run", spec, "--storage", tmp_path, check=1)
    probed = here("plan", spec, "--probe", "--storage", tmp_path / "other", check=2)
    assert probed.splitlines()[-1] == f"small.yaml: extensions: {said}"
