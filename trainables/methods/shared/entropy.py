"""Entropy of predictions, for confidence penalty, prioritization and training records."""

import torch.nn.functional as F
from torch import Tensor


def entropy(logits: Tensor) -> Tensor:
    """[N] entropies -sum_k p_k log p_k of logits [N, K], in nats. A p_k that rounds to 0 adds 0."""
    log_probs = F.log_softmax(logits, dim=-1)
    return -(log_probs.exp() * log_probs).sum(dim=-1)
