"""`answer --fail-if`: exit code 3 where a condition holds for the model to take."""

import json
from pathlib import Path

import pytest

from tests.study.answer.test_answer import TWO, confirm, predictions, search
from tests.study.command_line import here

TAKEN = "focal/0000"  # accuracy .95 on 400 samples, ECE 0


def asked(storage: Path, *limits: str, code: int) -> str:
    options = [word for limit in limits for word in ("--fail-if", limit)]
    return here("answer", "small", *options, "--storage", storage, check=code)


def test_the_model_is_named_and_each_condition_that_holds(tmp_path: Path) -> None:
    search(tmp_path)
    assert TAKEN in asked(tmp_path, "ece>0.03", "accuracy<0.95", code=0)
    said = asked(tmp_path, "ece>0.03", "accuracy<0.96", "nll >= 0.01", code=3).splitlines()
    assert TAKEN in said[0]
    assert said[-2] == "--fail-if accuracy < 0.96: accuracy on validation is 0.9500."
    assert said[-1].startswith("--fail-if nll >= 0.01: nll on validation is 0.")


@pytest.mark.slow
def test_of_a_confirmed_model_the_mean_on_test_counts(tmp_path: Path) -> None:
    """Each seed has another accuracy on test than on validation."""
    study = search(tmp_path)
    test = {**TWO, "focal_0000": [predictions(wrong, 0.95) for wrong in (40, 60, 80)]}
    confirm(study, TWO, test)
    said = asked(tmp_path, "accuracy<0.84", "accuracy<0.86", code=3).splitlines()
    assert said[-1] == "--fail-if accuracy < 0.86: accuracy on test is 0.8500."
    assert not any("0.84" in line for line in said)


def test_without_a_model_it_fails(tmp_path: Path) -> None:
    search(tmp_path, (predictions(360), predictions(365)))
    (tmp_path / "small" / "study.yaml").write_text(
        (tmp_path / "small" / "study.yaml")
        .read_text()
        .replace("constraints: []", "constraints: [ece <= 0.0001, accuracy >= 0.99]")
    )
    said = asked(tmp_path, "ece>0.03", code=3)
    assert said.splitlines()[-1] == "--fail-if: there is no model to take."
    asked(tmp_path, code=0)


@pytest.mark.parametrize(
    ("limit", "problem"),
    [
        ("ece", "--fail-if: cannot parse 'ece'"),
        ("ecee>0.1", "--fail-if: there is no metric 'ecee'"),
        ("ece > best", "--fail-if: 'best' in 'ece > best' is not a number"),
        ("accuracy<95", "--fail-if: accuracy lies in [0, 1], got 95"),
        ("skce>0.1", "--fail-if: skce of the model to take is not known on validation"),
    ],
)
def test_a_condition_that_cannot_be_judged_is_a_mistake(
    limit: str, problem: str, tmp_path: Path
) -> None:
    search(tmp_path)
    assert asked(tmp_path, limit, code=2).startswith(problem)


def test_json_has_what_failed(tmp_path: Path) -> None:
    search(tmp_path)
    options = ("--fail-if", "accuracy<0.96", "--json", "--storage", tmp_path)
    found = json.loads(here("answer", "small", *options, check=3))
    assert found["trial"] == TAKEN
    assert found["failed"] == ["--fail-if accuracy < 0.96: accuracy on validation is 0.9500."]
    assert "failed" not in json.loads(here("answer", "small", "--json", "--storage", tmp_path))
