"""NVIDIA's MPS, under which the processes on a GPU work at the same time, and a fatal fault of one ends all."""

import os
from pathlib import Path


def is_running() -> bool:
    """Whether its daemon serves this machine: it keeps a pipe in this folder while it does."""
    return Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY") or "/tmp/nvidia-mps", "control").exists()
