"""Post-hoc calibration: temperature and vector scaling. Guo et al. 2017, Section 4.2."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from trainables.metrics.binned import ReliabilityBins

# Temperatures outside mean that all of the fit set is correct (T -> 0) or wrong (T -> infinity).
LOWEST, HIGHEST = 1e-2, 1e3
# Steps in log T; the remaining error after the shortest is about its square.
_LONGEST, _SHORTEST = 2.0, 1e-5


def fit_temperature(logits: Tensor, labels: Tensor) -> float:
    """The T > 0 that minimises the mean NLL of logits / T. logits: [N, K]; labels: [N] int64.

    NLL is convex in 1/T, so the sign of its slope brackets the minimum: Newton's method on log T, with bisection if it
    leaves the bracket or is slow, always converges; the usual LBFGS settings stop short of the minimum. Clamped to
    [0.01, 1000] if no finite minimum exists.
    """
    if not (logits.gather(-1, labels[:, None]) > -torch.inf).any():
        return 1.0
    ahead = ahead_of_label(logits, labels)
    log_t, low, high, last = 0.0, -math.inf, math.inf, 2 * _LONGEST
    while True:
        slope, curvature = (
            float(each.mean()) for each in slope_and_curvature(ahead, math.exp(log_t))
        )
        if slope > 0:
            low = log_t
        else:
            high = log_t
        if low >= math.log(HIGHEST):
            return HIGHEST
        if high <= math.log(LOWEST):  # confident and correct even at the lowest temperature
            return LOWEST
        step = (
            slope / curvature * math.exp(log_t)
            if curvature > 0
            else math.inf
            if slope > 0
            else -math.inf
        )
        if not (low <= log_t + step <= high and abs(step) <= last / 2):
            step = (
                (low + high) / 2 - log_t
                if math.isfinite(high - low)
                else math.copysign(_LONGEST, step)
            )
        log_t, last = log_t + step, abs(step)
        if last < _SHORTEST:
            return min(max(math.exp(log_t), LOWEST), HIGHEST)


def ahead_of_label(logits: Tensor, labels: Tensor) -> Tensor:
    """Each logit minus its label's, [K, N] float64: a softmax over columns takes a quarter of the time.

    All 0 for a sample whose label has a stored probability of 0: its NLL does not depend on the temperature.
    """
    columns = logits.double().T.contiguous()
    own = columns.gather(0, labels[None])
    # Finite, so that a probability of 0 times its logit is 0; low enough to stay 0 at every temperature.
    return torch.where(own > -torch.inf, columns - own, 0.0).clamp(min=-1e300)


def slope_and_curvature(ahead: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Derivatives of each sample's NLL in 1/T, [N]: mean and variance of `ahead_of_label` under the scaled probs."""
    probs = (ahead / temperature).softmax(dim=0)
    parts = probs * ahead
    mean = parts.sum(dim=0)
    return mean, (parts * ahead).sum(dim=0) - mean.square()


def fit_temperature_by_ece(logits: Tensor, labels: Tensor, bins: int = 15) -> float:
    """The T in .1, .2, ..., 10 with the lowest ECE, the smallest of ties. As in Mukhoti et al. 2020's released code.

    Theirs accumulates .1 (its 2.1 is 2.1000000000000005) in float32; ours is k / 10 in float64. ECE is not a proper
    score: this T can be far from the truth, unlike that of NLL.
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
        """Calibrated logits [N, K] float64; probabilities of 0 stay 0."""
        never = logits == -torch.inf
        return (logits.double().masked_fill(never, 0.0) * self.scale + self.bias).masked_fill(
            never, -torch.inf
        )


# Bound of the scale, per spread of the logits, and of the bias in nats: the only limit if the data are separable.
LARGEST = 1000.0


def fit_vector_scaling(logits: Tensor, labels: Tensor) -> VectorScaling:
    """The scaling that minimizes mean NLL: convex, L-BFGS-B in float64 from the fitted temperature. Guo et al. 2017.

    The identity if it cannot be improved. logits: [N, K]; labels: [N] int64.
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
    found = minimize(
        loss_and_slope, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options
    )
    before = float(F.cross_entropy(logits, labels))
    return scaling(found.x) if found.fun < before * (1 - 1e-12) else identity


def _possible(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The samples that inform a fit, in float64: a label with a stored probability of 0 has infinite NLL under all."""
    possible = logits.gather(-1, labels[:, None]).squeeze(-1) > -torch.inf
    return logits[possible].double(), labels[possible]


# ---- cross-fitting -------------------------------------------------------------------------------------------------

Calibrator = Callable[[Tensor], Tensor]  # logits to calibrated logits, [N, K] float64
Fit = Callable[[Tensor, Tensor], Calibrator]
Fitted = TypeVar("Fitted", bound=Calibrator)


@dataclass(frozen=True)
class TemperatureScaling:
    temperature: float

    def __call__(self, logits: Tensor) -> Tensor:
        return logits.double() / self.temperature


def by_temperature(logits: Tensor, labels: Tensor) -> TemperatureScaling:
    """Temperature scaling, fitted by NLL."""
    return TemperatureScaling(fit_temperature(logits, labels))


def by_temperature_of_ece(logits: Tensor, labels: Tensor) -> TemperatureScaling:
    """Temperature scaling, fitted by ECE on a grid."""
    return TemperatureScaling(fit_temperature_by_ece(logits, labels))


FITS: dict[str, Fit] = {
    "temperature": by_temperature,
    "temperature_of_ece": by_temperature_of_ece,
    "vector_scaling": fit_vector_scaling,
}
FOLDS = 5


def cross_fitted(
    logits: Tensor, labels: Tensor, folds: int = FOLDS, fit: Fit = by_temperature
) -> Tensor:
    """Calibrated logits [N, K]; no sample is used to fit its own calibration.

    The fold of sample i is i % folds; it is calibrated by a fit on the other folds. Scores of these logits estimate the
    performance on new data while using the whole set.
    """
    return by_folds(fold_fits(logits, labels, fit, folds), logits)


def fold_fits(
    logits: Tensor, labels: Tensor, fit: Callable[[Tensor, Tensor], Fitted], folds: int = FOLDS
) -> list[Fitted]:
    """For each fold, the fit on the others; none for a single sample."""
    folds = min(folds, len(labels))
    fold = torch.arange(len(labels), device=logits.device) % max(folds, 1)
    return [fit(logits[fold != k], labels[fold != k]) for k in range(folds)] if folds > 1 else []


def by_folds(fits: Sequence[Calibrator], logits: Tensor) -> Tensor:
    """The logits [N, K] with each fold calibrated by its fit; unchanged without fits."""
    calibrated = logits.to(torch.float64, copy=True)
    for k, calibrate in enumerate(fits):
        calibrated[k :: len(fits)] = calibrate(logits[k :: len(fits)])
    return calibrated
