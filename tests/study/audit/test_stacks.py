"""The audit of stacks, against records with one thing wrong at a time."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from study.audit.stacks import check_stacks
from study.store.trials import TrialRecord, Trials


def trained(number: int, recorded: str | None, told: str | None, **words: Any) -> TrialRecord:
    """A trial that says it was trained in a stack of three, or alone."""
    how = {"precision": "float32"} | ({} if told is None else {"stack": f"{told}, 3 trials"})
    state = words.pop("state", "complete")
    return TrialRecord("focal", number, state, {}, stack=recorded, training=how, **words)


def offenders(directory: Path, *records: TrialRecord, alone: bool = False) -> dict[str, str]:
    note = {"stack/0": {"deaths": {"process": 3}, "alone": alone}}
    facts: Any = SimpleNamespace(
        records=Trials({"focal": list(records)}),
        labels={"focal": SimpleNamespace(notes=note)},
        study=SimpleNamespace(directory=directory),
        goes_on="`calstudy run small`",
        goes_on_later=False,
    )
    check = check_stacks(facts)
    ended = [record for record in records if record.state != "running"]
    assert check.counted == sum(record.stack is not None for record in ended)
    return {found.name: found.problem for found in check.offenders}


def test_a_trial_is_of_the_stack_that_is_recorded(tmp_path: Path) -> None:
    first = "focal/0000"
    good = [trained(0, first, first), trained(1, first, first), trained(2, None, None)]
    assert offenders(tmp_path, *good) == {}
    assert offenders(tmp_path, *good, trained(3, first, None)) == {
        "focal/0003": "was trained alone; the ledger has it in the stack focal/0000"
    }
    assert offenders(tmp_path, *good, trained(3, first, "focal/0001")) == {
        "focal/0003": "was trained in the stack focal/0001;"
        " the ledger has it in the stack focal/0000"
    }
    assert offenders(tmp_path, *good, trained(3, None, first)) == {
        "focal/0003": "was trained in the stack focal/0000; the ledger has it alone"
    }


def test_trials_of_a_dissolved_stack_train_alone_or_ended_in_it(tmp_path: Path) -> None:
    first = "focal/0000"
    both = [trained(0, first, first, state="failed"), trained(1, first, None)]
    assert offenders(tmp_path, *both, alone=True) == {}
    other = trained(2, first, "focal/0001")
    assert list(offenders(tmp_path, *both, other, alone=True)) == ["focal/0002"]


def test_what_is_left_of_an_ended_stack_is_named(tmp_path: Path) -> None:
    first = "focal/0000"
    (tmp_path / "stacks" / "focal-0000").mkdir(parents=True)
    running = TrialRecord("focal", 1, "running", {}, stack=first)
    assert offenders(tmp_path, trained(0, first, first), running) == {}
    assert offenders(tmp_path, trained(0, first, first)) == {
        "stacks/focal-0000": "is left of a stack whose trials have ended"
    }
