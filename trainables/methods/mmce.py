"""Maximum mean calibration error as an auxiliary loss. Kumar et al. 2018, Section 3."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from trainables.fields import choice, number
from trainables.method import AuxiliaryMethod, Method
from trainables.methods.cross_entropy import CrossEntropy


def weighted_mmce(
    logits: Tensor, labels: Tensor, kernel_width: float | Tensor, normalization: str = "paper"
) -> Tensor:
    """MMCE_w squared: weighted kernel means over right and wrong pairs, minus twice mixed ones.

    With r = 1 - c for the m correct samples, c for the n wrong ones, c the confidence and k =
    exp(-|c - c'| / width): mean_rr r r' k + mean_ww c c' k - 2 mean_rw r c' k (Eq. 7). logits: [N,
    K] float. labels: [N] int64. Hits are constants. 0 if all are correct or all wrong.
    normalization: `paper`, or `released_code`, which divides each mean once more by its number of
    pairs (8 to 40 times smaller on 64 to 200 samples; code derived from it does so too).
    """
    confidence, predicted = logits.softmax(dim=-1).max(dim=-1)
    right = (predicted == labels).to(logits.dtype)
    wrong = 1 - right
    kernel = torch.exp(-(confidence[:, None] - confidence[None, :]).abs() / kernel_width)

    def mean(first: Tensor, second: Tensor, pairs: Tensor) -> Tensor:
        once = (first @ kernel @ second) / pairs.clamp(min=1)
        return once / (pairs + 1e-5) if normalization == "released_code" else once

    m = right.sum()
    n = wrong.sum()
    shortfall = right * (1 - confidence)
    excess = wrong * confidence
    squared = (
        mean(shortfall, shortfall, m * m)
        + mean(excess, excess, n * n)
        - 2 * mean(shortfall, excess, m * n)
    )
    return torch.where((m > 0) & (n > 0), squared, torch.zeros_like(squared))


def mmce_penalty(
    logits: Tensor, labels: Tensor, kernel_width: float | Tensor, normalization: str = "paper"
) -> Tensor:
    """sqrt(MMCE_w^2 + 1e-10), as in the released code; 0 if all are correct or all wrong."""
    # Negative only by rounding.
    squared = weighted_mmce(logits, labels, kernel_width, normalization).clamp(min=0)
    return torch.where(squared > 0, (squared + 1e-10).sqrt(), torch.zeros_like(squared))


@dataclass(frozen=True)
class Mmce(AuxiliaryMethod):
    """base loss + weight * MMCE_w of the batch. Late in training it is 0 for whole batches.

    Published weights belong to `normalization: released_code`.
    """

    weight: float = number(2.0, low=0, doc="weight of the MMCE term")
    kernel_width: float = number(0.4, above=0, doc="width of the Laplacian kernel on confidences")
    normalization: str = choice(
        "paper", "released_code", doc="whether means over pairs are divided once or twice"
    )
    base: Method = field(
        default_factory=CrossEntropy, metadata={"doc": "the loss the term is added to"}
    )

    @property
    def per_position(self) -> bool:
        """Its term is over all pairs of rows."""
        return False

    def term(self, logits: Tensor, labels: Tensor) -> Tensor:
        return mmce_penalty(logits, labels, self.kernel_width, self.normalization)
