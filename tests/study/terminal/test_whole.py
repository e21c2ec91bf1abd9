"""Every table of every command, at 60, 80 and 120 columns and on a pipe: each value is whole.

The values come from the data (records, --json), not from what is printed.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache
from io import StringIO
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import pytest
from optuna.distributions import FloatDistribution
from rich.console import Console

from study.analysis.states import count_states
from study.audit.result import AuditReport, Check, Offender
from study.commands import audit as audit_command
from study.commands import confirm as confirm_command
from study.machines import doctor
from study.registry import verification
from study.schema.explain import explain
from study.schema.objective import Objective
from study.schema.reading import read_spec
from study.store.study import StudyFolder
from study.store.trials import TrialRecord
from study.terminal.catalogue import catalogue
from study.terminal.doctor import show
from study.terminal.layout import Table
from study.terminal.progress import Progress
from study.uncertainty import bootstrap
from study.uncertainty.forms import digits_for, signed_ends, value_text
from study.uncertainty.intervals import Interval
from tests import golden
from tests.study import report_studies
from tests.study.command_line import here, here_json
from tests.study.made import OBJECTIVES, made_study, random_predictions
from trainables.outputs.predictions import Predictions

LABELS = ("cross_entropy", "focal_loss_with_a_long_label", "mbls")
SPACE = {
    "method.weight": FloatDistribution(0.01, 0.1),
    "optimizer.lr": FloatDistribution(0.01, 0.5),
}
ROW = [{"epoch": 1, "time": 0.0}]
PIPE = None


@pytest.fixture(params=[60, 80, 120, PIPE], ids=["60", "80", "120", "pipe"])
def width(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int | None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1" if request.param else "0")
    # A pipe has no columns, whatever this says.
    monkeypatch.setenv("COLUMNS", str(request.param or 80))
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> StudyFolder:
    """Eight complete trials and a failed one; the scores of each are of predictions of its own."""
    data = random_predictions(99)

    def scores(label: str, number: int) -> Predictions:
        seed = 10 * LABELS.index(label) + number
        return Predictions(
            data.logits + random_predictions(seed, scale=1.0 + number).logits, data.labels
        )

    def metrics(label: str, number: int) -> dict[str, float]:
        place = (3 * LABELS.index(label) + number) / 70  # all on the front
        return {**scores(label, number).evaluate(), "accuracy": 0.8 + place, "ece": 0.1 + place}

    trials: dict[str, Any] = {
        label: [(metrics(label, number), ROW) for number in range(3)] for label in LABELS
    }
    trials["mbls"][2] = ({}, ROW)
    objectives = (*OBJECTIVES, Objective("nll", "minimize"))
    return made_study(tmp_path_factory.mktemp("root"), "small", trials, SPACE, objectives, scores)


@pytest.fixture(scope="module", autouse=True)
def analysed_once() -> Iterator[None]:
    """The intervals of `study` and of its two trials do not depend on the width."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("analyse_front", "compare"):
            patch.setattr(bootstrap, name, first_of(getattr(bootstrap, name)))
        yield


def first_of(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which returns again what it has returned first."""
    found: list[Any] = []

    def returned(*given: Any, **named: Any) -> Any:
        if not found:
            found.append(function(*given, **named))
        return found[0]

    return returned


@cache
def told(*words: object) -> Any:
    """With --json, asked once for all widths."""
    return here_json(*words)


def shown(*words: object, check: int = 0) -> str:
    return plain(here(*words, check=check))


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


def params(record: TrialRecord) -> list[str]:
    return [f"{path.rpartition('.')[2]}={value:.3g}" for path, value in record.params.items()]


def assert_whole(text: str, rows: Iterable[list[str]], width: int | None) -> None:
    """Each row begins a line with its name, and each of its values follows: a number in one
    piece, a text word by word.

    On a pipe they are all in that line, in order and in one piece.
    """
    rows, ends = list(rows), [0]
    if width is PIPE:
        for row in rows:
            assert re.search("^ *" + ".*?".join(map(re.escape, row)), text, re.MULTILINE), row
    for name, *_ in rows:
        first = re.compile(rf"^ *{re.escape(name.split()[0])}(?!\S)", re.MULTILINE).search(
            text, ends[-1]
        )
        assert first, name
        ends.append(first.end())
    for row, start, end in zip(rows, ends[1:], [*ends[2:], len(text)], strict=True):
        for value in row[1:]:
            words = value.split() if re.search("[A-Za-z]{2}", value) else [value]
            pattern = r"(?<!\S)" + r"[\s\S]*?(?<!\S)".join(
                re.escape(word) + r"(?!\S)" for word in words
            )
            assert re.search(pattern, text[start:end]), (row[0], value)


# ---- a study -------------------------------------------------------------------------------------


def test_status(study: StudyFolder, width: int | None) -> None:
    text = shown("status", study.directory)
    counts = {"cross_entropy": "3 3 0 0 0", LABELS[1]: "3 3 0 0 0", "mbls": "3 2 1 0 0"}
    assert_whole(text, ([label, *count.split()] for label, count in counts.items()), width)
    assert_whole(text, [["mbls/0002", "failed", "loss is nan"]], width)


def test_trials(study: StudyFolder, width: int | None) -> None:
    assert_whole(shown("trials", study.directory), trial_rows(study), width)


def trial_rows(study: StudyFolder) -> Iterator[list[str]]:
    for record in study.records():
        values = [f"{record.metrics[o.metric]:.4f}" for o in study.objectives if record.metrics]
        yield [record.name, record.state, *values, *params(record)]


@pytest.mark.parametrize("resampled", [False, True])
def test_pareto(study: StudyFolder, width: int | None, resampled: bool) -> None:
    words = ["pareto", study.directory, *(["--bootstrap", 100] if resampled else [])]
    records = {record.name: record for record in study.records()}
    rows = []
    for found in told(*words)["front"]:
        record, row = records[f"{found['method']}/{found['number']:04d}"], []
        for metric in ("accuracy", "ece", "nll"):
            value: Interval | float = record.metrics[metric]
            if resampled:
                ends = found["intervals"][metric]
                value = Interval(record.metrics[metric], ends["low"], ends["high"])
            row.append(value_text(value, cell=True))
        share = [f"{found['share_on_front']:.0%}"] if resampled else []
        rows.append([record.name, *row, *share, "1.0k", *params(record)])
    assert len(rows) == 8
    assert_whole(shown(*words), rows, width)


def test_compare(study: StudyFolder, width: int | None) -> None:
    one, other = "cross_entropy/0000", f"{LABELS[1]}/0002"
    words = ("pareto", study.directory, "--bootstrap", 100, "--compare", one, other)
    found = told(*words)["metrics"]
    rows = []
    for name, of in found.items():
        between = Interval(of["estimate"], of["low"], of["high"])
        digits = digits_for(between.low, between.high)
        both = (f"{of[side]:.{digits}f}" for side in ("one", "other"))
        rows.append([name, *both, *signed_ends(between)])
    assert_whole(shown(*words), rows, width)


def test_the_live_view_and_the_table_of_the_end(study: StudyFolder, width: int | None) -> None:
    """`run` ends with the table the live view shows."""
    out = StringIO()
    console = Console(file=out, width=width or 1_000_000, height=1000)
    console.print(Progress(study.spec, study.records(), console)._view())
    counts = {"cross_entropy": "3 3 0 0 0", LABELS[1]: "3 3 0 0 0", "mbls": "3 2 1 0 0"}
    assert_whole(
        plain(out.getvalue()), ([label, *count.split()] for label, count in counts.items()), width
    )
    best = sorted(
        (row for row in trial_rows(study) if row[1] == "complete"),
        key=lambda row: row[2],
        reverse=True,
    )
    assert_whole(
        plain(out.getvalue()), ([row[0], *row[2:5], "1.0k", *row[5:]] for row in best[:6]), width
    )


STATES = count_states(24, ["complete"])


@pytest.mark.parametrize("driver", [False, True])
def test_audit(width: int | None, driver: bool, capsys: pytest.CaptureFixture[str]) -> None:
    titles = [
        "ledger: each trial is there, once",
        "MLflow: each finished trial has one complete run, of its result",
    ]
    offender = Offender("focal/0001", "has no run", "Run `calstudy sync small`.")
    checks = [
        Check(f"check {n}", title, 1234 + n, 0, [offender] * 7, [offender] * n)
        for n, title in enumerate(titles)
    ]
    audit_command._print(
        AuditReport("small", driver, None, checks, STATES, 0, 0), "calstudy run small"
    )
    rows = [[check.title, str(check.counted), "7", str(n or "-")] for n, check in enumerate(checks)]
    assert_whole(plain(capsys.readouterr().out), rows, width)


# ---- before a study ------------------------------------------------------------------------------

SPEC = Path("study/specs/digits.yaml").resolve()


def test_plan(width: int | None) -> None:
    rows = [
        [variant.label, ", ".join(variant.space.distributions)]
        for variant in read_spec(SPEC).variants
    ]
    assert_whole(shown("plan", SPEC), rows, width)


def test_plan_explain(width: int | None) -> None:
    """It is read in a pager: on a pipe too it is as narrow as a terminal."""
    rows = [[cell for cell in row if cell] for row in explain(read_spec(SPEC))]
    assert len(rows) > 60
    text = shown("plan", SPEC, "--explain")
    assert max(map(len, text.splitlines())) <= (width or 100)
    assert_whole(text, rows, width or 100)


@pytest.mark.parametrize("kind", ["methods", "spaces", "datasets", "models", "metrics"])
def test_list(width: int | None, kind: str) -> None:
    rows = []
    for row in catalogue(kind):
        rows.append([row["name"], row["summary"]])
        rows += [[one["name"], "=", one["default"], one["doc"]] for one in row.get("settings", ())]
        rows += [[f"{path}:", str(entry)] for path, entry in row.get("space", {}).items()]
    assert_whole(shown("list", kind), rows, width)


def test_doctor(width: int | None) -> None:
    values = {
        "code": "ok",
        "versions": "ok",
        "storage": "ok",
        "GPUs": "8",
        "disk": "1234 GB",
        "clock": "+0.3s",
    }
    machines = ["head", "gpu-node-17.cluster.example.org"]
    findings = [
        doctor.Finding(name, check, "ok", of) for name in machines for check, of in values.items()
    ]
    out = StringIO()
    console = Console(file=out, width=width or 1_000_000)
    show(doctor.DoctorReport(findings), console)
    assert_whole(plain(out.getvalue()), ([name, *values.values()] for name in machines), width)


# ---- after a study -------------------------------------------------------------------------------


def test_confirm(tmp_path: Path, width: int | None, capsys: pytest.CaptureFixture[str]) -> None:
    of = report_studies.make_study(tmp_path)
    records = report_studies.trials(
        focal=[report_studies.complete(of, "focal", n) for n in range(2)],
        cross_entropy=[report_studies.complete(of, "cross_entropy", n) for n in range(2)],
    )
    found = report_studies.confirmation_of(of, records)
    shift = tuple(
        {name: 0.1 + seed / 7 for name in confirm_command.SHOWN_OF_SHIFT} for seed in range(2)
    )
    first = replace(found.rows[0], shifts={"noisy": shift})
    sizes = report_studies.sizes_of(found)
    confirm_command._print(replace(found, rows=(first, *found.rows[1:])), sizes)  # type: ignore[arg-type]
    rows = []
    for metric in ("accuracy", "ece"):
        searched = first.candidate.metrics[metric]  # type: ignore[union-attr]
        floor = ["0.013 [0.008, 0.019]"] * (metric == "ece")
        rows.append(
            ["focal/0001", "2", f"{searched:.4f}", *floor, *moments(first.tests, metric), *floor]
        )
        baseline = moments([record.metrics for record in found.rows[1].records], metric)
        rows.append(["cross_entropy_default", "2", "-", *baseline])
    raw, after = (moments(first.tests, name) for name in ("ece", "ts_ece"))
    rows.append(["focal/0001", *raw, "0.013 [0.008, 0.019]", *after, "0.023 [0.018, 0.029]"])
    rows.append(["focal/0001", *(word for name in shift[0] for word in moments(shift, name))])
    text = plain(capsys.readouterr().out)
    assert_whole(text, rows, width)
    said = " ".join(text.split())
    assert "accuracy (maximize)" in said and "ECE as trained (minimize)" in said
    assert "after temperature (served)" in said and "floor on validation" in said
    assert (
        "shrinkage of ECE compares 359 samples with 359. floor: what a perfectly calibrated model"
        in said
    )
    assert (
        "models are served after temperature (`calstudy export small ... --raw`: as trained); the"
        " search" in said
    )


def moments(values: Any, metric: str) -> list[str]:
    found = [value[metric] for value in values]
    return [f"{fmean(found):.4f} ± {stdev(found):.4f}"]


def test_verify(width: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["probabilities", "metric ts_classwise_ece", "metric auroc_confidence_of_a_long_name"]
    checks = tuple(
        verification.Comparison(name, 1.25e-7 * n, 1e-6, True) for n, name in enumerate(names, 1)
    )
    report = verification.VerifyReport("models:/digits/1", checks, 287)
    monkeypatch.setattr(verification, "verify", lambda *words: report)
    rows = [[check.name, f"{check.found:g}", f"{check.limit:g}", "ok"] for check in checks]
    assert_whole(shown("verify", "models:/digits/1", "--details"), rows, width)
    line = "models:/digits/1: verified on 287 validation samples, 3 checks"
    assert shown("verify", "models:/digits/1").split("\n") == [line, ""]
    off = verification.Comparison("metric ece", 0.1, 1e-6, False)
    report = verification.VerifyReport("models:/digits/1", (*checks, off), 287)
    assert_whole(
        shown("verify", "models:/digits/1", check=1),
        [*rows, ["metric ece", "0.1", "1e-06", "DIFFERS"]],
        width,
    )


@pytest.fixture(scope="module")
def predictions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    logits, labels, _ = golden.input_b()
    file = tmp_path_factory.mktemp("golden") / "b.npz"
    np.savez(file, logits=logits.numpy(), labels=labels.numpy())
    return file


@pytest.mark.slow
def test_evaluate(predictions: Path, width: int | None) -> None:
    words = ("evaluate", predictions, "--all", "--no-intervals", "--ood", predictions)
    found = told(*words)
    rows = metric_rows(found["metrics"])
    for name, of in found["post_hoc"].items():
        measured = [f"{of[metric]:.6f}" for metric in ("accuracy", "nll", "brier", "ece")]
        temperature = f"{of['fitted']:.6f}" if "fitted" in of else "-"
        rows.append([name, *measured, temperature, str(of["changed"])])
    for name, of in found["post_hoc"].items():
        if name != "temperature":
            rows.append([name, *(f"{of[f'{each}_less']:+.4f}" for each in ("nll", "brier", "ece"))])
    assert_whole(shown(*words), rows + metric_rows(found["out_of_distribution"]), width)


def metric_rows(values: dict[str, float | None]) -> list[list[str]]:
    names = [name for name in values if not name.startswith("ts_")]
    found = [
        [name, *(values[each] for each in (name, f"ts_{name}") if each in values)] for name in names
    ]
    return [
        [name, *("-" if value is None else f"{value:.6f}" for value in row)] for name, *row in found
    ]


# ---- the layout ----------------------------------------------------------------------------------


def rendered(table: Table, width: int) -> list[str]:
    out = StringIO()
    Console(file=out, width=width).print(table)
    return out.getvalue().splitlines()


def made() -> Table:
    table = Table("trial", ">ece", "values", title="front")
    table.add_row("focal/0007", "0.0123 [0.0045, 0.0210]", "gamma=2.1 weight=0.0253")
    table.add_row("mbls/0001", "0.1", "")
    return table


def test_it_fits_it_wraps_or_it_stands_upright() -> None:
    assert rendered(made(), 60) == [
        "front",
        "trial                           ece  values",
        "focal/0007  0.0123 [0.0045, 0.0210]  gamma=2.1 weight=0.0253",
        "mbls/0001                       0.1",
    ]
    assert rendered(made(), 58)[2:4] == [
        "focal/0007  0.0123 [0.0045, 0.0210]  gamma=2.1",
        "                                     weight=0.0253",
    ]
    assert rendered(made(), 40) == [
        "front",
        "focal/0007",
        "  ece     0.0123 [0.0045, 0.0210]",
        "  values  gamma=2.1 weight=0.0253",
        "mbls/0001",
        "  ece     0.1",
    ]


@pytest.mark.parametrize("width", range(20, 80))
def test_no_line_is_longer_than_the_screen_and_nothing_is_lost(width: int) -> None:
    """Even a word that is longer than the screen goes on in the next line."""
    lines = rendered(made(), width)
    assert all(line == line.rstrip() and len(line) <= width for line in lines)
    table = Table("file", "reason")
    table.add_row("x", "/a/path/without/any/space/" + 9 * "0123456789")
    assert "0123456789" * 9 in "".join(line.split()[-1] for line in rendered(table, width))
