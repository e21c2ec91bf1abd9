"""What a version's record says of the calibrator that it applies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from study.schema.objective import IN_WORDS, TEMPERATURE
from study.uncertainty.calibrators import DECIDING, NONE, REFERENCE, calibrators, less_text
from trainables.metrics.shared.structured import Structured
from trainables.outputs.predictions import Predictions


def calibrator_facts(
    validation: Predictions, name: str, fitted: Structured, serves: str
) -> dict[str, Any]:
    """`calibrator`, its name, and `calibration`: of how many parameters it is on how many samples,
    the digest of its tensors, and what it changes, cross-fitted, less what is served."""
    reference = REFERENCE if serves == TEMPERATURE else NONE
    found = calibrators(validation, [name], reference=reference)[name]
    numbers = {key: value for key, value in found.items() if "_less" in key or key == "changed"}
    return {
        "calibrator": name,
        "calibration": {
            "parameters": fitted.num_parameters,
            "samples": len(validation.labels),
            "sha256": fitted.digest(),
            **numbers,
        },
    }


def calibrator_line(facts: Mapping[str, Any]) -> str:
    """What is said of it on the card and by `calstudy export`; empty without one."""
    if "calibrator" not in facts:
        return ""
    found = facts["calibration"]
    named = dict(zip(DECIDING, ("NLL", "Brier score", "ECE"), strict=True))
    less = ", ".join(f"{named[metric]} {less_text(found, metric)}" for metric in DECIDING)
    return (
        f"Selected {IN_WORDS[facts['serves']]}, and given {facts['calibrator']}, which was not"
        f" selected: {found['parameters']:,} parameters on {found['samples']:,} validation samples."
        f" Cross-fitted there, less the model as selected: {less};"
        f" {found['changed']:,} predicted classes change."
    )
