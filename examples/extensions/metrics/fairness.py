"""A metric of your own: how much worse the worst class fares. An example."""

from torch import Tensor

# Plain values alone: commands that only read a study take them from the text.
METRICS = {
    "fairness_gap": {"stored": True, "kind": "fraction", "better": "lower", "matters": 0.02},
}


def fairness_gap(logits: Tensor, labels: Tensor) -> Tensor:
    """Largest less smallest accuracy of a class. logits: [N, K]. labels: [N]."""
    hits = (logits.argmax(dim=-1) == labels).double()
    of_each = [hits[labels == label].mean() for label in labels.unique()]
    return max(of_each) - min(of_each)
