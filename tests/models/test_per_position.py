"""Networks that give logits for every pixel."""

import hashlib
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.testing import assert_close
from torchvision import models

from trainables.model import Network
from trainables.models import find, names
from trainables.models.deeplabv3 import Deeplabv3
from trainables.models.shared.whole_module import network_of
from trainables.models.unet import Unet
from trainables.problems import FieldError

ODD = [(3, 37, 51), (1, 8, 9), (3, 5, 1)]
NETWORKS = [
    pytest.param(Unet(width=4, depth=2), id="unet"),
    pytest.param(Unet(width=3, depth=4), id="deep unet"),
    pytest.param(Deeplabv3(), id="deeplabv3", marks=pytest.mark.slow),
]
every_network = pytest.mark.parametrize("model", NETWORKS)


def images_of(shape: tuple[int, ...], count: int = 3) -> Tensor:
    return torch.randn(count, *shape, generator=torch.Generator().manual_seed(0))


def used(model: Any, shape: tuple[int, int, int], classes: int = 5) -> Network:
    """After a pass in training mode, so that batch norm has statistics of its own."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network: Network = model.build(shape, classes)
        with torch.no_grad():
            network(images_of(shape, 6) * 2 + 1)
    return network.eval()


def parameters(network: nn.Module) -> int:
    return sum(weights.numel() for weights in network.parameters())


def test_these_two_are() -> None:
    of_images = {name for name in names() if "image" in find(name).takes}
    assert {name for name in of_images if find(name).per_position} == {"unet", "deeplabv3"}


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        *product([each.values[0] for each in NETWORKS[:2]], ODD),
        # Of a grey image and of odd sides: test_deeplabv3_is_torchvisions.
        pytest.param(Deeplabv3(), (3, 5, 1), id="deeplabv3", marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_logits_have_the_size_of_the_images(model: Any, shape: tuple[int, int, int]) -> None:
    network = used(model, shape)
    images = images_of(shape)
    with torch.no_grad():
        logits = network(images)
        assert logits.shape == (3, 5, *shape[1:]) and logits.isfinite().all()
        assert_close(network.head(network.features(images)), logits)
    convolutions = [one for one in network.head.modules() if isinstance(one, nn.Conv2d)]
    assert [one.kernel_size for one in convolutions] == [(1, 1)]
    assert network_of(model, shape, 5).state_dict().keys() == network.state_dict().keys()


@every_network
def test_an_image_has_the_logits_that_it_has_alone(model: Any) -> None:
    network = used(model, (3, 13, 10))
    images = images_of((3, 13, 10))
    with torch.no_grad():
        alone = torch.cat([network(image[None]) for image in images])
        assert_close(network(images), alone, atol=1e-5, rtol=1e-5)
        assert_close(network(images.flip(0)).flip(0), alone, atol=1e-5, rtol=1e-5)


def test_exported_for_batches_of_any_size_it_is_the_same() -> None:
    network = used(Unet(width=4, depth=2), (3, 21, 18))
    batch = torch.export.Dim("batch", min=1)
    program = torch.export.export(
        network, (images_of((3, 21, 18), 4),), dynamic_shapes=({0: batch},)
    )
    exported = program.module()
    with torch.no_grad():
        for count in (1, 5):
            images = images_of((3, 21, 18), count)
            assert_close(exported(images), network(images), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    "model",
    [
        *NETWORKS[:2],
        pytest.param(Deeplabv3(), id="deeplabv3", marks=[pytest.mark.slow, pytest.mark.platform]),
    ],
)
def test_trains_on_eight_images(model: Any) -> None:
    """Each quarter of an image has one class, and its colour."""
    quarters = images_of((3, 2, 2), 8).argmax(dim=1)
    labels = quarters.repeat_interleave(32, 1).repeat_interleave(32, 2)
    images = F.one_hot(labels, 3).movedim(-1, 1) * 2.0 - 1
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = model.build((3, 64, 64), 3)
        optimizer = torch.optim.Adam(network.parameters(), 1e-3)
        losses = []
        for _ in range(6):
            loss = F.cross_entropy(network(images), labels)
            optimizer.zero_grad()
            loss.backward()
            for path, weights in network.named_parameters():
                assert weights.grad is not None and weights.grad.isfinite().all(), path
            optimizer.step()
            losses.append(loss.item())
    assert losses[-1] < losses[0] - 0.1


# ---- U-Net ---------------------------------------------------------------------------------------


def test_unet_has_the_parameters_counted_by_hand() -> None:
    def block(before: int, after: int) -> int:
        return 9 * (before * after + after**2) + 4 * after

    down = block(3, 12) + block(12, 24) + block(24, 48) + block(48, 96)
    up = block(96 + 48, 48) + block(48 + 24, 24) + block(24 + 12, 12)
    count = parameters(Unet().build((3, 90, 120), 11))
    assert count == down + up + 12 * 11 + 11 == 274_979


def test_unet_pads_with_the_mean_to_the_right_and_below() -> None:
    """What it pads itself is what a user would have padded with zeros."""
    network = used(Unet(width=4, depth=3), (3, 16, 24))
    images = images_of((3, 11, 17))
    with torch.no_grad():
        whole = network(F.pad(images, (0, 7, 0, 5)))
        assert_close(network(images), whole[:, :, :11, :17])


@pytest.mark.parametrize("options", [{"width": 0}, {"depth": 0}])
def test_sizes_are_checked(options: dict[str, int]) -> None:
    with pytest.raises(FieldError, match="must be >= 1"):
        Unet(**options)


# ---- DeepLabV3 -----------------------------------------------------------------------------------


def saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, state: dict[str, Tensor]
) -> str:
    """Publish these weights as torchvision's only ones; their sha256."""
    torch.save(state, tmp_path / "weights.pth")
    digest = hashlib.sha256((tmp_path / "weights.pth").read_bytes()).hexdigest()
    file = (tmp_path / "weights.pth").rename(tmp_path / f"{name}-{digest[:8]}.pth")
    published = SimpleNamespace(url=file.as_uri())
    known = {name: {"IMAGENET1K_V1": published, "DEFAULT": published}}
    monkeypatch.setattr(models, "get_model_weights", known.__getitem__)
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path / "hub"))
    return digest


@pytest.mark.slow
def test_deeplabv3_has_the_published_parameters_without_the_auxiliary_classifier() -> None:
    auxiliary = 9 * 1024 * 256 + 2 * 256 + 256 * 21 + 21
    published = 42_004_074  # DeepLabV3_ResNet50_Weights.meta["num_params"]
    with torch.device("meta"):
        network = Deeplabv3().build((3, 32, 32), 21)
    assert parameters(network) == published - auxiliary


@pytest.mark.slow
def test_deeplabv3_is_torchvisions_and_starts_from_its_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "deeplabv3_resnet50"
    theirs = models.get_model(name, weights=None, weights_backbone=None, aux_loss=True).eval()
    digest = saved(tmp_path, monkeypatch, name, theirs.state_dict())
    model = Deeplabv3(weights="default")
    assert model.origin() == (name, digest, "torchvision", (), ())
    images = images_of((3, 33, 41), 2)
    with torch.no_grad():
        same = model.build((3, 33, 41), 21).eval()
        assert_close(same(images), theirs(images)["out"])
        grey = model.build((1, 33, 41), 4).eval()
        features = same.features(images[:, :1].expand(-1, 3, -1, -1))
        assert_close(grey.features(images[:, :1]), features)
        assert grey(images[:, :1]).shape == (2, 4, 33, 41)


@pytest.mark.slow
def test_deeplabv3_starts_from_a_resnet_of_imagenet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resnet = models.get_model("resnet50", weights=None)
    digest = saved(tmp_path, monkeypatch, "resnet50", resnet.state_dict())
    model = Deeplabv3(weights="backbone")
    assert model.origin() == ("resnet50", digest, "torchvision", (), ())
    expected = {key: one for key, one in resnet.state_dict().items() if key[:2] != "fc"}
    found = model.build((3, 32, 32), 4).features.get_submodule("backbone").state_dict()
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[key], one) for key, one in expected.items())


def test_deeplabv3_without_internet_says_which_file_belongs_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    published = {"DEFAULT": SimpleNamespace(url=(tmp_path / "x" / "deep-cd0a2569.pth").as_uri())}
    monkeypatch.setattr(models, "get_model_weights", lambda name: published)
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path / "hub"))
    with pytest.raises(FieldError, match=r"^weights: those of deeplabv3_resnet101 cannot be"):
        Deeplabv3(network="resnet101", weights="default").origin()
    assert Deeplabv3().origin() is None


def test_deeplabv3_refuses_images_of_other_channels() -> None:
    with pytest.raises(FieldError, match="of one or three channels, not of 4"):
        Deeplabv3().build((4, 32, 32), 3)
