"""What the autoscaler of a cluster is asked for: nodes for all the trials that can run at once.

By itself it sees the one or two that Tune has pending, and a fleet doubles once in the time that a
node takes to boot.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeAlias

from study.machines.ray_compat import autoscaler_is_active
from study.machines.stopping import Stopping
from study.schema.resources import Resources

Demand: TypeAlias = Counter[Resources]  # how many trials of each need
# Ray keeps one request for a cluster: that of who asked last. Another study's is replaced, and
# replaces this one.
RENEW_SECONDS = 30.0
END_SECONDS = 3.0


class Requests:
    """Asks for what was wanted last, in a thread: Ray waits for a head that is away.

    send: sends bundles, in Ray's names.
    """

    def __init__(self, send: Callable[[list[dict[str, float]]], None]) -> None:
        self._send = send
        self._wanted: Demand | None = None
        self._changed = threading.Condition()
        self._is_over = False
        self._is_left = False  # by a process that has left Ray, whose C++ code would now end it
        self._thread = threading.Thread(target=self._keep_asking, name="asking for nodes")
        self._thread.daemon = True
        self._thread.start()

    def ask(self, wanted: Demand) -> None:
        """Ask for nodes for these trials, those that run included, from now on."""
        with self._changed:
            if wanted != self._wanted and not self._is_over:
                self._wanted = wanted
                self._changed.notify()

    def end(self) -> None:
        """Take back what was asked for."""
        with self._changed:
            self._is_over = True
            self._changed.notify()
        self._thread.join(END_SECONDS)
        self._is_left = True

    def _keep_asking(self) -> None:
        asked: Demand | None = None
        while True:
            with self._changed:
                if not self._is_over and self._wanted == asked:
                    self._changed.wait(RENEW_SECONDS)
                over = self._is_over
                wanted = self._wanted
            if over:
                break
            if wanted is not None:
                asked = wanted
                self._try(wanted)
        if asked is not None and not self._is_left:
            self._try(Counter())

    def _try(self, wanted: Demand) -> None:
        bundles = [needs.to_ray() for needs, count in wanted.items() for _ in range(count)]
        with suppress(Exception):  # a head that is away is asked again
            self._send(bundles)


@contextmanager
def asking(
    address: str | None, stopping: Stopping | None = None
) -> Iterator[Callable[[Demand], None]]:
    """Gives what asks the autoscaler of the joined Ray; does nothing where there is none, as on
    this machine alone (no address). What was asked for is taken back at the end, also of a process
    that `stopping` ends."""
    if address is None or autoscaler_is_active() is False:
        yield lambda wanted: None
        return
    requests = Requests(_request)
    if stopping is not None:
        stopping.last_acts.insert(0, requests.end)
    try:
        yield requests.ask
    finally:
        requests.end()


def _request(bundles: list[dict[str, float]]) -> None:
    from ray.autoscaler.sdk import request_resources

    request_resources(bundles=bundles)
