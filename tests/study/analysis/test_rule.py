"""The answer's rule against sums by hand."""

from dataclasses import replace

import numpy as np
import pytest
from pytest import approx

from study.analysis.ranking import Ranking
from study.analysis.rule import better_form, decide, in_units
from study.store.study import StudyFolder
from study.store.trials import TrialRecord
from tests.study.made import trials_of, unwritten_study


def trial(number: int, **metrics: float) -> TrialRecord:
    return TrialRecord("focal", number, "complete", {"method.gamma": float(number)}, metrics)


def study_of(**keys: object) -> StudyFolder:
    study = unwritten_study(["focal"])
    return replace(study, plain={**study.plain, **keys})


def test_an_objective_counts_in_units_of_what_matters() -> None:
    """.04 of error at .01, .03 of ECE at .005 and half of .1 of NLL at .02: 4 + 6 + 2.5."""
    study = study_of(matters={"ece": 0.005})
    found = in_units(study, trial(0, accuracy=0.96, ece=0.03, nll=0.1))
    assert found == approx({"accuracy": 4.0, "ece": 6.0, "nll": 2.5})
    assert "nll" not in in_units(study, trial(0, accuracy=0.96, ece=0.03))
    finer = study_of(matters={"nll": 0.01})
    assert in_units(finer, trial(0, accuracy=0.96, ece=0.03, nll=0.1))["nll"] == approx(5.0)


def test_two_calibration_errors_together_count_as_one() -> None:
    objectives = [{"metric": "accuracy", "direction": "maximize"}]
    objectives += [{"metric": name, "direction": "minimize"} for name in ("ece", "adaptive_ece")]
    study = study_of(objectives=objectives)
    assert study.units == approx({"accuracy": 0.01, "ece": 0.02, "adaptive_ece": 0.02})
    assert sum(
        in_units(study, trial(0, accuracy=0.96, ece=0.03, adaptive_ece=0.03)).values()
    ) == approx(4.0 + 3.0)


def test_nll_as_an_objective_counts_once_and_wholly() -> None:
    objectives = [{"metric": name, "direction": "minimize"} for name in ("error", "nll")]
    assert in_units(study_of(objectives=objectives), trial(0, error=0.04, nll=0.1)) == approx(
        {"error": 4.0, "nll": 5.0}
    )


def test_the_lowest_sum_and_what_decided() -> None:
    """4 + 1 + 7.5 and 3 + 3 + 7.5: the first has two units less of ECE for one more of error."""
    one, other = (
        trial(0, accuracy=0.96, ece=0.01, nll=0.3),
        trial(1, accuracy=0.97, ece=0.03, nll=0.3),
    )
    found = decide(study_of(), [other, one])
    assert found is not None and (found.taken, found.following, found.by) == (one, other, "ece")
    # Half of .06 of NLL is one unit and a half.
    sure = trial(1, accuracy=0.97, ece=0.03, nll=0.24)
    second = decide(study_of(), [one, sure])
    assert second is not None and (second.taken, second.following, second.by) == (sure, one, "nll")


def test_of_equal_sums_the_first_is_taken() -> None:
    same = [trial(number, accuracy=0.96, ece=0.01, nll=0.3) for number in range(3)]
    found = decide(study_of(), same)
    assert found is not None and (found.taken.number, found.following) == (0, same[1])


def test_of_one_trial_nothing_decides_and_of_none_nothing_is_taken() -> None:
    alone = decide(study_of(), [trial(0, accuracy=0.9, ece=0.1), trial(1, accuracy=0.9)])
    assert alone is not None and (alone.taken.number, alone.following, alone.by) == (0, None, "")
    assert decide(study_of(), []) is None


def test_what_is_served_counts() -> None:
    found = [
        trial(0, accuracy=0.9, ece=0.01, ts_ece=0.05, nll=0.3, ts_nll=0.3),
        trial(1, accuracy=0.9, ece=0.05, ts_ece=0.01, nll=0.3, ts_nll=0.3),
    ]
    raw, scaled = (decide(study_of().served_as(serves), found) for serves in ("raw", "temperature"))
    assert raw is not None and scaled is not None
    assert (raw.taken.number, scaled.taken.number) == (0, 1)


# ---- as trained or with a temperature ------------------------------------------------------------


def random_trial(number: int, source: np.random.Generator) -> TrialRecord:
    names = ("accuracy", "ece", "ts_ece", "nll", "ts_nll")
    return trial(number, **dict(zip(names, source.uniform(0, 0.1, 5), strict=True)))


@pytest.mark.parametrize("seed", range(20))
def test_the_better_form_has_the_lowest_of_all_sums(seed: int) -> None:
    """Every trial in both forms, by the definition; what `benchmarks.experiments.either` calls
    the lower sum of both forms."""
    found = [random_trial(number, np.random.default_rng([seed, number])) for number in range(5)]
    sums = {}
    for one in found:
        of = one.metrics
        for form, before in (("raw", ""), ("temperature", "ts_")):
            total = (1 - of["accuracy"]) / 0.01 + of[f"{before}ece"] / 0.01
            sums[one.number, form] = total + 0.5 * of[f"{before}nll"] / 0.02
    number, form = min(sums, key=lambda key: sums[key])
    study = study_of(serve="either")
    assert better_form(study, found) == form
    taken = decide(Ranking(study, trials_of(found)).deployed, found)
    assert taken is not None and taken.taken.number == number


def test_the_form_is_as_trained_where_nothing_says_otherwise() -> None:
    study = study_of(serve="either")
    same = trial(0, accuracy=0.9, ece=0.05, ts_ece=0.05, nll=0.3, ts_nll=0.3)
    assert better_form(study, [same]) == better_form(study, []) == "raw"
    assert better_form(study, [trial(0, accuracy=0.9, ece=0.05)]) == "raw"


def test_seeds_of_one_setting_decide_together() -> None:
    """By single seeds the form would be as trained, for the first; by means it is not."""
    study = study_of(serve="either")
    seeds = [
        TrialRecord("focal", number, "complete", {}, {"accuracy": 0.9, "ece": ece, "ts_ece": 0.03})
        for number, ece in enumerate((0.01, 0.09))
    ]
    assert better_form(study, seeds) == "temperature"
    assert better_form(study, seeds[:1]) == "raw"
