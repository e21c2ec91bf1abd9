"""Whole epochs on a GPU that is only pretended: nothing mixes devices, and nothing is read back.

PyTorch's FakeTensorMode would do, but a backward pass of its tensors asks CUDA's driver.
"""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.masks import masks_and_config
from tests.pretended_gpu import GPU, Watched, pretended_gpu
from tests.texts import texts_file
from trainables import methods, models
from trainables.config import TrialConfig
from trainables.loading import batches, trial_data
from trainables.loading.trial_data import TrialData
from trainables.training.learner import Learner

SMALL = 2**17  # bytes, too few for the images
ROWS = {"data": {"name": "gaussian_clusters", "train": 200}, "model": "mlp"}
# They choose the next epoch's samples by what they saw.
ORDERING = {"sample_prioritization"}
# A loss; a start, a preparation, a step or an order of their own.
KINDS_OF_STEPS = [
    "cross_entropy",
    "focal_sample_dependent",
    "gamma_net",
    "meta_l2",
    "mixup",
    "reg_mixup",
    "sample_prioritization",
]
READ_OF_MASKS = {"nonzero", "_local_scalar_dense"}
OF_IMAGES = [
    name
    for name in models.names()
    if name not in ("cnn", "timm") and not models.find(name).per_position
    if "image" in models.find(name).takes
]


def learner_of(**settings: Any) -> Learner:
    plain = {
        "data": {"name": "digits", "augment": "crop_flip"},
        "model": {"name": "cnn", "width": 4},
        "method": "cross_entropy",
        "epochs": 2,
        "batch_size": 1024,
        "capture": "off",  # a GPU that is pretended has no graphs
        **settings,
    }
    config = TrialConfig.from_mapping(plain)
    return Learner(config, trial_data.trial_data(config, GPU), GPU)


def trained(watched: Watched, learner: Learner) -> list[str]:
    """Two epochs with their validation; what of the GPU was read on the host meanwhile."""
    watched.reads.clear()
    while not learner.finished:
        learner.advance()
    found = list(watched.reads)
    assert [row["epoch"] for row in learner.history] == [1, 2]
    assert watched.mixed == []
    learner.take_result()
    predictions = learner.predictions()
    assert predictions.logits.device.type == "cpu" and learner.facts()["device"] == "pretended"
    return found


@pytest.fixture(autouse=True)
def data_of_this_gpu() -> Any:
    """What is kept for a device is of one that was pretended."""
    trial_data._trial_data.cache_clear()
    yield
    trial_data._trial_data.cache_clear()


@pytest.mark.parametrize("method", KINDS_OF_STEPS)
def test_two_epochs_of_each_kind_of_step_on_images(method: str) -> None:
    with pretended_gpu() as watched:
        learner = learner_of(method=method, diagnostics=True, record="train_entropy")
        reads = trained(watched, learner)
        assert learner.train.place == "resident" and learner.entropies is not None
    assert len(reads) <= (1 if method in ORDERING else 0)


def places_of_rows() -> list[tuple[str, int, str]]:
    """Every method with rows that stay on the GPU; each kind of step with such as are streamed."""
    resident = [(method, 2**36, "resident") for method in methods.names()]
    return [*resident, *((method, 2**10, "streamed") for method in KINDS_OF_STEPS)]


@pytest.mark.parametrize(("method", "memory", "place"), places_of_rows())
def test_two_epochs_of_rows_of_numbers(method: str, memory: int, place: str) -> None:
    size = 256 if place == "resident" else 128  # one step an epoch, or two
    with pretended_gpu(memory) as watched:
        learner = learner_of(**ROWS, method=method, batch_size=size)
        reads = trained(watched, learner)
        assert learner.train.place == place
    assert len(reads) <= (1 if method in ORDERING else 0)


@pytest.mark.parametrize(
    ("method", "memory", "place"),
    [("cross_entropy", 2**13, "streamed"), ("meta_l2", 2**36, "resident")],
)
def test_two_epochs_of_texts(method: str, memory: int, place: str) -> None:
    data = {"name": "text", "path": str(texts_file()), "label": "y", "length": 12}
    with pretended_gpu(memory) as watched:
        model = {"name": "bag_of_words", "width": 8}
        learner = learner_of(data=data, model=model, method=method, batch_size=512)
        assert trained(watched, learner) == [] and learner.train.place == place


@pytest.mark.slow
@pytest.mark.parametrize("model", OF_IMAGES)
@pytest.mark.platform
def test_two_epochs_of_each_network(model: str) -> None:
    with pretended_gpu() as watched:
        assert trained(watched, learner_of(model=model)) == []


@pytest.mark.parametrize("method", ["meta_l2", "mixup"])
def test_two_epochs_of_images_that_are_streamed(method: str) -> None:
    with pretended_gpu(SMALL) as watched:
        learner = learner_of(method=method)
        assert learner.train.place == "streamed" and trained(watched, learner) == []


@pytest.mark.parametrize(
    "settings",
    [
        {"precision": "bfloat16", "optimizer": {"name": "adamw", "clip": 1.0}},
        {
            "deterministic": True,
            "result": "best_nll",
            "optimizer": {"nesterov": True, "bias_lr_factor": 64.0},
        },
    ],
    ids=str,
)
def test_two_epochs_of_other_settings(settings: dict[str, Any]) -> None:
    with pretended_gpu() as watched:
        assert trained(watched, learner_of(**settings)) == []


def test_training_goes_on_from_what_another_has_left() -> None:
    """As a checkpoint's values are taken, and as the next trial takes over a program."""
    with pretended_gpu() as watched:
        first, second = (learner_of(**ROWS, method="gamma_net") for _ in range(2))
        first.advance()
        first.catch_up()
        second.network.load_state_dict(first.network.state_dict())
        second.weights.load(first.weights.state())
        second.method_state = first.method_state
        second.history, second.samples = list(first.history), first.samples
        second.stand_after(first.epoch)
        trained(watched, second)
        third = learner_of(**ROWS, method="gamma_net")
        second._program.restart(third.config, third.network)
        assert watched.mixed == []


def test_a_mixture_and_a_reading_would_be_seen() -> None:
    with pretended_gpu() as watched:
        there = torch.ones(3, device=GPU)
        assert there.device == GPU and there.is_cuda and (there + 1.0).device == GPU
        assert watched.reads == watched.mixed == []
        torch.add(there, torch.ones(3).to(GPU))
        torch.mul(there, torch.ones(()))  # a number of the host may take part
        assert watched.mixed == []
        with pytest.raises(RuntimeError, match="not on the expected device"):
            torch.add(there, torch.ones(3))
        assert watched.mixed == ["add"]
        assert there.sum().item() == 0.0 and there.cpu().tolist() == [0.0] * 3
        assert watched.reads == ["_local_scalar_dense", "_to_copy"]


@pytest.mark.parametrize("place", ["resident", "streamed"])
def test_two_epochs_of_images_with_masks(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which pixels are labelled is read on the host: the steps are eager, and say so."""
    monkeypatch.setattr(batches, "place_of", lambda size, device: place)
    with pretended_gpu() as watched:
        config, data = masks_and_config(tmp_path, method="focal", epochs=2, capture="on")
        made = Learner(config, TrialData(data.prepared, GPU, config.data.augment, None), GPU)
        assert made.train.place == place
        assert made.eager_because == "a step waits for the device, which positions are labelled"
        assert set(trained(watched, made)) <= READ_OF_MASKS
