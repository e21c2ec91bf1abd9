"""Networks of texts against loops over words, and what holds for each of them."""

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from trainables.inputs import Inputs
from trainables.model import Model, Network
from trainables.models import find, names
from trainables.models.bag_of_words import BagOfWords
from trainables.models.global_pooling_cnn import GlobalPoolingCnn
from trainables.models.shared.whole_module import network_of
from trainables.models.shared.word_vectors import ModelOfWords, WordVectors
from trainables.problems import FieldError

OF_WORDS = [name for name in names() if "words" in find(name).takes]
every_network = pytest.mark.parametrize("name", OF_WORDS)
TEXTS = Inputs((24,), "words", words=30)
WITH_VECTORS = Inputs((24,), "words", words=30, vectors=7)


def made(name: str, inputs: Inputs = TEXTS, **options: Any) -> Network:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return find(name)(width=7, **options).build(inputs, 4)


def texts(rows: int = 5) -> Tensor:
    """Of 1 to 24 words, padded behind."""
    random = np.random.default_rng(1)
    found = np.zeros((rows, 24), dtype=np.int32)
    for row, length in enumerate(random.integers(1, 24, rows)):
        found[row, :length] = random.integers(1, 30, length)
    found[0] = random.integers(1, 30, 24)  # of all places
    return torch.from_numpy(found)


def words_of(network: Network) -> WordVectors:
    return next(each for each in network.modules() if isinstance(each, WordVectors))


def test_the_networks_of_texts() -> None:
    assert {"bag_of_words", "global_pooling_cnn"} <= set(OF_WORDS)


def test_bag_of_words_is_the_mean_over_the_words_that_are_there() -> None:
    """Word by word in NumPy, in float64."""
    network = made("bag_of_words", dropout=0.5).eval()
    vectors = words_of(network).weight.detach().double().numpy()
    assert vectors.shape == (30, 7)
    weight = network.head.weight.detach().double().numpy()
    bias = network.head.bias.detach().double().numpy()
    expected = []
    for text in texts().tolist():
        total = np.zeros(7)
        count = 0
        for word in text:
            if word != 0:
                total += vectors[word]
                count += 1
        expected.append(weight @ (total / count) + bias)
    assert_close(network(texts()).detach().double().numpy(), np.stack(expected), atol=1e-6, rtol=0)


def test_global_pooling_cnn_is_what_the_released_code_computes() -> None:
    """Place by place in NumPy: three convolutions of five words, two maxima of five places between
    them, the maximum over the text, a layer."""
    network = made("global_pooling_cnn", channels=6).eval()
    state = {key: value.double().numpy() for key, value in network.state_dict().items()}

    def convolved(rows: np.ndarray, place: int) -> np.ndarray:
        weight = state[f"features.convolution{place}.weight"]
        bias = state[f"features.convolution{place}.bias"]
        found = np.zeros((len(rows) - 4, 6))
        for start in range(len(rows) - 4):
            for channel in range(6):
                value = bias[channel]
                for offset in range(5):
                    value += weight[channel, :, offset] @ rows[start + offset]
                found[start, channel] = max(0.0, value)
        return found

    def pooled(rows: np.ndarray) -> np.ndarray:
        return np.stack([rows[start : start + 5].max(axis=0) for start in range(len(rows) - 4)])

    expected = []
    for text in texts().tolist():
        rows = np.stack([words_of(network).weight.detach().double().numpy()[word] for word in text])
        rows = convolved(pooled(convolved(pooled(convolved(rows, 1)), 2)), 3)
        layer = state["features.layer.weight"] @ rows.max(axis=0) + state["features.layer.bias"]
        expected.append(state["head.weight"] @ np.maximum(0, layer) + state["head.bias"])
    assert_close(network(texts()).detach().double().numpy(), np.stack(expected), atol=1e-5, rtol=0)


def test_it_has_the_parameters_counted_by_hand() -> None:
    counts = {"bag_of_words": 30 * 7 + 7 * 4 + 4}
    convolutions = 128 * (7 * 5 + 1) + 2 * 128 * (128 * 5 + 1)
    counts["global_pooling_cnn"] = 30 * 7 + convolutions + 128 * 129 + 4 * 129
    for name, count in counts.items():
        assert sum(each.numel() for each in made(name).parameters()) == count
    assert (GlobalPoolingCnn().dropout, BagOfWords().dropout) == (0.3, 0.0)


@every_network
def test_features_then_head_and_every_parameter_learns(name: str) -> None:
    network = made(name)
    network.eval()
    assert_close(network(texts()), network.head(network.features(texts())))
    network.train()
    network(texts(64)).square().sum().backward()
    for path, weights in network.named_parameters():
        assert weights.grad is not None and weights.grad.isfinite().all(), path
        assert weights.grad.abs().sum() > 0, path
    vectors = words_of(network).weight
    assert vectors.grad is not None and not vectors.grad[0].any() and not vectors[0].any()


@every_network
def test_vectors_are_taken_and_kept_unless_they_are_trained(name: str) -> None:
    given = torch.arange(210.0).view(30, 7) / 100
    given[0] = 0
    for trained in (True, False):
        network = made(name, WITH_VECTORS, train_vectors=trained)
        network.take_vectors(given)
        assert torch.equal(words_of(network).weight, given)
        is_parameter = any(each.shape == (30, 7) for each in network.parameters())
        assert is_parameter == trained
        other = made(name, WITH_VECTORS, train_vectors=trained)
        other.load_state_dict(copy.deepcopy(network.state_dict()))  # without the file
        other.eval()
        network.eval()
        assert torch.equal(other(texts()), network(texts()))


@every_network
def test_vectors_that_do_not_fit_are_refused(name: str) -> None:
    with pytest.raises(FieldError, match="false needs vectors of words, the data have none") as one:
        made(name, train_vectors=False)
    assert one.value.path == "train_vectors"
    wide = Inputs((24,), "words", words=30, vectors=50)
    with pytest.raises(FieldError, match=r"7 is not the width.*Write width: 50") as other:
        made(name, wide)
    assert other.value.path == "width"


def test_texts_too_short_for_the_convolutions_are_refused() -> None:
    find("global_pooling_cnn")().build(Inputs((21,), "words", words=30), 4)
    with pytest.raises(FieldError, match=r"at least 21 words, got 20\. Raise data\.length"):
        find("global_pooling_cnn")().build(Inputs((20,), "words", words=30), 4)


@every_network
def test_an_empty_text_and_the_order_of_texts(name: str) -> None:
    """A server may send zeros alone."""
    network = made(name).eval()
    assert network(torch.zeros(2, 24, dtype=torch.int32)).isfinite().all()
    turned = torch.tensor([3, 0, 4, 1, 2])
    assert_close(network(texts()[turned]), network(texts())[turned])


class Whole(nn.Module):
    """As a user writes it: one module."""

    def __init__(self, words: int) -> None:
        super().__init__()
        self.vectors = nn.Embedding(words, 5)
        self.last = nn.Linear(5, 4)

    def forward(self, numbers: Tensor) -> Tensor:
        found: Tensor = self.last(self.vectors(numbers).mean(dim=1))
        return found


@dataclass(frozen=True)
class OneModule(Model):
    takes = ("words",)

    def build(self, input_shape: Inputs, num_classes: int) -> nn.Module:
        return Whole(input_shape.words)


def test_a_whole_module_of_ones_own_is_parted_by_a_batch_of_words() -> None:
    network = network_of(OneModule(), TEXTS, 4).eval()
    vectors = network.features.get_submodule("vectors")
    assert_close(network(texts()), network.head(vectors(texts()).mean(dim=1)))


@every_network
@pytest.mark.slow
def test_exports_for_batches_of_any_size(name: str) -> None:
    assert issubclass(find(name), ModelOfWords)
    network = made(name).eval()
    batch = torch.export.Dim("batch", min=1)
    program = torch.export.export(network, (texts(4),), dynamic_shapes=({0: batch},)).module()
    for rows in (1, 9):
        assert_close(program(texts(rows)), network(texts(rows)))
