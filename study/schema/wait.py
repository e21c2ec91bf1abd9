"""What a run on a cluster waits for: --wait, --nodes and --slots."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from trainables.problems import UserError

UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}
DEFAULT = "15m"  # where it is known that nodes will come: asked for, or an autoscaler's


def duration(text: str) -> float:
    """The seconds of --wait: `90s`, `15m`, `2h`. Raises UserError."""
    if re.fullmatch(r"\d+(\.\d+)?", text):
        raise UserError(f"--wait: '{text}' has no unit", f"Write {text}m.")
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text)
    if match is None:
        raise UserError(f"--wait: '{text}' is no duration", "Write 90s, 15m or 2h.")
    return float(match[1]) * UNITS[match[2]]


@dataclass(frozen=True)
class Wait:
    """What a run on a cluster waits for, and how long. text: --wait; nodes, slots: as many as are
    to be there. Without any of them a node has to be there already."""

    text: str | None = None
    nodes: int | None = None
    slots: int | None = None

    @property
    def options(self) -> dict[str, Any]:
        """The options that are given, by name."""
        given = {"wait": self.text, "nodes": self.nodes, "slots": self.slots}
        return {name: value for name, value in given.items() if value is not None}

    @property
    def seconds(self) -> float:
        """--wait; 0 if it is not given."""
        return 0.0 if self.text is None else duration(self.text)

    def patience(self, grows: bool) -> str | None:
        """How long it waits; None: not at all. grows: an autoscaler adds nodes."""
        if self.text is not None:
            return self.text
        return DEFAULT if self.nodes or self.slots or grows else None


NO_WAIT = Wait()
