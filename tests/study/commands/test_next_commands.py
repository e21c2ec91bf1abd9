"""What a run on a cluster says to do next goes to that cluster too."""

import pytest

from study.answer.said import Answer
from study.commands.answer import _with_address

NEXT = (
    ("calstudy confirm x --storage '/a b'", "retrains the best"),
    ("calstudy run x", "resumes the search"),
    ("calstudy export x --name x", "registers it"),
)


@pytest.mark.parametrize("address", [None, "auto"])
def test_without_an_address_from_elsewhere_nothing_is_added(address: str | None) -> None:
    assert _with_address(Answer((), NEXT), address).next == NEXT


def test_what_trains_has_the_address_of_the_cluster() -> None:
    confirm, run, export = _with_address(Answer((), NEXT), "10.0.0.1:6379").next
    assert confirm[0] == "calstudy confirm x --storage '/a b' --address 10.0.0.1:6379"
    assert run[0] == "calstudy run x --address 10.0.0.1:6379" and export == NEXT[2]
