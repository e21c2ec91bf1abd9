"""Kernel calibration errors: estimates of a squared distance, 0 only for calibrated models.

Widmann et al. 2019, Calibration tests in multi-class classification: with h_ij = k(p_i, p_j) r_i .
r_j and r = [y = .] - p, the biased estimate is the mean of h over all pairs, the unbiased one that
over pairs of different samples, the linear one that over the pairs (0, 1), (2, 3), ... The last two
may be negative. With p the confidence and r = hit - confidence, the biased one is the square of
MMCE. Kumar et al. 2018.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from trainables.metrics.scores import probabilities, top_label

METRICS = {
    "mmce": {"place": 24, "function": "maximum_mean_calibration_error", "matters": 0.01},
    "skce_top_label": {"place": 25, "function": "top_label_kernel_error", "matters": 0.0001},
    "skce_top_label_unbiased": {
        "place": 26,
        "function": "top_label_kernel_error_unbiased",
        "matters": 0.0001,
    },
    "skce_top_label_linear": {
        "place": 27,
        "function": "top_label_kernel_error_linear",
        "matters": 0.0001,
    },
    "skce": {
        "place": 28,
        "label": "SKCE",
        "function": "kernel_calibration_error",
        "largest": 2,
        "matters": 0.0001,
    },
    "skce_unbiased": {
        "place": 29,
        "function": "kernel_calibration_error_unbiased",
        "largest": 2,
        "matters": 0.0001,
    },
    "skce_linear": {
        "place": 30,
        "function": "kernel_calibration_error_linear",
        "largest": 2,
        "matters": 0.0001,
    },
}

# Scale of the kernel exp(-distance / scale): on whole predictions, and on confidences as in MMCE.
SCALE = 0.5
TOP_LABEL_SCALE = 0.4
# Pairs are processed in blocks of this many samples squared.
BLOCK = 512


def kernel_calibration_error(logits: Tensor, labels: Tensor, probs: Tensor | None = None) -> Tensor:
    """SKCE of whole predictions, biased, over all pairs, in [0, 2]. Widmann et al. 2019."""
    return _pair_sum(*_whole(logits, labels, probs)) / len(labels) ** 2


def kernel_calibration_error_unbiased(
    logits: Tensor, labels: Tensor, probs: Tensor | None = None
) -> Tensor:
    """SKCE of whole predictions, unbiased: may be < 0; NaN for one sample. Widmann et al. 2019."""
    found, residual = _whole(logits, labels, probs)
    n = len(labels)
    return (_pair_sum(found, residual) - residual.square().sum()) / (n * (n - 1))


def kernel_calibration_error_linear(
    logits: Tensor, labels: Tensor, probs: Tensor | None = None
) -> Tensor:
    """SKCE of whole predictions over the pairs (0, 1), (2, 3), ...: noisy. Widmann et al. 2019."""
    found, residual = _whole(logits, labels, probs)
    end = len(labels) // 2 * 2
    distance = (found[0:end:2] - found[1:end:2]).square().sum(dim=-1).sqrt()
    product = (residual[0:end:2] * residual[1:end:2]).sum(dim=-1)
    return (torch.exp(-distance / SCALE) * product).mean()


def top_label_kernel_error(logits: Tensor, labels: Tensor, probs: Tensor | None = None) -> Tensor:
    """SKCE of the top label, biased: MMCE squared. Kumar et al. 2018, Widmann et al. 2019."""
    return _top_label_sum(*_top_label(logits, labels, probs)) / len(labels) ** 2


def top_label_kernel_error_unbiased(
    logits: Tensor, labels: Tensor, probs: Tensor | None = None
) -> Tensor:
    """SKCE of the top label, unbiased: may be negative; NaN for one sample. Widmann et al. 2019."""
    confidence, residual = _top_label(logits, labels, probs)
    n = len(labels)
    return (_top_label_sum(confidence, residual) - residual.square().sum()) / (n * (n - 1))


def top_label_kernel_error_linear(
    logits: Tensor, labels: Tensor, probs: Tensor | None = None
) -> Tensor:
    """SKCE of the top label over the pairs (0, 1), (2, 3), ...: noisy. Widmann et al. 2019."""
    confidence, residual = _top_label(logits, labels, probs)
    end = len(labels) // 2 * 2
    distance = (confidence[0:end:2] - confidence[1:end:2]).abs()
    return (torch.exp(-distance / TOP_LABEL_SCALE) * residual[0:end:2] * residual[1:end:2]).mean()


def maximum_mean_calibration_error(
    logits: Tensor, labels: Tensor, probs: Tensor | None = None
) -> Tensor:
    """MMCE: the root of the top label's biased SKCE, scale 0.4. Kumar et al. 2018."""
    return top_label_kernel_error(logits, labels, probs).clamp(min=0).sqrt()


def _whole(logits: Tensor, labels: Tensor, probs: Tensor | None) -> tuple[Tensor, Tensor]:
    found = probabilities(logits, probs).double()
    return found, F.one_hot(labels, found.shape[1]) - found


def _top_label(logits: Tensor, labels: Tensor, probs: Tensor | None) -> tuple[Tensor, Tensor]:
    confidence, hits = top_label(logits, labels, probs)
    return confidence.double(), hits - confidence.double()


def _pair_sum(probs: Tensor, residual: Tensor) -> Tensor:
    """The sum of h over all pairs including i = j, block by block, symmetric blocks once."""
    total = torch.zeros((), dtype=torch.float64, device=probs.device)
    blocks = [slice(start, start + BLOCK) for start in range(0, len(probs), BLOCK)]
    for k, one in enumerate(blocks):
        for other in blocks[k:]:
            distance = torch.cdist(probs[one], probs[other])  # accurate to 1e-8 for equal rows
            if other is one:
                distance.fill_diagonal_(0)
            weight = distance.div_(-SCALE).exp_()
            times = 1 if other is one else 2
            total += weight.mul_(residual[one] @ residual[other].T).sum() * times
    return total


def _top_label_sum(confidence: Tensor, residual: Tensor) -> Tensor:
    """The sum of h over all pairs, sorted: below c_i the kernel is a product of two terms."""
    confidence, order = confidence.sort()
    residual = residual[order]
    below = (residual * torch.exp(confidence / TOP_LABEL_SCALE)).cumsum(0).roll(1)
    below[0] = 0
    mirrored = residual.dot(torch.exp(-confidence / TOP_LABEL_SCALE) * below)
    return residual.square().sum() + 2 * mirrored
