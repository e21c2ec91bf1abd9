"""The cost of one trial, as `trainables.trial_probe` measures it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Cost:
    """One trial's cost, alone on its device: process (CPU) seconds if not said otherwise, bytes."""

    process_start: float  # of a worker's process, with its imports
    first: float  # what the first trial of its kind in a process takes more
    build: float  # of the network, and of the first epoch what it takes more than the others
    epoch: float
    epoch_wall: float  # wall-clock seconds, as the trial's history has them
    result: float  # evaluation of the result, and its files
    checkpoint: float  # to write one
    files: int  # of the result
    rows: float  # of history and log, an epoch
    checkpoint_size: int
    memory: int  # of the process, at its peak
    device_memory: int | None  # of the GPU, at its peak; None on a CPU
    epochs: int  # trained for this
    diverged: str | None = None  # the loss, or the validation NLL, that was not finite, and where
    undefined: str | None = None  # the objective that was not finite
