"""A label for each pixel: losses over those that are labelled, and no step without any."""

import copy
import math
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.testing import assert_close

from tests.masks import CPU, masks_and_config
from trainables import methods
from trainables.config import to_plain
from trainables.method import Mixed, labelled
from trainables.methods.cross_entropy import CrossEntropy
from trainables.training import checkpoint
from trainables.training.learner import Learner
from trainables.training.weights import Weights

ON_MASKS = [name for name in methods.names() if methods.find(name)().per_position]
NOT = {"esd", "reg_mixup", "mmce", "sece", "dece", "gamma_net", "meta_l2", "sample_prioritization"}


def maps(seed: int = 0) -> tuple[Tensor, Tensor]:
    """Logits [4, 3, 5, 7] and labels [4, 5, 7], a third of them -1; of the last image all."""
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(4, 3, 5, 7, generator=generator, dtype=torch.float64)
    labels = torch.randint(3, (4, 5, 7), generator=generator)
    labels[torch.rand(labels.shape, generator=generator) < 1 / 3] = -1
    labels[-1] = -1
    return logits, labels


def test_the_methods_that_need_one_row_an_image_say_so() -> None:
    assert set(methods.names()) - set(ON_MASKS) == NOT
    assert not methods.find("mixup")(base=methods.find("mmce")()).per_position
    assert methods.find("mixup")().per_position


def test_labelled_is_each_labelled_pixel_in_order() -> None:
    logits, labels = maps()
    rows, flat = labelled(logits, labels)
    expected = [
        (logits[n, :, y, x], labels[n, y, x])
        for n in range(4)
        for y in range(5)
        for x in range(7)
        if labels[n, y, x] >= 0
    ]
    assert_close(rows, torch.stack([row for row, _ in expected]), rtol=0, atol=0)
    assert flat.tolist() == [int(label) for _, label in expected]


def test_logits_of_whole_images_pass_as_they_are() -> None:
    logits, labels = torch.randn(6, 3), torch.tensor([0, 1, 2, 0, 1, -1])
    rows, flat = labelled(logits, labels)
    assert rows is logits and flat is labels
    soft = torch.rand(6, 3)
    assert labelled(logits, soft)[1] is soft


def test_cross_entropy_is_that_of_torch_which_ignores_an_index() -> None:
    logits, labels = maps()
    ours, theirs = (logits.clone().requires_grad_() for _ in range(2))
    found = CrossEntropy().loss_of(ours, labels, 0.0)
    expected = F.cross_entropy(theirs, labels, ignore_index=-1)
    assert_close(found, expected)
    found.backward()
    expected.backward()
    assert_close(ours.grad, theirs.grad)


def test_each_label_set_of_mixed_images_has_its_own_labelled_pixels() -> None:
    logits, labels = maps()
    order = torch.tensor([3, 0, 1, 2])
    share = 0.3
    found = CrossEntropy().loss_of(logits, Mixed(labels, labels[order], share), 0.0)
    first = F.cross_entropy(logits, labels, ignore_index=-1)
    second = F.cross_entropy(logits, labels[order], ignore_index=-1)
    assert_close(found, share * first + (1 - share) * second)
    none = torch.full_like(labels, -1)
    half = CrossEntropy().loss_of(logits, Mixed(labels, none, share), 0.0)
    assert_close(half, share * first)


@pytest.mark.parametrize("name", [name for name in ON_MASKS if name != "mixup"])
def test_the_loss_is_that_of_the_rows_and_its_gradients_are_finite(name: str) -> None:
    method = methods.find(name)()
    logits, labels = maps()
    logits.requires_grad_()
    loss = method.loss_of(logits, labels, 0.5)
    assert_close(loss, method.loss(*labelled(logits, labels), 0.5), rtol=0, atol=0)
    order = torch.tensor([2, 0, 3, 1])
    assert_close(loss, method.loss_of(logits[order], labels[order], 0.5))
    (gradient,) = torch.autograd.grad(loss, logits)
    assert gradient.isfinite().all() and gradient[:3].any()
    unlabelled = (labels < 0)[:, None].expand_as(gradient)
    assert not gradient[unlabelled].any()


def learner(name: str, cache: Path, **settings: object) -> Learner:
    config, data = masks_and_config(cache, method=name, **settings)
    return Learner(config, data, CPU)


@pytest.mark.parametrize("name", ON_MASKS)
def test_an_epoch_on_masks_has_finite_gradients(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gradients = []
    backward = Weights.backward

    def noting(weights: Weights, loss: Tensor) -> None:
        backward(weights, loss)
        gradients.append(weights.gradient.clone())

    monkeypatch.setattr(Weights, "backward", noting)
    made = learner(name, tmp_path, diagnostics=True)
    row = made.train_epoch()
    assert math.isfinite(row["train_loss"]) and len(gradients) >= 4
    assert all(found.isfinite().all() and found.any() for found in gradients)
    predictions = made.predict()
    assert predictions.logits.shape == (made.data.prepared.rows["validation"], 3)
    assert row["nll"] == pytest.approx(predictions.evaluate()["nll"], rel=1e-5)


# One that is a loss alone, one that starts with frequencies, one of means, one that draws.
@pytest.mark.parametrize("name", ["focal_scheduled", "focal_sample_dependent", "mdca", "mixup"])
def test_resume_on_masks_equals_no_interruption(name: str, tmp_path: Path) -> None:
    settings = {"result": "best_nll", "epochs": 3}
    whole, cut = learner(name, tmp_path, **settings), learner(name, tmp_path, **settings)
    while not whole.finished:
        whole.train_epoch()
    cut.train_epoch()
    checkpoint.save(cut, tmp_path / "last.pt")
    resumed = learner(name, tmp_path, **settings)
    assert to_plain(resumed.config) == to_plain(cut.config)
    assert checkpoint.load(resumed, tmp_path / "last.pt")
    while not resumed.finished:
        resumed.train_epoch()
    assert whole.take_result() == resumed.take_result()
    state = whole.network.state_dict()
    assert_close(resumed.network.state_dict(), state, rtol=0, atol=0)
    assert torch.equal(resumed.predict().logits, whole.predict().logits)


@pytest.mark.parametrize("name", ["cross_entropy", "mixup"])
def test_a_batch_without_a_label_is_no_step(name: str, tmp_path: Path) -> None:
    made = learner(name, tmp_path)
    made.train_epoch()  # so that there are moments
    marked = made.data.train._images.clone()
    marked[:, -1] = 0
    made.train._images = marked
    before = copy.deepcopy(dict(made.network.named_parameters()))
    made.advance()
    assert float(made._program.loss) == 0
    for key, weight in made.network.named_parameters():
        assert torch.equal(weight, before[key])


def test_predictions_are_the_rows_of_what_the_network_gives(tmp_path: Path) -> None:
    made = learner("focal", tmp_path)
    made.train_epoch()
    found = made.predict()
    validation = made.data.validation
    made.network.eval()
    with torch.inference_mode():
        maps_of_all = torch.cat(
            [made.network(validation.images(row, row + 1)) for row in range(len(validation))]
        )
    positions = validation.positions
    assert positions is not None
    rows = zip(positions.images.tolist(), positions.places.tolist(), strict=True)
    expected = [maps_of_all[image, :, place // 18, place % 18] for image, place in rows]
    assert_close(found.logits, torch.stack(expected), rtol=1e-5, atol=1e-6)
    assert found.groups is not None and len(found.groups) == len(found.labels)
