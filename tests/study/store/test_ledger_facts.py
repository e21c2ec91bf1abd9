"""What a ledger says of a trial is checked as it is read."""

from typing import Any

import pytest
from optuna.trial import TrialState, create_trial

from study.schema.errors import LedgerError
from study.store.ledger_facts import check_notes, check_trial


def check(extensions: Any) -> None:
    check_trial(
        "focal", create_trial(state=TrialState.RUNNING, user_attrs={"extensions": extensions})
    )


@pytest.mark.parametrize(
    "extensions",
    [[], "x", None, {"methods/mine.py": 7}, {"/etc/passwd": "a"}, {"methods/../../mine.py": "a"}],
)
def test_extensions_are_digests_of_files_below_a_folder(extensions: Any) -> None:
    check({"methods/mine.py": "a"})
    with pytest.raises(
        LedgerError, match=r"^ledger: `extensions` of focal/\S+ is not as calstudy writes it\. "
    ):
        check(extensions)


STOPS: dict[str, Any] = {
    "place": 3, "costs": [0.3, 0.1], "goes_on": False, "attempt": 1,
    "digests": {"rung-7.npz": "ab"}, "outcome": {"state": "pruned", "epoch": 7},
}  # fmt: skip


@pytest.mark.parametrize(
    "rungs",
    [
        [], None, {"7": []}, {"x": STOPS}, {"-1": STOPS}, {"7": {}},
        *({"7": {**STOPS, **change}} for change in [
            {"place": -1}, {"place": True}, {"place": 0.5}, {"costs": []},
            {"costs": [float("nan"), 0.1]},
            {"costs": ["x"]}, {"costs": 0.3}, {"goes_on": 0}, {"goes_on": True}, {"attempt": "1"},
            {"outcome": None},
            {"outcome": {"state": "complete"}}, {"outcome": {"state": "pruned", "epoch": "x"}},
            {"digests": {"/a": "b"}},
        ]),
    ],
)  # fmt: skip
def test_a_decision_of_early_stopping_is_as_it_was_written(rungs: Any) -> None:
    for good in (
        STOPS,
        {key: value for key, value in (STOPS | {"goes_on": True}).items() if key != "outcome"},
    ):
        check_trial(
            "focal", create_trial(state=TrialState.RUNNING, user_attrs={"rungs": {"7": good}})
        )
    with pytest.raises(
        LedgerError, match=r"^ledger: `rungs` of focal/\S+ is not as calstudy writes it\. "
    ):
        check_trial("focal", create_trial(state=TrialState.RUNNING, user_attrs={"rungs": rungs}))


@pytest.mark.parametrize(
    ("fact", "bad"),
    [
        *(("stack", bad) for bad in (7, None, "", "focal", "focal/x", "../0001", "Focal/0001")),
        *(("together", bad) for bad in ("focal/0001", ["focal"], [7], {"focal": 1})),
    ],
)
def test_a_stack_is_named_by_its_first_trial(fact: str, bad: Any) -> None:
    good = {"stack": "focal/0004", "together": ["focal/0004", "focal/0005"]}
    check_trial("focal", create_trial(state=TrialState.RUNNING, user_attrs=good))
    with pytest.raises(LedgerError, match=f"^ledger: `{fact}` of focal/"):
        check_trial("focal", create_trial(state=TrialState.RUNNING, user_attrs={**good, fact: bad}))


def test_what_an_earlier_version_wrote_of_stacks_is_read() -> None:
    check_notes({"stack/4": {"deaths": {"process": 3}, "alone": True}}, "small/focal")
