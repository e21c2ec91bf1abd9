"""The page's table of post-hoc calibrators for the model to take, on validation."""

from __future__ import annotations

from typing import Any

from study.answer.choice import Choice
from study.schema.objective import IN_WORDS, TEMPERATURE
from study.store.files import stored_predictions
from study.uncertainty.calibrators import (
    DECIDING,
    NONE,
    REFERENCE,
    calibrators,
    less_text,
    possible,
)
from trainables.machine import one_torch_thread
from trainables.metrics.shared.structured import FORMS

SHOWN = (REFERENCE, "vector_scaling", *FORMS)


def shown_calibrators(choice: Choice, serves: str, resamples: int, level: float) -> dict[str, Any]:
    """A sentence, and rows of text: NLL, Brier score and ECE less those of the model as it is
    served, and how many classes change. Raises FieldError if its predictions are missing."""
    predictions = stored_predictions(choice.study, choice.record)
    reference = REFERENCE if serves == TEMPERATURE else NONE
    names = possible(SHOWN, predictions)
    with one_torch_thread():
        found = calibrators(
            predictions, names, resamples=resamples, level=level, reference=reference
        )
    ships = "; `calstudy export --calibrator` registers a structured one"
    if choice.study.recorded.marked:
        ships = ""
    return {
        "said": (
            f"{choice.record.name} on validation, cross-fitted: each less the model"
            f" {IN_WORDS[serves]}, with paired intervals. Below 0 is better. None of them was"
            f" selected{ships}."
        ),
        "rows": [
            [name, *(less_text(row, metric) for metric in DECIDING), f"{row['changed']:,}"]
            for name, row in found.items()
            if name != reference
        ],
    }
