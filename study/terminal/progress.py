"""Progress of a running study: a live view on a terminal, plain lines on a pipe."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.segment import SegmentLines
from rich.text import Text

from study.analysis.pareto import front
from study.analysis.ranking import Rules
from study.analysis.states import Counts, count_states, done, in_words, summed
from study.store.trials import Listener, TrialRecord, Trials
from study.terminal.steps import LINE_SECONDS, Steps
from study.terminal.tables import front_table, states_table

if TYPE_CHECKING:
    from study.schema.spec import StudySpec

FRONT_ROWS = 6
ENOUGH = 2  # ended trials of each method, before an estimate is made from them


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
            label: max(spec.trials, len(found)) for label, found in records.by_label.items()
        }
        self._running: dict[str, tuple[TrialRecord, int]] = {}
        self._slots = 0  # trials that trained at once when the last one started
        self._last_line = -LINE_SECONDS
        self._over = False
        self._waits: str | None = None
        self._rules = rules or Rules(spec.objectives)
        self._highest: dict[str, float] = {}
        self._aside: tuple[int, set[str]] = (0, set())  # trials set aside, of that many finished
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
        if self._live.is_started:
            self._over = True
            self._live.stop()

    # ---- events ----------------------------------------------------------------------------------

    def started(self, record: TrialRecord) -> None:
        self._steps.end()
        self._running[record.name] = (record, 0)
        self._slots = len(self._running)
        if self._console.is_terminal and not self._live.is_started:
            self._live.start(refresh=True)

    def trained(self, record: TrialRecord, rows: list[dict[str, float]]) -> None:
        if rows:
            self._running[record.name] = (record, int(rows[-1]["epoch"]))
        self._line()

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
        self._line()

    def said(self, line: str) -> None:
        self._console.print(line, highlight=False, soft_wrap=True)

    def waiting(self, line: str | None) -> None:
        """The line says what the driver waits for; None: it goes on. May be called often."""
        if self._live.is_started:
            self._waits = line
            return
        if line is not None and self._waits is None:
            self._steps.end()
            self.said(line)
        elif line is None and self._waits is not None:
            whose = "Ray" if self._waits.startswith("Ray:") else "the ledger"
            self._console.print(f"{whose} answers again.", highlight=False)
        self._waits = line

    # ---- display ---------------------------------------------------------------------------------

    def _front_of(self, records: list[TrialRecord]) -> list[TrialRecord]:
        self._highest = self._rules.best(records, self._highest)
        return front(self._rules.eligible(records, self._highest), self._spec.objectives)

    def _counts(self) -> dict[str, Counts]:
        """The counts by label, as `calstudy status` has them."""
        states: dict[str, list[str]] = {label: [] for label in self._planned}
        if self._aside[0] != len(self._finished):  # the view is drawn more often than a trial ends
            aside = set(self._rules.set_aside(self._finished, self._highest))
            self._aside = (len(self._finished), aside)
        _, aside = self._aside
        for record in self._finished:
            states[record.label].append("set_aside" if record.name in aside else record.state)
        for record, _ in list(self._running.values()):
            states[record.label].append("running")
        return {label: count_states(self._planned[label], found) for label, found in states.items()}

    def time_left(self) -> str:
        """The sentence on the time left; "" until two trials of each method have ended.

        Each method's trials take as long as its ended ones did on average. Running trials count by
        their epochs. As many trials train at once as when the last one started.
        """
        work = 0.0
        trials = 0
        for label, planned in self._planned.items():
            ended = [record.seconds for record in self._finished if record.label == label]
            seconds = [each for each in ended if each is not None]
            if left := planned - len(ended):
                if len(seconds) < ENOUGH:
                    return ""
                running = list(self._running.values())
                epochs = sum(epoch for record, epoch in running if record.label == label)
                work += statistics.fmean(seconds) * (left - epochs / self._spec.epochs)
                trials += left
        slots = min(self._slots, trials)
        return f"about {human_seconds(work / slots)} left" if slots else ""

    def _line(self) -> None:
        """Print a progress line if on a pipe and one is due."""
        if self._console.is_terminal:
            return
        over = len(self._finished) >= sum(self._planned.values())
        if not (over or time.monotonic() - self._last_line >= LINE_SECONDS):
            return
        counts = summed(self._counts().values())
        self._last_line = time.monotonic()
        best = [
            f"{name} {record.metrics[name]:.4f} ({record.name})"
            for name, record in self._best().items()
        ]
        parts = [f"{done(counts)}/{counts['planned']} trials", in_words(counts)]
        if best:
            parts.append(f"best {', '.join(best)}")
        if left := self.time_left():
            parts.append(left)
        self.said("; ".join(parts))

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
        running = list(self._running.items())[:4]
        epochs = ", ".join(f"{name} {epoch}/{self._spec.epochs}" for name, (_, epoch) in running)
        if self._waits is None:
            trials = f"{done(total)}/{total['planned']} trials"
            now = Text(f"{trials}  {self.time_left()}  {epochs}", style="dim")
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
