"""The arithmetic of `plan --probe`, against sums done by hand."""

from itertools import permutations

import pytest

from study.analysis import prediction
from study.analysis.prediction import epochs_between, kept_between, predict
from study.analysis.rungs import RungEntry, goes_on
from study.schema.reading import spec_from_mapping
from study.schema.spec import StudySpec
from study.terminal.prediction import prediction_lines
from trainables.trial_probe import Cost

MEASURED = Cost(
    process_start=2.0,
    first=0.5,
    build=1.0,
    epoch=3.0,
    epoch_wall=4.0,
    result=2.0,
    checkpoint=0.25,
    files=1000,
    rows=10.0,
    checkpoint_size=600,
    memory=5000,
    device_memory=None,
)


def study(**keys: object) -> StudySpec:
    plain = {
        "name": "small",
        "data": "digits",
        "model": "mlp",
        "methods": ["cross_entropy", "focal"],
        "epochs": 10,
    }
    return spec_from_mapping({**plain, "trials": 8, "checkpoint_seconds": 15, **keys}, "small.yaml")


def test_a_method_by_hand() -> None:
    """Ten epochs of 4 s of the clock are 40 s, with a checkpoint after each 15 s: two; 1 +
    10 x 3 + 2 + 2 x 0.25."""
    spec = study(resources={"cpu": 2, "gpu": 0.5})
    found = predict(spec, {"focal": [(1.0, MEASURED)]}, slots=4)
    (method,) = found.methods
    assert (method.trial_seconds, method.trial_process_seconds, method.process_seconds) == (
        40,
        33.5,
        8 * 33.5,
    )
    assert method.cpu_hours == pytest.approx(
        8 * 40 * 2 / 3600
    ) and method.gpu_hours == pytest.approx(8 * 20 / 3600)
    assert method.disk == 8 * (1000 + 10 * 10)
    assert found.checkpoint_bandwidth == pytest.approx(4 * 600 / 15)


def test_the_run_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RUN": 5, "RUN_TRIAL": 0.25, "RUN_EPOCH": 0.05, "WORKER": 1.5}.items():
        monkeypatch.setattr(prediction, name, value)
    found = predict(
        study(), {"cross_entropy": [(1.0, MEASURED)], "focal": [(1.0, MEASURED)]}, slots=4
    )
    # The first trial of each method in each process.
    assert found.workers == 4 * (2 * 1.5 + 2 * 0.5)
    assert found.driver == 2 * (5 + 16 * 0.25 + 160 * 0.05)
    assert found.process_seconds == 16 * 33.5 + 16 + 34
    # 16 trials of 43 s, four at once, after 13 s; the driver's other 24 s beside them; at
    # worst one trial comes last
    assert found.elapsed == (13 + 16 * 43 / 4, 13 + (16 * 43 + 24) / 4 + 43)


def test_few_trials_need_few_workers_and_take_as_long_as_one() -> None:
    found = predict(study(trials=1, methods=["focal"]), {"focal": [(1.0, MEASURED)]}, slots=40)
    assert found.workers == pytest.approx(2 * prediction.WORKER + 0.5)
    assert found.elapsed[0] == pytest.approx(2 * (prediction.RUN + prediction.WORKER) + 43)


def test_a_searched_batch_size_is_a_weighted_mean() -> None:
    fast = Cost(**{**MEASURED.__dict__, "epoch": 1.0, "epoch_wall": 2.0, "memory": 9000})
    (method,) = predict(study(), {"focal": [(0.25, MEASURED), (0.75, fast)]}, 1).methods
    assert method.trial_seconds == 10 * (0.25 * 4 + 0.75 * 2)
    assert method.trial_process_seconds == 1 + 2 + 10 * 1.5 + 0.25  # 25 s: one checkpoint
    assert method.memory == 9000


def test_a_trial_shorter_than_a_checkpoint_writes_none() -> None:
    found = predict(study(epochs=2), {"focal": [(1.0, MEASURED)]}, slots=4)
    assert (
        found.checkpoint_bandwidth == 0 and found.methods[0].trial_process_seconds == 1 + 2 * 3 + 2
    )


def test_early_stopping_spares_the_rest_of_those_that_may_be_stopped() -> None:
    """Of 8 trials of focal, the three defaults are protected. At 0.33 of 10
    epochs, epoch 3 is judged.

    Of the other five 2/4 + 3/5 + 3/6 + 4/7 + 4/8 go on if all trials are alike; 0 + 0 + 0 +
    1/4 + 1/5 if the defaults
    are the best.
    """
    early = {"at": 0.33, "keep": 0.5}
    spec = study(early_stopping=early)
    least, most = 1 / 4 + 1 / 5, 2 / 4 + 3 / 5 + 3 / 6 + 4 / 7 + 4 / 8
    between = 1 - 0.7 * (5 - least) / 8, 1 - 0.7 * (5 - most) / 8
    assert epochs_between(spec, "focal") == pytest.approx(between)
    assert epochs_between(spec, "cross_entropy") == (1, 1)
    found = predict(spec, {"focal": [(1.0, MEASURED)]}, 1)
    assert found.with_early_stopping is not None
    (whole,) = found.methods
    (stopped,) = found.with_early_stopping.methods
    assert stopped.cpu_hours == pytest.approx(whole.cpu_hours * (between[0] + between[1]) / 2)
    # All are protected.
    assert epochs_between(study(trials=2, early_stopping=early), "focal") == (1, 1)


@pytest.mark.parametrize(("first", "keep"), [(0, 0.5), (1, 1 / 3), (2, 0.5), (4, 0.5)])
def test_the_limits_are_the_means_over_all_orders_of_the_trials(first: int, keep: float) -> None:
    """Six trials by the rule itself: in any order, or with those tried first as the best, in
    any order of the rest."""
    found: dict[bool, list[int]] = {True: [], False: []}
    for order in permutations(range(6)):
        kept = 0
        for place, cost in enumerate(order):
            before = [RungEntry(at, at, (float(order[at]),)) for at in range(place)]
            kept += place < first or goes_on(RungEntry(place, place, (float(cost),)), before, keep)
        found[set(order[:first]) == set(range(first))].append(kept)
    least, every = found[True], found[True] + found[False]
    expected = sum(least) / len(least), sum(every) / len(every)
    assert kept_between(first, 6, keep) == pytest.approx(expected)


def test_what_diverged_in_the_probe_is_said_with_its_method() -> None:
    diverged = Cost(
        **{**MEASURED.__dict__, "diverged": "loss is nan at epoch 1 (optimizer.lr=0.1)"}
    )
    probes = {"cross_entropy": [(1.0, MEASURED)], "focal": [(0.5, MEASURED), (0.5, diverged)]}
    found = predict(study(), probes, slots=4)
    (line,) = (line for line in prediction_lines(found) if "diverged" in line or "nan" in line)
    assert line.startswith(
        "warning: focal: loss is nan at epoch 1 (optimizer.lr=0.1) in the probe. In a study such a"
        " trial fails."
    )


def test_an_objective_without_a_value_in_the_probe_is_warned_of() -> None:
    none = Cost(**{**MEASURED.__dict__, "undefined": "objective gap is nan"})
    found = predict(study(), {"cross_entropy": [(1.0, MEASURED)], "focal": [(1.0, none)]}, slots=4)
    lines = prediction_lines(found)
    assert [line for line in lines if line.startswith("warning:")] == [
        "warning: focal: objective gap is nan in the probe. In a study such a trial fails. Choose"
        " another objective, or mend the metric if it is yours."
    ]


def test_early_stopping_is_predicted_with_its_limits() -> None:
    """Of eight trials of focal by hand above; cross-entropy is never stopped."""
    spec = study(early_stopping={"at": 0.33, "keep": 0.5})
    probes = {label: [(1.0, MEASURED)] for label in ("cross_entropy", "focal")}
    found = predict(spec, probes, 4)
    least, most = (1 + share for share in epochs_between(spec, "focal"))
    said = f"about {(least + most) / 4:.0%} of the epochs ({least / 2:.0%} to {most / 2:.0%})"
    assert any(
        line.startswith(f"with early stopping: {said}, ") for line in prediction_lines(found)
    )


def test_the_cost_is_said_as_a_budget_counts_it_and_in_cpu_seconds() -> None:
    spec = study(resources={"cpu": 2, "gpu": 0.25})
    found = predict(spec, {"focal": [(1.0, MEASURED)]}, 4)
    hours = spec.trials * spec.epochs * MEASURED.epoch_wall / 3600
    first, second, *_ = prediction_lines(found)
    assert first.startswith("CPU time: about ")
    assert second == (
        f"as a budget counts: about {2 * hours:.2g} CPU-hours, {hours / 4:.2g} GPU-hours (training"
        " time x what is reserved)"
    )
