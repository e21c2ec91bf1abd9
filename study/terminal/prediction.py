"""A prediction as people read it: a table per method, and a few lines."""

from __future__ import annotations

from collections.abc import Iterator

from study.analysis.prediction import MethodPrediction, Prediction
from study.store.spending import UNITS
from study.terminal.console import human_bytes
from study.terminal.layout import Table
from study.terminal.progress import human_seconds


def prediction_table(found: Prediction) -> Table:
    """One row a method, and the sum. Memory: of a trial's process, and on its GPU."""
    header = ["method", ">trials", ">a trial", ">CPU time", ">GPU-hours", ">disk", ">memory"]
    rows = [[*header, ">GPU memory"]]
    for one in found.methods:
        on_gpu = "" if one.device_memory is None else human_bytes(one.device_memory)
        rows.append(
            [
                one.label,
                str(one.trials),
                _seconds(one.trial_seconds),
                _seconds(one.process_seconds),
                f"{one.gpu_hours:.3g}",
                human_bytes(one.disk),
                human_bytes(one.memory),
                on_gpu,
            ]
        )
    trials = f"{found.total('trials'):.0f}"
    process = _seconds(found.total("process_seconds"))
    hours = f"{found.total('gpu_hours'):.3g}"
    rows.append(["all", trials, "", process, hours, human_bytes(found.total("disk")), "", ""])
    if not found.total("gpu_hours"):
        for row in rows:
            del row[7], row[4]
    made = Table(*rows[0])
    for row in rows[1:]:
        made.add_row(*row)
    return made


def prediction_lines(found: Prediction) -> Iterator[str]:
    """Of the whole study."""
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
    if (stopped := found.with_early_stopping) is not None:
        trials = stopped.total("trials")
        share = sum(one.trials * one.epochs_share for one in stopped.methods) / trials
        low, high = (
            sum(one.trials * one.epochs_between[end] for one in stopped.methods) / trials
            for end in (0, 1)
        )
        yield (
            f"with early stopping: about {share:.0%} of the epochs ({low:.0%} to {high:.0%}),"
            f" {_seconds(stopped.process_seconds)} CPU time, {_hours(stopped)}, elapsed"
            f" {_between(stopped.elapsed)}"
        )
    yield _fits(found)
    largest = human_bytes(max(one.checkpoint_size for one in found.methods))
    if found.checkpoint_bandwidth:
        rate = f"{human_bytes(found.checkpoint_bandwidth)} a second at most"
        yield f"checkpoints: {found.slots} of up to {largest} while trials run, {rate}"
    else:
        yield f"checkpoints: none; trials are shorter than checkpoint_seconds ({largest} each)"
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


def _fits(found: Prediction) -> str:
    """How many trials have room at once."""
    most = max(one.memory for one in found.methods)
    line = f"memory: {human_bytes(most)} a trial at most"
    if found.memory_free is not None and most:
        enough = int(found.memory_free // most)
        line += f"; {human_bytes(found.memory_free)} are free, enough for {enough}"
    most = max(one.device_memory or 0 for one in found.methods)
    if found.device_size is not None and most:
        enough = int(found.device_size // most)
        size = human_bytes(found.device_size)
        line += f"; {human_bytes(most)} of a GPU, whose {size} are enough for {enough}"
    return line


def _seconds(seconds: float) -> str:
    return f"{seconds:.2g} s" if seconds < 10 else human_seconds(seconds)


def _between(ends: tuple[float, float]) -> str:
    low, high = map(_seconds, ends)
    if low.split()[-1] == high.split()[-1]:
        low = low.split()[0]
    return high if low in (high, high.split()[0]) else f"{low} to {high}"
