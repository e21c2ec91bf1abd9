"""A study with a metric of one's own as objective and constraint, from plan to a verified model.

What reads the study has the recorded values: it never runs the metric's file.
"""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pytest import approx

from study.engine import probe
from study.store.openings import read_tested
from study.store.study import StudyFolder, open_study
from tests.study.command_line import here, here_json, write_spec
from trainables import plugins
from trainables.plugins import use_extensions
from trainables.trial_probe import Answer, Job, answer

GAP = """
import torch

open({trail!r}, "a").write("imported ")
METRICS = {{
    "gap": {{"stored": True, "kind": "fraction", "matters": 0.02}},
    "wrong_sum": {{"better": "lower", "kind": "score", "largest": None, "reference": 9.0}},
}}


def gap(logits, labels):
    hits = (logits.argmax(dim=-1) == labels).double()
    each = torch.stack([hits[labels == k].mean() for k in labels.unique()])
    return each.max() - each.min()


def wrong_sum(logits, labels):
    {line}
"""
SUM = "return (logits.argmax(dim=-1) != labels).double().mean() * 2"
OBJECTIVES = [
    {"metric": "accuracy", "direction": "maximize"},
    {"metric": "gap", "direction": "minimize"},
    {"metric": "wrong_sum", "direction": "minimize"},
]
READ = {
    "status": (),
    "trials": (),
    "pareto": ("--bootstrap", 100),
    "answer": (),
    "sync": (),
    "figures": ("--only", "front", "--bootstrap", 100),
    "report": ("--bootstrap", 100),
    "audit": (),
    "export": ("--name", "m"),
}


@pytest.fixture(autouse=True)
def own_names_only(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(plugins, "_opened", {})
    yield
    use_extensions(None)


def written(folder: Path, line: str = SUM, **keys: Any) -> Path:
    (folder / "mine" / "metrics").mkdir(parents=True)
    text = GAP.format(trail=str(folder / "trail"), line=line)
    (folder / "mine" / "metrics" / "fair.py").write_text(text)
    given = {"trials": 2, "epochs": 1, "extensions": "mine", "objectives": OBJECTIVES, **keys}
    given.setdefault("matters", {"wrong_sum": 0.05})
    return write_spec(folder / "small.yaml", **given)


def gap_of(file: Path) -> float:
    """By NumPy, from stored predictions."""
    with np.load(file) as arrays:
        hits = arrays["logits"].argmax(axis=1) == arrays["labels"]
        each = [hits[arrays["labels"] == k].mean() for k in np.unique(arrays["labels"])]
    return float(max(each) - min(each))


@pytest.mark.slow
def test_from_plan_to_a_verified_model(tmp_path: Path) -> None:
    storage = tmp_path / "studies"
    where = ("--storage", storage)
    trail = tmp_path / "trail"
    spec = written(tmp_path, constraints=["gap <= 0.95"])
    assert "minimize gap, minimize wrong_sum" in here("plan", spec, *where)
    here("run", spec, *where)
    study = open_study("small", str(storage))
    complete = study.records().complete
    assert len(complete) == 4
    for record in complete:
        assert set(record.extensions) == {"metrics/fair.py"}
        assert record.metrics["gap"] == approx(gap_of(study.files(record) / "predictions.npz"))
        assert record.metrics["wrong_sum"] == approx(2 * record.metrics["error"])
    here("confirm", "small", "--pareto", "--seeds", 2, *where)
    assert_measured_on_test(open_study("small-confirm", str(storage)))

    trail.unlink()
    shutil.rmtree(tmp_path / "mine")  # the study keeps its own
    said = {}
    for command, words in READ.items():
        use_extensions(None)
        said[command] = here(command, "small", *words, *where)
    said["given"] = here("pareto", "small", "--objectives", "gap,nll", *where)
    assert "searched and stopped for accuracy, gap, wrong_sum" in said["given"]
    use_extensions(None)
    assert here_json("verify", "models:/m/1", *where)["ok"]
    assert not trail.exists()
    without = "no intervals for gap and wrong_sum: they are your own metrics"
    assert f"{without}; so there are no shares either." in said["pareto"]
    assert f"(95% intervals; {without})" in " ".join(said["answer"].split())
    assert "clean" in said["audit"]
    page = (storage / "small" / "report.html").read_text()
    assert f"N{without[1:]}." in page

    # A change of its file is refused as of any other that a trial used.
    kept = storage / "small" / "extensions" / "metrics" / "fair.py"
    kept.write_text(kept.read_text().replace("* 2", "* 3"))
    use_extensions(None)
    refused = here("run", "small", *where, check=2)
    assert "extensions: metrics/fair.py has changed since trial" in refused
    assert "extensions/metrics/fair.py" in here("audit", "small", *where, check=1)


def assert_measured_on_test(confirmation: StudyFolder) -> None:
    tested = read_tested(confirmation)
    found = 0
    for record in confirmation.records().complete:
        one = tested[record.label][record.number]
        assert one.metrics["gap"] == approx(gap_of(confirmation.files(record) / "test.npz"))
        assert one.metrics["wrong_sum"] == approx(2 * one.metrics["error"])
        found += 1
    assert found


class AnsweredHere:
    """A process that probes, without the process: test_plan.py and test_probe.py start some."""

    def __init__(self, folder: str, threads: int) -> None:
        self._jobs: list[Job] = []

    def ask(self, job: Job) -> None:
        self._jobs.append(job)

    def answer(self) -> Answer:
        return answer(self._jobs.pop(0))

    def close(self) -> None:
        self._jobs.clear()


@pytest.mark.slow
def test_what_fails_in_it_is_said_with_its_line_by_the_probe_and_the_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "_Child", AnsweredHere)
    spec = written(tmp_path, "return labels / 0 if labels.sum() else [][0]", trials=1)
    where = ("--storage", tmp_path / "studies")
    place = "metrics/fair.py, line 17, in wrong_sum: must return one number, got a tensor [287]"
    said = here("plan", spec, "--probe", *where, check=2).splitlines()[-1]
    assert said == f"small.yaml: extensions: {place}."
    here("run", spec, *where, check=1)
    for record in open_study("small", str(tmp_path / "studies")).records():
        assert (record.state, record.reason) == ("failed", f"{place}.")


def test_one_that_cannot_be_imported_is_refused_by_plan(tmp_path: Path) -> None:
    spec = written(tmp_path)
    file = tmp_path / "mine" / "metrics" / "fair.py"
    file.write_text(file.read_text().replace("import torch", "import no_such_thing"))
    said = here("plan", spec, "--storage", tmp_path / "studies", check=2).splitlines()[-1]
    assert said == (
        "small.yaml: extensions: metrics/fair.py: cannot be imported: ModuleNotFoundError: No"
        " module named 'no_such_thing'."
    )


def test_an_objective_says_what_matters(tmp_path: Path) -> None:
    spec = written(tmp_path, matters={"gap": 0.1})
    said = here("plan", spec, "--storage", tmp_path / "studies", check=2).splitlines()[-1]
    assert said == (
        "small.yaml: matters.wrong_sum: is missing: wrong_sum does not say which difference"
        " matters. Write matters: {wrong_sum: NUMBER}."
    )


def test_they_are_listed(tmp_path: Path) -> None:
    written(tmp_path)
    rows = json.loads(here("list", "metrics", "--extensions", tmp_path / "mine", "--json"))
    assert {"gap", "wrong_sum", "ts_gap"} < {row["name"] for row in rows}
    assert not (tmp_path / "trail").exists()
    use_extensions(None)
    assert "gap" not in {row["name"] for row in here_json("list", "metrics")}
