"""`stack:` as it is written, and what is refused."""

import json
from typing import Any

import pytest

from study.schema.compatibility import completed_meaning, refuse_changes
from study.schema.errors import SpecError
from study.schema.explain import explain
from tests.study.schema.specs import small

NOT_ONE = "stack: must be auto, off or a whole number >= 2, got "


@pytest.mark.parametrize("value", ["auto", "off", 2, 8, 1000])
def test_what_may_be_written(value: int | str) -> None:
    assert small(stack=value).stack == value
    assert small().stack == "auto"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0"),
        (1, "1"),
        (-8, "-8"),
        (True, "True"),
        (2.5, "2.5"),
        ("yes", "'yes'"),
        ("many", "'many'"),
        ("8", "'8'"),
        (None, "None"),
        ([8], "[8]"),
    ],
)
def test_what_is_none_of_these_is_refused_in_a_line(value: Any, shown: str) -> None:
    with pytest.raises(SpecError) as error:
        small(stack=value)
    assert str(error.value) == f"study.yaml: {NOT_ONE}{shown}."


def test_explain_says_what_is_allowed() -> None:
    (row,) = [row for row in explain(small(stack=8)) if row.key == "stack"]
    assert (row.value, row.default, row.allowed) == ("8", "auto", "auto | off | >= 2")


CNN = "no trial can be stacked: cnn has no stacked form. Write off."


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"model": "cnn"}, CNN),
        ({"methods": ["gamma_net"]}, "no trial can be stacked: "),
        ({"methods": ["gamma_net", "sample_prioritization"]}, "sample_prioritization"),
        ({"record": "train_entropy"}, "no trial can be stacked: record: train_entropy. Write off."),
        ({"diagnostics": True}, "no trial can be stacked: diagnostics: true. Write off."),
        (
            {"early_stopping": {}},
            (
                "early_stopping ends trials one by one, and a stack trains its own to the end."
                " Write off, or remove early_stopping."
            ),
        ),
        (
            {"resources": {"gpu": 0.25}},
            (
                "trials of cross_entropy share a GPU (resources.gpu: 0.25), which a stack fills."
                " Write gpu: 1, or stack: off."
            ),
        ),
    ],
)
def test_a_number_is_refused_where_nothing_can_be_stacked(keys: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError) as error:
        small(stack=8, **keys)
    assert str(error.value).startswith("study.yaml: stack: ")
    assert said in str(error.value) and "\n" not in str(error.value)
    for words in ("auto", "off"):
        small(stack=words, **keys)


def test_methods_that_train_alone_do_not_forbid_stacks() -> None:
    spec = small(stack=8, methods=["focal", "gamma_net", "brier"])
    assert spec.stackable == ["focal", "brier"]
    assert list(spec.alone) == ["gamma_net"]
    small(stack=8, methods=["focal", {"name": "gamma_net", "resources": {"gpu": 0.5}}])


@pytest.mark.parametrize(
    ("recorded", "now", "differs"),
    [
        (None, "auto", None),  # made before there were stacks
        (None, "off", None),
        (None, 8, "stack: was 'off', is 8"),
        ("off", "auto", None),
        ("off", 8, "stack: was 'off', is 8"),
        (12, "auto", None),
        (12, 12, None),
        (12, 8, "stack: was 12, is 8"),
        (12, "off", "stack: was 12, is 'off'"),
    ],
)
def test_a_study_goes_on_with_what_it_recorded(
    recorded: Any, now: int | str, differs: str | None
) -> None:
    old = json.loads(json.dumps(small().meaning()))
    assert "stack" not in old
    if recorded is not None:
        old["stack"] = recorded
    whole = completed_meaning(old, small(stack=64).meaning())  # as its file may say by now
    if differs is None:
        refuse_changes(whole, small(stack=now), "study.yaml", "has 3 trials")
        return
    with pytest.raises(SpecError) as error:
        refuse_changes(whole, small(stack=now), "study.yaml", "has 3 trials")
    assert error.value.differences == (differs,)
