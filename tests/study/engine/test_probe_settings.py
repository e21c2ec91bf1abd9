"""The settings that are probed, against means over many values; what their answers become."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from search_spaces.space import parse_entry
from study.engine import probe as probing
from study.engine.probe import Answers, Jobs, Say, probe, settings_of
from study.schema.errors import SpecError
from study.schema.variant import Space
from study.store.targets import Targets
from tests.study.analysis.test_prediction import MEASURED, study
from trainables.trial_probe import Answer, Job


def space(**ranges: object) -> Space:
    entries = {path.replace("__", "."): parse_entry(path, plain) for path, plain in ranges.items()}
    return Space(entries, {}, [], {})  # type: ignore[arg-type]


@pytest.mark.parametrize("log", [False, True])
def test_the_ends_of_a_batch_size_have_the_mean_number_of_steps(log: bool) -> None:
    """Against the mean over many values drawn evenly from the range."""
    found = settings_of(space(batch_size={"low": 32, "high": 256, "int": True, "log": log}))
    assert [setting["batch_size"] for _, setting in found] == [32, 256]
    places = (np.arange(100_000) + 0.5) / 100_000
    drawn = 32 * 8**places if log else 32 + 224 * places
    assert sum(weight / setting["batch_size"] for weight, setting in found) == pytest.approx(
        (1 / drawn).mean(), 1e-6
    )
    assert sum(weight for weight, _ in found) == pytest.approx(1)


def test_choices_of_a_batch_size_and_the_middle_of_the_rest() -> None:
    found = settings_of(
        space(
            batch_size={"choices": [16, 32, 64]},
            model__width={"low": 10, "high": 30, "int": True},
            method__gamma={"low": 0.01, "high": 1.0, "log": True},
        )
    )
    assert all(setting["method.gamma"] == pytest.approx(0.1) for _, setting in found)
    assert {(setting["batch_size"], setting["model.width"]) for _, setting in found} == {
        (16, 10), (16, 30), (64, 10), (64, 30)
    }  # fmt: skip
    assert sum(weight / setting["batch_size"] for weight, setting in found) == pytest.approx(
        (1 / 16 + 1 / 32 + 1 / 64) / 3
    )
    assert sum(weight * setting["model.width"] for weight, setting in found) == pytest.approx(20)


def test_the_published_default_is_probed() -> None:
    one = Space(
        {"method.gamma": parse_entry("", {"low": 0.0, "high": 5.0})},
        {},
        [{"method.gamma": 3.0}],
        {},
    )  # type: ignore[dict-item]
    assert settings_of(one) == [(1, {"method.gamma": 3.0})]


def test_answers_of_several_processes_weigh_alike(tmp_path: Path) -> None:
    """Two batch sizes, equally likely, in two processes, of which one takes twice as long."""
    spec = study(methods=["focal"], search_space={"batch_size": {"choices": [16, 64]}})

    def where(jobs: Jobs, say: Say) -> Answers:
        (trials,) = (job.trials for job in jobs.values())
        for epoch in (1.0, 2.0):
            say("asked")
            cost = replace(MEASURED, epoch=epoch)
            yield "focal", Answer([(weight, cost) for weight, _ in trials])

    said: list[str] = []
    found = probe(spec, "small.yaml", "", ["focal"], said.append, Targets(tmp_path), where)
    assert [weight for weight, _ in found["focal"]] == pytest.approx([0.25] * 4)
    assert [cost.epoch for _, cost in found["focal"]] == [1, 1, 2, 2]
    assert said == ["asked"] * 2


def test_the_first_problem_ends_the_probe_and_names_its_field(tmp_path: Path) -> None:
    closed = []

    def where(jobs: Jobs, say: Say) -> Answers:
        try:
            yield "cross_entropy", Answer([(1.0, MEASURED)])
            yield "focal", Answer(problem="no such loss.")
        finally:
            closed.append(True)

    labels = ["cross_entropy", "focal"]
    with pytest.raises(SpecError, match=r"^small.yaml: methods.focal: no such loss\.$"):
        probe(study(), "small.yaml", "", labels, print, Targets(tmp_path), where)
    assert closed


def test_as_many_processes_as_trials_train_beside_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of twenty CPUs: at most eight, or as many as share a GPU. All are asked before one answers,
    and closed once nobody listens."""
    log: list[str] = []

    class Child:
        def __init__(self, folder: str, threads: int) -> None:
            log.append(f"{threads} threads")

        def ask(self, job: Job) -> None:
            log.append("ask")

        def answer(self) -> Answer:
            log.append("answer")
            return Answer()

        def close(self) -> None:
            log.append("close")

    monkeypatch.setattr(probing, "_Child", Child)
    jobs = {
        label: Job([], "", {"cpu": cpu, "gpu": gpu}, [])
        for label, cpu, gpu in (("many", 1, 0), ("few", 8, 0), ("half", 1, 0.5), ("large", 30, 0))
    }
    found = [label for label, _ in probing.here(jobs, log.append, 20)]
    assert found == ["many"] * 8 + ["few"] * 2 + ["half"] * 2 + ["large"]
    assert log[:8] == ["30 threads"] * 8 and log[-8:] == ["close"] * 8
    place = log.index("probing few (2 of 4)")
    assert log[place + 1 : place + 5] == ["ask", "ask", "answer", "answer"]
    first = probing.here(jobs, log.append, 1)
    assert next(first) == ("many", Answer())
    log.clear()
    first.close()
    assert log == ["close"]
