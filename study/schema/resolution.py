"""The differences that a validation split can tell, from how recorded networks differ."""

from __future__ import annotations

from study.schema.objective import plain_name
from study.schema.spec import StudySpec
from trainables.metrics import describe, described

ACCURACIES = (0.95, 0.83, 0.49)
# Half the 95% interval of a difference on the same samples, times the root of their number: medians
# of pairs of recorded trials of about these accuracies, on digits, Fashion-MNIST and CIFAR-10
# (`python -m benchmarks.experiments.objectives resolution`).
HALF_WIDTHS = {
    "accuracy": (0.35, 0.45, 0.85),
    "nll": (0.80, 0.71, 0.97),
    "brier": (0.34, 0.33, 0.40),
    "ece": (0.76, 1.25, 1.78),
    "adaptive_ece": (0.79, 1.24, 1.88),
    "smooth_ece": (0.56, 0.92, 1.22),
    "debiased_l2": (1.37, 1.74, 2.12),
}
HALF_WIDTHS["error"] = HALF_WIDTHS["accuracy"]


def resolution_line(spec: StudySpec, samples: int, noun: str) -> str:
    """The differences that validation samples resolve between two networks, in a sentence.

    noun: what samples are called. Empty if no objective is recorded. A network's accuracy is not
    known before there is one, so it is said for each recorded accuracy.
    """
    names = dict.fromkeys(plain_name(one.metric) for one in spec.objectives)
    resolved, enough = [], []
    for name in names:
        if name in HALF_WIDTHS:
            label = describe(name).label
            widths = [half_width(name, samples, place) for place in (0, -1)]
            resolved.append(f"±{widths[0]:.3f} to {widths[-1]:.3f} in {label}")
            matters = spec.matters.get(name) or described()[name].smallest(2) or 0.01
            least, most = (_rounded(samples * (width / matters) ** 2) for width in widths)
            enough.append(f"for {matters:g} in {label} about {least:,} to {most:,} {noun}")
    if not resolved:
        return ""
    at = f"{ACCURACIES[0]:g} to {ACCURACIES[-1]:g}"
    return (
        f"{samples:,} validation {noun} resolve {_and(resolved)} between two networks of accuracy"
        f" {at}; {_and(enough)}"
    )


def half_width(metric: str, samples: int, place: int) -> float:
    """Half the interval of a difference in it on so many samples, at that place of ACCURACIES."""
    return HALF_WIDTHS[metric][place] / samples**0.5


def _rounded(count: float) -> int:
    """The count to two digits: it is an estimate."""
    step = 10 ** max(0, len(str(int(count))) - 2)
    return int(round(count / step) * step)


def _and(words: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))
