"""Export and verify against a real registry: registered is what was measured, and
anything else is found out."""

import io
import json
import os
import runpy
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
import torch
from mlflow import MlflowClient
from mlflow.entities.model_registry import ModelVersion
from mlflow.exceptions import MlflowException
from numpy.testing import assert_allclose
from pytest import approx

from study.answer.choice import Choice
from study.registry import export as exporting
from study.registry import verification
from study.registry.export import Exported, export
from study.registry.names import ExportError, check_names
from study.registry.verification import NotVerified, look_up, verify
from study.registry.verify import examine
from study.schema.reading import spec_from_mapping
from study.store.recorded import Recorded
from study.store.study import StudyFolder
from study.store.trials import TrialRecord
from study.tracking.registered import digests_of
from tests import references
from trainables.config import TrialConfig
from trainables.files.digest import file_digest
from trainables.loading.cache import DataDigests, load_split
from trainables.loading.trial_data import trial_data
from trainables.outputs.predictions import Predictions
from trainables.problems import FieldError
from trainables.training.learner import Learner

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Trained:
    """A study with one trial, trained for real, and the server its run is on."""

    study: StudyFolder
    record: TrialRecord
    uri: str
    learner: Learner

    @property
    def client(self) -> MlflowClient:
        return MlflowClient(self.uri, self.uri)

    def export(self, name: str, alias: str | None = None) -> Exported:
        return export(Choice(self.study, self.record), name, alias, self.uri)

    def version(self, exported: Exported) -> ModelVersion:
        return self.client.get_model_version(exported.name, str(exported.version))

    def artifacts(self, exported: Exported) -> Path:
        return Path(
            self.client.get_model_version_download_uri(exported.name, str(exported.version))
        )


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A storage with its MLflow, and a working directory that must stay empty."""
    root = tmp_path_factory.mktemp("storage")
    empty = tmp_path_factory.mktemp("empty")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CALSTUDY_CACHE", str(root / "cache"))
        patch.chdir(empty)
        yield root
        assert list(empty.iterdir()) == []


@pytest.fixture(scope="module")
def server(root: Path) -> str:
    uri = f"sqlite:///{root / 'mlflow.db'}"
    MlflowClient(uri, uri).create_experiment("small", artifact_location=str(root / "artifacts"))
    return uri


def train(root: Path, uri: str, name: str, model: str, number: int = 3, **keys: str) -> Trained:
    """One epoch; its files as the trainable leaves them, its run as the tracking makes it."""
    mapping = {
        "name": name,
        "data": "digits",
        "model": model,
        "methods": ["focal"],
        "epochs": 1,
        **keys,
    }
    spec = spec_from_mapping(mapping, "study.yaml")
    params = {"method.gamma": 2.0}
    config = TrialConfig.from_mapping({**spec.trial_mapping("focal"), "number": number}, params)
    learner = Learner(config, trial_data(config, torch.device("cpu")), torch.device("cpu"))
    learner.train_epoch()
    recorded = Recorded(
        id=f"id-of-{name}",
        created="2026-11-22T00:00:00+00:00",
        data_digest=learner.data.prepared.digest,
        classes=list(learner.data.prepared.classes),
        sizes=dict(learner.data.prepared.sizes),
        meaning=spec.meaning(),
        serves="temperature",
        majority=0.1,
        temperature_fit="temperature",
        versions={"torch": "2"},
    )
    study = StudyFolder.of(root / name, spec, recorded)
    record = TrialRecord("focal", number, "complete", params, attempt=1, epoch=1)
    files = study.files(record)
    files.mkdir(parents=True)
    predictions = learner.predict()
    predictions.save(files / "predictions.npz")
    learner.classifier().save(files / "model.pt")
    digests = {file: file_digest(files / file) for file in ("predictions.npz", "model.pt")}
    client = MlflowClient(uri, uri)
    experiment = client.get_experiment_by_name("small")
    tags = {"calstudy.study": name, "calstudy.id": study.id, "calstudy.trial": record.name}
    client.set_terminated(client.create_run(experiment.experiment_id, tags=tags).info.run_id)
    return Trained(
        study, replace(record, digests=digests, metrics=predictions.evaluate()), uri, learner
    )


@pytest.fixture(scope="module")
def trained(root: Path, server: str) -> Trained:
    return train(root, server, "small", "mlp")


@pytest.fixture(scope="module")
def exported(trained: Trained) -> Exported:
    return trained.export("digits", "champion")


@pytest.fixture
def here(trained: Trained, monkeypatch: pytest.MonkeyPatch) -> Callable[..., object]:
    """`examine` in this process, in the environment its own is given."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", trained.uri)
    monkeypatch.setenv("MLFLOW_ALLOW_PICKLE_DESERIALIZATION", "false")
    return partial(examine, storage=trained.study.directory.parent)


def forget_digests(trained: Trained, found: Exported) -> None:
    """Remove the digests of the version's files from the registry."""
    trained.client.delete_model_version_tag(found.name, str(found.version), "calstudy.artifacts")


def record_digests(trained: Trained, found: Exported) -> None:
    """Make the version's files, as they are now, those registered."""
    trained.client.set_model_version_tag(
        found.name,
        str(found.version),
        "calstudy.artifacts",
        json.dumps(digests_of(trained.artifacts(found))),
    )


def softmax(logits: np.ndarray) -> np.ndarray:
    """[N, K], plainly."""
    shifted = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
    return shifted / shifted.sum(axis=1, keepdims=True)


def load(trained: Trained, exported: Exported) -> object:
    import mlflow.pyfunc

    return mlflow.pyfunc.load_model(
        str(trained.artifacts(exported)), model_config={"device": "cpu"}
    )


# ---- what is registered --------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [1, 7])
def test_gives_softmax_of_the_measured_logits_over_the_fitted_temperature(
    trained: Trained, exported: Exported, batch: int
) -> None:
    stored = trained.learner.predict()
    images = load_split(trained.learner.data.prepared, "validation").images[:batch].float().numpy()
    probs = load(trained, exported).predict(images)
    assert probs.shape == (batch, 10) and probs.dtype == np.float32
    assert_allclose(probs.sum(axis=1), 1, atol=1e-6)
    temperature = references.fit_temperature(stored.logits, stored.labels, prior=1.0)
    assert exported.temperature == approx(temperature, rel=1e-6)
    assert_allclose(probs, softmax(stored.logits.numpy()[:batch] / temperature), atol=1e-5)


def test_says_where_it_comes_from(trained: Trained, exported: Exported) -> None:
    version = trained.version(exported)
    tags = version.tags
    assert (tags["calstudy.study"], tags["calstudy.trial"], tags["calstudy.method"]) == (
        "small",
        "focal/0003",
        "focal",
    )
    assert json.loads(tags["calstudy.params"]) == {"method.gamma": 2.0}
    assert json.loads(tags["calstudy.config"])["method"] == {"name": "focal", "gamma": 2.0}
    assert tags["calstudy.data_digest"] == trained.learner.data.prepared.digest
    assert (
        version.run_id is not None
        and trained.client.get_run(version.run_id).data.tags["calstudy.id"] == tags["calstudy.id"]
    )
    raw = trained.record.metrics
    for shown in (f"{raw['ece']:.4f}", f"{raw['ts_ece']:.4f}", "Test", "focal/0003"):
        assert shown.lower() in version.description.lower()
    assert "each result is the epoch" not in version.description.lower()
    stored = trained.learner.predict()
    probs = softmax(stored.logits.numpy() / exported.temperature)
    assert exported.metrics["nll"] == approx(references.nll(np.log(probs), stored.labels), abs=1e-6)
    assert exported.metrics["accuracy"] == raw["accuracy"]


def test_has_signature_and_example_and_no_pickle(trained: Trained, exported: Exported) -> None:
    model = load(trained, exported)
    (inputs,), (outputs,) = (
        model.metadata.signature.inputs.inputs,
        model.metadata.signature.outputs.inputs,
    )
    assert (inputs.shape, inputs.type) == ((-1, 1, 8, 8), np.dtype("float32"))
    assert (outputs.shape, outputs.type) == ((-1, 10), np.dtype("float32"))
    assert model.input_example.shape == (2, 1, 8, 8)
    assert model.predict(model.input_example).shape == (2, 10)
    assert [file.name for file in (trained.artifacts(exported) / "data").iterdir()] == ["model.pt2"]


def test_twice_gives_one_version(trained: Trained, exported: Exported) -> None:
    again = trained.export("digits")
    assert again == replace(exported, created=False)
    assert len(trained.client.search_model_versions("name='digits'")) == 1


@pytest.fixture(scope="module")
def another(root: Path, server: str) -> Trained:
    return train(root, server, "other", "mlp", number=4)


def test_an_alias_moves_to_the_version_asked_for(
    trained: Trained, exported: Exported, another: Trained
) -> None:
    def champion() -> int:
        return int(trained.client.get_model_version_by_alias("digits", "champion").version)

    assert champion() == exported.version == 1
    other = another.export("digits", "champion")
    assert (other.version, other.created, champion()) == (2, True, 2)
    assert not trained.export("digits", "champion").created
    assert champion() == 1


def test_leaves_nothing_behind_and_says_nothing(
    trained: Trained, exported: Exported, capfd: pytest.CaptureFixture[str]
) -> None:
    import mlflow

    uri, runs = mlflow.get_tracking_uri(), len(trained.client.search_runs(["0", "1"]))
    trained.export("quiet")
    assert capfd.readouterr() == ("", "")
    assert mlflow.active_run() is None and mlflow.get_tracking_uri() == uri
    assert len(trained.client.search_runs(["0", "1"])) == runs


def test_a_kill_before_the_version_is_mended_by_the_next(
    trained: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(MlflowClient, "create_model_version", lambda *args, **kwargs: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            trained.export("killed")
    assert trained.export("killed").version == 1


# ---- what is refused -----------------------------------------------------------------------------


def copied(trained: Trained, to: Path) -> StudyFolder:
    shutil.copytree(trained.study.directory, to)
    return replace(trained.study, directory=to)


def shifted(trained: Trained, to: Path, by: float) -> tuple[StudyFolder, TrialRecord]:
    """The trial with the first logit of the first sample moved, and the ledger's digest with it."""
    study, record = copied(trained, to), trained.record
    path = study.files(record) / "predictions.npz"
    stored = Predictions.load(path)
    stored.logits[0, 0] += by
    return study, replace(record, digests={**record.digests, "predictions.npz": stored.save(path)})


def test_refuses_predictions_the_model_does_not_give(trained: Trained, tmp_path: Path) -> None:
    study, record = shifted(trained, tmp_path / "s", 1.0)
    logits = trained.learner.predict().logits.numpy()[:1]
    moved = logits.copy()
    moved[0, 0] += 1.0
    expected = np.abs(softmax(moved) - softmax(logits)).max()
    with pytest.raises(
        ExportError, match=rf"^focal/0003: .* by {expected:.2g} in probability .*limit .*: 1e-05"
    ):
        export(Choice(study, record), "refused", None, trained.uri)
    assert trained.client.search_model_versions("name='refused'") == []


@pytest.mark.parametrize("by", [0.05, 1.0])
def test_a_gpu_explains_more_but_not_all(trained: Trained, tmp_path: Path, by: float) -> None:
    study, record = shifted(trained, tmp_path / "s", by)
    record = replace(record, device="cuda")
    if by == 0.05:
        found = export(Choice(study, record), "from_gpu", None, trained.uri)
        assert 1e-5 < found.largest_difference < 2e-2
    else:
        with pytest.raises(ExportError, match=r"limit .*: 0\.02"):
            export(Choice(study, record), "from_gpu", None, trained.uri)


def test_a_gpu_does_not_explain_another_accuracy(trained: Trained) -> None:
    logits = torch.tensor([[0.0, 1e-3]]).repeat(100, 1)
    labels = torch.ones(100, dtype=torch.int64)
    other = logits.clone()
    other[0] = torch.tensor([1e-3, 0.0])
    record = replace(trained.record, device="cuda")
    with pytest.raises(ExportError, match=r"accuracy 0\.9900, .* 1\.0000"):
        exporting._agreement(record, Predictions(other, labels), Predictions(logits, labels))


@pytest.mark.parametrize("file", ["model.pt", "predictions.npz"])
def test_refuses_a_file_that_is_not_the_one_written(
    trained: Trained, tmp_path: Path, file: str
) -> None:
    study = copied(trained, tmp_path / "s")
    path = study.files(trained.record) / file
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(
        FieldError, match=rf"{file} has changed \(its digest differs from the ledger\)"
    ):
        export(Choice(study, trained.record), "refused", None, trained.uri)
    path.unlink()
    with pytest.raises(FieldError, match=rf"{file} is missing"):
        export(Choice(study, trained.record), "refused", None, trained.uri)


def test_refuses_other_data(trained: Trained) -> None:
    study = replace(trained.study, recorded=replace(trained.study.recorded, data_digest="0" * 64))
    with pytest.raises(ExportError, match="the data has changed since the trial was trained"):
        export(Choice(study, trained.record), "refused", None, trained.uri)


def test_refuses_a_trial_without_a_run_or_a_server(trained: Trained, tmp_path: Path) -> None:
    study = replace(trained.study, recorded=replace(trained.study.recorded, id="unknown"))
    with pytest.raises(ExportError, match="calstudy sync small"):
        export(Choice(study, trained.record), "refused", None, trained.uri)
    with pytest.raises(ExportError, match="calstudy sync"):
        export(
            Choice(trained.study, trained.record), "refused", None, f"sqlite:///{tmp_path}/none.db"
        )
    assert not (tmp_path / "none.db").exists()


def test_a_server_that_is_away_is_one_line_without_the_password(
    trained: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(ExportError, match=r"^MLflow at http://127\.0\.0\.1:9: ") as caught:
        export(
            Choice(trained.study, trained.record), "refused", None, "http://me:secret@127.0.0.1:9"
        )
    assert "secret" not in str(caught.value) and "\n" not in str(caught.value)


def refused(call: Callable[..., object], *words: str) -> bool:
    try:
        call(*words)
    except (MlflowException, ExportError):
        return True
    return False


def test_names_are_refused_as_the_registry_refuses_them(
    trained: Trained, exported: Exported
) -> None:
    """By the registry's own calls, which come too late: after the model has been uploaded."""
    client = trained.client
    for name in ["a/b", "a:b", "", " ", ".", "..", "..a", "a.", "a b", "-", "ä"]:
        assert refused(check_names, name, None) == refused(client.create_registered_model, name), (
            name
        )
    for alias in (
        "v1",
        "V12",
        "latest",
        "Latest",
        "a b",
        "",
        "a.b",
        "a" * 256,
        "a" * 255,
        "v",
        "v1a",
        "a-b_c",
        "ä",
        "1",
    ):
        by_registry = refused(
            client.set_registered_model_alias, "digits", alias, str(exported.version)
        )
        assert refused(check_names, "digits", alias) == by_registry, alias
        if not by_registry:
            client.delete_registered_model_alias("digits", alias)


@pytest.mark.parametrize(
    ("name", "alias"),
    [
        ("a/b", None),
        ("", None),
        ("a@b", None),
        ("digits", "v1"),
        ("digits", "latest"),
        ("digits", "a b"),
    ],
)
def test_refuses_a_name_in_one_line(trained: Trained, name: str, alias: str | None) -> None:
    with pytest.raises(ExportError) as caught:
        trained.export(name, alias)
    assert "\n" not in str(caught.value)


# ---- verify --------------------------------------------------------------------------------------


def as_a_module(
    command: list[str], env: dict[str, str], **how: object
) -> subprocess.CompletedProcess[str]:
    """What the command runs, with what this process has imported: that alone takes a fresh one
    ten seconds. test_hostile.py starts one."""
    assert command[:3] == [sys.executable, "-P", "-m"]
    shown = io.StringIO()
    with (
        mock.patch.dict(os.environ, env, clear=True),
        mock.patch("sys.argv", command[3:]),
        redirect_stdout(shown),
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings("ignore", "'study.registry.verify' found in sys.modules")
        runpy.run_module(command[3], run_name="__main__")
    return subprocess.CompletedProcess(command, 0, shown.getvalue(), "")


def test_verify_compares_every_sample_and_each_metric(
    trained: Trained,
    exported: Exported,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(verification, "subprocess", SimpleNamespace(run=as_a_module))
    report = verify(exported.uri, trained.uri, trained.study.directory.parent)
    assert report.ok, report
    assert {"probabilities", "accuracy", "nll", "ece"} <= {check.name for check in report.checks}
    assert report.num_samples == len(trained.learner.data.validation)
    assert report.flipped == 0
    assert json.loads(json.dumps(report.to_json()))["ok"] is True
    assert capfd.readouterr() == ("", "")


def test_verify_of_what_is_not_there(
    trained: Trained, exported: Exported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def started(*words: object, **how: object) -> None:
        raise AssertionError("a name is looked up before another process is started")

    monkeypatch.setattr(verification, "subprocess", SimpleNamespace(run=started))
    trained.client.set_registered_model_alias("digits", "the-best", "1")
    versions = trained.client.search_model_versions("name = 'digits'")
    numbers = ", ".join(sorted(str(each.version) for each in versions))
    there = f"there is no registered model 'digitz' at {trained.uri}."
    for uri, said in {
        "models:/digits/99": f"digits has no version 99. It has: {numbers}.",
        "models:/digitz/1": f"{there} Did you mean 'digits'?",
        "models:/digits@the-bst": "digits has no alias 'the-bst'. Did you mean 'the-best'?",
    }.items():
        with pytest.raises(FieldError) as caught:
            look_up(uri, trained.uri)
        assert str(caught.value) == f"{uri}: {said}"
    trained.client.delete_registered_model_alias("digits", "the-best")
    report = verify(exported.uri, f"sqlite:///{tmp_path}/none.db", tmp_path)
    assert not report.ok and "none.db" in (report.problem or "")
    assert not (tmp_path / "none.db").exists()


def altered_probs(directory: Path) -> None:
    path = directory / "calstudy" / "validation_probs.npz"
    with np.load(path, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    arrays["probs"][0] = arrays["probs"][0][::-1]
    np.savez(path, **arrays)


def altered_record(directory: Path) -> None:
    path = directory / "calstudy" / "record.json"
    record = json.loads(path.read_text())
    record["metrics"]["ece"] += 0.01
    path.write_text(json.dumps(record))


@pytest.mark.parametrize(
    ("alter", "file", "failing"),
    [
        (
            altered_probs,
            "calstudy/validation_probs.npz",
            {"probabilities", "stored probabilities with a different digest"},
        ),
        (
            altered_record,
            "calstudy/record.json",
            {"tags that differ from the record (metrics)", "ece"},
        ),
    ],
)
def test_verify_finds_what_was_altered(
    trained: Trained,
    here: Callable[..., object],
    alter: Callable[[Path], None],
    file: str,
    failing: set[str],
) -> None:
    """By its digest; and where that is of the altered file, by what it holds."""
    exported = trained.export(alter.__name__)
    alter(trained.artifacts(exported))
    with pytest.raises(
        NotVerified, match=f"^its files are not .* not opened: {file} has changed.$"
    ):
        here(exported.uri)
    record_digests(trained, exported)
    report = here(exported.uri)
    assert not report.ok
    assert {check.name for check in report.checks if not check.ok} == failing


def test_verify_finds_another_model(
    trained: Trained, here: Callable[..., object], another: Trained
) -> None:
    exported, other = trained.export("swapped"), another.export("digits")
    shutil.copy(
        trained.artifacts(other) / "data" / "model.pt2",
        trained.artifacts(exported) / "data" / "model.pt2",
    )
    record_digests(trained, exported)
    report = here(exported.uri)
    failing = {check.name: check for check in report.checks if not check.ok}
    assert {"probabilities", "nll"} <= set(failing)
    assert failing["probabilities"].found > 0.01


class Payload:
    """Runs when unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return os.mkdir, (str(self.mark),)


def test_verify_refuses_pickle(
    trained: Trained, here: Callable[..., object], tmp_path: Path
) -> None:
    exported = trained.export("pickled")
    data = trained.artifacts(exported) / "data"
    (data / "model.pt2").unlink()
    torch.save(Payload(tmp_path / "ran"), data / "model.pth")
    (data / "pickle_module_info.txt").write_text("pickle")
    record_digests(trained, exported)
    with pytest.raises(Exception, match="not an exported program alone"):
        here(exported.uri)
    assert not (tmp_path / "ran").exists()


def test_verify_refuses_code(trained: Trained, here: Callable[..., object]) -> None:
    exported = trained.export("with_code")
    file = trained.artifacts(exported) / "MLmodel"
    file.write_text(
        file.read_text().replace("loader_module: mlflow.pytorch", "loader_module: json")
    )
    record_digests(trained, exported)
    with pytest.raises(NotVerified, match=r"run its own code .*json"):
        here(exported.uri)


def test_verify_needs_the_data_and_a_record(
    trained: Trained,
    exported: Exported,
    here: Callable[..., object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(FieldError, match="models:/NAME/VERSION"):
        here("models:/m-1234")
    with monkeypatch.context() as patch:
        other = DataDigests("f" * 64, "e" * 64)
        patch.setattr("study.registry.verify.data_digests", lambda dataset, seed: other)
        with pytest.raises(NotVerified, match="the data has changed"):
            here(exported.uri)
    plain = trained.export("plain")
    shutil.rmtree(trained.artifacts(plain) / "calstudy")
    record_digests(trained, plain)
    with pytest.raises(NotVerified, match="it was not registered by `calstudy export`"):
        here(plain.uri)


def test_batch_norm_is_registered_as_it_evaluates(root: Path, server: str) -> None:
    cnn = train(root, server, "with_batch_norm", "cnn", result="best_nll")
    exported = cnn.export("with_batch_norm")
    assert "epoch with the best nll on the validation split" in cnn.version(exported).description
    # In training mode the batch's own statistics would be taken, and a sample's output
    # would depend on the others.
    images = load_split(cnn.learner.data.prepared, "validation").images[:16]
    model = load(cnn, exported)
    together = model.predict(images.float().numpy())
    alone = np.concatenate([model.predict(image[None].float().numpy()) for image in images])
    assert_allclose(together, alone, atol=1e-6)
    logits = cnn.learner.predict().logits.numpy()[:16]
    assert_allclose(together, softmax(logits / exported.temperature), atol=1e-5)
