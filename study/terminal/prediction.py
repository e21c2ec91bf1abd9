"""A prediction as people read it: a table per method, and a few lines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

from study.analysis.prediction import MethodPrediction, Prediction
from study.store.spending import UNITS
from study.terminal.console import human_bytes
from study.terminal.layout import Table
from study.terminal.progress import human_seconds


def prediction_table(found: Prediction) -> Table:
    """One row a method, and the sum. Memory: of a trial's process, and on its GPU."""
    header = ["method", ">trials", ">a trial", ">CPU time", ">GPU-hours", ">disk", ">memory"]
    rows = [[*header, ">GPU memory"]]
    for method in found.methods:
        device = method.device_memory
        rows.append(
            [
                method.label,
                str(method.trials),
                _seconds(method.trial_seconds),
                _seconds(method.process_seconds),
                f"{method.gpu_hours:.3g}",
                human_bytes(method.disk),
                human_bytes(method.memory),
                "" if device is None else human_bytes(device),
            ]
        )
    trials = f"{found.total('trials'):.0f}"
    process = _seconds(found.total("process_seconds"))
    hours = f"{found.total('gpu_hours'):.3g}"
    rows.append(["all", trials, "", process, hours, human_bytes(found.total("disk")), "", ""])
    if not any(method.gpu_hours for method in found.methods):
        for row in rows:
            del row[7], row[4]
    made = Table(*rows[0])
    for row in rows[1:]:
        made.add_row(*row)
    return made


def prediction_lines(
    found: Prediction, stopped: Prediction | None, memory_free: int | None, device_size: int | None
) -> Iterator[str]:
    """found: all trials trained to their end. stopped: with early stopping, if the study has it."""
    parts = f"trials {_seconds(found.total('process_seconds'))}, workers {_seconds(found.workers)}"
    yield (
        f"CPU time: about {_seconds(found.process_seconds)} of all processes ({parts}, driver and"
        f" Ray {_seconds(found.driver)})"
    )
    yield f"as a budget counts: about {_hours(found)} (training time x what is reserved)"
    yield (
        f"elapsed: {_between(found.elapsed)} with {found.slots} trials at once, if nothing else"
        " runs"
    )
    if stopped is not None:
        share, low, high = _epochs(stopped)
        yield (
            f"with early stopping: about {share:.0%} of the epochs ({low:.0%} to {high:.0%}),"
            f" {_seconds(stopped.process_seconds)} CPU time, {_hours(stopped)}, elapsed"
            f" {_between(stopped.elapsed)}"
        )
    yield _fits(found, memory_free, device_size)
    largest = max(method.checkpoint_size for method in found.methods)
    if found.checkpoint_bandwidth:
        rate = f"{human_bytes(found.checkpoint_bandwidth)} a second at most"
        yield f"checkpoints: {found.slots} of up to {human_bytes(largest)} while trials run, {rate}"
    else:
        yield (
            f"checkpoints: none; trials are shorter than checkpoint_seconds ({human_bytes(largest)}"
            " each)"
        )
    yield from filter(None, map(_warning, found.methods))


def _warning(method: MethodPrediction) -> str:
    """What was not finite, so that trials fail; empty if all was."""
    found = method.diverged or method.undefined
    if found is None:
        return ""
    mend = "Choose another objective, or mend the metric if it is yours."
    if method.diverged is not None:
        mend = "Lower optimizer.lr, or change the method's settings, or its loss if it is yours."
    fails = "In a study such a trial fails."
    return f"warning: {method.label}: {found} in the probe. {fails} {mend}"


def _hours(found: Prediction) -> str:
    """Of all trials, in the units of a budget."""
    totals = {word: found.total(unit) for unit, word in UNITS.items()}
    return ", ".join(f"{hours:.2g} {word}" for word, hours in totals.items() if hours)


def _epochs(stopped: Prediction) -> tuple[float, float, float]:
    """The share of all epochs that early stopping leaves: expected, at least, at most."""
    expected = sum(one.trials * one.epochs_share for one in stopped.methods)
    least = sum(one.trials * one.epochs_between[0] for one in stopped.methods)
    most = sum(one.trials * one.epochs_between[1] for one in stopped.methods)
    trials = sum(one.trials for one in stopped.methods)
    return expected / trials, least / trials, most / trials


def _fits(found: Prediction, memory_free: int | None, device_size: int | None) -> str:
    """How many trials have room at once."""
    most = max(method.memory for method in found.methods)
    line = f"memory: {human_bytes(most)} a trial at most"
    if memory_free is not None and most:
        line += f"; {human_bytes(memory_free)} are free, enough for {int(memory_free // most)}"
    devices = [method.device_memory for method in found.methods if method.device_memory]
    if devices and device_size is not None:
        most = max(devices)
        line += (
            f"; {human_bytes(most)} of a GPU, whose {human_bytes(device_size)} are enough for"
            f" {int(device_size // most)}"
        )
    return line


def prediction_plain(found: Prediction, stopped: Prediction | None) -> dict[str, object]:
    """The prediction for JSON: seconds and bytes."""

    def plain(each: Prediction) -> dict[str, object]:
        return {**asdict(each), "process_seconds": each.process_seconds}

    return {**plain(found), "with_early_stopping": None if stopped is None else plain(stopped)}


def _seconds(seconds: float) -> str:
    return f"{seconds:.2g} s" if seconds < 10 else human_seconds(seconds)


def _between(ends: tuple[float, float]) -> str:
    low, high = map(_seconds, ends)
    if low.split()[-1] == high.split()[-1]:
        low = low.split()[0]
    return high if low in (high, high.split()[0]) else f"{low} to {high}"
