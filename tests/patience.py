"""How long a test waits on a machine that may be busy."""

import os


def patient(seconds: float) -> float:
    """So many seconds, times the load of the last minute where that exceeds the CPUs.

    pytest's own processes count from the start: a load of one minute comes late.
    """
    processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    load = max(float(processes), os.getloadavg()[0])
    return seconds * max(1.0, load / (os.cpu_count() or 1))
