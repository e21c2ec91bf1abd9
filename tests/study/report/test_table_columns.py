"""Columns of metrics that papers do not print: one's own, and objectives without a heading."""

import csv
import io
import statistics
from pathlib import Path

import pytest

from search_spaces import strict_yaml
from study.report.comparison import TableRow, block_of_tests, combine
from study.report.paper_table import to_csv, to_latex, to_markdown
from study.schema.objective import Objective
from study.store.study import StudyFolder
from tests.study.command_line import here
from tests.study.made import OBJECTIVES, made_study

OWN = """METRICS = {
    "gap": {"stored": True, "kind": "fraction", "label": "gap of the classes"},
    "cost": {"stored": True, "kind": "score", "largest": None, "reference": 9.0},
    "hits": {"better": "higher", "kind": "fraction", "matters": 0.1},
}
def gap(logits, labels): ...
def cost(logits, labels): ...
def hits(logits, labels): ...
raise SystemExit("it was run")
"""
GAPS = (0.25, 0.21, 0.29)
COSTS = (1.5, 2.0, 2.5)


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """`own`: three repeats of a method, in a study whose extensions have three metrics."""
    values = {"accuracy": 0.9, "error": 0.1, "ece": 0.1, "nll": 0.4, "brier": 0.2, "hits": 0.9}
    told = [
        ({**values, "gap": gap, "ts_gap": gap, "cost": cost, "ts_cost": cost / 2}, [])
        for gap, cost in zip(GAPS, COSTS, strict=True)
    ]
    study = made_study(tmp_path, "own", {"cross_entropy": told})
    folder = study.directory / "extensions" / "metrics"
    folder.mkdir(parents=True)
    (folder / "mine.py").write_text(OWN)
    plain = {**study.plain, "extensions": "extensions", "recorded": study.recorded.to_plain()}
    plain["objectives"] += [
        {"metric": "gap", "direction": "minimize"},
        {"metric": "hits", "direction": "maximize"},
    ]
    (study.directory / "study.yaml").write_text(strict_yaml.dump(plain))
    return tmp_path


def table(root: Path, form: str, *words: str) -> str:
    where = ("--bootstrap", 0, "--storage", root)
    return here("report", "own", "--format", form, *words, *where)


def test_an_objective_of_ones_own_is_a_column(own: Path) -> None:
    shown = table(own, "md")
    mean = 100 * statistics.mean(GAPS)
    std = 100 * statistics.stdev(GAPS)
    header, _, row = shown.splitlines()[2:5]
    assert header.endswith("| ECE (%) | Gap of the classes (%) |")  # a temperature leaves it
    assert row.endswith(f"| **{mean:.2f}** ± {std:.2f} |")
    assert "Without a column, as higher is better: hits." in " ".join(shown.split())
    assert r"\multicolumn{1}{c}{Gap of the classes (\%)}" in table(own, "latex")


def test_asked_for_it_has_its_values_without_a_unit(own: Path) -> None:
    lines = table(own, "md", "--metrics", "cost,nll").splitlines()
    assert lines[2] == "| Method | Runs | NLL (nats) | Cost | Cost, TS |"
    assert lines[4].endswith("| **2.0000** ± 0.5000 | **1.0000** ± 0.2500 |")
    text = table(own, "csv", "--metrics", "all")
    row = next(csv.DictReader(io.StringIO(text[text.index("study,split") :])))
    assert float(row["gap_mean"]) == pytest.approx(statistics.mean(GAPS))
    assert float(row["ts_cost_mean"]) == pytest.approx(1.0)


def test_what_there_is_is_listed(own: Path) -> None:
    said = table_refused(own, "xyzzy")
    assert said.startswith("--metrics: there is no column 'xyzzy'. Valid values: error, nll, brier")
    assert said.endswith(", gap, cost, all.")
    assert table_refused(own, "gpa").endswith("Did you mean 'gap'?")
    # Papers do not print it, and the study does not seek it.
    assert "no column 'smooth_ece'" in table_refused(own, "smooth_ece")


def table_refused(root: Path, names: str) -> str:
    words = ("report", "own", "--format", "md", "--metrics", names, "--storage", root)
    return here(*words, check=2).strip()


def test_an_objective_of_ours_without_a_heading(tmp_path: Path) -> None:
    smooth = (*OBJECTIVES, Objective("ts_smooth_ece", "minimize"))
    study: StudyFolder = made_study(
        tmp_path, "ours", {"focal": [({"accuracy": 0.9}, [])]}, None, smooth
    )
    tests = {"error": 0.1, "smooth_ece": 0.02, "ts_smooth_ece": 0.01}
    rows = [TableRow("focal", "candidate", (tests, tests))]
    found = combine([block_of_tests(study, rows, "fitted on validation")])
    assert "| Smooth ECE (%) | Smooth ECE, TS (%) |" in to_markdown(found)
    assert "smooth_ece_mean" in to_csv(found) and "Smooth ECE" in to_latex(found)
