"""What a command said, and what to type next."""

import json

import pytest

from study.notebook.shown import Answer, Plan, call_of, option_words


@pytest.mark.parametrize(
    ("command", "call"),
    [
        ("calstudy run SPEC", "study.run()"),
        ("calstudy confirm mine --storage /there", "study.confirm()"),
        ("calstudy confirm mine --trial METHOD/NUMBER", "study.confirm(trials=['METHOD/NUMBER'])"),
        ("calstudy confirm mine --pareto --seeds 5", "study.confirm(pareto=True, seeds=5)"),
        ("calstudy export mine --name best", "study.export('best')"),
        (
            "calstudy export mine --name mine --trial focal/0001 --raw --objectives accuracy,nll",
            "study.export('mine', trial='focal/0001', temperature=False,"
            " objectives='accuracy,nll')",
        ),
        (
            "calstudy export mine-confirm --name mine --trial focal_0001/0000",
            "Study.open('mine-confirm').export('mine', trial='focal_0001/0000')",
        ),
        ("calstudy audit mine", "calstudy audit mine"),
    ],
)
def test_what_to_do_next_is_said_in_python(command: str, call: str) -> None:
    assert call_of(command) == call


def test_an_answer_is_a_line_and_a_page() -> None:
    plain = {
        "sentences": ["Take <focal>.", "It is best."],
        "next": [["calstudy report mine", "shows all"]],
        "taken": None,
        "trial": "focal/0001",
    }
    answer = Answer.from_json(json.dumps(plain))
    assert repr(answer) == "Answer('Take <focal>.')" and answer.trial == "focal/0001"
    assert str(answer) == "Take <focal>.\nIt is best.\nNext: study.report()  (shows all)"
    page = answer._repr_html_()
    assert page.startswith("<p><b>Take &lt;focal&gt;.</b></p>\n<p>It is best.</p>")
    assert "<code>study.report()</code>: shows all" in page


def test_an_answer_says_first_that_objectives_were_given_afterwards() -> None:
    said = "objectives given afterwards; searched and stopped for <a>"
    plain = {"afterwards": said, "sentences": ["Take it."], "next": [], "taken": None}
    answer = Answer.from_json(json.dumps({**plain, "trial": "focal/0001"}))
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
