"""Metrics of one's own: described by their files' text, measured by their code."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pytest import approx

from study.schema.errors import SpecError
from study.schema.objective import Objective
from study.schema.reading import spec_from_mapping
from study.uncertainty.without_intervals import no_intervals_of
from trainables import metrics, plugins
from trainables.outputs.predictions import Predictions
from trainables.plugins import (
    extension_digests,
    finding_for,
    open_extensions,
    use_extensions,
    used_files,
)
from trainables.problems import FieldError

GAP = '''"""Mine."""
import torch

METRICS = {
    "gap": {"stored": True, "kind": "fraction", "matters": 0.02, "label": "the gap"},
    "rarely": {"better": "higher", "largest": None},
}


def gap(logits, labels):
    """Largest less smallest accuracy of a class."""
    hits = (logits.argmax(dim=-1) == labels).double()
    each = torch.stack([hits[labels == k].mean() for k in labels.unique()])
    logits.zero_()
    return each.max() - each.min()


def rarely(logits, labels):
    return RESULT
'''


@pytest.fixture(autouse=True)
def own_names_only(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(plugins, "_opened", {})
    yield
    use_extensions(None)


def folder(place: Path, text: str = GAP, result: str = "0.5", name: str = "mine") -> Path:
    (place / "metrics").mkdir(parents=True, exist_ok=True)
    (place / "metrics" / f"{name}.py").write_text(text.replace("RESULT", result))
    return place


@pytest.fixture
def made() -> Predictions:
    random = torch.Generator().manual_seed(0)
    labels = torch.randint(3, (60,), generator=random)
    return Predictions(torch.randn(60, 3, generator=random), labels)


def test_they_are_described_after_ours_and_measured(tmp_path: Path, made: Predictions) -> None:
    before = metrics.names()
    use_extensions(folder(tmp_path))
    assert [name for name in metrics.names() if name not in before] == [
        *("gap", "rarely", "ts_gap", "ts_rarely")
    ]
    assert metrics.stored()[-1] == "gap" and "gap" not in metrics.ours()
    assert (metrics.describe("gap").label, metrics.describe("gap").matters) == ("the gap", 0.02)
    assert metrics.is_own("ts_gap") and not metrics.is_own("ts_ece")
    found = made.evaluate(also=["rarely"])
    hits = (made.logits.numpy().argmax(axis=1) == made.labels.numpy()).astype(float)
    each = [np.mean(hits[made.labels.numpy() == k]) for k in range(3)]
    assert found["gap"] == approx(max(each) - min(each))
    assert found["ts_gap"] == approx(found["gap"])  # a temperature moves no class
    assert found["rarely"] == 0.5 and "ts_rarely" not in found
    # It overwrites its logits: a copy. Every other value is as without it.
    use_extensions(None)
    ours = made.evaluate()
    assert {name: found[name] for name in ours} == ours
    assert metrics.names() == before


@pytest.mark.parametrize(
    ("result", "value"),
    [("1", 1.0), ("torch.tensor(2.5)", 2.5), ("__import__('numpy').float32(0.25)", 0.25)],
)
def test_a_number_of_any_kind(result: str, value: float, tmp_path: Path, made: Predictions) -> None:
    use_extensions(folder(tmp_path, result=result))
    assert made.evaluate(also=["rarely"])["rarely"] == value


@pytest.mark.parametrize(
    ("described", "result", "said"),
    [
        ('{"kind": "fraction"}', "1.0000001", ""),
        ('{"kind": "calibration"}', "-0.25", ""),  # as of an unbiased estimate
        ('{"kind": "score", "largest": None, "reference": 9.0}', "-70.0", ""),
        ('{"kind": "fraction", "largest": None, "reference": 9.0}', "93.5", ""),
        (
            '{"kind": "fraction"}',
            "93.5",
            'gives 93.5, but values lie in [0, 1]. Write "largest": the largest value, or "largest"'
            ': null and "reference": a bad value, for values without a bound, in METRICS.',
        ),
        (
            '{"kind": "fraction", "better": "higher"}',
            "-0.1",
            'gives -0.1, but values lie in [0, 1]. Write "largest": null for values without a',
        ),
        ('{"kind": "score", "largest": 4}', "-0.1", "gives -0.1, but values lie in [0, 4]. Write"),
        ('{"kind": "score"}', "float('inf')", "gives inf, but values lie in [0, 1]. Write"),
        ('{"kind": "calibration"}', "-1.5", "gives -1.5, but values lie in [-1, 1]. Write"),
    ],
)
def test_a_value_out_of_its_range_is_refused(
    described: str, result: str, said: str, tmp_path: Path, made: Predictions
) -> None:
    text = GAP.replace('{"better": "higher", "largest": None}', described)
    use_extensions(folder(tmp_path, text, result))
    if not said:
        assert made.evaluate(also=["rarely"])["rarely"] == float(result)
        return
    with pytest.raises(FieldError) as refused:
        made.evaluate(also=["rarely"])
    place = "extensions: metrics/mine.py, line 18, in rarely"
    assert str(refused.value).startswith(f"{place}: {said}")


@pytest.mark.parametrize("given", ["logits", "logits, labels, groups, weights", "*, logits"])
def test_what_it_takes_is_said_before_it_is_called(given: str, tmp_path: Path) -> None:
    text = GAP.replace("def rarely(logits, labels):", f"def rarely({given}):")
    use_extensions(folder(tmp_path, text))
    with pytest.raises(FieldError) as refused:
        metrics.load_own(["rarely"])
    assert str(refused.value) == (
        f"extensions: metrics/mine.py, line 18, in rarely: takes ({given}), but calstudy passes"
        " (logits, labels). Write def rarely(logits, labels)."
    )


def test_nan_is_undefined(tmp_path: Path, made: Predictions) -> None:
    use_extensions(folder(tmp_path, result="float('nan')"))
    assert "rarely" not in made.evaluate(also=["rarely"])


@pytest.mark.parametrize(
    ("result", "said"),
    [
        ("logits[0]", "line 18, in rarely: must return one number, got a tensor [3]."),
        ("None", "line 18, in rarely: must return one number, got NoneType."),
        ("'0.5'", "line 18, in rarely: must return one number, got str."),
        ("1 / 0", "line 19, in rarely: ZeroDivisionError: division by zero."),
        ("open('/no/such')", "line 19, in rarely: FileNotFoundError: [Errno 2] No such file"),
        ("exit(3)", "line 19, in rarely: SystemExit: 3."),
    ],
)
def test_what_is_no_number_is_said_with_its_line(
    result: str, said: str, tmp_path: Path, made: Predictions
) -> None:
    use_extensions(folder(tmp_path, result=result))
    with pytest.raises(FieldError) as refused:
        made.evaluate(also=["rarely"])
    assert str(refused.value).startswith(f"extensions: metrics/mine.py, {said}")


def test_its_file_is_one_of_those_that_a_trial_uses(tmp_path: Path) -> None:
    folder(tmp_path)
    other = GAP.replace('"stored": True, ', "").replace("gap", "chasm").replace("rarely", "often")
    use_extensions(folder(tmp_path, other, name="other"))
    files = extension_digests(tmp_path)
    assert set(files) == {"metrics/mine.py", "metrics/other.py"}
    with finding_for("focal"):
        assert metrics.load_own(["accuracy"]) == ["gap"]
    with finding_for("mbls"):
        assert metrics.load_own(["ts_often"]) == ["gap", "often"]
    assert set(used_files("focal", files)) == {"metrics/mine.py"}
    assert set(used_files("mbls", files)) == set(files)


def test_of_an_opened_study_the_text_is_read_and_nothing_is_run(tmp_path: Path) -> None:
    trail = tmp_path / "trail"
    text = GAP.replace("import torch", f"open({str(trail)!r}, 'w')\nimport torch")
    text = text.replace('"gap"', '"gulf"').replace("def gap", "def gulf")
    open_extensions(folder(tmp_path, text))
    assert metrics.describe("gulf").label == "the gap"
    assert Objective("gulf", "minimize").sign == 1
    assert no_intervals_of(["ece", "ts_gulf"]) == ("no intervals for gulf: it is your own metric")
    assert "gulf" not in metrics.measurable()
    with pytest.raises(FieldError, match="there is no metric 'gulf'"):
        metrics.find("gulf")
    assert not trail.exists()
    # A study without that folder has no such metric.
    plain: dict[str, Any] = {
        "name": "other",
        "data": "digits",
        "model": "mlp",
        "methods": ["focal"],
        "objectives": [{"metric": "gulf", "direction": "minimize"}],
    }
    with pytest.raises(SpecError, match="there is no metric 'gulf'"):
        spec_from_mapping(plain, "other.yaml")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1\n", 'mine.py: has no METRICS. Begin it with METRICS = {"mine": {'),
        ("METRICS = {", "mine.py: SyntaxError: '{' was never closed"),
        ("METRICS = [1]\n", "mine.py: METRICS (line 1) must map names to mappings. Write METRICS"),
        ("METRICS = {'a': b}\n", "mine.py: METRICS (line 1) must contain only plain values"),
        (
            "METRICS = {'a': {}}\n",
            "mine.py: METRICS has a, but there is no function a. Write def a(logits, labels).",
        ),
        ("METRICS = {'a': {'lable': 'A'}}\n", "mine.py: a.lable: Metric has no 'lable'. Did you"),
        ("METRICS = {'a': {'name': 'b'}}\n", "mine.py: a.name: is said by the file. Remove it."),
        (
            "METRICS = {'a': {'better': 'up'}}\n",
            "mine.py: a.better: there is no 'up'. Valid",
        ),
        ("METRICS = {'a': {'matters': 0}}\n", "mine.py: a.matters: must be a number above 0"),
        ("METRICS = {'ts_a': {}}\n", "mine.py: ts_a: 'ts_a' cannot be a metric's name. Write"),
        ("METRICS = {'A b': {}}\n", "mine.py: A b: 'A b' cannot be a metric's name. Write"),
        ("METRICS = {'seconds': {}}\n", "mine.py: seconds: 'seconds' cannot be a metric's name."),
        (
            "METRICS = {'ece': {}}\ndef ece(logits, labels): return 0\n",
            "mine.py: 'ece' is a metric of calstudy. Rename it.",
        ),
    ],
)
def test_a_file_that_is_wrong_is_refused_with_its_mend(
    text: str, said: str, tmp_path: Path
) -> None:
    folder(tmp_path / "ours", text)
    plain = {"name": "other", "data": "digits", "model": "mlp", "methods": ["focal"]}
    with pytest.raises(SpecError) as refused:
        spec_from_mapping({**plain, "extensions": str(tmp_path / "ours")}, "other.yaml")
    assert str(refused.value).startswith(f"other.yaml: extensions: metrics/{said}")


def test_two_files_and_two_names(tmp_path: Path) -> None:
    folder(tmp_path)
    use_extensions(folder(tmp_path, name="other"))
    with pytest.raises(FieldError, match=r"other.py: 'gap' is already in mine.py. Rename one."):
        metrics.check_own()
    (tmp_path / "metrics" / "other.py").unlink()
    use_extensions(folder(tmp_path, name="binned"))
    (tmp_path / "metrics" / "mine.py").unlink()
    with pytest.raises(FieldError, match=r"metrics/binned.py: 'binned' is a built-in name"):
        metrics.check_own()


def test_an_edited_file_is_read_anew(tmp_path: Path) -> None:
    use_extensions(folder(tmp_path))
    assert metrics.describe("gap").label == "the gap"
    folder(tmp_path, GAP.replace("the gap", "a gap"))
    use_extensions(tmp_path)
    assert metrics.describe("gap").label == "a gap"
