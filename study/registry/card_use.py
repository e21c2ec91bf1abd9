"""What a registered model says of its classes, and what the registry shows of its card."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

Facts = Mapping[str, Any]  # what a version's record holds: plain values
MOST_CLASSES = 100  # on the card
LONGEST_DESCRIPTION = 5000  # characters the registry keeps
REST = "\n\nThe rest is in the version's file `calstudy/card.md`."
LONGEST_METADATA = 100_000  # characters of class names


def metadata(facts: Facts) -> dict[str, Any]:
    """What a loaded model says of itself: its classes, in the order of the probabilities.

    None where they are too long for a description that every loader reads.
    """
    classes = list(facts["classes"])
    if len(json.dumps(classes)) > LONGEST_METADATA:
        return {"num_classes": len(classes)}
    return {"classes": classes, "num_classes": len(classes)}


def shown(card: str) -> str:
    """The card as the registry keeps it: whole lines, and where the others are."""
    if len(card) <= LONGEST_DESCRIPTION:
        return card
    return card[: LONGEST_DESCRIPTION - len(REST)].rpartition("\n")[0].rstrip() + REST
