"""What a command said, and what to type next."""

import shlex
from pathlib import Path
from typing import Any

import pytest

from study.answer.said import Part
from study.notebook.shown import Answer, Plan
from study.store.command_line import CommandLine, in_calls, option_words
from study.store.recorded import Recorded
from study.store.study import StudyFolder


@pytest.mark.parametrize(
    ("confirms", "verb", "options", "call"),
    [
        (None, "run", {}, "study.run()"),
        (None, "confirm", {"top": None}, "study.confirm()"),
        (None, "confirm", {"trial": "a/1"}, "study.confirm(trials=['a/1'])"),
        (None, "confirm", {"trial": ["a/1", "b/2"]}, "study.confirm(trials=['a/1', 'b/2'])"),
        (None, "confirm", {"pareto": True, "seeds": 5}, "study.confirm(pareto=True, seeds=5)"),
        (None, "export", {"name": "best"}, "study.export('best')"),
        (
            None,
            "export",
            {"name": "mine", "trial": "focal/0001", "objectives": "accuracy,nll", "raw": True},
            "study.export('mine', trial='focal/0001', objectives='accuracy,nll',"
            " temperature=False)",
        ),
        (
            "mine",
            "export",
            {"name": "mine", "trial": "focal_0001/0000"},
            "Study.open('mine-confirm').export('mine', trial='focal_0001/0000')",
        ),
        (None, "answer", {"raw": True}, "study.answer(temperature=False)"),
        (None, "answer", {"why": True}, "study.answer().why"),
        (None, "audit", {}, "calstudy audit mine --storage /there"),
    ],
)
def test_what_to_do_next_is_said_in_python(
    confirms: str | None, verb: str, options: dict[str, Any], call: str
) -> None:
    name = "mine" if confirms is None else "mine-confirm"
    study = StudyFolder(Path("/there") / name, {"name": name, "confirms": confirms}, Recorded())
    command = study.command(verb, **options)
    assert command.call == call
    words = ("calstudy", verb, name, *option_words(**options), "--storage", "/there")
    assert command == shlex.join(words)
    assert f"`{command}` does." == f"`{shlex.join(words)}` does."
    with in_calls():
        assert f"`{command}` does." == f"`{call}` does."


def test_an_answer_is_a_line_and_a_page() -> None:
    report = CommandLine.of("report", "mine", {}, ("--storage", "/there"))
    verify = "calstudy verify models:/mine/1"
    following = ((report, "shows all"), (verify, "checks it"))
    why = (Part("How <sure>", "Not at all."),)
    answer = Answer(("Take <focal>.", "It is best."), following, why)
    assert repr(answer) == "Answer('Take <focal>.')" and answer.trial is None
    assert str(answer) == (
        "Take <focal>.\nIt is best.\nNext: study.report()  (shows all)\n"
        "Next: calstudy verify models:/mine/1  (checks it)"
    )
    page = answer._repr_html_()
    assert page.startswith("<p><b>Take &lt;focal&gt;.</b></p>\n<p>It is best.</p>")
    assert "<code>study.report()</code>: shows all" in page
    assert "<h4>How &lt;sure&gt;</h4><p>Not at all.</p>" in page


def test_an_answer_says_first_that_objectives_were_given_afterwards() -> None:
    said = "objectives given afterwards; searched and stopped for <a>"
    answer = Answer(("Take it.",), (), afterwards=said)
    assert str(answer) == f"{said}\nTake it." and repr(answer) == "Answer('Take it.')"
    page = answer._repr_html_()
    assert page.startswith("<p>objectives given afterwards; searched and stopped for &lt;a&gt;</p>")


def test_a_plan_is_a_line_and_its_text() -> None:
    plan = Plan(("mine: 2 methods", "data: a < b"))
    assert repr(plan) == "Plan('mine: 2 methods')" and str(plan) == "mine: 2 methods\ndata: a < b"
    assert plan._repr_html_() == "<pre>mine: 2 methods\ndata: a &lt; b</pre>"


def test_options_are_words() -> None:
    assert option_words(seeds=3, pareto=True, top=None, raw=False, trial=["a/1", "b/2"]) == [
        *("--seeds", "3", "--pareto", "--trial", "a/1", "--trial", "b/2")
    ]
