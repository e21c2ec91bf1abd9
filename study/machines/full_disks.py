"""FullDisks: says that trials wait for space on a disk, and ends a run in which all do."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable

from study.machines.ray_compat import told_full
from study.machines.ray_session import ClusterUnready
from trainables.files.atomic import PATIENCE

LOOK_SECONDS = 5.0
STALE = 30.0  # seconds from one word of a worker to the next, at most
MARGIN = 30.0  # seconds by which a run ends before its trials give up
MEND = "Free some, then run again: the study goes on."


class FullDisks:
    """Follows what workers tell of full disks. tell: gets the line to show, None once all write."""

    def __init__(self, tell: Callable[[str | None], None]) -> None:
        self._tell = tell
        self._next_look = -math.inf
        # By worker what it told, and when: one that was killed tells the same for ever.
        self._seen: dict[str, tuple[str, float]] = {}
        self._since: float | None = None
        self._told = False

    def look(self, heard: float) -> None:
        """Called often. heard: when a trial last reported. Raises ClusterUnready where none has for
        as long as a write waits."""
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + LOOK_SECONDS
        for worker, told in (found := told_full()).items():
            if self._seen.get(worker, ("",))[0] != told:
                self._seen[worker] = (told, now)
        waiting = [each for worker, each in self._seen.items() if worker in found]
        lines = [told for told, when in waiting if now - when < STALE]
        if not lines:
            self._since = None
            if self._told:
                self._tell(None)
            self._told = False
            return
        self._since = self._since or now
        self._told = True
        line = json.loads(lines[0])[0]
        if now - max(self._since, heard) > PATIENCE - MARGIN:
            raise ClusterUnready(line, MEND)
        others = f", as {len(lines) - 1} others" if len(lines) > 1 else ""
        self._tell(f"a trial waits for space{others}: {line}")
