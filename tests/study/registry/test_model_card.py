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
def test_it_says_whose_they_are(role: str, method: dict[str, Any], heading: str, title: str) -> None:
    seed = {"trial": "x_default/0000", "validation": {"ece": 0.1}, "test": None}
    confirmed = {"role": role, "searched": None, "seeds": [seed, seed], "registered": seed["trial"], "median": True}
    facts = {"method": method["name"], "config": {"method": method}, "confirmed": {**confirmed, "test_samples": 359}}
    assert model_card._whence(facts) == heading
    assert model_card._confirmed_section(facts)[0] == f"## Confirmation: {title}"
