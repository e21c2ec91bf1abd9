"""A search confirmed; what was measured, against plain NumPy, scikit-learn and SciPy;
killed at several places."""

import io
import json
import re
import shutil
import socket
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from mlflow import MlflowClient
from PIL import Image
from rich.console import Console
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score

from search_spaces import strict_yaml
from study.analysis.pareto import front
from study.analysis.selection import pick
from study.answer.confirmation import Confirmed, front_on_test, moments, results_of
from study.audit.audit import audit
from study.audit.result import AuditReport, Check
from study.cli import main
from study.engine import confirm
from study.engine.candidates import Asked, confirming_spec
from study.engine.preparation import prepare_data, record_spec
from study.machines.stopping import Stopping
from study.schema.compatibility import refuse_changes
from study.schema.errors import SpecError
from study.schema.reading import read_spec
from study.schema.spec import StudySpec
from study.store.driver_lock import driver_lock
from study.store.ledger import Ledger, open_storage
from study.store.openings import read_tested
from study.store.study import StudyFolder, open_study
from study.terminal.steps import Steps
from study.tracking.projection import sync
from tests.patience import wait_until
from tests.shared import made_once
from tests.study.command_line import here, here_json, kill, start, write_spec
from tests.study.made import asked
from tests.study.trained import copy_of
from trainables.config import TrialConfig
from trainables.loading.cache import load_split, prepare
from trainables.loading.trial_data import trial_data
from trainables.outputs.outcome import Outcome
from trainables.outputs.predictions import Predictions
from trainables.problems import FieldError
from trainables.training.learner import Learner

pytestmark = pytest.mark.slow

Approved = Callable[..., None]
LABELS = ["focal_0001", "focal_default", "mbls_default", "cross_entropy_default"]
# Of the search: what the ledger has of each trial, in the order they were asked.
TOLD = {"focal": [(0.90, 0.05), (0.95, 0.04)], "mbls": [(0.93, 0.03), None]}


def png(image: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(image.astype(np.uint8), "L").save(buffer, "png")
    return buffer.getvalue()


def packs(folder: Path) -> dict[str, Any]:
    """Digits upside down, and noise, as parquet files."""
    digits, rng = load_digits(), np.random.default_rng(0)
    turned = [png(image[::-1, ::-1]) for image in digits.images[:200]]
    pq.write_table(
        pa.table({"image": turned, "label": digits.target[:200]}), folder / "turned.parquet"
    )
    noise = [png(rng.integers(0, 17, (8, 8))) for _ in range(100)]
    pq.write_table(pa.table({"image": noise, "label": [-1] * 100}), folder / "noise.parquet")
    return {name: {"name": "parquet", "path": f"{name}.parquet"} for name in ("turned", "noise")}


def recorded(spec: StudySpec, directory: Path) -> StudyFolder:
    directory.mkdir()
    prepared = prepare_data(spec, "study.yaml", Steps(Console()))
    return record_spec(spec, "study.yaml", directory, prepared, None, lambda: 2)


def search(storage: Path, name: str = "small", told: Any = TOLD, **keys: Any) -> StudyFolder:
    """A study as a run leaves it, of trials that are told and not trained."""
    spec = read_spec(
        write_spec(storage / f"{name}.yaml", name=name, methods=list(told), trials=2, **keys)
    )
    directory = storage / name
    study = recorded(spec, directory)
    ledger = Ledger(open_storage(directory, None), name, study.id)
    for label, values in told.items():
        variant = spec.variant(label)
        ledger.open(label, spec.objectives)
        for place, value in enumerate(values):
            given = (variant.space.defaults or [{}])[0] if place == 0 else {}
            number = asked(ledger, label, variant.space.distributions, given).number
            attempt = ledger.begin_attempt(label, number)
            outcome = Outcome(state="failed", reason="it was told so", attempt=attempt)
            if value is not None:
                metrics = dict(zip(("accuracy", "ece"), value, strict=True))
                outcome = Outcome(state="complete", metrics=metrics, attempt=attempt)
            ledger.tell(label, number, outcome, spec.objectives)
    return study


def make_confirmed(storage: Path) -> None:
    search(storage, shift=packs(storage))
    words = ("confirm", "small", "--trial", "focal/0001", "--seeds", 2, "--storage", storage)
    (storage / "shown.json").write_text(json.dumps(here_json(*words)))


@pytest.fixture(scope="module")
def confirmed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A storage with a search and its confirmation; `shown` is what the command printed."""
    return copy_of(made_once("confirmed", make_confirmed), tmp_path_factory.mktemp("confirmed"))


@pytest.fixture
def storage(confirmed: Path, tmp_path: Path) -> Path:
    """A copy of that as it was made."""
    return copy_of(made_once("confirmed", make_confirmed), tmp_path)


def audited(storage: Path) -> AuditReport:
    study = open_study("small-confirm", str(storage))
    return audit(study, study.tracking(None))


def rows_of(study: StudyFolder) -> tuple[Confirmed, ...]:
    """What was retrained."""
    found = results_of(study).confirmation
    assert found is not None
    return found.rows


def openings_of(report: AuditReport) -> Check:
    return next(check for check in report.checks if check.name == "openings")


def off(report: AuditReport) -> dict[str, list[str]]:
    return {
        check.name: [str(found) for found in check.offenders]
        for check in report.checks
        if check.offenders
    }


def edit_ledger(storage: Path, keep: Callable[[dict[str, Any]], bool]) -> None:
    """Drop the facts of labels that are not to be kept."""
    log = storage / "small-confirm" / "ledger.log"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    kept = [line for line in lines if "trial_id" in line or keep(line.get("user_attr", {}))]
    log.write_text("".join(json.dumps(line) + "\n" for line in kept))


def unopened(storage: Path) -> StudyFolder:
    """The confirmation as it was before the test split was opened."""
    edit_ledger(
        storage, lambda fact: not any(key == "openings" or key.startswith("tests/") for key in fact)
    )
    return open_study("small-confirm", str(storage))


# ---- what was done -------------------------------------------------------------------------------


@pytest.mark.platform
def test_it_is_counted_once_though_it_was_killed(tmp_path: Path, approved: Approved) -> None:
    """For real, with Ray: kill -9 of the driver while it trains, then the same command again."""
    search(tmp_path)
    words = ("confirm", "small", "--trial", "focal/0001", "--seeds", 1, "--storage", tmp_path)
    driver = start(*words)
    try:
        wait_until(lambda: list((tmp_path / "small-confirm").glob("trials/*/*/*/log")), 280)
    finally:
        kill(driver)
    shown = here(*words)
    (opened,) = (line for line in shown.splitlines() if "test split was opened" in line)
    assert "for 4 models, once each" in opened and "Pareto front on test" in shown
    approved(opened)
    report = audited(tmp_path)
    assert (off(report), report.planned, report.lost, report.duplicated) == ({}, 4, 0, 0)
    assert openings_of(report).counted == 4


def test_everything_is_counted_once(confirmed: Path, approved: Approved) -> None:
    study = open_study("small-confirm", str(confirmed))
    records = study.records()
    assert list(records.by_label) == LABELS
    assert {len(found) for found in records.by_label.values()} == {2}
    report = audited(confirmed)
    assert (off(report), report.planned, report.lost, report.duplicated) == ({}, 8, 0, 0)
    openings = openings_of(report)
    assert openings.counted == 8 and len(openings.notes) == 4
    note = openings.notes[0]
    assert note.startswith("focal_0001: ")
    assert "opening 1 of trial 0" in note and "opening 2 of trial 1" in note
    assert note.count("run 1") == 2
    approved(note)


def test_it_retrains_the_search_with_every_value_fixed_and_fresh_seeds(confirmed: Path) -> None:
    study, searched = (
        open_study("small-confirm", str(confirmed)),
        open_study("small", str(confirmed)),
    )
    candidate = searched.records().of("focal")[1]
    assert (
        study.spec.trial("focal_0001").to_mapping()
        == TrialConfig.from_mapping(
            searched.spec.trial_mapping("focal"), candidate.params
        ).to_mapping()
    )
    published = {label: study.spec.variant(label).space.pins for label in LABELS[1:]}
    assert published == {
        "focal_default": {"method.gamma": 3.0, "optimizer.lr": 0.1},
        "mbls_default": {"method.margin": 10.0, "method.weight": 0.1, "optimizer.lr": 0.1},
        "cross_entropy_default": {"optimizer.lr": 0.1},
    }
    record = study.records().of("focal_0001")[1]
    config = TrialConfig.from_mapping(
        {**searched.spec.trial_mapping("focal"), "number": 1_000_001}, candidate.params
    )
    torch.set_num_threads(1)
    learner = Learner(config, trial_data(config, torch.device("cpu")), torch.device("cpu"))
    while not learner.finished:
        learner.train_epoch()
    stored = Predictions.load(study.files(record) / "predictions.npz")
    torch.testing.assert_close(learner.predict().logits, stored.logits, rtol=1e-4, atol=1e-5)
    assert (
        stored.labels.tolist()
        == load_split(prepare(searched.spec.data, 0), "validation").labels.tolist()
    )


def test_what_is_told_of_test_is_what_the_saved_model_does_there(confirmed: Path) -> None:
    """A forward pass in NumPy on the samples of the source that neither train nor validation
    have."""
    study = open_study("small-confirm", str(confirmed))
    record = study.records().of("mbls_default")[0]
    files, prepared = study.files(record), prepare(study.spec.data, 0)
    seen = [load_split(prepared, name) for name in ("train", "validation")]
    known = {image.numpy().tobytes() for split in seen for image in split.images}
    source = load_digits()
    rest = [
        i for i, image in enumerate(source.images) if image.astype(np.uint8).tobytes() not in known
    ]
    assert len(rest) == 359
    weights = torch.load(files / "model.pt", weights_only=True)
    images = (source.images[rest] - float(weights["mean"])) / float(weights["std"])
    first, first_bias, last, last_bias = (
        value.numpy() for name, value in weights.items() if name.startswith("network.")
    )
    logits = np.maximum(images.reshape(-1, 64) @ first.T + first_bias, 0) @ last.T + last_bias
    measured = read_tested(study)["mbls_default"][0]
    accuracy = float((logits.argmax(1) == source.target[rest]).mean())
    nll = -log_softmax(logits, axis=1)[np.arange(359), source.target[rest]].mean()
    assert measured.metrics["accuracy"] == pytest.approx(accuracy, abs=1e-9)
    assert measured.metrics["nll"] == pytest.approx(nll, rel=1e-4)

    # The temperature is of the whole validation split, not of test.
    stored = Predictions.load(files / "predictions.npz")
    own, labels = stored.logits.double().numpy(), stored.labels.numpy()

    def loss(temperature: float) -> float:
        nll = -log_softmax(own / temperature, axis=1)[np.arange(len(labels)), labels].sum()
        return float(nll + np.log(temperature) ** 2 / 2)

    temperature = minimize_scalar(
        loss, bounds=(0.05, 20), method="bounded", options={"xatol": 1e-8}
    ).x
    after = -log_softmax(logits / temperature, axis=1)[np.arange(359), source.target[rest]].mean()
    assert measured.temperature == pytest.approx(temperature, rel=1e-4)
    assert measured.metrics["ts_nll"] == pytest.approx(after, rel=1e-4)


def test_what_is_told_under_shift(confirmed: Path) -> None:
    study = open_study("small-confirm", str(confirmed))
    record = study.records().of("focal_default")[1]
    measured = read_tested(study)["focal_default"][1]
    arrays = {
        name: np.load(study.files(record) / f"{name}.npz")
        for name in ("test", "shift_turned", "shift_noise")
    }
    turned = arrays["shift_turned"]
    assert turned["labels"].tolist() == load_digits().target[:200].tolist()
    right = (turned["logits"].argmax(1) == turned["labels"]).mean()
    assert measured.shifts["turned"].metrics["accuracy"] == pytest.approx(right, abs=1e-9)
    assert set(measured.shifts["turned"].metrics) == {
        prefix + name for prefix in ("", "ts_") for name in ("accuracy", "nll", "brier", "ece")
    }
    doubts = [
        1 - softmax(arrays[name]["logits"].astype(float), axis=1).max(1)
        for name in ("test", "shift_noise")
    ]
    truth = np.repeat([0, 1], [359, 100])
    expected = roc_auc_score(truth, np.concatenate(doubts))
    assert measured.shifts["noise"].metrics["auroc_confidence"] == pytest.approx(expected, abs=1e-6)
    assert "ts_fpr95_entropy" in measured.shifts["noise"].metrics


def test_mlflow_has_it_and_sync_makes_it_again(storage: Path) -> None:
    study = open_study("small-confirm", str(storage))
    client = MlflowClient(f"sqlite:///{storage / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("small-confirm")
    runs = {run.info.run_name: run for run in client.search_runs([experiment.experiment_id])}
    tested = read_tested(study)["focal_0001"][0]
    told = {
        key: value
        for key, value in runs["focal_0001/0000"].data.metrics.items()
        if re.match("test/|shift/", key)
    }
    assert told == pytest.approx(tested.flat)
    assert {"test/accuracy", "test/ts_ece", "shift/noise/auroc_entropy", "shift/turned/ece"} <= set(
        told
    )
    assert runs["small-confirm"].data.tags["calstudy.confirms"] == "small"
    again = f"sqlite:///{storage / 'again.db'}"
    assert (sync(study, again).written, off(audit(study, again))) == (8, {})


# ---- reading it ----------------------------------------------------------------------------------


def test_the_reader(confirmed: Path) -> None:
    searched = open_study("small", str(confirmed))
    found = results_of(searched).confirmation
    assert found is not None and found.study.spec.name == "small-confirm"
    assert [(row.label, row.role) for row in found.rows] == list(
        zip(LABELS, ("candidate", "default", "default", "baseline"), strict=True)
    )
    first = found.rows[0]
    assert first.candidate == searched.records().of("focal")[1] and found.rows[1].candidate is None
    assert [record.number for record in first.records] == [0, 1] and len(first.tests) == 2
    assert first.records[0].metrics.keys() == first.tests[0].keys()
    assert set(first.shifts) == {"turned", "noise"} and len(first.shifts["noise"]) == 2
    assert results_of(searched).confirmation == found
    assert results_of(found.study).confirmation is None


def test_what_is_shown(confirmed: Path) -> None:
    shown = json.loads((confirmed / "shown.json").read_text())
    assert (shown["name"], shown["confirms"]) == ("small-confirm", "small")
    rows = {row["label"]: row for row in shown["rows"]}
    found = results_of(open_study("small", str(confirmed))).confirmation
    assert found is not None
    for row in found.rows:
        for kind, values in (
            ("validation", [record.metrics for record in row.records]),
            ("test", row.tests),
        ):
            ece = np.array([value["ece"] for value in values])
            told = rows[row.label][kind]["ece"]
            assert 0 < told.pop("floor")["mean"] < 0.2
            assert told == pytest.approx({"mean": ece.mean(), "std": ece.std(ddof=1)})
    assert (
        rows["focal_0001"]["search"]["accuracy"] == 0.95 and rows["focal_default"]["search"] is None
    )
    # Compared with how many samples:
    assert rows["focal_0001"]["shrinkage"].keys() == {"accuracy", "ece"}
    assert "287 samples with 287" in shown["shrinkage_compares"]
    means = {
        label: (row["test"]["accuracy"]["mean"], row["test"]["ece"]["mean"])
        for label, row in rows.items()
    }
    holds = {
        label
        for label, (accuracy, ece) in means.items()
        if not any(
            a >= accuracy and e <= ece and (a, e) != (accuracy, ece) for a, e in means.values()
        )
    }
    assert (
        set(shown["front_on_test"])
        == holds
        == set(front_on_test(found.rows, found.study.spec.objectives))
    )
    assert moments([{"a": 1.0}, {"a": 3.0, "b": 1.0}]) == {"a": (2.0, pytest.approx(2**0.5))}


def test_no_pick_looks_at_test(storage: Path) -> None:
    """Whatever the test labels are, the same trials are chosen: from the search
    and among the confirmed."""

    def chosen() -> list[list[str]]:
        found = []
        for name in ("small", "small-confirm"):
            study = open_study(name, str(storage))
            records = study.records()
            picks = [
                pick(records, study.spec.objectives, rule)
                for rule in ("knee", "min ece", "max accuracy")
            ]
            found.append(
                [record.name for record in (*picks, *front(records, study.spec.objectives))]
            )
        return found

    before, rows = chosen(), rows_of(open_study("small", str(storage)))
    unopened(storage)
    for file in (storage / "small-confirm").glob("trials/*/*/*/test.npz"):
        stored = Predictions.load(file)
        Predictions(stored.logits, stored.labels[torch.randperm(len(stored.labels))]).save(file)
    log = confirm.TestAccessLog.of(open_study("small-confirm", str(storage)), storage / "small")
    for row in rows or ():
        for record in row.records:
            file = (
                storage
                / "small-confirm"
                / "trials"
                / record.name
                / f"attempt-{record.attempt}"
                / "test.npz"
            )
            told = Predictions.load(file).evaluate_at(1.0)
            log.record(record, confirm.Tested(log.open(record), told, 1.0, {}, 0.0))
    shuffled = rows_of(open_study("small", str(storage)))
    assert shuffled[0].tests[0]["accuracy"] < 0.3
    assert chosen() == before


# ---- openings ------------------------------------------------------------------------------------


def test_a_stop_leaves_the_rest_sealed(storage: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was opened has its result: the end of the process waits for it."""
    study, opened, finishing, stopping = unopened(storage), [], [False], Stopping()
    open_test, log = confirm.open_test, confirm.TestAccessLog.record

    @contextmanager
    def finished():  # type: ignore[no-untyped-def]
        finishing[0] = True
        yield
        finishing[0] = False

    def opening(*asked):  # type: ignore[no-untyped-def]
        opened.append(finishing[0])
        if len(opened) == 3:
            stopping.request("SIGTERM")
        return open_test(*asked)

    monkeypatch.setattr(stopping, "finishing", finished)
    monkeypatch.setattr(confirm, "open_test", opening)
    monkeypatch.setattr(
        confirm.TestAccessLog, "record", lambda *what: opened.append(finishing[0]) or log(*what)
    )
    assert confirm.measure(study, stopping) == 2 and opened == [True] * 4
    openings = openings_of(audited(storage))
    assert openings.counted == 2 and "without a result" not in " ".join(openings.notes)
    assert confirm.measure(study) == 6
    assert openings_of(audited(storage)).counted == 8


def test_a_kill_between_the_opening_and_the_read_counts_as_an_opening(
    storage: Path, monkeypatch: pytest.MonkeyPatch, approved: Approved
) -> None:
    study, opened = unopened(storage), []

    def killed(*asked: Any) -> Any:
        opened.append(asked)
        if len(opened) == 3:
            raise KeyboardInterrupt
        return open_test(*asked)

    open_test = confirm.open_test
    monkeypatch.setattr(confirm, "open_test", killed)
    with pytest.raises(KeyboardInterrupt):
        confirm.measure(study)
    openings = openings_of(audited(storage))
    assert openings.counted == 3
    note = openings.notes[1]
    assert note.startswith("focal_default: ") and "opening 3 of trial 0 by confirm run 1," in note
    unmeasured = [str(found) for found in openings.offenders]
    assert len(unmeasured) == 6 and unmeasured[0].startswith("focal_default/0000: ")
    assert f"`calstudy confirm small --storage {study.directory.parent}`" in unmeasured[0]
    approved(f"{note}\n{unmeasured[0]}")

    monkeypatch.undo()
    assert confirm.measure(study) == 6
    report = audited(storage)
    assert off(report) == {} and openings_of(report).counted == 9
    again = openings_of(report).notes[1]
    assert again.startswith(f"{note}; ")
    assert "opening 4 of trial 0 by confirm run 2" in again
    assert "opening 5 of trial 1 by confirm run 2" in again
    approved(again)
    before = (storage / "small-confirm" / "ledger.log").read_bytes()
    assert (
        confirm.measure(study) == 0
        and (storage / "small-confirm" / "ledger.log").read_bytes() == before
    )


def open_again(storage: Path) -> None:
    study = open_study("small-confirm", str(storage))
    confirm.TestAccessLog.of(study, study.directory.with_name("small")).open(
        study.records().of("focal_0001")[0]
    )


def change_predictions(storage: Path) -> None:
    file = storage / "small-confirm/trials/focal_0001/0000/attempt-1/test.npz"
    stored = Predictions.load(file)
    Predictions(stored.logits, stored.labels.roll(1)).save(file)


@pytest.mark.parametrize(
    ("break_it", "check", "word"),
    [
        (open_again, "openings", "opening 9"),
        (change_predictions, "files", "test.npz"),
        (
            lambda storage: edit_ledger(storage, lambda fact: "openings" not in fact),
            "openings",
            "without a recorded opening",
        ),
    ],
    ids=["opened again", "another test.npz", "no opening"],
)
def test_an_opening_that_is_not_accounted_for_is_named(
    storage: Path, break_it: Callable[[Path], None], check: str, word: str, approved: Approved
) -> None:
    break_it(storage)
    (found,) = off(audited(storage)).items()
    assert found[0] == check
    assert found[1][0].startswith("focal_0001/0000: ") and word in found[1][0]
    approved(found[1][0])


def test_a_model_that_is_another_is_not_measured(storage: Path, approved: Approved) -> None:
    study = unopened(storage)
    weights = study.files(study.records().of("focal_0001")[0]) / "model.pt"
    weights.write_bytes(weights.read_bytes()[::-1])
    with pytest.raises(FieldError, match=r"focal_0001/0000: .*model\.pt") as caught:
        confirm.measure(study)
    approved(str(caught.value))
    assert openings_of(audited(storage)).counted == 0  # nothing was opened for it


# ---- going on, and what is refused ---------------------------------------------------------------


def test_it_goes_on_with_more_seeds_and_other_candidates(confirmed: Path) -> None:
    searched = open_study("small", str(confirmed))
    again = confirming_spec(results_of(searched), Asked(seeds=1))[0]
    assert again == open_study("small-confirm", str(confirmed)).spec  # no fewer than there are
    more = confirming_spec(results_of(searched), Asked(trials=("mbls/0", "focal/0001"), seeds=5))[0]
    assert [variant.label for variant in more.variants] == [
        *LABELS,
        "mbls_0000",
    ] and more.trials == 5
    before = strict_yaml.read(confirmed / "small-confirm" / "study.yaml")["recorded"]["meaning"]
    refuse_changes(before, more, "study.yaml", "already exists")


def test_what_is_the_same_from_fresh_seeds_is_retrained_once(tmp_path: Path) -> None:
    """Two repeats of cross-entropy on the front, and a focal trial that is the default."""
    told = {"cross_entropy": [(0.96, 0.03), (0.97, 0.04)], "focal": [(0.95, 0.02), (0.9, 0.1)]}
    searched = search(tmp_path, told=told, search_space={})
    spec = confirming_spec(results_of(searched), Asked(pareto=True))[0]
    labels = [variant.label for variant in spec.variants]
    assert labels == ["cross_entropy_0001_default", "focal_0000_default"]
    assert spec.variant("focal_0000_default").space.pins == {"method.gamma": 3.0}
    directory = tmp_path / "small-confirm"
    recorded(spec, directory)
    assert confirming_spec(results_of(searched), Asked())[0] == spec  # the defaults are there
    rows = rows_of(searched)
    assert [(row.role, row.candidate.name) for row in rows if row.candidate is not None] == [
        ("candidate", "cross_entropy/0001"),
        ("candidate", "focal/0000"),
    ]
    more = confirming_spec(
        results_of(searched), Asked(trials=("focal/0000", "focal/0001", "cross_entropy/0000"))
    )[0]
    assert [variant.label for variant in more.variants][2:] == [
        "focal_0001",
        "cross_entropy_0000_default",
    ]
    third = confirming_spec(results_of(searched), Asked(top=3))[0]
    assert [variant.label for variant in third.variants] == [*labels, "focal_0001"]


def test_a_set_may_come_later_and_may_not_become_another(
    storage: Path, tmp_path: Path, approved: Approved
) -> None:
    file = storage / "small-confirm" / "study.yaml"
    plain = strict_yaml.read(file)
    plain["shift"]["again"] = {**plain["shift"]["turned"], "ood": True}
    file.write_text(strict_yaml.dump(plain))
    study = open_study("small-confirm", str(storage))
    assert confirm.measure(study) == 0  # test stays closed
    assert all(
        "again" in tested.shifts for of in read_tested(study).values() for tested in of.values()
    )
    plain["shift"]["again"]["ood"] = False  # a mistake made good: asked again, of the same source
    file.write_text(strict_yaml.dump(plain))
    assert confirm.measure(open_study("small-confirm", str(storage))) == 0
    for tested in (one for of in read_tested(study).values() for one in of.values()):
        assert tested.shifts["again"].metrics.keys() == tested.shifts["turned"].metrics.keys()
    assert "openings" not in off(audited(storage))
    plain["shift"]["again"] = {**plain["shift"]["turned"], "validation": 0.1}
    plain["shift"]["noise"] = {**plain["shift"]["noise"], "path": plain["shift"]["turned"]["path"]}
    file.write_text(strict_yaml.dump(plain))
    with pytest.raises(confirm.ConfirmError, match=r"shift\.noise: ") as caught:
        confirm.measure(open_study("small-confirm", str(storage)))
    approved(str(caught.value))


CANNOT = {  # and the field and value that are named
    "a misspelt trial": (
        ("small", "--trial", "focl/0001"),
        "--trial: there is no trial 'focl/0001'. Did you mean 'focal/0001'?",
    ),
    "a failed trial": (("small", "--trial", "mbls/1"), "--trial: mbls/0001 is failed"),
    "no number": (("small", "--trial", "mbls/²"), "--trial: there is no trial 'mbls/²'."),
    "no top": (("small", "--top", 0), "--top"),
    "no seeds": (("small", "--seeds", 0), "--seeds"),
    "a confirmation": (("small-confirm",), "small-confirm: is itself a confirmation of 'small'"),
    "no study": (("smal",), "smal: no study at "),
    "nothing complete": (("none",), "none: no trial is complete"),
}


@pytest.mark.parametrize(("words", "named"), CANNOT.values(), ids=CANNOT)
def test_what_cannot_be_confirmed_is_said_in_a_line(
    confirmed: Path,
    capsys: pytest.CaptureFixture[str],
    words: tuple[object, ...],
    named: str,
    approved: Approved,
) -> None:
    if words == ("none",):
        search(confirmed, "none", {"focal": [None]})
    said = refused(capsys, "confirm", *words, "--storage", confirmed)
    assert named in said
    approved(said)


def refused(capsys: pytest.CaptureFixture[str], *words: object, code: int = 2) -> str:
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    error = capsys.readouterr().err
    assert ended.value.code == code and len(error.strip().splitlines()) == 1
    return error


def test_a_driver_at_work_and_other_data_are_refused(
    storage: Path,
    confirmed: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    approved: Approved,
) -> None:
    # Read before, the trials would be those of before its driver ended.
    with driver_lock(storage / "small"), monkeypatch.context() as patch:
        patch.setattr(confirm, "results_of", None)
        said = refused(capsys, "confirm", "small", "--storage", storage, code=75)
        assert said.startswith(f"{storage / 'small'}: another calstudy process")
        approved(said)
    with driver_lock(storage / "small-confirm"):
        said = refused(capsys, "confirm", "small", "--storage", storage, code=75)
        assert said.startswith(f"{storage / 'small-confirm'}: another calstudy process")
        approved(said, host=socket.gethostname())
    file = storage / "small" / "study.yaml"
    plain = strict_yaml.read(file)
    file.write_text(
        strict_yaml.dump({**plain, "recorded": {**plain["recorded"], "data_digest": "0" * 64}})
    )
    said = refused(capsys, "confirm", "small", "--storage", storage)
    assert "data" in said and "'small'" in said
    approved(said)


def test_run_refuses_a_confirmation_and_confirm_a_study_in_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], approved: Approved
) -> None:
    spec = write_spec(tmp_path / "x.yaml", name="x-confirm", confirms="x")
    said = refused(capsys, "run", spec, "--storage", tmp_path)
    assert "x.yaml: confirms: " in said and "`calstudy confirm x`" in said
    approved(said)
    searched = search(tmp_path, "x")
    search(tmp_path, "x-confirm")
    with pytest.raises(SpecError, match="does not confirm 'x'") as caught:
        confirming_spec(results_of(searched), Asked())[0]
    approved(str(caught.value))


@pytest.mark.parametrize("form", ["html", "md"])
def test_the_report_is_that_of_the_search(
    confirmed: Path, capsys: pytest.CaptureFixture[str], form: str, approved: Approved
) -> None:
    said = refused(capsys, "report", "small-confirm", "--format", form, "--storage", confirmed)
    assert said.startswith("small-confirm: ") and "calstudy report small" in said
    approved(said)


def test_a_table_against_a_row_has_intervals_and_words(
    confirmed: Path, capsys: pytest.CaptureFixture[str], approved: Approved
) -> None:
    words = ("report", "small", "--format", "md", "--storage", confirmed)
    table = here(*words, "--against", "focal")
    assert re.search(r"cross_entropy_default \| 2 seeds \| .\d+\.\d+ \[-.*?\] undecided", table)
    for wrong in (words, (*words[:2], *words[4:])):
        approved(refused(capsys, *wrong, "--against", "mixup"))


def test_a_set_that_does_not_fit_is_said_before_anything_is_trained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], approved: Approved
) -> None:
    pq.write_table(
        pa.table({"image": [png(np.zeros((4, 4)))], "label": [0]}), tmp_path / "tiny.parquet"
    )
    for path, said in (("tiny.parquet", "1 x 4 x 4, the study's 1 x 8 x 8"), ("no.parquet", "no.")):
        spec = write_spec(tmp_path / "x.yaml", shift={"far": {"name": "parquet", "path": path}})
        error = refused(capsys, "run", spec, "--storage", tmp_path)
        assert "x.yaml: shift.far" in error and said in error
        approved(error)
    assert not (tmp_path / "small").exists()


def test_another_study_of_the_name_is_not_taken_for_the_one_confirmed(
    storage: Path, approved: Approved
) -> None:
    shutil.rmtree(storage / "small")
    search(storage, told={"focal": [(0.9, 0.1)], "mbls": [(0.9, 0.1)]}, sampler={"seed": 5})
    with pytest.raises((SpecError, FieldError), match="another study") as caught:
        results_of(open_study("small", str(storage)))
    approved(str(caught.value))
