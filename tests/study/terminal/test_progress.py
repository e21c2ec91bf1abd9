"""The live view: counts, time left, and text that may hold anything."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from study.schema.reading import spec_from_mapping
from study.store.trials import TrialRecord, Trials
from study.terminal.progress import Progress, human_seconds
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


def rows(count: int) -> list[dict[str, float]]:
    return [{"epoch": epoch} for epoch in range(1, count + 1)]


def view(records: dict[str, list[TrialRecord]]) -> tuple[Progress, io.StringIO]:
    out = io.StringIO()
    console = Console(file=out, markup=False, width=120)
    return Progress(SPEC, Trials(records), console), out


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


def test_a_line_says_whose_each_best_value_is() -> None:
    """The more accurate trial is the worse calibrated one: no trial has both values."""
    accurate = replace(record("focal", 3), metrics={"accuracy": 0.99, "ece": 0.2})
    progress, out = view({"focal": [accurate], "mbls": [record("mbls", 1)]})
    progress.trained(record("focal", 2, "running"), rows(1))
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


def test_no_time_is_estimated_before_two_trials_of_each_method_have_ended() -> None:
    progress, _ = view(
        {"focal": [replace(record("focal", n), seconds=80.0) for n in range(2)], "mbls": []}
    )
    for number in range(2):
        progress.started(record("mbls", number, "running"))
        progress.trained(record("mbls", number, "running"), rows(9))
    assert progress.time_left() == ""
    progress.finished(replace(record("mbls", 0), seconds=50.0))
    # Its process died: nobody knows how long it trained.
    progress.finished(record("mbls", 1, "failed"))
    assert progress.time_left() == ""
    progress.finished(replace(record("mbls", 2), seconds=50.0))
    assert progress.time_left() != ""


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


def test_a_ledger_that_is_waited_for_is_one_line_of_the_view() -> None:
    waits = "ledger: PostgreSQL at db:5432/ledgers does not answer; waiting (12 s)"
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
    assert out.getvalue().splitlines() == [waits.replace("12", "0"), "the ledger answers again."]


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
