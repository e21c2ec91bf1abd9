"""The papers' table: marks by hand, the rows of a search, and what each format says."""

import csv
import io
import re
import shutil
import subprocess
from dataclasses import replace

import numpy as np
import pytest
import torch
from matplotlib.mathtext import MathTextParser
from pytest import approx

from study.cli import main
from study.report.comparison import (
    TableRow,
    against,
    block_of_search,
    block_of_tests,
    combine,
    compared,
    with_ties,
)
from study.report.paper_table import MARKDOWN, caption, to_csv, to_latex, to_markdown
from study.report.table_columns import METRICS
from study.schema.objective import Objective
from study.uncertainty.methods import NetworkPredictions
from tests.study.made import made_study
from trainables.metrics import stored
from trainables.outputs.predictions import Predictions
from trainables.problems import FieldError


def seed(error, ece=0.05, **others):
    """Metrics of one seed; temperature scaling leaves the error and halves the rest."""
    found = dict.fromkeys(stored(), 0.1) | {
        "error": error,
        "accuracy": 1 - error,
        "ece": ece,
        **others,
    }
    return found | {
        f"ts_{name}": value if name == "error" else value / 2 for name, value in found.items()
    }


def told(*found):
    return [(metrics, []) for metrics in found]


@pytest.fixture
def confirmed(tmp_path):
    """Three methods of three seeds on the test split: the first two are close, the third is far."""
    study = made_study(tmp_path, "digits", {"focal": told(seed(0.1))})
    rows = [
        TableRow("focal_0007", "candidate", (seed(0.030), seed(0.032), seed(0.034))),
        TableRow("focal_default", "default", (seed(0.031), seed(0.033), seed(0.036))),
        TableRow("cross_entropy", "baseline", (seed(0.090), seed(0.092), seed(0.094))),
    ]
    block = block_of_tests(study, rows, "fitted on validation")
    networks = {
        row.label: [network(round(360 * one["error"])) for one in row.seeds] for row in rows
    }
    block = replace(with_ties(block, networks, 200), matters={"error": 0.001})
    return combine([block], asked=METRICS)


def network(wrong):
    """Its predictions of 360 images, so many of them wrong."""
    labels = torch.arange(360) % 10
    told = torch.where(torch.arange(360) < wrong, (labels + 1) % 10, labels)
    return NetworkPredictions(
        Predictions(5.0 * torch.nn.functional.one_hot(told, 10).float(), labels), 1.0
    )


# ---- cells ---------------------------------------------------------------------------------------


def nothing(place):
    return {}


def test_best_and_what_is_like_it_by_hand():
    words = {0: {1: "undecided", 2: "worse"}}
    cells = compared(
        [[3.0, 3.2, 3.4], [3.1, 3.3, 3.6], [9.0, 9.2, 9.4], []], lambda place: words.get(place, {})
    )
    assert cells[3] is None
    assert [(cell.best, cell.word) for cell in cells[:3]] == [
        (True, ""),
        (False, "undecided"),
        (False, ""),
    ]
    assert (cells[0].mean, cells[0].std) == (approx(3.2), approx(0.2))


def test_one_seed_has_no_std_and_equal_means_are_all_best():
    cells = compared([[3.0], [3.0], [3.0001]], nothing)
    assert [(cell.std, cell.best) for cell in cells] == [(None, True), (None, True), (None, False)]
    assert compared([], nothing) == []


# ---- rows ----------------------------------------------------------------------------------------


def test_a_search_gives_its_best_by_the_objectives_and_its_repeats(tmp_path):
    from optuna.distributions import FloatDistribution

    space = {"method.gamma": FloatDistribution(0, 5)}
    # By accuracy, then by ECE: the third. A failed trial is none.
    searched = told(seed(0.05, 0.01), seed(0.03, 0.04), seed(0.03, 0.02), {})
    study = made_study(tmp_path, "digits", {"focal": searched, "mbls": told({})}, space)
    block = block_of_search(study, study.records())
    (row,) = block.rows
    assert (row.role, row.chosen_from, row.values("ece")) == ("best", 3, [0.02])
    assert (block.split, block.samples, block.notes) == (
        "validation",
        287,
        ("no complete trial: mbls",),
    )
    text = caption(combine([block]), MARKDOWN)
    assert (
        "digits: validation split, 287 samples, 10 classes, 1 seed, best trial by accuracy" in text
    )
    assert "looks better than it is" in text and "nothing is compared" in text

    chosen = replace(study, plain={**study.plain, "result": "best_nll"})
    text = caption(combine([block_of_search(chosen, chosen.records())]), MARKDOWN)
    assert (
        "no complete trial: mbls; each result is the epoch with the best nll on the validation"
        " split" in text
    )

    repeated = made_study(
        tmp_path, "noise", {"cross_entropy": told(seed(0.05), seed(0.03), seed(0.04))}
    )
    (row,) = block_of_search(repeated, repeated.records()).rows
    assert (row.role, row.chosen_from, row.values("error")) == ("repeats", 1, [0.05, 0.03, 0.04])
    text = caption(combine([block_of_search(repeated, repeated.records())]), MARKDOWN)
    assert "3 seeds" in text and "looks better" not in text


def test_what_is_not_opened_is_named_and_nothing_opened_refused(tmp_path):
    study = made_study(tmp_path, "digits", {"focal": told(seed(0.1))})
    waiting = TableRow("mbls_0001", "candidate", ())
    block = block_of_tests(
        study, [TableRow("focal_0007", "candidate", (seed(0.1),)), waiting], "fitted on validation"
    )
    assert [row.label for row in block.rows] == ["focal_0007"]
    assert "not yet measured on the test split: mbls_0001" in caption(combine([block]), MARKDOWN)
    with pytest.raises(FieldError, match="nothing is confirmed on the test split yet"):
        block_of_tests(study, [waiting], "fitted on validation")


def test_a_metric_that_one_seed_lacks_is_not_averaged_over_the_others():
    assert TableRow("focal", "repeats", (seed(0.1), {"error": 0.2})).values("ece") == []


def test_several_studies_are_blocks_with_notes_of_what_differs(tmp_path, confirmed):
    nll = (Objective("nll", "minimize"),)
    other = made_study(tmp_path, "hundred", {"focal": told(seed(0.4))}, objectives=nll, classes=100)
    block = block_of_search(other, other.records())
    table = combine([*confirmed.blocks, block])
    text = caption(table, MARKDOWN)
    assert (
        "digits: test split, 360 samples" in text
        and "hundred: validation split, 287 samples" in text
    )
    assert (
        "This table mixes test and validation values" in text
        and "different numbers of classes" in text
    )
    assert [cell.best for cell in table.blocks[1].cells("error")] == [True]  # of its own block
    with pytest.raises(FieldError, match="hundred is given twice"):
        combine([block, block])


# ---- text ----------------------------------------------------------------------------------------


def test_latex_has_a_cell_for_each_column_and_math_that_reads(confirmed):
    text = to_latex(confirmed)
    assert r"focal\_0007 & 3 seeds & $\mathbf{3.20}{}_{0.20}$ &" in text
    assert r"focal\_default & 3 seeds & $\underline{3.33}{}_{0.25}$ &" in text
    assert r"cross\_entropy & 3 seeds & $9.20{}_{0.20}$ &" in text
    rows = [
        line for line in text.splitlines() if line.endswith(r"\\") and "multicolumn" not in line
    ]
    # Method, runs, error, 6 pairs.
    assert {line.count(" & ") for line in rows} == {14} and len(rows) == 4
    assert text.count("{") == text.count("}")
    for formula in re.findall(r"\$[^$]+\$", text):
        MathTextParser("agg").parse(formula.replace(r"\underline", r"\mathrm"))


@pytest.mark.platform
@pytest.mark.skipif(
    shutil.which("pdflatex") is None, reason="no pdflatex: the table is not compiled"
)
def test_latex_compiles(confirmed, tmp_path):
    packages = r"\documentclass{article}\usepackage{booktabs,graphicx}\begin{document}"
    (tmp_path / "t.tex").write_text(packages + to_latex(confirmed) + r"\end{document}")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "t.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and "Overfull" not in done.stdout, done.stdout


def test_markdown_and_its_caption(confirmed):
    text = to_markdown(confirmed)
    assert (
        "| focal_0007 | 3 seeds | **3.20** ± 0.20 | **0.100** ± 0.000 | **0.050** ± 0.000 |"
        " **10.00** ± 0.00 | **5.00** ± 0.00 | **5.00** ± 0.00 |" in text
    )
    flat = " ".join(text.split())
    assert (
        "digits: test split, 360 samples, 10 classes, 3 seeds; temperature fitted on validation."
        in flat
    )
    assert (
        "in %, NLL in nats" in flat
        and "the 95% interval of the difference lies within the smallest difference that matters."
        " Italic: undecided,"
        in flat
    )


def test_csv_reads_back_unrounded_in_fractions(confirmed):
    rows = list(csv.DictReader(io.StringIO(to_csv(confirmed))))
    assert [row["method"] for row in rows] == ["focal_0007", "focal_default", "cross_entropy"]
    assert float(rows[1]["error_mean"]) == approx(np.mean([0.031, 0.033, 0.036]), rel=1e-12)
    assert float(rows[1]["error_std"]) == approx(np.std([0.031, 0.033, 0.036], ddof=1), rel=1e-12)
    assert [row["error_mark"] for row in rows] == ["best", "undecided", ""]
    assert (rows[0]["split"], rows[0]["samples"], rows[0]["role"]) == ("test", "360", "candidate")
    assert "ts_error_mean" not in rows[0] and float(rows[0]["ts_ece_mean"]) == approx(0.025)


def test_no_cell_of_it_is_a_formula(confirmed):
    (block,) = confirmed.blocks
    row = replace(block.rows[0], label="@SUM(A1)")
    hostile = replace(block, study="=1+1", rows=(row,), methods={})
    first = next(csv.DictReader(io.StringIO(to_csv(replace(confirmed, blocks=(hostile,))))))
    assert (first["study"], first["method"]) == ("'=1+1", "'@SUM(A1)")


def test_unasked_there_are_error_nll_brier_and_the_objectives(confirmed):
    """A bin's largest gap is known within many points; it is shown on request."""
    whole = csv.DictReader(io.StringIO(to_csv(confirmed))).fieldnames
    plain = csv.DictReader(io.StringIO(to_csv(replace(confirmed, asked=None)))).fieldnames
    means = [name.removesuffix("_mean") for name in plain if name.endswith("_mean")]
    assert [name for name in means if "floor" not in name] == [
        *("error", "nll", "ts_nll", "brier", "ts_brier", "ece", "ts_ece")
    ]
    assert {"mce_mean", "ts_classwise_ece_mean", "adaptive_ece_mean"} <= {*whole} - {*plain}


# ---- against one row -----------------------------------------------------------------------------


def test_against_a_row_each_mean_is_less_that_rows_mean(confirmed):
    """The estimate by hand; the interval is the one that the table's marks go by."""
    (block,) = confirmed.blocks
    less = against(block, "cross_entropy")
    cells = less.cells("error")
    means = [np.mean(row.values("error")) for row in block.rows]
    assert [cell.mean for cell in cells] == approx(means)
    interval = block.methods["error"].difference("focal_0007", "cross_entropy")
    assert cells[0].difference == interval and interval.high < 0 and cells[0].word == "better"
    assert interval.estimate == approx(
        np.mean(
            np.round(360 * np.array([0.030, 0.032, 0.034]))
            - np.round(360 * np.array([0.090, 0.092, 0.094]))
        )
        / 360
    )
    assert (cells[2].difference, cells[2].best, cells[2].word) == (None, False, "")
    closer = against(block, "focal_default").cells("error")[0]
    assert closer.word == "undecided" and closer.difference.low < 0 < closer.difference.high


def test_against_a_row_each_format_has_interval_and_word(confirmed):
    (block,) = confirmed.blocks
    table = replace(confirmed, blocks=(against(block, "cross_entropy"),))
    difference = block.methods["error"].difference("focal_0007", "cross_entropy")
    less, low, high = (f"{100 * value:.2f}" for value in difference)
    text = to_markdown(table)
    assert f"| focal_0007 | 3 seeds | {less} [{low}, {high}] better |" in text
    assert "| cross_entropy | 3 seeds | 9.20 ± 0.20 |" in text
    assert "a row's mean less that of cross_entropy, whose own row" in " ".join(text.split())
    assert f"$-${less[1:]} [$-${low[1:]}, $-${high[1:]}] better" in to_latex(table)
    first, _, last = csv.DictReader(io.StringIO(to_csv(table)))
    found = [float(first[f"error_{part}"]) for part in ("less", "low", "high")]
    assert found == approx(list(difference))
    assert first["error_mark"] == "better" and last["error_less"] == ""


def test_against_a_method_with_one_row_or_a_row(confirmed, approved):
    (block,) = confirmed.blocks
    rows = tuple(
        replace(row, label=label)
        for row, label in zip(block.rows, ("focal/0007", "focal/0009", "mbls/0001"), strict=True)
    )
    methods = {
        "error": replace(
            block.methods["error"],
            rows=dict(
                zip((row.label for row in rows), block.methods["error"].rows.values(), strict=True)
            ),
        )
    }
    named = replace(block, rows=rows, methods=methods)
    assert against(named, "mbls").against == "mbls/0001"
    assert against(named, "focal/0007").against == "focal/0007"
    for wrong in ("focal", "mixup"):
        with pytest.raises(FieldError) as refused:
            against(named, wrong)
        assert refused.value.path == "--against"
        approved(str(refused.value))
    once = replace(named, rows=(*rows[:2], replace(rows[2], seeds=rows[2].seeds[:1])))
    with pytest.raises(FieldError) as refused:
        against(once, "mbls")
    approved(str(refused.value))


# ---- the command ---------------------------------------------------------------------------------


def calstudy(capsys, *words):
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    return ended.value.code, *capsys.readouterr()


def test_report_writes_a_file_and_leaves_out_what_is_empty(tmp_path, capsys):
    made_study(tmp_path, "digits", {"focal": told(seed(0.05), seed(0.03))})
    made_study(tmp_path, "failed", {"focal": told({}, {})})
    output = tmp_path / "new" / "table.md"
    words = (
        "report",
        "digits",
        "failed",
        "--storage",
        tmp_path,
        "--format",
        "md",
        "--output",
        output,
    )
    assert calstudy(capsys, *words)[0] == 0
    assert "Left out: failed: no trial is complete yet" in " ".join(output.read_text().split())
    code, out, err = calstudy(capsys, "report", "failed", "--storage", tmp_path, "--format", "csv")
    assert (code, out, err.count("\n")) == (2, "", 1) and "failed: no trial is complete yet" in err
    code, out, err = calstudy(capsys, "report", "digits", "--storage", tmp_path, "--format", "csv")
    assert code == 0 and out.startswith("study,split,samples") and "validation split" in err
    assert "in fractions, NLL in nats" in err and "%" not in err
    # These made trials have no predictions: the reason is said beside the table, not in it.
    assert "predictions.npz is missing" in err.splitlines()[0] and "Only the best is marked" in err
    words = ("report", "digits", "--storage", tmp_path, "--format", "csv", "--against", "focal")
    code, out, said = calstudy(capsys, *words)
    assert (code, out) == (2, "") and said.splitlines()[1].startswith("--against: the predictions")
    assert err.count("Only the best is marked") == 1
