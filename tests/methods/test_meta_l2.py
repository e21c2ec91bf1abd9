"""Learnable L2 on the head against its slow definition."""

from functools import partial

import torch
from pytest import approx

from tests import references
from tests.methods.fakes import FakeLearner, linear
from tests.methods.test_gamma_net import by_formula, hypergradient, moments
from tests.references import meta
from trainables.method import Task
from trainables.methods.meta_l2 import MetaL2


def test_hypergradient_and_loss_match_their_definition() -> None:
    train, validation, head, _ = by_formula()
    coefficients = 0.1 * torch.cos(torch.arange(18.0).double()).reshape(6, 3)
    batches = [meta.Batch(batch.images.numpy(), batch.targets) for batch in (train, validation)]
    outer = partial(references.smooth_ece, bandwidth=0.1)
    l2 = meta.Head(coefficients.numpy())
    expected = meta.l2_hypergradient(outer, *batches, meta.Head(head.numpy()), l2, 0.5, scale=1 / 8)
    phi = {"weight": coefficients.T.contiguous()}
    learner = FakeLearner(network=linear(head), meta=validation)
    step = MetaL2(bandwidth=0.1).step(learner, {"phi": phi, "adam": moments(phi)}, train)
    assert hypergradient(step)["weight"].T.numpy() == approx(expected.weight, abs=1e-9)
    loss = (
        references.cross_entropy(train.images @ head, train.targets)
        + float((coefficients * head**2).sum()) / 8
    )
    assert step.loss.item() == approx(loss, rel=1e-10)


def test_it_starts_as_plain_cross_entropy() -> None:
    train, validation, head, _ = by_formula()
    learner = FakeLearner(network=linear(head), meta=validation)
    task = Task(3, torch.arange(8), torch.device("cpu"), torch.Generator(), learner.network, "")
    step = MetaL2().step(learner, MetaL2().start(task), train)
    assert step.loss.item() == approx(
        references.cross_entropy(train.images @ head, train.targets), rel=1e-10
    )
    assert step.state["phi"]["weight"].abs().sum() > 0
    assert MetaL2().measured(step.state)["l2_mean"] == approx(
        step.state["phi"]["weight"].mean().item()
    )
