"""torchvision's networks: which are taken, weights that are read from a file, and what is said
where they cannot be."""

import hashlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.testing import assert_close
from torchvision import models

from tests.frozen_network import HAS_TIMM
from trainables.models.shared.pretrained import read_state
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


@pytest.fixture(params=["pth", *["safetensors"] * HAS_TIMM])
def suffix(request: pytest.FixtureRequest) -> str:
    """timm brings what reads and writes .safetensors."""
    return str(request.param)


def save(state: dict[str, torch.Tensor], file: Path) -> None:
    if file.suffix == ".pth":
        torch.save(state, file)
        return
    from safetensors.torch import save_file

    save_file(state, file)


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
    made = Torchvision(network="densenet121", weights="default")
    assert list(made.renamed(read_state(made.published()), made.bare()[0])) == names


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


def test_random_weights_are_drawn_as_torchvision_draws_them() -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        ours = Torchvision(network=NETWORK).build((3, 64, 64), 7).state_dict()
        torch.manual_seed(3)
        theirs = models.get_model(NETWORK, weights=None)
        head = torch.nn.Linear(theirs.fc.in_features, 7)
    expected = {f"features.{key}": value for key, value in theirs.state_dict().items()}
    del expected["features.fc.weight"], expected["features.fc.bias"]
    expected |= {f"head.{key}": value for key, value in head.state_dict().items()}
    assert list(ours) == list(expected)
    for key, value in expected.items():
        assert torch.equal(ours[key], value), key


def test_weights_of_a_file_are_taken_and_a_last_layer_of_other_classes_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    theirs = models.get_model(NETWORK, weights=None, num_classes=3).eval()
    file = tmp_path / f"own.{suffix}"
    save(theirs.state_dict(), file)
    monkeypatch.chdir(tmp_path)
    made = Torchvision(network=NETWORK, weights=file.name)
    assert made.weights == str(file)  # workers have another working directory
    images = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        assert_close(theirs.fc(made.build((3, 64, 64), 7).eval().features(images)), theirs(images))
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    assert made.origin() == (NETWORK, digest, "torchvision", (), ())
    assert Torchvision(network=NETWORK).origin() is None


def test_a_frozen_network_has_the_statistics_of_its_published_weights(tmp_path: Path) -> None:
    theirs = models.get_model(NETWORK, weights=None).eval()
    torch.save(theirs.state_dict(), tmp_path / "own.pth")
    made = Torchvision(network=NETWORK, weights=str(tmp_path / "own.pth"), train="head")
    origin = made.origin()
    assert origin is not None
    # ImageNet's, as everybody writes them.
    assert origin.mean == pytest.approx([255 * mean for mean in (0.485, 0.456, 0.406)])
    assert origin.std == pytest.approx([255 * std for std in (0.229, 0.224, 0.225)])
    images = torch.randn(2, 3, 64, 64)
    network = made.backbone((1, 64, 64))
    with torch.no_grad():
        assert_close(theirs.fc(network(images)), theirs(images))
    assert not network.training
    assert not any(weights.requires_grad for weights in network.parameters())
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        head = made.build((1024,), 7)
        torch.manual_seed(5)
        assert torch.equal(head.head.weight, torch.nn.Linear(1024, 7).weight)
    assert list(head.state_dict()) == ["head.weight", "head.bias"]


def test_a_head_needs_weights_that_were_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(FieldError, match=r"^train: head needs trained weights, but"):
        Torchvision(train="head")
    torch.save({}, tmp_path / "own.pth")
    monkeypatch.setattr(models, "get_model_weights", lambda name: [])
    with pytest.raises(FieldError, match=r"^train: .*, and resnet18 has none"):
        Torchvision(train="head", weights=str(tmp_path / "own.pth")).origin()
    with pytest.raises(FieldError, match=r"^weights: resnet18 has no published weights"):
        Torchvision(weights="default").origin()


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "cannot be read .No such file.*path of a .pth or .safetensors file"),
        (b"hello", "cannot be read as weights"),
        ({"conv1.0.weight": torch.zeros(2)}, "does not fit .*: of another shape conv1.0.weight"),
        (
            {"first": torch.zeros(2)},
            "does not fit .*: it lacks conv1.0.weight, .* more; it also has first",
        ),
    ],
)
def test_a_file_that_is_none_of_weights_is_refused_in_a_line(
    tmp_path: Path, content: Any, problem: str, suffix: str
) -> None:
    file = tmp_path / f"own.{suffix}"
    if isinstance(content, bytes):
        file.write_bytes(content)
    elif content is not None:
        save(content, file)
    with pytest.raises(FieldError, match=f"^weights: {file} {problem}") as error:
        made = Torchvision(network=NETWORK, weights=str(file))
        made.origin()
        made.build((3, 64, 64), 7)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (torch.nn.Linear(2, 2), "needs pickle, which may run code.*state_dict.. alone"),
        ({"state_dict": {}, "epoch": 3}, "has no weights by name but state_dict, epoch"),
        ([torch.zeros(2)], "has no weights by name. Save the network's state_dict"),
    ],
)
def test_what_torch_saves_beside_weights_is_refused(
    tmp_path: Path, content: object, problem: str
) -> None:
    torch.save(content, tmp_path / "own.pth")
    with pytest.raises(FieldError, match=f"^weights: .*own.pth {problem}") as error:
        Torchvision(network=NETWORK, weights=str(tmp_path / "own.pth")).build((3, 64, 64), 7)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["mnasnet0_5", "resnet18"])
def test_weights_of_older_versions_are_read(tmp_path: Path, name: str) -> None:
    """Of MNASNet, whose layers say of which version they are; and without the counters that batch
    norm had none of, as most were published."""
    theirs = models.get_model(name, weights=None).eval()
    state = theirs.state_dict()
    if name == "resnet18":
        for key in [key for key in state if key.endswith("num_batches_tracked")]:
            del state[key]
        state = dict(state)
    torch.save(state, tmp_path / "own.pth")
    network = Torchvision(network=name, weights=str(tmp_path / "own.pth")).build((3, 32, 32), 7)
    last = theirs.fc if name == "resnet18" else theirs.classifier[-1]
    images = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        assert_close(last(network.eval().features(images)), theirs(images))
