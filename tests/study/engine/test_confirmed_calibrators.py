"""Calibrators on test: only those named before test was first opened, from stored predictions."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pytest import approx
from sklearn.metrics import log_loss

from study.answer.calibrated import check_names
from study.answer.confirmation import results_of
from study.engine import confirm
from study.store.study import open_study
from tests.study.command_line import here, here_json
from tests.study.engine.test_confirm import TOLD, search
from tests.study.engine.test_confirm import confirmed as confirmed  # fixtures
from tests.study.engine.test_confirm import storage as storage
from trainables.metrics.shared import post_hoc
from trainables.problems import FieldError

NAMES = ["structured_vector", "vector_scaling"]
WORDS = ("confirm", "small", "--trial", "focal/0001", "--seeds", 2)


@pytest.mark.slow
def test_named_before_the_first_opening_they_are_scored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    search(tmp_path, told={"focal": TOLD["focal"]})
    opened: list[Any] = []
    real = confirm.open_test

    def noted(*given: Any) -> Any:
        opened.append(open_study("small", str(tmp_path)).recorded.calibrators_at_opening)
        return real(*given)

    monkeypatch.setattr(confirm, "open_test", noted)
    words = (*WORDS, "--calibrators", ",".join(NAMES), "--storage", tmp_path)
    shown = here_json(*words)
    assert opened == [NAMES] * 6
    scores = shown["calibrators"]
    assert list(scores) == [row["name"] for row in shown["rows"]]
    assert all(list(of) == NAMES for of in scores.values())

    study = open_study("small-confirm", str(tmp_path))
    less = []
    for record in study.records().of("focal_0001"):
        files = study.files(record)
        fit, test = (np.load(files / file) for file in ("predictions.npz", "test.npz"))
        logits, labels = (torch.from_numpy(fit[key]) for key in ("logits", "labels"))
        calibrate = post_hoc.FITS["structured_vector"](logits, labels)
        after = calibrate(torch.from_numpy(test["logits"])).softmax(-1).numpy()
        raw = torch.from_numpy(test["logits"]).double().softmax(-1).numpy()
        less.append(log_loss(test["labels"], after) - log_loss(test["labels"], raw))
    found = scores["focal/0001"]["structured_vector"]["nll_less"]
    assert results_of(open_study("small", str(tmp_path))).study.serves == "raw"
    assert found["mean"] == approx(np.mean(less), abs=1e-9)
    assert found["std"] == approx(np.std(less, ddof=1), abs=1e-9)

    # Again it opens nothing, also where it names fewer, and shows the same.
    again = here_json(*WORDS, "--calibrators", NAMES[0], "--storage", tmp_path)
    assert again["calibrators"] == scores and len(opened) == 6
    text = here(*WORDS, "--storage", tmp_path)
    assert "less the model as trained, over seeds" in text and "vector_scaling" in text
    said = here(*WORDS, "--calibrators", "structured_matrix", "--storage", tmp_path, check=2)
    assert said == (
        "--calibrators: structured_matrix: test was opened 6 times before it was named."
        " Leave it out; `calstudy export --calibrator` says what it changes on validation.\n"
    )
    assert len(opened) == 6


@pytest.mark.slow
def test_after_the_first_opening_none_can_be_named(storage: Path) -> None:
    before = (storage / "small" / "study.yaml").read_bytes()
    said = here(*WORDS, "--calibrators", "structured_vector", "--storage", storage, check=2)
    assert "structured_vector: test was opened 8 times before it was named." in said
    assert (storage / "small" / "study.yaml").read_bytes() == before
    assert json.loads((storage / "shown.json").read_text())["calibrators"] is None


def test_names_are_checked() -> None:
    check_names(NAMES, 1000)
    with pytest.raises(FieldError, match=r"no 'structured_vektor'. Did you mean 'structured_vecto"):
        check_names(["structured_vektor"], 10)
    with pytest.raises(FieldError, match="there is no 'temperature'"):
        check_names(["temperature"], 10)
    with pytest.raises(FieldError, match=r"these are 1,000. Take structured_vector\."):
        check_names(["structured_matrix"], 1000)
