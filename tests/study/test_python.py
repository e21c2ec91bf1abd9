"""A study in Python: its frames against the records and files they are of."""

import subprocess
import sys
from pathlib import Path

import pandas
import pytest
import torch

from study import Study
from study.schema.errors import SpecError
from tests.study.command_line import here, write_spec
from tests.study.made import made_study
from trainables.outputs.predictions import Predictions
from trainables.problems import FieldError


def some_predictions(label: str, number: int) -> Predictions:
    generator = torch.Generator().manual_seed(number)
    return Predictions(torch.randn(40, 10, generator=generator), torch.arange(40) % 10)


@pytest.fixture
def study(tmp_path: Path) -> Study:
    """Two complete trials and a failed one; focal/0001 is better in both objectives."""
    row = {
        "epoch": 1,
        "time": 1.7e9,
        "seconds": 2.0,
        "samples": 900,
        "train_loss": 0.5,
        "accuracy": 0.8,
    }
    trials = {
        "focal": [
            ({"accuracy": 0.8, "ece": 0.1}, [row, {**row, "epoch": 2, "accuracy": 0.9}]),
            ({"accuracy": 0.9, "ece": 0.05}, [row]),
        ],
        "mbls": [({}, [])],
    }
    made_study(tmp_path, "made", trials, predictions=some_predictions)
    return Study.open("made", storage=tmp_path)


def test_trials_are_rows(study: Study) -> None:
    frame = study.trials()
    assert list(frame.trial) == ["focal/0000", "focal/0001", "mbls/0000"]
    assert list(frame.state) == ["complete", "complete", "failed"] and list(frame.front) == [
        False,
        True,
        False,
    ]
    assert frame.accuracy.tolist()[:2] == [0.8, 0.9] and frame.accuracy.isna().tolist() == [
        False,
        False,
        True,
    ]
    assert str(frame.started.dtype).startswith("datetime64") and frame.started.dt.tz is not None
    assert frame.reason.notna().tolist() == [False, False, True]
    columns = ["trial", "method", "number", "state", "front"]
    assert list(frame)[:5] == columns and {
        "epoch",
        "samples",
        "seconds",
        "attempts",
        "ended",
        "device",
    } <= {*frame}


def test_epochs_are_rows(study: Study) -> None:
    frame = study.epochs()
    assert list(zip(frame.trial, frame.epoch, strict=True)) == [
        ("focal/0000", 1),
        ("focal/0000", 2),
        ("focal/0001", 1),
    ]
    assert (
        frame.time[0] == pandas.Timestamp("2023-11-14 22:13:20", tz="UTC")
        and frame.accuracy[1] == 0.9
    )


def test_the_front_and_predictions(study: Study) -> None:
    assert study.front().trial.tolist() == ["focal/0001"]
    found = study.predictions("focal/1")
    assert torch.equal(found.logits, some_predictions("focal", 1).logits)
    with pytest.raises(FieldError, match="there is no trial 'focl/1'"):
        study.predictions("focl/1")
    assert repr(study).startswith("Study('made': 2 complete, 1 failed, 1 to do; /")
    assert study.spec.name == "made"


def test_a_study_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="no study at"):
        Study.open("nowhere", storage=tmp_path)


@pytest.mark.slow
def test_a_spec_is_run_from_python(tmp_path: Path) -> None:
    spec = write_spec(tmp_path / "small.yaml", trials=1, methods=["cross_entropy"])
    study = Study.from_spec(spec, storage=tmp_path)
    assert study.trials().empty and study.epochs().empty and study.front().empty
    assert repr(study).startswith("Study('small': not run yet")
    # In a process of its own: another test may have joined Ray in this one.
    run = f"Study.from_spec({str(spec)!r}, {str(tmp_path)!r}).run()"
    code = f"from study import Study; print({run}.trials().state.tolist())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=280)
    assert done.stdout.splitlines()[-1:] == ["['complete']"], done.stderr
    assert Study.from_spec(spec, storage=tmp_path).front().trial.tolist() == ["cross_entropy/0000"]


@pytest.mark.slow
def test_trials_as_a_table(study: Study, tmp_path: Path) -> None:
    shown = here("trials", "made", "--storage", tmp_path)
    assert "focal/0001" in shown and "failed" in shown
    here("trials", "made", "--storage", tmp_path, "--csv", tmp_path / "all.csv")
    frame = pandas.read_csv(tmp_path / "all.csv")
    assert pandas.to_datetime(frame.started)[0] == study.trials().started[0].floor("s")
    assert frame.trial.tolist() == study.trials().trial.tolist() and frame.ece.tolist()[:2] == [
        0.1,
        0.05,
    ]
