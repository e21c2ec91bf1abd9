"""`calstudy evaluate FILE`: columns by name, two files, alerts; what does not fit is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pytest import CaptureFixture, approx

import calstudy
from tests.metrics.test_evaluate import run
from tests.study.evaluation.test_evaluate import CLASSES, LABELS, LOGITS, PROBS, WORDS

NAMES = [f"p_{name}" for name in CLASSES]


@pytest.fixture
def deployed(tmp_path: Path) -> Path:
    """What an engineer has: ids, a column a class, words."""
    frame = pd.DataFrame(PROBS, columns=NAMES)
    frame.insert(0, "id", [f"r{row}" for row in range(300)])
    frame["y_true"] = WORDS
    frame.to_csv(tmp_path / "deployed.csv", index=False)
    return tmp_path / "deployed.csv"


def written(folder: Path, columns: dict[str, Any], suffix: str = ".csv") -> Path:
    frame = pd.DataFrame(columns)
    path = folder / f"own{suffix}"
    frame.to_csv(path, index=False) if suffix == ".csv" else frame.to_parquet(path)
    return path


def metrics_of(out: str) -> Any:
    return json.loads(out)["metrics"]


EXPECTED = {
    name: value.value for name, value in calstudy.evaluate(LABELS, probs=PROBS).metrics.items()
}


@pytest.mark.parametrize("columns", ["p_*", "p_cat,p_dog,p_eel"])
def test_a_class_is_what_the_star_stands_for(
    capsys: CaptureFixture[str], deployed: Path, columns: str
) -> None:
    label = "y_true"
    if "*" not in columns:  # a list is in the order of numbers
        frame = pd.read_csv(deployed).assign(number=LABELS)
        frame.to_csv(deployed, index=False)
        label = "number"
    words = [deployed, "--label", label, "--probs", columns, "--no-intervals"]
    code, out, _ = run(capsys, *words, "--json")
    assert code == 0 and metrics_of(out) == approx(EXPECTED, abs=1e-9)
    _, out, _ = run(capsys, *words)
    ends = "cat to eel" if "*" in columns else "0 to 2"
    assert out.startswith(f"{deployed}: 300 samples, 3 classes, {ends}\n")


def test_numbered_columns_are_in_the_order_of_their_numbers(
    capsys: CaptureFixture[str], tmp_path: Path
) -> None:
    random = np.random.default_rng(0)
    probs = random.dirichlet(np.ones(12), size=50)
    labels = random.integers(0, 12, 50)
    shuffled = random.permutation(12)
    columns = {f"p_{number}": probs[:, number] for number in shuffled}
    for suffix in (".csv", ".parquet"):
        path = written(tmp_path, {**columns, "y": labels}, suffix)
        words = [path, "--label", "y", "--probs", "p_*", "--no-intervals", "--json"]
        _, out, _ = run(capsys, *words)
        expected = calstudy.evaluate(labels, probs=probs, intervals=False).metrics
        assert metrics_of(out)["nll"] == approx(expected["nll"].value, abs=1e-9)


def test_a_score_of_one_class(capsys: CaptureFixture[str], tmp_path: Path) -> None:
    score = PROBS[:, 2]
    expected = calstudy.evaluate((LABELS == 2).astype(int), probs=score).metrics
    for labels, more in (
        (np.where(LABELS == 2, "fraud", "ok"), ["--positive", "fraud"]),
        ((LABELS == 2).astype(int), []),
        (np.where(LABELS == 2, 1, -1), ["--positive", "1"]),
        (LABELS == 2, []),
    ):
        path = written(tmp_path, {"y": labels, "s": score})
        code, out, _ = run(
            capsys, path, "--label", "y", "--score", "s", *more, "--json", "--no-intervals"
        )
        assert code == 0 and metrics_of(out)["ece"] == approx(expected["ece"].value, abs=1e-9)


def test_ignored_labels_and_maps(capsys: CaptureFixture[str], tmp_path: Path) -> None:
    path = written(tmp_path, {**dict(zip(NAMES, PROBS.T, strict=True)), "y": WORDS})
    frame = pd.read_csv(path)
    frame.loc[::3, "y"] = "void"
    frame.to_csv(path, index=False)
    kept = np.arange(300) % 3 != 0
    words = [path, "--label", "y", "--probs", "p_*", "--ignore", "void"]
    _, out, _ = run(capsys, *words, "--no-intervals", "--json")
    expected = calstudy.evaluate(LABELS[kept], probs=PROBS[kept], intervals=False).metrics
    assert metrics_of(out)["nll"] == approx(expected["nll"].value, abs=1e-9)
    assert json.loads(out)["notes"] == ["100 samples of label void left out."]
    masks = LABELS[:288].reshape(12, 4, 6).copy()
    masks[:, 0] = 255
    maps = LOGITS[:288].reshape(12, 4, 6, 3).transpose(0, 3, 1, 2)
    np.savez(tmp_path / "maps.npz", logits=maps, labels=masks)
    words = [tmp_path / "maps.npz", "--ignore", "255", "--no-intervals", "--json"]
    _, out, _ = run(capsys, *words)
    rows = masks.ravel() != 255
    given = (LABELS[:288][rows], LOGITS[:288][rows])
    expected = calstudy.evaluate(given[0], logits=given[1], intervals=False).metrics
    assert metrics_of(out)["brier"] == approx(expected["brier"].value, abs=1e-9)
    assert (json.loads(out)["num_groups"], json.loads(out)["num_samples"]) == (12, rows.sum())


def test_arrays_of_other_names(capsys: CaptureFixture[str], tmp_path: Path) -> None:
    np.savez(tmp_path / "own.npz", p=PROBS, truth=WORDS, classes=CLASSES)
    words = [tmp_path / "own.npz", "--label", "truth", "--probs", "p", "--no-intervals", "--json"]
    assert metrics_of(run(capsys, *words)[1]) == approx(EXPECTED, abs=1e-9)


def test_two_files_are_paired_by_ids(
    capsys: CaptureFixture[str], deployed: Path, tmp_path: Path
) -> None:
    odds = PROBS**0.5
    frame = pd.DataFrame(odds / odds.sum(1, keepdims=True), columns=NAMES)
    frame["id"] = [f"r{row}" for row in range(300)]
    frame["y_true"] = WORDS
    other = tmp_path / "other.csv"
    frame.sample(frac=1, random_state=0)[["p_eel", "id", "p_cat", "y_true", "p_dog"]].to_csv(
        other, index=False
    )
    words = [deployed, other, "--label", "y_true", "--probs", "p_*"]
    code, out, _ = run(capsys, *words, "--id", "id", "--json")
    found = json.loads(out)
    one = calstudy.evaluate(LABELS, probs=PROBS)
    two = calstudy.evaluate(LABELS, probs=frame[NAMES].to_numpy())
    expected = one.difference(two).to_dict()["differences"]
    assert code == 0 and found["differences"].keys() == expected.keys()  # type: ignore[attr-defined]
    for name, each in found["differences"].items():
        wanted = expected[name]  # type: ignore[index]
        word = each.pop("word")
        assert word == wanted.pop("word")
        former = {"undecided": "not told apart"}.get(word, word)
        assert each.pop("word_former") == wanted.pop("word_former") == former
        assert each == approx(wanted, abs=1e-6)
    assert found["other"]["classes"] == found["classes"] == CLASSES
    _, shown, _ = run(capsys, *words, "--id", "id")
    assert str(other) in shown and "the first less the second, on 300 samples" in shown
    code, _, said = run(capsys, *words)
    assert code == 2 and said.startswith(f"{other}: labels: row ") and "by an id" in said


def test_by_class_and_figure(capsys: CaptureFixture[str], deployed: Path, tmp_path: Path) -> None:
    words = [deployed, "--label", "y_true", "--probs", "p_*", "--by-class"]
    figure = tmp_path / "f.svg"
    _, out, _ = run(capsys, *words, "--json", "--figure", figure)
    frame = calstudy.evaluate(WORDS, probs=PROBS, classes=CLASSES).by_class()
    for row, expected in zip(json.loads(out)["by_class"], frame.to_dict("records"), strict=True):
        assert row.pop("class") == expected.pop("class") and row == approx(expected, abs=1e-6)
    assert "<svg" in figure.read_text()
    _, shown, _ = run(capsys, *words)
    assert [line.split()[0] for line in shown.splitlines()[-3:]] == CLASSES


@pytest.mark.parametrize(
    ("labels", "columns"),
    [
        (["True", "False"], ["p_1", "p_0"]),
        (["1.0", "0.0"], ["p_1", "p_0"]),
        (["True", "False"], ["p_True", "p_False"]),
        (["yes", "no"], ["p_yes", "p_no"]),
    ],
)
def test_truth_and_whole_numbers_with_a_point_are_labels(
    capsys: CaptureFixture[str], tmp_path: Path, labels: list[str], columns: list[str]
) -> None:
    is_eel = LABELS == 2
    score = PROBS[:, 2]
    columns_of = dict(zip(columns, (score, 1 - score), strict=True))
    path = written(tmp_path, {**columns_of, "y": np.where(is_eel, *labels)})
    _, out, said = run(capsys, path, "--label", "y", "--probs", "p_*", "--json", "--no-intervals")
    expected = calstudy.evaluate(is_eel.astype(int), probs=score, intervals=False).metrics
    assert said == "" and metrics_of(out)["nll"] == approx(expected["nll"].value, abs=1e-9)


def test_json_is_valid_where_nll_is_infinite(capsys: CaptureFixture[str], tmp_path: Path) -> None:
    sure = np.where(PROBS.max(1, keepdims=True) == PROBS, 1.0, 0.0)
    np.savez(tmp_path / "own.npz", probs=sure, labels=LABELS)
    code, out, _ = run(capsys, tmp_path / "own.npz", tmp_path / "own.npz", "--json")
    found = json.loads(out, parse_constant=lambda name: pytest.fail(name))
    assert code == 0 and found["differences"]["nll"]["difference"] is None
    assert found["metrics"]["nll"] is None
    _, shown, _ = run(capsys, tmp_path / "own.npz")
    assert "these samples give none for nll. floor" in shown


# ---- alerts --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("condition", "code", "said"),
    [
        ("ece>0.5", 0, ""),
        ("ece > 0.01", 3, "--fail-if ece > 0.01: ece is 0."),
        ("ece.low>0.01", 3, "--fail-if ece.low > 0.01: ece.low is 0."),
        ("accuracy.high<0.01", 0, ""),
        ("mce>=0", 3, "--fail-if mce >= 0: mce is 0."),
        ("top5_accuracy<0.5", 3, "top5_accuracy is not defined on these samples."),
        ("skce.low>0", 3, "there is no interval: skce has none on these samples."),
    ],
)
def test_a_condition_that_holds_ends_with_3(
    capsys: CaptureFixture[str], deployed: Path, condition: str, code: int, said: str
) -> None:
    words = [deployed, "--label", "y_true", "--probs", "p_*", "--fail-if", condition]
    ended, out, why = run(capsys, *words, "--json")
    assert ended == code and len(json.loads(out)["failed"]) == (code == 3)
    assert said in why if said else not why


def test_several_conditions_each_say_why(capsys: CaptureFixture[str], deployed: Path) -> None:
    limits = ["--fail-if", "ece>0", "--fail-if", "nll<0.01", "--fail-if", "brier>0"]
    code, _, why = run(capsys, deployed, "--label", "y_true", "--probs", "p_*", *limits)
    assert code == 3 and [line.split()[1] for line in why.splitlines()] == ["ece", "brier"]


@pytest.mark.parametrize(
    ("labels", "suffix"),
    [("words", ".csv"), ("numbers", ".csv"), ("numbers", ".parquet")],
)
def test_rows_without_a_label_and_groups_of_another_name(
    capsys: CaptureFixture[str], tmp_path: Path, suffix: str, labels: str
) -> None:
    truth = pd.Series(WORDS if labels == "words" else LABELS.tolist(), dtype=object)
    truth[::10] = None
    if labels == "numbers":
        truth = truth.astype("Int64")
    names = NAMES if labels == "words" else [f"p_{place}" for place in range(len(NAMES))]
    customer = np.arange(300) // 4
    columns = {**dict(zip(names, PROBS.T, strict=True)), "y": truth, "customer": customer}
    path = written(tmp_path, columns, suffix)
    by = ["--label", "y", "--probs", "p_*", "--json"]
    assert "is missing" in run(capsys, path, *by)[2]
    code, out, _ = run(capsys, path, *by, "--ignore", "", "--group", "customer")
    kept = np.arange(300) % 10 > 0
    expected = calstudy.evaluate(LABELS[kept], probs=PROBS[kept], groups=customer[kept])
    assert code == 0 and "30 samples without a label left out." in json.loads(out)["notes"]
    found, wanted = json.loads(out), json.loads(json.dumps(expected.to_dict()))
    assert found["num_groups"] == wanted["num_groups"] and metrics_of(out) == wanted["metrics"]
    assert found["intervals"] == wanted["intervals"]
    assert found["file"] == str(path)
    assert "there is no column 'custom'" in run(capsys, path, *by, "--group", "custom")[2]
    assert "is named for two things" in run(capsys, path, *by, "--group", "y")[2]
    path = written(tmp_path, {**columns, "y": [None] * 300}, suffix)
    assert "no row has a 'y'" in run(capsys, path, *by, "--ignore", "")[2]


# ---- what does not fit ---------------------------------------------------------------------------


def test_a_file_that_does_not_fit_is_told_its_words(
    capsys: CaptureFixture[str], deployed: Path, tmp_path: Path
) -> None:
    code, out, said = run(capsys, deployed)
    assert (code, out) == (2, "")
    _, _, words = said.rstrip().partition("Name its columns: calstudy evaluate ")
    assert words == f"{deployed} --label y_true --probs 'p_*'"
    assert run(capsys, *words.replace("'", "").split())[0] == 0
    path = written(tmp_path, {"target": LABELS % 2, "score": PROBS[:, 0]})
    assert "--label target --score 'score'" in run(capsys, path)[2]
    path = written(tmp_path, {"when": WORDS, "what": WORDS})
    assert "no column 'label'" in run(capsys, path)[2]


PROBS_OF = dict(zip(NAMES, PROBS.T, strict=True))
NUMBERED = {f"p_{number}": column for number, column in enumerate(PROBS.T, start=1)}
GAPS = dict(zip(("p_0", "p_1", "p_3"), PROBS.T, strict=True))
BY = ("--label", "y", "--probs", "p_*")


@pytest.mark.parametrize(
    ("columns", "words", "said"),
    [
        ({**PROBS_OF, "y": LABELS}, BY, "holds numbers, and the columns are named by words. List"),
        ({**NUMBERED, "y": LABELS}, BY, "numbered 1 to 3; labels count from 0. Count classes"),
        ({**GAPS, "y": LABELS}, BY, "class 2 has no column, or two; labels count from 0."),
        ({**NUMBERED, "y": WORDS}, BY, "has no column: the classes are 1, 2, 3. Put * in place"),
        ({**PROBS_OF, "p_y": WORDS}, ("--label", "p_y", "--probs", "p_*"), "matches the column"),
        ({**PROBS_OF, "y": WORDS}, ("--label", "y", "--probs", "q_*"), "'q_*' matches no column."),
        ({**PROBS_OF, "y": WORDS}, ("--label", "y", "--probs", "p_c*"), "matches one column. Name"),
        ({**PROBS_OF, "y": WORDS}, ("--label", "y", "--probs", "*_*"), "has several *. Put one"),
        ({**PROBS_OF, "y": WORDS}, ("--label", "yy", "--probs", "p_*"), "no column 'yy'. Did you"),
        ({**PROBS_OF, "y": WORDS}, (*BY, "--logits", "p_*"), "--probs and --logits are given."),
        ({**PROBS_OF, "y": WORDS}, (*BY, "--positive", "cat"), "--positive: is for --score. Name"),
        ({**PROBS_OF, "y": WORDS}, (*BY, "--id", "p_cat"), "--id pairs the rows of two files."),
        ({**PROBS_OF, "y": WORDS}, (*BY, "--figure", "f.gif"), "figure: 'f.gif' must end in one"),
        ({**PROBS_OF, "y": WORDS}, (*BY, "--fail-if", "ecee>1"), "there is no metric 'ecee'. Did"),
        ({**PROBS_OF, "y": WORDS}, (*BY, "--fail-if", "ece.mean>1"), "METRIC.low or METRIC.high"),
        ({**PROBS_OF, "y": WORDS}, (*BY, "--by-class", "--bins", "10"), "--by-class has 15 bins."),
        ({**PROBS_OF, "y": WORDS}, ("--label", "y"), "Name those of the scores: calstudy evaluate"),
        ({**PROBS_OF, "y": WORDS}, ("--label", "y", "--score", "y"), "named for two things. Name"),
        ({"label": ["0", "1", "true"], "prob_0": [0.5] * 3, "prob_1": [0.5] * 3}, (), "is 'true'"),
        ({**PROBS_OF, "y": WORDS}, ("--label", "y", "--score", "p_cat", "--positive", "cat"),
         "Of more classes, name all columns"),
        ({**PROBS_OF, "y": WORDS}, ("--label", "y", "--logits", "p_*"), "Name them by --probs."),
        ({**PROBS_OF, "y": [None, *WORDS[1:]]}, BY, "row 0: the value of 'y' is missing. Fill it"),
        ({**PROBS_OF, "y": WORDS, "s": PROBS[:, 0] * 2}, ("--label", "y", "--score", "s",
         "--positive", "cat"), "the labels besides 'cat' are dog, eel, not one class."),
        ({"s": PROBS[:, 0] * 2, "y": LABELS == 0}, ("--label", "y", "--score", "s"),
         "is no probability. A score is in [0, 1]"),
        ({"s": PROBS[:, 0], "y": np.where(LABELS == 0, "a", "b")}, ("--label", "y", "--score", "s"),
         "'y' holds words: a, b. Name the scored one: --positive b"),
        ({"s": PROBS[:, 0], "y": LABELS}, ("--label", "y", "--score", "s"), "not one of 0..1"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_with_the_mend(
    capsys: CaptureFixture[str],
    tmp_path: Path,
    columns: dict[str, Any],
    words: tuple[str, ...],
    said: str,
) -> None:
    path = written(tmp_path, columns)
    code, out, err = run(capsys, path, *words)
    assert (code, out, err.count("\n")) == (2, "", 1) and said in err
