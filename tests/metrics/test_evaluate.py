"""`calstudy evaluate`: every metric of a file, others' conventions, post-hoc calibration, strange samples."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pytest import CaptureFixture, approx

from study.cli import main
from tests.golden import GOLDEN, INPUTS
from trainables import metrics
from trainables.metrics.conventions import CONVENTIONS


def run(capsys: CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(["evaluate", *map(str, words)])
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    paths = {name: tmp_path / f"{name}.npz" for name in INPUTS}
    for name, (logits, labels, _) in INPUTS.items():
        np.savez(paths[name], logits=logits.numpy(), labels=labels.numpy())
    return paths


@pytest.mark.slow
def test_every_metric_is_shown(capsys: CaptureFixture[str], files: dict[str, Path]) -> None:
    code, out, _ = run(capsys, files["B"], "--json")
    found = json.loads(out)
    assert code == 0
    # Nothing of B is 99% sure before temperature scaling.
    assert set(metrics.names()) - set(found["metrics"]) == {"accuracy_above_99", "ts_accuracy_above_99"}
    golden = GOLDEN["metrics"]["B"]
    assert found["metrics"]["debiased_l2"] == approx(golden["L2 debiased top-label equal-mass15 (Kumar)"], abs=1e-6)
    assert found["metrics"]["skce"] == approx(0.004425186677, abs=1e-6)
    assert list(found["conventions"]) == list(CONVENTIONS)
    assert found["conventions"]["torrvision_adaptive"]["loses"] == "the least confident sample"
    assert found["conventions"]["torrvision_adaptive"]["value"] == approx(golden["AdaECE15 torrvision"], abs=1e-6)
    _, shown, _ = run(capsys, files["B"])
    names = [*metrics.described(), *CONVENTIONS]
    assert all(name in shown for name in names if name != "accuracy_above_99")


@pytest.mark.slow
def test_lossy_conventions_are_marked(capsys: CaptureFixture[str], files: dict[str, Path]) -> None:
    _, shown, _ = run(capsys, files["B"])
    marked = {line.split()[0] for line in shown.splitlines() if "LOSSY" in line}
    assert marked == {name for name, convention in CONVENTIONS.items() if convention.loses} != set()


@pytest.mark.slow
def test_post_hoc(capsys: CaptureFixture[str], files: dict[str, Path]) -> None:
    _, out, _ = run(capsys, files["B"], "--bins", 10, "--json")
    found = json.loads(out)
    rows = found["post_hoc"]
    assert list(rows) == ["none", "temperature", "temperature_of_ece", "vector_scaling"]
    assert rows["none"]["ece"] == approx(GOLDEN["metrics"]["B"]["ECE10 netcal"], abs=1e-6)
    assert rows["temperature"]["nll"] == approx(found["metrics"]["ts_nll"], rel=1e-12)
    assert rows["temperature"]["accuracy"] == rows["temperature_of_ece"]["accuracy"] == rows["none"]["accuracy"]
    assert rows["temperature"]["nll"] < rows["none"]["nll"] < rows["temperature_of_ece"]["nll"]
    assert rows["temperature_of_ece"]["ece"] < rows["none"]["ece"]
    assert rows["temperature_of_ece"]["fitted"] == approx(0.4, abs=0.11) and rows["temperature"]["fitted"] > 1


@pytest.mark.slow
def test_strange_samples(capsys: CaptureFixture[str], files: dict[str, Path]) -> None:
    """The labels of the strange ones are not read: they are of other classes."""
    logits, _, _ = INPUTS["A"]
    np.savez(files["A"], logits=logits.numpy(), labels=np.full(len(logits), 77))
    _, out, _ = run(capsys, files["B"], "--ood", files["A"], "--json")
    found: dict[str, Any] = json.loads(out)["out_of_distribution"]
    expected = GOLDEN["other"]["AUROC ood=A id=B entropy / 1-msp"]
    assert [found["auroc_entropy"], found["auroc_confidence"]] == approx(expected, abs=1e-9)
    assert found["ts_auroc_entropy"] != found["auroc_entropy"]
    _, shown, _ = run(capsys, files["B"], "--ood", files["A"])
    assert "fpr95_entropy" in shown and "0.228516" in shown


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        (None, "no such file"),
        ({"logits": np.zeros((4, 3))}, "has 3 classes"),
        ({"labels": np.zeros(4, int)}, "neither 'logits' nor 'probs'"),
        ({"logits": np.full((4, 10), np.nan)}, "NaN"),
    ],
)
def test_strange_files(
    capsys: CaptureFixture[str], files: dict[str, Path], tmp_path: Path, arrays: dict[str, Any] | None, said: str
) -> None:
    if arrays is not None:
        np.savez(tmp_path / "strange.npz", **arrays)
    code, out, err = run(capsys, files["B"], "--ood", tmp_path / "strange.npz")
    assert code == 2 and out == "" and said in err and "strange.npz" in err and err.count("\n") == 1


@pytest.mark.parametrize("samples", [1, 2])
def test_a_sample_or_two(capsys: CaptureFixture[str], tmp_path: Path, samples: int) -> None:
    np.savez(tmp_path / "f.npz", probs=np.array([[1.0, 0.0], [0.0, 1.0]])[:samples], labels=np.zeros(samples, int))
    code, out, err = run(capsys, tmp_path / "f.npz", "--json")
    assert code == 0 and err == ""
    assert json.loads(out)["metrics"]["ece"] == approx((samples - 1) / 2)
    assert run(capsys, tmp_path / "f.npz")[0] == 0
