"""The whitening stem against NumPy, one patch at a time; the network's sizes, counted by hand."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from trainables.config import TrialConfig
from trainables.loading.cache import load_split
from trainables.loading.trial_data import trial_data
from trainables.models.airbench import EPSILON, IMAGES, Airbench, whitening_filters
from trainables.outputs.classifier import Classifier
from trainables.problems import FieldError
from trainables.training import checkpoint
from trainables.training.learner import Learner

CPU = torch.device("cpu")
SETTINGS = {
    "data": {"name": "digits", "augment": "crop_alternating_flip"},
    "model": {"name": "airbench", "width": 4},
}
SETTINGS |= {
    "method": "cross_entropy",
    "batch_size": 64,
    "epochs": 3,
    "optimizer": {"lr": 0.05, "nesterov": True},
}


def learner(device: torch.device = CPU, **more: object) -> Learner:
    config = TrialConfig.from_mapping({**SETTINGS, **more})
    return Learner(config, trial_data(config, device), device)


def correlated_images(count: int, channels: int, height: int, width: int) -> torch.Tensor:
    """Neighbours and channels are alike, as in photographs; mean 0."""
    noise = np.random.default_rng(channels).normal(size=(count, channels, height + 1, width))
    noise = noise[:, :, 1:] + 0.7 * noise[:, :, :-1] + 0.5 * noise[:, :1, 1:]
    return torch.from_numpy(noise - noise.mean()).float()


def patches_of(images: torch.Tensor) -> np.ndarray:
    """[M, C * 4] float64: every 2x2 patch, one at a time."""
    count, _, height, width = images.shape
    found = [
        images[i, :, y : y + 2, x : x + 2].double().numpy().ravel()
        for i in range(count)
        for y in range(height - 1)
        for x in range(width - 1)
    ]
    return np.array(found)


@pytest.mark.parametrize(("channels", "height", "width"), [(1, 8, 8), (3, 9, 6)])
def test_the_stem_whitens_the_patches(channels: int, height: int, width: int) -> None:
    images = correlated_images(40, channels, height, width)
    patches, filters = patches_of(images), whitening_filters(images).double().flatten(1).numpy()
    size = 4 * channels
    assert filters.shape == (2 * size, size) and np.array_equal(filters[size:], -filters[:size])
    responses = patches @ filters[:size].T
    # Uncorrelated, and of variance 1 but for what is added to the eigenvalues.
    eigenvalues = np.linalg.svd(patches, compute_uv=False) ** 2 / len(patches)
    assert np.allclose(
        responses.T @ responses / len(responses),
        np.diag(eigenvalues / (eigenvalues + EPSILON)),
        atol=1e-5,
    )
    assert eigenvalues.min() > 100 * EPSILON and np.all(np.diff(eigenvalues) < 0)
    # The stem as a convolution gives the same responses, largest direction first.
    network = Airbench().build((channels, height, width), 10)
    network.adapt(lambda count: images[:count])
    maps = network.features.whitening(images)[:, :size].permute(0, 2, 3, 1).reshape(-1, size)
    assert_close(maps.detach().double().numpy(), responses, rtol=1e-4, atol=1e-5)


def test_whitening_is_the_same_whatever_the_order_of_the_images() -> None:
    images = correlated_images(1200, 3, 5, 5)
    assert_close(whitening_filters(images.flip(0)), whitening_filters(images), rtol=0, atol=1e-6)


def test_directions_without_variance_stay_finite() -> None:
    """Of grey images in three channels eight directions are empty."""
    images = correlated_images(50, 1, 6, 6).expand(-1, 3, -1, -1)
    filters = whitening_filters(images)
    assert torch.isfinite(filters).all() and filters.abs().max() <= EPSILON**-0.5


def test_it_has_the_parameters_counted_by_hand() -> None:
    convolutions = 9 * (24 * 64 + 64 * 64 + 64 * 256 + 3 * 256 * 256)
    network = Airbench().build((3, 32, 32), 10)
    # Of the stem and of batch norm only the biases are trained.
    assert (
        sum(each.numel() for each in network.parameters())
        == 24 + convolutions + 2 * (64 + 256 + 256) + 10 * 256
    )
    narrow = Airbench(width=8).build((3, 32, 32), 10)
    assert narrow.head.in_features == 32 and narrow.features.block1[0].out_channels == 8


def test_maps_have_the_published_sizes() -> None:
    shapes, features = [], Airbench().build((3, 32, 32), 10).features
    maps = torch.zeros(2, 3, 32, 32)
    for layer in features:
        maps = layer(maps)
        shapes.append(tuple(maps.shape[1:]))
    assert shapes == [
        (24, 31, 31),
        (24, 31, 31),
        (64, 15, 15),
        (256, 7, 7),
        (256, 3, 3),
        (256, 1, 1),
        (256,),
    ]


def test_convolutions_begin_as_the_identity_of_their_input() -> None:
    for layer in (
        layer
        for layer in Airbench().build((3, 32, 32), 10).modules()
        if type(layer) is torch.nn.Conv2d
    ):
        images = torch.randn(2, layer.in_channels, 5, 5)
        assert_close(layer(images)[:, : layer.in_channels], images)


@pytest.mark.parametrize("shape", [(1, 2, 2), (3, 2, 40), (2, 5, 9), (3, 25, 64)])
def test_images_of_any_size_from_2x2(shape: tuple[int, int, int]) -> None:
    assert Airbench(width=4).build(shape, 7)(torch.randn(3, *shape)).shape == (3, 7)


def test_smaller_images_are_refused() -> None:
    with pytest.raises(FieldError, match="airbench takes images of at least 2x2 pixels, got 3x1x8"):
        Airbench().build((3, 1, 8), 10)


def test_a_learner_whitens_by_images_it_trains_on_and_never_trains_the_filters() -> None:
    made = learner(method="gamma_net")  # its meta split is none of them
    stem, prepared = made.network.features.whitening, made.data.prepared
    pixels = load_split(prepared, "train").images[made.train.rows[:IMAGES]].double()
    images = (pixels - prepared.mean[0]) / prepared.std[0]
    before = stem.weight.clone()
    assert_close(before.contiguous(), whitening_filters(images.float()), rtol=1e-5, atol=1e-5)
    made.train_epoch()
    assert torch.equal(stem.weight, before) and stem.bias.abs().sum() > 0


def test_the_filters_do_not_depend_on_the_device_or_the_trial() -> None:
    asked: list[torch.Tensor] = []
    config = TrialConfig.from_mapping({**SETTINGS, "number": 1})
    for device in (CPU, torch.device("meta")):
        asked.append(trial_data(config, device).images_of(torch.arange(30)))
    assert asked[1].device == CPU and torch.equal(*asked)
    assert torch.equal(
        learner(number=1).network.features.whitening.weight,
        learner().network.features.whitening.weight,
    )


def test_a_resumed_training_equals_one_without_interruption(tmp_path: Path) -> None:
    whole, first = learner(), learner()
    for _ in range(3):
        whole.train_epoch()
    first.train_epoch()
    checkpoint.save(first, tmp_path / "last.pt")
    resumed = learner()
    assert checkpoint.load(resumed, tmp_path / "last.pt")
    for _ in range(2):
        resumed.train_epoch()
    for name, value in whole.network.state_dict().items():
        assert torch.equal(value, resumed.network.state_dict()[name]), name


def test_a_trained_network_is_loaded_without_images(tmp_path: Path) -> None:
    made = learner()
    made.train_epoch()
    made.classifier().save(tmp_path / "model.pt")
    prepared = made.data.prepared
    network = made.config.model.build(prepared.input_shape, prepared.num_classes)
    classifier = Classifier(network, prepared.mean, prepared.std).load(tmp_path / "model.pt")
    with torch.no_grad():
        logits = classifier.logits(load_split(prepared, "validation").images)
    assert_close(logits, made.predict().logits, rtol=1e-4, atol=1e-4)


def test_scaled_logits_are_a_smaller_head_that_learns_slower() -> None:
    """By algebra (W' = s W): logits times s are those of a head that starts at s of its weights and
    is trained at s^2 of the rate with 1 / s^2 of the decay."""
    scale, rate, decay = 1 / 9, 0.5, 0.01
    torch.manual_seed(0)
    scaled = Airbench(width=4, logit_scale=scale).build((1, 8, 8), 10).double()
    plain = Airbench(width=4).build((1, 8, 8), 10).double()
    plain.load_state_dict(scaled.state_dict())
    with torch.no_grad():
        plain.head.weight.mul_(scale)
    body = list(plain.features.parameters())
    head = {"params": [plain.head.weight], "lr": rate * scale**2, "weight_decay": decay / scale**2}
    words = {"lr": rate, "weight_decay": decay, "momentum": 0.85, "nesterov": True}
    optimizers = [
        torch.optim.SGD(scaled.parameters(), **words),
        torch.optim.SGD([{"params": body}, head], **words),
    ]
    images, labels = torch.randn(32, 1, 8, 8).double(), torch.arange(32) % 10
    for _ in range(6):
        logits = [network(images) for network in (scaled, plain)]
        assert_close(*logits)
        for optimizer, found in zip(optimizers, logits, strict=True):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(found, labels).backward()
            optimizer.step()
    assert_close(scaled.head.weight * scale, plain.head.weight)


@pytest.mark.parametrize("method", ["mbls", "gamma_net", "meta_l2"])
def test_methods_that_read_logits_or_the_head_train_with_scaled_logits(method: str) -> None:
    model = {"name": "airbench", "width": 4, "logit_scale": 1 / 9}
    data = {**SETTINGS["data"], "meta": 0.1}  # type: ignore[dict-item]
    trained = learner(data=data, model=model, method=method, epochs=1)
    while not trained.finished:
        row = trained.train_epoch()
    features = trained.network.features(torch.zeros(4, 1, 8, 8))
    assert_close(trained.network.head(features), features @ trained.network.head.weight.T / 9)
    assert 0 <= row["ece"] <= 1
