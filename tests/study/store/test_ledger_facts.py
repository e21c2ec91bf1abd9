"""What a ledger says of a trial is checked as it is read."""

from typing import Any

import pytest
from optuna.trial import TrialState, create_trial

from study.schema.errors import LedgerError
from study.store.ledger_facts import check_trial


def check(extensions: Any) -> None:
    check_trial("focal", create_trial(state=TrialState.RUNNING, user_attrs={"extensions": extensions}))


@pytest.mark.parametrize(
    "extensions", [[], "x", None, {"methods/mine.py": 7}, {"/etc/passwd": "a"}, {"methods/../../mine.py": "a"}]
)
def test_extensions_are_digests_of_files_below_a_folder(extensions: Any) -> None:
    check({"methods/mine.py": "a"})
    with pytest.raises(LedgerError, match=r"^ledger: `extensions` of focal/\S+ is not as calstudy writes it\. "):
        check(extensions)
