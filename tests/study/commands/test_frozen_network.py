"""Studies of a network that others have trained, of which they train the last layer: from the
file of its weights to a verified model, and what is refused."""

import importlib.util
import json
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torchvision import models

from study.answer.choice import Choice
from study.answer.confirmation import results_of
from study.registry.export import export
from study.store.files import stored_classifier
from study.store.study import StudyFolder, open_study
from tests.frozen_network import NETWORK, network, normalised, with_head, written
from tests.study.command_line import here, here_json, write_spec
from trainables.loading import frozen
from trainables.loading.cache import load_split, prepare
from trainables.loading.sealed_split import open_test
from trainables.loading.trial_data import _trial_data
from trainables.outputs.classifier import Classifier
from trainables.problems import FieldError
from trainables.training.attempt import Assignment, Attempt
from trainables.training.device import NodeUnfit

pytestmark = pytest.mark.slow


def frozen_model(file: object, **settings: Any) -> dict[str, Any]:
    found = {"name": "torchvision", "network": NETWORK, "weights": str(file), "train": "head"}
    return {**found, **settings}


class Counted:
    """The images that backbones were asked for."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.sizes: list[int] = []
        logits = Classifier.logits

        def counted(classifier: Classifier, images: torch.Tensor) -> torch.Tensor:
            if images.dim() == 4 and isinstance(images.shape[0], int):  # not traced
                self.sizes.append(len(images))
            return logits(classifier, images)

        patch.setattr(Classifier, "logits", counted)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A storage with a finished study of four trials, and the file of weights beside it."""
    root = tmp_path_factory.mktemp("storage")
    file = written(root)
    spec = write_spec(root / "small.yaml", model=frozen_model(file.name), trials=2, epochs=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CALSTUDY_CACHE", str(root / "cache"))
        counted = Counted(patch)
        here("run", spec, "--storage", root)
        study = open_study("small", str(root))
        sizes = study.recorded.sizes
        # One to check the shape at the start, two for what a stack trains: then the data, once.
        assert sum(counted.sizes) == 3 + sizes["train"] + sizes["validation"]
        yield root
        _trial_data.cache_clear()


@pytest.fixture
def study(root: Path) -> StudyFolder:
    return open_study("small", str(root))


def test_it_is_audited_clean(root: Path) -> None:
    """MLflow has the path of the weights, which may change."""
    assert here_json("audit", "small", "--storage", root)["clean"]


def test_its_trials_keep_a_head_and_the_digest_of_what_it_was_trained_on(
    study: StudyFolder, root: Path
) -> None:
    records = study.records().complete
    assert len(records) == 4
    assert len({record.features for record in records}) == 1
    for record in records:
        model = study.files(record) / "model.pt"
        assert model.stat().st_size < 30_000  # 5,130 numbers
        state = torch.load(model, weights_only=True)
        assert {name: tuple(value.shape) for name, value in state.items()} == {
            "mean": (1,),
            "std": (1,),
            "temperature": (),
            "network.head.weight": (10, 512),
            "network.head.bias": (10,),
        }
    meta = json.loads(next(root.glob("cache/*.*/meta.json")).read_text())
    assert records[0].features == meta["features"]
    assert list(study.recorded.weights or {}) == [meta["origin"]["sha256"]]
    assert study.recorded.meaning["model"] == frozen_model("a file")


def test_its_stored_classifier_takes_images(study: StudyFolder, root: Path) -> None:
    record = study.records().complete[0]
    prepared = prepare(study.spec.data, 0)
    classifier, temperature = stored_classifier(study, record, prepared)
    split = load_split(prepared, "validation")
    live = with_head(root / "weights-0.pth", study.files(record) / "model.pt")
    with torch.no_grad():
        expected = live(normalised(split.images.numpy()))
        torch.testing.assert_close(classifier.logits(split.images), expected, rtol=0, atol=1e-5)
        probs = (expected.double() / temperature).softmax(-1)
        found = classifier(split.images).double()
    torch.testing.assert_close(found, probs, rtol=0, atol=1e-6)


def test_it_is_exported_with_one_pass_and_verified(
    study: StudyFolder, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Counted(monkeypatch)
    here("export", "small", "--name", "m", "--storage", root)
    assert counted.sizes == [1]  # its width: what is exported is asked, and nothing else
    found = here_json("verify", "models:/m/1", "--storage", root)
    assert found["ok"] and found["num_samples"] == study.recorded.sizes["validation"]


def test_a_cache_that_is_not_what_the_network_gives_is_not_exported(
    study: StudyFolder, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exported graph, on images, proves the features: here it has other weights."""
    record = study.records().complete[0]
    other = network(1)
    other.fc = nn.Identity()
    monkeypatch.setattr("trainables.models.torchvision.Torchvision.backbone", lambda *_: other)
    with pytest.raises(Exception, match="the exported graph differs from the model"):
        export(
            Choice(results_of(study).study, record),
            "other",
            None,
            f"sqlite:///{root / 'mlflow.db'}",
        )


def test_it_is_confirmed_on_images(root: Path, study: StudyFolder) -> None:
    here("confirm", "small", "--seeds", 1, "--top", 1, "--storage", root)
    confirmed = open_study("small-confirm", str(root))
    prepared = prepare(study.spec.data, 0)

    class Log:
        def has(self, number: int) -> bool:
            return True

    images = open_test(prepared, 1, Log()).images
    record = confirmed.records().complete[0]
    with np.load(confirmed.files(record) / "test.npz") as stored:
        live = with_head(root / "weights-0.pth", confirmed.files(record) / "model.pt")
        with torch.no_grad():
            expected = live(normalised(images.numpy()))
        np.testing.assert_allclose(stored["logits"], expected.numpy(), rtol=0, atol=1e-5)
    assert not list(root.glob("cache/*.*/test*"))


def test_weights_may_move_but_not_change(root: Path, study: StudyFolder, tmp_path: Path) -> None:
    moved = shutil.copy(root / "weights-0.pth", tmp_path / "moved.pth")
    keys: dict[str, Any] = {"trials": 2, "epochs": 2}
    spec = write_spec(tmp_path / "small.yaml", model=frozen_model(moved), **keys)
    assert "nothing is left to train" in here("plan", spec, "--storage", root)
    other = written(tmp_path, 1)
    spec = write_spec(tmp_path / "small.yaml", model=frozen_model(other), **keys)
    for command in ("plan", "run"):
        said = here(command, spec, "--storage", root, check=2)
        assert f"model.weights: the weights of {NETWORK} have changed since 'small'" in said
        assert said.count("\n") == 1
    record = study.records().complete[0]
    changed = replace(study, recorded=replace(study.recorded, weights={"0" * 64: NETWORK}))
    with pytest.raises(FieldError, match=f"the weights of {NETWORK} have changed since it was"):
        stored_classifier(changed, record, prepare(study.spec.data, 0))


def begun(folder: Path, study: StudyFolder, **settings: Any) -> Assignment:
    config = study.spec.trial_mapping("focal")
    digest = study.recorded.data_digest
    resources = {"cpu": 1.0, "gpu": 0.0}
    given = Assignment(
        "focal/0000", str(folder), 1, {**config, "epochs": 3}, digest, 0.0, resources
    )
    return replace(given, step_seconds=0.0, weights=study.recorded.weights or {}, **settings)


def test_an_attempt_on_other_features_starts_over_and_says_so(
    tmp_path: Path, study: StudyFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Attempt(begun(tmp_path, study))
    first.prepare()
    first.step()
    assert (tmp_path / "attempt-1" / "last.pt").exists()
    again = Attempt(begun(tmp_path, study, attempt=2))
    again.step()
    assert "resumed from attempt-1 after epoch 1" in (tmp_path / "attempt-2/log").read_text()
    # Another kind of machine, whose features are others in their last digits.
    monkeypatch.setenv("CALSTUDY_CACHE", str(tmp_path / "cache"))
    outputs = frozen._outputs
    monkeypatch.setattr(frozen, "_outputs", lambda *given: (1.001 * x for x in outputs(*given)))
    _trial_data.cache_clear()
    other = Attempt(begun(tmp_path, study, attempt=3))
    other.prepare()
    report = other.step()
    _trial_data.cache_clear()
    assert [row["epoch"] for row in report.rows] == [1]
    log = (tmp_path / "attempt-3" / "log").read_text()
    for number in (1, 2):
        assert f"attempt-{number}/last.pt: was trained on features of another kind" in log
    while report.outcome is None:
        report = other.step()
    assert report.outcome.features not in (None, study.records().complete[0].features)


def test_a_node_with_other_weights_or_none_is_not_fit(
    tmp_path: Path, study: StudyFolder, root: Path
) -> None:
    trial = Attempt(replace(begun(tmp_path, study), weights={"0" * 64: NETWORK}))
    with pytest.raises(NodeUnfit, match=f"has other weights of {NETWORK}, sha256 "):
        trial.step()
    given = begun(tmp_path, study)
    model = {**given.config["model"], "weights": str(tmp_path / "none.pth")}  # type: ignore[dict-item]
    trial = Attempt(replace(given, config={**given.config, "model": model}))
    with pytest.raises(NodeUnfit, match="lacks the weights of the network"):
        trial.step()


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"model": {"weights": "none"}}, "model.train: head needs trained weights"),
        ({"model": {"weights": "lost.pth"}}, "/lost.pth cannot be read (No such file"),
        ({"model": {"weights": "code.pth"}}, "/code.pth needs pickle, which may run code"),
        ({"model": {"network": "resnet34"}}, "does not fit resnet34: it lacks layer1.2."),
        (
            {"model": {"network": "densenet121", "weights": "dense.pth"}},
            "model.network: densenet121 does not support images of 3x8x8",
        ),
        (
            {"data": {"name": "digits", "augment": "flip"}},
            "data.augment: flip has no effect on a network that is run once (train: head)",
        ),
        (
            {"search_space": {"data.augment": {"choices": ["none", "crop"]}}},
            "data.augment: crop has no effect on a network that is run once (train: head)",
        ),
        (
            {"search_space": {"model.weights": {"choices": ["none", "default"]}}},
            "model.train: head needs trained weights",
        ),
    ],
)
def test_what_is_refused(root: Path, tmp_path: Path, keys: dict[str, Any], said: str) -> None:
    torch.save(nn.Linear(2, 2), tmp_path / "code.pth")
    if "dense.pth" in str(keys):
        torch.save(models.densenet121(weights=None).state_dict(), tmp_path / "dense.pth")
    model = frozen_model(root / "weights-0.pth", **keys.get("model", {}))
    spec = write_spec(tmp_path / "small.yaml", **{**keys, "name": "other", "model": model})
    shown = here("plan", spec, "--storage", tmp_path, check=2)
    assert said in shown and shown.count("\n") == 1


def test_without_timm_one_line_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    there = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "timm" else there(name)
    )
    spec = write_spec(tmp_path / "small.yaml", model={"name": "timm", "network": "test_vit"})
    shown = here("plan", spec, "--storage", tmp_path, check=2)
    assert "model: timm is not installed. pip install 'calstudy[timm]'\n" in shown
