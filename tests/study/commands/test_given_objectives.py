"""Objectives given afterwards: fronts by brute force over the CSV of trials, volumes by hand, and a
study that had these objectives from the start."""

import csv
import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pytest import approx
from sklearn.metrics import log_loss

from search_spaces import strict_yaml
from study.analysis.ranking import Ranking
from study.python import Study as OfPython
from study.schema.objective import Objective, read_objectives
from study.store.files import PREDICTIONS, stored_predictions
from study.store.study import StudyFolder, open_study
from study.store.with_objectives import with_objectives
from tests.study.command_line import here, here_apart, here_json
from tests.study.made import OBJECTIVES, made_study, random_predictions
from trainables.outputs.predictions import Predictions
from trainables.problems import FieldError

LINE = "objectives given afterwards; searched and stopped for accuracy, ece"
ACCURACY_NLL = (Objective("accuracy", "maximize"), Objective("nll", "minimize"))
LABELS = ("cross_entropy", "focal")


def predictions(label: str, number: int) -> Predictions:
    """All of the same samples, each trial with its own noise; focal less sure of itself."""
    of_all = random_predictions(0)
    noise = random_predictions(10 * LABELS.index(label) + number + 1).logits
    scale = (0.6, 1.4)[label == "focal"] + 0.3 * number
    return Predictions(scale * (of_all.logits + 0.2 * noise), of_all.labels)


def study_of(root: Path, name: str, objectives: tuple[Objective, ...] = OBJECTIVES) -> StudyFolder:
    found = {label: [predictions(label, number) for number in range(4)] for label in LABELS}
    trials = {label: [(one.evaluate(), []) for one in each] for label, each in found.items()}
    return made_study(
        root,
        name,
        trials,
        objectives=objectives,
        predictions=lambda label, number: found[label][number],
        planned=4,
    )


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("given")
    study_of(root, "small")
    return root


def rows_of(storage: Path, name: str = "small") -> list[dict[str, str]]:
    file = storage / f"{name}.csv"
    here("trials", name, "--csv", file, "--storage", storage)
    return list(csv.DictReader(file.read_text().splitlines()))


def dominant(points: dict[str, tuple[float, ...]]) -> set[str]:
    """The names of those that no other dominates; smaller is better. Every pair is looked at."""

    def dominates(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
        return all(np.less_equal(one, other)) and any(np.less(one, other))

    return {
        name
        for name, point in points.items()
        if not any(dominates(other, point) for other in points.values())
    }


@pytest.mark.parametrize(
    "metrics", ["accuracy,nll", "nll", "ts_nll,classwise_ece", "ece,accuracy,brier"]
)
def test_the_front_is_that_of_brute_force_over_the_csv(storage: Path, metrics: str) -> None:
    names = metrics.split(",")
    points = {
        row["trial"]: tuple(-float(row[n]) if n == "accuracy" else float(row[n]) for n in names)
        for row in rows_of(storage)
    }
    found = here_json("pareto", "small", "--objectives", metrics, "--storage", storage)
    assert next(iter(found)) == "afterwards" and found["afterwards"] == LINE
    assert [one["metric"] for one in found["objectives"]] == names
    front = {f"{one['method']}/{one['number']:04d}" for one in found["front"]}
    assert front == dominant(points) and len(points) == 8


def test_a_metric_not_recorded_is_that_of_the_stored_predictions(storage: Path) -> None:
    """Debiased by nobody's code but NumPy's: the root of the mean squared gap, bin by bin."""
    study = with_objectives(
        open_study("small", str(storage)), read_objectives("accuracy,rmsce", "here")
    )
    for record in study.records():
        of = stored_predictions(study, record)
        probs = of.logits.double().softmax(-1).numpy()
        tops = probs.max(1)
        hits = probs.argmax(1) == of.labels.numpy()
        bins = np.ceil(tops * 15).astype(int)
        squares = [
            (bins == k).mean() * (hits[bins == k].mean() - tops[bins == k].mean()) ** 2
            for k in np.unique(bins)
        ]
        assert record.metrics["rmsce"] == approx(np.sqrt(sum(squares)), rel=1e-6)
        assert record.metrics["nll"] == approx(log_loss(of.labels, probs), rel=1e-5)
    assert not any("rmsce" in one.metrics for one in open_study("small", str(storage)).records())


def test_the_hypervolume_is_that_by_hand(tmp_path: Path) -> None:
    """The reference is the first trial, a default, in these objectives: accuracy .80, NLL .60."""
    values = [(0.80, 0.60), (0.90, 0.50), (0.95, 0.55), (0.85, 0.25)]
    trials = [({"accuracy": a, "ece": 0.1, "nll": n}, []) for a, n in values]
    made_study(tmp_path, "hand", {"cross_entropy": trials})
    found = here_json("pareto", "hand", "--objectives", "accuracy,nll", "--storage", tmp_path)
    assert found["hypervolume_reference"] == approx({"accuracy": 0.80, "nll": 0.60})
    # From accuracy .80 to .85 down to .25; to .90 down to .50; to .95 down to .55.
    assert found["hypervolume"] == approx(0.05 * 0.35 + 0.05 * 0.10 + 0.05 * 0.05)
    assert [one["number"] for one in found["front"]] == [2, 1, 3]


def without_commands(sentences: list[str]) -> list[str]:
    return [re.sub(r"`calstudy [^`]*`", "", sentence) for sentence in sentences]


def test_the_answer_is_that_of_a_study_with_these_objectives(tmp_path: Path, storage: Path) -> None:
    study_of(tmp_path, "small", ACCURACY_NLL)
    own = here_json("answer", "small", "--storage", tmp_path)
    given = here_json("answer", "small", "--objectives", "accuracy,nll", "--storage", storage)
    assert given["afterwards"] == LINE and "afterwards" not in own
    assert given["trial"] == own["trial"]
    assert without_commands(given["sentences"]) == without_commands(own["sentences"])
    export = [command for command, _ in given["next"] if " export " in command]
    assert f"--trial {own['trial']} --objectives accuracy,nll" in export[0]


@pytest.mark.slow
def test_a_temperature_is_served_where_these_say_so(tmp_path: Path, storage: Path) -> None:
    """As for a study that had them; a study whose file says what is served keeps that."""
    objectives = read_objectives("accuracy,ts_ece", "here")
    study_of(tmp_path, "small", objectives)
    own = here_json("answer", "small", "--storage", tmp_path)
    given = here_json("answer", "small", "--objectives", "accuracy,ts_ece", "--storage", storage)
    assert "with its temperature" in own["sentences"][0]
    assert given["sentences"][0] == own["sentences"][0]
    assert any(" --temperature " in command for command, _ in given["next"])
    seen = open_study("small", str(storage))
    seen = with_objectives(replace(seen, plain={**seen.plain, "serve": "raw"}), objectives)
    assert [one.metric for one in seen.served] == ["accuracy", "ece"]
    assert seen.serves_note == (
        "models are registered as trained (serve: raw) and have accuracy, ece;"
        " accuracy, ts_ece were asked for"
    )


@pytest.mark.parametrize("command", ["pareto", "answer"])
def test_its_own_in_their_order_change_nothing(storage: Path, command: str) -> None:
    plain = here(command, "small", "--storage", storage)
    assert here(command, "small", "--objectives", "accuracy,ece", "--storage", storage) == plain
    assert "afterwards" not in plain


@pytest.mark.slow
def test_what_is_printed_begins_with_the_line(storage: Path, tmp_path: Path) -> None:
    words = ("small", "--objectives", "accuracy,nll", "--storage", storage)
    for more in (
        ("pareto",),
        ("pareto", "--csv", tmp_path / "front.csv"),
        ("pareto", "--compare", "focal/0", "focal/1"),
        ("answer",),
    ):
        shown = here(more[0], *words, *more[1:])
        assert shown.splitlines()[0] == LINE, more
    table = ("report", *words, "--format")
    assert LINE[1:] in here(*table, "md") and LINE[1:] in here(*table, "latex").split("label")[0]
    text, said = here_apart(*table, "csv")
    assert said[1:].startswith(LINE[1:]) and text.startswith("study,")


@pytest.mark.slow
def test_the_studys_own_page_and_figures_stay_and_others_begin_with_the_line(
    tmp_path: Path,
) -> None:
    study = study_of(tmp_path, "small")
    at = ("--storage", tmp_path, "--bootstrap", 0)
    here("report", "small", *at)
    here("figures", "small", "--only", "front", *at)
    own = {file: file.read_bytes() for file in study.directory.rglob("*") if file.is_file()}
    given = ("small", "--objectives", "accuracy,nll", *at)
    for command in (("report", *given), ("figures", *given, "--only", "front")):
        shown = here(*command)
        assert shown.splitlines()[0] == LINE and "MLflow" not in shown
    assert own.items() <= {file: file.read_bytes() for file in own}.items()
    page = (study.directory / "report-accuracy-nll.html").read_text()
    assert f'"afterwards":"{LINE}"' in page and '"objectives":["accuracy","nll"]' in page
    assert (study.directory / "figures-accuracy-nll" / "front.png").is_file()


def test_constraints_and_who_guesses_stay_the_studys_own(tmp_path: Path) -> None:
    """A bound on the best ECE, which is no objective any more; the guesser has the lowest NLL."""
    values = [(0.9, 0.02, 0.5), (0.9, 0.30, 0.3), (0.11, 0.01, 0.1), (0.8, 0.04, 0.4)]
    trials = [({"accuracy": a, "ece": e, "nll": n}, []) for a, e, n in values]
    study = made_study(tmp_path, "bound", {"cross_entropy": trials}, majority=0.1)
    plain = {**study.plain, "constraints": ["ece <= best + 0.1"]}
    recorded = study.recorded.to_plain()
    file = study.directory / "study.yaml"
    file.write_text(strict_yaml.dump({**plain, "recorded": recorded}))
    seen = with_objectives(open_study("bound", str(tmp_path)), ACCURACY_NLL)
    ranking = Ranking(seen, seen.records())
    assert [record.number for record in ranking.front] == [0, 3]
    assert {name[-1]: reason.split()[0] for name, reason in ranking.excluded.items()} == {
        "1": "ece",
        "2": "guesses:",
    }


@pytest.mark.slow
def test_lost_predictions_are_left_out_and_counted_in_a_line(tmp_path: Path) -> None:
    study = study_of(tmp_path, "small")
    records = study.records()
    lost = study.files(records.numbered("focal", 0)) / PREDICTIONS  # type: ignore[arg-type]
    lost.unlink()
    changed = study.files(records.numbered("focal", 2)) / PREDICTIONS  # type: ignore[arg-type]
    os.truncate(changed, 100)
    at = ("--objectives", "accuracy,rmsce", "--storage", tmp_path)
    shown = here("pareto", "small", *at)
    (line,) = [one for one in shown.splitlines() if "left out" in one]
    assert "focal/0000 is left out: rmsce: it was not recorded, and predictions.npz is" in line
    assert "focal/0002 is left out" in line
    for command in (("answer",), ("figures", "--bootstrap", 0, "--only", "front")):
        assert here(command[0], "small", *at, *command[1:]).startswith(LINE)
    # What was recorded needs no file.
    front = here_json("pareto", "small", "--objectives", "nll", "--storage", tmp_path)["front"]
    assert front and "left out" not in here(
        "pareto", "small", "--objectives", "nll", "--storage", tmp_path
    )


def test_undefined_on_some_predictions_is_left_out_too(tmp_path: Path) -> None:
    """Nothing of a trial that is never sure lies above 99% confidence."""
    unsure = random_predictions(0, scale=0.1)
    sure = random_predictions(0, scale=9.0)
    both = [unsure, sure]
    made_study(
        tmp_path,
        "some",
        {"cross_entropy": [(one.evaluate(), []) for one in both]},
        predictions=lambda label, number: both[number],
    )
    shown = here("pareto", "some", "--objectives", "accuracy_above_99", "--storage", tmp_path)
    assert "cross_entropy/0000 is left out: accuracy_above_99: it has no value on its" in shown


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("", "names no metric. Write metrics such as accuracy,nll."),
        ("test_ece", "test_ece is of the sealed test split, on which nothing is selected. Write"),
        ("accuracy,acuracy", "there is no metric 'acuracy'. Did you mean 'accuracy'?"),
        ("share_above_99", "share_above_99 has no better direction. Use accuracy_above_99."),
        ("nll, nll", "'nll' is listed twice. Remove one."),
    ],
)
def test_what_is_no_objective_is_refused(storage: Path, given: str, said: str) -> None:
    for command in ("pareto", "answer", "report", "figures"):
        words = (command, "small", "--objectives", given, "--storage", storage)
        shown = here(*words, check=2)
        assert shown.startswith(f"--objectives: {said}") and shown.count("\n") == 1


def test_undefined_for_the_classes_is_refused(tmp_path: Path) -> None:
    values = {"accuracy": 0.9, "ece": 0.1}
    study = made_study(tmp_path, "few", {"cross_entropy": [(values, [])]}, classes=3)
    with pytest.raises(FieldError, match="top5_accuracy is undefined for 3 classes"):
        with_objectives(study, [Objective("top5_accuracy", "maximize")])


def test_in_python(storage: Path) -> None:
    study = OfPython.open("small", storage)
    front = study.front(objectives=["accuracy", "rmsce"])
    assert front.attrs["afterwards"] == LINE and list(front["front"].unique()) == [True]
    points = {
        row["trial"]: (-row["accuracy"], row["rmsce"]) for row in seen_rows(study, "accuracy,rmsce")
    }
    assert set(front["trial"]) == dominant(points)
    assert "rmsce" not in study.front() and not study.front().attrs


def seen_rows(study: OfPython, metrics: str) -> list[dict[str, Any]]:
    of = open_study(str(study.directory), None)
    seen = with_objectives(of, read_objectives(metrics, "here"))
    return [{"trial": record.name, **record.metrics} for record in seen.records()]


def test_json_is_one_object(storage: Path) -> None:
    text = here("answer", "small", "--objectives", "nll", "--json", "--storage", storage)
    assert json.loads(text)["afterwards"] == LINE


def test_a_metric_of_ones_own_is_read_where_it_was_recorded_and_never_run(tmp_path: Path) -> None:
    values = [(0.80, 0.60), (0.90, 0.50), (0.95, 0.55), (0.85, 0.25)]
    trials = [({"accuracy": a, "ece": 0.1, "mine": m}, []) for a, m in values]
    study = made_study(tmp_path, "own", {"cross_entropy": trials})
    folder = study.directory / "extensions" / "metrics"
    folder.mkdir(parents=True)
    (folder / "of_mine.py").write_text(
        'METRICS = {"mine": {"stored": True}, "unsaid": {}}\n'
        "def mine(logits, labels): ...\n"
        "def unsaid(logits, labels): ...\n"
        'raise SystemExit("it was run")\n'
    )
    file = study.directory / "study.yaml"
    plain = {**study.plain, "extensions": "extensions", "recorded": study.recorded.to_plain()}
    file.write_text(strict_yaml.dump(plain))
    at = ("--storage", tmp_path)
    found = here_json("pareto", "own", "--objectives", "accuracy,mine", *at)
    assert [one["number"] for one in found["front"]] == [2, 1, 3]
    shown = here("pareto", "own", "--objectives", "unsaid", *at, check=2)
    assert shown.startswith("--objectives: no trial recorded unsaid, and a metric of your own is")
    shown = here("answer", "own", "--objectives", "mine", *at, check=2)
    assert shown.startswith("--objectives: mine does not say which difference matters. Leave it")


def test_two_trials_are_compared_by_an_objective_without_intervals(tmp_path: Path) -> None:
    values = [0.002, 0.005]
    first = random_predictions(0)
    made = [first, Predictions(random_predictions(1).logits, first.labels)]
    made_study(
        tmp_path,
        "two",
        {
            "cross_entropy": [
                ({**one.evaluate(), "skce": value}, [])
                for one, value in zip(made, values, strict=True)
            ]
        },
        objectives=(*OBJECTIVES, Objective("skce", "minimize")),
        predictions=lambda label, number: made[number],
    )
    words = ("--compare", "cross_entropy/0", "cross_entropy/1", "--bootstrap", 100)
    at = ("--storage", tmp_path)
    (line,) = [one for one in here("pareto", "two", *words, *at).splitlines() if "skce " in one]
    assert line.split() == ["skce", "0.0020", "0.0050", "-0.0030", "-", "-"]
    found = here_json("pareto", "two", *words, *at)["metrics"]["skce"]
    assert (found["one"], found["other"]) == (0.002, 0.005)
    assert (found["low"], found["high"]) == (None, None)
