"""What holds for every network, and the sizes of each, counted by hand."""

from functools import cache

import numpy as np
import pytest
import torch
from torch import nn
from torch.testing import assert_close

from tests.frozen_network import HAS_TIMM
from trainables.inputs import Inputs
from trainables.model import Model, Network
from trainables.models import find, names
from trainables.models.cnn import Cnn
from trainables.models.densenet121 import Densenet121
from trainables.models.mlp import Mlp
from trainables.models.resnet18 import Resnet18
from trainables.models.resnet34 import Resnet34
from trainables.models.resnet50 import Resnet50
from trainables.models.resnet101 import Resnet101
from trainables.models.resnet110 import Resnet110
from trainables.models.shared.resnet import SmallImageResnet
from trainables.models.wide_resnet_26_10 import WideResnet2610
from trainables.problems import FieldError
from trainables.training.diagnostics import feature_norms

NAMES = [name for name in names() if "image" in find(name).takes and (name != "timm" or HAS_TIMM)]
# tests/models/test_per_position.py and test_of_words.py look at the others.
OF_IMAGES = [name for name in NAMES if not find(name).per_position]
MLP_PARAMETERS = ("features.1.weight", "head.weight", "features.1.bias", "head.bias")
# Of more blocks, and nothing else: test_some_differ_in_the_number_of_blocks_alone.
LONGER: dict[type[SmallImageResnet], type[SmallImageResnet]] = {
    Resnet34: Resnet18,
    Resnet101: Resnet50,
}
DIFFERENT = [name for name in NAMES if find(name) not in LONGER]
# Those that take seconds to build.
LARGE = {"deeplabv3", "resnet50", "wide_resnet_26_10"}
# Of 8x8 is the test of feature norms, and of a large one's 32x32 that of its maps' sizes.
CASES = [(name, (3, 32, 32)) for name in OF_IMAGES if name in DIFFERENT and name not in LARGE]
CASES += [(name, (1, 28, 28)) for name in ("mlp", "cnn", "resnet18", "resnet110")]
CASES += [(name, (3, 64, 64)) for name in ("mlp", "cnn")]
CASES = [
    pytest.param(name, shape, marks=[] if name in ("mlp", "cnn") else pytest.mark.slow)
    for name, shape in CASES
]
every_network = pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow) if name in LARGE else name for name in DIFFERENT],
)


@cache
def built(
    model: Model, shape: tuple[int, int, int] = (3, 32, 32), num_classes: int = 10
) -> Network:
    """In evaluation mode, built once: for tests that only look."""
    return model.build(shape, num_classes).eval()


@cache
def counted(model: Model) -> Network:
    """Without values: to count its weights."""
    with torch.device("meta"):
        return model.build((3, 32, 32), 10)


def parameters(network: torch.nn.Module) -> int:
    return sum(weights.numel() for weights in network.parameters())


def test_the_folder_is_the_list():
    assert {"mlp", "cnn", "resnet18"} <= set(names())


@pytest.mark.parametrize(("name", "shape"), CASES)
def test_features_then_head_is_the_network(name, shape):
    network = built(find(name)(), shape)
    images = torch.randn(2, *shape, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        features, logits = network.features(images), network(images)
        assert features.shape == (2, network.head.in_features)
        assert logits.shape == (2, 10)
        assert_close(logits, network.head(features))


@pytest.mark.parametrize(("longer", "shorter"), LONGER.items())
def test_some_differ_in_the_number_of_blocks_alone(longer, shorter):
    assert set(vars(longer)) == set(vars(shorter)) and longer.__bases__ == shorter.__bases__
    assert "build" not in vars(longer) and longer.layers != shorter.layers
    assert longer.block is shorter.block and longer() != shorter()


@every_network
def test_weights_come_from_the_global_generator(name):
    built = []
    for seed in (0, 0, 1):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            built.append(list(find(name)().build((1, 8, 8), 4).parameters()))
    assert all(map(torch.equal, built[0], built[1]))
    assert not all(map(torch.equal, built[0], built[2]))


@pytest.mark.parametrize("name", ["resnet18", "resnet50", "resnet110"])
def test_the_weights_of_residual_networks_are_drawn_once(name):
    """torchvision draws each convolution when it is made, and again: the generator must
    not be ahead by those."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = find(name)().build((3, 16, 16), 10)
        generator = torch.get_rng_state()
        torch.manual_seed(0)
        for module in network.modules():
            if isinstance(module, nn.Conv2d):  # He et al. 2015: the variance is 2 / fan out
                fan_out = module.weight.shape[0] * module.weight[0, 0].numel()
                assert torch.equal(
                    module.weight,
                    torch.empty(module.weight.shape).normal_(std=(2 / fan_out) ** 0.5),
                )
            if isinstance(module, nn.Linear):
                alone = nn.Linear(module.in_features, module.out_features)
                assert torch.equal(module.weight, alone.weight) and torch.equal(
                    module.bias, alone.bias
                )
            if isinstance(module, nn.BatchNorm2d):
                values = (module.weight, module.bias, module.running_mean, module.running_var)
                assert [value.unique().tolist() for value in values] == [[1.0], [0.0], [0.0], [1.0]]
        assert torch.equal(torch.get_rng_state(), generator)


@every_network
def test_every_parameter_learns(name):
    network = find(name)().build((1, 8, 8), 4)
    network(torch.randn(3, 1, 8, 8)).square().sum().backward()
    for path, weights in network.named_parameters():
        assert weights.grad is not None and torch.isfinite(weights.grad).all(), path
        # timm's residual blocks begin as the identity.
        assert weights.grad.abs().sum() > 0 or name == "timm", path


@every_network
def test_feature_norms_are_of_what_the_head_receives(name):
    """In NumPy; the logits stay what they are."""
    network = built(find(name)(), (1, 8, 8), 4)
    images = torch.randn(5, 1, 8, 8)
    with torch.inference_mode(), feature_norms(network) as norms:
        logits = torch.cat([network(images[:3]), network(images[3:])])
    with torch.inference_mode():
        features = network.features(images)
        assert logits.shape[:2] == (5, 4)
        assert_close(logits, network.head(features))
    expected = np.sqrt((features.double().numpy() ** 2).sum(axis=1))
    assert_close(torch.cat(norms).numpy(), expected, rtol=1e-6, atol=1e-12)
    network(images)
    assert [len(batch) for batch in norms] == [3, 2]


def test_mlp_has_the_parameters_counted_by_hand():
    # 64 pixels -> 128 -> 10, with biases.
    assert parameters(Mlp().build((1, 8, 8), 10)) == (64 * 128 + 128) + (128 * 10 + 10)
    # 3072 -> 50 -> 50 -> 10.
    assert (
        parameters(Mlp(width=50, depth=2).build((3, 32, 32), 10))
        == 3072 * 50 + 50 + 50 * 50 + 50 + 50 * 10 + 10
    )
    # No hidden layer: logistic regression.
    assert parameters(Mlp(depth=0).build((1, 8, 8), 10)) == 64 * 10 + 10


def test_mlp_takes_rows_and_gives_them_the_weights_of_as_many_pixels():
    """Drawn in the same order: a table of pixels trains as the images would."""
    assert Mlp.takes == ("image", "features") and Cnn.takes == ("image",)
    for depth in (0, 1, 2):
        built = []
        for shape in (Inputs((6,), "features"), (1, 2, 3)):
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(0)
                built.append(Mlp(width=5, depth=depth).build(shape, 4))
        rows = torch.randn(7, 6)
        with torch.no_grad():
            assert torch.equal(built[0](rows), built[1](rows.view(7, 1, 2, 3)))


def test_without_hidden_layers_mlp_is_logistic_regression():
    network, rows = Mlp(depth=0).build((6,), 4), torch.randn(7, 6)
    weights, bias = network.head.weight, network.head.bias
    assert not list(network.features.parameters())
    assert_close(network(rows), rows @ weights.T + bias)


def test_mlp_is_its_formula():
    network, images = Mlp(width=5).build((1, 2, 3), 4), torch.randn(7, 1, 2, 3)
    first, second, first_bias, second_bias = (
        network.get_parameter(path) for path in MLP_PARAMETERS
    )
    hidden = (images.reshape(7, 6) @ first.T + first_bias).clamp(min=0)
    assert_close(network(images), hidden @ second.T + second_bias)


def test_cnn_has_the_parameters_counted_by_hand():
    convolutions = 9 * (3 * 8 + 8 * 16 + 16 * 32)
    norms = 2 * (8 + 16 + 32)
    assert parameters(Cnn(width=8).build((3, 32, 32), 10)) == convolutions + norms + 32 * 10 + 10


@pytest.mark.parametrize(
    ("model", "published"),
    [
        # As the usual implementations for CIFAR-10 count them.
        (Resnet18(), 11_173_962),
        (Resnet34(), 21_282_122),
        (Resnet50(), 23_520_842),
        (Resnet101(), 42_512_970),
        (Densenet121(), 6_956_298),
        (Resnet110(), 1_727_962),  # He et al. 2016, Table 6: 1.7 million
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, int) else None,
)
def test_has_the_published_number_of_parameters(model, published):
    assert parameters(counted(model)) == published


def test_resnet110_of_the_focal_loss_code_has_the_parameters_counted_by_hand():
    # 1x1, 3x3, 1x1, each normalised; a projection where it widens.
    def bottleneck(before: int, width: int) -> int:
        after = 4 * width
        weights = before * width + 9 * width**2 + width * after + 2 * (width + width + after)
        return weights + (before * after + 2 * after if before != after else 0)

    count, before = 9 * 3 * 64 + 2 * 64, 64
    for width, blocks in zip((64, 128, 256, 512), (3, 4, 26, 3), strict=True):
        for _ in range(blocks):
            count, before = count + bottleneck(before, width), 4 * width
    assert parameters(counted(Resnet110(blocks="bottleneck"))) == count + 2048 * 10 + 10


def test_wide_resnet_has_the_parameters_counted_by_hand():
    count, before = 9 * 3 * 16 + 2 * 16, 16
    for width in (160, 320, 640):
        for _ in range(4):
            count += 9 * (before * width + width**2) + 4 * width
            count += before * width + 2 * width if before != width else 0
            before = width
    assert parameters(counted(WideResnet2610())) == count + 640 * 10 + 10


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (
            Resnet18(),
            {"conv1": (64, 32), "layer1": (64, 32), "layer2": (128, 16), "layer4": (512, 4)},
        ),
        (
            Resnet50(),
            {"conv1": (64, 32), "layer1": (256, 32), "layer2": (512, 16), "layer4": (2048, 4)},
        ),
        # He et al. 2016, the table in Section 4.2: 32x32 with 16 filters,
        # 16x16 with 32, 8x8 with 64.
        (
            Resnet110(),
            {"conv1": (16, 32), "layer1": (16, 32), "layer2": (32, 16), "layer3": (64, 8)},
        ),
        # Zagoruyko & Komodakis 2016, Table 1, at k = 10.
        (
            WideResnet2610(),
            {"conv1": (16, 32), "layer1": (160, 32), "layer2": (320, 16), "layer3": (640, 8)},
        ),
        # Huang et al. 2017: 64 + 6 * 32 maps, halved in number and size by each
        # transition, ending in 1024.
        (
            Densenet121(),
            {
                "conv0": (64, 32),
                "denseblock1": (256, 32),
                "transition1": (128, 16),
                "norm5": (1024, 4),
            },
        ),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, dict) else "",
)
def test_maps_have_the_published_sizes(model, expected):
    features, shapes = built(model).features, {}
    hooks = [
        features.get_submodule(name).register_forward_hook(
            lambda _, __, output, name=name: shapes.update({name: tuple(output.shape)})
        )
        for name in expected
    ]
    with torch.no_grad():
        features(torch.zeros(1, 3, 32, 32))
    for hook in hooks:
        hook.remove()
    assert shapes == {
        name: (1, channels, side, side) for name, (channels, side) in expected.items()
    }


@pytest.mark.parametrize(
    ("model", "depth"),
    [
        (Resnet18(), 18),
        (Resnet34(), 34),
        (Resnet50(), 50),
        (Resnet101(), 101),
        (Resnet110(), 110),
        (WideResnet2610(), 26),
        (Densenet121(), 121),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, int) else None,
)
def test_the_name_counts_the_layers_with_weights_but_the_shortcuts(model, depth):
    layers = [
        name
        for name, m in counted(model).named_modules()
        if isinstance(m, torch.nn.Conv2d | torch.nn.Linear)
    ]
    assert len([name for name in layers if not name.endswith("downsample.0")]) == depth


def test_shortcuts_of_resnet110_have_no_weights():
    network = built(Resnet110())
    shortcut = network.features.get_submodule("layer2.0.downsample")
    images = torch.arange(2 * 16 * 4 * 4, dtype=torch.float32).reshape(2, 16, 4, 4)
    output = shortcut(images)
    assert output.shape == (2, 32, 2, 2)
    assert torch.equal(output[:, 8:24], images[:, :, ::2, ::2])
    assert output[:, :8].abs().sum() == 0 and output[:, 24:].abs().sum() == 0


def test_pool_two_gives_the_head_four_averages():
    images = torch.randn(2, 3, 32, 32)
    network = Resnet18(pool=2).build((3, 32, 32), 10).eval()
    assert network.head.in_features == 4 * 512
    with torch.no_grad():
        maps = network.features[:-2](images)  # [2, 512, 4, 4]
        expected = torch.nn.functional.avg_pool2d(maps, 2).flatten(1)
        assert_close(network.features(images), expected)


@pytest.mark.parametrize(
    ("cls", "options"),
    [(Mlp, {"width": 0}), (Mlp, {"depth": -1}), (Cnn, {"width": 0}), (Resnet18, {"pool": 0})],
)
def test_sizes_are_checked(cls, options):
    with pytest.raises(FieldError, match="must be >="):
        cls(**options)
