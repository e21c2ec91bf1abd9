"""The live view: counts, time left, and text that may hold anything."""

import io
from collections.abc import Callable
from dataclasses import replace

import pytest
from rich.console import Console

from study.schema.reading import spec_from_mapping
from study.store.trials import TrialRecord, Trials
from study.terminal import progress as module
from study.terminal.progress import Progress, human_seconds
from study.terminal.steps import FOLLOWED, PASSING
from study.terminal.tables import short_params
from tests.study.terminal.screen import Terminal

SPEC = spec_from_mapping(
    {
        "name": "small",
        "data": "digits",
        "model": "mlp",
        "methods": ["focal", "mbls"],
        "trials": 4,
        "epochs": 10,
    },
    "study.yaml",
)


def record(
    label: str, number: int, state: str = "complete", reason: str | None = None
) -> TrialRecord:
    metrics = {"accuracy": 0.9 + 0.01 * number, "ece": 0.1} if state == "complete" else {}
    return TrialRecord(label, number, state, {"method.gamma": 1.0}, metrics=metrics, reason=reason)


def rows(count: int, seconds: float = 1.0) -> list[dict[str, float]]:
    return [{"epoch": epoch, "seconds": seconds} for epoch in range(1, count + 1)]


def view(records: dict[str, list[TrialRecord]]) -> tuple[Progress, io.StringIO]:
    out = io.StringIO()
    console = Console(file=out, markup=False, width=120)
    return Progress(SPEC, Trials(records), console), out


def test_what_a_method_remarks_of_an_epoch_is_said_once_a_trial() -> None:
    spec = spec_from_mapping({**SPEC.to_mapping(), "methods": ["gamma_net"]}, "study.yaml")
    out = io.StringIO()
    console = Console(file=out, markup=False, width=120)
    fine = [{**row, "gamma_q50": 2.0, "gamma_capped": 0.0} for row in rows(2)]
    away = [{**row, "gamma_q50": 9.5, "gamma_capped": 0.6} for row in rows(2)]
    with Progress(spec, Trials({"gamma_net": []}), console) as progress:
        for number in range(2):
            progress.started(record("gamma_net", number, "running"))
            for each in (fine, away, away):
                progress.trained(record("gamma_net", number), each)
    said = [line for line in out.getvalue().splitlines() if "gamma ran away" in line]
    assert said == [
        f"trial gamma_net/000{number}: gamma ran away (median 9.5, 60% at gamma_max): lower meta_lr"
        for number in range(2)
    ]


def test_a_pipe_gets_plain_lines() -> None:
    progress, out = view({"focal": [], "mbls": []})
    with progress:
        for number in range(4):
            for label in ("focal", "mbls"):
                progress.started(record(label, number, "running"))
                progress.trained(record(label, number), rows(10))
                progress.finished(record(label, number))
    lines = out.getvalue().splitlines()
    assert lines[0] == "small: 8 of 8 trials to run, 2 methods"
    best = "best accuracy 0.9300 (focal/0003), ece 0.1000 (focal/0003)"
    assert lines[-1].startswith(f"8/8 trials; 8 complete; {best}") and "\x1b" not in out.getvalue()


def test_who_follows_is_told_which_lines_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLLOWED, "1")
    progress, out = view({"focal": [], "mbls": []})
    with progress:
        progress.started(record("focal", 0, "running"))
        progress.finished(record("focal", 0, "failed", "loss is nan"))
    first, failed, passes = out.getvalue().splitlines()
    assert first.startswith("small: 8 of 8 trials") and failed.startswith("trial focal/0000: loss")
    assert passes.startswith(f"{PASSING}1/8 trials; 0 complete, 1 failed, 7 to do")


def test_a_line_says_whose_each_best_value_is() -> None:
    """The more accurate trial is the worse calibrated one: no trial has both values."""
    accurate = replace(record("focal", 3), metrics={"accuracy": 0.99, "ece": 0.2})
    progress, out = view({"focal": [accurate], "mbls": [record("mbls", 1)]})
    progress.finished(record("focal", 2, "failed", "it died"))
    assert "; best accuracy 0.9900 (focal/0003), ece 0.1000 (mbls/0001)" in out.getvalue()


@pytest.mark.parametrize("reason", ["OSError: cannot open [/data/x]", "[bold]", "[", "]]"])
def test_a_reason_may_hold_anything(reason: str) -> None:
    progress, out = view({"focal": [], "mbls": []})
    with progress:
        progress.finished(record("focal", 0, "failed", reason))
    assert f"trial focal/0000: {reason}. Recorded as failed; the study continues." in out.getvalue()


def test_time_left_is_the_work_of_each_method_over_the_slots_in_use() -> None:
    """focal takes 100 s and mbls 20 s a trial; two of four are left of each, and two of these
    train.

    Left: 2 x 100 s less 4 of 10 epochs, and 2 x 20 s less 5 of 10: 160 + 30 s for two slots.
    """
    ended = {
        "focal": [
            replace(record("focal", n), seconds=seconds) for n, seconds in enumerate((80.0, 120.0))
        ],
        "mbls": [
            replace(record("mbls", 0), seconds=30.0),
            replace(record("mbls", 1, "failed"), seconds=10.0),
        ],
    }
    progress, _ = view(ended)
    assert progress.time_left() == ""  # nothing trains yet: nobody knows how many at once
    for label, epochs in (("focal", 4), ("mbls", 5)):
        progress.started(record(label, 2, "running"))
        progress.trained(record(label, 2, "running"), rows(epochs))
    assert progress.time_left() == f"about {human_seconds(95)} left"
    progress.finished(replace(record("mbls", 2), seconds=20.0))
    # Between the end of a trial and the start of the next, the slots are as many as before.
    assert progress.time_left() == f"about {human_seconds((160 + 20) / 2)} left"
    progress.started(record("mbls", 3, "running"))
    progress.finished(replace(record("mbls", 3), seconds=20.0))
    progress.finished(replace(record("focal", 2), seconds=100.0))
    assert progress.time_left() == f"about {human_seconds(100)} left"  # the last trial trains alone


def test_a_rough_time_is_told_from_the_first_epochs_on() -> None:
    """focal takes 80 s a trial; of mbls nobody knows more than its epochs, of 4 s each.

    Left: 2 x 80 s, and 4 x 10 epochs of 4 s less 2 x 2: 160 + 144 s for two slots. Before mbls has
    an epoch, one of it is taken to last as one of focal: 2 x 80 s less 8, and 4 x 10 x 8 s.
    """
    progress, _ = view(
        {"focal": [replace(record("focal", n), seconds=80.0) for n in range(2)], "mbls": []}
    )
    for label, number in (("mbls", 0), ("mbls", 1)):
        progress.started(record(label, number, "running"))
    assert progress.time_left() == ""
    progress.trained(record("focal", 2, "running"), rows(1, 8.0))
    assert progress.time_left() == f"roughly {human_seconds((160 - 8 + 320) / 2)} left"
    progress.stopped(record("focal", 2, "running"))
    for number in range(2):
        progress.trained(record("mbls", number, "running"), rows(2, 4.0))
    assert progress.time_left() == f"roughly {human_seconds((160 + 144) / 2)} left"
    progress.finished(replace(record("mbls", 0), seconds=50.0))
    # Its process died: nobody knows how long it trained.
    progress.finished(record("mbls", 1, "failed"))
    assert progress.time_left().startswith("roughly")
    progress.finished(replace(record("mbls", 2), seconds=50.0))
    assert progress.time_left().startswith("about")


class Clock:
    """Heartbeats of a pipe, and the time, by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.due: float | None = None
        monkeypatch.setattr(module, "Heartbeat", self.heartbeat)
        monkeypatch.setattr(module.time, "monotonic", lambda: self.now)

    def heartbeat(self, beat: Callable[[], None]) -> "Clock":
        self.beat = beat
        return self

    def within(self, seconds: float) -> None:
        self.due = self.now + seconds

    def end(self) -> None:
        self.due = None

    def wait(self, seconds: float) -> None:
        until = self.now + seconds
        while self.due is not None and self.due <= until:
            self.now = self.due
            self.due = None
            self.beat()
        self.now = until


def test_a_pipe_hears_every_half_minute_then_every_five_minutes_or_of_what_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(monkeypatch)
    progress, out = view({"focal": [], "mbls": []})

    def lines() -> list[str]:
        found = out.getvalue().splitlines()
        out.seek(0)
        out.truncate()
        return found

    with progress:
        lines()
        for label, number in (("focal", 0), ("focal", 1), ("mbls", 0), ("mbls", 1), ("focal", 2)):
            progress.started(record(label, number, "running"))
        progress.trained(record("focal", 0, "running"), rows(3, 20.0))
        clock.wait(95)
        epochs = "focal/0000 3/10, focal/0001 0/10, mbls/0000 0/10, mbls/0001 0/10, and 1 more"
        left = f"roughly {human_seconds(20 * 77 / 5)} left"
        line = f"0/8 trials; 0 complete, 5 running, 3 to do; epochs: {epochs}; {left}"
        assert lines() == [line] * 3
        progress.finished(replace(record("focal", 0), seconds=200.0))
        first = lines()  # it ended 5 s after the last line
        clock.wait(4)
        progress.finished(replace(record("focal", 1), seconds=200.0))
        assert first == lines() == []
        clock.wait(1)
        (both,) = lines()
        assert both.startswith("2/8 trials; 2 complete, 3 running, 3 to do; epochs: mbls/0000 0/10")
        clock.wait(299)
        assert lines() == []
        clock.wait(302)
        assert len(lines()) == 2
        progress.finished(replace(record("focal", 2), seconds=200.0))
        assert len(lines()) == 0
        clock.wait(9)
        assert len(lines()) == 1
    clock.wait(1000)
    assert lines() == []


def test_a_pipe_hears_again_what_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    progress, out = view({"focal": [], "mbls": []})
    for seconds in range(32):
        progress.waiting(f"Ray: its head does not answer; waiting ({seconds} s)")
        clock.wait(1)
    progress.waiting(None)
    assert out.getvalue().splitlines() == [
        "Ray: its head does not answer; waiting (0 s)",
        "Ray: its head does not answer; waiting (29 s)",
        "Ray answers again.",
    ]


def test_more_trials_than_asked_for_are_no_negative_count() -> None:
    records = {"focal": [record("focal", number) for number in range(9)], "mbls": []}
    progress, out = view(records)
    with progress:
        pass
    assert out.getvalue().splitlines()[0] == "small: 4 of 13 trials to run, 2 methods"


def test_the_live_view_shows_methods_running_trials_and_the_front() -> None:
    progress, out = view(
        {"focal": [record("focal", 0)], "mbls": [record("mbls", 0, "failed", "nan")]}
    )
    progress.started(record("focal", 1, "running"))
    progress.trained(record("focal", 1, "running"), rows(3))
    Console(file=out, markup=False, width=120).print(progress._view())
    shown = out.getvalue()
    assert "focal/0001 3/10" in shown and "2/8 trials" in shown and "front (validation)" in shown
    lines = [line.split() for line in shown.splitlines()]
    assert ["method", "planned", "complete", "failed", "running", "to", "do"] in lines
    assert [line[:6] for line in lines if line[:1] == ["focal"]] == [
        ["focal", "4", "1", "0", "1", "2"]
    ]
    assert [line[:6] for line in lines if line[:1] == ["mbls"]] == [
        ["mbls", "4", "0", "1", "0", "3"]
    ]


def test_a_head_that_is_waited_for_is_one_line_of_the_view() -> None:
    waits = "Ray: its head does not answer; waiting (12 s)"
    terminal = Terminal(100, 30)
    with Progress(SPEC, Trials({"focal": [], "mbls": []}), terminal.console) as progress:
        progress.started(record("mbls", 0, "running"))
        for line, lines in ((waits, 1), (None, 0)):
            progress.waiting(line)
            progress._live.refresh()
            assert [shown.strip() for shown in terminal.screen()].count(waits) == lines
            assert any(shown.startswith("method") for shown in terminal.screen())
    terminal.close()

    piped, out = view({"focal": [], "mbls": []})
    for line in (waits.replace("12", "0"), waits, None, None):
        piped.waiting(line)
    assert out.getvalue().splitlines() == [waits.replace("12", "0"), "Ray answers again."]


def test_parameters_are_named_by_their_last_word_where_that_says_enough() -> None:
    assert short_params({"method.gamma": 2.0, "optimizer.lr": 0.05}) == "gamma=2 lr=0.05"
    assert "method.weight=1 method.base.weight=2" in short_params(
        {"method.weight": 1.0, "method.base.weight": 2.0}
    )


@pytest.mark.parametrize("height", [60, 12])
def test_ctrl_c_leaves_no_line_of_the_live_view(height: int) -> None:
    """The terminal shows `^C` where the cursor is; and a view that is higher
    than it scrolls away."""
    terminal = Terminal(80, height)
    wide = {f"method.{30 * 'w'}": 0.123}  # its row fills the line
    found = [
        TrialRecord("focal", n, "complete", wide, metrics={"accuracy": n / 9, "ece": n / 9})
        for n in range(8)
    ]
    with Progress(SPEC, Trials({"focal": found, "mbls": []}), terminal.console) as progress:
        progress.started(record("mbls", 0, "running"))
        progress._live.refresh()
        assert any(line.startswith("method") for line in terminal.screen())
        assert height == 12 or len(terminal.screen()[-1].rstrip() or terminal.screen()[-2]) == 80
        terminal.interrupt()
        progress._live.refresh()
    left = [line for line in terminal.screen() if line.strip()]
    terminal.close()
    assert left == ["small: 4 of 12 trials to run, 2 methods"]
