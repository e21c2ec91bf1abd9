"""What MLflow is left with when a run is ended before it could end in order."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from study.engine import run
from study.machines.stopping import Stopping
from study.terminal.console import OurConsole
from study.terminal.display import ConsoleDisplay
from study.terminal.steps import Steps
from study.tracking import projection
from tests.study.made import made_study

TRIAL = ({"accuracy": 0.9, "ece": 0.1}, [])


class Mirror:
    """A projection that notes whether it was told that the study is complete."""

    trouble = None
    whole = True
    told: ClassVar[list[bool]] = []

    def __init__(self, *words: Any) -> None:
        self.told.clear()

    def __enter__(self) -> "Mirror":
        return self

    def __exit__(self, *fault: object) -> None:
        pass

    def close(self, complete: bool, patience: float) -> int:
        self.told.append(complete)
        return 0


@pytest.mark.parametrize(("planned", "complete"), [(1, True), (2, False)])
def test_a_run_that_is_ended_says_whether_its_study_is_complete(
    planned: int, complete: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A finished study was KILLED in MLflow until its next run."""
    study = made_study(tmp_path, "made", {"focal": [TRIAL]}, planned=planned)
    monkeypatch.setattr(projection, "Projection", Mirror)
    monkeypatch.setattr(run, "_tune", lambda *words: None)
    ledger: Any = SimpleNamespace(trials=study.records, notes=lambda label: {})
    console, stopping = OurConsole(quiet=True), Stopping()
    unused: Any = None  # by what stands for the training
    run._train(
        study,
        ledger,
        "sqlite://",
        unused,
        unused,
        ConsoleDisplay(console),
        Steps(console),
        stopping,
        {},
    )
    (act,) = stopping.last_acts
    Mirror.told.clear()
    act()
    assert Mirror.told == [complete]
    (study.directory / "ledger.log").write_text("")  # nobody can tell
    act()
    assert Mirror.told == [complete, False]
