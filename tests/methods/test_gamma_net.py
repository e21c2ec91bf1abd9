"""gamma-net: its gammas, its look-ahead and the hypergradient, against golden.json
and central differences."""

from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from pytest import approx
from torch import Tensor, nn
from torch.testing import assert_close

from tests import references
from tests.golden import GOLDEN
from tests.methods.fakes import FakeLearner, linear
from tests.references import meta
from tests.references.arrays import probabilities
from trainables.config import TrialConfig
from trainables.loading.trial_data import trial_data
from trainables.method import Batch, Step, Task
from trainables.methods.focal import focal_loss
from trainables.methods.gamma_net import GammaNet, learned_gamma
from trainables.methods.sample_prioritization import SamplePrioritization
from trainables.methods.shared.lookahead import adam_step, of_constant_length
from trainables.model import Network
from trainables.problems import FieldError
from trainables.training.learner import Learner

ROWS = GOLDEN["gamma_net"]
LOOKS = pytest.mark.parametrize("lookahead", ["head", "all"])


def grid(rows: int, columns: int) -> tuple[Tensor, Tensor]:
    return torch.arange(1.0, rows + 1).double()[:, None], torch.arange(1.0, columns + 1).double()[
        None, :
    ]


def by_formula() -> tuple[Batch, Batch, Tensor, dict[str, Tensor]]:
    """The train and the meta batch, the head [6, 3] and phi of the golden rows
    (methods.md A.14)."""
    (i, j), (v, _), (m, n), (r, c) = grid(8, 6), grid(12, 6), grid(6, 4), grid(6, 3)
    train = Batch(torch.sin(0.3 * i * j), torch.arange(8) % 3, torch.arange(8))
    validation = Batch(torch.cos(0.21 * v * j), 2 * torch.arange(12) % 3, torch.arange(12))
    index = torch.arange(1.0, 7.0).double()
    phi = {"A": torch.cos(0.2 * m * n), "W": (0.1 * (-1.0) ** index * index)[:, None]}
    return train, validation, 0.5 * torch.sin(1.1 * r + 0.7 * c), phi


def stepped(method: GammaNet, network: Network | None = None) -> tuple[Step, FakeLearner]:
    train, validation, head, phi = by_formula()
    learner = FakeLearner(network=network or linear(head), meta=validation)
    state = {"phi": phi, "adam": moments(phi), "gamma": torch.full((8,), torch.nan).double()}
    return method.step(learner, state, train), learner


def moments(phi: dict[str, Tensor]) -> dict[str, Any]:
    zeros = {name: torch.zeros_like(value) for name, value in phi.items()}
    return {"count": 0, "first": zeros, "second": zeros}


def hypergradient(step: Step) -> dict[str, Tensor]:
    """What Adam was given: its first moment after one step is a tenth of that."""
    return {name: 10 * value for name, value in step.state["adam"]["first"].items()}


@pytest.mark.parametrize(("row", "tau"), [("gamma_net b=8 d=6 k=4 tau=1", 1.0), ("tau=0.1", 0.1)])
def test_golden_gammas(row: str, tau: float) -> None:
    train, _, _, phi = by_formula()
    assert learned_gamma(train.images, phi["A"], phi["W"], tau).tolist() == approx(
        ROWS[row], rel=1e-10
    )


@LOOKS
def test_golden_hypergradient(lookahead: str) -> None:
    """The features are the images themselves: a look-ahead of all weights is one of the head's."""
    step, _ = stepped(GammaNet(tau=1.0, bandwidth=0.1, lookahead=lookahead, length="free"))
    found = hypergradient(step)
    assert found["W"].squeeze(1).tolist() == approx(ROWS["hypergrad_W"], abs=1e-12)
    assert found["A"].norm().item() == approx(ROWS["hypergrad_A_l2"], rel=1e-9)
    assert step.loss.item() == approx(ROWS["inner_focal"], rel=1e-10)


def gap(logits: Any, labels: Any) -> float:
    """(mean confidence - accuracy)^2, in plain Python."""
    tables = [probabilities(row) for row in logits.tolist()]
    hits = [row.index(max(row)) == y for row, y in zip(tables, labels.tolist(), strict=True)]
    return float((sum(map(max, tables)) / len(tables) - sum(hits) / len(hits)) ** 2)


@pytest.mark.parametrize("length", ["free", "constant"])
@pytest.mark.parametrize("outer", ["sece", "dece", "gap"])
def test_hypergradient_is_that_of_central_differences(outer: str, length: str) -> None:
    train, validation, head, phi = by_formula()
    definitions = {
        "sece": partial(references.smooth_ece, bandwidth=0.05),
        "dece": partial(references.dece, bins=15),
        "gap": gap,
    }
    batches = [meta.Batch(batch.images.numpy(), batch.targets) for batch in (train, validation)]
    weights = phi["A"].numpy(), phi["W"].squeeze(1).numpy()
    constant = length == "constant"
    of_a, of_w = meta.gamma_net_hypergradient(
        definitions[outer], *batches, meta.Head(head.numpy()), *weights, 1.0, 0.5, constant
    )
    method = GammaNet(tau=1.0, bandwidth=0.05, outer=outer, length=length)
    found = hypergradient(stepped(method)[0])
    assert found["A"].numpy() == approx(of_a, abs=2e-8)
    assert found["W"].squeeze(1).numpy() == approx(of_w, abs=2e-8)


def test_a_constant_length_changes_no_value() -> None:
    """Only what phi learns: the network moves as it did. A slope of 0 gives no NaN."""
    free, constant = (stepped(GammaNet(tau=1.0, length=how)) for how in ("free", "constant"))
    assert torch.equal(free[0].loss, constant[0].loss)
    name = "head.weight"
    assert torch.equal(free[1].gradients[0][name], constant[1].gradients[0][name])
    assert not torch.allclose(hypergradient(free[0])["W"], hypergradient(constant[0])["W"])
    slopes = [torch.zeros(2, 3, requires_grad=True), torch.zeros(2, requires_grad=True)]
    same = of_constant_length(slopes)
    gradients = torch.autograd.grad(torch.cat([each.flatten() for each in same]).sum(), slopes)
    assert all(each.isfinite().all() for each in (*same, *gradients))


def test_of_one_direction_phi_learns_nothing() -> None:
    """A step that phi can only make longer or shorter has no gradient once its length is held."""
    phi = torch.tensor(2.0, requires_grad=True, dtype=torch.float64)
    direction = torch.tensor([3.0, -4.0]).double()
    (held,) = of_constant_length([phi * direction])
    assert held.tolist() == approx([6.0, -8.0])
    assert torch.autograd.grad(held.sum(), phi)[0].item() == approx(0.0, abs=1e-12)


@LOOKS
def test_phi_moves_as_torchs_adam_moves_it(lookahead: str) -> None:
    step, _ = stepped(GammaNet(tau=1.0, lookahead=lookahead, meta_lr=0.01))
    phi = {name: value.clone().requires_grad_() for name, value in by_formula()[3].items()}
    optimizer = torch.optim.Adam(phi.values(), lr=0.01)
    found, state = hypergradient(step), (by_formula()[3], moments(phi))
    for _ in range(3):
        for name, value in phi.items():
            value.grad = found[name]
        optimizer.step()
        state = adam_step(state[0], found, state[1], 0.01)
    for name, value in phi.items():
        assert not torch.equal(step.state["phi"][name], by_formula()[3][name])
        assert_close(state[0][name], value.detach(), rtol=1e-9, atol=1e-12)


def normed() -> Network:
    """Batch norm before the head: its statistics are what a meta batch could move."""
    return linear(by_formula()[2], nn.BatchNorm1d(6).double())


@LOOKS
def test_theta_sees_nothing_of_the_meta_batch(lookahead: str) -> None:
    """Its gradient is that of the focal loss at the old gammas, and batch norm's
    statistics moved once."""
    train, _, _, phi = by_formula()
    _, learner = stepped(GammaNet(tau=1.0, lookahead=lookahead), normed())
    other = normed()
    features = other.features(train.images)
    gamma = learned_gamma(features.detach(), phi["A"], phi["W"], 1.0)
    focal_loss(other.head(features), train.targets, gamma).backward()
    for name, value in other.named_parameters():
        assert_close(learner.gradients[0][name], value.grad, rtol=1e-9, atol=1e-12)
    for name, value in other.named_buffers():
        assert torch.equal(dict(learner.network.named_buffers())[name], value)


def test_the_base_codes_leak_and_batch_norm_by_name() -> None:
    plain, leaking = (stepped(GammaNet(tau=1.0, leak=leak), normed())[1] for leak in (False, True))
    name = "features.weight"
    assert not torch.allclose(plain.gradients[0][name], leaking.gradients[0][name])
    moved = stepped(GammaNet(tau=1.0, meta_batch_norm="train"), normed())[1]
    assert (
        plain.network.features.num_batches_tracked == 1
        and moved.network.features.num_batches_tracked == 2
    )


def test_phi_first_trains_at_the_new_gammas() -> None:
    train, _, head, _ = by_formula()
    step, _ = stepped(GammaNet(tau=1.0, moves_first="phi", meta_lr=0.1))
    phi = step.state["phi"]
    gamma = learned_gamma(train.images, phi["A"], phi["W"], 1.0)
    assert step.loss.item() == approx(
        focal_loss(train.images @ head, train.targets, gamma).item(), rel=1e-10
    )
    assert step.state["gamma"].tolist() == approx(gamma.tolist(), rel=1e-10)


def test_the_sum_looks_as_many_times_further_ahead() -> None:
    """The sum of 8 losses at rate .5 steps as their mean at rate 4; Adam's rate aside
    nothing else changes."""
    whole, _ = stepped(GammaNet(tau=1.0, reduction="sum", length="free"))
    train, validation, head, phi = by_formula()
    learner = FakeLearner(network=linear(head), meta=validation)
    learner.learning_rate = 4.0
    far = GammaNet(tau=1.0, length="free").step(
        learner, {"phi": phi, "adam": moments(phi), "gamma": torch.zeros(8).double()}, train
    )
    for name, value in hypergradient(whole).items():
        assert_close(value, hypergradient(far)[name])


def test_a_head_that_is_not_linear_is_refused() -> None:
    network = Network(nn.Flatten(), nn.Softplus())
    task = Task(3, torch.arange(5), torch.device("cpu"), torch.Generator(), network, "")
    with pytest.raises(FieldError, match="the head must be linear"):
        GammaNet().start(task)


def test_a_gamma_that_ran_away_is_told() -> None:
    method = GammaNet(gamma_max=5.0)
    gamma = torch.tensor([5.0, 1.0, 5.0, 5.0, torch.nan])  # the last was not seen yet
    row = {name: float(value) for name, value in method.measured({"gamma": gamma}).items()}
    assert row["gamma_capped"] == 0.75 and row["gamma_q50"] == 5.0
    said = "gamma ran away (median 5, 75% at gamma_max): lower meta_lr"
    assert method.remark(row) == said
    assert method.remark({"gamma_q50": 8.1, "gamma_capped": 0.0}) is not None
    assert method.remark({"gamma_q50": 8.0, "gamma_capped": 0.5}) is None
    assert method.remark({"gamma_q50": 8.0}) is None  # of an earlier version
    assert SamplePrioritization(base=method).remark(row) == said


@pytest.mark.parametrize(
    ("meta_batch", "size"), [("auto", 12), (5, 5), (1000, 12), ("batch_size", 8)]
)
def test_a_step_takes_as_much_of_meta_as_is_asked(meta_batch: int | str, size: int) -> None:
    """Of batches of 8 and a meta split of 12, in every step, whatever is left of a round."""
    method = GammaNet(meta_batch=meta_batch)
    wrapped = SamplePrioritization(base=method)
    assert (
        method.meta_size(8)
        == wrapped.meta_size(8)
        == {"auto": 512, "batch_size": 8}.get(str(meta_batch), meta_batch)
    )
    learner = SimpleNamespace(config=SimpleNamespace(method=wrapped, batch_size=8), _meta=range(12))
    order = Learner._meta_order(learner, 7, torch.Generator().manual_seed(0))
    assert order.shape == (7, size)
    assert all(len(set(row.tolist())) == size for row in order) or 12 % size
    counts = order.flatten().bincount(minlength=12)
    assert counts.max() - counts.min() <= 1


@pytest.mark.parametrize("outer", ["sece", "dece", "gap"])
def test_of_two_classes_phi_learns(outer: str) -> None:
    train, validation, head, phi = by_formula()
    two = (batch._replace(targets=batch.targets.clamp(max=1)) for batch in (train, validation))
    seen, meta_batch = two
    learner = FakeLearner(network=linear(head[:, :2]), meta=meta_batch)
    state = {"phi": phi, "adam": moments(phi), "gamma": torch.full((8,), torch.nan).double()}
    step = GammaNet(tau=1.0, outer=outer).step(learner, state, seen)
    assert step.loss.isfinite() and all(
        value.isfinite().all() and value.any() for value in hypergradient(step).values()
    )


@pytest.mark.slow
def test_while_training_phi_moves_and_its_gammas_are_told() -> None:
    plain = {
        "data": "digits",
        "model": "mlp",
        "method": {"name": "gamma_net", "meta_lr": 0.01},
        "epochs": 2,
    }
    config = TrialConfig.from_mapping(plain)
    learner = Learner(config, trial_data(config, torch.device("cpu")), torch.device("cpu"))
    before = {name: value.clone() for name, value in learner.method_state["phi"].items()}
    row = learner.train_epoch()
    assert all(
        not torch.equal(value, before[name]) for name, value in learner.method_state["phi"].items()
    )
    assert 0 <= row["gamma_q05"] <= row["gamma_q50"] <= row["gamma_q95"] <= 10
    assert row["gamma_capped"] == approx(0.0)
    assert len(learner.train) + len(learner._meta or ()) == len(learner.data.train)
