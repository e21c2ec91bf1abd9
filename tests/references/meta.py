"""Two-level learning on a linear head: one step of gradient descent on a train
batch, judged on a meta batch.

Wang & Golebiowski 2024 (gamma-net, Algorithm 1); Bohdal et al. 2023 (learnable L2). The inner
gradients are written by hand; what the outer value owes to the learned quantities comes from
differences, so no second derivative is taken.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tests.references.arrays import Array, Labels, classes, probabilities, rows
from tests.references.gammas import gradient_ratio
from tests.references.gradients import richardson_differences

Numbers = NDArray[np.float64]
Outer = Callable[[Array, Labels], float]  # (logits, labels) -> value, such as smooth ECE


class Head(NamedTuple):
    """logits = features @ weight + bias. weight [d, K] (nn.Linear keeps its
    transpose), bias [K] or none."""

    weight: Numbers
    bias: Numbers | None = None


class Batch(NamedTuple):
    """features [N, d] of the trunk, labels [N]."""

    features: Numbers
    labels: Labels


def head_logits(features: Numbers, head: Head) -> Numbers:
    logits = features @ head.weight
    return logits if head.bias is None else logits + head.bias


def gamma_net(features: Numbers, a: Numbers, w: Numbers, tau: float) -> Numbers:
    """gamma [N] of features x [N, d], keys a [d, k], w [d]: |x~ . w| / tau
    with x~ = a softmax(x a)."""
    gammas = []
    for x in features:
        attention = np.array(probabilities(list(x @ a)))
        gammas.append(abs(float((a @ attention) @ w)) / tau)
    return np.array(gammas)


def cross_entropy_gradient(logits: Array, labels: Labels) -> Numbers:
    """d mean cross-entropy / d logits [N, K]: (p - onehot) / N."""
    gradient = np.array([probabilities(row) for row in rows(logits)])
    for i, y in enumerate(classes(labels)):
        gradient[i, y] -= 1
    return gradient / len(gradient)


def focal_gradient(logits: Array, labels: Labels, gammas: Sequence[float] | Numbers) -> Numbers:
    """d mean focal loss / d logits [N, K]: g(p_y, gamma) (p - onehot) / N, for 0
    < p_y < 1 in float64."""
    p_y = [probabilities(row)[y] for row, y in zip(rows(logits), classes(labels), strict=True)]
    ratios = [gradient_ratio(p, gamma) for p, gamma in zip(p_y, gammas, strict=True)]
    return np.array(ratios)[:, None] * cross_entropy_gradient(logits, labels)


def look_ahead(batch: Batch, head: Head, logit_gradient: Numbers, lr: float) -> Head:
    """The head after one step of plain gradient descent (no momentum, no decay) on a loss
    of that logit_gradient."""
    weight = head.weight - lr * batch.features.T @ logit_gradient
    return Head(weight, None if head.bias is None else head.bias - lr * logit_gradient.sum(0))


def after_focal(batch: Batch, head: Head, gammas: Sequence[float] | Numbers, lr: float) -> Head:
    """The head after one step on the mean focal loss with a gamma for each sample."""
    logits = head_logits(batch.features, head)
    return look_ahead(batch, head, focal_gradient(logits, batch.labels, gammas), lr)


def after_l2(batch: Batch, head: Head, l2: Head, lr: float, scale: float = 0.5) -> Head:
    """The head after one step on mean cross-entropy + scale * sum_j l2_j theta_j^2,
    a coefficient per parameter.

    Of any sign, and 0 at the start. scale=1 is the released code's form: its l2 is
    half of that at scale=1/2.
    """
    logits = head_logits(batch.features, head)
    step = look_ahead(batch, head, cross_entropy_gradient(logits, batch.labels), lr)
    weight = step.weight - lr * 2 * scale * l2.weight * head.weight
    if step.bias is None:
        return Head(weight)
    return Head(weight, step.bias - lr * 2 * scale * l2.bias * head.bias)


def outer_value(outer: Outer, meta: Batch, head: Head) -> float:
    return outer(head_logits(meta.features, head), meta.labels)


def gamma_net_hypergradient(
    outer: Outer,
    train: Batch,
    meta: Batch,
    head: Head,
    a: Numbers,
    w: Numbers,
    tau: float,
    lr: float,
    constant_length: bool = False,
) -> tuple[Numbers, Numbers]:
    """d outer(meta, head after one focal step) / d a [d, k] and / d w [d].

    constant_length: every step is as long as that of these a and w, whatever gammas it has.
    """

    def stepped(keys: Numbers, weights: Numbers) -> Head:
        gammas = gamma_net(train.features, keys, weights, tau)
        return after_focal(train, head, gammas, lr)

    length = np.linalg.norm(stepped(a, w).weight - head.weight)

    def value(keys: Numbers, weights: Numbers) -> float:
        after = stepped(keys, weights)
        if constant_length:
            assert head.bias is None
            step = after.weight - head.weight
            after = Head(head.weight + step * (length / np.linalg.norm(step)))
        return outer_value(outer, meta, after)

    return richardson_differences(lambda keys: value(keys, w), a), richardson_differences(
        lambda v: value(a, v), w
    )


def l2_hypergradient(
    outer: Outer, train: Batch, meta: Batch, head: Head, l2: Head, lr: float, scale: float = 0.5
) -> Head:
    """d outer(meta, head after one step with l2) / d l2, of the head's shapes."""

    def value(coefficients: Head) -> float:
        return outer_value(outer, meta, after_l2(train, head, coefficients, lr, scale))

    weight = richardson_differences(lambda c: value(Head(c, l2.bias)), l2.weight)
    if l2.bias is None:
        return Head(weight)
    return Head(weight, richardson_differences(lambda c: value(Head(l2.weight, c)), l2.bias))
