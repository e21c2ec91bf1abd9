"""What a temperature removes: against the scores one sample at a time, a closed form,
and the words for `ts_`."""

import math

import pytest
import torch
from pytest import approx

from study.schema.objective import Objective, as_served, served_by_default, serves_note
from tests.cases import logits_of, random_case
from trainables import metrics
from trainables.outputs.predictions import Predictions
from trainables.problems import FieldError


def nll_and_brier(logits, labels):
    """Means, from the probabilities of one sample at a time."""
    nll, brier = [], []
    for row, label in zip(logits.tolist(), labels.tolist(), strict=True):
        odds = [math.exp(value - max(row)) for value in row]
        probs = [value / sum(odds) for value in odds]
        nll.append(-math.log(probs[label]))
        brier.append(sum((p - (k == label)) ** 2 for k, p in enumerate(probs)))
    return sum(nll) / len(nll), sum(brier) / len(brier)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_the_difference_that_a_temperature_makes(temperature):
    logits, labels = random_case((40, 10, 5.0))
    before, after = nll_and_brier(logits, labels), nll_and_brier(logits / temperature, labels)
    for name, one, other in zip(
        ("calibration_nll", "calibration_brier"), before, after, strict=True
    ):
        found = metrics.find(name)(logits, labels, calibrated=logits / temperature)
        assert found.item() == approx(one - other, abs=1e-12)
        assert Predictions(logits, labels).evaluate_at(temperature, also=[name])[name] == approx(
            one - other, abs=1e-12
        )


def test_it_is_the_ts_metric_that_is_subtracted():
    logits, labels = random_case((60, 4, 6.0))
    found = Predictions(logits, labels).evaluate(also=["calibration_nll", "calibration_brier"])
    assert found["calibration_nll"] == approx(found["nll"] - found["ts_nll"], abs=1e-12)
    assert found["calibration_brier"] == approx(found["brier"] - found["ts_brier"], abs=1e-12)
    alone = metrics.measure_stored(logits, labels, also=["calibration_nll"])["calibration_nll"]
    assert alone == approx(found["calibration_nll"], abs=1e-12)


def test_closed_form_of_an_over_confident_coin():
    """Two classes, 1,000 samples of confidence .99, three in four right: the
    best temperature gives .75.

    NLL falls by the divergence of .75 from .99, whatever the fold, which holds 150 of its 200
    right.
    """
    logits = logits_of(*[[0.99, 0.01]] * 1000)
    labels = torch.tensor([int(k // 5 % 4 == 0) for k in range(1000)])
    divergence = 0.75 * math.log(0.75 / 0.99) + 0.25 * math.log(0.25 / 0.01)
    assert metrics.find("calibration_nll")(logits, labels).item() == approx(divergence, rel=2e-3)
    brier = 2 * (0.99 - 0.75) ** 2
    assert metrics.find("calibration_brier")(logits, labels).item() == approx(brier, rel=2e-2)


def test_where_a_class_was_called_impossible_there_is_none():
    """Infinite NLL, before and after: the difference is not defined."""
    logits = torch.tensor(
        [[0.0, -math.inf], [1.0, 0.0], [0.0, 2.0], [1.0, 0.0]], dtype=torch.float64
    )
    found = metrics.measure_stored(
        logits, torch.tensor([1, 0, 1, 1]), also=["calibration_nll", "calibration_brier"]
    )
    assert "calibration_nll" not in found and math.isfinite(found["calibration_brier"])


def test_after_a_temperature_there_is_nothing_left_to_measure():
    said = "calibration_nll is what a temperature removes of nll: it has no value after one. "
    with pytest.raises(FieldError, match=f"{said}Use calibration_nll, or ts_nll for what is left."):
        Objective("ts_calibration_nll", "minimize")
    assert "ts_calibration_brier" not in metrics.names()
    objectives = (Objective("accuracy", "maximize"), Objective("calibration_nll", "minimize"))
    assert served_by_default(objectives) == "raw" and serves_note(objectives, "raw") == ""
    assert as_served("calibration_nll", "temperature") == "calibration_nll"
