"""Which trials count: against SciPy's binomial test, and values by hand."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from pytest import approx
from scipy.stats import binomtest

from study.analysis.ranking import Ranking, Rules, excluded_line, on_a_front
from study.answer.confirmation import results_of, search_of
from study.engine.preparation import serves_of
from study.schema.condition import read_constraints
from study.schema.objective import Objective
from study.store.recorded import Opened
from study.store.study import write_study_file
from study.store.trials import TrialRecord
from tests.study.made import OBJECTIVES, made_study, trials_of, unwritten_study

ACCURACY, ECE = OBJECTIVES


def trial(number, accuracy, ece=0.1, label="focal", state="complete", **more):
    values = {"accuracy": accuracy, "ece": ece, **more} if state == "complete" else {}
    return TrialRecord(label, number, state, {}, values)


def names(records):
    return [record.name for record in records]


# ---- guessing ------------------------------------------------------------------------------------


@pytest.mark.parametrize("samples", [1, 10, 287, 5000])
@pytest.mark.parametrize("majority", [0.02, 0.1, 0.5, 0.97, 1.0])
def test_who_guesses_is_what_the_binomial_test_says(samples, majority):
    rules = Rules(OBJECTIVES, (), majority, samples)
    without_error = binomtest(samples, samples, majority, alternative="greater").pvalue
    assert bool(rules.no_test) == (without_error > 0.05)
    if rules.no_test:  # even it would be said to guess
        assert not rules.guesses(trial(0, 0.0))
        return
    near = int(samples * majority)
    for right in {0, 1, samples, *range(max(0, near - 5), min(samples, near + 200))}:
        chance = binomtest(right, samples, majority, alternative="greater").pvalue
        assert rules.guesses(trial(0, right / samples)) == (chance > 0.05), right


def test_without_a_validation_split_nothing_guesses():
    assert not Rules(OBJECTIVES).guesses(trial(0, 0.0))


# ---- constraints ---------------------------------------------------------------------------------


def test_relative_to_the_best_of_the_whole_study_that_does_not_guess():
    """The guesser has the best ECE, which is not what others are measured by."""
    constraints = ["accuracy >= best - 0.02", "ece <= best + 0.05"]
    study = unwritten_study(["focal", "mbls"], constraints=constraints, majority=0.1)
    records = [
        trial(0, 0.96, 0.12),
        trial(1, 0.945, 0.05, label="mbls"),
        trial(2, 0.94, 0.06),
        trial(3, 0.93, 0.05),
        trial(4, 0.10, 0.001),
        trial(5, 0, state="failed"),
    ]
    ranking = Ranking(study, trials_of(records))
    assert names(ranking.eligible) == ["focal/0002", "mbls/0001"]
    assert {
        name: reason.partition(":")[0].partition(",")[0]
        for name, reason in ranking.excluded.items()
    } == {
        "focal/0000": "ece is 0.1200",
        "focal/0003": "accuracy is 0.9300",
        "focal/0004": "guesses",
    }
    assert (
        "(<= 0.1000)" in ranking.excluded["focal/0000"]
        and "(>= 0.9400)" in ranking.excluded["focal/0003"]
    )
    assert names(ranking.front) == ["mbls/0001"] and ranking.knee is records[1]
    assert (
        excluded_line(ranking.excluded)
        == "3 trials are excluded: 1 guesses, 2 violate a constraint."
    )


def test_a_trial_exactly_at_the_limit_counts():
    """0.9 - 0.1 is not 0.8 in floats."""
    study = unwritten_study(["focal"], constraints=["accuracy >= best - 0.1"])
    for best in range(60, 288):
        records = [trial(0, best / 287), trial(1, best / 287 - 0.1)]
        assert not Ranking(study, trials_of(records)).excluded


def test_where_all_are_excluded_there_is_no_front():
    ranking = Ranking(
        unwritten_study(["focal"], majority=0.1), trials_of([trial(0, 0.1), trial(1, 0.12)])
    )
    assert ranking.front == [] and ranking.knee is None and ranking.hypervolume == 0.0
    assert excluded_line(ranking.excluded) == "2 trials are excluded: 2 guess."


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("accuracy >= best - 0.02", "accuracy >= best - 0.02"),
        ("accuracy>=best", "accuracy >= best - 0"),
        ("ece <= best + 1e-05", "ece <= best + 1e-05"),
        ("accuracy >= 0.9999999", "accuracy >= 0.9999999"),
        ("nll <= 0.5", "nll <= 0.5"),
        ("ts_brier<0.1", "ts_brier < 0.1"),
    ],
)
def test_a_constraint_is_read_and_written_back(text, found):
    (condition,) = read_constraints([text], OBJECTIVES)
    assert str(condition) == found
    assert read_constraints([found], OBJECTIVES) == (condition,)


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("accuracy >= 0.9", r"constraints: must be a list such as"),
        ([0.9], r"constraints\[0\]: must be text such as"),
        (
            ["accuracy >= 0.9", "accuracy>=0.9"],
            r"constraints\[1\]: 'accuracy >= 0.9' is listed twice",
        ),
        (["acuracy >= 0.9"], "there is no metric 'acuracy'. Did you mean 'accuracy'"),
        (["accuracy >= 95"], r"lies in \[0, 1\], got 95. Did you mean 0.95"),
        (["accuracy >= best - 2"], r"distance of 2. Did you mean 0.02"),
        (["accuracy >= best - x"], "'x' in 'accuracy >= best - x' is not a number"),
        (["accuracy >= best + 0.02"], "asks for more than the best. Write best - 0.02"),
        (
            ["accuracy <= best - 0.02"],
            "keeps the worse trials: higher accuracy is better. Write '>='",
        ),
        (["ece >= 0.1"], "keeps the worse trials: lower ece is better. Write '<='"),
        (
            ["nll <= best + 0.1"],
            r"'best' is known of objectives only \(accuracy, ece\), not of nll. Write a number",
        ),
        (["smooth_ece <= 0.1"], "trials do not store smooth_ece. Make it an objective"),
        (["accuracy > best - 0.02"], "may leave no trial, not even the best. Write >= instead"),
        (["accuracy >= best * .98"], "Write METRIC >= best - NUMBER: accuracy >= best - 0.02"),
        (["accuracy is high"], "cannot parse 'accuracy is high'"),
    ],
)
def test_a_constraint_that_makes_no_sense(written, said):
    with pytest.raises(ValueError, match=said):
        read_constraints(written, OBJECTIVES)


# ---- what is served ------------------------------------------------------------------------------


def test_the_knee_is_that_of_what_is_served():
    """As trained the first is better calibrated, after its temperature the second."""
    records = [
        trial(0, 0.95, 0.02, ts_ece=0.03),
        trial(1, 0.95, 0.04, ts_ece=0.01),
        trial(2, 0.9, 0.1, ts_ece=0.1),
    ]
    assert Ranking(unwritten_study(["focal"]), trials_of(records)).knee is records[0]
    served = unwritten_study(["focal"], serve="temperature")
    assert Ranking(served, trials_of(records)).knee is records[1]
    assert (
        "models are registered with their temperatures (serve: temperature)" in served.serves_note
    )
    # Of the objectives, as they are searched.
    assert names(Ranking(served, trials_of(records)).front) == ["focal/0000"]
    assert names(on_a_front(served, records)) == ["focal/0000", "focal/0001"]


def test_a_study_of_either_keeps_models_of_both_forms():
    records = [
        trial(0, 0.95, 0.02, ts_ece=0.03),
        trial(1, 0.95, 0.04, ts_ece=0.01),
        trial(2, 0.9, 0.1, ts_ece=0.1),
    ]
    study = unwritten_study(["focal"], serve="either")
    ranking = Ranking(study, trials_of(records))
    assert names(on_a_front(study, records)) == ["focal/0000", "focal/0001"]
    assert (ranking.deployed.serves, ranking.knee) == ("temperature", records[1])
    assert names(on_a_front(ranking.deployed, records)) == ["focal/0000", "focal/0001"]
    note = "(serve: either, decided on validation) and have accuracy, ts_ece"
    assert note in ranking.deployed.serves_note


def test_a_metric_that_trials_store_in_one_form_is_used_in_that_form():
    """smooth_ece is measured only as the objective that it is."""
    objectives = (ACCURACY, Objective("smooth_ece", "minimize"))
    records = [
        TrialRecord("focal", 0, "complete", {}, {"accuracy": 0.9, "smooth_ece": 0.1, "nll": 0.3})
    ]
    study = unwritten_study(["focal"], objectives, serve="temperature")
    assert Ranking(study, trials_of(records)).knee is records[0]
    assert study.serves_note.startswith(
        "trials do not store the ts_smooth_ece of a registered model: choices use accu"
    )


@pytest.mark.parametrize(
    ("objectives", "new", "begun"),
    [
        (["accuracy", "ece"], "either", "raw"),
        (["accuracy"], "either", "raw"),
        (["accuracy", "ts_ece"], "temperature", "temperature"),
        (["ts_nll"], "temperature", "temperature"),
        (["accuracy", "ece", "ts_ece"], "either", "temperature"),
    ],
)
def test_what_is_served_by_default(objectives, new, begun):
    """begun: where other objectives are given to a study that began before `either`."""
    directions = {"accuracy": "maximize"}
    asked = tuple(Objective(name, directions.get(name, "minimize")) for name in objectives)
    spec = SimpleNamespace(serve=None, objectives=asked)
    before = unwritten_study(["focal"], (Objective("brier", "minimize"),))
    assert (serves_of(spec, None), serves_of(spec, before)) == (new, begun)
    same = unwritten_study(["focal"], asked)
    assert serves_of(spec, same) == same.recorded.serves
    assert serves_of(SimpleNamespace(serve="raw", objectives=asked), before) == "raw"


def test_a_confirmation_fixes_the_form(tmp_path):
    """By its trials the study would serve the temperature."""
    values = {"accuracy": 0.9, "ece": 0.05, "ts_ece": 0.01}
    trials = {"focal": [(values, [])]}
    made = made_study(tmp_path, "small", trials)
    study = replace(made, plain={**made.plain, "serve": "either"})
    write_study_file(study)
    assert results_of(study).study.serves == "temperature"
    confirming = made_study(tmp_path, "small-confirm", trials)
    plain = {**confirming.plain, "confirms": "small", "serve": "raw"}
    write_study_file(replace(confirming, plain=plain))
    found = results_of(study)
    assert found.confirmation is not None
    forms = [found.study, found.confirmation.study, search_of(found.confirmation.study)]
    assert [each.serves for each in forms] == ["raw"] * 3


def test_seeds_added_after_test_was_opened_do_not_decide_the_form():
    records = [trial(0, 0.9, 0.02, ts_ece=0.03), trial(1, 0.9, 0.09, ts_ece=0.01)]
    for opened, serves in ((1, "raw"), (2, "temperature")):
        own = Opened("small", 1, {"focal": opened})
        study = unwritten_study(["focal"], serve="either", confirmation=own)
        assert Ranking(study, trials_of(records)).deployed.serves == serves


# ---- the reference of the hypervolume ------------------------------------------------------------


def test_the_reference_is_the_worst_default_that_counts():
    """Two defaults each; the guesser among them does not count, and later trials move nothing."""
    meaning = {
        "methods": {
            label: {"fixed": {}, "space": {}, "defaults": [{}, {}]} for label in ("focal", "mbls")
        }
    }
    study = unwritten_study(["focal", "mbls"], trials=5, majority=0.1, meaning=meaning)
    defaults = [
        trial(0, 0.9, 0.2),
        trial(1, 0.95, 0.1),
        trial(0, 0.1, 0.9, "mbls"),
        trial(1, 0.92, 0.3, "mbls"),
    ]
    assert Ranking(study, trials_of(defaults)).reference_values() == approx(
        {"accuracy": 0.9, "ece": 0.3}
    )
    more = [*defaults, trial(2, 0.99, 0.01), trial(2, 0.5, 0.9, "mbls")]
    assert Ranking(study, trials_of(more)).reference_values() == approx(
        {"accuracy": 0.9, "ece": 0.3}
    )
    assert Ranking(study, trials_of(more)).hypervolume == approx(0.09 * 0.29)
    assert Ranking(study, trials_of(defaults[:3])).reference_values() == approx(
        {"accuracy": 0.0, "ece": 1.0}
    )


def test_a_constraint_of_the_reference_is_judged_among_the_defaults():
    """0.95 is within 0.02 of the best default, though not of the best trial: the reference
    stays."""
    meaning = {"methods": {"focal": {"fixed": {}, "space": {}, "defaults": [{}, {}]}}}
    study = unwritten_study(
        ["focal"], trials=9, constraints=["accuracy >= best - 0.02"], meaning=meaning
    )
    records = [trial(0, 0.95, 0.2), trial(1, 0.90, 0.3), trial(2, 0.99, 0.1)]
    assert Ranking(study, trials_of(records)).reference_values() == approx(
        {"accuracy": 0.95, "ece": 0.2}
    )
    assert names(Ranking(study, trials_of(records)).eligible) == ["focal/0002"]
