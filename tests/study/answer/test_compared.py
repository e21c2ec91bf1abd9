"""The metrics compared, and what samples and seeds resolve in them, against the laws of both by
hand."""

import numpy as np
import pytest
from pytest import approx

from study.answer.compared import Resolution, compared_metrics, compared_with, resolution_of
from study.schema.objective import RAW, TEMPERATURE, Objective
from study.uncertainty.methods import Methods, Seeds
from tests.study.made import unwritten_study

STUDY = unwritten_study(["focal"])  # accuracy and ECE, as trained


def methods_of(
    of_seeds: float, of_samples: float, apart: float = 0.0, more: float = 0.0
) -> Methods:
    """Two rows of three seeds with these standard deviations: of a seed, and of the rows'
    difference by samples. apart: their difference; more: `unseen` of each."""
    values = of_seeds * np.array([-1.0, 0.0, 1.0])
    moved = np.random.default_rng(0).normal(size=4000)
    moved *= of_samples / moved.std()
    first = Seeds(apart + values, np.repeat(moved[None], 3, 0), more)
    return Methods({"a": first, "b": Seeds(values, np.zeros((3, 4000)), more)})


# ---- the metrics compared ------------------------------------------------------------------------


def minimized(*metrics: str) -> tuple[Objective, ...]:
    return tuple(Objective(metric, "minimize") for metric in metrics)


@pytest.mark.parametrize(
    ("objectives", "serves", "compared"),
    [
        (("error", "ece"), RAW, ["error", "ece", "nll", "brier"]),
        (("error", "ece"), TEMPERATURE, ["error", "ts_ece", "ts_nll", "ts_brier"]),
        (("nll", "ece"), RAW, ["nll", "ece", "brier"]),
        (("nll", "ece"), TEMPERATURE, ["ts_nll", "ts_ece", "ts_brier"]),
        (("ts_nll", "nll"), RAW, ["nll", "brier"]),
        (("brier", "nll"), RAW, ["brier", "nll"]),
        (("ece_sweep", "ece"), RAW, ["ece", "nll", "brier"]),  # a sweep is not resampled
    ],
)
def test_the_metrics_compared_are_the_objectives_and_two_scores(
    objectives: tuple[str, ...], serves: str, compared: list[str]
) -> None:
    """As served, each once, objectives first."""
    study = unwritten_study(["focal"], minimized(*objectives), serve=serves)
    assert [*compared_metrics(study)] == compared


def test_each_metric_has_its_own_measure() -> None:
    assert compared_metrics(STUDY) == {"accuracy": 0.01, "ece": 0.01, "nll": 0.02, "brier": 0.005}
    same = methods_of(0.0, 0.015 / 1.96)
    (found,) = compared_with(STUDY, {"nll": same, "ece": same}, "b", ["a"])
    assert found.words == {"nll": "as good", "ece": "undecided"}
    assert found.overall == "undecided"


def test_a_model_is_better_where_nll_tells_and_ece_does_not() -> None:
    methods = {"ece": methods_of(0.0, 0.02), "nll": methods_of(0.0, 0.02, apart=-0.1)}
    (found,) = compared_with(STUDY, methods, "b", ["a"])
    assert found.words == {"ece": "undecided", "nll": "better"}
    assert found.overall == "better"


# ---- what samples and seeds resolve --------------------------------------------------------------


def test_with_many_seeds_it_says_how_many_samples_would_tell() -> None:
    """Without noise of seeds the half-width falls with the square root of the samples."""
    found = resolution_of(STUDY, {"accuracy": methods_of(0.0, 0.02)}, 500, 10)
    assert found is not None and found.half_widths["accuracy"] == approx(1.96 * 0.02, rel=1e-3)
    assert found.needed == approx(500 * (1.96 * 0.02 / 0.01) ** 2, rel=1e-3)


def test_the_spread_of_few_seeds_is_not_known_well_enough() -> None:
    three = resolution_of(STUDY, {"accuracy": methods_of(0.0, 0.02)}, 500, 3)
    assert three is not None and three.needed is None
    assert three.half_widths["accuracy"] == approx(1.96 * 0.02, rel=1e-3)


def test_where_the_seeds_alone_hide_it_no_number_of_images_helps() -> None:
    found = resolution_of(STUDY, {"accuracy": methods_of(0.02, 0.01)}, 500, 10)
    assert found is not None and found.needed is None and found.half_widths["accuracy"] > 0.01


def test_it_is_of_each_objective_and_of_nll() -> None:
    """Brier score, which is no objective here, says what NLL says."""
    spreads = {"accuracy": 0.01, "ece": 0.02, "nll": 0.03, "brier": 0.04}
    methods = {name: methods_of(0.0, spread) for name, spread in spreads.items()}
    found = resolution_of(STUDY, methods, 500, 3)
    assert found is not None and [*found.half_widths] == ["accuracy", "ece", "nll"]
    assert found.half_widths["nll"] == approx(1.96 * 0.03, rel=1e-3)
    assert found.matters == {"accuracy": 0.01, "ece": 0.01, "nll": 0.02}


def test_where_the_samples_lack_wrong_predictions_it_is_not_known() -> None:
    methods = {"accuracy": methods_of(0.0, 0.02), "nll": methods_of(0.0, 0.0, more=float("inf"))}
    found = resolution_of(STUDY, methods, 500, 3)
    assert found is not None and [*found.half_widths] == ["accuracy"]
    assert resolution_of(STUDY, {"nll": methods["nll"]}, 500, 3) is None


WIDTHS = {"accuracy": 0.02, "ece": 0.05, "nll": 0.03}
MATTERS = {"accuracy": 0.01, "ece": 0.01, "nll": 0.02}
SHOWN = "500 validation images and 3 seeds show a difference from about"


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (
            Resolution(WIDTHS, MATTERS, 1987),
            "0.02 in accuracy, 0.05 in ECE and 0.03 in NLL on, among 6 models; to show the 0.01"
            " that matters in accuracy takes about 2,000 images.",
        ),
        (
            Resolution(WIDTHS, {**MATTERS, "nll": 0.03}, None),
            "0.02 in accuracy, 0.05 in ECE and 0.03 in NLL on, among 6 models; 0.01 in accuracy and"
            " 0.01 in ECE matter.",
        ),
        (
            Resolution(WIDTHS, {**MATTERS, "accuracy": 0.02, "nll": 0.03}, 400),
            "0.02 in accuracy, 0.05 in ECE and 0.03 in NLL on, among 6 models; 0.01 in ECE"
            " matters.",
        ),
        (  # so many for accuracy, which they show already
            Resolution(
                {"accuracy": 0.01, "top5_accuracy": 0.0212},
                {"accuracy": 0.01, "top5_accuracy": 0.0125},
                400,
            ),
            "0.01 in accuracy and 0.021 in top-5 accuracy on, among 6 models; 0.0125 in top-5"
            " accuracy matters.",
        ),
        (
            Resolution({"ts_nll": 0.012}, {"ts_nll": 0.02}, None),
            "0.012 in NLL on, among 6 models.",
        ),
    ],
)
def test_the_sentence_names_what_is_hidden(found: Resolution, said: str) -> None:
    assert found.in_words(500, 3, 6, "images") == f"{SHOWN} {said}"
