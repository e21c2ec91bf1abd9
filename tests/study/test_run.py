"""Whole studies, with Ray and MLflow as they are, in processes of their own: killed, stopped, failed, gone on with."""

import json
import re
import shutil
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

from study.stored import StoredStudy, open_study
from tests.study.commands import calstudy, calstudy_json, here, here_json, start, wait_until, write_spec

pytestmark = pytest.mark.slow


def runs_of(storage: Path, name: str = "small") -> list[Run]:
    """All MLflow runs of a study's trials (not its parent)."""
    client = MlflowClient(f"sqlite:///{storage / 'mlflow.db'}")
    experiment = client.get_experiment_by_name(name)
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id], max_results=1000)
    return [run for run in runs if "calstudy.trial" in run.data.tags]


def counted_once(storage: Path, planned: int, name: str = "small") -> StoredStudy:
    """Every planned trial once in the ledger and once in MLflow; none left over, none like another."""
    study = open_study(name, str(storage))
    records = [record for found in study.records().values() for record in found]
    assert len(records) == planned and {record.state for record in records} <= {"complete", "failed"}
    runs = runs_of(storage, name)
    assert Counter(run.data.tags["calstudy.trial"] for run in runs) == Counter(record.name for record in records)
    assert not [run for run in runs if run.info.status in ("RUNNING", "SCHEDULED")]
    for label, found in study.records().items():
        assert len({json.dumps(record.params) for record in found}) == len(found), f"equal parameters in {label}"
    client = MlflowClient(f"sqlite:///{storage / 'mlflow.db'}")
    for run in runs:
        if run.info.status == "FINISHED":
            steps = [point.step for point in client.get_metric_history(run.info.run_id, "train_loss")]
            assert steps == list(range(1, study.spec.epochs + 1))
    return study


def epochs_trained(study: StoredStudy) -> int:
    """Lines of epochs in the logs of all attempts."""
    logs = study.directory.glob("trials/*/*/attempt-*/log")
    return sum(len(re.findall(r"^epoch=", log.read_text(), re.MULTILINE)) for log in logs)


def test_a_study_is_counted_goes_on_and_refuses_another_meaning(tmp_path: Path) -> None:
    spec = write_spec(tmp_path / "small.yaml")
    shown = calstudy("run", spec, "--storage", tmp_path).stdout
    assert "6/6 trials; 6 complete" in shown and "front" in shown
    study = counted_once(tmp_path, 6)
    assert epochs_trained(study) == 12
    assert not list(study.directory.glob("trials/*/*/*/last.pt"))
    assert here_json("status", "small", "--storage", tmp_path) == {
        "name": "small",
        "methods": {
            label: {"planned": 3, "complete": 3, "pruned": 0, "failed": 0, "running": 0}
            for label in ("cross_entropy", "focal")
        },
    }
    first = [record.params for record in study.records()["focal"]]
    assert first == [{"method.gamma": gamma, "optimizer.lr": 0.1} for gamma in (3.0, 2.0, 1.0)]  # published first

    # The same command again: nothing to do, nothing changed.
    before = (study.directory / "ledger.log").read_bytes()
    here("run", spec, "--storage", tmp_path)
    assert (study.directory / "ledger.log").read_bytes() == before

    # More trials and another method go on; what was there stays.
    write_spec(tmp_path / "small.yaml", methods=["cross_entropy", "focal", "mbls"], trials=4)
    here("run", spec, "--storage", tmp_path)
    grown = counted_once(tmp_path, 12)
    assert [record.params for record in grown.records()["focal"]][:3] == first

    # Another meaning is refused, with the lines that differ and the mend; nothing is written.
    before = (study.directory / "study.yaml").read_bytes()
    write_spec(tmp_path / "small.yaml", methods=["cross_entropy", "focal", "mbls"], trials=4, epochs=3)
    refused = here("run", spec, "--storage", tmp_path, check=2)
    assert "epochs: was 2, is 3" in refused and "new name" in refused and "Traceback" not in refused
    assert (study.directory / "study.yaml").read_bytes() == before


def all_are_well_under_way(trials: Path, attempt: int, epochs: int) -> bool:
    """Whether both trials have trained so many epochs in that attempt, and left a checkpoint on the way."""
    logs = list(trials.glob(f"*/*/attempt-{attempt}/log"))
    saved = list(trials.glob(f"*/*/attempt-{attempt}/last.pt"))
    return len(logs) == len(saved) == 2 and all(log.read_text().count("epoch=") >= epochs for log in logs)


def test_killed_while_training_then_run_again(tmp_path: Path) -> None:
    """kill -9 of the driver while trials train, twice; then all is counted once, little is trained twice."""
    spec = write_spec(
        tmp_path / "small.yaml",
        model={"name": "mlp", "width": 1024, "depth": 3},
        epochs=60,
        trials=1,
        search_space={},
        checkpoint_seconds=0.5,
    )
    directory = tmp_path / "small" / "trials"
    for kill in range(2):
        driver = start("run", spec, "--storage", tmp_path)
        # Well beyond a checkpoint, in epochs: to start anew would repeat more than the promise allows.
        wait_until(lambda kill=kill: all_are_well_under_way(directory, kill + 1, 15))
        driver.kill()
        driver.wait()
    refused = here("status", "small", "--storage", tmp_path)
    assert "cut short" in refused and "goes on" in refused
    calstudy("run", spec, "--storage", tmp_path)
    study = counted_once(tmp_path, 2)
    resumed = [log for log in study.directory.glob("trials/*/*/*/log") if "resumed from" in log.read_text()]
    assert resumed, "no trial went on from its checkpoint"
    # At most a checkpoint interval (here: or an epoch, if longer) for each of two running trials and two kills.
    history = [json.loads((study.files(record) / "history.json").read_text()) for record in study.records()["focal"]]
    epoch_seconds = min(row["seconds"] for rows in history for row in rows[2:])
    assert epochs_trained(study) - 2 * 60 <= 2 * 2 * (1 + 0.5 / epoch_seconds)


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_signal_ends_it_cleanly(tmp_path: Path, name: str) -> None:
    spec = write_spec(tmp_path / "small.yaml", epochs=60, checkpoint_seconds=0.5, methods=["cross_entropy"], trials=3)
    driver = start("run", spec, "--storage", tmp_path)
    wait_until(lambda: list((tmp_path / "small" / "trials").glob("*/*/*/log")))
    driver.send_signal(signal.Signals[name])
    shown, _ = driver.communicate(timeout=60)
    assert driver.returncode == 1 and f"stopped by {name}" in shown and "Traceback" not in shown
    if name == "SIGTERM":  # once is enough: both end by the same way
        assert here_json("status", "small", "--storage", tmp_path)["methods"]["cross_entropy"]["running"] == 0
        here("run", spec, "--storage", tmp_path)
        counted_once(tmp_path, 3)


def test_a_second_driver_is_refused(tmp_path: Path) -> None:
    spec = write_spec(tmp_path / "small.yaml", epochs=40)
    driver = start("run", spec, "--storage", tmp_path)
    wait_until((tmp_path / "small" / "ledger.log").exists)
    refused = here("run", spec, "--storage", tmp_path, check=2)
    assert f"pid {driver.pid}" in refused and "Traceback" not in refused
    driver.terminate()
    driver.communicate(timeout=60)


FAULTY = {
    "raises": "raise RuntimeError('no such luck')",
    "kills": "__import__('os').kill(__import__('os').getpid(), 9)",
    "hangs": "__import__('time').sleep(1000)",
}


def test_a_trial_that_fails_is_recorded_and_the_study_goes_on(tmp_path: Path) -> None:
    """One method diverges, raises, kills its own process, hangs: FAIL with the reason; the others complete."""
    (tmp_path / "mine" / "methods").mkdir(parents=True)
    for name, line in FAULTY.items():
        (tmp_path / "mine" / "methods" / f"{name}.py").write_text(
            "from dataclasses import dataclass\nfrom trainables.methods.cross_entropy import CrossEntropy\n\n\n"
            f"@dataclass(frozen=True)\nclass {name.capitalize()}(CrossEntropy):\n"
            f"    def loss(self, logits, targets, progress):\n        {line}\n"
        )
    methods: list[Any] = [*FAULTY, "cross_entropy", {"label": "diverges", "name": "mbls", "weight": 1.0e30}]
    keys = {"methods": methods, "trials": 1, "trial_minutes": 0.1, "search_space": {}, "extensions": "mine"}
    shown = calstudy("run", write_spec(tmp_path / "small.yaml", **keys), "--storage", tmp_path).stdout
    # Read without the folder it was run with: the study keeps its own.
    (tmp_path / "mine").rename(tmp_path / "gone")
    study = counted_once(tmp_path, 5)
    found = {label: records[0] for label, records in study.records().items()}
    assert {label: record.state for label, record in found.items()} == {
        "raises": "failed",
        "kills": "failed",
        "hangs": "failed",
        "cross_entropy": "complete",
        "diverges": "failed",
    }
    assert found["raises"].reason == "RuntimeError: no such luck"
    assert "its process died: its worker process has died" in str(found["kills"].reason) and found["kills"].attempt == 3
    assert found["hangs"].reason == "trial_minutes: stopped after 0.1 minutes, at epoch 0, where it hung"
    assert found["kills"].deaths == {"process": 3} and found["hangs"].attempt == 1
    assert "at epoch 1" in str(found["diverges"].reason) and "optimizer.lr" in str(found["diverges"].reason)
    assert "no such luck" in shown
    assert "no such luck" in here("status", "small", "--storage", tmp_path)
    assert "no such luck" in (study.files(found["raises"]) / "log").read_text()


HUNGRY = """
import dataclasses, ray, torch
from trainables.methods.cross_entropy import CrossEntropy

@dataclasses.dataclass(frozen=True)
class Hungry(CrossEntropy):
    enough: float = 1.0

    def loss(self, logits, targets, progress):
        if ray.get_runtime_context().get_assigned_resources().get("GPU", 0.0) < self.enough:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9.00 GiB")
        return super().loss(logits, targets, progress)
"""


def test_what_does_not_fit_into_a_part_of_a_gpu_gets_a_whole_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On pretended GPUs (Ray counts them, the CPU computes); unverified on real ones."""
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("CALSTUDY_DEVICE", "cpu")
    (tmp_path / "mine" / "methods").mkdir(parents=True)
    (tmp_path / "mine" / "methods" / "hungry.py").write_text(HUNGRY)
    methods = [
        "cross_entropy",
        {"label": "too_hungry", "name": "hungry", "enough": 2.0},
        {"label": "hungry", "name": "hungry", "enough": 1.0},
        {"label": "provided", "name": "hungry", "enough": 1.0, "resources": {"gpu": 1}},
    ]
    keys = {"methods": methods, "trials": 1, "search_space": {}, "extensions": "mine"}
    spec = write_spec(tmp_path / "small.yaml", resources={"cpu": 0.5, "gpu": 0.5}, **keys)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "num_gpus": 1})
    try:
        calstudy("run", spec, "--storage", tmp_path, "--address", cluster.address)
    finally:
        cluster.shutdown()
    found = {label: records[0] for label, records in counted_once(tmp_path, 4).records().items()}
    assert {label: (record.state, record.attempt, record.deaths) for label, record in found.items()} == {
        "cross_entropy": ("complete", 1, {}),
        "too_hungry": ("failed", 2, {"out_of_memory": 2}),
        "hungry": ("complete", 2, {"out_of_memory": 1}),
        "provided": ("complete", 1, {}),
    }
    assert str(found["too_hungry"].reason).startswith("OutOfMemoryError: CUDA out of memory")


def test_a_copy_and_a_renamed_study_are_refused(tmp_path: Path) -> None:
    spec = write_spec(tmp_path / "small.yaml", methods=["cross_entropy"], trials=1, epochs=1)
    here("run", spec, "--storage", tmp_path / "one")
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    before = (tmp_path / "two" / "small" / "ledger.log").read_bytes()
    for words in (("run", spec), ("sync", "small"), ("export", "small", "--pick", "knee", "--name", "m")):
        refused = here(*words, "--storage", tmp_path / "two", check=2)
        assert f"a copy of the study at {tmp_path / 'one' / 'small'}" in refused and refused.count("\n") == 1
    assert (tmp_path / "two" / "small" / "ledger.log").read_bytes() == before
    here("status", "small", "--storage", tmp_path / "two")  # to read it harms nobody

    (tmp_path / "two" / "small").rename(tmp_path / "two" / "other")
    refused = here("status", "other", "--storage", tmp_path / "two", check=2)
    assert "holds the study 'small'" in refused and "Rename it back" in refused

    # Moved as a whole, it is the same study: it goes on.
    (tmp_path / "one").rename(tmp_path / "moved")
    here("run", spec, "--trials", 2, "--storage", tmp_path / "moved")
    counted_once(tmp_path / "moved", 2)


def test_only_the_models_of_the_front_are_kept(tmp_path: Path) -> None:
    spec = write_spec(tmp_path / "small.yaml", keep_models="front", trials=4)
    here("run", spec, "--storage", tmp_path)
    study = counted_once(tmp_path, 8)
    front = here_json("pareto", "small", "--storage", tmp_path)["front"]
    kept = {f"{path.parts[-4]}/{int(path.parts[-3])}" for path in study.directory.glob("trials/*/*/*/model.pt")}
    assert kept == {f"{row['method']}/{row['number']}" for row in front}
    assert len(list(study.directory.glob("trials/*/*/*/predictions.npz"))) == 8


def test_the_digits_study_from_its_file_to_a_verified_model(tmp_path: Path) -> None:
    """What `make study` does, with one trial a method."""
    calstudy("run", "study/specs/digits.yaml", "--trials", 1, "--storage", tmp_path)
    counted_once(tmp_path, 5, "digits")
    figure, table = tmp_path / "digits" / "figures" / "front.png", tmp_path / "front.csv"
    front = calstudy_json("pareto", "digits", "--storage", tmp_path, "--figure", figure, "--csv", table)
    assert figure.read_bytes().startswith(b"\x89PNG") and table.read_text().startswith("method,number,")
    assert front["knee"] in [{"method": row["method"], "number": row["number"]} for row in front["front"]]
    calstudy("export", "digits", "--pick", "knee", "--name", "digits", "--alias", "champion", "--storage", tmp_path)
    found = calstudy_json("verify", "models:/digits@champion", "--storage", tmp_path)
    assert found["ok"] and found["model"] == "models:/digits/1" and found["num_samples"] == 287


def test_what_was_begun_and_never_asked_goes_on(tmp_path: Path) -> None:
    """Killed after the ledger was made and before the first trial: the study is still the same one."""
    spec = write_spec(tmp_path / "small.yaml", methods=["cross_entropy"], trials=1, epochs=1)
    driver = start("run", spec, "--storage", tmp_path)
    wait_until(lambda: (tmp_path / "small" / "ledger.log").exists() and (tmp_path / "small" / "ledger.log").read_text())
    driver.kill()
    driver.wait()
    assert not open_study("small", str(tmp_path)).records()["cross_entropy"]
    here("run", spec, "--storage", tmp_path)
    counted_once(tmp_path, 1)
