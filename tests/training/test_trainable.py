"""The Ray trainable without Ray's cluster: called as Tune calls it."""

import importlib.metadata
import json
import os
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from ray.tune import PlacementGroupFactory, Trainable

from study.store.trials import TrialRecord
from tests.patience import wait_until
from trainables.config import TrialConfig
from trainables.data.digits import Digits
from trainables.files.digest import file_digest
from trainables.loading.cache import data_digest
from trainables.outputs.attempts import attempts_in
from trainables.outputs.classifier import Classifier
from trainables.outputs.outcome import Report
from trainables.outputs.predictions import Predictions
from trainables.training import trainable
from trainables.training.attempt import Assignment
from trainables.training.device import CONTEXT, NodeUnfit, check_device, device_for
from trainables.training.learner import Learner
from trainables.training.trainable import CalibrationTrainable, trainable_for

pytestmark = pytest.mark.slow
Approved = Callable[..., None]


def assignment(directory: Path, attempt: int = 1, **settings: Any) -> Assignment:
    digest = settings.pop("digest", data_digest(Digits(), 0))
    plain = {"data": "digits", "model": "mlp", "method": "focal", "epochs": 3, **settings}
    config = TrialConfig.from_mapping(plain).to_mapping()
    return Assignment(
        "focal/0000", str(directory), attempt, config, digest, 30.0, {"cpu": 1.0, "gpu": 0.0}
    )


@pytest.fixture
def actor() -> CalibrationTrainable:
    made = CalibrationTrainable.__new__(CalibrationTrainable)  # Tune's own set-up wants a storage
    return made


def report(actor: CalibrationTrainable) -> dict[str, Any]:
    result = actor.step()
    (plain,) = json.loads(result["reports"]).values()
    assert result["done"] == (plain["outcome"] is not None)
    assert isinstance(plain, dict)
    return plain


def begin(actor: CalibrationTrainable, given: Assignment) -> None:
    assert actor.reset_config({"assignment": given.to_json()})


def test_a_trial_leaves_files_that_are_what_it_reports(
    actor: CalibrationTrainable, tmp_path: Path
) -> None:
    begin(actor, assignment(tmp_path))
    found = report(actor)
    outcome, files = found["outcome"], tmp_path / "attempt-1"
    assert [row["epoch"] for row in found["rows"]] == [1, 2, 3] and outcome["state"] == "complete"
    assert outcome["digests"] == {
        name: file_digest(files / name) for name in ("predictions.npz", "history.json", "model.pt")
    }
    assert outcome["metrics"] == pytest.approx(
        Predictions.load(files / "predictions.npz").evaluate(), abs=1e-12
    )
    assert json.loads((files / "history.json").read_text()) == found["rows"]
    assert (files / "log").read_text().count("epoch=") == 3
    how = TrialRecord("focal", 0, "complete", {}, training=outcome["training"]).how_trained
    assert how == "precision: float32, step: eager, features: eager, images: mapped, device: cpu"


def test_tune_sees_the_metrics_of_the_epoch(actor: CalibrationTrainable, tmp_path: Path) -> None:
    begin(actor, replace(assignment(tmp_path), step_seconds=0.0))
    found = []
    while not found or not found[-1]["done"]:
        found.append(actor.step())
    assert [result["epoch"] for result in found] == [1, 2, 3]
    for result in found:
        (plain,) = json.loads(result["reports"]).values()
        assert {name: result[name] for name in plain["rows"][-1]}.items() <= {
            **plain["rows"][-1],
            **((plain["outcome"] or {}).get("metrics") or {}),
        }.items()
    assert found[-1]["ece"] == plain["outcome"]["metrics"]["ece"]
    two = {name: Report([{"epoch": 2, "ece": 0.1}]) for name in ("focal/0000", "mbls/0000")}
    assert trainable.latest(two)["mbls/0000/ece"] == 0.1 and "ece" not in trainable.latest(two)


def test_a_new_process_decodes_the_data_before_it_trains(
    actor: CalibrationTrainable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALSTUDY_CACHE", str(tmp_path / "cache"))
    begin(actor, assignment(tmp_path / "trial"))
    result = actor.prepared()
    assert not result["done"] and json.loads(str(result["reports"])) == {}
    assert [file.name for file in (tmp_path / "cache").glob("*/train.npy")] == ["train.npy"]
    assert not (tmp_path / "trial").exists()  # nothing of the trial has begun
    assert report(actor)["outcome"]["state"] == "complete"


def test_data_that_cannot_be_decoded_are_told_when_the_trial_begins(
    actor: CalibrationTrainable, tmp_path: Path, approved: Approved
) -> None:
    begin(actor, assignment(tmp_path, digest="0" * 64))
    actor.prepared()
    with pytest.raises(NodeUnfit, match="0" * 12) as caught:
        actor.step()
    approved(str(caught.value).partition(" (")[0], host=socket.gethostname())


@pytest.mark.parametrize(
    ("result", "method"), [("last", "_measured"), ("best_accuracy", "predictions")]
)
def test_the_weights_are_written_while_they_predict(
    actor: CalibrationTrainable,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    result: str,
    method: str,
) -> None:
    """The last epoch's while they are validated; the best epoch's, known only then, while
    they predict once more."""
    predict, written = getattr(Learner, method), tmp_path / "attempt-1" / "model.pt"

    def late(self: Learner, *words: Any) -> Any:
        wait_until(lambda: not self.finished or written.exists(), 60, "model.pt, which waits")
        return predict(self, *words)

    monkeypatch.setattr(Learner, method, late)
    begin(actor, assignment(tmp_path, result=result))
    assert report(actor)["outcome"]["state"] == "complete"


def test_a_trial_that_diverges_in_its_last_epoch_leaves_no_model(
    actor: CalibrationTrainable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = Learner._measured

    def infinite(self: Learner, *words: Any) -> Any:
        found = measured(self, *words)
        return found._replace(values=found.values * torch.inf) if self.finished else found

    monkeypatch.setattr(Learner, "_measured", infinite)
    begin(actor, assignment(tmp_path))
    outcome = report(actor)["outcome"]
    assert outcome["state"] == "failed" and outcome["epoch"] == 2
    assert sorted(path.name for path in (tmp_path / "attempt-1").iterdir()) == [
        "history.json",
        "log",
    ]


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_weights_that_cannot_be_written_interrupt_the_trial(
    actor: CalibrationTrainable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, precision: str
) -> None:
    def failing(self: Classifier, path: Path) -> str:
        raise OSError(5, "Input/output error", str(path))

    monkeypatch.setattr(Classifier, "save", failing)
    begin(actor, assignment(tmp_path, precision=precision))
    outcome = report(actor)["outcome"]
    assert outcome["state"] == "interrupted" and "model.pt" in outcome["reason"]


def test_one_actor_serves_trial_after_trial(actor: CalibrationTrainable, tmp_path: Path) -> None:
    """What a trial leaves does not depend on what its process trained before."""
    outcomes = []
    for directory, method in (
        (tmp_path / "a", "focal"),
        (tmp_path / "b", "mbls"),
        (tmp_path / "c", "focal"),
    ):
        begin(actor, assignment(directory, method=method))
        outcomes.append(report(actor)["outcome"])
    assert outcomes[0]["metrics"] == outcomes[2]["metrics"] != outcomes[1]["metrics"]


def test_a_metric_that_is_asked_for_is_measured(
    actor: CalibrationTrainable, tmp_path: Path
) -> None:
    begin(actor, replace(assignment(tmp_path), metrics=("skce", "ts_mmce", "accuracy")))
    measured = report(actor)["outcome"]["metrics"]
    assert {"skce", "ts_mmce", "accuracy", "ts_ece"} <= set(measured) and "ts_skce" not in measured
    asked = Predictions.load(tmp_path / "attempt-1" / "predictions.npz").evaluate(also=["skce"])
    assert measured["skce"] == pytest.approx(asked["skce"], abs=1e-12)


def test_an_attempt_goes_on_from_the_newest_whole_checkpoint(
    actor: CalibrationTrainable, tmp_path: Path, approved: Approved
) -> None:
    # An epoch a report.
    given = replace(assignment(tmp_path), checkpoint_seconds=0.0, step_seconds=0.0)
    begin(actor, given)
    assert [report(actor)["rows"][0]["epoch"] for _ in range(2)] == [1, 2]
    # The second attempt tore its file; the third takes the first one's.
    (tmp_path / "attempt-2").mkdir()
    (tmp_path / "attempt-2" / "last.pt").write_bytes(
        (tmp_path / "attempt-1" / "last.pt").read_bytes()[:-100]
    )
    begin(actor, replace(given, attempt=3))
    found = report(actor)
    assert [row["epoch"] for row in found["rows"]] == [1, 2, 3] and found["outcome"][
        "state"
    ] == "complete"
    log = (tmp_path / "attempt-3" / "log").read_text()
    where, torn, resumed, first, *_ = log.splitlines()
    assert str(os.getpid()) in where and socket.gethostname() in where
    assert "attempt-2/last.pt" in torn and first.startswith("epoch=3 ")
    assert "attempt-1" in resumed and "epoch 2, of 2" in resumed
    approved(f"{where}\n{torn}\n{resumed}", host=socket.gethostname())
    assert log.count("epoch=") == 1
    assert [path.name for path in attempts_in(tmp_path)] == ["attempt-3", "attempt-2", "attempt-1"]


def test_a_trial_stands_still_at_its_rung(actor: CalibrationTrainable, tmp_path: Path) -> None:
    """It says what it is judged by, goes on as if nothing had been, and says the same again
    where it resumes there."""
    given = replace(
        assignment(tmp_path, epochs=4), rung=2, costs=("accuracy", "ece"), checkpoint_seconds=0.0
    )
    begin(actor, given)
    found = report(actor)
    rung, files = found["rung"], tmp_path / "attempt-1"
    predictions = Predictions.load(files / "rung-2.npz")
    assert (
        [row["epoch"] for row in found["rows"]] == [1, 2]
        and found["outcome"] is None
        and rung["epoch"] == 2
    )
    right = (predictions.logits.argmax(1) == predictions.labels).double().mean().item()
    assert rung["costs"] == [-right, rung["outcome"]["metrics"]["ece"]]
    assert rung["costs"][1] == pytest.approx(found["rows"][-1]["ece"], abs=1e-12)
    assert (
        rung["outcome"]["state"] == "pruned"
        and rung["outcome"]["samples"] == found["rows"][-1]["samples"]
    )
    assert rung["outcome"]["digests"] == {
        name: file_digest(files / name) for name in ("rung-2.npz", "history.json")
    }

    begin(actor, replace(given, attempt=2))  # its process died before it was told to go on
    again = report(actor)
    assert [row["epoch"] for row in again["rows"]] == [1, 2]
    assert again["rung"]["costs"] == rung["costs"]
    assert (
        again["rung"]["outcome"]["digests"]["rung-2.npz"]
        == rung["outcome"]["digests"]["rung-2.npz"]
    )
    last = report(actor)
    assert [row["epoch"] for row in last["rows"]] == [3, 4] and "rung" not in last

    begin(actor, assignment(tmp_path / "undisturbed", epochs=4))
    assert report(actor)["outcome"]["metrics"] == last["outcome"]["metrics"]


def test_a_trial_that_is_stopped_gives_its_program_back(
    actor: CalibrationTrainable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the next one would capture its steps again on a GPU."""
    left: list[Learner] = []
    monkeypatch.setattr(Learner, "leave", lambda learner: left.append(learner))
    begin(actor, replace(assignment(tmp_path / "a"), rung=1))
    assert "rung" in report(actor)
    assert actor._attempt is not None
    stopped = actor._attempt._learner
    assert stopped is not None and left == []
    begin(actor, assignment(tmp_path / "b"))
    assert left == [stopped] and report(actor)["outcome"]["state"] == "complete"
    assert len(left) == 2


@pytest.mark.parametrize("late", [False, True])
def test_a_name_too_long_is_no_nodes_fault(
    actor: CalibrationTrainable, tmp_path: Path, late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At its first file, or a later one, whose name is longer."""
    begin(actor, assignment(tmp_path / ("t" if late else "x" * 300)))
    if late:
        monkeypatch.setattr(
            Predictions, "save", lambda self, path: path.with_name("x" * 300).stat()
        )
    with pytest.raises(NodeUnfit, match="File name too long") as caught:
        report(actor)
    assert caught.value.nowhere and "Use shorter names" in caught.value.mend


def test_a_node_that_does_not_see_the_study_writes_nothing(
    actor: CalibrationTrainable, tmp_path: Path, approved: Approved
) -> None:
    begin(actor, replace(assignment(tmp_path / "trials"), study_file=str(tmp_path / "study.yaml")))
    with pytest.raises(NodeUnfit, match=f"{tmp_path}/study.yaml") as caught:
        actor.step()
    approved(str(caught.value), host=socket.gethostname())
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "study.yaml").touch()
    begin(actor, replace(assignment(tmp_path / "trials"), study_file=str(tmp_path / "study.yaml")))
    assert report(actor)["outcome"]["state"] == "complete"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"method": {"name": "mbls", "weight": 1e30}}, "Diverged: "),
        ({"model": {"name": "mlp", "width": 2**40}}, "alloc"),
    ],
)
def test_a_failure_is_an_outcome_with_its_reason(
    actor: CalibrationTrainable,
    tmp_path: Path,
    settings: dict[str, Any],
    said: str,
    approved: Approved,
) -> None:
    begin(actor, assignment(tmp_path, **settings))
    outcome = report(actor)["outcome"]
    assert outcome["state"] == "failed" and said in outcome["reason"]
    if said == "Diverged: ":  # the other is torch's
        loss = outcome["reason"].partition("loss is ")[2].split()[0]
        approved(outcome["reason"].replace(f" {loss} ", " VALUE "))
    assert "Traceback" in (tmp_path / "attempt-1" / "log").read_text()
    assert "epoch" not in outcome
    begin(actor, assignment(tmp_path / "next"))
    assert report(actor)["outcome"]["state"] == "complete"


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"), "out_of_memory"),
        (
            RuntimeError(
                "cuBLAS error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate(handle)"
            ),
            "out_of_memory",
        ),
        (OSError(5, "Input/output error"), "interrupted"),
        (BlockingIOError(11, "Resource temporarily unavailable"), "denied"),
        (RuntimeError("can't start new thread"), "denied"),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), "failed"),
    ],
)
def test_what_the_machine_did_is_told_from_what_the_trial_did(
    actor: CalibrationTrainable,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    state: str,
) -> None:
    def fails(learner: Learner, *words: Any) -> None:
        raise error

    begin(actor, assignment(tmp_path))
    monkeypatch.setattr(Learner, "advance", fails)
    outcome = report(actor)["outcome"]
    assert outcome["state"] == state and str(error).split(".")[0] in outcome["reason"]


def test_a_trial_may_train_no_longer_than_its_limit(
    actor: CalibrationTrainable, tmp_path: Path, approved: Approved
) -> None:
    """All attempts count together; what it trained is kept."""
    given = replace(assignment(tmp_path, epochs=1000), checkpoint_seconds=0.0, step_seconds=0.0)
    begin(actor, given)
    trained = sum(report(actor)["rows"][0]["seconds"] for _ in range(2))
    begin(actor, replace(given, attempt=2, seconds_limit=trained + 1e-9))
    found = report(actor)
    assert found["outcome"]["state"] == "failed" and found["outcome"]["epoch"] == 3 == len(
        found["rows"]
    )
    assert found["outcome"]["reason"].startswith("TimeLimit: trial_minutes: ")
    approved(found["outcome"]["reason"])
    assert list(found["outcome"]["digests"]) == ["history.json"]


def test_where_a_trial_trains(monkeypatch: pytest.MonkeyPatch, approved: Approved) -> None:
    def missing(device: torch.device) -> None:
        raise RuntimeError("Found no NVIDIA driver on your system.")

    monkeypatch.setattr(torch.cuda, "get_device_properties", missing)
    assert device_for(0.0).type == "cpu"
    with pytest.raises(NodeUnfit, match="RuntimeError: Found no NVIDIA driver") as caught:
        device_for(0.5)
    approved(str(caught.value), host=socket.gethostname())
    monkeypatch.setenv("CALSTUDY_DEVICE", "cpu")
    assert device_for(0.5).type == "cpu"


def test_a_part_of_a_gpu_is_a_part_of_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU that is only pretended: what is asked of torch. Unverified on a real one."""
    asked: list[float] = []
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", asked.append)
    there = SimpleNamespace(total_memory=40 * CONTEXT)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: there)
    assert [device_for(gpu).type for gpu in (0.25, 0.02, 1.0)] == ["cuda"] * 3
    assert asked == [0.25 - 1 / 40, 0.01, 1.0]


def test_a_gpu_must_compute_in_the_precision_of_the_trial(
    monkeypatch: pytest.MonkeyPatch, approved: Approved
) -> None:
    """On a GPU that is only pretended."""
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda emulated: False)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Tesla T4")
    with pytest.raises(NodeUnfit, match=r"Tesla T4.*`precision: float32`") as caught:
        check_device(torch.device("cuda"), "bfloat16")
    approved(str(caught.value), host=socket.gethostname())

    def ones(*shape: int, **options: Any) -> None:
        raise RuntimeError(said)

    monkeypatch.setattr(torch, "ones", ones)
    said = "CUDA error: no kernel image is available for execution on the device"
    with pytest.raises(NodeUnfit, match="no kernel image") as caught:
        check_device(torch.device("cuda"), "float32")
    approved(str(caught.value), host=socket.gethostname())
    said = "CUDA error: out of memory"  # others use it: the trial is tried again
    with pytest.raises(RuntimeError, match="out of memory"):
        check_device(torch.device("cuda"), "float32")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"data": {"name": "parquet", "path": "/nowhere.parquet"}, "digest": "0" * 64},
            r"/nowhere\.parquet",
        ),
        ({"digest": "0" * 64}, "0" * 12),
    ],
    ids=["no file", "other data"],
)
def test_data_that_the_driver_has_and_a_node_has_not_are_no_failure_of_the_trial(
    actor: CalibrationTrainable,
    tmp_path: Path,
    settings: dict[str, Any],
    said: str,
    approved: Approved,
) -> None:
    begin(actor, assignment(tmp_path, **settings))
    with pytest.raises(NodeUnfit, match=said) as caught:
        actor.step()
    digest = data_digest(Digits(), 0)[:12]
    assert "parquet" in said or digest in str(caught.value)
    approved(str(caught.value), host=socket.gethostname(), digest=digest)


def test_a_node_that_cannot_write_the_trial_s_files_is_unfit(
    actor: CalibrationTrainable, tmp_path: Path, approved: Approved
) -> None:
    (tmp_path / "file").touch()
    begin(actor, assignment(tmp_path / "file" / "trials"))
    with pytest.raises(NodeUnfit, match=r"file/trials/attempt-1 \(Not a dir") as caught:
        actor.step()
    approved(str(caught.value), host=socket.gethostname())


def test_an_outcome_says_where_and_with_what_it_was_trained(
    actor: CalibrationTrainable, tmp_path: Path
) -> None:
    begin(actor, assignment(tmp_path))
    outcome = report(actor)["outcome"]
    assert outcome["host"] == socket.gethostname()
    assert outcome["versions"] == {
        name: importlib.metadata.version(name) for name in ("torch", "torchvision", "numpy")
    }


def bare(cls: type[Trainable], *bundles: dict[str, float]) -> Any:
    """A trainable that Ray has not begun. bundles: the resources Tune gives it; none: no Tune."""
    made: Any = cls.__new__(cls)
    resources = PlacementGroupFactory(list(bundles)) if bundles else None
    made._trial_info = SimpleNamespace(trial_resources=resources)
    return made


@pytest.mark.parametrize(
    ("bundles", "device"),
    [([{"CPU": 1.0}], "cpu"), ([{"CPU": 1.0, "GPU": 0.5}], "cuda"), ([], "cuda")],
    ids=["no GPU", "half a GPU", "without Tune"],
)
def test_a_trial_without_a_gpu_takes_none(
    monkeypatch: pytest.MonkeyPatch, bundles: list[dict[str, float]], device: str
) -> None:
    """Ray leaves CUDA_VISIBLE_DEVICES alone at zero GPUs."""
    asked: list[str] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(trainable, "trial_data", lambda trial, device: asked.append(device.type))
    monkeypatch.setattr(trainable, "Learner", lambda *given: None)
    bare(trainable_for("focal"), *bundles).setup({"data": "digits", "model": "mlp"})
    assert asked == [device]


def test_a_trainable_of_one_method_for_ones_own_tuner() -> None:
    cls = trainable_for("focal")
    assert cls.__name__ == "FocalTrainable"
    made = bare(cls)
    made.setup({"data": "digits", "model": "mlp", "method.gamma": 2.0, "epochs": 2})
    first, last = made.step(), made.step()
    assert first["epoch"] == 1 and not first["done"] and "ts_ece" not in first
    assert last["done"] and {"accuracy", "ece", "ts_ece"} <= set(last)


def test_ones_own_tuner_goes_on_from_a_checkpoint(tmp_path: Path, approved: Approved) -> None:
    cls = trainable_for("focal")
    whole, again = bare(cls), bare(cls)
    for made in (whole, again):
        made.setup({"data": "digits", "model": "mlp", "epochs": 2})
    whole.step()
    whole.save_checkpoint(str(tmp_path))
    again.load_checkpoint(str(tmp_path))
    first, second = whole.step(), again.step()
    assert first["epoch"] == second["epoch"] == 2
    assert first["nll"] == second["nll"]
    (tmp_path / "last.pt").write_bytes(b"torn")
    with pytest.raises(ValueError, match=r"last\.pt") as caught:
        again.load_checkpoint(str(tmp_path))
    approved(str(caught.value))
