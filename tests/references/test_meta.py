"""The slow two-level definitions against golden.json's gamma-net, closed forms and limits."""

from functools import partial

import numpy as np
import pytest
from pytest import approx

from tests import references as ref
from tests.cases import every_shape, random_case
from tests.golden import GOLDEN, lookahead_training, lookahead_validation
from tests.references import meta
from tests.references.meta import Batch, Head

GAMMA_NET = GOLDEN["gamma_net"]
ETA = 0.5
SECE = partial(ref.smooth_ece, bandwidth=0.1)


def grid(rows: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    return np.arange(1.0, rows + 1)[:, None], np.arange(1.0, columns + 1)[None, :]


def by_formula() -> tuple[Batch, Batch, Head, np.ndarray, np.ndarray]:
    """The train batch, meta batch, head, keys and weights that the gamma_net
    rows were computed on."""
    (i, j), (v, _), (m, n), (r, c) = grid(8, 6), grid(12, 6), grid(6, 4), grid(6, 3)
    train = Batch(np.sin(0.3 * i * j), np.arange(8) % 3)
    validation = Batch(np.cos(0.21 * v * j), 2 * np.arange(12) % 3)
    index = np.arange(1, 7)
    return (
        train,
        validation,
        Head(0.5 * np.sin(1.1 * r + 0.7 * c)),
        np.cos(0.2 * m * n),
        0.1 * (-1.0) ** index * index,
    )


@pytest.mark.parametrize(("row", "tau"), [("gamma_net b=8 d=6 k=4 tau=1", 1.0), ("tau=0.1", 0.1)])
def test_golden_gammas(row: str, tau: float) -> None:
    train, _, _, a, w = by_formula()
    assert meta.gamma_net(train.features, a, w, tau) == approx(np.array(GAMMA_NET[row]), rel=1e-12)


def test_golden_look_ahead() -> None:
    train, validation, head, a, w = by_formula()
    gammas = meta.gamma_net(train.features, a, w, 1.0)
    inner = ref.focal(meta.head_logits(train.features, head), train.labels, gammas.tolist())
    stepped = meta.after_focal(train, head, gammas, ETA)
    assert inner == approx(GAMMA_NET["inner_focal"], rel=1e-12)
    assert stepped.weight[0] == approx(np.array(GAMMA_NET["theta1_row0"]), rel=1e-12)
    assert meta.outer_value(SECE, validation, head) == approx(GAMMA_NET["sece_before"], rel=1e-12)
    assert meta.outer_value(SECE, validation, stepped) == approx(
        GAMMA_NET["sece_after_lookahead"], rel=1e-12
    )


def test_golden_hypergradient() -> None:
    train, validation, head, a, w = by_formula()
    of_a, of_w = meta.gamma_net_hypergradient(SECE, train, validation, head, a, w, 1.0, ETA)
    assert of_w == approx(np.array(GAMMA_NET["hypergrad_W"]), abs=1e-11)
    assert of_w == approx(np.array(GAMMA_NET["hypergrad_W_finite_diff"]), abs=1e-10)
    assert np.linalg.norm(of_a) == approx(GAMMA_NET["hypergrad_A_l2"], abs=1e-11)


def test_inputs_are_those_of_the_golden_cases() -> None:
    train, validation, head, *_ = by_formula()
    for batch, case in ((train, lookahead_training()), (validation, lookahead_validation())):
        assert meta.head_logits(batch.features, head) == approx(case.logits.numpy(), abs=1e-12)
        assert batch.labels.tolist() == case.labels.tolist()


@every_shape
def test_inner_gradients_are_those_of_their_losses(shape: tuple[int, int, float]) -> None:
    logits, labels = (part[:8].numpy() for part in random_case((shape[0], shape[1], 1.0)))
    gammas = np.linspace(0.0, 4.0, len(labels)).tolist()
    focal = ref.richardson_differences(lambda z: ref.focal(z, labels, gammas), logits)
    ce = ref.richardson_differences(lambda z: ref.cross_entropy(z, labels), logits)
    assert meta.focal_gradient(logits, labels, gammas) == approx(focal, abs=1e-10)
    assert meta.cross_entropy_gradient(logits, labels) == approx(ce, abs=1e-10)


def test_steps_follow_the_gradient_of_the_head() -> None:
    train, _, head, a, w = by_formula()
    gammas = meta.gamma_net(train.features, a, w, 1.0)
    biased = Head(head.weight, np.array([0.3, -0.2, 0.1]))
    l2 = Head(np.linspace(-0.1, 0.4, 18).reshape(6, 3), np.array([0.2, -0.5, 0.0]))

    def focal(h: Head) -> float:
        return ref.focal(meta.head_logits(train.features, h), train.labels, gammas.tolist())

    def penalised(h: Head) -> float:
        squares = (l2.weight * h.weight**2).sum() + (l2.bias * h.bias**2).sum()
        return ref.cross_entropy(meta.head_logits(train.features, h), train.labels) + squares / 2

    for loss, stepped in (
        (focal, meta.after_focal(train, biased, gammas, ETA)),
        (penalised, meta.after_l2(train, biased, l2, ETA)),
    ):
        of_weight = ref.richardson_differences(
            lambda t, loss=loss: loss(Head(t, biased.bias)), biased.weight
        )
        of_bias = ref.richardson_differences(
            lambda t, loss=loss: loss(Head(biased.weight, t)), biased.bias
        )
        assert stepped.weight == approx(biased.weight - ETA * of_weight, abs=1e-10)
        assert stepped.bias == approx(biased.bias - ETA * of_bias, abs=1e-10)


def test_gamma_net_by_hand() -> None:
    """One key is all the attention there is: x~ = a, and gamma the same for every sample."""
    features, a, w = (
        np.array([[1.0, 2.0], [3.0, -1.0]]),
        np.array([[0.5], [-2.0]]),
        np.array([1.0, 1.0]),
    )
    assert meta.gamma_net(features, a, w, 0.5) == approx(np.array([3.0, 3.0]))
    # Two keys that features of zero see alike: x~ is their mean.
    pair = np.array([[1.0, 3.0], [0.0, 4.0]])
    assert meta.gamma_net(np.zeros((1, 2)), pair, w, 1.0) == approx(np.array([4.0]))


def test_no_step_no_hypergradient() -> None:
    train, validation, head, a, w = by_formula()
    of_a, of_w = meta.gamma_net_hypergradient(SECE, train, validation, head, a, w, 1.0, 0.0)
    assert not of_a.any() and not of_w.any()
    assert not meta.l2_hypergradient(
        SECE, train, validation, head, Head(0 * head.weight), 0.0
    ).weight.any()


def test_zero_gamma_and_zero_l2_are_one_step_of_cross_entropy() -> None:
    train, _, head, _, _ = by_formula()
    focal = meta.after_focal(train, head, np.zeros(8), ETA)
    assert focal.weight == approx(
        meta.after_l2(train, head, Head(0 * head.weight), ETA).weight, rel=1e-12
    )


@pytest.mark.parametrize("outer", ["sece", "dece", "cross_entropy + dece / 2"])
def test_gamma_net_hypergradient_by_the_chain_rule(outer: str) -> None:
    """-eta / N sum_i d g_i / d gamma_i [x_i . (d S / d theta') . (p_i -
    onehot_i)] d gamma_i / d w_j."""
    train, validation, head, a, w = by_formula()
    value = {
        "sece": SECE,
        "dece": ref.dece,
        "cross_entropy + dece / 2": partial(ref.dece_loss, weight=0.5),
    }[outer]
    # Smooth enough to be differenced.
    value = partial(value, tau_b=0.1, tau_a=10.0) if outer != "sece" else value
    tau = 0.1
    _, of_w = meta.gamma_net_hypergradient(value, train, validation, head, a, w, tau, ETA)
    gammas = meta.gamma_net(train.features, a, w, tau)
    stepped = meta.after_focal(train, head, gammas, ETA)
    slope = ref.richardson_differences(
        lambda t: meta.outer_value(value, validation, Head(t)), stepped.weight, 1e-4
    )
    logits = meta.head_logits(train.features, head)
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    p_y = p[np.arange(8), train.labels]
    rest, log_p = np.log1p(-p_y), np.log(p_y)
    ratio_slope = np.exp((gammas - 1) * rest) * (
        (1 - p_y) * rest - p_y * log_p - gammas * p_y * log_p * rest
    )
    along = ((train.features @ slope) * (p - np.eye(3)[train.labels])).sum(1) / 8
    attention = np.exp(train.features @ a) / np.exp(train.features @ a).sum(1, keepdims=True)
    mixed = attention @ a.T
    gamma_slope = np.sign(mixed @ w)[:, None] * mixed / tau
    expected = -ETA * (ratio_slope * along) @ gamma_slope
    assert np.abs(expected).max() > 1e-4
    assert of_w == approx(expected, rel=1e-5, abs=1e-9)


@pytest.mark.parametrize("scale", [0.5, 1.0])
def test_l2_hypergradient_by_the_chain_rule(scale: float) -> None:
    """theta' moves by -eta 2 scale theta_j per unit of l2_j, so d S / d l2_j is that
    times d S / d theta'_j."""
    train, validation, head, _, _ = by_formula()
    biased = Head(head.weight, np.array([0.3, -0.2, 0.1]))
    l2 = Head(np.linspace(-0.1, 0.4, 18).reshape(6, 3), np.array([0.2, -0.5, 0.0]))
    found = meta.l2_hypergradient(SECE, train, validation, biased, l2, ETA, scale)
    stepped = meta.after_l2(train, biased, l2, ETA, scale)

    def after(weight: np.ndarray, bias: np.ndarray) -> float:
        return meta.outer_value(SECE, validation, Head(weight, bias))

    of_weight = ref.richardson_differences(lambda t: after(t, stepped.bias), stepped.weight)
    of_bias = ref.richardson_differences(lambda t: after(stepped.weight, t), stepped.bias)
    assert np.abs(found.weight).max() > 1e-3
    assert found.weight == approx(-ETA * 2 * scale * biased.weight * of_weight, abs=1e-10)
    assert found.bias == approx(-ETA * 2 * scale * biased.bias * of_bias, abs=1e-10)
