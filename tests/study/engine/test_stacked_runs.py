"""Whole studies with stacks: killed at each moment, a study comes to what no kill would have."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from study.audit.audit import audit
from study.engine import live
from study.store.ledger import Ledger
from study.store.study import StudyFolder, open_study
from tests.patience import wait_until
from tests.study.command_line import here, kill, start, write_spec
from tests.study.counting import counted_once
from trainables.training.stack import Stack
from trainables.training.trainable import CalibrationTrainable

pytestmark = [pytest.mark.slow, pytest.mark.platform]
# Of each of two methods; a stack takes eight of each, the second one what is left.
TRIALS, ROWS = 12, 16


def spec_in(folder: Path, **keys: Any) -> Path:
    """Rates of which the greatest diverge, so that rows end on the way."""
    return write_spec(
        folder / "small.yaml",
        methods=["cross_entropy", "focal"],
        search_space={"optimizer.lr": {"low": 0.01, "high": 1e5, "log": True}},
        trials=TRIALS,
        epochs=4,
        sampler={"name": "random", "seed": 1},
        stack=ROWS,
        checkpoint_seconds=0,
        **keys,
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The storage of a study that nothing disturbed."""
    folder = tmp_path_factory.mktemp("whole")
    here("run", spec_in(folder), "--storage", folder)
    return folder


def told(storage: Path) -> dict[str, Any]:
    """What must not depend on kills: the bits of a trial's predictions, and the rest of it."""
    return {
        one.name: (
            one.state,
            one.params,
            one.stack,
            one.digests.get("predictions.npz"),
            one.metrics,
            one.reason,
            one.epoch,
        )
        for one in open_study("small", str(storage)).records()
    }


def problems(study: StudyFolder) -> list[str]:
    checks = audit(study, study.tracking(None)).checks
    return [str(found) for check in checks for found in check.offenders]


def test_every_trial_is_one_of_its_stack(whole: Path) -> None:
    study = counted_once(whole, 2 * TRIALS)
    records = study.records()
    assert {one.stack for one in records} == {"cross_entropy/0000", "cross_entropy/0008"}
    for one in records.complete:
        rows = ROWS if one.number < 8 else 2 * TRIALS - ROWS
        assert one.training["stack"] == f"{one.stack}, {rows} trials"
    failed = [one for one in records if one.state == "failed"]
    assert failed and len(records.complete) > 2
    assert all("loss is" in str(one.reason) for one in failed)
    assert problems(study) == [] and not list(study.directory.glob("**/last.pt"))


class Killed(BaseException):
    """As SIGKILL ends a process: nothing of ours is done after it."""


def killed_at(
    owner: type, name: str, call: int, run: Callable[[], object], after: bool = False
) -> None:
    """Run until so many calls of a method: before the last one, or after it."""
    original, count = getattr(owner, name), [0]

    def dies(*words: Any, **more: Any) -> Any:
        count[0] += 1
        if count[0] == call and not after:
            raise Killed
        found = original(*words, **more)
        if count[0] == call:
            raise Killed
        return found

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(owner, name, dies)
        run()


def test_kills_change_nothing(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a stack is asked, begun, trained, and told; each of a run that goes on from the one
    before."""
    spec = spec_in(tmp_path)
    monkeypatch.setattr(live, "STEP_SECONDS", 0.0)  # an epoch a report

    def run() -> str:
        return here("run", spec, "--storage", tmp_path)

    killed_at(Ledger, "add", 4, run)
    killed_at(Ledger, "begin_attempt", 4, run)
    killed_at(CalibrationTrainable, "step", 3, run)
    killed_at(CalibrationTrainable, "step", 1, run, after=True)
    killed_at(Ledger, "_close", 1, run)
    killed_at(Ledger, "_close", 2, run, after=True)
    run()
    study = counted_once(tmp_path, 2 * TRIALS)
    assert told(tmp_path) == told(whole) and problems(study) == []
    assert max(one.attempt for one in study.records()) >= 4


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("CUDA out of memory."), ValueError("of one of them")]
)
def test_a_stack_begins_anew_and_after_two_deaths_its_trials_train_alone(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """It ends in its third epoch, once or twice."""
    monkeypatch.setattr(live, "STEP_SECONDS", 0.0)
    advance = Stack.advance
    for times in (1, 2):
        folder = tmp_path / str(times)
        folder.mkdir()
        count = [0]

        def full(stack: Stack, times: int = times, count: list[int] = count) -> Any:
            count[0] += 1
            if count[0] in (3, 6)[:times]:
                raise error
            return advance(stack)

        monkeypatch.setattr(Stack, "advance", full)
        here("run", spec_in(folder), "--storage", folder)
        study = counted_once(folder, 2 * TRIALS)
        assert problems(study) == []
        if times == 1:
            assert told(folder) == told(whole)
            continue
        first = [one for one in study.records().complete if one.stack == "cross_entropy/0000"]
        assert first and {one.training["stack"] for one in first} == {
            "left cross_entropy/0000, which died"
        }
        assert {(one.attempt, str(one.deaths)) for one in first} == {(3, "{'stack': 2}")}


def test_a_sigkill_changes_nothing(whole: Path, tmp_path: Path) -> None:
    """Of the driver, while Ray trains, in a run that goes on from another's death."""
    ledger = tmp_path / "small" / "ledger.log"
    words = ("run", spec_in(tmp_path), "--storage", tmp_path, "--cpus", 1)
    killed_at(CalibrationTrainable, "step", 1, lambda: here(*words))
    driver = start(*words)
    wait_until(lambda: ledger.read_text().count('"outcome"') > ROWS, longest=0.01)
    kill(driver)
    here(*words)
    assert told(tmp_path) == told(whole)
    assert problems(counted_once(tmp_path, 2 * TRIALS)) == []
