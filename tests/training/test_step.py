"""A training step keeps to the device: on `meta`, which has no values, nothing can be read, and
every tensor of the host that takes part is seen."""

from collections import Counter
from dataclasses import fields
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch._dynamo.testing import CompileCounter
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torchvision.models import DenseNet
from torchvision.models.resnet import ResNet

from tests.texts import texts_file
from trainables import methods, models
from trainables.config import TrialConfig
from trainables.loading.trial_data import trial_data
from trainables.model import Network
from trainables.models.shared.resnet import three_stage_resnet
from trainables.tensors import with_tensors
from trainables.training.choices import ChoiceTable
from trainables.training.learner import Learner

META, CPU = torch.device("meta"), torch.device("cpu")
# They change how a tensor is looked at, or reserve memory; a GPU has nothing to do.
FREE = {
    "detach",
    "alias",
    "empty",
    "empty_like",
    "empty_strided",
    "new_empty",
    "_reshape_alias",
    "_unsafe_view",
}


class Operations(TorchDispatchMode):
    """Counts the operations that a GPU would run, and notes those that a tensor
    of the host takes part in."""

    def __init__(self) -> None:
        super().__init__()
        self.run: Counter[str] = Counter()
        self.with_host: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if not func.is_view and name not in FREE:
            self.run[name] += 1
        found = [
            each for each in tree_leaves((args, kwargs, result)) if isinstance(each, torch.Tensor)
        ]
        if any(each.device != META for each in found):
            self.with_host.append(name)
        return result


@patch("trainables.training.program.captures", lambda device: True)
def operations_of_a_step(**settings: Any) -> Operations:
    plain = {
        "data": {"name": "digits", "augment": "crop_flip"},
        "model": "cnn",
        "method": "cross_entropy",
        **settings,
    }
    config = TrialConfig.from_mapping(plain)
    learner = Learner(config, trial_data(config, META), META)
    generator, counted = torch.Generator(), Operations()
    (choices,) = learner._decided(torch.arange(2 * config.batch_size), generator)
    table = ChoiceTable(choices, META)
    table.fill(choices)
    with learner._training(1), counted:
        learner._program.advance(table, lambda now: learner._step(now, generator))
    return counted


@pytest.mark.parametrize("method", methods.names())
def test_no_method_reads_or_copies_within_a_step(method: str) -> None:
    assert not operations_of_a_step(model="mlp", method=method).with_host


# Those that give every pixel a class read on the host which pixels are labelled.
OF_IMAGES = [
    name
    for name in models.names()
    if "image" in models.find(name).takes and not models.find(name).per_position
]
OF_WORDS = [name for name in models.names() if "words" in models.find(name).takes]


@pytest.fixture
def shallow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Networks of one block where theirs has many alike."""

    def four_stages(block: Any, layers: list[int], num_classes: int) -> ResNet:
        return ResNet(block, [1] * len(layers), num_classes)

    def three_stages(blocks: int, *given: Any, **named: Any) -> Network:
        return three_stage_resnet(1, *given, **named)

    def dense(weights: None, num_classes: int) -> DenseNet:
        return DenseNet(32, (2, 2, 2, 2), 64, num_classes=num_classes)

    monkeypatch.setattr("trainables.models.shared.resnet.ResNet", four_stages)
    for name in ("resnet110", "wide_resnet_26_10"):
        monkeypatch.setattr(f"trainables.models.{name}.three_stage_resnet", three_stages)
    monkeypatch.setattr("trainables.models.densenet121.densenet121", dense)


@pytest.mark.usefixtures("shallow")
@pytest.mark.parametrize(
    "model", [name for name in OF_IMAGES if name not in ("mlp", "torchvision", "timm")]
)
def test_no_network_reads_or_copies_within_a_step(model: str) -> None:
    assert not operations_of_a_step(model=model).with_host


@pytest.mark.parametrize("model", OF_WORDS)
def test_no_network_of_texts_reads_or_copies_within_a_step(model: str) -> None:
    data = {"name": "text", "path": str(texts_file()), "label": "y", "length": 21}
    assert not operations_of_a_step(model=model, data=data).with_host


def test_the_gpu_starts_few_operations_in_a_step() -> None:
    """Of 179 before, 20 counted batch norm's batches."""
    assert operations_of_a_step(model="resnet18").run.total() <= 150


def test_nesterov_and_a_rate_for_biases_are_an_operation_each() -> None:
    plain = operations_of_a_step().run.total()
    assert (
        operations_of_a_step(optimizer={"nesterov": True, "bias_lr_factor": 64.0}).run.total()
        == plain + 2
    )


def test_a_read_and_a_copy_would_be_seen() -> None:
    with Operations() as counted:
        torch.zeros(3, device=META) + torch.tensor([1.0, 2.0, 3.0]).to(META)
    assert counted.with_host
    with pytest.raises(RuntimeError), Operations():
        torch.zeros(3, device=META).sum().item()


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [name for name in methods.names() if methods.find(name)().overrides("loss")]
)
def test_a_loss_is_one_graph_for_all_hyperparameters(name: str) -> None:
    """What `torch.compile` would make of it; nothing is compiled here."""
    torch._dynamo.reset()
    counter = CompileCounter()

    @torch.compile(backend=counter, fullgraph=True)
    def loss(
        method: Any, logits: torch.Tensor, labels: torch.Tensor, progress: torch.Tensor
    ) -> torch.Tensor:
        return method.loss(logits, labels, progress)

    logits, labels = torch.randn(32, 10), torch.arange(32) % 10
    numbers = {
        each.name: each.default
        for each in fields(methods.find(name))
        if isinstance(each.default, float)
    }
    for trial in range(4):
        method = methods.find(name)(
            **{field: value * (1 + trial / 10) / 1.5 for field, value in numbers.items()}
        )
        for progress in (0.0, 0.5, 0.9):
            loss(
                with_tensors(method, CPU),
                logits,
                labels,
                torch.tensor(progress, dtype=torch.float64),
            )
    assert counter.frame_count == 1
