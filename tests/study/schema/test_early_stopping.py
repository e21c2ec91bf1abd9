"""`early_stopping:` as it is written, and what is refused."""

import json
from typing import Any

import pytest

from study.schema.compatibility import completed_meaning, refuse_changes
from study.schema.errors import SpecError
from tests.study.schema.specs import small

FIRST_SAMPLES = {"name": "sample_prioritization", "warmup": 0.4}


def test_the_rung_is_an_epoch() -> None:
    found = small(early_stopping={}, epochs=20).early_stopping
    assert found is not None and (found.at, found.keep, found.by) == (0.4, 0.5, ("brier", "ece"))
    assert [found.epoch(epochs) for epochs in (2, 3, 20, 27, 300)] == [1, 1, 8, 11, 120]
    assert small(early_stopping=None).early_stopping is None


@pytest.mark.parametrize(
    ("early", "keys", "said"),
    [
        ({"at": 1.5}, {}, "early_stopping.at: must be > 0 and < 1, got 1.5."),
        (
            {"at": 0.98},
            {},
            (
                "early_stopping.at: epoch 20 of 20 is the last: stopping there saves nothing."
                " Lower it."
            ),
        ),
        (
            {},
            {"epochs": 1},
            (
                "early_stopping.at: epoch 1 of 1 is the last: stopping there saves nothing. Remove"
                " early_"
            ),
        ),
        ({"keep": 1}, {}, "early_stopping.keep: must be > 0 and < 1, got 1."),
        ({"keep": 0}, {}, "early_stopping.keep: must be > 0 and < 1, got 0."),
        (
            {"by": ["mce"]},
            {},
            (
                "early_stopping.by: 'mce' is none of the metrics measured each epoch: accuracy,"
                " nll, br"
            ),
        ),
        (
            {"by": ["ts_ece"]},
            {},
            "early_stopping.by: 'ts_ece' is none of the metrics measured each epoch",
        ),
        (
            {"by": []},
            {},
            "early_stopping.by: must be a list of metrics measured each epoch such as [brier, ece]",
        ),
        ({"by": "ece"}, {}, "early_stopping.by: must be a list of metrics measured each epoch"),
        ({"by": ["ece", "ece"]}, {}, "early_stopping.by: 'ece' is listed twice. Remove one."),
        ({"by": [["ece"]]}, {}, "early_stopping.by: '['ece']' is none of"),
        ({"rungs": 3}, {}, "early_stopping.rungs: EarlyStopping has no 'rungs'."),
        (0.33, {}, "early_stopping: must be a mapping of settings, got 0.33."),
        (
            {"at": 0.05},
            {"optimizer": {"warmup": 0.1}},
            (
                "early_stopping.at: epoch 1 of 20 is within the warm-up of cross_entropy"
                " (optimizer.warmup, 0.1 of them). Write 0.1 or more, or shorten the warm-up."
            ),
        ),
        (
            {"at": 0.2},
            {"optimizer": {"schedule": "one_cycle"}},
            (
                "epoch 4 of 20 is within the warm-up of cross_entropy (optimizer.schedule:"
                " one_cycle, 0.3 of them)"
            ),
        ),
        (
            {"at": 0.33},
            {"methods": ["focal", {**FIRST_SAMPLES, "label": "half"}]},
            (
                "epoch 7 of 20 is within the warm-up of half (method.warmup, 0.4 of them). Write"
                " 0.4 or more"
            ),
        ),
        (
            {},
            {"search_space": {"optimizer.warmup": {"low": 0.0, "high": 0.5}}},
            "within the warm-up of cross_entropy (optimizer.warmup, 0.5 of them)",
        ),
        (
            {"at": 0.1},
            {"search_space": {"optimizer.schedule": {"choices": ["cosine", "triangular"]}}},
            "(optimizer.schedule: triangular, 0.23 of them). Write 0.25 or more",
        ),
        (
            {"at": 0.5},
            {"optimizer": {"schedule": "steps"}},
            (
                "epoch 10 of 20 comes before the learning rate's first drop in cross_entropy"
                " (optimizer.steps, 0.5), where ECE does not rank trials reliably. Write 0.55 or"
                " more."
            ),
        ),
    ],
)
def test_what_is_refused(early: Any, keys: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError) as raised:
        small(early_stopping=early, **keys)
    assert said in str(raised.value) and str(raised.value).startswith("study.yaml: early_stopping")


@pytest.mark.parametrize(
    ("early", "keys"),
    [
        ({"at": 0.1}, {"optimizer": {"warmup": 0.1}}),  # just over
        ({}, {"optimizer": {"schedule": "one_cycle"}}),
        ({}, {"methods": [{**FIRST_SAMPLES, "warmup": 0.05}]}),
        ({"by": ["accuracy"]}, {}),
        ({"at": 0.55}, {"optimizer": {"schedule": "steps"}}),
        ({}, {"optimizer": {"schedule": "steps", "steps": [0.6, 0.2]}}),
    ],
)
def test_what_is_taken(early: Any, keys: dict[str, Any]) -> None:
    assert small(early_stopping=early, **keys).early_stopping is not None


def test_it_is_a_part_of_the_meaning_and_an_older_study_had_none() -> None:
    before = json.loads(json.dumps(small().meaning()))
    assert "early_stopping" not in before
    after = small(early_stopping={"keep": 0.4})
    with pytest.raises(SpecError) as raised:
        refuse_changes(
            completed_meaning(before, after.meaning()), after, "study.yaml", "has 3 trials"
        )
    lines = [
        f"early_stopping.{key}: was absent, is {is_}" for key, is_ in (("at", 0.4), ("keep", 0.4))
    ]
    assert list(raised.value.differences) == [
        *lines,
        "early_stopping.by: was absent, is [brier, ece]",
    ]
    begun = json.loads(json.dumps(after.meaning()))
    refuse_changes(completed_meaning(begun, after.meaning()), after, "study.yaml", "has 3 trials")
    with pytest.raises(SpecError, match=r"early_stopping\.keep: was 0\.4, is absent"):
        refuse_changes(
            completed_meaning(begun, small().meaning()), small(), "study.yaml", "has 3 trials"
        )
