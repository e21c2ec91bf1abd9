"""Studies whose samples belong together, from their files to verified models: what is recorded of
the groups, in which words they are named, and what is said where they are too few."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from mlflow import MlflowClient

from study.schema.uris import embedded_tracking
from study.store.study import open_study
from tests.study.command_line import here, here_json, write_spec
from trainables.outputs.predictions import Predictions

pytestmark = pytest.mark.slow

FEW = "patients are too few to resample; 10 are needed"


def patients(count: int, seed: int) -> pd.DataFrame:
    """2 to 12 rows a patient, of one of three classes, around what is the patient's own."""
    source = np.random.default_rng(seed)
    number = np.repeat(np.arange(count), source.integers(2, 13, count))
    label = source.integers(3, size=count)
    own = 1.5 * label[:, None] + source.normal(size=(count, 3))
    rows = own[number] + 0.3 * source.normal(size=(len(number), 3))
    table = pd.DataFrame(rows, columns=["a", "b", "c"])
    return table.assign(patient=[f"p{each}" for each in number], label=label[number])


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """`many` with 100 patients and a shift set that shares one, `few` with 30; both confirmed.
    NAME.shown: what `confirm` printed, on one line."""
    root = tmp_path_factory.mktemp("storage")
    known = patients(100, 0)
    known.to_csv(root / "many.csv", index=False)
    patients(30, 1).to_csv(root / "few.csv", index=False)
    later = patients(40, 2)
    later["patient"] = [f"later {each}" for each in later["patient"]]
    again = known[known["patient"] == "p0"].assign(a=lambda rows: rows["a"] + 0.01)
    pd.concat([later, again]).to_csv(root / "later.csv", index=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CALSTUDY_CACHE", str(root / "cache"))
        for name in ("many", "few"):
            data = {"name": "table", "path": f"{name}.csv", "group": "patient"}
            keys: dict[str, Any] = {"methods": ["focal", "cross_entropy"], "trials": 2}
            if name == "many":
                later_set = {"name": "table", "path": "later.csv", "group": "patient"}
                keys["shift"] = {"later": later_set}
            spec = write_spec(
                root / f"{name}.yaml", name=name, data=data, **keys, epochs=3, batch_size=32
            )
            here("run", spec, "--storage", root)
            shown = said("confirm", name, "--pareto", "--seeds", 2, "--storage", root)
            (root / f"{name}.shown").write_text(shown)
        yield root


def counts_of(storage: Path, name: str) -> dict[str, int]:
    recorded = yaml.safe_load((storage / name / "study.yaml").read_text())["recorded"]
    return dict(recorded["groups"])


def said(*words: object) -> str:
    """What a command prints, on one line."""
    return " ".join(here(*words).split())


@pytest.fixture(scope="module")
def answer_of_many(storage: Path) -> str:
    return said("answer", "many", "--why", "--storage", storage)


@pytest.fixture(scope="module")
def table_of_many(storage: Path) -> str:
    return said("report", "many", "--format", "md", "--storage", storage)


def test_every_patient_is_in_one_split_and_in_every_file(storage: Path) -> None:
    table = pd.read_csv(storage / "many.csv")
    counts = counts_of(storage, "many")
    assert sum(counts.values()) == 100 and min(counts.values()) >= 10
    study = open_study("many", str(storage))
    cached = storage / "cache" / study.recorded.data_digest
    rows = {split: np.load(cached / f"{split}.npy") for split in counts}
    of_patient = {name: set(own["a"].astype(np.float32)) for name, own in table.groupby("patient")}
    for split, values in rows.items():
        inside = set(values[:, 0])
        owners = [name for name, own in of_patient.items() if own & inside]
        assert len(owners) == counts[split]
        assert all(of_patient[name] <= inside for name in owners)
    groups = np.load(cached / "validation_groups.npy")
    first_seen = list(dict.fromkeys(groups.tolist()))
    assert first_seen == list(range(counts["validation"]))
    files = [*storage.glob("many*/trials/*/*/*/predictions.npz")]
    assert len(files) > 6
    for file in files:
        assert np.array_equal(np.load(file)["groups"], groups)
    for file in storage.glob("many-confirm/trials/*/*/*/test.npz"):
        assert np.array_equal(np.load(file)["groups"], np.load(cached / "test_groups.npy"))


def test_intervals_say_that_they_resample_patients(
    storage: Path, answer_of_many: str, table_of_many: str
) -> None:
    counts = counts_of(storage, "many")
    validation, test = (f"{counts[split]} patients" for split in ("validation", "test"))
    front = said("pareto", "many", "--bootstrap", 200, "--storage", storage)
    assert f"95% intervals from 200 resamples of {validation}" in front
    assert f"({test}) of many.csv" in answer_of_many
    page = storage / "many.html"
    here("report", "many", "--output", page, "--bootstrap", 200, "--storage", storage)
    assert json.dumps(validation)[1:-1] in page.read_text()
    assert f"({test})" in table_of_many
    here("export", "many", "--name", "many", "--storage", storage)
    uri = embedded_tracking(storage)
    card = MlflowClient(uri, uri).get_model_version("many", "1").description
    assert f"of {validation})" in card and f"95% intervals that resample {test}" in card
    assert here_json("verify", "models:/many/1", "--storage", storage)["ok"]


def test_trials_are_measured_with_folds_of_patients(storage: Path) -> None:
    """And audited so."""
    study = open_study("many", str(storage))
    for record in study.records().complete:
        (file,) = study.files(record).glob("predictions.npz")
        found = Predictions.load(file)
        assert record.metrics["ts_nll"] == pytest.approx(found.evaluate()["ts_nll"], abs=1e-9)
        apart = Predictions(found.logits, found.labels)
        assert record.metrics["ts_nll"] != apart.evaluate()["ts_nll"]
    for name in ("many", "many-confirm", "few", "few-confirm"):
        assert here_json("audit", name, "--storage", storage)["clean"]


def test_a_shift_set_that_shares_a_patient_is_a_caution_wherever_test_is_shown(
    storage: Path, answer_of_many: str, table_of_many: str
) -> None:
    study = open_study("many", str(storage))
    if counts_of(storage, "many") and "p0" in _names_of_test(storage, study.recorded.data_digest):
        pytest.fail("p0 is in test: choose another seed")
    caution = re.compile(r"shift later: 1 patient .*p0", re.IGNORECASE)
    for shown in ((storage / "many.shown").read_text(), answer_of_many, table_of_many):
        assert caution.search(shown)


def _names_of_test(storage: Path, digest: str) -> set[str]:
    table = pd.read_csv(storage / "many.csv")
    inside = set(np.load(storage / "cache" / digest / "test.npy")[:, 0])
    return set(table["patient"][table["a"].astype(np.float32).isin(inside)])


def test_too_few_patients_give_no_intervals_and_every_place_says_why(storage: Path) -> None:
    counts = counts_of(storage, "few")
    assert max(counts["validation"], counts["test"]) < 10
    few = f"{counts['validation']} {FEW}"
    few_of_test = f"{counts['test']} {FEW}"
    plan = said("plan", storage / "few.yaml", "--storage", storage)
    assert f"validation has {counts['validation']} patients, too few for intervals" in plan
    answer = said("answer", "few", "--why", "--storage", storage)
    assert f"(no intervals: {few_of_test})" in answer and few in answer
    assert "[" not in answer
    front = said("pareto", "few", "--bootstrap", 200, "--storage", storage)
    assert f"values without intervals: {few}" in front
    plain = here_json("pareto", "few", "--bootstrap", 200, "--storage", storage)
    assert plain["no_intervals"] == few and "intervals" not in plain["front"][0]
    refused = here(
        "pareto", "few", "--compare", "focal/0", "focal/1", "--storage", storage, check=2
    )
    assert few in " ".join(refused.split())
    page = storage / "few.html"
    shown = said("report", "few", "--output", page, "--storage", storage)
    assert f"No intervals: {few}" in shown
    assert f"No intervals: {few}" in page.read_text()
    assert few_of_test in (storage / "few.shown").read_text()
    table = said("report", "few", "--format", "md", "--storage", storage)
    assert f"nothing is compared: {few_of_test}" in table
    figures = said("figures", "few", "--only", "front", "--storage", storage)
    assert few in figures
    here("export", "few", "--name", "few", "--storage", storage)
    uri = embedded_tracking(storage)
    card = MlflowClient(uri, uri).get_model_version("few", "1").description
    assert f"without intervals ({few_of_test})" in card


def test_evaluate_counts_the_groups_of_a_file(storage: Path) -> None:
    study = open_study("many", str(storage))
    record = next(iter(study.records().complete))
    (file,) = study.files(record).glob("predictions.npz")
    groups = counts_of(storage, "many")["validation"]
    assert f"resamples of {groups} groups" in said("evaluate", file, "--intervals")
    assert here_json("evaluate", file, "--intervals")["num_groups"] == groups
