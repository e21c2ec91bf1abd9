"""Expected squared difference (ESD) as an auxiliary loss. Yoon et al. 2023."""

from dataclasses import dataclass, field

from torch import Tensor

from trainables.fields import number
from trainables.method import AuxiliaryMethod, Method
from trainables.methods.cross_entropy import CrossEntropy


def expected_squared_difference(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean over samples i of m_i^2 - s_i^2 / (N - 1), m_i and s_i^2 the mean and the variance,
    which divides by N - 2, over j other than i of (hit_j - c_j) [c_j <= c_i].

    An unbiased estimate of the mean of (E[hit - confidence; confidence <= c])^2 over confidences c:
    it may be negative, and its expectation, not its value, is the same for every batch size. Fewer
    than 3 samples have no variance and give 0 (the released code divides by 0). logits: [N, K]
    float. labels: [N] int64. Hits and comparisons are constants. Memory: N^2.
    """
    confidence, predicted = logits.softmax(dim=-1).max(dim=-1)
    samples = len(labels)
    if samples < 3:
        return 0.0 * confidence.sum()
    gap = (predicted == labels).to(logits.dtype) - confidence
    below = (confidence[None, :] <= confidence[:, None]).to(logits.dtype)
    # m_i^2 - s_i^2 / (N - 1) is the mean of the products of two different gaps: the square of their
    # sum, less their squares, each of which counts for every i at or above it but its own.
    total = (below @ gap - gap).square().sum()
    squares = ((below.sum(dim=0) - 1) * gap.square()).sum()
    return (total - squares) / (samples * (samples - 1) * (samples - 2))


@dataclass(frozen=True)
class Esd(AuxiliaryMethod):
    """base loss + weight * ESD of the batch. The released code takes the term on a tenth of train
    that it holds out, cross-entropy on the rest; ours takes both on each batch."""

    weight: float = number(4.0, low=0, doc="weight of the ESD term")
    base: Method = field(
        default_factory=CrossEntropy, metadata={"doc": "the loss the term is added to"}
    )

    @property
    def per_position(self) -> bool:
        """Its term compares all rows with one another."""
        return False

    def term(self, logits: Tensor, labels: Tensor) -> Tensor:
        return expected_squared_difference(logits, labels)
