"""What a stage should find, said before anything of it was seen on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from trainables.training.program import TOLERANCE

Found = Mapping[str, Any]
# By stage: in words, and whether it is so.
EXPECTED: dict[str, list[tuple[str, Callable[[Found], bool]]]] = {
    "inventory": [
        ("CUDA takes at most 700 MiB beside PyTorch", lambda found: found["context MiB"] <= 700),
        ("the GPU has bfloat16", lambda found: found["bfloat16"]),
    ],
    "equal": [
        ("every method is captured", lambda found: not found["ran eagerly"]),
        ("two eager runs are equal", lambda found: not found["eager unlike eager"]),
        ("captured steps equal eager ones", lambda found: not found["captured unlike eager"]),
        ("a step within 1e-5 of the CPU's weights", lambda found: found["from the CPU"] < 1e-5),
    ],
    "study": [("a clean audit", lambda found: found["audit"] == "clean")],
    "repeated": [
        (
            "a step repeats within the tolerance of a capture",
            lambda found: max(each["most"] for each in found.values()) <= TOLERANCE,
        ),
    ],
    "uncaptured": [
        ("the next trial is captured", lambda found: found["next"] == "captured"),
        ("finite weights", lambda found: found["finite"]),
    ],
    "synchronisation": [("no case waits", lambda found: not found["that wait"])],
    "networks": [
        ("every network is captured", lambda found: not found["ran eagerly"]),
        ("captured steps equal eager ones", lambda found: not found["captured unlike eager"]),
        (
            "captured at least .95 as fast as eager",
            lambda found: min(found["as fast as eager"].values()) >= 0.95,
        ),
    ],
    "streamed": [
        (
            "streamed at least half as fast for ResNet-18",
            lambda found: found["resnet18 streamed"] >= 0.5 * found["resnet18 resident"],
        ),
    ],
    "ladder resnet18": [
        ("captured at least as fast as eager", lambda found: _faster(found, 1.0)),
    ],
    "ladder cnn": [("captured 2 times as fast as eager", lambda found: _faster(found, 2.0))],
    "cost": [
        ("each method at most 4 times cross-entropy", lambda found: _most(found["over it"]) <= 4),
        ("a capture takes at most 5 s", lambda found: _most(found["capture s"]) <= 5),
    ],
    "actors": [("4 processes at least as fast as 1", lambda found: found["4"] >= found["1"])],
    "accuracy": [
        (
            "bfloat16 within .02 of float32's accuracy",
            lambda found: abs(found["bfloat16"]["accuracy"] - found["float32"]["accuracy"]) < 0.02,
        ),
    ],
}


def judged(stage: str, found: Found) -> dict[str, str]:
    """Each expectation of the stage: yes, no, or why that cannot be told."""
    if "failed" in found or "skipped" in found:
        return {}
    answers = {}
    for words, holds in EXPECTED.get(stage, []):
        try:
            answers[words] = "yes" if holds(found) else "no"
        except (KeyError, TypeError, ValueError) as error:
            answers[words] = f"not measured ({error})"
    return answers


def _faster(found: Found, times: float) -> bool:
    """Of the whole learner, in bfloat16."""
    return bool(found["learner bfloat16"] >= times * found["learner eager bfloat16"])


def _most(values: Mapping[str, float]) -> float:
    return max(values.values())
