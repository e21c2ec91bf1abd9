"""Which trials are far worse than the best: values by hand."""

import math

import pytest

from study.analysis.guard import Guard, guard_of
from study.analysis.ranking import Ranking, Rules, excluded_line
from study.answer.choice import rows_that_count
from study.answer.confirmation import Confirmed
from study.engine.candidates import lowest
from study.schema.objective import Objective
from study.store.study import open_study
from study.store.trials import TrialRecord
from tests.study.command_line import here
from tests.study.made import trials_of, unwritten_study
from tests.study.trained import copy_of, digits


def trial(number, accuracy, ece=0.1, label="focal", **more):
    values = {"accuracy": accuracy, "ece": ece, **more}
    return TrialRecord(label, number, "complete", {"x": float(number)}, values)


def guarded(**keys):
    """A study of focal and mbls with 300 validation images."""
    return unwritten_study(
        ["focal", "mbls"], **{"sizes": {"validation": 300}, "guard": "auto", **keys}
    )


def limit(best, matters, samples):
    """The accuracy at which the distance is ten times what matters and 1.96 standard errors."""
    low, high = 0.0, best
    for _ in range(60):
        value = (low + high) / 2
        error = math.sqrt((best * (1 - best) + value * (1 - value)) / samples)
        low, high = (value, high) if best - value > 10 * matters + 1.96 * error else (low, value)
    return low


@pytest.mark.parametrize("samples", [50, 300, 10_000])
@pytest.mark.parametrize("found", [0.41, 0.95, 1.0])
def test_ten_times_what_matters_and_the_noise_of_two_networks(samples, found):
    at = limit(found, 0.01, samples)
    records = [trial(0, found), trial(1, at + 1e-6), trial(2, at - 1e-6)]
    assert [*Guard("accuracy", 0.01, samples).excluded(records)] == ["focal/0002"]


def test_what_has_learned_little_is_on_no_front_and_in_no_top():
    """An accuracy of .17 beside .41 on 300 images, with the lowest ECE."""
    study = guarded()
    records = [trial(0, 0.41, 0.08), trial(1, 0.17, 0.001), trial(2, 0.40, 0.05)]
    ranking = Ranking(study, trials_of(records))
    assert [one.name for one in ranking.front] == ["focal/0000", "focal/0002"]
    assert [one.name for one in lowest(ranking, 2)] == ["focal/0002", "focal/0000"]
    assert excluded_line(ranking.excluded) == ("1 trial is excluded: 1 is far worse than the best.")
    assert ranking.refused == {}
    # The sampler does not see it.
    assert max(ranking.rules.violations(records[1].metrics, {"accuracy": 0.41}).values()) < 0


def test_the_best_stays_whatever_the_others_are():
    study = guarded(constraints=["ece <= 0.05"])
    records = [trial(0, 0.9, 0.2), trial(1, 0.3, 0.04), trial(2, 0.05, 0.01)]
    ranking = Ranking(study, trials_of(records))
    # The most accurate violates a constraint: the best of those that do not is the measure.
    assert [one.name for one in ranking.eligible] == ["focal/0001"]
    assert excluded_line(ranking.excluded) == (
        "2 trials are excluded: 1 violates a constraint, 1 is far worse than the best."
    )
    alone = Ranking(study, trials_of(records[2:]))
    assert [one.name for one in alone.eligible] == ["focal/0002"]
    assert Guard("accuracy", 0.01, 300).excluded([]) == {}


@pytest.mark.parametrize(
    ("keys", "metric"),
    [
        ({}, "accuracy"),
        ({"guard": "off"}, None),
        ({"constraints": ["accuracy >= best - 0.02"]}, None),
        ({"constraints": ["ece <= 0.1"]}, "accuracy"),
        ({"objectives": (Objective("error", "minimize"), Objective("ece", "minimize"))}, "error"),
        ({"objectives": (Objective("nll", "minimize"),)}, None),
    ],
)
def test_which_metric_is_guarded(keys, metric):
    study = guarded(**keys)
    guard = guard_of(study)
    assert (guard and guard.metric) == metric


def test_a_study_recorded_without_the_key_or_not_run_has_no_guard():
    study = guarded()
    del study.plain["guard"]
    assert guard_of(study) is None
    assert Rules(study.own_objectives).guard is None


def test_an_error_is_guarded_from_below_and_what_matters_is_the_studys():
    guard = Guard("error", 0.01, 300)
    records = [trial(0, 0, error=0.1), trial(1, 0, error=0.5), trial(2, 0)]
    assert [*guard.excluded(records)] == ["focal/0001"]
    assert Guard("error", 0.2, 300).excluded(records) == {}


def test_a_default_that_was_confirmed_counts_and_a_candidate_does_not():
    study = guarded()

    def row(label, role, accuracy):
        measured = (trial(0, accuracy, label=label), trial(1, accuracy, label=label))
        candidate = trial(7, accuracy) if role == "candidate" else None
        return Confirmed(label, role, candidate, measured, (), {})

    rows = [
        row("focal_0001", "candidate", 0.9),
        row("mbls_0007", "candidate", 0.2),
        row("mbls_default", "default", 0.2),
        row("cross_entropy_default", "baseline", 0.2),
        row("focal_0000_default", "candidate", 0.2),
    ]
    counted, aside = rows_that_count(study, rows)
    assert [*aside] == ["mbls_0007"] and len(counted) == 4


def test_a_study_that_began_without_the_rule_goes_on_without_it(tmp_path):
    storage = copy_of(digits(), tmp_path / "storage")
    file = storage / "small" / "study.yaml"
    file.write_text(file.read_text().replace("guard: auto\n", ""))
    for _ in range(2):
        here("run", "small", "--storage", storage)
        assert guard_of(open_study("small", str(storage))) is None
    assert guard_of(open_study("small", str(digits()))) is not None
