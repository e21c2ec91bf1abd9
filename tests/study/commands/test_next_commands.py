"""What a study that trained on a cluster says to do next goes to that cluster too."""

import pytest

from study.answer.answer import at_cluster
from study.answer.said import Answer
from study.store.command_line import FROM_PYTHON, CommandLine, call_of, repeated

NEXT = (
    (CommandLine.of("confirm", "x", {"seeds": 3}, ("--storage", "/a b")), "retrains the best"),
    (CommandLine.of("run", "x", {}, ()), "resumes the search"),
    (CommandLine.of("export", "x", {"name": "x"}, ()), "registers it"),
)


@pytest.mark.parametrize("address", [None, "auto"])
def test_without_an_address_from_elsewhere_nothing_is_added(address: str | None) -> None:
    assert at_cluster(Answer((), NEXT), address).next == NEXT


def test_what_trains_has_the_address_of_the_cluster() -> None:
    confirm, run, export = at_cluster(Answer((), NEXT), "10.0.0.1:6379").next
    assert confirm[0] == "calstudy confirm x --seeds 3 --storage '/a b' --address 10.0.0.1:6379"
    assert run[0] == "calstudy run x --address 10.0.0.1:6379" and export == NEXT[2]
    calls = [call_of(command) for command, _ in (confirm, run, export)]
    assert calls == [
        "study.confirm(seeds=3, address='10.0.0.1:6379')",
        "study.run(address='10.0.0.1:6379')",
        "study.export('x')",
    ]


def test_a_study_in_python_is_told_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    assert repeated(NEXT[1][0]) == "calstudy run x"
    monkeypatch.setenv(FROM_PYTHON, "1")
    assert repeated(NEXT[1][0]) == "study.run()"
    assert repeated("calstudy verify models:/x/1") == "calstudy verify models:/x/1"
