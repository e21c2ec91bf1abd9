"""The schedules at the epochs the paper names, of 350 and of any other number."""

import pytest
from pytest import approx

from tests import references
from tests.cases import random_case
from trainables.methods.focal_scheduled import FocalScheduled, scheduled_gamma


@pytest.mark.parametrize(("schedule", "last"), [("flsc_531", 1.0), ("flsc_532", 2.0)])
def test_gamma_at_the_epochs_of_the_paper(schedule: str, last: float) -> None:
    gammas = [scheduled_gamma(schedule, epoch / 350) for epoch in range(350)]
    assert gammas == [5.0] * 100 + [3.0] * 150 + [last] * 100


@pytest.mark.parametrize("epochs", [7, 20, 100])
def test_a_shorter_training_steps_at_the_same_shares(epochs: int) -> None:
    gammas = [scheduled_gamma("flsc_531", epoch / epochs) for epoch in range(epochs)]
    assert gammas == [references.gamma_at("531", epoch / epochs) for epoch in range(epochs)]


@pytest.mark.parametrize("progress", [0.0, 0.5, 0.9])
def test_matches_its_definition(progress: float) -> None:
    logits, labels = random_case((40, 10, 5.0))
    expected = references.focal(logits, labels, references.gamma_at("532", progress))
    assert FocalScheduled(schedule="flsc_532").loss(logits, labels, progress).item() == approx(expected, rel=1e-9)
