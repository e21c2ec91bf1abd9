"""What holds for every network, and the sizes of each, counted by hand."""

import pytest
import torch
from torch.testing import assert_close

from trainables.fields import FieldError
from trainables.models import find, names
from trainables.models.cnn import Cnn
from trainables.models.mlp import Mlp
from trainables.models.resnet18 import Resnet18

MLP_PARAMETERS = ("features.1.weight", "head.weight", "features.1.bias", "head.bias")
SHAPES = [(1, 8, 8), (3, 32, 32), (1, 28, 28), (3, 64, 64)]


def parameters(network: torch.nn.Module) -> int:
    return sum(weights.numel() for weights in network.parameters())


def test_the_folder_is_the_list():
    assert {"mlp", "cnn", "resnet18"} <= set(names())


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", names())
def test_features_then_head_is_the_network(name, shape):
    network = find(name)().build(shape, 7).eval()
    images = torch.randn(2, *shape, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        features = network.features(images)
        assert features.shape == (2, network.head.in_features)
        assert network(images).shape == (2, 7)
        assert_close(network(images), network.head(features))


@pytest.mark.parametrize("name", names())
def test_weights_come_from_the_global_generator(name):
    built = []
    for seed in (0, 0, 1):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            built.append(torch.cat([w.detach().flatten() for w in find(name)().build((1, 8, 8), 4).parameters()]))
    assert torch.equal(built[0], built[1])
    assert not torch.equal(built[0], built[2])


@pytest.mark.parametrize("name", names())
def test_every_parameter_learns(name):
    network = find(name)().build((1, 8, 8), 4)
    network(torch.randn(6, 1, 8, 8)).square().sum().backward()
    for path, weights in network.named_parameters():
        assert weights.grad is not None and torch.isfinite(weights.grad).all(), path
        assert weights.grad.abs().sum() > 0, path


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 32, 32)])
@pytest.mark.parametrize("name", names())
def test_exports_for_batches_of_any_size(name, shape):
    network = find(name)().build(shape, 5).eval()
    batch = torch.export.Dim("batch", min=1)
    program = torch.export.export(network, (torch.randn(4, *shape),), dynamic_shapes=({0: batch},))
    exported = program.module()
    with torch.no_grad():
        for n in (1, 9):
            images = torch.randn(n, *shape)
            assert_close(exported(images), network(images), atol=1e-4, rtol=1e-4)


def test_mlp_has_the_parameters_counted_by_hand():
    # 64 pixels -> 128 -> 10, with biases.
    assert parameters(Mlp().build((1, 8, 8), 10)) == (64 * 128 + 128) + (128 * 10 + 10)
    # 3072 -> 50 -> 50 -> 10.
    assert parameters(Mlp(width=50, depth=2).build((3, 32, 32), 10)) == 3072 * 50 + 50 + 50 * 50 + 50 + 50 * 10 + 10
    # No hidden layer: logistic regression.
    assert parameters(Mlp(depth=0).build((1, 8, 8), 10)) == 64 * 10 + 10


def test_mlp_is_its_formula():
    network, images = Mlp(width=5).build((1, 2, 3), 4), torch.randn(7, 1, 2, 3)
    first, second, first_bias, second_bias = (network.get_parameter(path) for path in MLP_PARAMETERS)
    hidden = (images.reshape(7, 6) @ first.T + first_bias).clamp(min=0)
    assert_close(network(images), hidden @ second.T + second_bias)


def test_cnn_has_the_parameters_counted_by_hand():
    convolutions = 9 * (3 * 8 + 8 * 16 + 16 * 32)
    norms = 2 * (8 + 16 + 32)
    assert parameters(Cnn(width=8).build((3, 32, 32), 10)) == convolutions + norms + 32 * 10 + 10


def test_resnet18_has_the_published_number_of_parameters():
    # Of the usual ResNet-18 for CIFAR-10; the published implementation counts the same.
    assert parameters(Resnet18().build((3, 32, 32), 10)) == 11_173_962


def test_resnet18_keeps_the_resolution_in_its_stem():
    features = Resnet18().build((3, 32, 32), 10).features.eval()
    shapes = {}
    for name in ("conv1", "layer1", "layer4"):
        layer = features.get_submodule(name)
        layer.register_forward_hook(lambda _, __, output, name=name: shapes.update({name: tuple(output.shape)}))
    with torch.no_grad():
        assert features(torch.zeros(1, 3, 32, 32)).shape == (1, 512)
    assert shapes == {"conv1": (1, 64, 32, 32), "layer1": (1, 64, 32, 32), "layer4": (1, 512, 4, 4)}


@pytest.mark.parametrize(("cls", "options"), [(Mlp, {"width": 0}), (Mlp, {"depth": -1}), (Cnn, {"width": 0})])
def test_sizes_are_checked(cls, options):
    with pytest.raises(FieldError, match="must be >="):
        cls(**options)
