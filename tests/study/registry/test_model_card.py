"""What a card says of settings that were not searched."""

from typing import Any

import pytest

from study.registry import model_card


@pytest.mark.parametrize(
    ("role", "method", "heading", "title"),
    [
        (
            "default",
            {"name": "focal", "gamma": 3.0},
            "Published default (Mukhoti et al. 2020); the rest as in the study",
            "2 fresh seeds of focal, published default (Mukhoti et al. 2020)",
        ),
        (
            "default",
            {"name": "sece", "weight": 0.5, "bandwidth": 0.1},
            "Our default; the rest as in the study",
            "2 fresh seeds of sece, our default",
        ),
        (
            "baseline",
            {"name": "cross_entropy"},
            "The study's own settings",
            "2 fresh seeds of cross_entropy, the study's own settings",
        ),
    ],
)
def test_it_says_whose_they_are(
    role: str, method: dict[str, Any], heading: str, title: str
) -> None:
    seed = {"trial": "x_default/0000", "validation": {"ece": 0.1}, "test": None}
    confirmed = {
        "role": role,
        "searched": None,
        "seeds": [seed, seed],
        "registered": seed["trial"],
        "median": True,
    }
    facts = {
        "method": method["name"],
        "config": {"method": method},
        "confirmed": {**confirmed, "test_samples": 359},
    }
    assert model_card._whence(facts) == heading
    assert (
        model_card._confirmed_section({**facts, "serves": "raw"})[0] == f"## Confirmation: {title}"
    )


@pytest.mark.parametrize(
    ("serves", "ece", "shown"),
    [
        ("raw", ["ECE as trained (served)", "ECE after temperature"], "NLL as trained (served)"),
        (
            "temperature",
            ["ECE as trained", "ECE after temperature (served)"],
            "NLL after temperature (served)",
        ),
    ],
)
def test_nobody_takes_one_ece_for_the_other(serves: str, ece: list[str], shown: str) -> None:
    """Both stand one below the other, and in the table of seeds side by side; accuracy is there once."""
    names = ("accuracy", "nll", "ece")
    values = {prefix + name: 0.1 for prefix in ("", "ts_") for name in names} | {"ts_ece": 0.02}
    test = {name: [value, value - 0.01, value + 0.01] for name, value in values.items()}
    seed = {"trial": "x/0000", "validation": values, "test": test}
    confirmed = {
        "role": "baseline",
        "searched": None,
        "seeds": [seed],
        "registered": seed["trial"],
        "median": True,
    }
    method = {"name": "cross_entropy"}
    facts = {"method": "cross_entropy", "config": {"method": method}, "serves": serves}
    lines = model_card._confirmed_section(
        {**facts, "confirmed": {**confirmed, "test_samples": 359}}
    )
    of_ece = [f"| {ece[0]} | - | 0.1000 | 0.1000 |", f"| {ece[1]} | - | 0.0200 | 0.0200 |"]
    at = lines.index(of_ece[0])
    assert lines[at : at + 2] == of_ece
    assert sum(line.startswith("| accuracy") for line in lines) == 1 and not any(
        "ts_" in line for line in lines
    )
    assert f"| seed | accuracy | {ece[0]} | {ece[1]} | {shown} |" in lines
    assert sum("0.0200 (0.0100 to 0.0300)" in line for line in lines) == 1
