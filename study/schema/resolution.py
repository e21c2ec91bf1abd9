"""The difference that a validation split can tell, from how often recorded networks disagree."""

from __future__ import annotations

from statistics import NormalDist

from study.schema.objective import plain_name
from study.schema.spec import StudySpec
from trainables.metrics import described

# Share of samples on which exactly one of two networks of about this accuracy is right:
# medians of 200 pairs of recorded trials on digits, Fashion-MNIST and CIFAR-10
# (`python -m benchmarks.experiments.objectives resolution`).
DISAGREEMENT = {0.95: 0.030, 0.83: 0.059, 0.49: 0.194}
LEVEL = 0.95


def resolution_line(spec: StudySpec, samples: int, noun: str) -> str:
    """The difference that validation samples resolve between two networks, in a sentence.

    noun: what samples are called. Empty without accuracy or error as an objective. A network's
    accuracy is not known before there is one, so it is said for each recorded accuracy.
    """
    names = [plain_name(one.metric) for one in spec.objectives]
    name = next((name for name in names if name in ("accuracy", "error")), None)
    if name is None:
        return ""
    matters = spec.matters.get(name) or described()[name].smallest(2) or 0.01
    widths = [half_width(share, samples) for share in DISAGREEMENT.values()]
    needed = [_rounded(samples * (width / matters) ** 2) for width in widths]
    at = _listed([f"{accuracy:g}" for accuracy in DISAGREEMENT])
    return (
        f"{samples:,} validation {noun} resolve ±{_listed([f'{width:.3f}' for width in widths])} in"
        f" {name} between two networks of accuracy {at}; for your {matters:g} about"
        f" {_listed([f'{count:,}' for count in needed])} {noun}"
    )


def half_width(disagreement: float, samples: int, level: float = LEVEL) -> float:
    """Half the interval of a difference of two accuracies on the same samples.

    Each sample contributes 1, 0 or -1; the variance of the mean is at most disagreement / samples.
    """
    return float(NormalDist().inv_cdf((1 + level) / 2) * (disagreement / samples) ** 0.5)


def _rounded(count: float) -> int:
    """The count to two digits: it is an estimate."""
    step = 10 ** max(0, len(str(int(count))) - 2)
    return int(round(count / step) * step)


def _listed(words: list[str]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"
