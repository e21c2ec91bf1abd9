"""docs/how-to/measure-a-model.md: each block is executed, and what it prints is printed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pytest import CaptureFixture, MonkeyPatch
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import GaussianNB

from tests.metrics.test_evaluate import run

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "measure-a-model.md"
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)


@pytest.fixture
def brought(tmp_path: Path, monkeypatch: MonkeyPatch) -> dict[str, Any]:
    """What the page's reader has: a model, its predictions in files, and arrays."""
    data = load_breast_cancer(as_frame=True)
    words = data.target_names[data.target]
    train_x, test_x, train_y, test_y = train_test_split(
        data.data, words, test_size=0.5, random_state=0
    )
    model = GaussianNB().fit(train_x, train_y)
    probs = model.predict_proba(test_x)
    frame = pd.DataFrame({"id": range(len(probs)), "y_true": test_y})
    for name, column in zip(model.classes_, probs.T, strict=True):
        frame[f"p_{name}"] = column
    frame.to_csv(tmp_path / "deployed.csv", index=False)
    frame.sample(frac=1, random_state=0).to_csv(tmp_path / "candidate.csv", index=False)
    frame.rename(columns={"p_malignant": "risk"}).to_csv(tmp_path / "scored.csv", index=False)
    monkeypatch.chdir(tmp_path)
    labels = (test_y == "malignant").astype(int)
    return {
        **{"model": model, "test_x": test_x, "test_y": test_y},
        **{"labels": labels, "probs": probs},
        **{"right": labels, "stated": probs[:, 1], "documents": np.arange(len(labels)) // 2},
        **{"sites": np.arange(len(labels)) % 3},
    }


def test_each_block_does_what_it_shows(
    capsys: CaptureFixture[str], brought: dict[str, Any]
) -> None:
    codes = []
    for kind, text in BLOCKS:
        if kind == "python":
            exec(text, brought)
            continue
        command, _, shown = text.removeprefix("$ ").partition("\n")
        program, name, *words = shlex.split(command)
        code, out, said = run(capsys, *words)
        assert (program, name) == ("calstudy", "evaluate")
        assert said.startswith("--fail-if ") if code == 3 else not said
        assert not shown or out == shown
        codes.append(code)
    assert codes == [0, 3, 0] and Path("reliability.png").exists()


def test_the_table_says_how_to_describe_a_file(
    capsys: CaptureFixture[str], brought: dict[str, Any]
) -> None:
    """The options of the rows that these files fit, whose other columns are named beside them."""
    rows = dict(re.findall(r"^\| (.*?) \| `(--.*?)`", PAGE.read_text(), re.MULTILINE))
    words = ("deployed.csv", "--label", "y_true")
    given = rows["`p_0`, `p_1`, …; or words as labels, and `p_benign`, …"]
    assert run(capsys, *words, *shlex.split(given))[0] == 0
    given = rows["one score of two classes"]
    assert run(capsys, "scored.csv", *words[1:], *shlex.split(given))[0] == 0


def test_it_is_short() -> None:
    assert len(PAGE.read_text().split()) <= 500
