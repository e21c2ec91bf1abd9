"""The settings that are probed, against means over many values."""

import numpy as np
import pytest

from search_spaces.space import parse_entry
from study.engine.probe import settings_of
from study.schema.variant import Space


def space(**ranges: object) -> Space:
    entries = {path.replace("__", "."): parse_entry(path, plain) for path, plain in ranges.items()}
    return Space(entries, {}, [], {})  # type: ignore[arg-type]


@pytest.mark.parametrize("log", [False, True])
def test_the_ends_of_a_batch_size_have_the_mean_number_of_steps(log: bool) -> None:
    """Against the mean over many values drawn evenly from the range."""
    found = settings_of(space(batch_size={"low": 32, "high": 256, "int": True, "log": log}))
    assert [setting["batch_size"] for _, setting in found] == [32, 256]
    places = (np.arange(100_000) + 0.5) / 100_000
    drawn = 32 * 8**places if log else 32 + 224 * places
    assert sum(weight / setting["batch_size"] for weight, setting in found) == pytest.approx(
        (1 / drawn).mean(), 1e-6
    )
    assert sum(weight for weight, _ in found) == pytest.approx(1)


def test_choices_of_a_batch_size_and_the_middle_of_the_rest() -> None:
    found = settings_of(
        space(
            batch_size={"choices": [16, 32, 64]},
            model__width={"low": 10, "high": 30, "int": True},
            method__gamma={"low": 0.01, "high": 1.0, "log": True},
        )
    )
    assert all(setting["method.gamma"] == pytest.approx(0.1) for _, setting in found)
    assert {(setting["batch_size"], setting["model.width"]) for _, setting in found} == {
        (16, 10), (16, 30), (64, 10), (64, 30)
    }  # fmt: skip
    assert sum(weight / setting["batch_size"] for weight, setting in found) == pytest.approx(
        (1 / 16 + 1 / 32 + 1 / 64) / 3
    )
    assert sum(weight * setting["model.width"] for weight, setting in found) == pytest.approx(20)


def test_the_published_default_is_probed() -> None:
    one = Space(
        {"method.gamma": parse_entry("", {"low": 0.0, "high": 5.0})},
        {},
        [{"method.gamma": 3.0}],
        {},
    )  # type: ignore[dict-item]
    assert settings_of(one) == [(1, {"method.gamma": 3.0})]
