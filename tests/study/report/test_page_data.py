"""What a report gathers, against numbers taken by hand; and that a page holds nothing
a study could make it run."""

import base64
import gzip
import hashlib
import json
import math
import re
import shutil
import statistics
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.colors import to_hex
from pytest import approx

from study.analysis.pareto import front
from study.cli import main
from study.report import page_data
from study.report.figures import draw_reliability
from study.report.html import render
from study.report.page_data import gather, gather_page
from study.report.page_reliability import diagrams
from study.report.style import HEADINGS
from study.store import study as study_module
from study.store.study import StudyFolder
from study.store.trials import TrialRecord, Trials
from study.uncertainty.bootstrap import analyse_front
from study.uncertainty.reliability import diagram, statement
from tests.study.report_studies import (
    CLASSES,
    FLOORS,
    HOSTILE,
    analysis_of,
    complete,
    confirmation_of,
    make_study,
    predictions,
    sizes_of,
    small,
    trials,
)
from trainables.files.digest import file_digest
from trainables.outputs.predictions import Predictions


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[StudyFolder, Trials]:
    return small(tmp_path_factory.mktemp("storage"))


@pytest.fixture(scope="module")
def gathered(made: tuple[StudyFolder, Trials]) -> dict:
    return gather(*made)


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the drawings, which take longest: those of `gathered` and of
    test_page_drawings.py suffice."""
    monkeypatch.setattr(page_data, "drawings", lambda gallery: ([], []))


def place(gathered: dict, metric: str) -> int:
    return [each["name"] for each in gathered["metrics"]].index(metric)


# ---- bins ----------------------------------------------------------------------------------------


def test_figure_and_page_show_the_same_numbers_and_say_the_same_of_them(gathered):
    """Bin by bin: what matplotlib is given to draw, and what stands in the page."""
    given = predictions(101, 1.5)  # of focal/0001
    page = gather_page([gathered], "today")
    (trial,) = (trial for trial in page["studies"][0]["trials"] if trial["name"] == "focal/0001")
    found = diagram(given)
    figure = draw_reliability(
        dict(zip(HEADINGS, (found.raw, found.scaled), strict=True)), "focal/0001", len(given.labels)
    )
    for name, upper, lower in zip(("raw", "scaled"), figure.axes[:2], figure.axes[2:], strict=True):
        number, count, confidence, hits, low, high = np.array(trial[name]["bins"]).T
        bands = np.array([bar.get_bbox().extents for bar in upper.patches]).T
        np.testing.assert_allclose(
            bands, [number / 15, low / count, (number + 1) / 15, high / count], atol=1e-12
        )
        points = np.concatenate([np.asarray(each.get_offsets()) for each in upper.collections])
        points = points[points[:, 0].argsort()].T
        # As rounded in the page.
        np.testing.assert_allclose(points, [confidence, hits / count], atol=1e-5)
        within = (low <= hits) & (hits <= high)
        assert [len(each.get_offsets()) for each in upper.collections] == [
            within.sum(),
            (~within).sum(),
        ]
        assert [bar.get_height() for bar in lower.patches] == approx(count)
        assert f"ECE {trial[name]['ece']:.4f}" in upper.get_title()
    # They say the same of it, too.
    note = page["studies"][0]["bins_note"]
    assert statement() in note and note == " ".join(figure.get_supxlabel().split())
    for heading, upper in zip(page["headings"], figure.axes[:2], strict=True):
        assert upper.get_title().startswith(f"{heading}: ECE")
    assert page["bin_key"] == [text.get_text() for text in figure.legends[0].get_texts()]
    assert page["colours"][:2] == [
        to_hex(each.get_facecolor()[0]).upper() for each in figure.axes[0].collections
    ]


def test_bins_give_the_ece_that_was_measured(made, gathered):
    _, records = made
    for trial, record in zip(gathered["trials"][:3], records.of("cross_entropy"), strict=True):
        for which, metric in (("raw", "ece"), ("scaled", "ts_ece")):
            _, count, confidence, hits, _, _ = np.array(trial[which]["bins"]).T
            assert count.sum() == 400 and trial[which]["ece"] == approx(
                record.metrics[metric], rel=1e-5
            )
            assert np.abs(hits - count * confidence).sum() / count.sum() == approx(
                record.metrics[metric], abs=1e-5
            )
            assert hits.sum() / count.sum() == approx(record.metrics["accuracy"])


def test_predictions_that_are_gone_or_altered_are_noted(tmp_path, approved):
    study = make_study(tmp_path)
    gone, altered, cut, sound = (complete(study, "focal", number) for number in range(4))
    (study.files(gone) / "predictions.npz").unlink()
    predictions(99).save(study.files(altered) / "predictions.npz")
    torn = study.files(cut) / "predictions.npz"
    torn.write_bytes(torn.read_bytes()[:1000])
    cut = replace(cut, digests={"predictions.npz": file_digest(torn)})
    found, notes = diagrams(study, [gone, altered, cut, sound])
    assert list(found) == [sound.name]
    assert len(notes) == 3
    for name, note in zip(("focal/0000", "focal/0001", "focal/0002"), notes, strict=True):
        assert f"{name}: predictions.npz " in note
    approved("\n".join(notes))


# ---- what is gathered ----------------------------------------------------------------------------


@pytest.mark.slow
def test_a_report_loads_the_predictions_of_each_front_trial_once(tmp_path, monkeypatch):
    study = make_study(tmp_path)
    found = []
    for number in range(3):
        record, of_trial = (
            complete(study, "cross_entropy", number),
            predictions(0, 1.0 + 0.5 * number),
        )
        digest = of_trial.save(study.files(record) / "predictions.npz")
        found.append(
            replace(record, metrics=of_trial.evaluate(), digests={"predictions.npz": digest})
        )
    records = trials(cross_entropy=found)
    loaded: Counter[str] = Counter()

    def counted(path: Path) -> Predictions:
        loaded[str(path)] += 1
        return load(path)

    load = Predictions.stored
    monkeypatch.setattr(Predictions, "stored", counted)
    gather(study, records, analyse_front(study, records, 100))
    times = {record.name: loaded[str(study.files(record) / "predictions.npz")] for record in found}
    on_front = {record.name for record in front(found, study.objectives)}
    assert on_front and all(times[name] == 1 for name in on_front) and max(times.values()) <= 2


def test_front_trials_and_values(made, gathered):
    (_, records), found = made, gathered
    names = [trial["name"] for trial in found["trials"]]
    assert names == [
        "cross_entropy/0000",
        "cross_entropy/0001",
        "cross_entropy/0002",
        "focal/0000",
        "focal/0001",
    ]
    points = {
        record.name: (-record.metrics["accuracy"], record.metrics["ece"])
        for record in records.complete
    }
    beaten = {
        name
        for name, (a, b) in points.items()
        if any(c <= a and d <= b and (c, d) != (a, b) for c, d in points.values())
    }
    assert {trial["name"] for trial in found["trials"] if trial["front"]} == set(points) - beaten
    first = found["trials"][0]
    assert first["values"][place(found, "ece")] == approx(points["cross_entropy/0000"][1], rel=1e-5)
    assert "intervals" not in first and found["resamples"] is None
    better = {metric["name"]: metric["better"] for metric in found["metrics"]}
    assert better["accuracy"] == "higher" and better["ts_ece"] == "lower"
    json.dumps(found, allow_nan=False)


def test_the_setup_leaves_out_what_is_not_set(gathered):
    facts = dict(gathered["facts"])
    assert facts["Data"] == "digits: validation 0.2, meta 0.1, augment none"  # padding: null
    assert facts["Optimizer"].startswith("sgd: lr 0.1") and "null" not in json.dumps(facts)


def test_the_setup_names_each_setting_of_a_training_that_is_not_the_default(tmp_path):
    other = make_study(tmp_path, precision="auto", seed=3, compile=True, capture="off")
    facts = dict(gather(other, trials())["facts"])
    assert facts["Training"] == (
        "20 epochs, batch size 64; result: last; seed 3; compile true; capture off"
    )


@pytest.mark.usefixtures("undrawn")
def test_a_metric_that_is_not_resampled_is_marked(made, approved):
    study, records = made
    first = records.of("focal")[0]
    one = replace(
        first,
        metrics={
            **first.metrics,
            "skce": 0.1,
            "ts_skce": 0.1,
            "smooth_ece": 0.1,
            "calibration_nll": 0.1,
        },
    )
    found = {each["name"]: each for each in gather(study, trials(focal=[one]))["metrics"]}
    resampled = {name for name, each in found.items() if each["resampled"]}
    assert set(found) - resampled == {"skce", "ts_skce"}
    assert found["ts_nll"]["plain"] == "NLL"
    assert "NLL in nats" in found["ts_nll"]["label"] and "temperature" in found["ts_nll"]["label"]
    approved(found["ts_nll"]["label"])


@pytest.mark.usefixtures("undrawn")
def test_a_value_that_is_no_number_is_null(made):
    study, records = made
    first = records.of("focal")[0]
    broken = replace(first, metrics={**first.metrics, "nll": math.inf})
    found = gather(study, trials(**records.by_label | {"focal": [broken]}))
    trial = next(trial for trial in found["trials"] if trial["name"] == "focal/0000")
    assert trial["values"][place(found, "nll")] is None


@pytest.mark.usefixtures("undrawn")
def test_budgets_are_counted_and_said_to_be_equal_or_not(made, gathered, approved):
    (study, records), found = made, gathered
    focal = found["methods"][1]
    states = {"complete": 2, "excluded": 0, "stopped early": 0, "failed": 1}
    assert (
        focal["states"] == states | {"running": 0, "interrupted": 0, "to do": 0}
        and focal["planned"] == 3
    )
    assert (focal["samples"], focal["seconds"]) == (46_040, 21.0)
    assert focal["searched"] == {"method.gamma": "0 to 5"}
    assert "3 planned trials" in found["budget"][0]
    assert "0 of mbls to 3 of cross_entropy" in found["budget"][0]
    assert "focal" not in found["budget"][1]
    assert "cross_entropy used 69,060, mbls 0" in found["budget"][1]
    approved("\n".join(found["budget"][:2]))
    alike = {
        label: [replace(record, label=label) for record in records.of("cross_entropy")]
        for label in study.labels
    }
    equal = gather(study, trials(**alike))
    counted, seen = equal["budget"][:2]
    assert "3 planned trials, 3 of them complete" in counted and "equal" in counted
    assert "equal within 1%" in seen
    approved(f"{counted}\n{seen}")


def test_what_did_not_complete_stands_with_its_reason(made, gathered, approved):
    study, records = made
    found = gathered["unfinished"]
    assert [(row["trial"], row["state"]) for row in found] == [
        ("focal/0002", "failed"),
        ("mbls/0000", "interrupted"),
    ]
    assert found[0]["reason"] == records.of("focal")[2].reason and found[0]["attempts"] == 2
    where = f"--storage {study.directory.parent}"
    assert f"`calstudy run small {where}`" in found[1]["reason"]
    approved(found[1]["reason"])


@pytest.mark.usefixtures("undrawn")
def test_the_noise_floor_is_the_spread_of_what_has_nothing_to_search(made, gathered):
    (study, records), found = made, gathered
    (row,) = found["noise"]
    values = [record.metrics["ece"] for record in records.of("cross_entropy")]
    assert row["label"] == "cross_entropy" and row["trials"] == 3
    assert row["spread"][place(found, "ece")] == approx(
        [statistics.mean(values), statistics.stdev(values)], rel=1e-5
    )
    searched = make_study(
        study.directory.parent, search_space={"optimizer.lr": {"low": 0.01, "high": 0.5}}
    )
    assert gather(searched, records)["noise"] == []


@pytest.mark.usefixtures("undrawn")
def test_intervals_and_shares_stand_by_the_place_of_their_metric(made):
    study, records = made
    found = gather(study, records, analysis_of(records))
    trial = found["trials"][1]
    value = trial["values"][place(found, "nll")]
    low, high, text = trial["intervals"][place(found, "nll")]
    assert [low, high] == approx([value - 0.01, value + 0.01], rel=1e-4)
    assert text == f"{value:.3f} [{value - 0.01:.3f}, {value + 0.01:.3f}]"
    assert trial["share"] == 0.25 and found["resamples"] == 1000
    texts = {"ece": "0.013 [0.008, 0.019]", "ts_ece": "0.023 [0.018, 0.029]"}
    assert trial["floors"] == {
        place(found, name): [*floor, texts[name]] for name, floor in FLOORS.items()
    }
    assert found["whiskers"] == "90% intervals"
    command = f"calstudy report small --interval 90 --storage {study.directory.parent}"
    assert [command, "this page"] in found["reproduce"]["commands"]


@pytest.mark.usefixtures("undrawn")
def test_a_confirmation_keeps_search_validation_and_test_apart(made):
    study, records = made
    confirmation = confirmation_of(study, records)
    found = gather(study, records, confirmation=confirmation, sizes=sizes_of(confirmation))
    confirmed, baseline = found["confirmation"]["rows"]
    accuracy, at = records.of("focal")[1].metrics["accuracy"], place(found, "accuracy")
    assert confirmed["searched"][at] == approx(accuracy, rel=1e-5)
    assert confirmed["validation"][at] == approx([accuracy, 0.0], rel=1e-5)
    assert confirmed["test"][at] == approx([accuracy - 0.03, math.sqrt(0.0002)], rel=1e-4)
    assert confirmed["shifts"]["noisy"]["auroc"] == approx([0.85, math.sqrt(0.005)], rel=1e-4)
    assert baseline["searched"][at] is None and baseline["test"][at] is None
    assert found["confirmation"]["opened"]
    assert (
        confirmed["shrinkage"][at] == 0.03 and confirmed["shrinkage"][place(found, "nll")] is None
    )
    texts = {"ece": "0.013 [0.008, 0.019]", "ts_ece": "0.023 [0.018, 0.029]"}
    floors = {str(place(found, name)): [*floor, texts[name]] for name, floor in FLOORS.items()}
    assert confirmed["floors"] == {"validation": floors, "test": floors}
    assert baseline["floors"] == {"validation": {}, "test": {}} and set(baseline["shrinkage"]) == {
        None
    }


@pytest.mark.usefixtures("undrawn")
def test_how_to_reproduce_names_no_user(tmp_path, made):
    _, records = made
    study = make_study(tmp_path, tracking="postgresql://maria@example.org:5000/mlflow")
    found = gather(
        study,
        trials(
            **records.by_label
            | {"cross_entropy": [replace(records.of("cross_entropy")[0], versions={"torch": "1"})]}
        ),
    )
    how = found["reproduce"]
    assert "maria" not in json.dumps(found)
    assert "tracking: postgresql://example.org:5000/mlflow" in how["spec"]
    assert how["commands"][0][0] == "git checkout c0ffee" and how["versions"]["torch"] == "2.15.0"
    assert how["trained_with"] == {"torch 1": 1}
    assert how["data_digest"] == study.recorded.data_digest


@pytest.mark.parametrize(
    "records",
    [
        trials(),
        trials(
            cross_entropy=[TrialRecord("cross_entropy", 0, "failed", {}, reason="out of memory")]
        ),
    ],
    ids=["empty", "all failed"],
)
def test_a_study_with_nothing_complete(tmp_path: Path, records, approved):
    found = gather(make_study(tmp_path), records)
    assert found["trials"] == found["metrics"] == found["noise"] == []
    assert found["abstract"][1].startswith("9 planned trials: 0 complete")
    approved("\n".join(found["abstract"]))
    assert not any("front" in sentence for sentence in found["abstract"])


@pytest.mark.usefixtures("undrawn")
def test_one_trial(tmp_path, approved):
    study = make_study(tmp_path)
    found = gather(study, trials(cross_entropy=[complete(study, "cross_entropy", 0)]))
    assert found["noise"] == []
    assert found["abstract"][2].startswith("1 trial of 1 method ")
    approved(found["abstract"][2])


def test_an_epoch_chosen_on_validation_is_said_to_be(tmp_path, approved):
    of_last, of_best = (
        gather(make_study(tmp_path, result=result), trials())["abstract"]
        for result in ("last", "best_ece")
    )
    assert of_best[:-1] == of_last
    assert "best ece" in of_best[-1]
    approved(of_best[-1])


@pytest.mark.usefixtures("undrawn")
def test_of_one_objective_there_is_a_best_and_no_front(tmp_path, approved):
    study = make_study(tmp_path, objectives=[{"metric": "nll", "direction": "minimize"}])
    two = [complete(study, "focal", number) for number in range(2)]
    best = min(two, key=lambda record: record.metrics["nll"])
    found = gather(study, trials(focal=two))["abstract"]
    assert f"{best.name} (" in found[2] and f"{best.metrics['nll']:.4f}" in found[2]
    assert "front" not in found[2]
    approved(found[2])


def test_studies_that_do_not_compare_are_said_so(tmp_path, approved):
    same, again = (gather(make_study(tmp_path, name), trials()) for name in ("one", "two"))
    assert gather_page([same, again], "today")["notes"] == []
    other = make_study(tmp_path, "three", objectives=[{"metric": "nll", "direction": "minimize"}])
    fewer = other.recorded.classes[:4]
    other = replace(other, recorded=replace(other.recorded, classes=fewer))
    notes = gather_page([same, gather(other, trials())], "today")["notes"]
    objectives, classes = notes
    assert "(one: accuracy, ece; three: nll)" in objectives
    assert "(one: 10; three: 4)" in classes
    approved("\n".join(notes))


# ---- the page ------------------------------------------------------------------------------------


def test_a_page_runs_nothing_that_a_study_holds(gathered):
    page = render(gather_page([gathered], "today"))
    assert HOSTILE.partition("</script>")[0] in page
    assert page.count("</script>") == 2 and "<img" not in page and page.count("<!--") == 0
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    assert json.loads(data)["studies"][0]["unfinished"][0]["reason"] == HOSTILE


def test_a_long_page_holds_its_data_compressed(gathered, monkeypatch):
    plain = gather_page([gathered], "today")
    short = render(plain)
    monkeypatch.setattr("study.report.html.LONGEST", 1000)
    page = render(plain)
    block = r'<script type="application/%s" id="data">(.*?)</script>'
    (packed,) = re.findall(block % "gzip", page, re.S)
    (text,) = re.findall(block % "json", short, re.S)
    assert json.loads(gzip.decompress(base64.b64decode(packed))) == json.loads(text)


def test_only_the_script_and_style_of_the_page_may_act_and_nobody_is_asked(gathered):
    page = render(gather_page([gathered], "today"))
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    for kind, pattern in (
        ("script", r"<script>(.*?)</script>"),
        ("style", r"<style>(.*?)</style>"),
    ):
        (text,) = re.findall(pattern, page, re.S)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}';" in policy
        assert "innerHTML" not in text and "url(" not in text.replace("url(#", "")
    assert policy.startswith("default-src 'none';") and "unsafe" not in policy
    addresses = set(re.findall(r"https?://[^\s\"'`)]+", page))
    assert addresses == {"http://www.w3.org/2000/svg"}  # a name, which nobody asks


@pytest.mark.usefixtures("undrawn")
def test_the_command_writes_one_file_and_a_server_away_is_one_line(
    made, monkeypatch, capsys, approved
):
    study, records = made
    monkeypatch.setattr(study_module, "open_study", lambda reference, storage: study)
    monkeypatch.setattr(StudyFolder, "records", lambda self: records)
    study.directory.mkdir(exist_ok=True)
    with pytest.raises(SystemExit) as ended:
        main(
            [
                "report",
                "small",
                "small",
                "--bootstrap",
                "0",
                "--tracking",
                "sqlite:////nowhere/mlflow.db",
            ]
        )
    assert ended.value.code == 0
    file = study.directory / "report.html"
    wrote, away = capsys.readouterr().out.splitlines()
    assert str(file) in wrote and f"{file.stat().st_size / 1e6:.1f} MB" in wrote
    assert "MLflow at sqlite:////nowhere/mlflow.db: " in away
    approved(f"{wrote}\n{away}")
    assert file.read_text().startswith("<!doctype html>")


@pytest.mark.slow
def test_three_hundred_trials_are_small_and_each_is_read_once(tmp_path, monkeypatch):
    """The files are 5,000 samples of ten classes each, as in the benchmark; here
    a tenth of the trials."""
    study = make_study(tmp_path, trials=30)
    logits = 3 * torch.randn(5000, CLASSES, generator=torch.Generator().manual_seed(0))
    labels = torch.multinomial(
        logits.softmax(-1), 1, generator=torch.Generator().manual_seed(1)
    ).squeeze(-1)
    given = Predictions(logits, labels)
    first = complete(study, "focal", 0)
    file = study.files(first) / "predictions.npz"
    digest, records = given.save(file), []
    for number in range(30):
        record = replace(first, number=number, digests={"predictions.npz": digest})
        study.files(record).mkdir(parents=True, exist_ok=True)
        if number:
            shutil.copy(file, study.files(record))
        records.append(record)
    reads, load = [], Predictions.stored
    monkeypatch.setattr(Predictions, "stored", lambda path: reads.append(path) or load(path))
    found = trials(focal=records)
    page = render(gather_page([gather(study, found, analysis_of(found))], "today"))
    assert len(reads) == len(set(reads)) == 30
    assert len(page) < 0.5e6  # of 5 MB


def test_a_diagram_says_what_to_doubt_of_its_temperature(
    made: tuple[StudyFolder, Trials], approved
) -> None:
    """A trial without an error has the note, the others do not."""
    study, records = replace(made[0]), made[1]  # with predictions of its own
    first, second = records.of("cross_entropy")[:2]
    stored = Predictions.load(study.files(first) / "predictions.npz")
    right = replace(stored, labels=stored.logits.argmax(dim=1))
    study.kept[first.name] = right
    found, _ = diagrams(study, [replace(first, metrics=right.evaluate()), second])
    assert f"{len(right.labels)} validation samples" in found[first.name]["doubt"]
    approved(found[first.name]["doubt"])
    assert "doubt" not in found[second.name]
