"""Temperature scaling after training. Guo et al. 2017, Section 4.2."""

import math

import torch
from scipy.optimize import brentq
from torch import Tensor

# A temperature outside is no calibration any more: all right (T -> 0) or all wrong (T -> infinity) on the fit set.
LOWEST, HIGHEST = 1e-2, 1e3


def fit_temperature(logits: Tensor, labels: Tensor) -> float:
    """The T > 0 that minimises the mean NLL of logits / T. logits: [N, K]; labels: [N] int64.

    NLL is convex in 1/T, so the sign of its slope brackets the minimum: Brent's root on log T cannot run away, where
    the most-used LBFGS settings stop short of it. Clamped to [0.01, 1000] where no finite minimum exists.
    """
    # A label whose stored probability is 0 has an infinite NLL at every temperature: it says nothing about T.
    possible = logits.gather(-1, labels[:, None]).squeeze(-1) > -torch.inf
    logits, labels = logits[possible].double(), labels[possible]
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


def cross_fitted(logits: Tensor, labels: Tensor, folds: int = 5) -> Tensor:
    """Calibrated logits [N, K] in which no sample has seen its own temperature.

    Fold of sample i is i % folds; its temperature is fitted on the other folds. Scores of these logits are what
    temperature scaling will do on new data, with the whole set still in use.
    """
    folds = min(folds, len(labels))
    if folds < 2:
        return logits.double()
    fold = torch.arange(len(labels), device=logits.device) % folds
    temperatures = [fit_temperature(logits[fold != k], labels[fold != k]) for k in range(folds)]
    return logits.double() / logits.new_tensor(temperatures, dtype=torch.float64)[fold][:, None]
