"""What `plan` warns of, with its mend."""

from pathlib import Path

import pytest
import torch

from study.schema.advice import LEAST, advice, rewards_accuracy
from study.schema.reproduced import REPRODUCED
from tests.study.schema.specs import small
from trainables import metrics

POOLS = Path(__file__).parents[3] / "benchmarks" / "experiments" / "results" / "pools.md"
DIRECTIONS = {"accuracy": "maximize"}
OVERLAPS = [name for name in metrics.described() if metrics.describe(name).kind == "overlap"]
OF_IMAGES = [name for name in metrics.names() if name.removeprefix("ts_") not in OVERLAPS]


def warned(*objectives, **keys):
    listed = [
        {"metric": name, "direction": DIRECTIONS.get(name, "minimize")} for name in objectives
    ]
    return list(advice(small(objectives=listed, **keys)))


def test_the_default_objectives_are_no_problem():
    assert warned("accuracy", "ece") == warned("accuracy", "ts_nll") == warned("nll") == []


@pytest.mark.parametrize(
    "objective", ["ece", "ts_ece", "smooth_ece", "calibration_nll", "classwise_ece"]
)
def test_a_calibration_error_alone(objective):
    """A constraint, or a proper score, is enough."""
    assert any(
        "can have" in each and "metric: accuracy, direction: maximize" in each
        for each in warned(objective)
    )
    for more in (warned(objective, "nll"), warned(objective, constraints=["accuracy >= 0.9"])):
        assert not any("class frequencies" in each for each in more)


@pytest.mark.parametrize("name", [*metrics.stored(), *OVERLAPS])
def test_what_a_guesser_can_have(name):
    """The claim itself: a network that gives the class frequencies has calibration errors
    of 0 and nothing else."""
    labels = torch.arange(600) % 6
    value = metrics.measure(torch.zeros(600, 6), labels, [name])[name]
    found = metrics.describe(name)
    perfect = value == pytest.approx(1.0 if found.better == "higher" else 0.0, abs=1e-9)
    assert perfect == (not rewards_accuracy(name)) == (found.kind == "calibration")


@pytest.mark.parametrize("name", OF_IMAGES)
def test_an_objective_whose_ranking_is_noise(name):
    """By the last column of the recorded table, in which every metric of whole images has a
    row."""
    row = next(line for line in POOLS.read_text().splitlines() if line.startswith(f"| {name} |"))
    value = float(row.split("|")[-2])
    assert REPRODUCED[name] == value
    better = metrics.describe(name).better
    if better is not None:
        objective = {"metric": name, "direction": "maximize" if better == "higher" else "minimize"}
        said = [
            each
            for each in advice(small(objectives=[objective], serve="raw"))
            if "ranks trials poorly" in each
        ]
        assert bool(said) == (value < LEAST) and all(
            f"correlate by {value:.2f}, on average" in each for each in said
        )


def test_what_the_temperature_removes_is_no_objective_beside_it():
    said = warned("accuracy", "calibration_nll", serve="temperature")
    assert len(said) == 1 and "Write serve: raw, or optimize ts_nll." in said[0]
    assert (
        warned("accuracy", "calibration_nll")
        == warned("accuracy", "calibration_nll", serve="raw")
        == []
    )


def test_a_method_whose_logits_have_no_scale():
    """Only where a model may be served as trained; a base is seen through what wraps it."""
    nested = {"label": "mixed", "name": "mixup", "base": "logit_norm"}
    termed = {"label": "termed", "name": "sece", "base": "logit_norm"}
    listed = ["focal", "logit_norm", nested, termed]

    def named(*objectives, **keys):
        found = [each for each in warned(*objectives, methods=listed, **keys) if "scale" in each]
        return [each.split("'s")[0].split()[-1] for each in found]

    assert named("accuracy", "ece") == named("accuracy", "ts_ece", serve="raw")
    assert named("accuracy", "ece") == ["logit_norm", "mixed"]
    # Objectives of both forms: either may be served.
    assert named("accuracy", "ece", "ts_nll") == ["logit_norm", "mixed"]
    assert named("accuracy", "ts_ece") == named("accuracy", "ece", serve="temperature") == []
