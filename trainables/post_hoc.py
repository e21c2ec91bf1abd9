"""Calibration after training: temperature and vector scaling. Guo et al. 2017, Section 4.2."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from trainables.metrics.binned import ReliabilityBins

# A temperature outside is no calibration any more: all right (T -> 0) or all wrong (T -> infinity) on the fit set.
LOWEST, HIGHEST = 1e-2, 1e3


def fit_temperature(logits: Tensor, labels: Tensor) -> float:
    """The T > 0 that minimises the mean NLL of logits / T. logits: [N, K]; labels: [N] int64.

    NLL is convex in 1/T, so the sign of its slope brackets the minimum: Brent's root on log T cannot run away, where
    the most-used LBFGS settings stop short of it. Clamped to [0.01, 1000] where no finite minimum exists.
    """
    from scipy.optimize import brentq  # half a second, which those who only read a study save

    logits, labels = _possible(logits, labels)
    if not len(labels):
        return 1.0
    true_logit = float(logits.gather(-1, labels[:, None]).mean())
    finite = torch.where(logits > -torch.inf, logits, 0.0).flatten()  # of -inf, a stored 0, the expectation is 0

    def slope(log_t: float) -> float:
        """d NLL / d(1/T): expected logit under the scaled probabilities, less the true one's."""
        probs = (logits * math.exp(-log_t)).softmax(dim=-1)
        return float(probs.flatten().dot(finite)) / len(labels) - true_logit

    low, high = math.log(LOWEST), math.log(HIGHEST)
    if slope(low) <= 0:  # confident and right even at the lowest temperature
        return LOWEST
    if slope(high) >= 0:
        return HIGHEST
    return math.exp(brentq(slope, low, high, xtol=1e-10))


def fit_temperature_by_ece(logits: Tensor, labels: Tensor, bins: int = 15) -> float:
    """The T of .1, .2, ..., 10 of least ECE, the lowest of equals. Mukhoti et al. 2020, as their released code has it.

    Theirs adds .1 up (so its 2.1 reads 2.1000000000000005) and computes in float32; ours is k / 10, in float64. ECE is
    no proper score: this T can be far from the truth, where NLL's is not.
    """
    hits = (logits.argmax(dim=-1) == labels).double()
    behind = logits.double() - logits.double().amax(dim=-1, keepdim=True)
    best, least = 1.0, math.inf
    for temperature in (step / 10 for step in range(1, 101)):
        confidence = (behind / temperature).exp().sum(dim=-1).reciprocal()
        found = ReliabilityBins.of(confidence, hits, bins)
        error = float(found.share.dot(found.gap))
        if error < least:
            best, least = temperature, error
    return best


@dataclass(frozen=True)
class VectorScaling:
    """scale * logits + bias, class by class; both [K] float64."""

    scale: Tensor
    bias: Tensor

    def __call__(self, logits: Tensor) -> Tensor:
        """Calibrated logits [N, K] float64; a class of probability 0 keeps it."""
        never = logits == -torch.inf
        return (logits.double().masked_fill(never, 0.0) * self.scale + self.bias).masked_fill(never, -torch.inf)


# Of scale, per spread of the logits, and of bias in nats: where the data are separable nothing else holds.
LARGEST = 1000.0


def fit_vector_scaling(logits: Tensor, labels: Tensor) -> VectorScaling:
    """The scaling of least mean NLL: convex, by L-BFGS-B in float64 from the fitted temperature. Guo et al. 2017.

    The identity where nothing is to be gained. logits: [N, K]; labels: [N] int64.
    """
    from scipy.optimize import minimize

    num_classes = logits.shape[1]
    ones = torch.ones(num_classes, dtype=torch.float64, device=logits.device)
    identity = VectorScaling(ones, torch.zeros_like(ones))
    temperature = fit_temperature(logits, labels)
    logits, labels = _possible(logits, labels)
    if not len(labels):
        return identity

    known = logits.masked_fill(logits == -torch.inf, 0.0)
    spread = float((known - known.mean(dim=-1, keepdim=True)).square().mean().sqrt()) or 1.0
    truth = F.one_hot(labels, num_classes)

    def scaling(parameters: np.ndarray) -> VectorScaling:
        scale, bias = torch.from_numpy(parameters).to(logits.device).reshape(2, num_classes)
        return VectorScaling(scale / spread, bias)

    def loss_and_slope(parameters: np.ndarray) -> tuple[float, np.ndarray]:
        scaled = scaling(parameters)(logits)
        off = (scaled.softmax(dim=-1) - truth) / len(labels)
        slope = torch.cat([(off * known).sum(dim=0) / spread, off.sum(dim=0)])
        return float(F.cross_entropy(scaled, labels)), slope.cpu().numpy()

    start = np.repeat([min(spread / temperature, LARGEST), 0.0], num_classes)
    bounds = [(-LARGEST, LARGEST)] * len(start)
    options = {"maxiter": 1000, "maxfun": 2000, "ftol": 1e-15, "gtol": 1e-9}
    found = minimize(loss_and_slope, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    before = float(F.cross_entropy(logits, labels))
    return scaling(found.x) if found.fun < before * (1 - 1e-12) else identity


def _possible(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The samples that a fit can learn from, in float64.

    A label whose stored probability is 0 has an infinite NLL under every scaling: it says nothing about any.
    """
    possible = logits.gather(-1, labels[:, None]).squeeze(-1) > -torch.inf
    return logits[possible].double(), labels[possible]


# ---- without looking at a sample's own label -----------------------------------------------------------------------

Calibrator = Callable[[Tensor], Tensor]  # logits to calibrated logits, [N, K] float64
Fit = Callable[[Tensor, Tensor], Calibrator]


def by_temperature(logits: Tensor, labels: Tensor) -> Calibrator:
    """Temperature scaling, fitted by NLL."""
    temperature = fit_temperature(logits, labels)
    return lambda new: new.double() / temperature


def by_temperature_of_ece(logits: Tensor, labels: Tensor) -> Calibrator:
    """Temperature scaling, fitted by ECE on a grid."""
    temperature = fit_temperature_by_ece(logits, labels)
    return lambda new: new.double() / temperature


FITS: dict[str, Fit] = {
    "temperature": by_temperature,
    "temperature_of_ece": by_temperature_of_ece,
    "vector_scaling": fit_vector_scaling,
}


def cross_fitted(logits: Tensor, labels: Tensor, folds: int = 5, fit: Fit = by_temperature) -> Tensor:
    """Calibrated logits [N, K] in which no sample has seen its own calibration.

    Fold of sample i is i % folds; it is calibrated as fitted on the other folds. Scores of these logits are what the
    method will do on new data, with the whole set still in use.
    """
    folds = min(folds, len(labels))
    if folds < 2:
        return logits.double()
    fold = torch.arange(len(labels), device=logits.device) % folds
    calibrated = torch.empty_like(logits, dtype=torch.float64)
    for k in range(folds):
        held = fold == k
        calibrated[held] = fit(logits[~held], labels[~held])(logits[held])
    return calibrated
