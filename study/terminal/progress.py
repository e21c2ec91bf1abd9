"""Progress of a running study: a live view on a terminal, plain lines on a pipe."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.live import Live
from rich.segment import SegmentLines
from rich.text import Text

from study.analysis.pareto import front
from study.analysis.ranking import Rules
from study.store.trials import Listener, TrialRecord
from study.terminal.layout import Table
from study.terminal.tables import front_table

if TYPE_CHECKING:
    from study.schema.spec import StudySpec

# On a pipe: at most one line per interval, and one at the end.
LINE_SECONDS = 10.0
FRONT_ROWS = 6


class Progress(Listener):
    """Follows the search; as a context manager, displays progress until the run ends."""

    def __init__(
        self,
        spec: StudySpec,
        records: dict[str, list[TrialRecord]],
        console: Console,
        rules: Rules | None = None,
    ) -> None:
        """rules: which trials count; default: all."""
        self._spec, self._console = spec, console
        self._finished = [record for found in records.values() for record in found if record.state != "running"]
        self._planned = sum(max(spec.trials, len(found)) for found in records.values())
        self._running: dict[str, tuple[TrialRecord, int]] = {}
        self._started = time.monotonic()
        self._start_time = time.time()
        self._epochs = 0  # trained since then
        self._last_line = -LINE_SECONDS
        self._over = False
        self._rules = rules or Rules(spec.objectives)
        self._highest: dict[str, float] = {}
        self._front: list[TrialRecord] = self._front_of(self._finished)
        self._live = Live(console=console, refresh_per_second=4, get_renderable=self._view, transient=True)

    def __enter__(self) -> Progress:
        left = self._planned - len(self._finished)
        methods = len(self._spec.variants)
        self._console.print(f"{self._spec.name}: {left} of {self._planned} trials to run, {methods} methods")
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *failure: Any) -> None:
        if self._console.is_terminal:
            self._over = True
            self._live.stop()

    # ---- events ----------------------------------------------------------------------------------------------------

    def started(self, record: TrialRecord) -> None:
        """The first trial to start also starts the clock of `time_left`."""
        if not self._epochs and not self._running:
            self._started = time.monotonic()
        self._running[record.name] = (record, 0)

    def trained(self, record: TrialRecord, rows: list[dict[str, float]]) -> None:
        if rows:
            # The first report includes epochs of earlier attempts, timed before this run.
            self._epochs += sum(row["time"] >= self._start_time for row in rows)
            self._running[record.name] = (record, int(rows[-1]["epoch"]))
        self._line()

    def finished(self, record: TrialRecord) -> None:
        self._running.pop(record.name, None)
        self._finished.append(record)
        self._front = self._front_of([*self._front, record])
        if record.state == "failed":
            self._console.print(
                f"trial {record.name}: {(record.reason or '').rstrip('.')}. Recorded as failed; the study continues."
            )
        self._line()

    # ---- display ---------------------------------------------------------------------------------------------------

    def _front_of(self, records: list[TrialRecord]) -> list[TrialRecord]:
        self._highest = self._rules.best(records, self._highest)
        return front(self._rules.eligible(records, self._highest), self._spec.objectives)

    def time_left(self) -> str:
        """Estimated from the epochs per second of this run; running trials count by their epochs."""
        trials = self._planned - len(self._finished)
        left = trials * self._spec.epochs - sum(epoch for _, epoch in list(self._running.values()))
        if not self._epochs or left <= 0:
            return ""
        return f"about {human_seconds((time.monotonic() - self._started) / self._epochs * left)} left"

    def _line(self) -> None:
        """Print a progress line if on a pipe and one is due."""
        over = len(self._finished) >= self._planned
        if self._console.is_terminal or not (over or time.monotonic() - self._last_line >= LINE_SECONDS):
            return
        self._last_line = time.monotonic()
        states = Counter(record.state for record in self._finished)
        best = [f"{name} {value:.4f}" for name, value in self._best().items()]
        parts = [
            f"{len(self._finished)}/{self._planned} trials",
            *(f"{states[state]} {state}" for state in ("pruned", "failed") if states[state]),
            *([f"best {', '.join(best)}"] if best else []),
            *([self.time_left()] if self.time_left() else []),
        ]
        self._console.print("; ".join(parts), highlight=False, soft_wrap=True)

    def _best(self) -> dict[str, float]:
        found = {}
        for objective in self._spec.objectives:
            values = [record.metrics[objective.metric] for record in self._front]
            if values:
                found[objective.metric] = min(values, key=lambda value: objective.sign * value)
        return found

    def _view(self) -> Group:
        """The live view: one row per method, then the front so far."""
        if self._over:  # Rich draws it once more, as high as it is: what leaves the screen could not be removed
            return Group()
        bar = 24 if self._console.width >= 80 else 8
        methods = Table("method", ">done", ">running", ">failed", "")
        states = Counter((record.label, record.state) for record in self._finished)
        running = Counter(record.label for record, _ in list(self._running.values()))
        for variant in self._spec.variants:
            label = variant.label
            done, failed = states[label, "complete"] + states[label, "pruned"], states[label, "failed"]
            full = min(bar, bar * (done + failed) // self._spec.trials)
            methods.add_row(
                label,
                f"{done}/{self._spec.trials}",
                str(running[label]),
                Text(str(failed), style="red" if failed else "dim"),
                Text.assemble((full * "━", "bar.complete"), ((bar - full) * "━", "bar.back")),
            )
        epochs = [f"{name} {epoch}/{self._spec.epochs}" for name, (_, epoch) in list(self._running.items())[:4]]
        now = Text(
            f"{len(self._finished)}/{self._planned} trials  {self.time_left()}  {', '.join(epochs)}", style="dim"
        )
        best = front_table(self._front, self._spec.objectives, FRONT_ROWS)
        lines = self._console.render_lines(Group(methods, now, Text(), best), pad=False)
        # The cursor rests on an empty line: after a full one, the terminal's ^C would move everything down by a line.
        return Group(SegmentLines(lines[: self._console.height - 1], new_lines=True), Text())


def human_seconds(seconds: float) -> str:
    """`45 s`, `12 min`, `3.5 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
