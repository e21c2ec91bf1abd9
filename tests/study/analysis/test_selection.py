"""Conditions and the choice of one trial, against values by hand."""

import pytest

from study.analysis.selection import parse_where, pick, satisfies
from study.schema.objective import Objective
from study.store.trials import TrialRecord
from trainables.problems import FieldError

BOTH = (Objective("accuracy", "maximize"), Objective("ece", "minimize"))


def trial(number, values, label="focal", state="complete"):
    measured = dict(zip(("accuracy", "ece"), values, strict=True))
    return TrialRecord(label, number, state, {}, measured if state == "complete" else {})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("accuracy>=0.95", ["accuracy >= 0.95"]),
        ("  ts_ece  <  2e-2 ", ["ts_ece < 0.02"]),
        ("accuracy>.9 and ece<=.05", ["accuracy > 0.9", "ece <= 0.05"]),
        ("accuracy>.9,ece<=.05, nll<3", ["accuracy > 0.9", "ece <= 0.05", "nll < 3"]),
        ("brier<=1.5 AND accuracy>=1", ["brier <= 1.5", "accuracy >= 1"]),
    ],
)
def test_parse_where(text, expected):
    assert [str(condition) for condition in parse_where(text)] == expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is empty"),
        ("  ", "is empty"),
        ("accuracy", "cannot parse 'accuracy'"),
        (
            "accuracy=0.95",
            "cannot parse 'accuracy=0.95'. Write METRIC, one of >= <= > <, NUMBER: accuracy>=0.95.",
        ),
        ("accuracy==0.95", "cannot parse"),
        ("accuracy => 0.95", "cannot parse"),
        ("accuracy > = 0.95", "cannot parse"),
        ("0.95<=accuracy", "cannot parse '0.95<=accuracy'"),
        ("accuracy>=", "cannot parse"),
        ("accuracy~best", "'accuracy~best' works only in `export --pick`"),
        ("accuracy>=0.9 ece<0.1", "cannot parse"),
        ("accuracy>=0.9,", "cannot parse ''"),
        ("accuracy>=0.9 and", "cannot parse"),
        ("accuracy>=0.9 or ece<0.1", "cannot parse"),
        ("acuracy>=0.9", "there is no metric 'acuracy'. Did you mean 'accuracy'?"),
        ("accuracy>=high", "'high' in 'accuracy>=high' is not a number"),
        ("accuracy>=nan", "is not a number"),
        ("nll<inf", "is not a number"),
        ("accuracy>=95%", "is not a number"),
        ("accuracy>=95", "accuracy lies in [0, 1], got 95. Did you mean 0.95?"),
        ("ts_ece<-0.1", "ts_ece lies in [0, 1], got -0.1."),
        ("brier<3", "brier lies in [0, 2], got 3."),
        ("nll<-1", "nll is never negative, got -1."),
    ],
)
def test_what_parse_where_refuses(text, problem):
    with pytest.raises(FieldError) as caught:
        parse_where(text)
    assert caught.value.path == "where"
    assert problem in caught.value.problem
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("accuracy>=0.9", True),
        ("accuracy>0.9", False),
        ("ece<=0.1", True),
        ("ece<0.1", False),
        ("accuracy>=0.9 and ece<=0.1", True),
        ("accuracy>=0.9 and ece<0.1", False),
        ("nll<3", False),  # not measured
    ],
)
def test_satisfies_at_the_bound(text, expected):
    assert satisfies(trial(0, (0.9, 0.1)), parse_where(text)) is expected


def test_only_a_complete_trial_satisfies():
    assert satisfies(trial(0, (0.9, 0.1)), [])
    assert not satisfies(trial(0, (0.9, 0.1), state="pruned"), [])


FOUR = [
    trial(0, (1.0, 0.10)),
    trial(1, (0.98, 0.03)),
    trial(2, (0.95, 0.02), label="mbls"),
    trial(3, (0.90, 0.0), label="mbls"),
    trial(4, (0.80, 0.5)),
    trial(5, (1.0, 0.0), state="running"),
]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("knee", 1),
        (" knee ", 1),
        ("min ece", 3),
        ("max accuracy", 0),
        ("min ece where accuracy>=0.95", 2),
        ("min ece where accuracy>0.95", 1),
        ("max accuracy where ece<=0.02", 2),
        ("max  accuracy  where ece<0.03, accuracy<0.95", 3),
        # Of the first two: .2 - 1 and .06 - .98; .02 - 1 and .006 - .98.
        ("weighted accuracy=1 ece=2", 1),
        ("weighted accuracy=1, ece=0.2", 0),
        ("weighted ece=1e3 accuracy=1 where accuracy>0.9", 2),
    ],
)
def test_pick(text, expected):
    assert pick(FOUR, BOTH, text).number == expected


def test_pick_of_equals_goes_by_the_objectives_then_by_name():
    equals = [
        trial(7, (0.90, 0.1)),
        trial(3, (0.95, 0.1), label="mbls"),
        trial(2, (0.95, 0.1), label="mbls"),
    ]
    assert pick(equals, BOTH, "min ece").number == 2


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "",
            (
                "cannot parse ''. Write knee, or: min ece where accuracy>=0.95, or: min ece where"
                " accuracy~best, or: "
            ),
        ),
        ("kneee", "cannot parse 'kneee'"),
        ("best ece", "cannot parse"),
        ("min", "cannot parse"),
        ("min ece accuracy>=0.9", "cannot parse"),
        ("min ece where", "cannot parse"),
        ("min eca", "there is no metric 'eca'. Did you mean 'ece'?"),
        ("max ece", "ece must be minimized. Write min ece."),
        ("min accuracy where ece<0.1", "accuracy must be maximized. Write max accuracy."),
        ("min ece where acuracy>=0.9", "Did you mean 'accuracy'?"),
        ("min ece where accuracy>=95", "Did you mean 0.95?"),
        ("weighted", "cannot parse"),
        ("weighted ece", "cannot parse 'ece'. Write metrics with weights above 0"),
        ("weighted ece=0", "weights above 0"),
        ("weighted ece=nan", "weights above 0"),
        ("weighted ece=1 ece=2", "ece is weighted twice"),
        ("weighted eca=1", "Did you mean 'ece'?"),
        ("min ece where acuracy~best", "Did you mean 'accuracy'?"),
        ("min ece where accuracy~worst", "cannot parse 'accuracy~worst'"),
        ("min ece where accuracy~best", "accuracy~best needs a study's stored predictions"),
        ("min nll", "nll was not measured. Measured metrics: accuracy, ece."),
        ("min ece where brier<1", "brier was not measured"),
        (
            "min ece where ece<0",
            "no complete trial satisfies ece < 0. Best value: ece 0 (mbls/0003).",
        ),
        (
            "min ece where accuracy>=0.99 and ece<=0.05",
            (
                "no complete trial satisfies accuracy >= 0.99 and ece <= 0.05. "
                "Best value, one condition at a time: accuracy 1 (focal/0000); ece 0 (mbls/0003)."
            ),
        ),
    ],
)
def test_what_pick_refuses(text, problem):
    with pytest.raises(FieldError) as caught:
        pick(FOUR, BOTH, text)
    assert caught.value.path == "pick"
    assert problem in caught.value.problem
    assert "\n" not in str(caught.value)


def test_pick_without_a_complete_trial():
    for text in ("knee", "min ece"):
        with pytest.raises(FieldError, match="pick: no trial is complete yet"):
            pick(FOUR[-1:], BOTH, text)


def test_not_significantly_worse_than_the_best():
    asked = []

    def not_worse(metric):
        asked.append(metric)
        return {"focal/0000", "focal/0001"}

    assert pick(FOUR, BOTH, "min ece where accuracy~best", not_worse).number == 1
    assert pick(FOUR, BOTH, "min ece where ece<0.2 and accuracy ~ best", not_worse).number == 1
    assert asked == ["accuracy", "accuracy"]
    with pytest.raises(
        FieldError, match=r"no complete trial satisfies ece < 0\.03 and accuracy~best"
    ):
        pick(FOUR, BOTH, "min ece where ece<0.03, accuracy~best", not_worse)
