"""Post-hoc calibration: temperature and vector scaling. Guo et al. 2017, Section 4.2.

Structured scaling is in `structured`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from trainables.groups import FOLDS, folds_of
from trainables.metrics.shared.cells import BELOW, HIGHEST, LOWEST, WIDTH
from trainables.metrics.shared.parts import in_parts
from trainables.metrics.shared.structured import FORMS, Structured, fit_structured
from trainables.metrics.shared.temperature_of_ece import behind_top, fit_temperature_by_ece

# Steps in log T; the remaining error after the shortest is about its square.
_SHORTEST, _LONGEST = 1e-5, 2.0


# ---- the temperature with a prior ----------------------------------------------------------------


def fit_temperature(logits: Tensor, labels: Tensor) -> float:
    """The T > 0 of least NLL of logits [N, K] / T, summed over labels [N], plus (log T)^2 / 2.

    The second term is a prior worth one sample: log T normal around 0 with standard deviation 1. It
    keeps a split without an error from making every prediction certain, and moves the T of a
    thousand samples by about .2%. The sum can have two minima where T < 1: the lowest over the
    cells of log T is taken. Clamped to [0.01, 1000].
    """
    ahead = ahead_of_label(logits, labels)
    return _temperature(ahead, lambda number: _Point.at(ahead, number * WIDTH))


def fold_temperatures(
    logits: Tensor, labels: Tensor, folds: int, groups: Tensor | None = None
) -> list[float]:
    """For each fold, `fit_temperature` of the others, which share what cell edges take."""
    ahead = ahead_of_label(logits, labels)
    fold = folds_of(len(labels), groups, folds).to(logits.device)
    each = functools.cache(lambda number: slope_and_curvature(ahead, math.exp(number * WIDTH)))

    def without(own: int) -> float:
        kept = fold != own

        def at_edge(number: int) -> _Point:
            return _Point.of(number * WIDTH, *(of[kept] for of in each(number)))

        return _temperature(ahead[:, kept], at_edge)

    return [without(own) for own in range(folds)]


class _Point(NamedTuple):
    """The cost at a log T: its first and second derivative in log T."""

    log_t: float
    slope: float
    curvature: float

    @classmethod
    def at(cls, ahead: Tensor, log_t: float) -> _Point:
        return cls.of(log_t, *slope_and_curvature(ahead, math.exp(log_t)))

    @classmethod
    def of(cls, log_t: float, slopes: Tensor, curvatures: Tensor) -> _Point:
        """The point of these derivatives of each sample's NLL in 1/T."""
        sharpness = math.exp(-log_t)
        slope = sharpness * float(slopes.sum())
        return cls(log_t, log_t - slope, 1 + slope + sharpness**2 * float(curvatures.sum()))


Edge = Callable[[int], _Point]  # the point that so many cells lie below


def _temperature(ahead: Tensor, at_edge: Edge) -> float:
    """The T of least cost for samples with this `ahead_of_label`.

    Every minimum lies between T = 1 and the T of least NLL: beyond it, both terms rise. Above 1 the
    cost is convex there. Below 1 it may have several minima, and each cell is looked at.
    """
    start = at_edge(0)
    if start.slope < 0:
        return math.exp(_minimum(ahead, start, None))
    minima = [_minimum(ahead, *ends) for ends in _minima_below_1(ahead, start, at_edge)]
    lowest = minima[0]
    if len(minima) > 1:
        lowest = min(minima, key=lambda log_t: _cost(ahead, log_t))
    return max(math.exp(lowest), LOWEST)


def _cost(ahead: Tensor, log_t: float) -> float:
    return float(nlls(ahead, math.exp(log_t)).sum()) + log_t**2 / 2


def _minima_below_1(ahead: Tensor, here: _Point, at_edge: Edge) -> list[tuple[_Point, _Point]]:
    """Points left and right of each minimum, at most a cell apart; equal at the range's end."""
    found = []
    reach = math.inf
    for number in range(-1, -BELOW - 1, -1):
        right = here
        here = at_edge(number)
        ends = _in_cell(ahead, here, right)
        found += ends
        # NLL is at least 0: further away, the prior alone costs more than is known to do.
        if ends or number == -4:
            reach = min(reach, math.sqrt(2 * _cost(ahead, right.log_t)))
        # The former: NLL falls with T.
        if here.slope <= here.log_t or (found and -here.log_t > reach):
            return found
    if here.slope > 0:
        found.append((here, here))
    return found


def _in_cell(ahead: Tensor, left: _Point, right: _Point) -> list[tuple[_Point, _Point]]:
    """Points around the minimum between two, if there is one."""
    if left.slope < 0 <= right.slope:
        return [(left, right)]
    sign = math.copysign(1.0, right.slope)
    if left.slope * sign > 0 and left.curvature * sign < 0 < right.curvature * sign:
        # The slope comes nearer to 0 and leaves again: where it turns it may have crossed.
        turn = left.log_t + WIDTH * left.curvature / (left.curvature - right.curvature)
        middle = _Point.at(ahead, turn)
        if middle.slope * sign < 0:
            return [(middle, right) if sign > 0 else (left, middle)]
    return []


def _minimum(ahead: Tensor, left: _Point, right: _Point | None) -> float:
    """log T without slope between two points, or above one, clamped to the largest.

    Newton's method, with bisection if it leaves the bracket or is slow.
    """
    if left == right:
        return left.log_t
    low = left.log_t
    high = math.inf if right is None else right.log_t
    here = left
    last = 2 * _LONGEST
    while True:
        step = math.inf
        if here is left and right is not None:
            step = (high - low) * left.slope / (left.slope - right.slope)
        elif here.curvature > 0:
            step = -here.slope / here.curvature
        if not (low <= here.log_t + step <= high and abs(step) <= last / 2):
            step = (low + high) / 2 - here.log_t if math.isfinite(high) else _LONGEST
        log_t = here.log_t + step
        last = abs(step)
        if low >= math.log(HIGHEST) or last < _SHORTEST:
            return min(log_t, math.log(HIGHEST))
        here = _Point.at(ahead, log_t)
        if here.slope > 0:
            high = log_t
        else:
            low = log_t


# ---- the temperature by NLL alone ----------------------------------------------------------------


def fit_temperature_by_nll(logits: Tensor, labels: Tensor) -> float:
    """The T > 0 of least mean NLL of logits [N, K] / T, labels [N] int64, as in the papers.

    NLL is convex in 1/T, so the sign of its slope brackets the minimum: Newton's method on log T,
    with bisection if it leaves the bracket or is slow, always converges; the usual LBFGS settings
    stop short of the minimum. Clamped to [0.01, 1000] if no finite minimum exists.
    """
    if not (logits.gather(-1, labels[:, None]) > -torch.inf).any():
        return 1.0
    ahead = ahead_of_label(logits, labels)
    log_t = 0.0
    low, high = -math.inf, math.inf
    last = 2 * _LONGEST
    while True:
        derivatives = slope_and_curvature(ahead, math.exp(log_t))
        slope, curvature = (float(each.mean()) for each in derivatives)
        if slope > 0:
            low = log_t
        else:
            high = log_t
        if low >= math.log(HIGHEST):
            return HIGHEST
        if high <= math.log(LOWEST):  # confident and correct even at the lowest temperature
            return LOWEST
        step = math.inf if slope > 0 else -math.inf
        if curvature > 0:
            step = slope / curvature * math.exp(log_t)
        if not (low <= log_t + step <= high and abs(step) <= last / 2):
            step = math.copysign(_LONGEST, step)
            if math.isfinite(high - low):
                step = (low + high) / 2 - log_t
        log_t += step
        last = abs(step)
        if last < _SHORTEST:
            return min(max(math.exp(log_t), LOWEST), HIGHEST)


def ahead_of_label(logits: Tensor, labels: Tensor) -> Tensor:
    """Each logit minus its label's, [K, N] float64: softmax by columns takes a quarter of the time.

    All 0 for a sample whose label has a stored probability of 0: its NLL does not depend on the
    temperature.
    """
    # A copy, changed in place: with many classes it is most of the memory that a fit takes.
    found = logits.T.to(torch.float64, copy=True, memory_format=torch.contiguous_format)
    own = found.gather(0, labels[None])
    # Finite, so that a probability of 0 times its logit is 0; low enough to stay 0 at every
    # temperature.
    return found.sub_(own).masked_fill_(own == -torch.inf, 0.0).clamp_(min=-1e300)


def slope_and_curvature(ahead: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Derivatives of each NLL in 1/T, [N]: mean and variance of `ahead` under the scaled probs."""
    means = []
    variances = []
    for part in in_parts(ahead, dim=1):
        probs = (part / temperature).softmax(dim=0)
        weighted = probs * part
        mean = weighted.sum(dim=0)
        means.append(mean)
        variances.append((weighted * part).sum(dim=0) - mean.square())
    return torch.cat(means), torch.cat(variances)


def nlls(ahead: Tensor, temperature: float) -> Tensor:
    """The NLL of each sample at a temperature, [N]. ahead: of `ahead_of_label`."""
    parts = in_parts(ahead, dim=1)
    return torch.cat([(part / temperature).logsumexp(dim=0) for part in parts])


# From here on behind the largest logit, a class may be one that cannot occur: its probability is
# less than the least normal float32.
FAR = -math.log(torch.finfo(torch.float32).tiny)
APART = 1.5  # so many times further behind than any class that can occur


def reach_of_classes(logits: Tensor, labels: Tensor) -> float:
    """How far behind the largest of a sample's logits [N, K] its classes can occur, in nats.

    A class at this distance or beyond cannot occur: it has a probability of 0, or a logit that
    masks it, such as -100 or float32's least. Classes that can occur end at two thirds of it: where
    a network's logits lie far apart without such a gap, all count. So do finite logits of labels
    [N], and all that are about as far behind: such classes do occur.
    """
    behind = -behind_top(logits)
    of_labels = behind.gather(-1, labels[:, None])
    occurred = float(of_labels.masked_fill(of_labels == torch.inf, 0.0).max())
    start = max(FAR / APART, occurred)
    far = behind[behind > start].sort().values
    edges = torch.cat([far.new_tensor([start]), far])
    is_last = torch.cat([far >= APART * edges[:-1], far.new_ones(1, dtype=torch.bool)])
    return APART * float(edges[is_last][0])


@dataclass(frozen=True)
class VectorScaling:
    """scale * logits + bias, class by class; both [K] float64. Guo et al. 2017, Section 4.2.

    A class that cannot occur in a sample, at `reach` or beyond, stays as far behind the largest as
    it was, whatever its scale and bias.
    """

    scale: Tensor
    bias: Tensor
    reach: float = math.inf  # as `reach_of_classes`

    def __call__(self, logits: Tensor) -> Tensor:
        """Calibrated logits [N, K] float64; probabilities of 0 stay 0."""
        behind = behind_top(logits)
        never = behind <= -self.reach
        scaled = logits.double().masked_fill(never, 0.0) * self.scale + self.bias
        largest = scaled.masked_fill(never, -torch.inf).amax(dim=-1, keepdim=True)
        return torch.where(never, largest + behind, scaled)


# Bound of the scale, per spread of the logits, and of the bias in nats: the only limit if the data
# are separable.
LARGEST = 1000.0


def fit_vector_scaling(
    logits: Tensor, labels: Tensor, prior: float = 1.0, reach: float | None = None
) -> VectorScaling:
    """The scaling of least NLL, summed, plus half the squares of each bias and scale * T - 1.

    T is the fitted temperature. These are priors worth one sample: a bias normal around 0, a scale
    over 1/T normal around 1, both with standard deviation 1; `prior` multiplies their squares, 0 is
    the fit of Guo et al. 2017. Convex: L-BFGS-B in float64 from the fitted temperature. The
    identity if it cannot be improved. logits: [N, K]; labels: [N].

    A class that cannot occur in a sample is left out of its softmax: the limit, at a scale > 0, of
    a logit that falls to -inf. So it does not matter which number masks the class. A sample whose
    label has a probability of 0 is left out. reach: that of `reach_of_classes`, by default of these
    samples.
    """
    from scipy.optimize import minimize

    num_classes = logits.shape[1]
    ones = torch.ones(num_classes, dtype=torch.float64, device=logits.device)
    identity = VectorScaling(ones, torch.zeros_like(ones))
    fit = fit_temperature if prior else fit_temperature_by_nll
    temperature = fit(logits, labels)
    if reach is None:
        reach = reach_of_classes(logits, labels)
    never = behind_top(logits) <= -reach
    # The samples that inform a fit: those with a finite NLL.
    possible = ~never.gather(-1, labels[:, None]).squeeze(-1)
    logits = logits[possible].double()
    labels = labels[possible]
    never = never[possible]
    if not len(labels):
        return identity

    known = torch.where(never, logits.amax(dim=-1, keepdim=True), logits)
    spread = float((known - known.mean(dim=-1, keepdim=True)).square().mean().sqrt()) or 1.0
    truth = F.one_hot(labels, num_classes)

    def scaling(parameters: np.ndarray) -> VectorScaling:
        scale, bias = torch.from_numpy(parameters).to(logits.device).reshape(2, num_classes)
        return VectorScaling(scale / spread, bias, reach)

    centre = np.repeat([spread / temperature, 0.0], num_classes)
    per = np.repeat([temperature / spread, 1.0], num_classes)  # a parameter's standard deviations

    def loss_and_slope(parameters: np.ndarray) -> tuple[float, np.ndarray]:
        """The cost per sample, and its gradient."""
        by = scaling(parameters)
        scaled = (known * by.scale + by.bias).masked_fill(never, -torch.inf)
        off = (scaled.softmax(dim=-1) - truth) / len(labels)
        slope = torch.cat([(off * known).sum(dim=0) / spread, off.sum(dim=0)]).cpu().numpy()
        away = (parameters - centre) * per
        weight = prior / len(labels)
        loss = float(F.cross_entropy(scaled, labels)) + weight * away @ away / 2
        return loss, slope + weight * away * per

    start = np.minimum(centre, LARGEST)
    bounds = [(-LARGEST, LARGEST)] * len(centre)
    options = {"maxiter": 1000, "maxfun": 2000, "ftol": 1e-15, "gtol": 1e-9}
    found = minimize(
        loss_and_slope, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options
    )
    before = float(F.cross_entropy(logits.masked_fill(never, -torch.inf), labels))
    if found.fun < before * (1 - 1e-12):
        return scaling(found.x)
    return identity


# ---- cross-fitting -------------------------------------------------------------------------------

Calibrator = Callable[[Tensor], Tensor]  # logits to calibrated logits, [N, K] float64
Fit = Callable[[Tensor, Tensor], Calibrator]
Fitted = TypeVar("Fitted", bound=Calibrator)


@dataclass(frozen=True)
class TemperatureScaling:
    temperature: float

    def __call__(self, logits: Tensor) -> Tensor:
        return logits.double() / self.temperature


def by_temperature(logits: Tensor, labels: Tensor) -> TemperatureScaling:
    """Temperature scaling, fitted by NLL with a prior worth one sample."""
    return TemperatureScaling(fit_temperature(logits, labels))


def temperature_by_nll(logits: Tensor, labels: Tensor) -> TemperatureScaling:
    """Temperature scaling, fitted by NLL alone: the papers'."""
    return TemperatureScaling(fit_temperature_by_nll(logits, labels))


def by_temperature_of_ece(logits: Tensor, labels: Tensor) -> TemperatureScaling:
    """Temperature scaling, fitted by ECE on a grid."""
    return TemperatureScaling(fit_temperature_by_ece(logits, labels))


def by_structured(logits: Tensor, labels: Tensor, form: str) -> Structured:
    """Structured scaling, after the temperature of least NLL. form: of FORMS."""
    return fit_structured(logits, labels, fit_temperature_by_nll(logits, labels), form)


TEMPERATURES = {"temperature": by_temperature, "temperature_by_nll": temperature_by_nll}
FITS: dict[str, Fit] = {
    **TEMPERATURES,
    "temperature_of_ece": by_temperature_of_ece,
    "vector_scaling": fit_vector_scaling,
    **{form: functools.partial(by_structured, form=form) for form in FORMS},
}


def cross_fitted(
    logits: Tensor,
    labels: Tensor,
    folds: int = FOLDS,
    fit: Fit = by_temperature,
    groups: Tensor | None = None,
) -> Tensor:
    """Calibrated logits [N, K]; no sample, and no group, is used to fit its own calibration.

    The fold of sample i is i % folds, with groups [N] that of its group; it is calibrated by a fit
    on the other folds. Scores of these logits estimate the performance on new data while using the
    whole set.

    Vector scaling depends on a constant that is added to all logits of a sample. If a class of any
    sample cannot occur, it is fitted to log-probabilities: what all ways of writing this share.
    """
    if fit is fit_vector_scaling:
        reach = reach_of_classes(logits, labels)
        fit = functools.partial(fit_vector_scaling, reach=reach)
        if (behind_top(logits) <= -reach).any():
            logits = logits.double().log_softmax(dim=-1)
    return by_folds(fold_fits(logits, labels, fit, folds, groups), logits, groups)


def fold_fits(
    logits: Tensor,
    labels: Tensor,
    fit: Callable[[Tensor, Tensor], Fitted],
    folds: int = FOLDS,
    groups: Tensor | None = None,
) -> list[Fitted]:
    """For each fold, the fit on the others; none for a single sample, or a single group."""
    folds = min(folds, len(labels) if groups is None else int(groups.max()) + 1)
    if folds < 2:
        return []
    if fit is by_temperature:
        found = map(TemperatureScaling, fold_temperatures(logits, labels, folds, groups))
        return [cast(Fitted, each) for each in found]
    fold = folds_of(len(labels), groups, folds).to(logits.device)
    return [fit(logits[fold != k], labels[fold != k]) for k in range(folds)]


def by_folds(fits: Sequence[Calibrator], logits: Tensor, groups: Tensor | None = None) -> Tensor:
    """The logits [N, K] with each fold calibrated by its fit; unchanged without fits."""
    calibrated = logits.to(torch.float64, copy=True)
    for k, calibrate in enumerate(fits):
        own = _rows_of_fold(k, len(fits), groups)
        calibrated[own] = calibrate(logits[own])
    return calibrated


def _rows_of_fold(fold: int, folds: int, groups: Tensor | None) -> slice | Tensor:
    """The rows of a fold of `folds_of`; without groups a slice, which copies nothing."""
    if groups is None:
        return slice(fold, None, folds)
    return folds_of(len(groups), groups, folds) == fold
