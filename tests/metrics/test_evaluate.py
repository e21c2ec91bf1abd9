"""`calstudy evaluate`: the metrics of a file, intervals, post-hoc
calibration, strange samples."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pytest import CaptureFixture, MonkeyPatch, approx
from rich.console import Console

from study.cli import main
from study.commands import evaluate
from tests import references
from tests.golden import GOLDEN, INPUTS
from trainables import metrics

ROWS = [
    "none",
    "temperature",
    "temperature_by_nll",
    "temperature_of_ece",
    "vector_scaling",
    "structured_vector",
    "structured_matrix",
]


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


MAIN = ["accuracy", "nll", "brier", "ece"]


def test_what_some_hundred_samples_can_tell_is_shown_unasked(
    capsys: CaptureFixture[str], files: dict[str, Path]
) -> None:
    code, out, _ = run(capsys, files["B"], "--json")
    found = json.loads(out)
    assert code == 0 and list(found) == [
        *(
            "file",
            "num_samples",
            "num_classes",
            "classes",
            "metrics",
            "intervals",
            "resamples",
            "level",
        ),
        *("temperature", "sentence"),
    ]
    assert list(found["metrics"]) == [*MAIN, *(f"ts_{name}" for name in MAIN)]
    _, shown, _ = run(capsys, files["B"])
    first, *rows, advice, how = shown.splitlines()
    assert first.endswith("10 classes, 0 to 9") and [line.split()[0] for line in rows] == MAIN
    assert advice.startswith(("Divide the logits by ", "A temperature makes no measurable"))
    assert "95% intervals from 1,000 resamples" in how
    _, out, _ = run(capsys, files["B"], "--metrics", "debiased_l2", "--json")
    golden = GOLDEN["metrics"]["B"]
    assert json.loads(out)["metrics"]["debiased_l2"] == approx(
        golden["L2 debiased top-label equal-mass15 (Kumar)"], abs=1e-6
    )


def test_metrics_by_name(capsys: CaptureFixture[str], files: dict[str, Path]) -> None:
    """Each before and after temperature scaling, whichever is named."""
    _, out, _ = run(capsys, files["B"], "--metrics", "skce, ts_nll", "--json")
    found = json.loads(out)["metrics"]
    assert list(found) == ["skce", "nll", "ts_skce", "ts_nll"]
    assert found["skce"] == approx(0.004425186677, abs=1e-6)
    assert found["nll"] == approx(GOLDEN["metrics"]["B"]["NLL mean"], abs=1e-7)
    # Nothing of B is 99% sure.
    _, shown, _ = run(capsys, files["B"], "--metrics", "accuracy_above_99")
    assert ["accuracy_above_99", "-"] in [line.split()[:2] for line in shown.splitlines()]


def test_intervals(capsys: CaptureFixture[str], files: dict[str, Path]) -> None:
    logits, labels, _ = INPUTS["B"]
    _, out, _ = run(
        capsys,
        files["B"],
        "--metrics",
        "accuracy,nll,skce",
        "--intervals",
        "--interval",
        90,
        "--json",
    )
    found = json.loads(out)
    assert (found["level"], found["resamples"]) == (0.9, 1000)
    assert set(found["intervals"]) == {"accuracy", "nll", "ts_accuracy", "ts_nll"}
    n, share, z = len(labels), found["metrics"]["accuracy"], 1.6448536269514722
    # Wilson 1927.
    middle, reach = share + z**2 / (2 * n), z * (share * (1 - share) / n + z**2 / (4 * n**2)) ** 0.5
    ends = [(middle - reach) / (1 + z**2 / n), (middle + reach) / (1 + z**2 / n)]
    assert list(found["intervals"]["accuracy"].values()) == approx(ends, rel=1e-9)
    losses = -logits.double().log_softmax(-1).numpy()[np.arange(n), labels.numpy()]
    width = 2 * z * losses.std() / n**0.5  # the mean of many losses is nearly normal
    assert found["intervals"]["nll"]["high"] - found["intervals"]["nll"]["low"] == approx(
        width, rel=0.1
    )
    assert (
        found["intervals"]["nll"]["low"]
        < found["metrics"]["nll"]
        < found["intervals"]["nll"]["high"]
    )
    _, shown, _ = run(
        capsys, files["B"], "--metrics", "accuracy,skce", "--intervals", "--interval", 90
    )
    assert (
        f"{share:.2f}  [{ends[0]:.2f}, {ends[1]:.2f}]" in shown
        and "90% interval" in shown
        and "may be perfectly calibrated" in " ".join(shown.split())
    )
    assert next(line for line in shown.splitlines() if line.startswith("skce")).split()[2] == "-"


def test_an_infinite_nll_has_no_interval(capsys: CaptureFixture[str], tmp_path: Path) -> None:
    probs = np.array([[1.0, 0.0], [0.6, 0.4]] * 10)
    np.savez(tmp_path / "z.npz", probs=probs, labels=np.array([1, 0] * 10))
    code, out, err = run(capsys, tmp_path / "z.npz", "--intervals", "--json")
    found = json.loads(out)
    assert (code, err) == (0, "") and found["metrics"]["nll"] is None
    assert "brier" in found["intervals"] and not {"nll", "ts_nll"} & set(found["intervals"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--metrics", "ece,scke"), "--metrics: there is no metric 'scke'. Did you mean 'skce'?"),
        (("--metrics", "ece", "--all"), "Leave out --metrics, or --all"),
        (("--interval", "90", "--no-intervals"), "--interval is for --intervals. Add it"),
        (("--intervals", "--bins", "10"), "--intervals are of 15 bins. Leave out --bins"),
        (("--intervals", "--interval", "99.99"), "Use a lower --interval"),
    ],
)
def test_options_that_do_not_fit(
    capsys: CaptureFixture[str], tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    np.savez(tmp_path / "five.npz", logits=np.zeros((5, 3)), labels=np.zeros(5, int))
    code, out, err = run(capsys, tmp_path / "five.npz", *words)
    assert (code, out) == (2, "") and said in err and err.count("\n") == 1


def test_what_takes_long_is_named_on_a_terminal(
    capsys: CaptureFixture[str], files: dict[str, Path], monkeypatch: MonkeyPatch
) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr(evaluate, "errors", Console(file=terminal, force_terminal=True))
    run(capsys, files["B"])
    assert terminal.getvalue() == ""
    run(capsys, files["B"], "--post-hoc", "--json")
    assert "post-hoc calibration: vector_scaling" in terminal.getvalue()


@pytest.mark.slow
def test_every_metric_is_shown(capsys: CaptureFixture[str], files: dict[str, Path]) -> None:
    code, out, _ = run(capsys, files["B"], "--all", "--json")
    found = json.loads(out)
    assert code == 0
    # Nothing of B is 99% sure before temperature scaling.
    assert set(metrics.names()) - set(found["metrics"]) == {
        "accuracy_above_99",
        "ts_accuracy_above_99",
    }
    assert list(found["post_hoc"]) == ROWS
    _, shown, _ = run(capsys, files["B"], "--all")
    assert all(name in shown for name in metrics.described() if name != "accuracy_above_99")


def test_ece_of_others_is_refused(capsys: CaptureFixture[str], files: dict[str, Path]) -> None:
    code, _, said = run(capsys, files["B"], "--conventions")
    assert code == 2 and said == (
        "calstudy: --conventions was removed. The bins of `ece` are (lo, hi]; `make compare` in a"
        " checkout has others' too. Try: calstudy evaluate --help\n"
    )


@pytest.mark.slow
def test_post_hoc(capsys: CaptureFixture[str], files: dict[str, Path]) -> None:
    _, out, _ = run(capsys, files["B"], "--post-hoc", "--bins", 10, "--json")
    found = json.loads(out)
    rows = found["post_hoc"]
    assert list(rows) == ROWS
    assert rows["none"]["ece"] == approx(GOLDEN["metrics"]["B"]["ECE10 netcal"], abs=1e-6)
    assert rows["temperature"]["nll"] == approx(found["metrics"]["ts_nll"], rel=1e-12)
    assert (
        rows["temperature"]["accuracy"]
        == rows["temperature_of_ece"]["accuracy"]
        == rows["none"]["accuracy"]
    )
    assert rows["temperature_by_nll"]["nll"] != rows["temperature"]["nll"]
    assert rows["temperature_by_nll"]["fitted"] == approx(
        references.fit_temperature(*INPUTS["B"][:2]), rel=1e-6
    )
    assert rows["temperature"]["nll"] < rows["none"]["nll"] < rows["temperature_of_ece"]["nll"]
    assert rows["temperature_of_ece"]["ece"] < rows["none"]["ece"]
    assert (
        rows["temperature_of_ece"]["fitted"] == approx(0.4, abs=0.11)
        and rows["temperature"]["fitted"] > 1
    )


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
    capsys: CaptureFixture[str],
    files: dict[str, Path],
    tmp_path: Path,
    arrays: dict[str, Any] | None,
    said: str,
) -> None:
    if arrays is not None:
        np.savez(tmp_path / "strange.npz", **arrays)
    code, out, err = run(capsys, files["B"], "--ood", tmp_path / "strange.npz")
    assert code == 2 and out == "" and said in err and "strange.npz" in err and err.count("\n") == 1


@pytest.mark.parametrize("samples", [1, 2])
def test_a_sample_or_two(capsys: CaptureFixture[str], tmp_path: Path, samples: int) -> None:
    np.savez(
        tmp_path / "f.npz",
        probs=np.array([[1.0, 0.0], [0.0, 1.0]])[:samples],
        labels=np.zeros(samples, int),
    )
    code, out, err = run(capsys, tmp_path / "f.npz", "--json")
    assert code == 0 and err == ""
    assert json.loads(out)["metrics"]["ece"] == approx((samples - 1) / 2)
    assert run(capsys, tmp_path / "f.npz")[0] == 0
