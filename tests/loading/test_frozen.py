"""Features of a frozen network: those of the live network, computed once, and of one key each."""

import hashlib
import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.testing import assert_close

from tests.frozen_network import NETWORK, WIDTH, network, normalised, written
from trainables import methods
from trainables.config import TrialConfig
from trainables.data.digits import Digits
from trainables.dataset import RawData, RawSplit
from trainables.files.digest import file_digest
from trainables.inputs import Inputs
from trainables.loading import frozen
from trainables.loading.cache import load_split, prepare
from trainables.loading.frozen import features_of
from trainables.loading.trial_data import TrialData, prepared_for, trial_data
from trainables.outputs.classifier import Classifier
from trainables.problems import FieldError
from trainables.training import checkpoint
from trainables.training.learner import Learner

CPU = torch.device("cpu")


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """With the weights in a file, and a cache: for tests that leave both as they are. Of the digits
    there are the first 300."""
    folder, read = tmp_path_factory.mktemp("frozen"), Digits.read

    def few(digits: Digits) -> RawData:
        raw = read(digits)
        return replace(raw, train=RawSplit(raw.train.images[:300], raw.train.labels[:300]))

    written(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Digits, "read", few)
        patch.setattr(frozen, "PREDICTION_BATCH", 128)
        patch.setenv("CALSTUDY_CACHE", str(folder / "cache"))
        yield folder


@pytest.fixture
def file(folder: Path) -> Path:
    return folder / "weights-0.pth"


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALSTUDY_CACHE", str(tmp_path / "cache"))


def config(file: Path, **settings: Any) -> TrialConfig:
    model = {"name": "torchvision", "network": NETWORK, "weights": str(file), "train": "head"}
    plain = {"data": "digits", "model": model, "method": "cross_entropy", "epochs": 1, **settings}
    return TrialConfig.from_mapping(plain)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The images of each forward pass of the network."""
    seen: list[int] = []
    forward = Classifier.logits

    def logits(self: Any, images: torch.Tensor) -> torch.Tensor:
        seen.append(len(images))
        return forward(self, images)

    monkeypatch.setattr(Classifier, "logits", logits)
    return seen


def test_they_are_what_the_live_network_gives(file: Path) -> None:
    trial = config(file)
    made = prepared_for(trial, CPU)
    raw = prepare(trial.data, 0)
    theirs = network()
    theirs.fc = nn.Identity()
    head = nn.Linear(WIDTH, 10)
    for split in ("train", "validation"):
        images = load_split(raw, split).images.numpy()
        stored = load_split(made, split).images
        assert stored.dtype == torch.float32 and stored.shape == (len(images), WIDTH)
        with torch.no_grad():
            assert_close(head(stored), head(theirs(normalised(images))), rtol=0, atol=1e-6)
        assert torch.equal(load_split(made, split).labels, load_split(raw, split).labels)
    assert (made.mean, made.std, made.digest) == ((0.0,), (1.0,), raw.digest)
    assert (tuple(made.input_shape), made.input_shape.kind) == ((WIDTH,), "features")
    assert made.sizes == raw.sizes
    assert not list(made.directory.glob("test*"))


@pytest.mark.usefixtures("own_cache")
def test_they_are_computed_once_for_all_trials(file: Path, counted: list[int]) -> None:
    trial = config(file)
    made = prepared_for(trial, CPU)
    assert counted == [1, 128, made.sizes["train"] - 128, made.sizes["validation"]]
    counted.clear()
    others = replace(trial, number=1, epochs=3), replace(trial, method=methods.find("focal")())
    for other in others:
        Learner(other, trial_data(other, CPU), CPU).train_epoch()
        assert prepared_for(other, CPU) == made
    assert counted == []


def test_other_weights_and_other_images_are_other_features(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = prepared_for(config(file), CPU)
    other = prepared_for(config(written(tmp_path, 1)), CPU)
    split = prepared_for(config(file, seed=1), CPU)
    moved = Path(shutil.copy(file, tmp_path / "elsewhere.pth"))
    assert prepared_for(config(moved), CPU) == first
    assert len({first.directory, other.directory, split.directory}) == 3
    assert len({first.features, other.features, split.features}) == 3
    monkeypatch.setattr(frozen, "versions", lambda names: dict.fromkeys(names, "0.0"))
    assert prepared_for(config(moved), CPU).directory != first.directory


@pytest.mark.usefixtures("own_cache")
@pytest.mark.parametrize("damage", ["train.npy", "meta.json"])
def test_damaged_ones_are_computed_again(
    file: Path, damage: str, counted: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    trial = config(file)
    made = prepared_for(trial, CPU)
    there = made.directory / damage
    content = there.read_bytes()
    there.write_bytes(content[:-1])
    counted.clear()
    assert prepared_for(trial, CPU) == made
    assert sum(counted) > made.sizes["train"]
    assert "prepared again" in capsys.readouterr().err
    assert there.read_bytes() == content


def test_the_record_of_a_cache_says_what_it_is_of(file: Path) -> None:
    made = prepared_for(config(file), CPU)
    meta = json.loads((made.directory / "meta.json").read_text())
    assert (meta["device"], meta["origin"]["name"]) == ("cpu", NETWORK)
    assert np.load(made.directory / "train.npy").dtype == np.dtype("<f4")
    digests = [file_digest(made.directory / f"{split}.npy") for split in ("train", "validation")]
    assert [meta["sha256"]["train.npy"], meta["sha256"]["validation.npy"]] == digests
    assert made.features == hashlib.sha256("".join(digests).encode()).hexdigest()


def test_augmentation_is_refused(file: Path) -> None:
    trial = config(file, data={"name": "digits", "augment": "flip"})
    with pytest.raises(FieldError, match=r"^data.augment: flip has no effect .*train: all"):
        trial_data(trial, CPU)


def test_images_that_the_network_does_not_take(file: Path) -> None:
    raw = prepare(config(file).data, 0)
    empty = replace(raw, input_shape=Inputs((1, 0, 8)), directory=raw.directory / "empty")
    with pytest.raises(FieldError, match=f"^network: {NETWORK} does not support images of 3x0x8"):
        features_of(config(file).model, empty, CPU)


def test_a_trial_is_the_head_alone_and_resumes_bit_for_bit(file: Path, tmp_path: Path) -> None:
    trial = config(file, epochs=3)
    whole, parted = (Learner(trial, trial_data(trial, CPU), CPU) for _ in range(2))
    for _ in range(3):
        whole.train_epoch()
    parted.train_epoch()
    checkpoint.save(parted, tmp_path / "last.pt")
    again = config(Path(shutil.copy(file, tmp_path / "elsewhere.pth")), epochs=3)
    resumed = Learner(again, trial_data(again, CPU), CPU)
    assert checkpoint.load(resumed, tmp_path / "last.pt")
    for _ in range(2):
        resumed.train_epoch()
    assert list(resumed.network.state_dict()) == ["head.weight", "head.bias"]
    for name, value in whole.network.state_dict().items():
        assert torch.equal(value, resumed.network.state_dict()[name]), name
    assert whole.history[-1]["accuracy"] > 0.5


def test_a_checkpoint_on_other_features_is_not_gone_on_with(file: Path, tmp_path: Path) -> None:
    trial = config(file)
    made = Learner(trial, trial_data(trial, CPU), CPU)
    checkpoint.save(made, tmp_path / "last.pt")
    assert checkpoint.load(made, tmp_path / "last.pt")
    made.data = TrialData(replace(made.data.prepared, features="0" * 64), CPU, "none", None)
    with pytest.raises(checkpoint.OtherFeatures):
        checkpoint.load(made, tmp_path / "last.pt")


def test_the_model_of_a_head_is_small(file: Path, tmp_path: Path) -> None:
    """2,048 features, as ResNet-50 has them, and ten classes."""
    head = config(file).model.build(Inputs((2048,), "features"), 10)
    Classifier(head, (0.0,), (1.0,), kind="features").save(tmp_path / "model.pt")
    assert (tmp_path / "model.pt").stat().st_size < 100_000


@pytest.mark.parametrize("method", methods.names())
def test_every_method_trains_a_head(file: Path, method: str) -> None:
    trial = config(file, method=method)
    made = Learner(trial, trial_data(trial, CPU), CPU)
    before = made.network.head.weight.detach().clone()
    row = made.train_epoch()
    assert np.isfinite(row["train_loss"])
    assert not torch.equal(before, made.network.head.weight)
