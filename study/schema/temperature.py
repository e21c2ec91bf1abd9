"""A model's temperature: its fits, and a note on one that the data do not determine."""

from __future__ import annotations

import math

# A study and a registered model record which of the post-hoc fits `ts_` values are of. Those are
# not imported here: they load torch.
TEMPERATURE_FIT = "temperature_fit"
WITH_PRIOR = "temperature"
FIT_IN_WORDS = "by NLL with a prior worth one sample"
LOWEST, HIGHEST = 0.01, 1000.0  # the range of the fits


def is_doubtful(temperature: float, accuracy: float) -> bool:
    """Whether it was fitted to a split without an error, or lies at an end of the range."""
    return accuracy == 1 or any(
        math.isclose(temperature, end, rel_tol=1e-6) for end in (LOWEST, HIGHEST)
    )


def temperature_note(temperature: float, accuracy: float, samples: int) -> str:
    """A sentence on a doubtful temperature; else empty.

    accuracy: on the validation samples it was fitted to.
    """
    if not is_doubtful(temperature, accuracy):
        return ""
    text = f"The temperature, {temperature:.4g}, is fitted to {samples:,} validation samples"
    if accuracy == 1:
        text += (
            " without an error, which do not show how sure the model may be: a prior worth one"
            " sample keeps it from falling further"
        )
    if math.isclose(temperature, LOWEST, rel_tol=1e-6):
        text += "; it is the lowest that is tried, and a lower one would fit them better"
    elif math.isclose(temperature, HIGHEST, rel_tol=1e-6):
        text += "; it is the highest that is tried, and a higher one would fit them better"
    return f"{text}."
