"""Probe trials in the process that trains them: a process of its own here, or a Ray task on a
node."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict

import torch

from study.machines.node_facts import room
from trainables.plain import Plain
from trainables.plugins import in_a_line, raised_at
from trainables.problems import FieldError
from trainables.training.device import device_for, ran_out_of_memory
from trainables.trial_probe import probe_trial

STARTED = time.process_time()  # imports included


def answer(
    configs: Sequence[dict[str, Plain]],
    digest: str,
    resources: dict[str, float],
    also: Sequence[str],
    folder: str | None = None,
) -> dict[str, Plain]:
    """The costs of a method's trials, and what this machine has for them; or the `problem`, in one
    line, with the `path` of the field that mends it.

    The rest as in `probe_trial`. folder: for temporary files; default: one of its own.
    """
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="calstudy-probe-") as own:
            return answer(configs, digest, resources, also, own)
    try:
        given = digest, resources, also, folder, STARTED
        costs = [asdict(probe_trial(config, *given)) for config in configs]
        device = device_for(resources["gpu"])
        size = (
            torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else None
        )
    except (Exception, SystemExit) as error:
        if ran_out_of_memory(error):
            fix = "Raise resources.gpu, or lower batch_size"
            return {"problem": f"runs out of memory with {resources['gpu']:g} GPU. {fix}."}
        if isinstance(error, FieldError) and error.path == "extensions":
            return {"problem": error.problem, "path": error.path}
        if (place := raised_at(error)) is not None:
            return {"problem": f"{place}: {in_a_line(error)}.", "path": "extensions"}
        return {"problem": f"{in_a_line(error)}."}
    return {"costs": costs, "memory_free": room(folder)["memory"], "device_size": size}


def main() -> None:
    """Answer the jobs on standard input, each with a line of JSON; what else is printed goes to
    standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        asked = json.loads(line)
        configs, digest, resources, also = asked["job"]
        found = answer(configs, digest, resources, also, asked["folder"])
        answers.write(json.dumps(found) + "\n")
        answers.flush()
