"""How long a test waits on a machine that may be busy."""

import os


def patient(seconds: float) -> float:
    """So many seconds, times the load of the last minute where that exceeds the CPUs."""
    return seconds * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
