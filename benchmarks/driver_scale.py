"""What a trial costs the driver at 10, 100 and 1,000 slots, with trials of ten minutes.

    python benchmarks/driver_scale.py  # some minutes; a table for results/scale.md
    python benchmarks/driver_scale.py --slots 10 1000 --ended 100

No Ray and no training: an executor of our own starts trials on a clock of its own, and gives the
search the events that Tune would, so that hours pass in seconds. All else is a run's: ledger (a
journal), sampler (`tpe`), listeners (display on a pipe, model keeper, budget), MLflow (embedded,
written in the driver's thread so that its time is told apart). What Tune and Ray cost beside that,
`scale.py` measures. Each number of slots is measured once all of them are busy and trials end, over
the second half of the trials that do.

CPU seconds of the driver's thread, each part without the parts inside it. Where others work on the
machine CPU seconds are longer too: `pace` is a fixed piece of Python, timed with each mark, and
ratios are of costs divided by it, to the first row. TMPDIR should be no disk: the ledger waits for
each of its writes to arrive.
"""

from __future__ import annotations

import argparse
import hashlib
import heapq
import io
import json
import random
import statistics
import tempfile
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

METHODS = 10
EPOCHS = 60
SECONDS = 600.0  # of a trial in the mean
SPREAD = 0.3  # of a trial's seconds, to either side
WINDOW = 25  # ended trials between two marks
RANGES = {
    **{
        f"optimizer.{name}": {"low": 0.01, "high": 0.5}
        for name in ("lr", "momentum", "weight_decay")
    },
    "model.width": {"low": 32, "high": 256, "int": True},
}
MEASURED = ("train_loss", "accuracy", "nll", "brier", "ece")
FINAL = ("accuracy", "error", "nll", "brier", "ece", "mce", "adaptive_ece", "classwise_ece")
PARTS = ("proposal", "ledger", "reports", "display", "other listeners", "mlflow", "rest")


class Meter:
    """CPU seconds by part: of nested parts each has its own only."""

    def __init__(self) -> None:
        self.parts: dict[str, float] = defaultdict(float)
        self._open: list[str] = []
        self._since = time.thread_time()

    @contextmanager
    def of(self, part: str) -> Iterator[None]:
        self._turn()
        self._open.append(part)
        try:
            yield
        finally:
            self._turn()
            self._open.pop()

    def _turn(self) -> None:
        now = time.thread_time()
        if self._open:
            self.parts[self._open[-1]] += now - self._since
        self._since = now

    def all_of(self, owner: Any, part: str, *names: str) -> Any:
        """The object or class, with these methods timed."""
        for name in names:
            setattr(owner, name, self._timed(getattr(owner, name), part))
        return owner

    def _timed(self, method: Callable[..., Any], part: str) -> Callable[..., Any]:
        def timed(*arguments: Any, **named: Any) -> Any:
            with self.of(part):
                return method(*arguments, **named)

        return timed


class Clock:
    """Seconds that pass when we say so."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


class Slots:
    """A cluster of so many slots, all fit."""

    def __init__(self, count: int) -> None:
        self._count = count

    def slots(self) -> int:
        return self._count

    def trained(self) -> None:
        pass

    def pass_over(self, unfit: Any) -> None:
        raise AssertionError(unfit)

    def look(self) -> None:
        pass


class Executor:
    """Trains nothing, and reports as trials of ten minutes would. Only the search is timed."""

    def __init__(self, search: Any, slots: int, clock: Clock, meter: Meter) -> None:
        self._search = search
        self._slots = slots
        self._clock = clock
        self._meter = meter
        self._waiting: deque[tuple[str, dict[str, Any]]] = deque()
        self._events: list[tuple[float, str, int]] = []  # when, whose, after which epoch
        self._running: dict[str, tuple[dict[str, Any], float]] = {}  # with an epoch's seconds
        self._draw = random.Random(0)
        self._handed_out = 0
        self.ended = 0
        self.reports = 0
        self.busy = 0.0  # slot-seconds

    def train(self, ended: int, on_window: Callable[[], None]) -> None:
        """Until so many trials have ended."""
        while self.ended < ended:
            self._fill()
            when, trial_id, epoch = heapq.heappop(self._events)
            self.busy += (when - self._clock.now) * len(self._running)
            self._clock.now = when
            self._report(trial_id, epoch)
            with self._meter.of("rest"):
                self._search.look()
                self._search.overdue()
            if self._search.fault is not None:
                raise self._search.fault
            if epoch == EPOCHS and self.ended % WINDOW == 0:
                on_window()

    def _fill(self) -> None:
        """Take what the search has, and start what fits."""
        while True:
            trial_id = f"t{self._handed_out}"
            with self._meter.of("rest"):
                found = self._search.suggest(trial_id)
            if not isinstance(found, dict):
                break
            self._handed_out += 1
            self._waiting.append((trial_id, json.loads(found["assignment"])))
        while self._waiting and len(self._running) < self._slots:
            trial_id, assignment = self._waiting.popleft()
            with self._meter.of("rest"):
                self._search.attempt_started(trial_id)
            seconds = SECONDS * (1 + SPREAD * (2 * self._draw.random() - 1)) / EPOCHS
            self._running[trial_id] = assignment, seconds
            self._next(trial_id, 0)

    def _next(self, trial_id: str, epoch: int) -> None:
        assignment, seconds = self._running[trial_id]
        epochs = min(max(1, int(assignment["step_seconds"] / seconds)), EPOCHS - epoch)
        heapq.heappush(self._events, (self._clock.now + epochs * seconds, trial_id, epoch + epochs))

    def _report(self, trial_id: str, epoch: int) -> None:
        assignment, seconds = self._running[trial_id]
        first = epoch - min(max(1, int(assignment["step_seconds"] / seconds)), epoch) + 1
        rows = [self._row(each, seconds) for each in range(first, epoch + 1)]
        outcome = self._outcome(assignment, seconds) if epoch == EPOCHS else None
        report = json.dumps({assignment["trial"]: {"rows": rows, "outcome": outcome}})
        self.reports += 1
        with self._meter.of("reports"):
            self._search.goes_on(trial_id, report)
            if outcome is None:
                self._search.on_trial_result(trial_id, {"reports": report})
            else:
                self._search.on_trial_complete(trial_id, {"reports": report})
        if outcome is None:
            self._next(trial_id, epoch)
        else:
            del self._running[trial_id]
            self.ended += 1

    def _row(self, epoch: int, seconds: float) -> dict[str, float]:
        head = {"epoch": epoch, "time": 1.7e9 + seconds * epoch, "seconds": seconds}
        return head | {"samples": 50_000 * epoch} | {name: self._draw.random() for name in MEASURED}

    def _outcome(self, assignment: dict[str, Any], seconds: float) -> dict[str, Any]:
        """And the one file of the trial that MLflow is written from."""
        folder = Path(assignment["directory"]) / f"attempt-{assignment['attempt']}"
        folder.mkdir(parents=True, exist_ok=True)
        history = json.dumps([self._row(epoch, seconds) for epoch in range(1, EPOCHS + 1)])
        (folder / "history.json").write_text(history)
        return {
            "state": "complete",
            "metrics": {
                prefix + name: self._draw.random() for prefix in ("", "ts_") for name in FINAL
            },
            "epoch": EPOCHS,
            "seconds": seconds * EPOCHS,
            "samples": 50_000 * EPOCHS,
            "device": "cpu",
            "digests": {"history.json": hashlib.sha256(history.encode()).hexdigest()},
        }


def pace() -> float:
    """CPU seconds of some Python as a driver runs it: JSON in and out, small objects."""
    began = time.thread_time()
    for _ in range(100):
        json.loads(json.dumps([{"name": str(number), "value": number} for number in range(100)]))
    return time.thread_time() - began


def run(slots: int, ended: int, directory: Path) -> dict[str, float]:
    """CPU milliseconds a trial by part, and what else the table has."""
    from rich.console import Console

    from study.engine.budget import Spending
    from study.engine.keeping import ModelKeeper
    from study.engine.search import LedgerSearch
    from study.schema.uris import embedded_tracking
    from study.terminal import progress
    from study.tracking.writer import StudyRuns

    clock = Clock()
    meter = Meter()
    progress.time = SimpleNamespace(monotonic=clock.monotonic)  # type: ignore[attr-defined]
    study, ledger = made(directory, slots, ended)
    runs = StudyRuns(study, embedded_tracking(directory))
    runs.open()
    meter.all_of(ledger, "ledger", "add", "begin_attempt", "tell", "record", "add_extensions")
    spec = study.spec
    shown = progress.Progress(spec, ledger.trials(), Console(file=io.StringIO()))
    keeper = ModelKeeper(study, ledger.trials())
    spending = Spending(spec, ledger.trials(), {})
    heard = ("handed_out", "started", "trained", "finished", "said")
    listeners = [
        meter.all_of(keeper, "other listeners", *heard),
        meter.all_of(shown, "display", *heard),
        meter.all_of(spending, "other listeners", *heard, "may_begin_of"),
        written(meter, runs),
    ]
    with shown:
        search = clocked(LedgerSearch, study, ledger, listeners, Slots(slots), clock)
        meter.all_of(search.queue._proposer, "proposal", "proposal", "see")
        executor = Executor(search, slots, clock, meter)
        marks: list[dict[str, float]] = []

        def mark() -> None:
            counts = {"trials": executor.ended, "events": executor.reports}
            marks.append({**counts, "pace": pace(), **meter.parts})

        executor.train(ended, mark)
    return each(marks[len(marks) // 2 - 1 :]) | {"busy": executor.busy / (slots * clock.now)}


def clocked(kind: Any, study: Any, ledger: Any, listeners: Any, nodes: Any, clock: Clock) -> Any:
    """A search on the clock."""

    class OnClock(kind):  # type: ignore[misc]
        def _now(self) -> float:
            return clock.now

    return OnClock(study, ledger, listeners, nodes)


def made(directory: Path, slots: int, ended: int) -> tuple[Any, Any]:
    """A study of METHODS labels without a trial, and its ledger.

    `sampler.pending` lets the search hand out twice the slots, which is its own limit.
    """
    from study.schema.reading import spec_from_mapping
    from study.store.ledger import Ledger, open_storage
    from study.store.recorded import Recorded
    from study.store.study import StudyFolder, write_study_file

    plain = {
        "name": "driver",
        "data": "digits",
        "model": "mlp",
        "methods": [
            {"label": f"focal_{number}", "name": "focal", "gamma": 1.0 + number}
            for number in range(METHODS)
        ],
        "search_space": RANGES,
        "epochs": EPOCHS,
        "trials": -(-(ended + 2 * slots) // METHODS) + 1,
        "trial_minutes": 60,
        "sampler": {"pending": -(-2 * slots // METHODS)},
    }
    spec = spec_from_mapping(plain, "driver.yaml")
    folder = directory / "driver"
    folder.mkdir()
    recorded = Recorded(
        id="driver",
        created="2026-11-26T00:00:00+00:00",
        data_digest="none",
        classes=[str(number) for number in range(10)],
        sizes={"train": 900, "validation": 287, "test": 360},
        serves="temperature",
        majority=0.1,
        temperature_fit="temperature",
        meaning=spec.meaning(),
    )
    study = StudyFolder.of(folder, spec, recorded)
    write_study_file(study)
    ledger = Ledger(open_storage(folder, None), study.name, study.id)
    for label in study.labels:
        ledger.open(label, spec.objectives)
    return study, ledger


def written(meter: Meter, runs: Any) -> Any:
    """The listener that writes MLflow."""
    from study.store.trials import Listener

    class Written(Listener):
        def finished(self, record: Any) -> None:
            with meter.of("mlflow"):
                runs.write(record)

    return Written()


def each(marks: list[dict[str, float]]) -> dict[str, float]:
    """From the first mark to the last: a trial's, and the median of `pace`."""
    first, last = marks[0], marks[-1]
    count = last["trials"] - first["trials"]
    found = {part: 1000 * (last.get(part, 0) - first.get(part, 0)) / count for part in PARTS}
    found["events"] = (last["events"] - first["events"]) / count
    return {**found, "pace": 1000 * statistics.median(mark["pace"] for mark in marks)}


HEADER = (
    f"| slots | busy | reports a trial | {' | '.join(PARTS)} | in all | pace | ratio |\n"
    f"|{'---|' * (len(PARTS) + 6)}"
)


def line(slots: int, row: dict[str, float], base: float | None) -> tuple[str, float]:
    """A row, and what ratios are to."""
    total = sum(row[part] for part in PARTS)
    base = base or total / row["pace"]
    cells = " | ".join(f"{row[part]:.1f}" for part in PARTS)
    ends = f"{total:.1f} | {row['pace']:.1f} | {total / row['pace'] / base:.2f}"
    return f"| {slots:,} | {row['busy']:.0%} | {row['events']:.0f} | {cells} | {ends} |", base


def main() -> None:
    parser = argparse.ArgumentParser(description="What a trial costs the driver, CPU ms.")
    parser.add_argument("--slots", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--ended", type=int, default=300, help="trials until a run is over")
    options = parser.parse_args()
    print(HEADER, flush=True)
    base = None
    for slots in options.slots:
        with tempfile.TemporaryDirectory(prefix="driver-scale-") as folder:
            shown, base = line(slots, run(slots, options.ended, Path(folder)), base)
        print(shown, flush=True)


if __name__ == "__main__":
    main()
