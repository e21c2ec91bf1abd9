"""When a method has stalled, against areas counted cell by cell, and an example by hand."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from pytest import approx

from study.analysis.ranking import Ranking
from study.analysis.stalled import stalled, stalled_lines
from study.store.study import StudyFolder
from study.store.trials import TrialRecord
from tests.study.made import trials_of, unwritten_study

PARAMS = {"method.gamma": 1.0, "optimizer.lr": 0.1}


def trial(
    number: int, accuracy: float, ece: float, label: str = "focal", state: str = "complete"
) -> TrialRecord:
    metrics = {"accuracy": accuracy, "ece": ece} if state == "complete" else {}
    return TrialRecord(label, number, state, PARAMS, metrics, seconds=36.0, ended=float(number))  # type: ignore[arg-type]


def searched(trials: int, **more: object) -> StudyFolder:
    """Its first trial is the default; accuracy 0.1 is guessing."""
    return unwritten_study(["focal"], trials=trials, majority=0.1, **more)


def area(points: list[tuple[float, float]], reference: tuple[float, float]) -> float:
    """Of (accuracy, ece) between the points and the reference: cell by cell of
    the grid that they span."""
    xs, ys = (
        sorted({reference[0], *(x for x, _ in points)}),
        sorted({reference[1], *(y for _, y in points)}),
    )
    cells = ((left, right, low, high) for left, right in pairwise(xs) for low, high in pairwise(ys))
    return sum(
        (right - left) * (high - low)
        for left, right, low, high in cells
        if left >= reference[0]
        and high <= reference[1]
        and any(x >= right and y <= low for x, y in points)
    )


@pytest.mark.parametrize("parameters", [1, 2, 3])
def test_it_is_the_growth_by_the_last_trials_in_the_order_they_ended(parameters: int) -> None:
    """Trials that guess, failed or were stopped early are among them; the
    reference is the one default."""
    generator, last, seen = np.random.default_rng(parameters), max(10, 4 * parameters), set()
    params = dict(list({**PARAMS, "method.weight": 0.5}.items())[:parameters])
    for _ in range(60):
        count = int(generator.integers(last - 1, last + 12))
        near = generator.random() ** 4  # how far the later trials may lie from the default
        records = [replace(trial(0, 0.5, 0.5), params=params, ended=-1.0)]
        for number in range(1, count):
            x, y = 0.5 + generator.normal(0, near * 0.1, 2)
            state = generator.choice(["complete", "failed", "pruned"], p=[0.8, 0.1, 0.1])
            one = trial(number, 0.05 if number % 7 == 0 else float(x), float(y), state=state)
            records.append(
                replace(
                    one, params=params, ended=float(generator.random()), seconds=float(10 + number)
                )
            )
        running = [
            replace(trial(count, 0, 0, state="running"), params=params, seconds=None, ended=None)
        ]
        found = stalled(Ranking(searched(count + 5), trials_of([*records, *running])))

        ordered = sorted(records, key=lambda record: record.ended or 0.0)
        counted = [
            record for record in ordered if record.metrics and record.metrics["accuracy"] > 0.15
        ]
        points = {one.number: (one.metrics["accuracy"], one.metrics["ece"]) for one in counted}
        before, now = (
            area([points[one.number] for one in some if one.number in points], (0.5, 0.5))
            for some in (ordered[: max(0, count - last)], ordered)
        )
        seen.add(bool(expected := before > 0 and (now - before) / before < 0.01))
        assert len(found) == expected
        for each in found:
            assert (each.last, each.begun, each.planned, each.left) == (
                last,
                count + 1,
                count + 5,
                5,
            )
            assert each.added == approx((now - before) / before, abs=1e-9)
            assert each.hours == approx(
                5 * sum(record.seconds or 0 for record in records) / count / 3600
            )
    assert seen == {True, False}


def example(last: float = 0.1, extra: int = 0) -> list[TrialRecord]:
    """A default at accuracy 0.8 and ECE 0.2, one trial that dominates an area of 0.01 more,
    `extra` that add nothing,
    and the ninth after it, which dominates as much again times `last`."""
    rest = [trial(number, 0.7, 0.1) for number in range(2, 11 + extra)]
    return [trial(0, 0.8, 0.2), trial(1, 0.9, 0.1), *rest, trial(11 + extra, 0.9, 0.1 - 0.1 * last)]


def said(study: StudyFolder, records: list[TrialRecord]) -> str:
    return " ".join(stalled_lines(stalled(Ranking(study, trials_of(records)))))


def test_what_is_said_by_hand() -> None:
    """The area is 0.1 x 0.1 and grows by 0.1 x 0.0004: by 0.4%. 12 left of 36 s on
    2 CPUs are 0.24 hours."""
    study = searched(24, resources={"cpu": 2, "gpu": 0})
    assert (
        said(study, example(0.004))
        == "focal: its last 10 trials added about 0.4% to its hypervolume; the 12 left would cost"
        " about 0.24 CPU-hours. Nothing stops by itself. To train no more than 12 trials of any"
        " method, end the run and repeat it with `--trials 12`."
    )
    assert said(study, example(0.0101)) == "", "more than 1%"
    assert "added nothing to" in said(study, example(0.0))
    assert "the 12 left would cost about 0.03 GPU-hours" in said(
        searched(24, resources={"cpu": 2, "gpu": 0.25}), example(0.0)
    )
    assert said(searched(12), example(0.0)) == "", "none is left"
    last = [*example(0.0), replace(trial(12, 0, 0, state="running"), ended=None)]
    assert (
        said(searched(13), last)
        == "focal: its last 10 trials added nothing to its hypervolume; the one left would cost"
        " about 0.01 CPU-hours."
    ), "it has begun: fewer `trials` do not spare it"


def test_many_methods_are_said_in_one_sentence() -> None:
    """Each has 12 trials left of 36 s: 0.12 hours."""
    labels = ["focal", "mbls", "brier", "mixup", "dece"]
    for count in (3, 4, 5):
        study = unwritten_study(labels[:count], trials=24, resources={"cpu": 1, "gpu": 0})
        records = [
            replace(record, label=label) for label in labels[:count] for record in example(0.0)
        ]
        lines = stalled_lines(stalled(Ranking(study, trials_of(records))))
        *lines, _ = lines  # how to spend less
        if count == 3:
            assert [line.partition(":")[0] for line in lines] == labels[:3]
        else:
            assert lines == [
                f"the last trials of {count} methods added less than 1% to their hypervolumes; the"
                f" {12 * count} left would cost about {0.12 * count:.2g} CPU-hours:"
                f" {', '.join(labels[:count])}."
            ]


def test_of_what_nothing_is_said() -> None:
    records = example(0.0)
    assert said(searched(24), records)
    repeats = [replace(record, params={}) for record in records]
    assert said(searched(24), repeats) == ""
    assert said(searched(24), records[:10]) == "", "too few have ended"
    at_work = [replace(records[0], state="running", metrics={}, ended=None), *records[1:]]
    assert said(searched(24), at_work) == "", "the reference is not fixed"
    guesses = [replace(records[0], metrics={"accuracy": 0.1, "ece": 0.2}), *records[1:]]
    assert said(searched(24), guesses) == "", "no default counts: there is no reference"
    better = [replace(records[0], metrics={"accuracy": 0.95, "ece": 0.05}), *records[1:]]
    assert said(searched(24), better) == "", "none is better than the default"


def test_a_method_is_measured_by_its_own_front_and_resources() -> None:
    """mbls dominates all of focal, so focal adds nothing to the study's front; its own still
    grows."""
    study = unwritten_study(["focal", "mbls"], trials=24)
    study.plain["methods"][1]["resources"] = {"cpu": 1, "gpu": 1}
    mbls = [replace(record, label="mbls") for record in example(0.0)]
    better = [
        *mbls[:1],
        *(replace(one, metrics={"accuracy": 0.99, "ece": 0.01}) for one in mbls[1:]),
    ]
    (found,) = stalled(Ranking(study, trials_of([*example(1.0), *better])))
    assert (found.label, found.device, found.hours) == ("mbls", "GPU", approx(0.12))
