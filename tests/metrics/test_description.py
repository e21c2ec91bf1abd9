"""What metrics say of themselves: as it was before they did, in its order; and
a new one is one file."""

import inspect
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from pytest import CaptureFixture, MonkeyPatch, approx

from study.analysis.pareto import hypervolume, worst_point
from study.analysis.selection import parse_rule, parse_where
from study.cli import main
from study.report.style import displayed
from study.report.table_columns import heading
from study.schema.objective import Objective
from study.store.trials import TrialRecord
from study.uncertainty.intervals import FRACTIONS
from study.uncertainty.resampling import CALIBRATION
from trainables import metrics
from trainables.problems import FieldError

ORDER = """
accuracy error top5_accuracy nll brier ece mce adaptive_ece classwise_ece debiased_l2
brier_calibration brier_refinement share_above_99 accuracy_above_99 mce_of_ten ace_unweighted
rmsce l2 smooth_ece
thresholded_classwise_ece debiased_l2_marginal ece_sweep ece_sweep_equal_width mmce
skce_top_label skce_top_label_unbiased skce_top_label_linear skce skce_unbiased skce_linear
calibration_nll calibration_brier
miou miou_without_0
"""
ALL = ORDER.split()
STORED = ALL[:10]

TOY = '''"""How sure the model is of one class in two."""

from torch import Tensor

METRICS = {
    "mean_confidence": {"better": "higher", "label": "mean top probability", "kind": "score"},
    "log_odds": {"function": "mean_log_odds", "better": "lower", "unit": "nats", "largest": None,
                 "reference": 5.5, "heading": "Odds", "decimals": 1},
}


def mean_confidence(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean of the largest probability."""
    return logits.double().softmax(dim=-1).amax(dim=-1).mean()


def mean_log_odds(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean of the largest logit less the next."""
    first, second = logits.double().topk(2).values.T
    return (first - second).mean()
'''


def read_anew() -> None:
    for known in (metrics.ours, metrics._described, metrics._measurable):
        known.cache_clear()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: MonkeyPatch) -> Iterator[Path]:
    """Its files stand beside ours."""
    monkeypatch.setattr(metrics, "__path__", [*metrics.__path__, str(tmp_path)])
    read_anew()
    yield tmp_path
    read_anew()
    sys.modules.pop("trainables.metrics.toy", None)


# ---- ours ----------------------------------------------------------------------------------------


def test_the_order_of_every_table() -> None:
    assert metrics.names() == [
        *ALL,
        *(f"ts_{name}" for name in ALL if not name.startswith("calibration_")),
    ]
    assert metrics.stored() == STORED
    assert list(metrics.available(5)) == [name for name in ALL if name != "top5_accuracy"]


@pytest.mark.parametrize("name", ALL)
def test_the_function_is_there(name: str) -> None:
    function = metrics.find(name)
    assert list(inspect.signature(function).parameters)[:2] == [
        "logits",
        "labels",
    ] and inspect.getdoc(function)
    assert function.__module__ == f"trainables.metrics.{metrics.describe(name).family}"


def test_which_way_is_better() -> None:
    higher = {name for name in metrics.names() if metrics.describe(name).better == "higher"}
    plain = {"accuracy", "top5_accuracy", "accuracy_above_99", "miou", "miou_without_0"}
    assert higher == plain | {f"ts_{name}" for name in plain}
    assert [name for name in metrics.described() if metrics.describe(name).better is None] == [
        "share_above_99"
    ]
    assert FRACTIONS == ["accuracy", "error", "top5_accuracy"]
    assert CALIBRATION == (
        "ece",
        "mce",
        "adaptive_ece",
        "classwise_ece",
        "debiased_l2",
        "smooth_ece",
    )


def test_how_they_are_shown() -> None:
    shown = [
        "accuracy",
        "error",
        "top-5 accuracy",
        "NLL in nats",
        "Brier score",
        "ECE",
        "MCE",
        "adaptive ECE",
    ]
    assert [displayed(name) for name in STORED] == [*shown, "classwise ECE", "debiased L2 error"]
    assert displayed("ts_smooth_ece") == "smooth ECE after temperature scaling"
    assert displayed("share_above_99") == "share above 99"
    scaled = heading("ts_adaptive_ece")
    plain = heading("nll")
    assert (scaled.with_unit, scaled.after) == ("AdaECE (%)", True)
    assert (plain.with_unit, plain.after) == ("NLL (nats)", False)


def test_descriptions_are_read_without_torch() -> None:
    """Who asks for the status of a study waits for no functions."""
    code = (
        "import sys\nfrom study.schema.objective import Objective\nfrom trainables import"
        " metrics\nObjective('ts_ece', 'minimize')\nassert metrics.describe('nll').worst(2) < 1 and"
        " metrics.names()\nprint('torch' in sys.modules)"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
        == "False\n"
    )


# ---- a new one -----------------------------------------------------------------------------------


@pytest.mark.parametrize("annotation", ["", ": dict[str, dict]"])
def test_a_file_adds_its_metrics(
    folder: Path, capsys: CaptureFixture[str], annotation: str
) -> None:
    (folder / "toy.py").write_text(TOY.replace("METRICS", f"METRICS{annotation}"))
    new = ["mean_confidence", "log_odds"]  # after ours, as they stand in the file
    assert list(metrics.described()) == [*ALL, *new]

    sure, less = Objective("ts_mean_confidence", "maximize"), Objective("log_odds", "minimize")
    with pytest.raises(FieldError, match=r"higher mean_confidence is better\. Write maximize"):
        Objective("mean_confidence", "minimize")
    record = TrialRecord("focal", 0, "complete", {}, {"ts_mean_confidence": 0.5, "log_odds": 3.5})
    # Before 0 and 5.5.
    assert hypervolume([record], (sure, less), worst_point((sure, less), 10)) == approx(0.5 * 2.0)
    assert parse_rule("max mean_confidence").weights == {"mean_confidence": -1.0}
    assert parse_where("log_odds<40")[0].bound == 40
    with pytest.raises(
        FieldError, match=r"mean_confidence lies in \[0, 1\], got 40\. Did you mean 0\.4\?"
    ):
        parse_where("mean_confidence<40")

    assert displayed("ts_mean_confidence") == "mean top probability after temperature scaling"
    assert displayed("log_odds") == "log odds in nats"
    assert heading("log_odds").with_unit == "Odds (nats)"
    with pytest.raises(SystemExit):
        main(["list", "metrics", "--json"])
    summaries = {row["name"]: row["summary"] for row in json.loads(capsys.readouterr().out)}
    assert summaries["log_odds"] == "Mean of the largest logit less the next."
    assert summaries["ts_log_odds"] == "after cross-fitted temperature scaling: log_odds"

    logits, labels = torch.tensor([[1.0, 0.0, 3.0], [0.0, 1.0, 0.5]]), torch.tensor([0, 1])
    assert metrics.measure_stored(logits, labels, also=new)["log_odds"] == approx((2 + 0.5) / 2)
    assert not set(new) & set(metrics.measure_stored(logits, labels))


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (
            '{"toy": {"lable": "toy"}}',
            "metrics/toy.py: toy.lable: Metric has no 'lable'. Did you mean 'label'?",
        ),
        (
            '{"toy": {"better": "less"}}',
            "metrics/toy.py: toy.better: there is no 'less'. Valid values: lower, higher.",
        ),
        (
            '{"toy": {"stored": "yes"}}',
            "metrics/toy.py: toy.stored: must be true or false, got 'yes'.",
        ),
        ('{"toy": {"largest": None}}', "toy.reference: is required for unbounded values"),
        (
            '{"toy": {"largest": None, "reference": "K"}}',
            "toy.reference: must be a number or 'log K', got 'K'.",
        ),
        (
            '{"toy": {"better": "higher", "heading": "Toy"}}',
            "toy.heading: the papers' table marks the smallest",
        ),
        (
            '{"toy": {"largest": math.inf}}',
            "metrics/toy.py: METRICS (line 1) must contain only plain values",
        ),
        ('{"ece": {}}', "metrics/toy.py: 'ece' is already in binned.py. Rename one."),
    ],
)
def test_what_a_file_may_not_say(folder: Path, row: str, said: str) -> None:
    (folder / "toy.py").write_text(f"METRICS = {row}\n")
    with pytest.raises(FieldError) as error:
        metrics.names()
    assert said in str(error.value)


def test_a_bound_is_held_against_the_range() -> None:
    assert parse_where("skce<1.5, brier_calibration<2, nll<40")[2].bound == 40
    with pytest.raises(FieldError, match=r"skce lies in \[0, 2\], got 3"):
        parse_where("skce<3")
