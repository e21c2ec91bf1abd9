"""Heartbeat: says that a command is alive where it would be silent for too long."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

LAST_BEAT = 1.0  # seconds that the end waits for a line that is just printed


class Heartbeat:
    """Calls `beat` from a thread of its own, once it is due. Each beat says when the next one is.

    `within` and `end` may be called by any thread, the beat itself included.
    """

    def __init__(self, beat: Callable[[], None]) -> None:
        self._beat = beat
        self._changed = threading.Condition()
        self._due: float | None = None  # by the monotonic clock
        self._is_over = False
        self._thread = threading.Thread(target=self._keep_beating, name="heartbeat", daemon=True)
        self._thread.start()

    def within(self, seconds: float) -> None:
        """The next beat is so many seconds from now, whatever was said before."""
        with self._changed:
            self._due = time.monotonic() + seconds
            self._changed.notify()

    def end(self) -> None:
        """No beat begins from now on."""
        with self._changed:
            self._is_over = True
            self._changed.notify()
        if threading.current_thread() is not self._thread:
            self._thread.join(LAST_BEAT)

    def _keep_beating(self) -> None:
        while self._wait():
            self._beat()

    def _wait(self) -> bool:
        """Until a beat is due; False once it is over."""
        with self._changed:
            while not self._is_over:
                left = None if self._due is None else self._due - time.monotonic()
                if left is not None and left <= 0:
                    self._due = None
                    return True
                self._changed.wait(left)
        return False
