"""A prediction as people read it: a table per method, and a few lines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from study.analysis.prediction import Prediction
from study.terminal.console import human_bytes
from study.terminal.layout import Table
from study.terminal.progress import human_seconds


def prediction_table(found: Prediction) -> Table:
    """One row a method, and the sum. Memory: of a trial's process, and on its GPU."""
    uses_gpu = any(method.gpu_hours for method in found.methods)
    gpu = [">GPU-hours"] if uses_gpu else []
    device = [">GPU memory"] if uses_gpu else []
    made = Table("method", ">trials", ">a trial", ">CPU time", *gpu, ">disk", ">memory", *device)
    for method in found.methods:
        hours = [f"{method.gpu_hours:.3g}"] if uses_gpu else []
        on_gpu = (
            ["" if method.device_memory is None else human_bytes(method.device_memory)]
            if uses_gpu
            else []
        )
        made.add_row(
            method.label,
            str(method.trials),
            _seconds(method.trial_seconds),
            _seconds(method.process_seconds),
            *hours,
            human_bytes(method.disk),
            human_bytes(method.memory),
            *on_gpu,
        )
    whole = [f"{found.total('gpu_hours'):.3g}"] if uses_gpu else []
    trials, process = f"{found.total('trials'):.0f}", _seconds(found.total("process_seconds"))
    made.add_row(
        "all",
        trials,
        "",
        process,
        *whole,
        human_bytes(found.total("disk")),
        "",
        *([""] if uses_gpu else []),
    )
    return made


def prediction_lines(
    found: Prediction, stopped: Prediction | None, memory_free: int | None, device_size: int | None
) -> Iterator[str]:
    """found: all trials trained to their end. stopped: with early stopping, if the study has it."""
    parts = f"trials {_seconds(found.total('process_seconds'))}, workers {_seconds(found.workers)}"
    yield (
        f"CPU time: about {_seconds(found.process_seconds)} of all processes ({parts}, driver and Ray"
        f" {_seconds(found.driver)})"
    )
    if found.total("gpu_hours"):
        yield f"GPU time: about {found.total('gpu_hours'):.3g} GPU-hours"
    yield f"elapsed: {_between(found.elapsed)} with {found.slots} trials at once, if nothing else runs"
    if stopped is not None:
        hours = (
            f", {stopped.total('gpu_hours'):.3g} GPU-hours" if stopped.total("gpu_hours") else ""
        )
        share = sum(one.trials * one.epochs_share for one in stopped.methods) / stopped.total(
            "trials"
        )
        time = f"{_seconds(stopped.process_seconds)} CPU time{hours}, elapsed {_between(stopped.elapsed)}"
        yield f"with early stopping: about {share:.0%} of the epochs, {time}"
    yield _fits(found, memory_free, device_size)
    largest = max(method.checkpoint_size for method in found.methods)
    if found.checkpoint_bandwidth:
        rate = f"{human_bytes(found.checkpoint_bandwidth)} a second at most"
        yield f"checkpoints: {found.slots} of up to {human_bytes(largest)} while trials run, {rate}"
    else:
        yield f"checkpoints: none; trials are shorter than checkpoint_seconds ({human_bytes(largest)} each)"


def _fits(found: Prediction, memory_free: int | None, device_size: int | None) -> str:
    """How many trials have room at once."""
    most = max(method.memory for method in found.methods)
    line = f"memory: {human_bytes(most)} a trial at most"
    if memory_free is not None and most:
        line += f"; {human_bytes(memory_free)} are free, enough for {int(memory_free // most)}"
    devices = [method.device_memory for method in found.methods if method.device_memory]
    if devices and device_size is not None:
        size, most = human_bytes(device_size), max(devices)
        line += f"; {human_bytes(most)} of a GPU, whose {size} are enough for {int(device_size // most)}"
    return line


def prediction_plain(found: Prediction, stopped: Prediction | None) -> dict[str, Any]:
    """For JSON: seconds and bytes."""

    def plain(each: Prediction) -> dict[str, Any]:
        return {**asdict(each), "process_seconds": each.process_seconds}

    return {**plain(found), "with_early_stopping": None if stopped is None else plain(stopped)}


def _seconds(seconds: float) -> str:
    return f"{seconds:.2g} s" if seconds < 10 else human_seconds(seconds)


def _between(ends: tuple[float, float]) -> str:
    low, high = map(_seconds, ends)
    if low.split()[-1] == high.split()[-1]:
        low = low.split()[0]
    return high if low in (high, high.split()[0]) else f"{low} to {high}"
