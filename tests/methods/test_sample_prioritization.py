"""Which samples an epoch takes, against slow definitions and the published order of input A."""

import itertools
import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch
from pytest import approx
from torch import Tensor

from tests import references
from tests.cases import every_shape, random_case
from tests.golden import input_a
from tests.methods.fakes import FakeLearner
from trainables.config import TrialConfig
from trainables.loading.trial_data import trial_data
from trainables.method import Batch, Method
from trainables.methods.focal import Focal
from trainables.methods.gamma_net import GammaNet
from trainables.methods.mixup import Mixup
from trainables.methods.sample_prioritization import SamplePrioritization, highest, priorities
from trainables.methods.sece import Sece
from trainables.outputs.train_entropy import TrainEntropy
from trainables.problems import FieldError
from trainables.training.learner import Learner

CPU = torch.device("cpu")


def learner(method: dict[str, Any], **settings: Any) -> Learner:
    plain = {
        "data": "digits",
        "model": {"name": "mlp", "width": 16},
        "epochs": 4,
        "method": method,
        **settings,
    }
    config = TrialConfig.from_mapping(plain)
    return Learner(config, trial_data(config, CPU), CPU)


def prioritized(**fields: Any) -> dict[str, Any]:
    return {"name": "sample_prioritization", "warmup": 0.25, **fields}


@every_shape
@pytest.mark.parametrize("criterion", ["entropy", "least_confidence", "margin"])
def test_scores_match_their_definition(shape: tuple[int, int, float], criterion: str) -> None:
    logits, _ = random_case(shape)
    definition = {
        "entropy": references.entropies,
        "least_confidence": references.least_confidences,
        "margin": lambda z: [score - 1 for score in references.margins(z)],
    }[criterion]
    assert priorities(logits, criterion).tolist() == approx(definition(logits), rel=1e-9, abs=1e-12)


def test_golden_order_of_input_a() -> None:
    """The released code's entropies, normalised and with 1e-6 inside the
    logarithm, rank the same."""
    chosen = highest(priorities(input_a().logits, "entropy"), 10).tolist()
    assert chosen == [15, 10, 16, 17, 36, 21, 3, 19, 35, 52]


def test_of_equal_scores_the_lower_index_comes_first() -> None:
    scores = torch.tensor([1.0, 3.0, 1.0, 3.0, 2.0, 1.0])
    assert [highest(scores, count).tolist() for count in (1, 4)] == [[1], [1, 3, 4, 0]]
    assert highest(scores, 5).tolist() == references.top(scores.tolist(), 5)


def test_epochs_take_all_and_then_the_share() -> None:
    made = learner(prioritized(fraction=0.3))
    rows = [made.train_epoch() for _ in range(4)]
    n = len(made.train)
    seen = [0, *(row["samples"] for row in rows)]
    taken = [after - before for before, after in itertools.pairwise(seen)]
    # 1151 is 17 batches of 64 and 63 more; 345 is 5 and 25 more.
    assert taken == [n, round(0.3 * n), round(0.3 * n), round(0.3 * n)]


class Noted(SamplePrioritization):
    """Notes what each epoch is to take, and every score that is given."""

    def order(self, learner: Any, state: Any, generator: Any) -> Tensor:
        order = super().order(learner, state, generator)
        ORDERS.append(sorted(order.tolist()))
        SCORES.append({})
        return order

    def observe(self, state: Any, batch: Batch, logits: Tensor) -> Any:
        SCORES[-1].update(
            zip(batch.indices.tolist(), references.entropies(logits.double()), strict=True)
        )
        return super().observe(state, batch, logits)


ORDERS: list[list[int]] = []
SCORES: list[dict[int, float]] = []


@pytest.mark.slow
def test_choices_are_by_the_last_pass_over_each_sample() -> None:
    """What the training passes said, kept while a sample is not chosen, decides; slowly,
    from the noted scores."""
    ORDERS.clear(), SCORES.clear()
    base = learner(prioritized())
    config = replace(base.config, method=Noted(fraction=0.3, warmup=0.25))
    made = Learner(config, base.data, CPU)
    while not made.finished:
        made.train_epoch()
    kept: dict[int, float] = {}
    n = len(made.train)
    for epoch, chosen in enumerate(ORDERS):
        if epoch == 0:
            assert chosen == list(range(n))
        else:
            scores = [kept[i] for i in range(n)]
            cut = sorted(scores, reverse=True)[len(chosen) - 1]
            # float32 against float64: those at the very cut may go either way.
            must, may = (
                {i for i in range(n) if scores[i] > cut + 1e-5},
                {i for i in range(n) if scores[i] > cut - 1e-5},
            )
            assert must <= set(chosen) <= may
        kept |= SCORES[epoch]


def test_a_fresh_pass_scores_all_and_costs_its_samples() -> None:
    logits, _ = random_case((20, 5, 2.0))
    method = SamplePrioritization(fraction=0.25, warmup=0.0, scores="fresh_pass")
    chosen = method.order(FakeLearner(logits), {"base": None}, torch.Generator())
    assert sorted(chosen.tolist()) == sorted(references.top(references.entropies(logits), 5))
    made = learner(prioritized(fraction=0.3, scores="fresh_pass"))
    rows = [made.train_epoch(), made.train_epoch()]
    n = len(made.train)
    assert rows[1]["samples"] - rows[0]["samples"] == n + round(0.3 * n)


def test_random_takes_any() -> None:
    method = SamplePrioritization(fraction=0.5, warmup=0.0, criterion="random")
    fake = FakeLearner(torch.zeros(10, 3))
    drawn = [
        method.order(fake, {"base": None}, torch.Generator().manual_seed(seed)).tolist()
        for seed in range(400)
    ]
    assert all(len(set(chosen)) == 5 for chosen in drawn)
    counts = torch.bincount(torch.tensor(drawn).flatten(), minlength=10)
    assert counts.tolist() == approx([200] * 10, abs=45)  # 4.5 standard deviations


@pytest.mark.slow
def test_guided_by_what_another_trial_recorded(tmp_path: Path) -> None:
    target = learner({"name": "focal"}, record="train_entropy")
    while not target.finished:
        target.train_epoch()
    recorded = target.recorded()
    assert recorded is not None and recorded.entropy.shape == (4, len(target.data.train))
    recorded.save(tmp_path / "train_entropy.npz")
    made = learner(prioritized(fraction=0.2, target=str(tmp_path / "train_entropy.npz")))
    made.train_epoch()
    chosen = made.config.method.order(made, made.method_state, torch.Generator())
    expected = references.top(recorded.entropy[1].tolist(), round(0.2 * len(made.train)))
    assert sorted(chosen.tolist()) == sorted(expected)


def test_recorded_entropies_fill_their_gaps_and_know_their_data(tmp_path: Path) -> None:
    nan = torch.nan
    TrainEntropy(torch.tensor([[1.0, nan, 3.0], [nan, 2.0, 4.0]]), "abc").save(
        tmp_path / "file.npz"
    )
    loaded = TrainEntropy.load(tmp_path / "file.npz")
    assert loaded.of("abc", torch.tensor([2, 1, 0])).tolist() == [
        [3.0, torch.inf, 1.0],
        [4.0, 2.0, 1.0],
    ]
    with pytest.raises(FieldError, match="Use a trial with the same data and seed"):
        loaded.of("another", torch.arange(3))
    with pytest.raises(FieldError, match="no such file"):
        TrainEntropy.load(tmp_path / "none.npz")


@pytest.mark.parametrize("base", [Mixup(base=Focal(gamma=2.0)), GammaNet(), Sece()])
def test_it_stands_around_any_method(base: Method) -> None:
    method = SamplePrioritization(base=base)
    assert method.needs_meta == base.needs_meta


@pytest.mark.parametrize(
    ("build", "problem"),
    [
        (lambda: SamplePrioritization(base=SamplePrioritization()), "selects its own samples"),
        (lambda: Sece(base=SamplePrioritization()), "Wrap Sece in SamplePrioritization instead"),
        (lambda: Mixup(base=SamplePrioritization()), "Wrap Mixup in SamplePrioritization instead"),
        (lambda: Sece(base=GammaNet()), "overrides the training step"),
        (
            lambda: SamplePrioritization(target="x", criterion="margin"),
            "records entropies, not 'margin'",
        ),
    ],
)
def test_combinations_that_make_no_sense_are_refused(build: Any, problem: str) -> None:
    with pytest.raises(FieldError, match=problem):
        build()


@pytest.mark.slow
def test_the_targets_scores_are_those_of_the_same_epoch() -> None:
    """For every length 1-200: row e of e + 1 .. n; a share of training in floating point
    truncates 29 / 200 * 200."""
    method, fake = (
        SamplePrioritization(target="recorded.npz", warmup=0.0),
        FakeLearner(torch.zeros(1, 2)),
    )
    for epochs in range(1, 201):
        for length in {epochs, 1, 3, 200} if epochs % 20 == 7 else {epochs}:
            rows = torch.arange(length)[:, None]
            fake.epochs = epochs
            for fake.epoch in range(epochs):
                fake.progress = fake.epoch / epochs
                found = int(method._current_scores(fake, {"target": rows}))
                assert found == math.floor(Fraction(fake.epoch * length, epochs))
                assert length != epochs or found == fake.epoch
