"""The schedules at the epochs the paper names, of 350 and of any other number."""

from typing import Any

import pytest
from pytest import approx

from tests import references
from tests.cases import random_case
from trainables.methods.focal_scheduled import GAMMAS, FocalScheduled, scheduled_gamma
from trainables.problems import FieldError


@pytest.mark.parametrize(("schedule", "last"), [("flsc_531", 1.0), ("flsc_532", 2.0)])
def test_gamma_at_the_epochs_of_the_paper(schedule: str, last: float) -> None:
    gammas = [scheduled_gamma(GAMMAS[schedule], epoch / 350) for epoch in range(350)]
    assert gammas == [5.0] * 100 + [3.0] * 150 + [last] * 100


@pytest.mark.parametrize("epochs", [7, 20, 100])
def test_a_shorter_training_steps_at_the_same_shares(epochs: int) -> None:
    gammas = [scheduled_gamma(GAMMAS["flsc_531"], epoch / epochs) for epoch in range(epochs)]
    assert gammas == [references.gamma_at("531", epoch / epochs) for epoch in range(epochs)]


@pytest.mark.parametrize("progress", [0.0, 0.5, 0.9])
def test_matches_its_definition(progress: float) -> None:
    logits, labels = random_case((40, 10, 5.0))
    expected = references.focal(logits, labels, references.gamma_at("532", progress))
    assert FocalScheduled(schedule="flsc_532").loss(logits, labels, progress).item() == approx(
        expected, rel=1e-9
    )


def test_own_gammas_and_steps_by_epoch() -> None:
    """Tiny-ImageNet in the released scripts: 5 before epoch 30 of 100, 3 before 70. And
    four gammas of one's own."""
    logits, labels = random_case((40, 10, 5.0))
    tiny = FocalScheduled(schedule="flsc_532", steps=(0.3, 0.7))
    own = FocalScheduled(schedule="custom", gammas=(4.0, 0.0, 2.5, 1.0), steps=(0.1, 0.5, 0.9))
    for method, gammas in (
        (tiny, {0: 5.0, 29: 5.0, 30: 3.0, 69: 3.0, 70: 2.0, 99: 2.0}),
        (own, {0: 4.0, 9: 4.0, 10: 0.0, 49: 0.0, 50: 2.5, 89: 2.5, 90: 1.0, 99: 1.0}),
    ):
        for epoch, gamma in gammas.items():
            expected = references.focal(logits, labels, gamma)
            assert method.loss(logits, labels, epoch / 100).item() == approx(expected, rel=1e-9), (
                epoch
            )


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"gammas": [4, 1], "steps": [0.5]}, "gammas: goes with `schedule: custom`. Set both"),
        ({"schedule": "custom"}, "gammas: goes with `schedule: custom`. Set both"),
        ({"steps": [0.5]}, "steps: must be one fewer than the gammas, got 1 for 3 gammas."),
        (
            {"schedule": "custom", "gammas": [4, 1]},
            "steps: must be one fewer than the gammas, got 2 for 2 gammas.",
        ),
        ({"steps": [0.7, 0.3]}, r"steps: must increase, got \[0.7, 0.3\]."),
        ({"steps": [0.3, 0.3]}, r"steps: must increase, got \[0.3, 0.3\]."),
        ({"steps": [30, 70]}, "steps: each number must be > 0 and < 1, got 30."),
        ({"schedule": "custom", "gammas": [4, -1, 0]}, "gammas: each number must be >= 0, got -1."),
    ],
)
def test_a_schedule_that_is_none_is_refused(values: dict[str, Any], words: str) -> None:
    with pytest.raises(FieldError, match=f"^{words}"):
        FocalScheduled(**values)
