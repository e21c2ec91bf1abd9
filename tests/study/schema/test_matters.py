"""`matters` of a study: its values, its defaults, and what is refused."""

from typing import Any

import pytest
from pytest import approx

from study.schema import matters
from study.schema.errors import SpecError
from study.schema.explain import explain
from study.schema.matters import check_matters, read_matters, units, what_matters
from study.schema.objective import Objective
from study.schema.reading import spec_from_mapping
from trainables import metrics
from trainables.metrics.shared.metric import Metric
from trainables.problems import FieldError

PLAIN: dict[str, Any] = {
    "name": "small",
    "data": {"name": "digits"},
    "model": "mlp",
    "methods": ["focal"],
}
BOTH = (Objective("accuracy", "maximize"), Objective("ts_ece", "minimize"))


@pytest.mark.parametrize(
    ("metric", "classes", "expected"),
    [
        ("accuracy", 10, 0.01),
        ("error", 10, 0.01),
        ("ece", 10, 0.01),
        ("classwise_ece", 10, 0.002),
        ("classwise_ece", 100, 0.0002),
        ("mce", 10, 0.05),
        ("nll", 10, 0.02),
        ("brier", 10, 0.005),
    ],
)
def test_the_default_of_each_metric(metric: str, classes: int, expected: float) -> None:
    assert metrics.describe(metric).smallest(classes) == approx(expected)


def test_every_metric_that_can_be_an_objective_says_what_matters() -> None:
    assert [
        name
        for name, one in metrics.described().items()
        if one.better is not None and one.matters is None
    ] == []


def test_the_study_s_own_value_replaces_it() -> None:
    assert what_matters(BOTH, {"accuracy": 0.002}, 10) == {"accuracy": 0.002, "ece": 0.01}
    assert read_matters({"nll": 0.1, "brier": 0.02}, BOTH) == {"nll": 0.1, "brier": 0.02}
    assert what_matters(BOTH, {"nll": 0.1}, 10) == {"accuracy": 0.01, "ece": 0.01, "nll": 0.1}
    spec = spec_from_mapping({**PLAIN, "matters": {"accuracy": 0.002}}, "study.yaml")
    assert spec.matters == {"accuracy": 0.002} and spec.to_mapping()["matters"] == {
        "accuracy": 0.002
    }
    assert "matters" not in spec.meaning()


def test_a_metric_after_temperature_has_the_same_unit() -> None:
    assert (
        read_matters({"ts_ece": 0.02}, BOTH) == read_matters({"ece": 0.02}, BOTH) == {"ece": 0.02}
    )
    with pytest.raises(
        FieldError, match=r"^matters.ts_ece: 'ece' has another value. Write one of the two"
    ):
        read_matters({"ece": 0.02, "ts_ece": 0.03}, BOTH)


def test_metrics_of_other_families_keep_their_units() -> None:
    objectives = [
        Objective(name, "minimize") for name in ("error", "ece", "classwise_ece", "brier")
    ]
    own = {"error": 0.01, "ece": 0.01, "classwise_ece": 0.002, "brier": 0.005}
    assert units(objectives, own) == approx(
        {"error": 0.01, "ece": 0.02, "classwise_ece": 0.004, "brier": 0.005}
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            [0.01],
            (
                r"^study.yaml: matters: must map objectives to numbers, such as \{accuracy: 0.01\},"
                r" got \[0.01\]"
            ),
        ),
        (
            {"acuracy": 0.01},
            (
                r"^study.yaml: matters.acuracy: 'acuracy' is no objective .* accuracy, ece. Did you"
                r" mean"
            ),
        ),
        (
            {"mce": 0.01},
            r"^study.yaml: matters.mce: 'mce' is no objective .*nor nll or brier; .* accuracy, ece",
        ),
        ({"ece": 0}, r"^study.yaml: matters.ece: must be a number above 0, got 0"),
        ({"ece": -0.1}, r"^study.yaml: matters.ece: must be a number above 0, got -0.1"),
        ({"ece": True}, r"^study.yaml: matters.ece: must be a number above 0, got True"),
        ({"ece": "0.01"}, r"^study.yaml: matters.ece: must be a number above 0, got '0.01'"),
        ({"ece": float("nan")}, r"^study.yaml: matters.ece: must be a number above 0, got nan"),
        ({"ece": float("inf")}, r"^study.yaml: matters.ece: must be a number above 0, got inf"),
    ],
)
def test_what_is_refused(given: Any, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        spec_from_mapping({**PLAIN, "matters": given}, "study.yaml")


@pytest.mark.parametrize("written", ["1 / N", "-0.1 / K", -0.1, 0])
def test_a_description_that_is_wrong(written: Any) -> None:
    with pytest.raises(
        FieldError, match=r"^matters: must be a number above 0, or 'X / K' for K classes"
    ):
        Metric(name="mine", family="mine", function="mine", label="mine", matters=written)


def test_a_metric_that_does_not_say_it_needs_the_study_s_word(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mine = Metric(name="ece", family="binned", function="expected_calibration_error", label="ECE")
    monkeypatch.setattr(matters, "described", lambda: {**metrics.described(), "ece": mine})
    with pytest.raises(
        FieldError,
        match=r"^matters.ece: is missing: ece does not say .* Write matters: \{ece: NUMBER",
    ):
        check_matters(BOTH, {})
    check_matters(BOTH, {"ece": 0.01})


def test_explain_shows_each_unit() -> None:
    objectives = [
        {"metric": name, "direction": "minimize"} for name in ("error", "ece", "classwise_ece")
    ]
    spec = spec_from_mapping(
        {**PLAIN, "objectives": objectives, "matters": {"error": 0.002}}, "study.yaml"
    )
    rows = {row.key: row for row in explain(spec) if row.key.startswith("matters")}
    assert {key: (row.value, row.default) for key, row in rows.items()} == {
        "matters.error": ("0.002", "0.01"),
        "matters.ece": ("0.01", "0.01"),
        "matters.classwise_ece": ("0.02 / K", "0.02 / K"),
        "matters.nll": ("0.02", "0.02"),
    }
    assert "2 calibration errors together count as one" in rows["matters.ece"].note
    assert "together" not in rows["matters.error"].note
