"""How long a test waits on a machine that may be busy."""

import os
import time
from collections.abc import Callable
from typing import Any

LOOP_SECONDS = 0.085  # of the loop in `slowness`, on a core that nothing else uses


def patient(seconds: float) -> float:
    """So many seconds, times the load of the last minute where that exceeds the CPUs.

    pytest's own processes count from the start: a load of one minute comes late.
    """
    processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    load = max(float(processes), os.getloadavg()[0])
    return seconds * max(1.0, load / (os.cpu_count() or 1))


def slowness() -> float:
    """How many times as long as on an idle machine a short loop takes just now, at least 1.

    A shared machine's CPUs may be slow without a load of its own.
    """
    began = time.perf_counter()
    sum(number * number for number in range(1_000_000))
    return max(1.0, (time.perf_counter() - began) / LOOP_SECONDS)


def wait_until(
    happened: Callable[[], Any], seconds: float = 240, what: str = "", longest: float = 0.2
) -> float:
    """Seconds until it happened. TimeoutError where it does not in time, or a busy machine's.

    Looks are close together at first, then `longest` seconds apart: what takes long is not slowed
    down by them.
    """
    start, pause = time.monotonic(), min(longest, 0.01)
    while not happened():
        if time.monotonic() - start > patient(seconds):
            raise TimeoutError(f"not in {seconds:g} s: {what or 'what the test waits for'}")
        time.sleep(pause)
        pause = min(longest, 1.2 * pause)
    return time.monotonic() - start
