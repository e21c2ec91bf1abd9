"""Label smoothing. Szegedy et al. 2016, Section 7; for calibration, Mueller et al. 2019."""

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from trainables.fields import number
from trainables.method import Method
from trainables.vectorized import cross_entropy, mean


def label_smoothing_loss(logits: Tensor, targets: Tensor, epsilon: float | Tensor) -> Tensor:
    """Mean cross-entropy with targets (1 - epsilon) onehot + epsilon / K, in nats.

    logits: [N, K] float. targets: labels [N] int64, or soft [N, K]. 0 <= epsilon < 1; 0 gives
    cross-entropy. The convention of PyTorch and MbLS, over all K classes. MDCA spreads epsilon over
    the K - 1 wrong ones: its epsilon times K / (K - 1) equals ours.
    """
    uniform = -mean(F.log_softmax(logits, dim=-1), logits)
    return (1 - epsilon) * cross_entropy(logits, targets) + epsilon * uniform


@dataclass(frozen=True)
class LabelSmoothing(Method):
    """Validation NLL is always measured on hard labels."""

    epsilon: float = number(0.05, low=0, below=1, doc="target probability spread over all classes")
    elementwise = True

    def loss(self, logits: Tensor, targets: Tensor, progress: float | Tensor) -> Tensor:
        return label_smoothing_loss(logits, targets, self.epsilon)
