"""A whole module of one's own becomes features and head, or its user is told what to return."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from trainables.model import Model, Network
from trainables.models.shared.whole_module import network_of
from trainables.problems import FieldError

SHAPE = (3, 8, 8)
K = 5


@dataclass(frozen=True)
class Given(Model):
    """Builds what a function makes."""

    make: object = None

    def build(self, input_shape: Any, num_classes: int) -> Any:
        return self.make()  # type: ignore[operator]


def network(make: Callable[[], Any], shape: tuple[int, ...] = SHAPE) -> Network:
    return network_of(Given(make), shape, K)


class Plain(nn.Module):
    """Convolution, batch norm, dropout, `fc`; `last` follows."""

    def __init__(self, last: Callable[[Tensor], Any] = lambda logits: logits, out: int = K) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 3)
        self.norm = nn.BatchNorm2d(6)
        self.hidden = nn.Linear(6 * 36, 7)
        self.drop = nn.Dropout(0.5)
        self.fc = nn.Linear(7, out)
        self.last = last

    def before(self, x: Tensor) -> Tensor:
        hidden: Tensor = self.hidden(self.norm(self.conv(x)).relu().flatten(1))
        return hidden

    def forward(self, x: Tensor) -> Any:
        return self.last(self.fc(self.drop(self.before(x).relu())))


class LikeLightning(nn.Module):
    """As a LightningModule: hooks beside a network, and a forward that gives its logits."""

    def __init__(self) -> None:
        super().__init__()
        self.net = Plain()
        self.loss = nn.CrossEntropyLoss()
        self.log = lambda *_: None

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.net(x)
        return logits

    def training_step(self, batch: Any, index: int) -> Tensor:
        return torch.zeros(())


def sequence() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 4), nn.Sequential(nn.Linear(4, K)))


@pytest.mark.parametrize("make", [Plain, LikeLightning, sequence])
@pytest.mark.parametrize("training", [False, True])
def test_it_gives_the_logits_of_the_module(make: Callable[[], nn.Module], training: bool) -> None:
    torch.manual_seed(3)
    module = make()
    after = torch.rand(4)
    torch.manual_seed(3)
    made = network(make)
    assert_close(torch.rand(4), after)  # nothing was drawn but the weights
    images = torch.randn(9, *SHAPE)
    results = []
    for each in (module, made):
        each.train(training)
        torch.manual_seed(4)
        results.append(each(images))
    assert torch.equal(*results)
    assert isinstance(made.head, nn.Linear) and made.head.out_features == K
    assert made.features(images).shape == (9, made.head.in_features)
    assert torch.equal(results[0], made.head(made.features(images))) or training


def test_buffers_and_modes_are_as_they_were_built() -> None:
    def make() -> nn.Module:
        module = Plain()
        module.norm.eval()
        return module

    made = network(make)
    norm = made.features.norm
    assert isinstance(norm, nn.BatchNorm2d) and norm.num_batches_tracked is not None
    assert (int(norm.num_batches_tracked), float(norm.running_mean.abs().sum())) == (0, 0.0)  # type: ignore[union-attr]
    modes = {name: each.training for name, each in made.named_modules()}
    assert [name for name, training in modes.items() if not training] == ["features.norm"]


def test_built_again_it_has_the_names_of_its_weights() -> None:
    """So weights of one are loaded into the other; a second time no batch is run."""
    batches = []

    class Counts(Plain):
        def forward(self, x: Tensor) -> Any:
            batches.append(len(x))
            return super().forward(x)

    model = Given(Counts)
    first = network_of(model, SHAPE, K)
    ran = len(batches)
    second = network_of(model, SHAPE, K)
    assert len(batches) == ran
    second.load_state_dict(first.state_dict())
    assert {name.partition(".")[0] for name in first.state_dict()} == {"features", "head"}
    images = torch.randn(2, *SHAPE)
    assert torch.equal(first.eval()(images), second.eval()(images))


def test_a_network_is_kept_as_it_is() -> None:
    made = Network(nn.Flatten(), nn.Linear(192, K))
    assert network(lambda: made) is made


def test_rows_of_numbers() -> None:
    made = network(lambda: nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, K)), (6,))
    assert made.features(torch.randn(2, 6)).shape == (2, 4)
    linear = network(lambda: nn.Linear(6, K), (6,))
    rows = torch.randn(2, 6)
    assert torch.equal(linear.features(rows), rows) and linear(rows).shape == (2, K)


def test_lazy_layers_get_their_shapes_from_the_batch() -> None:
    """Each time: their weights are drawn then, by the seed."""

    def make() -> nn.Module:
        return nn.Sequential(nn.LazyConv2d(4, 3), nn.Flatten(), nn.LazyLinear(K))

    model = Given(make)
    built = []
    for _ in range(2):
        torch.manual_seed(5)
        built.append(network_of(model, SHAPE, K))
    assert built[0].head.weight.shape == (K, 4 * 36)
    assert torch.equal(built[0].head.weight, built[1].head.weight)


def test_a_head_under_two_names() -> None:
    class Alias(Plain):
        def __init__(self) -> None:
            super().__init__()
            self.classifier = self.fc

    made = network(Alias)
    assert [name for name, _ in made.named_parameters()].count("head.weight") == 1
    assert not any("fc" in name or "classifier" in name for name, _ in made.named_parameters())


class Twice(Plain):
    def forward(self, x: Tensor) -> Any:
        hidden = self.before(x)
        return self.fc(hidden) + self.fc(hidden)


class Tied(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.other = nn.Linear(7, K)
        self.other.weight = self.fc.weight


class Convolution(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, K, 8)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.conv(x).flatten(1)
        return logits


class Auxiliary(Plain):
    def forward(self, x: Tensor) -> Any:
        logits = super().forward(x)
        return (logits, logits) if self.training else logits


class DropsLogits(Plain):
    def forward(self, x: Tensor) -> Any:
        return self.drop(super().forward(x))


class Asks(Plain):
    """Its forward asks the last layer for more than its output."""

    def forward(self, x: Tensor) -> Any:
        return self.fc(self.before(x)[:, : self.fc.in_features])


class Beside(Plain):
    """The last linear layer called is not the one that gives the logits."""

    def __init__(self) -> None:
        super().__init__()
        self.beside = nn.Linear(K, 2)

    def forward(self, x: Tensor) -> Any:
        logits = super().forward(x)
        self.beside(logits)
        return logits


class TwoHeads(Plain):
    """Its logits are the sum of two linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.other = nn.Linear(self.fc.in_features, K)

    def forward(self, x: Tensor) -> Any:
        before = self.before(x)
        return self.fc(before) + self.other(before)


def with_last(last: Callable[[Tensor], Any], out: int = K) -> Callable[[], nn.Module]:
    return lambda: Plain(last, out)


PARTED = "Return Network(features, head) from build()"
EITHER = f"{PARTED}, or a module that ends in its last nn.Linear."


@pytest.mark.parametrize(
    ("make", "found", "mend"),
    [
        (
            with_last(lambda logits: logits.softmax(-1)),
            "its forward gives the softmax of the logits",
            "Leave the softmax out: losses and metrics take logits.",
        ),
        (
            with_last(lambda logits: logits.log_softmax(-1)),
            "its forward gives the log_softmax of the logits",
            "Leave the log_softmax out: losses and metrics take logits.",
        ),
        (
            with_last(lambda logits: (logits, None)),
            "its forward gives tuple, not logits [N, 5]",
            f"{PARTED}, or a module whose forward gives the logits alone.",
        ),
        (
            with_last(lambda logits: {"logits": logits}),
            "its forward gives dict, not logits [N, 5]",
            f"{PARTED}, or a module whose forward gives the logits alone.",
        ),
        (
            lambda: Plain(out=1000),
            "its forward gives [3, 1000] of 3 samples, not [N, 5]",
            "Give its last layer num_classes outputs.",
        ),
        (
            with_last(lambda logits: 3 * logits),
            "does more than its last linear layer, `fc`",
            EITHER,
        ),
        (Beside, "does more than its last linear layer, `beside`", EITHER),
        (DropsLogits, "does more than its last linear layer, `fc`, in training mode", EITHER),
        (Auxiliary, "gives features tuple, not [N, D], in training mode", EITHER),
        (Twice, "calls its last linear layer, `fc`, 2 times", f"{PARTED}."),
        (
            TwoHeads,
            "more than its last linear layer, `other`, gives the logits",
            f"{PARTED}.",
        ),
        (
            Tied,
            "shares the weights of its last linear layer, `fc`, with `other`",
            f"{PARTED}, without shared weights.",
        ),
        (Convolution, "its forward calls no nn.Linear, so no head is found", f"{PARTED}."),
        (
            lambda: nn.Linear(7, K),
            "its forward fails on a batch [3, 3, 8, 8]: RuntimeError: ",
            "Return a module that takes such a batch and gives logits [N, K].",
        ),
        (
            Asks,
            "fails without its last linear layer, `fc`: AttributeError: 'Identity' object has no",
            EITHER,
        ),
        (lambda: 7, "build() gives int, not an nn.Module", f"{PARTED}, or an nn.Module."),
    ],
)
def test_what_cannot_be_parted_is_told_what_to_return(
    make: Callable[[], Any], found: str, mend: str
) -> None:
    with pytest.raises(FieldError) as refused:
        network(make)
    assert refused.value.path == "extensions"
    assert refused.value.found.startswith(f"Given: {found}")
    assert refused.value.mend == mend


def test_a_network_of_timm() -> None:
    timm = pytest.importorskip("timm")
    torch.manual_seed(0)
    theirs = timm.create_model("test_vit", num_classes=K, img_size=64).eval()
    torch.manual_seed(0)
    made = network(
        lambda: timm.create_model("test_vit", num_classes=K, img_size=64), (3, 64, 64)
    ).eval()
    images = torch.randn(2, 3, 64, 64)
    assert_close(made(images), theirs(images))
    assert_close(made.features(images), theirs.forward_head(theirs.forward_features(images), True))
