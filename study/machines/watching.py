"""Watch over Ray while trials train.

Ray says nothing when its control store is lost. After a while its C++ code ends the driver with
exit code 1 and without a word; of a raylet that ended it says nothing at all.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from study.machines.ray_compat import head_question, lost_services
from study.machines.stopping import Stopping

LOOK_SECONDS = 1.0
ASK_SECONDS = 3.0  # of a question, and between two
SILENCE = 10.0  # seconds without an answer until it is said
PATIENCE = 75.0  # seconds until the run ends: a head that answers again within a minute goes on


class Watching:
    """Says that Ray does not answer, and requests a stop when it is lost.

    ask: asks the control store, for so many seconds; raises if it does not answer. lost: what has
    ended of the processes that Ray cannot do without. show: gets the line to show while it waits,
    None afterwards.
    """

    def __init__(
        self,
        where: str,
        ask: Callable[[float], object],
        lost: Callable[[], list[str]],
        show: Callable[[str | None], None],
        stopping: Stopping,
    ) -> None:
        self._where = where
        self._ask = ask
        self._lost = lost
        self._show = show
        self._stopping = stopping
        self._over = threading.Event()
        self._answered = threading.Event()
        self._looking = threading.Thread(target=self._keep_looking, name="watching", daemon=True)
        self._silent = 0.0  # seconds; those in which this process itself was stopped do not count

    def start(self) -> None:
        threading.Thread(target=self._keep_asking, name="asking", daemon=True).start()
        self._looking.start()

    def end(self) -> None:
        """Nothing is requested from now on: that Ray's processes end is in order."""
        self._over.set()
        self._looking.join()

    def decide(self) -> bool:
        """Request a stop if Ray is lost; returns whether it is."""
        if lost := self._lost():
            self._stopping.request(f"the loss of Ray's {' and '.join(lost)}")
        elif self._silent > PATIENCE:
            self._stopping.request(f"the loss of Ray's head{self._where}")
        else:
            return False
        return True

    def explain(self) -> None:
        """Request a stop if an error of Ray's at this moment is a consequence of its loss."""
        if not self.decide() and self._silent > SILENCE:
            self._stopping.request(f"the loss of Ray's head{self._where}")

    def _keep_asking(self) -> None:
        while not self._over.is_set():
            with suppress(Exception):
                self._ask(ASK_SECONDS)
                self._answered.set()
            self._over.wait(ASK_SECONDS)

    def _keep_looking(self) -> None:
        looked = time.monotonic()
        said = False
        while not self._over.wait(LOOK_SECONDS):
            now = time.monotonic()
            self._silent += min(now - looked, 2 * LOOK_SECONDS)
            looked = now
            if self._answered.is_set():
                self._answered.clear()
                self._silent = 0.0
            if self.decide():
                return
            if self._silent > SILENCE:
                self._show(
                    f"Ray: its head{self._where} does not answer; waiting ({self._silent:.0f} s)"
                )
                said = True
            elif said:
                self._show(None)
                said = False


@contextmanager
def watched(
    address: str, show: Callable[[str | None], None] | None, stopping: Stopping
) -> Iterator[None]:
    """Watch over the joined Ray, whose control store is at HOST:PORT.

    An error that is a consequence of Ray's loss requests a stop.
    """
    watching = Watching(
        f" at {address}",
        head_question(address),
        lost_services,
        show or (lambda line: None),
        stopping,
    )
    watching.start()
    try:
        yield
    except Exception:
        watching.explain()
        raise
    finally:
        watching.end()
