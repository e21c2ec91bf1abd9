"""docs/evaluate.md: each block is executed, and what it prints is printed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pytest import CaptureFixture, MonkeyPatch

from tests.metrics.test_evaluate import run

PAGE = Path(__file__).parents[3] / "docs" / "evaluate.md"
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)


@pytest.fixture
def brought(tmp_path: Path, monkeypatch: MonkeyPatch) -> dict[str, Any]:
    """What the page's reader has: the files of the model that it fits, and arrays."""
    fitted: dict[str, Any] = {}
    exec(next(text for kind, text in BLOCKS if "GaussianNB" in text), fitted)
    probs = fitted["model"].predict_proba(fitted["test_x"])
    frame = pd.DataFrame({"id": range(len(probs)), "y_true": fitted["test_y"]})
    for name, column in zip(fitted["model"].classes_, probs.T, strict=True):
        frame[f"p_{name}"] = column
    frame.to_csv(tmp_path / "deployed.csv", index=False)
    frame.sample(frac=1, random_state=0).to_csv(tmp_path / "candidate.csv", index=False)
    frame.rename(columns={"p_malignant": "risk"}).to_csv(tmp_path / "scored.csv", index=False)
    random = np.random.default_rng(0)
    maps = random.normal(size=(12, 3, 4, 4))
    masks = random.integers(0, 3, (12, 4, 4))
    np.savez(tmp_path / "maps.npz", logits=maps, labels=np.where(masks == 2, 255, masks))
    monkeypatch.chdir(tmp_path)
    labels = (fitted["test_y"] == "malignant").astype(int)
    return {
        **{"labels": labels, "probs": probs, "right": labels, "stated": probs[:, 1]},
        **{"maps": maps, "masks": masks},
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
    assert codes == [0, 0, 3, 0] and Path("reliability.png").exists()
    for command in re.findall(r"`calstudy evaluate (\w+\.npz [^`]*)`", PAGE.read_text()):
        assert run(capsys, *shlex.split(command))[0] == 0


def test_it_is_short() -> None:
    assert len(PAGE.read_text().split()) <= 900
