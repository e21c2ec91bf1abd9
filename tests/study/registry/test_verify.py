"""The comparison that `verify` makes, on numbers small enough to follow."""

import json
import math
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from study.registry.verification import NotVerified, VerifyReport
from study.registry.verify import _keep, compare, metrics_of_probs


def tied() -> tuple[np.ndarray, np.ndarray, torch.Tensor]:
    """Four samples of two classes; the first on a tie of classes, the second on
    an edge of the bins (11/15)."""
    reference = np.array([[0.5, 0.5], [11 / 15, 4 / 15], [0.9, 0.1], [0.2, 0.8]], dtype=np.float32)
    reference[0] += np.float32([1e-7, -1e-7])
    found = reference.copy()
    found[0] = found[0][::-1]
    return found, reference, torch.tensor([0, 0, 0, 1])


def test_a_tie_that_flips_is_counted_and_shown() -> None:
    found, reference, labels = tied()
    checks, flipped, values = compare(found, reference, labels, metrics_of_probs(reference, labels))
    assert (metrics_of_probs(reference, labels)["accuracy"], values["accuracy"]) == (1.0, 0.75)
    assert flipped == 1
    shown = {check.name: check for check in checks}["accuracy (1 samples on a tie)"]
    assert (shown.found, shown.ok) == (0.25, True)
    assert all(check.ok for check in checks)


def test_an_edge_of_the_bins_that_flips_is_counted() -> None:
    _, reference, labels = tied()
    found = reference.copy()
    found[1] += np.float32([3e-7, -3e-7])
    found[1] += np.float32([3e-7, -3e-7])
    checks, flipped, _ = compare(found, reference, labels, metrics_of_probs(reference, labels))
    assert flipped == 1
    assert all(check.ok for check in checks)


def test_a_metric_that_no_tie_explains_fails() -> None:
    found, reference, labels = tied()
    recorded = metrics_of_probs(reference, labels)
    checks, _, _ = compare(found, reference, labels, {**recorded, "ece": recorded["ece"] + 1e-4})
    assert [check.name for check in checks if not check.ok] == ["ece"]


def test_probabilities_that_differ_are_no_tie() -> None:
    _, reference, labels = tied()
    found = reference.copy()
    found[0] = [0.4, 0.6]
    checks, _, _ = compare(found, reference, labels, metrics_of_probs(reference, labels))
    failing = {check.name for check in checks if not check.ok}
    assert {"probabilities", "accuracy", "nll"} <= failing


def test_not_finite_is_never_equal_to_a_number() -> None:
    _, reference, labels = tied()
    found = np.full_like(reference, np.nan)
    checks, flipped, values = compare(found, reference, labels, metrics_of_probs(reference, labels))
    report = VerifyReport("models:/m/1", tuple(checks), len(labels), 0, flipped, values)
    assert not report.ok and not checks[0].ok
    plain = json.loads(json.dumps(report.to_json(), allow_nan=False))
    assert (plain["ok"], plain["checks"][0]["found"]) == (False, None)
    assert math.isnan(VerifyReport.from_json(plain).checks[0].found)


def test_nothing_compared_is_not_verified() -> None:
    assert not VerifyReport("models:/m/1").ok


def test_what_is_kept_is_whole_or_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, kept = tmp_path / "made", tmp_path / "in" / "kept"
    made.mkdir(mode=0o700)
    (made / "MLmodel").write_text("a model")
    copied = shutil.copytree

    def dying(*words: Path) -> None:
        copied(*words)
        assert not kept.exists()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(shutil, "copytree", dying)
        _keep(made, kept)
    assert os.listdir(kept.parent) == []
    before = os.umask(0o027)
    try:
        _keep(made, kept)
    finally:
        os.umask(before)
    assert (kept / "MLmodel").read_text() == "a model" and kept.stat().st_mode & 0o777 == 0o750
    with pytest.raises(NotVerified, match=f"--keep: {kept} exists. Name a folder that does not."):
        _keep(made, kept)
