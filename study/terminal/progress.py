"""Progress of a running study: a live view on a terminal, plain lines on a pipe."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.segment import SegmentLines
from rich.text import Text

from study.analysis.pareto import front
from study.analysis.ranking import Rules
from study.analysis.states import Counts, count_states, done, in_words, summed
from study.store.trials import Listener, TrialRecord, Trials
from study.terminal.heartbeat import Heartbeat
from study.terminal.steps import AGAIN_SECONDS, Steps, passing, pause
from study.terminal.tables import front_table, states_table

if TYPE_CHECKING:
    from study.schema.spec import StudySpec

FRONT_ROWS = 6
RUNNING_SHOWN = 4
ENOUGH = 2  # ended trials of a method, before an estimate is made from them alone
LINE_SECONDS = 10.0  # on a pipe, from the line of a trial that ended to the next one, at least
SILENT_SECONDS = 300.0  # on a pipe, without a line, once a trial has ended; AGAIN_SECONDS before


@dataclass
class Pace:
    """How fast trials train."""

    seconds: float = 0.0
    epochs: int = 0

    @classmethod
    def of_all(cls, paces: Iterable[Pace]) -> Pace:
        total = cls()
        for each in paces:
            total.seconds += each.seconds
            total.epochs += each.epochs
        return total

    @property
    def seconds_an_epoch(self) -> float:
        """NaN before the first epoch."""
        return self.seconds / self.epochs if self.epochs else math.nan

    def add(self, rows: Sequence[Mapping[str, float]]) -> None:
        """Epochs that a trial reports."""
        self.seconds += sum(row["seconds"] for row in rows)
        self.epochs += len(rows)


class Progress(Listener):
    """Follows the search; as a context manager, displays progress until the run ends.

    steps: what the run does until its first trial trains; then this display takes over. rules:
    which trials count.
    """

    def __init__(
        self,
        spec: StudySpec,
        records: Trials,
        console: Console,
        steps: Steps | None = None,
        rules: Rules | None = None,
    ) -> None:
        self._spec = spec
        self._console = console
        self._steps = steps or Steps(console)
        self._finished = list(records.finished)
        self._planned = {
            label: max(planned, len(records.of(label)))
            for label, planned in records.planned(spec.trials).items()
        }
        self._running: dict[str, tuple[TrialRecord, int]] = {}
        self._slots = 0  # trials, or stacks, that trained at once when the last one started
        self._paces = {label: Pace() for label in records.by_label}
        self._heartbeat: Heartbeat | None = None  # on a pipe, from the last step on
        self._last_line = -math.inf
        self._has_ended = False  # whether a trial has, in this run
        self._over = False
        self._waits: str | None = None
        self._remarked: set[str] = set()  # trials
        self._rules = rules or Rules(spec.objectives)
        self._highest: dict[str, float] = {}
        self._aside: tuple[int, set[str]] = (0, set())  # trials excluded, of that many finished
        self._front: list[TrialRecord] = self._front_of(self._finished)
        self._live = Live(
            console=console, refresh_per_second=4, get_renderable=self._view, transient=True
        )

    def __enter__(self) -> Progress:
        counts = summed(self._counts().values())
        methods = len(self._spec.variants)
        left = counts["planned"] - done(counts)
        self._console.print(
            f"{self._spec.name}: {left} of {counts['planned']} trials to run, {methods} methods"
        )
        return self

    def __exit__(self, *failure: Any) -> None:
        self._steps.end()
        if self._heartbeat is not None:
            self._heartbeat.end()
        if self._live.is_started:
            self._over = True
            self._live.stop()

    # ---- events ----------------------------------------------------------------------------------

    def handed_out(self, record: TrialRecord) -> None:
        # A race plans as it goes.
        self._planned[record.label] = max(self._planned[record.label], record.number + 1)

    def started(self, record: TrialRecord) -> None:
        self._take_over()
        self._running[record.name] = (record, 0)
        self._slots = len({one.stack or one.name for one, _ in self._running.values()})
        if self._console.is_terminal and not self._live.is_started:
            self._live.start(refresh=True)

    def trained(self, record: TrialRecord, rows: list[dict[str, float]]) -> None:
        if rows:
            self._running[record.name] = (record, int(rows[-1]["epoch"]))
            self._paces[record.label].add(rows)
        if record.name not in self._remarked:
            remarks = map(self._spec.variant(record.label).method.remark, rows)
            if remark := next(filter(None, remarks), None):
                self._remarked.add(record.name)
                self.said(f"trial {record.name}: {remark}")

    def stopped(self, record: TrialRecord) -> None:
        self._running.pop(record.name, None)

    def finished(self, record: TrialRecord) -> None:
        self._running.pop(record.name, None)
        self._finished.append(record)
        self._front = self._front_of([*self._front, record])
        if record.state == "failed":
            self._console.print(
                f"trial {record.name}: {(record.reason or '').rstrip('.')}. Recorded as failed; the"
                " study continues."
            )
        self._has_ended = True
        self._line_soon()

    def said(self, line: str) -> None:
        self._console.print(line, highlight=False, soft_wrap=True)

    def waiting(self, line: str | None) -> None:
        """The line says what the driver waits for; None: it goes on. May be called often."""
        if self._live.is_started:
            self._waits = line
            return
        if line is not None and self._waits is None:
            self._take_over()
            self.said(line)
        elif line is None and self._waits is not None:
            again = "Ray answers again." if self._waits.startswith("Ray:") else "It goes on."
            self._console.print(again, highlight=False)
        self._waits = line

    def _take_over(self) -> None:
        """From here on this display shows what is done."""
        self._steps.end()
        if self._heartbeat is None and not self._console.is_terminal:
            self._heartbeat = Heartbeat(self._line)
            silent = time.monotonic() - self._steps.spoke
            self._heartbeat.within(max(1.0, pause(AGAIN_SECONDS) - silent))

    # ---- display ---------------------------------------------------------------------------------

    def _front_of(self, records: list[TrialRecord]) -> list[TrialRecord]:
        self._highest = self._rules.best(records, self._highest)
        return front(self._rules.eligible(records, self._highest), self._spec.objectives)

    def _counts(self) -> dict[str, Counts]:
        """The counts by label, as `calstudy status` has them."""
        states: dict[str, list[str]] = {label: [] for label in self._planned}
        if self._aside[0] != len(self._finished):  # the view is drawn more often than a trial ends
            aside = set(self._rules.excluded(self._finished, self._highest))
            self._aside = (len(self._finished), aside)
        _, aside = self._aside
        for record in self._finished:
            states[record.label].append("excluded" if record.name in aside else record.state)
        for record, _ in list(self._running.values()):
            states[record.label].append("running")
        return {label: count_states(self._planned[label], found) for label, found in states.items()}

    def time_left(self) -> str:
        """The sentence on the time left; "" until the first epochs.

        A method's trials take as long as its ended ones did on average. Before ENOUGH have ended, a
        rough time is told from the seconds of its epochs so far, or of all methods' before it has
        any. Running trials count by their epochs. As many processes train at once as when the
        last trial started.
        """
        work = 0.0
        trials = 0
        is_rough = False
        for label, planned in self._planned.items():
            ended = [record.seconds for record in self._finished if record.label == label]
            seconds = [each for each in ended if each is not None]
            if left := planned - len(ended):
                if len(seconds) >= ENOUGH:
                    trial = statistics.fmean(seconds)
                else:
                    trial = self._spec.epochs * self._pace(label)
                    is_rough = True
                running = list(self._running.values())
                epochs = sum(epoch for record, epoch in running if record.label == label)
                work += trial * (left - epochs / self._spec.epochs)
                trials += left
        slots = min(self._slots, trials)
        if not slots or math.isnan(work):
            return ""
        return f"{'roughly' if is_rough else 'about'} {human_seconds(work / slots)} left"

    def _pace(self, label: str) -> float:
        """Seconds of a method's epoch; NaN before any."""
        own = self._paces[label]
        return (own if own.epochs else Pace.of_all(self._paces.values())).seconds_an_epoch

    def _line_soon(self) -> None:
        """Print the line of a trial that ended: LINE_SECONDS after the last one, or the last of
        all."""
        if self._console.is_terminal:
            return
        is_last = len(self._finished) >= sum(self._planned.values())
        wait = 0.0 if is_last else self._last_line + pause(LINE_SECONDS) - time.monotonic()
        if wait <= 0:
            self._line()
        elif self._heartbeat is not None:
            self._heartbeat.within(wait)

    def _line(self) -> None:
        """Print how far the study is, or what it waits for."""
        self._last_line = time.monotonic()
        if self._heartbeat is not None:
            self._heartbeat.within(pause(SILENT_SECONDS if self._has_ended else AGAIN_SECONDS))
        self.said(passing(self._waits or self._so_far()))

    def _so_far(self) -> str:
        counts = summed(self._counts().values())
        parts = [f"{done(counts)}/{counts['planned']} trials", in_words(counts)]
        if running := self._epochs():
            parts.append(f"epochs: {running}")
        best = [
            f"{name} {record.metrics[name]:.4f} ({record.name})"
            for name, record in self._best().items()
        ]
        if best:
            parts.append(f"best {', '.join(best)}")
        if left := self.time_left():
            parts.append(left)
        return "; ".join(parts)

    def _epochs(self) -> str:
        """The epochs of the running trials, of the first few by name."""
        running = list(self._running.items())
        shown = [
            f"{name} {epoch}/{self._spec.epochs}" for name, (_, epoch) in running[:RUNNING_SHOWN]
        ]
        if len(running) > RUNNING_SHOWN:
            shown.append(f"and {len(running) - RUNNING_SHOWN} more")
        return ", ".join(shown)

    def _best(self) -> dict[str, TrialRecord]:
        """The best trial by each objective: each of another, perhaps."""
        found: dict[str, TrialRecord] = {}
        if not self._front:
            return found
        for one in self._spec.objectives:
            found[one.metric] = min(
                self._front, key=lambda each: one.sign * each.metrics[one.metric]
            )
        return found

    def _view(self) -> Group:
        """The live view: one row per method, then the front so far."""
        # Rich draws it once more, as high as it is: what leaves the screen could not be removed.
        if self._over:
            return Group()
        counts = self._counts()
        methods = states_table(counts, bar=24 if self._console.width >= 80 else 8)
        total = summed(counts.values())
        if self._waits is None:
            trials = f"{done(total)}/{total['planned']} trials"
            now = Text(f"{trials}  {self.time_left()}  {self._epochs()}", style="dim")
        else:
            now = Text(self._waits, style="bold")
        shown: list[RenderableType] = [methods, now]
        if self._front:
            shown += [Text(), front_table(self._front, self._spec.objectives, FRONT_ROWS)]
        lines = self._console.render_lines(Group(*shown), pad=False)
        # The cursor rests on an empty line: after a full one, the terminal's ^C would move
        # everything down by a line.
        return Group(SegmentLines(lines[: self._console.height - 1], new_lines=True), Text())


def human_seconds(seconds: float) -> str:
    """`45 s`, `12 min`, `3.5 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
