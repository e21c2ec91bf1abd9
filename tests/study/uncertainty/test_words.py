"""The four words, from intervals by hand."""

import pytest

from study.uncertainty.intervals import Interval
from study.uncertainty.words import level_of_each, overall, word_for


@pytest.mark.parametrize(
    ("low", "high", "accuracy", "ece"),
    [
        (-0.005, 0.009, "as good", "as good"),
        (0.001, 0.009, "as good", "as good"),  # on one side of 0, but too small to matter
        (-0.01, 0.01, "as good", "as good"),
        (0.001, 0.02, "better", "worse"),
        (-0.02, -0.001, "worse", "better"),
        (-0.02, 0.001, "undecided", "undecided"),
        (0.0, 0.02, "undecided", "undecided"),
    ],
)
def test_the_word_for_an_interval(low: float, high: float, accuracy: str, ece: str) -> None:
    difference = Interval((low + high) / 2, low, high)
    assert word_for(difference, "accuracy", 0.01) == accuracy
    assert word_for(difference, "ts_ece", 0.01) == ece


@pytest.mark.parametrize(
    ("words", "together"),
    [
        (("as good", "as good"), "as good"),
        (("as good", "undecided"), "undecided"),
        (("as good", "worse"), "worse"),
        (("better", "undecided"), "better"),
        (("better", "worse"), "better and worse"),
    ],
)
def test_as_good_is_a_model_only_if_it_is_so_in_every_metric(
    words: tuple[str, str], together: str
) -> None:
    assert overall(dict(zip(("accuracy", "ece"), words, strict=True))) == together


def test_several_intervals_hold_together() -> None:
    """Each wrong in 2.5% at most, so that two are in 5%."""
    assert level_of_each(0.95, ["accuracy", "ece"]) == pytest.approx(0.975)
    assert level_of_each(0.95, ["accuracy"]) == pytest.approx(0.95)
