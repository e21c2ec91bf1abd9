"""A training step keeps to the device: on `meta`, which has no values, nothing can be read, and every tensor of the
host that takes part is seen."""

from collections import Counter
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from trainables import methods, models
from trainables.config import TrialConfig
from trainables.learner import Learner
from trainables.loading.trial_data import trial_data

META = torch.device("meta")
# They change how a tensor is looked at, or reserve memory; a GPU has nothing to do.
FREE = {"detach", "alias", "empty", "empty_like", "empty_strided", "new_empty", "_reshape_alias", "_unsafe_view"}


class Operations(TorchDispatchMode):
    """Counts the operations that a GPU would run, and notes those that a tensor of the host takes part in."""

    def __init__(self) -> None:
        super().__init__()
        self.run: Counter[str] = Counter()
        self.with_host: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if not func.is_view and name not in FREE:
            self.run[name] += 1
        found = [each for each in tree_leaves((args, kwargs, result)) if isinstance(each, torch.Tensor)]
        if any(each.device != META for each in found):
            self.with_host.append(name)
        return result


def operations_of_a_step(**settings: Any) -> Operations:
    plain = {"data": {"name": "digits", "augment": "crop_flip"}, "model": "cnn", "method": "cross_entropy", **settings}
    config = TrialConfig.from_mapping(plain)
    learner = Learner(config, trial_data(config, META), META)
    generator, counted = torch.Generator(), Operations()
    (choices,) = learner._decided(torch.arange(2 * config.batch_size), generator)
    now = choices.to(META).at(1)
    with learner._training(1), counted:
        learner._step(now, generator)
    return counted


@pytest.mark.parametrize("method", methods.names())
def test_no_method_reads_or_copies_within_a_step(method: str) -> None:
    assert not operations_of_a_step(method=method).with_host


@pytest.mark.parametrize("model", [name for name in models.names() if name not in ("mlp", "torchvision")])
def test_no_network_reads_or_copies_within_a_step(model: str) -> None:
    assert not operations_of_a_step(model=model).with_host


def test_the_gpu_starts_few_operations_in_a_step() -> None:
    """Of 179 before, 20 counted batch norm's batches."""
    assert operations_of_a_step(model="resnet18").run.total() <= 150


def test_a_read_and_a_copy_would_be_seen() -> None:
    with Operations() as counted:
        torch.zeros(3, device=META) + torch.tensor([1.0, 2.0, 3.0]).to(META)
    assert counted.with_host
    with pytest.raises(RuntimeError), Operations():
        torch.zeros(3, device=META).sum().item()
