"""Schedules against PyTorch's own and against closed forms; clipping against its definition."""

from collections.abc import Callable
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.testing import assert_close

from search_spaces import strict_yaml
from study.schema.errors import SpecError
from study.schema.reading import spec_from_mapping
from trainables import models
from trainables.config import TrialConfig
from trainables.loading.trial_data import trial_data
from trainables.optimizer import Optimizer
from trainables.problems import FieldError
from trainables.training import weights as weights_module
from trainables.training.learner import Learner
from trainables.training.weights import Weights

UPDATES = 1000
TORCHS: dict[str, Any] = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "adagrad": torch.optim.Adagrad,
}


def rates_of(optimizer: Optimizer) -> list[float]:
    return [optimizer.learning_rate(update / UPDATES) for update in range(UPDATES)]


def rates_of_torch(scheduler: Callable[[torch.optim.Optimizer], Any], lr: float) -> list[float]:
    """The rate of each update as PyTorch's scheduler has it, stepped once an update."""
    sgd = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=lr)
    made, rates = scheduler(sgd), []
    for _ in range(UPDATES):
        rates.append(sgd.param_groups[0]["lr"])
        sgd.step()
        made.step()
    return rates


def test_cosine_is_pytorchs() -> None:
    theirs = rates_of_torch(
        lambda sgd: torch.optim.lr_scheduler.CosineAnnealingLR(sgd, UPDATES), 0.2
    )
    assert rates_of(Optimizer(lr=0.2)) == pytest.approx(theirs, abs=1e-9)


def test_steps_are_pytorchs_milestones() -> None:
    theirs = rates_of_torch(
        lambda sgd: torch.optim.lr_scheduler.MultiStepLR(sgd, [400, 600], gamma=0.1), 0.1
    )
    ours = rates_of(Optimizer(lr=0.1, schedule="steps", steps=(0.4, 0.6), factor=0.1))
    assert ours == pytest.approx(theirs, rel=1e-9)


def test_steps_of_the_papers_fall_between_the_right_epochs() -> None:
    """Mukhoti et al. 2020: 0.1 until epoch 150 of 350, 0.01 until 250, then 0.001, whatever
    the updates of an epoch."""
    optimizer = Optimizer(lr=0.1, schedule="steps", steps=(0.428571, 0.714285))
    for updates in (1, 352, 704):
        for epoch, before, after in ((150, 0.1, 0.01), (250, 0.01, 0.001)):
            assert optimizer.learning_rate((epoch - 1 / updates) / 350) == pytest.approx(before)
            assert optimizer.learning_rate(epoch / 350) == pytest.approx(after)


def test_one_cycle_is_pytorchs() -> None:
    def theirs(sgd: torch.optim.Optimizer) -> Any:
        return torch.optim.lr_scheduler.OneCycleLR(
            sgd, 0.4, total_steps=UPDATES + 1, cycle_momentum=False
        )

    # PyTorch's peak is update 0.3 * total - 1, ours at a share of 0.3: one update apart.
    assert rates_of(Optimizer(lr=0.4, schedule="one_cycle")) == pytest.approx(
        rates_of_torch(theirs, 0.4), abs=2e-3
    )
    points = [
        Optimizer(lr=0.4, schedule="one_cycle").learning_rate(progress)
        for progress in (0.0, 0.3, 1.0)
    ]
    assert points == pytest.approx([0.4 / 25, 0.4, 0.4 / 25e4])


def test_triangular_is_two_lines() -> None:
    """The constants of airbench94: from 0.2 of the rate, to all of it at 23%
    of training, to 0.07."""
    shares = np.linspace(0, 1, 501)
    ours = [
        Optimizer(lr=3.0, schedule="triangular").learning_rate(share) for share in shares.tolist()
    ]
    assert ours == pytest.approx(3.0 * np.interp(shares, [0, 0.23, 1], [0.2, 1, 0.07]))


@pytest.mark.parametrize("schedule", ["constant", "cosine", "steps", "one_cycle", "triangular"])
def test_warmup_is_a_line_to_where_the_schedule_is_by_then(schedule: str) -> None:
    plain, warmed = (
        Optimizer(lr=0.1, schedule=schedule),
        Optimizer(lr=0.1, schedule=schedule, warmup=0.2),
    )
    there = plain.learning_rate(0.2)
    assert [warmed.learning_rate(0.2 * share) for share in (0.0, 0.25, 0.5)] == pytest.approx(
        [0, there / 4, there / 2]
    )
    for progress in (0.2, 0.5, 0.75, 0.9):
        assert warmed.learning_rate(progress) == plain.learning_rate(progress)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"steps": []}, "steps: must be a list of numbers such as [0.5, 0.75], got []."),
        ({"steps": 0.5}, "steps: must be a list of numbers such as [0.5, 0.75], got 0.5."),
        ({"steps": [0.5, "x"]}, "steps: must be a list of finite numbers, but contains 'x'."),
        ({"steps": [True]}, "steps: must be a list of finite numbers, but contains True."),
        ({"steps": [150, 250]}, "steps: each number must be > 0 and < 1, got 150."),
        ({"schedule": "step"}, "schedule: there is no 'step'. Did you mean 'steps'?"),
        ({"factor": 1}, "factor: must be > 0 and < 1, got 1."),
        ({"warmup": 1}, "warmup: must be >= 0 and < 1, got 1."),
        ({"clip": 0}, "clip: must be > 0, got 0."),
        ({"nesterov": 1}, "nesterov: must be true or false, got 1."),
        ({"bias_lr_factor": 0}, "bias_lr_factor: must be > 0, got 0."),
    ],
)
def test_values_that_cannot_be_taken(values: dict[str, Any], said: str) -> None:
    with pytest.raises(FieldError) as error:
        Optimizer(**values)
    assert str(error.value) == said


STUDY = {"name": "s", "data": "digits", "model": "mlp", "methods": ["focal"]}


def test_a_list_survives_the_files_of_a_study(tmp_path: Path) -> None:
    written = "{schedule: steps, steps: [0.25, 1e-1, 0.75], clip: 2}"
    spec = spec_from_mapping({**STUDY, "optimizer": strict_yaml.parse(written)}, "s.yaml")
    assert spec.optimizer.steps == (0.25, 0.1, 0.75)
    (tmp_path / "study.yaml").write_text(
        strict_yaml.dump({"spec": spec.to_mapping(), "meaning": spec.meaning()})
    )
    stored = strict_yaml.read(tmp_path / "study.yaml")
    again = spec_from_mapping(stored["spec"], "study.yaml")
    assert again == spec and strict_yaml.one_line(again.meaning()) == strict_yaml.one_line(
        stored["meaning"]
    )
    trial = TrialConfig.from_mapping(spec.trial_mapping("focal"))
    assert (
        TrialConfig.from_mapping(trial.to_mapping()) == trial and trial.optimizer == spec.optimizer
    )


def test_search_space_paths_of_the_optimizer() -> None:
    space = {
        "optimizer.warmup": {"low": 0.0, "high": 0.2},
        "optimizer.clip": {"low": 0.5, "high": 5.0, "log": True},
    }
    space["optimizer.schedule"] = {"choices": ["cosine", "one_cycle"]}
    spec = spec_from_mapping({**STUDY, "search_space": space}, "s.yaml")
    assert set(space) <= set(spec.variants[0].space.distributions)
    with pytest.raises(
        SpecError, match=r"search_space.optimizer.warmup: `high` must be >= 0 and < 1"
    ):
        spec_from_mapping(
            {**STUDY, "search_space": {"optimizer.warmup": {"low": 0.0, "high": 2.0}}}, "s.yaml"
        )


def one_update(**optimizer: Any) -> tuple[Learner, list[torch.Tensor]]:
    """A learner after one update of plain SGD with rate 1, and how each of its weights moved."""
    plain = {"lr": 1.0, "momentum": 0.0, "weight_decay": 0.0, "schedule": "constant", **optimizer}
    mapping = {
        "data": "digits",
        "model": "mlp",
        "method": "cross_entropy",
        "batch_size": 5000,
        "epochs": 1,
    }
    config = TrialConfig.from_mapping({**mapping, "optimizer": plain})
    made = Learner(config, trial_data(config, torch.device("cpu")), torch.device("cpu"))
    before = [parameter.detach().clone() for parameter in made.network.parameters()]
    made.train_epoch()
    return made, [
        (new - old).detach() for new, old in zip(made.network.parameters(), before, strict=True)
    ]


def test_a_field_declares_where_it_is_read() -> None:
    """Two values of it train the same network, bit for bit, where it is said to have no effect,
    and only there; what is not said to be read somewhere is read everywhere."""
    values = {
        "momentum": (0.5, 0.9),
        "nesterov": (False, True),
        "bias_lr_factor": (1.0, 8.0),
        "steps": ((0.1,), (0.5,)),
        "factor": (0.1, 0.5),
        "lr": (0.01, 0.1),
        "weight_decay": (0.0, 0.1),
        "warmup": (0.0, 0.5),
        "clip": (0.001, None),
    }
    named = {spec.name for spec in fields(Optimizer)}
    assert named == {*values, "name", "schedule"}
    every = [{"name": name} for name in TORCHS]
    every += [{"schedule": name} for name in ("constant", "steps", "one_cycle", "triangular")]
    for chosen in every:
        settings = {"lr": 0.01, **chosen}
        for name, (one, other) in values.items():
            first, second = (
                trained(Optimizer(**{**settings, name: value})) for value in (one, other)
            )
            has_none = name in Optimizer(**settings).inert
            assert torch.equal(first, second) == has_none, (chosen, name)


@cache
def trained(settings: Optimizer) -> torch.Tensor:
    """The weights after a whole training of five updates."""
    network = network_of_convolutions()
    weights, generator = (
        Weights(network.named_parameters(), settings),
        torch.Generator().manual_seed(0),
    )
    for step in range(5):
        images = torch.randn(4, 3, 8, 8, generator=generator).double()
        weights.backward(network(images).square().mean())
        weights.update(torch.tensor(settings.learning_rate(step / 5), dtype=torch.float64))
    return torch.cat([one.detach().flatten() for one in network.parameters()])


def test_clip_shortens_the_gradient_of_all_weights_together() -> None:
    _, free = one_update()
    norm = torch.cat([move.flatten() for move in free]).norm()
    _, clipped = one_update(clip=norm.item() / 4)
    for ours, theirs in zip(clipped, free, strict=True):
        assert_close(ours, theirs / 4, rtol=1e-4, atol=1e-7)
    _, above = one_update(clip=norm.item() * 4)
    for ours, theirs in zip(above, free, strict=True):
        assert_close(ours, theirs, rtol=0, atol=0)


@pytest.mark.parametrize("clip", [None, 0.5])
@pytest.mark.parametrize("decay", [0.0, 0.01])
@pytest.mark.parametrize(
    ("name", "momentum"),
    [("sgd", 0.0), ("sgd", 0.9), ("adam", 0.9), ("adamw", 0.9), ("adagrad", 0.9)],
)
def test_updates_are_pytorchs(name: str, momentum: float, decay: float, clip: float | None) -> None:
    settings = Optimizer(name=name, lr=0.05, momentum=momentum, weight_decay=decay, clip=clip)
    ours, theirs = (network_of_convolutions() for _ in range(2))
    rule = TORCHS[name]
    kept = {"momentum": momentum} if name == "sgd" else {}
    optimizer = rule(theirs.parameters(), lr=0.05, weight_decay=decay, **kept)
    weights, generator = (
        Weights(ours.named_parameters(), settings),
        torch.Generator().manual_seed(0),
    )
    for step in range(20):
        images, rate = torch.randn(16, 3, 8, 8, generator=generator).double(), 0.05 / (1 + step)
        optimizer.zero_grad()
        theirs(images).square().mean().backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(theirs.parameters(), clip)
        optimizer.param_groups[0]["lr"] = rate
        optimizer.step()
        weights.backward(ours(images).square().mean())
        weights.update(torch.tensor(rate, dtype=torch.float64))
    for mine, reference in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert_close(mine, reference, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("clip", [None, 0.5])
@pytest.mark.parametrize("factor", [1.0, 0.5, 64.0])
@pytest.mark.parametrize("nesterov", [False, True])
def test_nesterov_and_a_rate_for_biases_are_pytorchs(
    nesterov: bool, factor: float, clip: float | None
) -> None:
    """As in airbench94: two groups, in which rate times weight decay is the same. A scale
    of batch norm is no bias."""
    rule = {"lr": 0.01, "momentum": 0.85, "weight_decay": 0.1, "nesterov": nesterov}
    ours, theirs = (network_of_convolutions() for _ in range(2))
    theirs[1].weight.data += 1  # not 1: its decay is seen
    ours.load_state_dict(theirs.state_dict())
    biases = [theirs[0].bias, theirs[1].bias, theirs[3].bias]
    others = [theirs[0].weight, theirs[1].weight, theirs[3].weight, theirs[5].weight]
    groups = [{"params": others}, {"params": biases, "weight_decay": 0.1 / factor}]
    optimizer = torch.optim.SGD(groups, **rule)
    weights = Weights(ours.named_parameters(), Optimizer(**rule, bias_lr_factor=factor, clip=clip))
    generator = torch.Generator().manual_seed(0)
    for step in range(20):
        images, rate = torch.randn(16, 3, 8, 8, generator=generator).double(), 0.01 / (1 + step)
        optimizer.zero_grad()
        theirs(images).square().mean().backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(theirs.parameters(), clip)
        for group, times in zip(optimizer.param_groups, (1.0, factor), strict=True):
            group["lr"] = rate * times
        optimizer.step()
        weights.backward(ours(images).square().mean())
        weights.update(torch.tensor(rate, dtype=torch.float64))
    for mine, reference in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert_close(mine, reference, rtol=1e-6, atol=1e-6)


def test_adagrad_stays_pytorchs_over_many_steps_of_a_schedule_alone_or_stacked() -> None:
    """Its sum of squares never shrinks: an error would add up."""
    settings = [
        Optimizer(name="adagrad", lr=0.05, weight_decay=decay, schedule=schedule)
        for decay, schedule in ((1e-4, "constant"), (0.01, "steps"), (0.0, "one_cycle"))
    ]
    references = [network_of_convolutions() for _ in settings]
    optimizers = [
        torch.optim.Adagrad(network.parameters(), lr=0.05, weight_decay=each.weight_decay)
        for network, each in zip(references, settings, strict=True)
    ]
    held = []
    for several in (settings, *([each] for each in settings)):
        own = [(network_of_convolutions().named_parameters(), each) for each in several]
        held.append(Weights(*own[0], own[1:]))
    generator = torch.Generator().manual_seed(0)
    for step in range(150):
        rates = [each.learning_rate(step / 150) for each in settings]
        images = torch.randn(4, 3, 8, 8, generator=generator).double()
        for network, optimizer, rate in zip(references, optimizers, rates, strict=True):
            optimizer.zero_grad()
            network(images).square().mean().backward()
            optimizer.param_groups[0]["lr"] = rate
            optimizer.step()
        gradients = [
            flat([each.grad for each in network.parameters() if each.requires_grad], held[1])
            for network in references
        ]
        for weights in held:
            rows = range(3) if weights is held[0] else [held.index(weights) - 1]
            weights.gradient.copy_(torch.stack([gradients[row] for row in rows]))
            weights.update(torch.tensor([[rates[row]] for row in rows], dtype=torch.float64))
    for row, network in enumerate(references):
        trained = flat([each for each in network.parameters() if each.requires_grad], held[1])
        assert_close(held[0].vector[row], trained, rtol=1e-6, atol=1e-6)
        assert torch.equal(held[0].vector[row], held[1 + row].vector[0])


def flat(tensors: list[Any], weights: Weights) -> torch.Tensor:
    """Tensors of the parameters' shapes, as they lie in the vector."""
    found = torch.zeros_like(weights.vector[0])
    starts = [each.data_ptr() for each in weights.leaves.values()]
    for tensor, leaf, start in zip(tensors, weights.leaves.values(), starts, strict=True):
        first = (start - weights.vector.data_ptr()) // found.element_size()
        torch.as_strided(found, leaf.shape, leaf.stride(), first).copy_(tensor.detach())
    return found


@pytest.mark.parametrize("name", ["adam", "adamw", "adagrad"])
def test_adam_and_adagrad_know_neither(name: str) -> None:
    moved = []
    for more in ({}, {"nesterov": True, "bias_lr_factor": 8.0}):
        network = network_of_convolutions()
        weights = Weights(network.named_parameters(), Optimizer(name=name, **more))
        weights.backward(network(torch.ones(4, 3, 8, 8).double()).square().mean())
        weights.update(torch.tensor(0.1, dtype=torch.float64))
        moved.append(weights.vector)
    assert torch.equal(*moved)


def network_of_convolutions() -> nn.Sequential:
    """With layouts of two kinds, and a bias that is never trained."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        network = nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 5, 1), nn.Flatten()
        )
        network.append(nn.Linear(180, 3))
    network[-1].bias.requires_grad_(False)
    return network.double().to(memory_format=torch.channels_last)


def test_weights_that_a_loss_does_not_depend_on_have_no_gradient() -> None:
    used, unused = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(3))
    weights = Weights(
        [("used", used), ("unused", unused)], Optimizer(momentum=0.9, weight_decay=0.0)
    )
    for _ in range(2):
        weights.backward((3 * used).sum())
        weights.update(torch.tensor(0.1))
    assert_close(used, torch.full((2,), 1 - 0.3 - 0.57)), assert_close(unused, torch.ones(3))


def test_each_parameter_begins_on_a_boundary() -> None:
    """Of 213 in this network 26 would begin off 16 bytes, one after another."""
    network = models.find("torchvision")(network="efficientnet_b0", weights="none").build(
        (3, 32, 32), 10
    )
    lengths = [each.numel() for each in network.parameters()]
    starts = [sum(lengths[:index]) for index in range(len(lengths))]
    assert (len(lengths), sum(start % 4 != 0 for start in starts)) == (213, 26)
    held = Weights(network.named_parameters(), Optimizer())
    first = held.vector.data_ptr()
    assert {(each.data_ptr() - first) % (64 * 4) for each in network.parameters()} == {0}
    (moments,) = held.state()["moments"]
    assert len(moments) == sum(lengths)


@pytest.mark.parametrize(
    "settings",
    [
        {"clip": 0.1, "nesterov": True, "bias_lr_factor": 8.0},
        {"name": "adam", "clip": 0.1},
        {"name": "adamw", "weight_decay": 0.1},
        {"name": "adagrad", "weight_decay": 0.1},
    ],
)
def test_gaps_change_no_bit(settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither of the weights nor of what a checkpoint holds, nor after it was loaded."""
    found = []
    for boundary in (64, 1):
        monkeypatch.setattr(weights_module, "BOUNDARY", boundary)
        network = network_of_convolutions()
        held = Weights(network.named_parameters(), Optimizer(**settings))
        for step in range(6):
            images = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(step))
            held.backward(network(images.double()).square().mean())
            held.update(torch.tensor(0.1, dtype=torch.float64))
            if step == 3:
                saved = held.state()
                held.restart([Optimizer(**settings)])
                held.load(saved)
        found.append([*network.parameters(), *held.state()["moments"]])
    assert all(map(torch.equal, *found))
