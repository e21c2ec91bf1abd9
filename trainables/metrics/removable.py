"""The part of a score that a temperature removes: miscalibration of the one kind it mends.

A score after temperature scaling is proper itself, so unlike an ECE the difference has no bins and
no bias from noise in them. It is negative where a cross-fitted temperature does harm: by noise
alone, a little below 0.
"""

from torch import Tensor

from trainables.metrics.scores import brier_score, negative_log_likelihood
from trainables.metrics.shared.post_hoc import cross_fitted

METRICS = {
    "calibration_nll": {"place": 31, "removed_of": "nll", "label": "calibration NLL",
        "unit": "nats", "largest": None, "reference": "log K", "matters": 0.02},
    "calibration_brier": {"place": 32, "removed_of": "brier", "label": "calibration Brier score",
        "largest": 2, "matters": 0.005},
}  # fmt: skip


def calibration_nll(
    logits: Tensor,
    labels: Tensor,
    calibrated: Tensor | None = None,
    groups: Tensor | None = None,
) -> Tensor:
    """NLL less NLL after temperature scaling, in nats.

    calibrated: the scaled logits [N, K]; default: cross-fitted on these samples, by groups [N].
    """
    after = _calibrated(logits, labels, calibrated, groups)
    return negative_log_likelihood(logits, labels) - negative_log_likelihood(after, labels)


def calibration_brier(
    logits: Tensor,
    labels: Tensor,
    calibrated: Tensor | None = None,
    groups: Tensor | None = None,
    probs: Tensor | None = None,
) -> Tensor:
    """Brier score less that after temperature scaling.

    calibrated: the scaled logits [N, K]; default: cross-fitted on these samples, by groups [N].
    """
    after = _calibrated(logits, labels, calibrated, groups)
    return brier_score(logits, labels, probs) - brier_score(after, labels)


def _calibrated(
    logits: Tensor, labels: Tensor, calibrated: Tensor | None, groups: Tensor | None
) -> Tensor:
    return cross_fitted(logits, labels, groups=groups) if calibrated is None else calibrated
