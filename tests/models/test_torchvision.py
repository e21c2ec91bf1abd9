"""torchvision's networks: which are taken, weights that are read from a file, and what is said
where they cannot be."""

import hashlib
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.testing import assert_close
from torchvision import models

from trainables.models.torchvision import Torchvision, networks
from trainables.problems import FieldError

NETWORK = "shufflenet_v2_x0_5"  # the smallest there is


def publish(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """Let torchvision say that its weights are found there."""
    weights = SimpleNamespace(DEFAULT=SimpleNamespace(url=url))
    monkeypatch.setattr(models, "get_model_weights", lambda name: weights)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path / "hub"))
    return tmp_path / "hub" / "checkpoints"


def published(tmp_path: Path, state: object) -> Path:
    """The state in a file named as torchvision names its own: a dash, then the first
    digits of its sha256."""
    torch.save(state, tmp_path / "weights.pth")
    digest = hashlib.sha256((tmp_path / "weights.pth").read_bytes()).hexdigest()
    return (tmp_path / "weights.pth").rename(tmp_path / f"{NETWORK}-{digest[:10]}.pth")


def test_takes_those_that_end_in_a_linear_layer() -> None:
    assert {"resnet50", "convnext_tiny", "vit_b_16", "densenet121", "efficientnet_b0"} <= set(
        networks()
    )
    assert not {"squeezenet1_0", "googlenet", "inception_v3"} & set(networks())
    with pytest.raises(FieldError, match="network: there is no 'resnet51'"):
        Torchvision(network="resnet51")


def test_weights_are_those_of_the_file_and_the_head_is_new(
    tmp_path: Path, hub: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = models.get_model(NETWORK, weights=None).eval()
    file = published(tmp_path, theirs.state_dict())
    publish(monkeypatch, file.as_uri())
    network = Torchvision(network=NETWORK, weights="default").build((3, 64, 64), 7).eval()
    assert (hub / file.name).is_file()
    images = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        # What torchvision's own last layer sees is what our head sees.
        assert_close(theirs.fc(network.features(images)), theirs(images))
        assert network(images).shape == (2, 7)
    file.unlink()  # from now on there is no internet, and none is needed
    assert Torchvision(network=NETWORK, weights="default").build((3, 64, 64), 7)


def test_grey_images_enter_as_three_equal_channels(hub: Path) -> None:
    network = Torchvision(network=NETWORK).build((1, 64, 64), 7).eval()
    images = torch.randn(2, 1, 64, 64)
    with torch.no_grad():
        assert_close(network.features(images), network.features[1](images.repeat(1, 3, 1, 1)))


def test_names_of_an_older_densenet_are_todays(
    tmp_path: Path, hub: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = list(models.get_model("densenet121", weights=None).state_dict())
    inner = ("norm1", "norm2", "conv1", "conv2")
    older = {
        f"{name[: name.index(part)]}{part[:4]}.{part[4]}{name[name.index(part) + 5 :]}"
        if (part := next((part for part in inner if "denselayer" in name and part in name), ""))
        else name: torch.tensor(0)
        for name in names
    }
    assert "features.denseblock1.denselayer1.norm.1.weight" in older and len(older) == len(names)
    publish(monkeypatch, published(tmp_path, older).as_uri())
    state = Torchvision(network="densenet121", weights="default")._published_weights()
    assert list(state) == names


def test_without_internet_one_line_says_which_file_belongs_where(
    tmp_path: Path, hub: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(monkeypatch, (tmp_path / "nowhere" / "resnet18-f37072fd.pth").as_uri())
    with pytest.raises(FieldError) as error:
        Torchvision(weights="default").build((3, 64, 64), 7)
    assert error.value.path == "weights" and "\n" not in error.value.problem
    assert f"copy it to {hub / 'resnet18-f37072fd.pth'}" in error.value.problem
    assert "No such file" in error.value.problem


def test_a_file_that_is_another_is_not_read(
    tmp_path: Path, hub: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = published(tmp_path, {}).rename(tmp_path / "resnet18-f37072fd.pth")
    publish(monkeypatch, other.as_uri())
    with pytest.raises(FieldError, match=r"different file, sha256 [0-9a-f]{8}, not f37072fd"):
        Torchvision(weights="default").build((3, 64, 64), 7)
    assert not (hub / "resnet18-f37072fd.pth").exists()


def test_images_it_does_not_take() -> None:
    with pytest.raises(
        FieldError, match=r"network: alexnet does not support images of 3x8x8: .*another network"
    ):
        Torchvision(network="alexnet").build((3, 8, 8), 7)
