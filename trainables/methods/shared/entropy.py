"""Entropy of predictions, as confidence penalty, prioritization and the records of training take it."""

import torch.nn.functional as F
from torch import Tensor


def entropy(logits: Tensor) -> Tensor:
    """[N] entropies -sum_k p_k log p_k of logits [N, K], in nats. Where p_k rounds to 0 its term is 0."""
    log_probs = F.log_softmax(logits, dim=-1)
    return -(log_probs.exp() * log_probs).sum(dim=-1)
